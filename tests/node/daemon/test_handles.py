"""What may hold a GPU is closed and opened in its order, and each part is asked that is there."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rows import each
from tests.support import StillClock
from wirewatch.catalogue import discover
from wirewatch.core.types import Absent, Why
from wirewatch.daemon import release as module
from wirewatch.daemon.release import Handles, Release
from wirewatch.probe.remote import HandleRelease


class Parts:
    """Stand-ins that note what they are asked; `stuck`: processes that hold a GPU still."""

    def __init__(
        self, stuck: tuple[int, ...] = (), worker: int | None = None, far: tuple[int, ...] = ()
    ) -> None:
        self.asked: list[str] = []
        note = self.asked.append
        self.nvml: Any = SimpleNamespace(
            release=lambda _why: (note("nvml released"), stuck)[1], resume=lambda: note("nvml resumed")
        )
        self.prober: Any = SimpleNamespace(
            give_way=lambda _why: note("prober gives way"),
            resume=lambda: note("prober resumed"),
            left=lambda _seconds: worker,
            finished=lambda seconds: note(f"waited {seconds:g} s"),
        )
        self.elsewhere: Any = SimpleNamespace(
            give_way=lambda _why, seconds, _within: note(f"remote for {seconds:g} s"),
            resume=lambda: note("remote resumed"),
            left=lambda _seconds: HandleRelease(far, "who knows" if far else ""),
        )


@each(
    ("parts", "here", "there", "left"),
    [
        (Parts(), False, False, HandleRelease()),
        (Parts((7,), 8, (9,)), False, False, HandleRelease((7,))),
        (Parts((7,), 8, (9,)), True, False, HandleRelease((7, 8))),
        (Parts((), None), True, False, HandleRelease()),
        (Parts((7,), 8, (9,)), True, True, HandleRelease((7, 8, 9), "who knows")),
        (Parts((), 8, ()), False, True, HandleRelease()),
    ],
)
def test_what_still_holds_a_gpu_is_reported(
    parts: Parts, left: HandleRelease, *, here: bool, there: bool
) -> None:
    handles = Handles(parts.nvml, parts.prober if here else None, parts.elsewhere if there else None)
    assert handles.close("why", 60.0) == left
    wanted = ["remote for 60 s"] * there + ["prober gives way"] * here + ["nvml released"]
    assert parts.asked == wanted
    parts.asked.clear()
    handles.open()
    assert parts.asked == ["nvml resumed"] + ["prober resumed"] * here + ["remote resumed"] * there
    parts.asked.clear()
    handles.end("why")
    assert parts.asked == ["prober gives way", "waited 0.5 s"] * here


def released(parts: Parts, work: Any) -> tuple[list[str], Any]:
    """What the parts and the schedule were asked, and what the work returns."""

    async def scenario() -> Any:
        handles = Handles(parts.nvml, None, parts.elsewhere)
        return await work(Release(handles, StillClock(), lambda: parts.asked.append("changed")))

    return parts.asked, asyncio.run(scenario())


def test_a_release_is_reported_and_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def work(release: Release) -> Any:
        begun = await release.begin(600.0, "ann\n")
        until = release.until()
        return begun, until, await release.end(""), release.until()

    asked, (begun, until, ended, after) = released(Parts(), work)
    assert asked == [
        "remote for 600 s",
        "nvml released",
        "changed",
        "nvml resumed",
        "remote resumed",
        "changed",
    ]
    assert (begun.released, begun.until, begun.stuck, begun.unsure) == (True, until, [], "")
    assert until == StillClock().now() + 600.0
    assert (ended.released, ended.until, after) == (False, 0.0, 0.0)
    for words in ("(asked by ann)", "every GPU handle is closed after", "asked by an unnamed caller"):
        assert words in caplog.text


def test_where_nothing_was_released_a_remote_prober_is_let_go_all_the_same() -> None:
    asked, document = released(Parts(), lambda release: release.end("ann"))
    assert asked == ["remote resumed"]
    assert (document.released, document.why) == (False, "nothing was released")


def test_what_cannot_be_closed_is_said(caplog: pytest.LogCaptureFixture) -> None:
    _, document = released(Parts((7,), None, (9,)), lambda release: release.begin(60.0))
    assert (document.stuck, document.unsure) == ([7, 9], "who knows")
    assert "[7, 9] cannot be killed" in caplog.text.replace("(7, 9)", "[7, 9]")
    assert "is not known: who knows" in caplog.text
    assert "every GPU handle is closed" not in caplog.text


@pytest.mark.parametrize("between", [True, False])
def test_a_reading_in_which_gpus_were_let_go_is_none(*, between: bool) -> None:
    async def work(release: Release) -> Any:
        value: list[Any] = ["read", Absent(Why.LOST)]
        if between:
            await release.begin(60.0)
        (nvlink,) = (one for one in discover() if one.name == "nvlink")
        made = release.guarded(replace(nvlink, read=lambda *_: value.pop(0)))
        return [made.read(None, None, None) for _ in range(2)]  # type: ignore[arg-type]

    _, (first, second) = released(Parts(), work)
    assert (first == "read") is not between
    assert second == Absent(Why.LOST)


@pytest.mark.parametrize(
    ("text", "told"),
    [("ann", "ann"), ("a\x1b\nb", "ab"), ("\n", "an unnamed caller"), ("", "an unnamed caller")],
)
def test_who_asked(text: str, told: str) -> None:
    assert module.printable(text) == told
