"""The controller's campaign: over TLS against an API server in this process, else on a clock that jumps."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.controller.api import NodesApi, serving
from tests.fleet.controller.drawn import NOW, OTHERS, OURS, raw, settings
from tests.fleet.controller.leading import Played, campaign, nowhere
from tests.patience import HANGS
from wirewatch.kubernetes.apiserver import RequestResult
from wirewatch_fleet.controller import cluster, loop
from wirewatch_fleet.controller.cluster import connected
from wirewatch_fleet.controller.decide import NodeStep
from wirewatch_fleet.controller.loop import Controller, Identity

SOON = HANGS


class FixedClock:
    """The time of the drawn nodes; monotonic time is the machine's."""

    def now(self) -> float:
        return NOW

    def mono(self) -> float:
        return time.monotonic()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests answer at once here, so none before us can be on its way for seconds."""
    monkeypatch.setattr(loop, "REQUEST", 0.1)
    monkeypatch.setattr(cluster, "REQUEST", 5.0)
    monkeypatch.setattr(loop, "BUNDLE", 0.02)


TAKEN_OUT = (NodeStep.TAKE_OUT, RequestResult.OK)


def play(
    api: NodesApi, folder: Path, script: Callable[[Controller], Awaitable[None]], **changed: Any
) -> Controller:
    """A controller with these settings until the script ends."""

    async def run() -> Controller:
        async with serving(api, folder) as where:
            ours = settings(lease=6, period=1.0, **changed)
            made = Controller(lambda: connected(where), Identity("us", "wirewatch"), ours, FixedClock())
            running = asyncio.create_task(made.run())
            try:
                await script(made)
            finally:
                running.cancel()
                await asyncio.wait({running})
            return made

    return asyncio.run(run())


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not look():  # noqa: ASYNC110 - it looks at two sides of a connection
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("quick")
def test_a_failed_node_is_taken_out_with_its_mark_and_given_back_when_it_is_fit(tmp_path: Path) -> None:
    api = NodesApi(raw("bad", taints=[OTHERS]), raw("well", "ok"))

    async def script(_: Controller) -> None:
        await until(lambda: OURS in api.nodes["bad"]["spec"]["taints"])
        fit = raw("bad", "ok")
        api.put({**api.nodes["bad"], "status": fit["status"]})
        await until(lambda: len(api.events) == 2)

    made = play(api, tmp_path, script, outage_taints=())
    assert api.nodes["bad"]["spec"]["taints"] == [OTHERS]
    assert api.nodes["bad"]["metadata"]["annotations"] == {"other": "kept"}
    assert {name for name, _ in api.patches} == {"bad"}
    assert made.report.steps == {
        (NodeStep.TAKE_OUT, RequestResult.OK): 1, (NodeStep.GIVE_BACK, RequestResult.OK): 1,
    }  # fmt: skip


LACKING = "403: the ServiceAccount lacks a right"
ALWAYS = 1000
LEASE = "wirewatch/wirewatch-controller"


def test_who_loses_the_lease_does_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    """The lease is ours until 32.5 s; from a request's length before that no step begins."""
    played = Played([raw("well", "ok")], says=[(29.0, ("ADDED", raw("bad")))], taken=20.0)
    made = campaign(played, 100.0, lease=15, period=5.0)
    assert [kind for _, kind, _ in played.asked[:4]] == ["connect", "read lease", "make lease", "read lease"]
    assert (played.times("list"), played.times("patch")) == ([(5.0, "")], [])
    assert {kind for at, kind, _ in played.asked if at > 20} == {"read lease", "connect"}
    assert (made.report.leader, made.report.plan, made.report.synced_at) == (False, None, NOW)
    assert "us has lost the lease" in caplog.text
    assert "does not give what is asked" not in caplog.text


def test_who_waits_for_the_lease_asks_for_nothing_else() -> None:
    played = Played([raw("bad")], taken=0.0)
    campaign(played, 1.0)
    played.asked.clear()
    made = campaign(played, 100.0, lease=15)
    assert {kind for _, kind, _ in played.asked} == {"connect", "read lease"}
    assert (made.asked, made.report.leader, made.report.plan) == (True, False, None)


def test_a_leader_that_cannot_list_the_nodes_says_so_and_begins_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    played = Played([raw("bad")], {"list": [RequestResult.SERVER_ERROR]})
    made = campaign(played, 60.0, lease=15)
    (first, _), (again, _) = played.times("connect")
    assert (first, 6.0 <= again <= 7.0) == (0.0, True)
    assert [name for _, name in played.times("patch")] == ["bad"]
    assert made.report.steps == {TAKEN_OUT: 1}
    assert caplog.text.count("the API server does not give what is asked") == 1
    assert caplog.text.count("the API server answers again") == 1


def test_without_credentials_it_tries_again_later_and_later(caplog: pytest.LogCaptureFixture) -> None:
    """Each wait is twice the last, up to 30 s, and by chance up to a half shorter."""
    played = Played([raw("bad")], {"connect": [RequestResult.NO_CREDENTIALS] * 7})
    made = campaign(played, 300.0)
    tries = [at for at, _ in played.times("connect")]
    waits = [round(b - a, 1) for a, b in pairwise(tries)]
    assert len(waits) == 7
    for wait, longest in zip(waits, (2, 4, 8, 16, 30, 30, 30), strict=True):
        assert longest / 2 <= wait <= longest
    assert caplog.text.count("the API server does not give what is asked") == 1
    assert [name for _, name in played.times("patch")] == ["bad"]
    assert made.asked


@pytest.mark.parametrize(
    ("results", "lacking", "others", "again"),
    [
        ([RequestResult.FORBIDDEN] * ALWAYS, 1, 0, 0),
        ([RequestResult.FORBIDDEN] * 2, 1, 0, 1),
        ([RequestResult.FORBIDDEN, RequestResult.SERVER_ERROR, RequestResult.FORBIDDEN], 2, 1, 1),
    ],
)
def test_a_lease_that_cannot_be_read_is_told_once_for_each_reason(
    results: list[RequestResult], lacking: int, others: int, again: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    played = Played([raw("bad")], {"read lease": results})
    made = campaign(played, 60.0, lease=15)
    assert (caplog.text.count(LACKING), caplog.text.count("(500")) == (lacking, others)
    assert caplog.text.count("the API server answers again") == again
    assert played.times("read lease")[:3] == [(0.0, LEASE), (2.5, LEASE), (5.0, LEASE)]
    assert made.asked is bool(again)
    assert bool(played.times("patch")) is bool(again)


class SetClock(FixedClock):
    """Monotonic time as the test sets it."""

    at = 0.0

    def mono(self) -> float:
        return self.at


def test_a_loop_is_stuck_after_a_minute_and_a_lease() -> None:
    clock = SetClock()
    made = Controller(nowhere, Identity("us", "wirewatch"), settings(lease=15), clock)
    for clock.at, turns in ((74.0, True), (76.0, False)):
        assert made.turning() is turns
