"""Release without a process around it: both holders at once, readings cut in the middle, what is told."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.groups import dies
from tests.node.hw.children import is_dead, until
from tests.node.probe.rig import Rig
from tests.patience import HANGS
from wirewatch.catalogue import discover
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Why
from wirewatch.daemon.release import Handles, Release, utc
from wirewatch.hw.host import SystemClock
from wirewatch.hw.nvml.client import NvmlClient
from wirewatch.hw.nvml.protocol import Source
from wirewatch.probe.remote import HandleRelease

SOON = HANGS
DAY = 86_400.0
NOTHING = cast("Hardware", None)
"""For readings that read nothing."""
COLLECTORS = {collector.name: collector for collector in discover()}


@asynccontextmanager
async def releasing(
    changed: Callable[[], None] = lambda: None,
) -> AsyncIterator[tuple[Release, NvmlClient]]:
    nvml = NvmlClient(Source("h200x8", epoch=time.monotonic()))
    release = Release(Handles(nvml), SystemClock(), changed)
    try:
        yield release, nvml
    finally:
        await release.end()
        nvml.close()


def test_the_process_of_nvml_and_the_worker_of_a_probe_are_both_dead_on_return(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    nvml = NvmlClient(Source("h200x8", epoch=time.monotonic()))
    handles = Handles(nvml, rig.prober)
    assert not isinstance(nvml.gpus(), Absent)
    child = nvml.cost().pid
    outcomes: list[str] = []
    probe = threading.Thread(target=lambda: outcomes.append(rig.run("stubborn", 60.0).outcome), daemon=True)
    probe.start()
    until(rig.pid_file.exists)

    began = time.monotonic()
    assert handles.close("released until noon", 60.0) == HandleRelease()
    assert time.monotonic() - began < HANGS
    assert child is not None
    assert is_dead(child)
    assert dies(rig.pid())
    probe.join(SOON)
    assert outcomes == ["preempted"]
    assert rig.run("good").why == "released until noon"
    handles.open()
    assert rig.run("good").outcome == "ok"
    assert not isinstance(nvml.gpus(), Absent)
    nvml.close()


def test_orders_that_come_together_are_followed_one_after_the_other() -> None:
    async def main() -> None:
        async with releasing() as (release, nvml):
            assert not isinstance(nvml.gpus(), Absent)
            orders = [
                release.begin(60.0),
                release.begin(30.0),
                release.end(),
                release.begin(9.0),
                release.end(),
            ]
            told = await asyncio.gather(*orders)
            assert [one.released for one in told] == [True, True, False, True, False]
            assert release.until() == 0.0
            assert not isinstance(nvml.gpus(), Absent)

    asyncio.run(main())


def test_a_time_that_is_up_while_another_order_is_under_way_ends_nothing() -> None:
    async def main() -> None:
        async with releasing() as (release, _):
            await asyncio.gather(*(release.begin(seconds) for seconds in (1e-4, 1e-4, 60.0)))
            await asyncio.sleep(0.2)
            assert release.until() > time.time() + 30

    asyncio.run(main())


def test_it_says_when_handles_were_closed_and_when_they_may_be_open_again() -> None:
    told: list[bool] = []

    async def main() -> None:
        async with releasing(lambda: told.append(bool(release.until()))) as (release, _):
            await release.begin(0.05)
            await asyncio.to_thread(until, lambda: not release.until())

    asyncio.run(main())
    assert told == [True, False]


@pytest.mark.parametrize(
    ("name", "orders", "kept"),
    [
        ("topology", ("begin",), False), ("topology", ("begin", "end"), False), ("topology", (), True),
        ("infiniband", ("begin", "end"), True),
    ],
)  # fmt: skip
def test_what_was_half_read_when_gpus_were_let_go_is_no_reading(
    name: str, orders: tuple[str, ...], *, kept: bool
) -> None:
    reading, go = threading.Event(), threading.Event()

    def read(*_: object) -> object:
        reading.set()
        assert go.wait(SOON)
        return "half a node"

    async def main() -> object:
        async with releasing() as (release, _):
            collector = release.guarded(replace(COLLECTORS[name], read=read))
            value = asyncio.create_task(asyncio.to_thread(collector.read, NOTHING, None, None))
            await asyncio.to_thread(reading.wait, SOON)
            for order in orders:
                await (release.begin(60.0) if order == "begin" else release.end())
            go.set()
            return await value

    value = asyncio.run(main())
    lost = Absent(Why.RELEASED, "the GPUs were released in the middle of it")
    assert value == ("half a node" if kept else lost)


def test_an_absence_is_reported_as_it_is_and_afterwards_all_is_read_as_ever() -> None:
    why = Absent(Why.TIMEOUT, "no answer")
    values = [why, why, "a node"]

    async def main() -> list[object]:
        async with releasing() as (release, _):
            collector = release.guarded(replace(COLLECTORS["gpu"], read=lambda *_: values.pop(0)))
            told = [collector.read(NOTHING, None, None)]
            await release.begin(60.0)
            told.append(collector.read(NOTHING, None, None))
            await release.end()
            return [*told, collector.read(NOTHING, None, None)]

    assert asyncio.run(main()) == [why, why, "a node"]


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (0.0, "00:00:00Z"),
        (DAY - 1, "23:59:59Z"),
        (DAY, "1970-01-02T00:00:00Z"),
        (1.5 * DAY, "1970-01-02T12:00:00Z"),
    ],
)
def test_a_moment_has_its_date_when_that_is_not_today(moment: float, text: str) -> None:
    assert utc(moment, 0.0) == text
