"""What the controller decides: who is taken out, in which order, and what it says of those who are not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.controller.drawn import (
    GPU,
    NOW,
    OTHERS,
    OURS,
    POOL,
    RACK,
    SKU,
    apply,
    mark,
    node,
    raw,
    settings,
)
from tests.rows import each
from wirewatch.config import BudgetSection, ControllerSection
from wirewatch.core.words import stamp
from wirewatch_fleet.controller.brake import HOUR, Brake, Scope, allowed
from wirewatch_fleet.controller.decide import (
    ControllerPlan,
    Ground,
    NodeDecision,
    NodeStep,
    decide,
    patch_of,
)
from wirewatch_fleet.controller.node import MARK, FleetNode, node_of, obstacles


def about(one: FleetNode, ours: ControllerSection | None = None) -> NodeDecision:
    (decision,) = decide([one], ours or settings(), NOW).decisions
    return decision


@each(
    ("how", "ground"),
    [
        ({"heard": 901.0, "since": 5000.0}, Ground.STALE),
        ({"heard": -301.0}, Ground.STALE),
        ({"heard": -301.0, "taints": [OTHERS]}, Ground.STALE),
        ({"since": 60.0, "heard": 60.0}, Ground.UNCONFIRMED),
        ({"since": 179.0, "heard": 60.0}, Ground.UNCONFIRMED),
        ({"ready": "False"}, Ground.OUT_ALREADY),
        ({"ready": "Unknown"}, Ground.OUT_ALREADY),
        ({"cordoned": True}, Ground.OUT_ALREADY),
        ({"taints": [OTHERS]}, Ground.OUT_ALREADY),
        ({"taints": [{**OTHERS, "effect": "NoExecute"}]}, Ground.OUT_ALREADY),
        ({"taints": [OURS]}, Ground.OUT_ALREADY),
        ({"marked": "{}"}, Ground.FOREIGN_MARK),
        ({"marked": ""}, Ground.FOREIGN_MARK),
        ({"marked": mark()}, Ground.OVERRULED),
    ],
)
def test_a_failed_node_is_left_and_it_is_said_why(how: dict[str, Any], ground: Ground) -> None:
    decision = about(node(**how))
    assert (decision.step, decision.ground) == (None, ground)
    assert decision.refused


@each(
    "how",
    [
        {},
        {"since": 180.0, "heard": 60.0},
        {"heard": 900.0, "since": 5000.0},
        {"heard": -300.0},
        {"taints": [GPU, SKU]},
        {"taints": [{**OTHERS, "effect": "PreferNoSchedule"}]},
    ],
)
def test_a_failed_node_in_use_is_taken_out(how: dict[str, Any]) -> None:
    decision = about(node(**how))
    assert (decision.step, decision.ground) == (NodeStep.TAKE_OUT, Ground.CONFIRMED)
    assert "nvlink.link_down GPU 2 link 7" in decision.detail


@pytest.mark.parametrize(
    ("how", "detail"),
    [
        ({"heard": 901.0, "since": 5000.0}, "heartbeat 901 s old"),
        ({"since": 150.0, "heard": 60.0}, "repeated after 90 of 120 s"),
        ({"cordoned": True, "taints": [OTHERS, GPU]}, "cordoned, taint example.org/rma:NoSchedule"),
    ],
)
def test_why_a_failed_node_is_left_is_said_in_numbers(how: dict[str, Any], detail: str) -> None:
    assert about(node(**how)).detail == detail


@pytest.mark.parametrize(
    "one",
    [
        node("due"),
        node("held", taints=[OURS], marked=mark()),
        node("fit soon", "ok", since=90.0, marked=mark()),
        node("never heard", "", marked=mark()),
    ],
    ids=lambda one: one.name,
)
def test_only_a_failed_node_that_is_not_ours_is_refused(one: FleetNode) -> None:
    assert not about(one).refused


@pytest.mark.parametrize("health", ["unknown", "ok", ""])
def test_what_is_not_failed_is_never_taken_out(health: str) -> None:
    assert not decide([node(health=health)], settings(), NOW).decisions


@pytest.mark.parametrize("how", [{"since": 100.0}, {"heard": 901.0, "since": 9000.0}])
def test_a_node_comes_back_only_when_its_agent_has_repeated_it(how: dict[str, Any]) -> None:
    assert about(node(health="ok", taints=[OURS], marked=mark(), **how)).ground is Ground.HELD


def test_undo_takes_back_whatever_it_did_and_nothing_else() -> None:
    nodes = [
        node("a", "failed", taints=[OURS, OTHERS], marked=mark()),
        node("b", "unknown", cordoned=True, marked=mark("cordon")),
        node("c", "", marked=mark("nvsentinel")),
        node("d", "failed", marked=mark()),
        node("e", "failed", taints=[OURS]),
        node("f", "failed"),
    ]
    found = {one.node.name: one.step for one in decide(nodes, settings(act="undo"), NOW).decisions}
    assert found == {
        "a": NodeStep.GIVE_BACK,
        "b": NodeStep.GIVE_BACK,
        "c": NodeStep.GIVE_BACK,
        "d": NodeStep.FORGET,
    }


def test_what_one_measure_did_is_taken_back_under_another() -> None:
    document = raw("g1", "ok", cordoned=True, taints=[OTHERS], marked=mark("cordon"))
    decision = about(node_of(document), settings(act="taint"))
    after = apply(document, patch_of(decision, settings(), NOW))
    assert after["spec"] == {"taints": [OTHERS]}
    assert after["metadata"]["annotations"] == {"other": "kept"}


def test_a_patch_names_the_version_it_was_made_for_and_sends_others_taints_as_they_are() -> None:
    theirs = {**OTHERS, "timeAdded": "2027-01-15T08:00:00Z"}
    patch = patch_of(about(node(taints=[GPU, {**theirs, "effect": "PreferNoSchedule"}])), settings(), NOW)
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["spec"]["taints"] == [GPU, {**theirs, "effect": "PreferNoSchedule"}, OURS]


def test_the_last_taint_takes_its_list_with_it() -> None:
    document = raw("g1", "ok", taints=[OURS], marked=mark())
    after = apply(document, patch_of(about(node_of(document)), settings(), NOW))
    assert after["spec"] == {}


def patched(marked: str | None, **spec: Any) -> dict[str, Any]:
    about_it = {"resourceVersion": "7", "annotations": {MARK: marked}}
    return {"metadata": about_it, **({"spec": spec} if spec else {})}


@each(
    ("one", "act", "patch"),
    [
        (node(), "taint", patched(mark(at=NOW), taints=[OURS])),
        (node(), "cordon", patched(mark("cordon", at=NOW), unschedulable=True)),
        (node(), "nvsentinel", patched(mark("nvsentinel", at=NOW))),
        (node(health="ok", taints=[OURS], marked=mark()), "undo", patched(None, taints=None)),
        (node(health="ok", taints=[GPU, OURS], marked=mark()), "undo", patched(None, taints=[GPU])),
        (
            node(health="ok", cordoned=True, marked=mark("cordon")),
            "undo",
            patched(None, unschedulable=None),
        ),
        (node(health="ok", cordoned=True, marked=mark("nvsentinel")), "undo", patched(None)),
        (node(health="ok", taints=[OTHERS], marked=mark()), "undo", patched(None)),
        (node(health="ok", marked=mark("cordon")), "undo", patched(None)),
    ],
)
def test_a_patch_has_what_its_step_changes_and_nothing_else(
    one: FleetNode, act: str, patch: dict[str, Any]
) -> None:
    """A measure that a person has taken back is forgotten: its patch touches the mark alone."""
    ours = settings(act=act)
    assert patch_of(about(one, ours), ours, NOW) == patch


def test_the_oldest_fault_has_the_first_place() -> None:
    fleet = [node(name, since=since) for name, since in (("a", 500.0), ("b", 700.0), ("c", 700.0))]
    plan = decide(fleet, settings(budget=BudgetSection(cluster=1, pool=9, rack=9, stock=1000)), NOW)
    assert [(one.node.name, one.step) for one in plan.decisions] == [
        ("b", NodeStep.TAKE_OUT), ("c", None), ("a", None),
    ]  # fmt: skip


def test_who_was_refused_has_the_last_place() -> None:
    fleet = [node("a", since=900.0), node("b"), node("c", "ok", taints=[OURS], marked=mark())]
    free = decide(fleet, settings(), NOW, last={"a", "c"})
    assert [one.node.name for _, one in free.steps()] == ["b", "c", "a"]
    held = decide(
        fleet, settings(budget=BudgetSection(cluster=2, pool=9, rack=9, stock=1000)), NOW, last={"a"}
    )
    assert {one.node.name: one.step for one in held.decisions} == {
        "a": None, "b": NodeStep.TAKE_OUT, "c": NodeStep.GIVE_BACK,
    }  # fmt: skip


@pytest.mark.parametrize("how", [{"ready": "False"}, {"cordoned": True}, {"taints": [OTHERS]}])
def test_nodes_that_are_out_for_any_reason_are_stock_alone(how: dict[str, Any]) -> None:
    fleet = [node("a", "ok", **how), node("b")]
    for stock, ground in ((1, Ground.BUDGET_STOCK), (2, Ground.CONFIRMED)):
        budget = BudgetSection(cluster=1, pool=1, rack=1, stock=stock)
        plan = decide(fleet, settings(budget=budget), NOW)
        (decision,) = plan.decisions
        assert decision.ground is ground
        assert (plan.most, plan.budgets[0].stock) == (stock, stock)
    assert "cluster: 1 of 2 nodes out of use, 1 may be" in about_stock(fleet)


def about_stock(fleet: list[FleetNode]) -> str:
    (decision,) = decide(fleet, settings(budget=BudgetSection(stock=1)), NOW).decisions
    return decision.detail


def test_a_taint_that_reserves_every_node_uses_no_budget() -> None:
    """As on a pool of AKS with `sku=gpu:NoSchedule`, by the settings that nobody has changed."""
    fleet = [node(f"n{number:02}", "ok", taints=[SKU, GPU]) for number in range(40)]
    plan = decide([*fleet, node("sick", taints=[SKU])], ControllerSection(dry_run=False), NOW)
    assert [(one.node.name, one.step) for one in plan.decisions] == [("sick", NodeStep.TAKE_OUT)]
    assert plan.budgets[0].stock == plan.budgets[0].used == 1


def test_a_request_without_an_answer_uses_the_budget() -> None:
    plan = decide(
        [node("a"), node("b")],
        settings(budget=BudgetSection(cluster=1, pool=9, rack=9, stock=1000)),
        NOW,
        {"b"},
    )
    assert [one.ground for one in plan.decisions] == [Ground.BUDGET_CLUSTER] * 2


def test_a_budget_that_is_passed_already_lets_nobody_through() -> None:
    fleet = [node(name, taints=[OURS], marked=mark(), labels={POOL: "A"}) for name in "ab"]
    plan = decide(
        [*fleet, node("c", labels={POOL: "A"})],
        settings(budget=BudgetSection(cluster=9, pool=1, rack=9)),
        NOW,
    )
    (*_, decision) = plan.decisions
    assert decision.ground is Ground.BUDGET_POOL
    assert decision.detail == "pool A: 2 of 3 nodes taken out within an hour, 1 may be"


def test_a_pool_and_a_rack_have_budgets_of_their_own() -> None:
    places = {
        "a1": ("A", "r1"), "a2": ("A", "r1"), "a3": ("A", "r2"), "a4": ("A", "r3"), "b1": ("B", ""),
        "b2": ("B", ""),
    }  # fmt: skip
    fleet = [
        node(n, labels={POOL: pool, RACK: rack} if rack else {POOL: pool})
        for n, (pool, rack) in places.items()
    ]
    plan = decide(fleet, settings(budget=BudgetSection(cluster=9, pool=2, rack=1, stock=1000)), NOW)
    assert {one.node.name: one.ground for one in plan.decisions} == {
        "a1": Ground.CONFIRMED, "a2": Ground.BUDGET_RACK, "a3": Ground.CONFIRMED, "a4": Ground.BUDGET_POOL,
        "b1": Ground.CONFIRMED, "b2": Ground.CONFIRMED,
    }  # fmt: skip


@each(
    ("limit", "nodes", "wanted"),
    [
        (0, 9, 0),
        (3, 2, 3),
        ("0%", 100, 0),
        ("5%", 1, 1),
        ("5%", 39, 1),
        ("5%", 40, 2),
        ("100%", 7, 7),
        ("5%", 0, 0),
    ],
)
def test_a_percentage_is_rounded_down_but_not_to_nothing(limit: Any, nodes: int, wanted: int) -> None:
    assert allowed(limit, nodes) == wanted


def test_without_a_selector_only_nodes_of_agents_count() -> None:
    other = node("cpu", "", cordoned=True)
    assert decide([other, node()], settings(), NOW).nodes == 1
    for counts in ({"health": "ok"}, {"marked": mark()}, {"marked": "odd"}):
        assert decide([node(**{"health": "", **counts})], settings(), NOW).nodes == 1
    assert decide([other, node()], settings(selector="gpu"), NOW).nodes == 2


TAINTS = st.lists(st.sampled_from([OURS, OTHERS, GPU]), unique_by=lambda taint: taint["key"], max_size=3)
NODES = st.lists(
    st.builds(
        raw, st.uuids().map(lambda one: f"n{one.hex[:6]}"), st.sampled_from(["ok", "unknown", "failed", ""]),
        taints=TAINTS, marked=st.sampled_from([None, None, mark(), mark("cordon"), "odd"]),
        cordoned=st.booleans(), ready=st.sampled_from(["True", "True", "False"]),
        labels=st.fixed_dictionaries({POOL: st.sampled_from("AB")}, optional={RACK: st.sampled_from("12")}),
        since=st.sampled_from([60.0, 600.0, 6000.0]), heard=st.sampled_from([60.0, 1000.0]),
    ),
    max_size=12, unique_by=lambda one: one["metadata"]["name"],
)  # fmt: skip
LIMITS = st.one_of(st.integers(0, 4), st.sampled_from(["0%", "10%", "50%"]))


@given(NODES, LIMITS, LIMITS, LIMITS, st.sampled_from(["taint", "cordon", "nvsentinel"]))
def test_whatever_the_fleet_no_budget_is_passed_and_only_its_own_is_undone(
    fleet: list[dict[str, Any]], cluster: Any, pool: Any, rack: Any, act: str
) -> None:
    ours = settings(act=act, budget=BudgetSection(cluster=cluster, pool=pool, rack=rack, stock=1000))
    before = {one["metadata"]["name"]: one for one in fleet}
    plan = decide([node_of(one) for one in fleet], ours, NOW)
    after = dict(before)
    for _, decision in plan.steps():
        name = decision.node.name
        after[name] = apply(before[name], patch_of(decision, ours, NOW))
        _only_ours_changed(before[name], after[name], decision)
    _within(plan, before, after, ours)


def _only_ours_changed(before: dict[str, Any], after: dict[str, Any], step: NodeDecision) -> None:
    was, now = node_of(before), node_of(after)
    assert [taint for taint in was.taints if not taint.ours] == [
        taint for taint in now.taints if not taint.ours
    ]
    assert before["metadata"]["labels"] == after["metadata"]["labels"]
    assert before["status"] == after["status"]
    if step.step is NodeStep.TAKE_OUT:
        assert was.mark is None
        assert now.mark is not None
        assert now.stands()
        assert was.condition
        assert was.condition.status.value == "False"
    else:
        assert was.mark is not None
        assert now.mark is None
        changed = {"taint": was.taints != now.taints, "cordon": was.unschedulable != now.unschedulable}
        assert not any(value for key, value in changed.items() if key != was.mark.did.value)


def _within(
    plan: ControllerPlan, before: dict[str, Any], after: dict[str, Any], ours: ControllerSection
) -> None:
    """No unit has more new nodes out than its limit, nor out in all, but what it had before."""

    def fleet(of: dict[str, Any]) -> list[FleetNode]:
        nodes = [node_of(one) for one in of.values()]
        return [one for one in nodes if one.condition or one.mark or one.foreign]

    was = {(one.scope, one.name): one for one in Brake(fleet(before), ours, NOW).budgets()}
    for step, decision in plan.steps():
        if step is NodeStep.TAKE_OUT:
            assert not obstacles(decision.node, ours.outage_taints)
            assert obstacles(node_of(after[decision.node.name]), ours.outage_taints)
    for one in plan.budgets:
        assert one.used <= max(one.limit, was[one.scope, one.name].used)
    whole = plan.budgets[0]
    assert whole.scope is Scope.CLUSTER
    assert whole.stock <= max(plan.most, was[whole.scope, whole.name].stock)


@given(st.integers(1, 60), st.integers(1, 12), st.sampled_from(["5%", "10%", "34%", 2]), st.integers(1, 9))
def test_where_all_fail_and_stay_no_hour_has_more_new_outages_than_the_share(
    count: int, looks: int, share: Any, gap: int
) -> None:
    """A bad release, looked at every `gap` tenths of an hour; in the end the stock holds."""
    budget = BudgetSection(cluster=share, pool=share, rack=share, stock="50%")
    fleet = {name: raw(name) for name in (f"n{number}" for number in range(count))}
    taken: list[float] = []
    for look in range(looks):
        now = NOW + look * gap * HOUR / 10
        ours = settings(budget=budget, stale=3600, confirm=0)
        nodes = [node_of(_heard(one, now)) for one in fleet.values()]
        for _, decision in decide(nodes, ours, now).steps():
            name = decision.node.name
            fleet[name] = apply(fleet[name], patch_of(decision, ours, now))
            taken.append(now)
    for now in taken:
        assert sum(now <= at < now + HOUR for at in taken) <= allowed(share, count)
    assert len(taken) <= allowed("50%", count)
    assert taken


def _heard(document: dict[str, Any], now: float) -> dict[str, Any]:
    """The node with a heartbeat of now."""
    conditions = [{**one, "lastHeartbeatTime": stamp(now)} for one in document["status"]["conditions"]]
    return {**document, "status": {"conditions": conditions}}
