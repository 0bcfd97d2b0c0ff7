"""The table of bad nodes: from answers of Prometheus to rows, worst first; nothing known is not well."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.runbook import page
from tests.fleet.promapi import FINDINGS, HEARD, NOW, SINCE, STATE, fleet
from tests.rows import each
from tools.alerting import records
from tools.promql import labels_of, recorded, selectors
from wirewatch.catalogue import rules
from wirewatch.core.types import Health
from wirewatch_fleet import worst
from wirewatch_fleet.worst import (
    FLEET_STATUS,
    OF_NODES,
    OTHERWISE,
    Answers,
    SeriesValue,
    clusters,
    document,
    of_rules,
    reason,
    table,
)

SERIES = recorded((one.name, one.expr, one.labels) for one in records())


def points(name: str) -> list[SeriesValue]:
    return [SeriesValue(one["metric"], float(one["value"][1])) for one in fleet()[name]]


def answers() -> Answers:
    return Answers(points(STATE), points(SINCE), points(FINDINGS), points(HEARD))


def test_worst_first_each_node_once_with_all_that_is_known() -> None:
    made = table(answers())
    assert [(one.node, one.state) for one in made.nodes] == [
        ("n1", "failed"), ("n2", "unknown"), ("n3", "silent"), ("n4", "degraded"),
    ]  # fmt: skip
    first = made.nodes[0]
    assert (first.rule, first.subject) == ("nvlink.link_down", {"gpu": "2", "uuid": "GPU-2", "link": "7"})
    assert (first.since, first.heard, first.findings) == (NOW - 1000, NOW - 700, 3)
    assert made.counts == {"failed": 1, "unknown": 1, "silent": 1, "degraded": 1, "ok": 2}
    assert made.health is Health.FAILED


@each(
    ("left", "health"),
    [
        ({4, 3, 2, 1}, Health.FAILED), ({3, 2, 1}, Health.UNKNOWN), ({2, 1}, Health.UNKNOWN),
        ({1}, Health.DEGRADED), (set(), Health.OK),
    ],
)  # fmt: skip
def test_the_health_is_that_of_the_worst_and_a_silent_node_is_not_known(
    left: set[int], health: Health
) -> None:
    state = [one for one in points(STATE) if one.value in left]
    assert table(Answers(state, points(SINCE), [], points(HEARD))).health is health


@each("odd", [float("nan"), float("inf"), -float("inf"), -5.0, 1e15])
def test_a_number_that_is_none_spoils_one_cell_and_no_table(odd: float) -> None:
    """One agent's odd value, as of a clock in milliseconds, is no reason to show nothing of the fleet."""

    def of(name: str, value: float) -> list[SeriesValue]:
        return [one._replace(value=value) if one.labels["node"] == "n1" else one for one in points(name)]

    whole = table(answers())
    made = table(Answers(points(STATE), of(SINCE, odd), of(FINDINGS, odd), of(HEARD, odd)))
    assert (made.nodes[0].node, made.nodes[0].since, made.nodes[0].heard) == ("n1", None, None)
    assert made.nodes[1:] == whole.nodes[1:]
    assert made.known == whole.known
    state = table(Answers(of(STATE, odd), points(SINCE), points(FINDINGS), points(HEARD)))
    assert {one.node: one.state for one in state.nodes}["n1"] == "unknown"
    text = FLEET_STATUS.dump_python(document(made, NOW, "http://x", (), ()))
    json.dumps(text, allow_nan=False)


def test_no_node_at_all_is_not_well() -> None:
    assert table(Answers([], [], [], [])).health is Health.UNKNOWN
    only = [SeriesValue({"rule": worst.NO_RULES}, 3.0)]
    made = table(Answers(only, [], [], []))
    assert (made.nodes, made.known, made.health) == ((), 0, Health.UNKNOWN)


def test_of_the_same_state_the_newest_comes_first_and_one_without_a_time_last() -> None:
    state = [SeriesValue({"cluster": c, "node": n, "rule": "a.b"}, 1.0) for c, n in ("bn", "an", "ao", "am")]
    since = [
        SeriesValue({**one.labels}, at)
        for one, at in zip(state, (NOW - 5, NOW - 9, NOW - 5, 1.0), strict=True)
    ]
    made = table(Answers(state, since, [], []))
    assert [(one.cluster, one.node) for one in made.nodes] == [("a", "o"), ("b", "n"), ("a", "n"), ("a", "m")]
    assert [one.since for one in made.nodes] == [NOW - 5, NOW - 5, NOW - 9, None]


