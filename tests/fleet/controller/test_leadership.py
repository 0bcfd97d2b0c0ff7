"""A leader's steps on a clock that jumps: each guard of the loop, where it alone refuses."""

import json
import logging
from itertools import pairwise
from typing import Any

import pytest

from tests.fleet.controller.drawn import NOW, OTHERS, OURS, RACK, mark, raw
from tests.fleet.controller.leading import Played, lead, refusal
from wirewatch.config import BudgetSection
from wirewatch.core.words import stamp
from wirewatch.kubernetes.apiserver import RequestResult
from wirewatch_fleet.controller.decide import NodeStep
from wirewatch_fleet.controller.loop import LONGEST
from wirewatch_fleet.kubeclient import RequestFailed

ONE = BudgetSection(cluster=1, pool=9, rack=9, stock=1000)
FIRST = 6.0
"""Second of the first step: a request of an earlier leader has ended, and changes were gathered."""


def test_nothing_is_asked_before_all_that_an_earlier_leader_asked_has_ended() -> None:
    played = Played([raw("bad")])
    lead(played, 10.0)
    assert played.asked[0] == (5.0, "list", "")
    assert played.times("patch") == [(FIRST, "bad")]


@pytest.mark.parametrize(("renewed", "acts"), [(0.0, True), (5.0, True), (10.0, False), (None, False)])
def test_who_has_the_lease_for_less_than_a_request_lasts_begins_none(
    *, renewed: float | None, acts: bool
) -> None:
    played = Played([raw("bad")])
    lead(played, 30.0, renewed, lease=15)
    assert bool(played.times("patch")) is acts
    assert bool(played.times("event")) is acts


def test_a_patch_without_an_answer_keeps_its_place_in_the_budget_until_it_must_have_ended() -> None:
    """It may still be carried out: until then a second node would be one too many."""
    played = Played([raw("a", since=900.0), raw("b")], {"patch": [RequestResult.UNREACHABLE]})
    lead(played, 60.0, budget=ONE, lease=15, period=5.0)
    first, second, *more = played.times("patch")
    assert (first, second[1], more) == ((FIRST, "a"), "a", [])
    assert 15 <= second[0] - first[0] <= 15 + 5 + 1


def test_a_node_that_is_given_back_without_an_answer_keeps_no_place() -> None:
    fit = raw("a", "ok", taints=[OURS], marked=mark())
    played = Played([fit, raw("b")], late={"a": [RequestResult.UNREACHABLE]})
    lead(played, 40.0, budget=ONE, lease=60, period=1.0)
    assert played.times("patch") == [(FIRST, "a"), (FIRST + 3, "b")]


@pytest.mark.parametrize(
    ("stuck", "places", "tried"),
    [
        (raw("a", since=900.0), 1, ["a", "b"]),
        (raw("a", "ok", taints=[OURS], marked=mark()), 2, ["a", "b", "a"]),
    ],
)
def test_a_patch_that_is_refused_keeps_no_place_and_its_node_is_the_last(
    stuck: dict[str, Any], places: int, tried: list[str]
) -> None:
    """Oldest first, or given back first, it would keep all others waiting for ever."""
    played = Played([stuck, raw("b")], {"patch": [RequestResult.CONFLICT]})
    lead(played, 60.0, budget=BudgetSection(cluster=places, pool=9, rack=9, stock=1000), lease=60, period=5.0)
    assert [name for _, name in played.times("patch")] == tried


def test_the_budget_holds_while_ten_fail_at_once() -> None:
    played = Played([raw(f"n{number}", since=600.0 + number) for number in range(10)])
    lead(played, 60.0, budget=BudgetSection(cluster=2, pool=10, rack=10, stock=1000), period=5.0)
    assert played.times("patch") == [(FIRST, "n9"), (FIRST, "n8")]


def test_steps_do_not_wait_until_what_is_left_has_been_reported() -> None:
    """Events that are refused keep no node in use."""
    refused = {"event": [RequestResult.FORBIDDEN] * 4}
    played = Played([raw(f"n{number}") for number in range(6)], refused)
    lead(played, 100.0, budget=ONE, period=5.0)
    assert [kind for _, kind, _ in played.asked[:4]] == ["list", "watch", "patch", "event"]
    assert played.times("patch") == [(FIRST, "n0")]
    assert {name for _, name in played.times("event")} == {f"n{number}" for number in range(6)}


