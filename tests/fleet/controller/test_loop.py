"""The controller's loop against an API server in this process: takes, holds back, gives back, gives way."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.controller.api import NodesApi, serving
from tests.fleet.controller.drawn import NOW, OTHERS, OURS, mark, raw, settings
from tests.patience import HANGS
from wirewatch.config import BudgetSection
from wirewatch.kubernetes.apiserver import ApiEndpoint, RequestResult
from wirewatch_fleet.controller import cluster, loop
from wirewatch_fleet.controller.decide import NodeStep
from wirewatch_fleet.controller.loop import Controller, Identity

SOON = HANGS


class FixedClock:
    """The time of the drawn nodes; monotonic time is the machine's."""

    def now(self) -> float:
        return NOW

    def mono(self) -> float:
        return time.monotonic()


@pytest.fixture(autouse=True)
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
            identity = Identity("us", "wirewatch")
            made = Controller(where, identity, settings(lease=6, period=1.0, **changed), FixedClock())
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


def test_a_failed_node_is_taken_out_with_its_mark_and_given_back_when_it_is_fit(tmp_path: Path) -> None:
    api = NodesApi(raw("bad", taints=[OTHERS]), raw("well", "ok"))

    async def script(_: Controller) -> None:
        await until(lambda: OURS in api.nodes["bad"]["spec"]["taints"])
        fit = raw("bad", "ok")
        api.put({**api.nodes["bad"], "status": fit["status"]})
        await until(lambda: len(api.events) == 2)

    made = play(api, tmp_path, script, dedicated_taints=("example.org/rma",))
    assert api.nodes["bad"]["spec"]["taints"] == [OTHERS]
    assert api.nodes["bad"]["metadata"]["annotations"] == {"other": "kept"}
    assert {name for name, _ in api.patches} == {"bad"}
    assert made.report.steps == {
        (NodeStep.TAKE_OUT, RequestResult.OK): 1, (NodeStep.GIVE_BACK, RequestResult.OK): 1,
    }  # fmt: skip


def test_the_budget_holds_while_ten_fail_at_once(tmp_path: Path) -> None:
    api = NodesApi(*(raw(f"n{number}", since=600.0 + number) for number in range(10)))

    async def script(_: Controller) -> None:
        await until(lambda: len(api.tainted) == 2 and len(api.events) >= 10)

    play(api, tmp_path, script, budget=BudgetSection(cluster=2, pool=10, rack=10))
    assert api.tainted == {"n9", "n8"}
    assert len(api.patches) == 2


def test_steps_do_not_wait_until_what_is_left_has_been_reported(tmp_path: Path) -> None:
    """Events that are refused, or take their time, keep no node in use."""
    api = NodesApi(*(raw(f"n{number}") for number in range(6)))
    api.refused["POST", "events"] = [403] * 4

    async def script(_: Controller) -> None:
        await until(lambda: len(api.events) == 5)

    play(api, tmp_path, script, budget=BudgetSection(cluster=1, pool=10, rack=10))
    assert len(api.patches) == 1
    assert api.order.index(("PATCH", "nodes")) < api.order.index(("POST", "events"))
    assert {one["involvedObject"]["name"] for one in api.events} == {f"n{number}" for number in range(1, 6)}


def test_a_dry_run_says_what_it_would_do_and_patches_nothing(tmp_path: Path) -> None:
    api = NodesApi(raw("bad"))

    async def script(_: Controller) -> None:
        await until(lambda: bool(api.events))

    play(api, tmp_path, script, dry_run=True)
    assert not api.patches
    assert "would" in api.events[0]["message"] or "dry run" in api.events[0]["message"]


def test_undo_takes_back_its_own_alone(tmp_path: Path) -> None:
    api = NodesApi(raw("ours", taints=[OTHERS, OURS], marked=mark()), raw("theirs", taints=[OTHERS]))

    async def script(_: Controller) -> None:
        await until(lambda: api.nodes["ours"]["spec"].get("taints") == [OTHERS])

    play(api, tmp_path, script, act="undo")
    assert {name for name, _ in api.patches} == {"ours"}


def test_a_step_that_fails_is_tried_again_on_what_is_listed_anew(tmp_path: Path) -> None:
    api = NodesApi(raw("bad"))
    api.refused["PATCH", "nodes"] = [500]

    async def script(made: Controller) -> None:
        await until(lambda: TAKEN_OUT in made.report.steps)

    made = play(api, tmp_path, script)
    assert api.tainted == {"bad"}
    assert made.report.steps[NodeStep.TAKE_OUT, RequestResult.SERVER_ERROR] == 1
    assert made.report.steps[TAKEN_OUT] == 1