def test_a_node_with_two_reasons_is_one_of_those_that_are_known() -> None:
    state = [SeriesValue({"node": "n", "rule": rule}, 1.0) for rule in ("a.b", "a.c")]
    made = table(Answers(state, [], [], []))
    assert (made.known, made.counts["ok"], made.counts["degraded"]) == (1, 0, 2)


@each(("value", "findings"), [(3.0, 3), (0.0, 0), (999_999.0, 999_999), (1e6, 0), (-1.0, 0)])
def test_a_number_of_findings_that_no_node_has_is_none(value: float, findings: int) -> None:
    count = [SeriesValue({"node": "n"}, value)]
    made = table(Answers([SeriesValue({"node": "n", "rule": "a.b"}, 1.0)], [], count, []))
    assert made.nodes[0].findings == findings


@each(
    ("state", "warnings", "health"),
    [
        ([], [], "ok"), ([], ["half"], "unknown"), ([1.0], [], "degraded"), ([1.0], ["half"], "unknown"),
        ([4.0], ["half"], "failed"),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_whole_is_at_least_not_known(
    state: list[float], warnings: list[str], health: str
) -> None:
    rows = [SeriesValue({"node": "n", "rule": "a.b"}, value) for value in state]
    made = table(Answers(rows, [], [], [SeriesValue({"node": "n"}, NOW)]))
    assert document(made, NOW, "http://x", (), warnings).health == health


def test_a_state_of_a_newer_version_is_not_known() -> None:
    made = table(Answers([SeriesValue({"node": "n", "rule": "x.y"}, 9.0)], [], [], []))
    assert made.nodes[0].state == "unknown"


@given(st.lists(st.sampled_from(sorted(worst.STATES)), max_size=6), st.randoms())
def test_one_more_bad_node_never_makes_the_fleet_better(states: list[int], random: object) -> None:
    made = [SeriesValue({"node": f"n{n}", "rule": "a.b"}, float(state)) for n, state in enumerate(states)]
    random.shuffle(made)  # type: ignore[attr-defined]
    heard = [SeriesValue({"node": "well"}, NOW)]
    healths = [table(Answers(made[:n], [], [], heard)).health for n in range(len(made) + 1)]
    assert all(before <= after for before, after in itertools.pairwise(healths))
    order = [one.state for one in table(Answers(made, [], [], heard)).nodes]
    assert order == sorted(order, key=list(worst.STATES.values()).index)


@pytest.mark.parametrize("where", ["", 'cluster=~"a|b"'])
def test_the_queries_ask_for_what_the_rules_record(where: str) -> None:
    row = {"cluster", "node", "rack", "leaf", "pool", "rule", "gpu", "uuid", "link", "device", "port"}
    assert labels_of(worst.state(where), SERIES) == row
    assert labels_of(worst.since(where), SERIES) == row
    assert labels_of(worst.findings(where), SERIES) == {"cluster", "node"}
    assert labels_of(worst.heard(where), SERIES) == {"cluster", "node"}
    for query in (worst.state(where), worst.since(where), worst.findings(where), worst.heard(where)):
        assert all(bool(one.matchers.matchers) == bool(where) for one in selectors(query))


@pytest.mark.parametrize(
    ("names", "matcher"),
    [
        ([], ""), (["lab"], 'cluster=~"lab"'), (["a", "b"], 'cluster=~"a|b"'),
        (['x"y', "a.b"], r'cluster=~"x\"y|a\\.b"'),
    ],
)  # fmt: skip
def test_clusters_are_texts_and_no_patterns(names: list[str], matcher: str) -> None:
    assert clusters(names) == matcher
    assert labels_of(worst.heard(matcher), SERIES)


def test_the_runbook_has_the_query_and_what_to_do_for_each_reason() -> None:
    assert f"```\n{worst.pasted()}\n```" in page()
    recorded_reasons = {"released", "nothing_read", "silent", "removed", "never_heard", worst.NO_RULES}
    assert set(OF_NODES) == recorded_reasons
    (rank,) = [one.expr for one in records() if one.name == "node:wirewatch_worst:rank"]
    assert all(f'"rule", "{name}"' in rank for name in recorded_reasons - {worst.NO_RULES})
    for name in recorded_reasons:
        assert f"| `{name}` |" in page()
        assert reason(name) == OF_NODES[name]


def test_every_rule_has_a_reason_and_its_do_stands_alone() -> None:
    for rule in rules():
        if "*" not in rule.name:
            assert reason(rule.name) != OTHERWISE, rule.name
    assert reason("xid.79") == of_rules()["xid.79"]
    assert reason("xid.77") == of_rules()["xid.*"]
    assert reason("nobody.knows") == OTHERWISE
    assert all(one.means and one.do and "](" not in one.do for one in of_rules().values())