def test_after_each_failure_it_waits_twice_as_long_and_lists_all_nodes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """From 2 s to 30 s; the look after that is a second later, with what has changed by then."""
    played = Played([raw("bad")], {"patch": [RequestResult.CONFLICT] * 8})
    made = lead(played, 200.0, period=1.0)
    assert caplog.text.count("take_out of bad is not done") == 8
    tries = [at for at, _ in played.times("patch")]
    assert [round(b - a) for a, b in pairwise(tries)] == [3, 5, 9, 17, 31, 31, 31, 31]
    assert [at for at, _ in played.times("list")] == [5.0, *tries[:-1]]
    assert made.report.steps == {
        (NodeStep.TAKE_OUT, RequestResult.CONFLICT): 8, (NodeStep.TAKE_OUT, RequestResult.OK): 1,
    }  # fmt: skip


def test_a_step_that_is_done_ends_the_doubling() -> None:
    refused = [RequestResult.CONFLICT, RequestResult.OK, RequestResult.CONFLICT, RequestResult.OK]
    later = (20.0, ("ADDED", raw("b")))
    played = Played([raw("a")], {"patch": refused}, says=[later])
    lead(played, 60.0, period=1.0)
    assert [round(at - FIRST) for at, _ in played.times("patch")] == [0, 3, 15, 18]


def test_the_first_step_that_fails_is_the_last_of_its_plan() -> None:
    """Later steps were decided by nodes that are known no more."""
    played = Played([raw("a", since=900.0), raw("b")], {"patch": [RequestResult.SERVER_ERROR]})
    lead(played, FIRST + 1.0)
    assert played.times("patch") == [(FIRST, "a")]


def test_what_is_due_is_published_before_it_is_done_and_what_is_done_after() -> None:
    made = lead(Played([raw("a")], {"patch": [RequestResult.CONFLICT]}), FIRST + 1, period=300.0)
    assert made.report.plan is not None
    assert [one.node.name for _, one in made.report.plan.steps()] == ["a"]
    made = lead(Played([raw("a")]), FIRST + 1, period=300.0)
    assert made.report.plan is not None
    assert not [*made.report.plan.steps()]


def fit_at(second: float, name: str) -> tuple[float, tuple[str, Any]]:
    return second, ("MODIFIED", raw(name, "ok", taints=[OURS], marked=mark()))


def test_a_node_whose_taint_came_at_the_second_try_keeps_no_place_once_it_is_given_back() -> None:
    says: list[Any] = [fit_at(20.0, "a"), *((40.0, ("ADDED", raw(name))) for name in "bc")]
    played = Played([raw("a")], {"patch": [RequestResult.UNREACHABLE]}, says=says)
    lead(played, 60.0, budget=BudgetSection(cluster=2, pool=9, rack=9, stock=1000), lease=300, period=1.0)
    assert [name for _, name in played.times("patch")] == ["a", "a", "a", "b", "c"]
    assert not played.times("end")
    assert not played.times("request")


def test_undo_gives_back_what_has_no_condition_any_more() -> None:
    played = Played([raw("a", "", taints=[OURS], marked=mark()), raw("b")])
    lead(played, 10.0, act="undo")
    assert (played.times("patch"), played.times("event")) == ([(FIRST, "a")], [(FIRST, "a")])


@pytest.mark.parametrize("between", [[], [(18.0, ("DELETED", raw("a")))]])
def test_a_node_is_the_last_until_its_step_is_done_or_it_is_gone(between: list[Any]) -> None:
    """After that the older fault has its place again."""
    refused = [RequestResult.CONFLICT] if not between else [RequestResult.CONFLICT] * 3
    says = [fit_at(20.0, "a")] if not between else []
    again = [(50.0, ("ADDED", raw(name, since=since))) for name, since in (("b", 600.0), ("a", 900.0))]
    played = Played([raw("a")], {"patch": refused}, says=[*says, *between, *again])
    lead(played, 90.0, budget=ONE, period=1.0)
    assert [name for at, name in played.times("patch") if at > 50] == ["a"]