@pytest.mark.parametrize(
    ("stuck", "places"), [(raw("a", since=900.0), 1), (raw("a", "ok", taints=[OURS], marked=mark()), 2)]
)
def test_a_node_whose_patches_are_refused_delays_no_other(
    stuck: dict[str, Any], places: int, tmp_path: Path
) -> None:
    """Oldest first, it would have the budget's one place for ever, and all others none."""
    api = NodesApi(stuck, raw("b"), *(raw(f"well{n}", "ok") for n in range(2)))
    api.never = {"a"}

    async def script(made: Controller) -> None:
        await until(lambda: TAKEN_OUT in made.report.steps and api.refusals["a"] > 0)

    made = play(api, tmp_path, script, budget=BudgetSection(cluster=places, pool=9, rack=9))
    assert made.report.steps[TAKEN_OUT] == 1
    assert {name for name, _ in api.patches} == {"b"}


def test_an_unreadable_annotation_concerns_its_node_alone(tmp_path: Path) -> None:
    deep = "[" * 100_000
    api = NodesApi(raw("odd", marked=deep, since=900.0), raw("bad"))

    async def script(_: Controller) -> None:
        await until(lambda: api.tainted == {"bad"})

    play(api, tmp_path, script)
    assert {name for name, _ in api.patches} == {"bad"}


@pytest.mark.parametrize("code", [410, 500])
def test_a_watch_that_ends_with_an_error_is_followed_by_a_list(code: int, tmp_path: Path) -> None:
    api = NodesApi(raw("well", "ok"))

    async def script(made: Controller) -> None:
        await until(lambda: bool(api.watched) and made.report.plan is not None)
        # What the watch did not say is in the list after it.
        api.nodes["bad"] = raw("bad")
        api.say(
            {
                "type": "ERROR",
                "object": {"kind": "Status", "code": code, "reason": "Expired", "message": "too old"},
            }
        )
        await until(lambda: api.tainted == {"bad"})

    play(api, tmp_path, script)


def test_a_node_that_is_deleted_while_it_is_out_leaves_the_budget_to_others(tmp_path: Path) -> None:
    api = NodesApi(raw("a", taints=[OURS], marked=mark()), raw("b"), raw("c", "ok"))

    async def script(_: Controller) -> None:
        await until(lambda: bool(api.watched) and len(api.events) > 0)
        assert "InterconnectBudgetUsed" in {one["reason"] for one in api.events}
        gone = api.nodes.pop("a")
        api.say({"type": "DELETED", "object": gone})
        await until(lambda: api.tainted == {"b"})

    play(api, tmp_path, script, budget=BudgetSection(cluster=1, pool=9, rack=9))


def test_who_loses_the_lease_does_nothing_more(tmp_path: Path) -> None:
    api = NodesApi(raw("well", "ok"))

    async def script(made: Controller) -> None:
        await until(lambda: made.report.leader)
        assert api.lease is not None
        stolen = {**api.lease, "spec": {**api.lease["spec"], "holderIdentity": "another"}}
        api.refused["PUT", "leases"] = [409] * 100
        api.hold(stolen)
        await until(lambda: not made.report.leader)
        api.put(raw("well", "failed"))
        before = api.asked_for_lease
        await until(lambda: api.asked_for_lease > before + 2)

    play(api, tmp_path, script)
    assert not api.patches


def test_a_right_that_is_lacking_is_reported_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = NodesApi(raw("bad"))
    api.refused["GET", "leases"] = [403, 403]

    async def script(made: Controller) -> None:
        await until(lambda: api.tainted == {"bad"} and made.asked)

    caplog.set_level(logging.INFO)
    play(api, tmp_path, script)
    assert caplog.text.count("403: the ServiceAccount lacks a right") == 1
    assert caplog.text.count("the API server answers again") == 1


class SetClock(FixedClock):
    """Monotonic time as the test sets it."""

    at = 0.0

    def mono(self) -> float:
        return self.at


def test_a_loop_is_stuck_after_a_minute_and_a_lease() -> None:
    clock = SetClock()
    where = ApiEndpoint("127.0.0.1", 1, Path(), "")
    made = Controller(where, Identity("us", "wirewatch"), settings(lease=15), clock)
    for clock.at, turns in ((74.0, True), (76.0, False)):
        assert made.turning() is turns