def test_a_patch_that_is_answered_with_something_else_is_done(caplog: pytest.LogCaptureFixture) -> None:
    made = lead(Played([raw("a")], answers={"a": {"kind": "Status"}}), 8.0, period=300.0)
    assert made.report.steps == {(NodeStep.TAKE_OUT, RequestResult.OK): 1}
    assert "the API server sends something else" in caplog.text


@pytest.mark.parametrize("dry_run", [False, True])
def test_nothing_is_decided_by_nodes_that_are_being_listed_again(*, dry_run: bool) -> None:
    says: list[Any] = [(19.5, ("ADDED", raw("bad"))), (20.0, None)]
    played = Played([{"metadata": {"name": "no node"}}], says=says, lists=[0.0, 30.0])
    lead(played, 60.0, dry_run=dry_run, period=300.0)
    assert played.times("event") == [(51.0, "bad")]
    assert bool(played.times("patch")) is not dry_run


def test_a_dry_run_needs_no_lease_and_patches_nothing() -> None:
    played = Played([raw("bad"), raw("gone", marked=mark("nvsentinel"))])
    lead(played, 60.0, renewed=None, dry_run=True)
    assert {kind for _, kind, _ in played.asked} == {"list", "watch", "event"}
    assert played.times("event") == [(FIRST, "bad")]
    assert played.bodies[0]["message"].startswith("dry run: would be tainted")


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        (None, None),
        (refusal(RequestResult.REJECTED, "410 Gone: too old"), None),
        (refusal(RequestResult.SERVER_ERROR, "500"), RequestResult.SERVER_ERROR),
        (refusal(RequestResult.REJECTED, "409: no 410"), RequestResult.REJECTED),
    ],
)
def test_a_watch_that_ends_or_is_too_old_is_followed_by_a_list_and_any_other_end_is_an_error(
    said: RequestFailed | None, ends: RequestResult | None
) -> None:
    played = Played([raw("well", "ok")], says=[(20.0, said)])
    if ends is None:
        lead(played, 30.0)
        assert [at for at, _ in played.times("list")] == [5.0, 20.0]
    else:
        with pytest.raises(RequestFailed) as told:
            lead(played, 30.0)
        assert told.value.outcome.result is ends


def test_only_nodes_of_the_selector_are_listed_and_watched() -> None:
    played = Played([])
    lead(played, 10.0, selector="gpu=yes")
    assert played.asked == [(5.0, "list", "gpu=yes"), (5.0, "watch", "gpu=yes from 1")]


def test_changes_are_taken_as_they_come() -> None:
    """A node that is deleted leaves its place, one that is none is passed over, one that is new counts."""
    out = raw("a", taints=[OURS], marked=mark())
    played = Played(
        [out, raw("b")],
        says=[
            (20.0, ("MODIFIED", {"kind": "Status"})),
            (20.0, ("DELETED", out)),
            (40.0, ("ADDED", raw("c"))),
        ],
    )
    made = lead(played, 60.0, budget=ONE, period=300.0)
    assert played.times("patch") == [(21.0, "b")]
    assert played.times("event") == [(FIRST, "b"), (21.0, "b"), (41.0, "c")]
    assert made.report.plan is not None
    assert made.report.plan.nodes == 2


def test_changes_that_come_together_are_judged_together() -> None:
    says: list[Any] = [(20.0 + n / 10, ("ADDED", raw(name))) for n, name in enumerate("abc")]
    played = Played([raw("well", "ok")], says=says)
    lead(played, 30.0, period=300.0)
    assert played.times("patch") == [(21.0, "a"), (21.0, "b"), (21.0, "c")]


def test_without_changes_it_looks_again_after_the_period(caplog: pytest.LogCaptureFixture) -> None:
    """A heartbeat grows old without any change."""
    played = Played([raw("bad"), raw("b")], {"event": [RequestResult.FORBIDDEN] * 2})
    lead(played, 100.0, budget=BudgetSection(cluster=0, pool=9, rack=9, stock=1000), period=30.0)
    tries = [(round(at), name) for at, name in played.times("event")]
    assert tries[0] == (6, "b")
    assert tries[2:] == [(37, "b"), (37, "bad")]
    assert caplog.text.count("no Event about") == 2


@pytest.mark.parametrize(
    "said", [None, refusal(RequestResult.REJECTED, "410 Gone: too old")], ids=["it ends", "too old"]
)
def test_after_a_watch_that_ends_at_once_the_next_list_waits_ever_longer(said: RequestFailed | None) -> None:
    """Before: 94 lists of all nodes in 20 s."""
    says: list[Any] = [(0.0, said)] * 30
    played = Played([raw("well", "ok")], says=says)
    lead(played, 205.0)
    waits = [later - at for (at, _), (later, _) in pairwise(played.times("list"))]
    assert all(wait >= least / 2 for wait, least in zip(waits, (2, 4, 8, 16), strict=False))
    assert max(waits) < LONGEST + 1
    assert 8 < len(waits) < 20


def test_after_a_watch_that_lasted_the_next_list_follows_at_once() -> None:
    played = Played([raw("well", "ok")], says=[(5.0, None), (5.0, None), (60.0, None)])
    lead(played, 70.0)
    assert played.times("list")[-1] == (60.0, "")


def test_an_event_that_hangs_delays_no_step() -> None:
    fit = raw("fit", "ok", taints=[OURS], marked=mark())
    played = Played([raw("bad")], slow=30.0, says=[(10.0, ("ADDED", fit))])
    lead(played, 60.0, period=1.0)
    assert played.times("patch") == [(FIRST, "bad"), (10.0, "fit")]
    assert [name for _, name in played.times("event")] == ["bad", "fit"]


RACKED = BudgetSection(cluster=2, pool=9, rack=1, stock=1000)


def racked(name: str, rack: str, **more: Any) -> dict[str, Any]:
    return raw(name, labels={RACK: rack}, **more)


def test_a_node_that_a_list_lacks_keeps_its_place_in_the_budgets() -> None:
    """A partial list: before, the rack's limit of one was passed."""
    played = Played([racked("a", "r1", since=900.0), racked("b", "r1"), racked("well", "r2", health="ok")])
    played.says = [(20.0, None)]
    played.hides = [(15.0, {"a"})]
    lead(played, 60.0, budget=RACKED, period=5.0)
    assert played.times("patch") == [(FIRST, "a")]


def test_a_node_that_was_deleted_leaves_its_place() -> None:
    out = racked("a", "r1", taints=[OURS], marked=mark())
    played = Played([out, racked("b", "r1")], says=[(20.0, ("DELETED", out))])
    lead(played, 60.0, budget=RACKED, period=5.0)
    assert played.times("patch") == [(21.0, "b")]


def test_no_step_is_taken_while_a_list_lacks_more_than_may_be_out(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"n{number}" for number in range(10)]
    played = Played([raw(name, "ok") for name in names])
    played.says = [(20.0, None), (30.0, ("ADDED", raw("bad"))), (100.0, None)]
    played.hides = [(15.0, set(names[:5])), (90.0, set())]
    made = lead(played, 60.0, budget=BudgetSection(cluster=4, pool=9, rack=9, stock=1000), period=5.0)
    assert played.times("patch") == []
    assert made.report.frozen
    assert caplog.text.count("no step is taken: 5 of 10 nodes are gone from the list at once") == 1


def test_steps_go_on_once_the_list_is_whole_again_or_stays_as_it_is() -> None:
    names = [f"n{number}" for number in range(10)]
    for whole, at in (({*()}, 100.0), (set(names[:5]), 700.0)):
        played = Played([raw(name, "ok") for name in names])
        played.says = [(20.0, None), (30.0, ("ADDED", raw("bad"))), (99.0, None), (650.0, None)]
        played.hides = [(15.0, set(names[:5])), (90.0, whole)]
        lead(played, 900.0, budget=BudgetSection(cluster=4, pool=9, rack=9, stock=1000), period=5.0)
        ((first, name),) = played.times("patch")
        assert (name, abs(first - at) < 90.0) == ("bad", True), first


def test_what_is_left_is_told_once_for_each_fault_and_reason() -> None:
    """Overruled nodes, strange marks and used budgets; not what others have taken out."""
    nodes = [
        raw("budget"), raw("foreign", marked="{}"), raw("overruled", marked=mark()),
        raw("out", taints=[OTHERS]), raw("new", since=90.0), raw("held", taints=[OURS], marked=mark()),
        raw("stale", heard=1000.0, since=2000.0), raw("fit soon", "ok", since=90.0, marked=mark()),
    ]  # fmt: skip
    again = raw("overruled", marked=mark(), since=500.0)
    played = Played(nodes, says=[(60.0, ("MODIFIED", again))])
    lead(played, 100.0, budget=BudgetSection(cluster=2, pool=9, rack=9, stock=1000), period=5.0)
    told = [name for _, name in played.times("event")]
    assert sorted(told[:3]) == ["budget", "foreign", "overruled"]
    assert told[3:] == ["overruled"]


def test_a_fault_that_comes_back_to_a_node_of_the_same_name_is_told_again() -> None:
    bad = raw("bad")
    played = Played([bad], says=[(20.0, ("DELETED", bad)), (40.0, ("ADDED", bad))])
    lead(played, 60.0, budget=BudgetSection(cluster=0, pool=9, rack=9, stock=1000), period=5.0)
    assert played.times("event") == [(FIRST, "bad"), (41.0, "bad")]


class TestNvsentinel:
    def test_a_node_is_requested_once_until_it_is_given_back(self) -> None:
        fit = (30.0, ("MODIFIED", raw("bad", "ok", marked=mark("nvsentinel"))))
        played = Played([raw("bad"), raw("well", "ok")], says=[fit])
        lead(played, 60.0, act="nvsentinel", period=300.0)
        assert played.times("request") == [(FIRST, "wirewatch-bad")]
        assert played.times("end") == [(31.0, "wirewatch-bad")]
        assert played.times("patch") == [(FIRST, "bad"), (31.0, "bad")]
        spec = next(one["spec"] for one in played.bodies if one.get("kind") == "MaintenanceRequest")
        assert (spec["healthEvent"]["generatedTimestamp"], spec["startTime"]) == (
            stamp(NOW),
            stamp(NOW + 300),
        )
        assert spec["healthEvent"]["errorCode"] == ["NvlinkLinkDown"]
        assert spec["healthEvent"]["message"] == "nvlink.link_down GPU 2 link 7"

    def test_a_request_that_is_refused_is_made_again_and_one_of_an_earlier_leader_as_well(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        played = Played([raw("bad", "", marked=mark("nvsentinel"))], {"request": [RequestResult.FORBIDDEN]})
        lead(played, 30.0, period=5.0)
        assert played.times("request") == [(FIRST, "wirewatch-bad"), (FIRST + 6, "wirewatch-bad")]
        assert caplog.text.count("NVSentinel has no request for bad") == 1
        assert played.bodies[0]["spec"]["healthEvent"]["message"] == ""

    def test_none_is_requested_after_a_step_that_was_refused_until_all_nodes_are_listed(self) -> None:
        nodes = [raw("handed", marked=mark("nvsentinel")), raw("bad")]
        played = Played(nodes, {"patch": [RequestResult.CONFLICT]})
        lead(played, 30.0, period=5.0)
        (_, again), (requested,) = played.times("patch"), played.times("request")
        assert requested == (again[0], "wirewatch-handed")

    def test_a_node_of_the_same_name_is_another(self) -> None:
        marked = raw("bad", marked=mark("nvsentinel"))
        other = {**marked, "metadata": {**marked["metadata"], "uid": "another"}}
        played = Played([marked], says=[(20.0, ("MODIFIED", other))])
        lead(played, 30.0, period=5.0)
        assert [at for at, _ in played.times("request")] == [FIRST, 21.0]

    def test_where_its_request_cannot_be_ended_the_node_is_not_given_back(self) -> None:
        fit = raw("bad", "ok", marked=mark("nvsentinel"))
        played = Played([fit], {"end": [RequestResult.FORBIDDEN]})
        lead(played, FIRST + 1.0)
        assert not played.times("patch")


def test_a_node_of_an_older_look_is_out_of_the_way_of_the_next(caplog: pytest.LogCaptureFixture) -> None:
    """What a step made of a node is known at once, before the watch says it."""
    caplog.set_level(logging.INFO)
    played = Played([raw("a", since=900.0), raw("b")])
    made = lead(played, 60.0, budget=ONE, period=1.0)
    assert played.times("patch") == [(FIRST, "a")]
    assert (
        json.loads(played.kept["a"]["metadata"]["annotations"]["wirewatch.io/interconnect"])["did"] == "taint"
    )
    assert made.report.plan is not None
    assert made.report.plan.budgets[0].used == 1
    assert caplog.text.count("a: tainted") == 1
