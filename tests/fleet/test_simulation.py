"""Simulated nodes: each page is one that an agent could have answered, and none is that of another node."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.examples import examples
from tests.node.goldens.made import metrics, played
from wirewatch.core.types import Unusable
from wirewatch_fleet.cli.simulate import (
    GONE,
    POLLS,
    SILENT,
    PageTemplate,
    Script,
    ScriptedFault,
    node_name,
    targets,
)

NODES = st.integers(0, 9999)
NOW = 1_795_400_000.0
TIMES = st.floats(0, 30 * 86400).map(lambda seconds: NOW + seconds)
OWN = {"uuid", "serial", "guid"}
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@cache
def text() -> str:
    *_, node = played("demo-dgx-h200")
    return metrics(node)


@cache
def template() -> PageTemplate:
    return PageTemplate(text())


def parsed(page: str) -> Series:
    families = text_string_to_metric_families(page)
    found = [sample for family in families for sample in family.samples]
    series = {(one.name, frozenset(one.labels.items())): one.value for one in found}
    assert len(series) == len(found), "a series twice"
    return series


def shape(series: Series) -> list[tuple[str, list[tuple[str, str]]]]:
    """Names and labels, but for what identifies a part."""
    return sorted((name, sorted(pair for pair in labels if pair[0] not in OWN)) for name, labels in series)


@settings(max_examples=examples(15), deadline=None)
@given(NODES, TIMES)
def test_a_node_has_the_series_of_its_page(node: int, now: float) -> None:
    made = parsed(template().render(node, now).decode())
    assert shape(made) == shape(parsed(text()))
    assert len(made) == template().series


@settings(max_examples=examples(15), deadline=None)
@given(NODES, TIMES, st.floats(1, 86400))
def test_counters_go_on_and_bytes_always_do(node: int, now: float, later: float) -> None:
    first, second = (parsed(template().render(node, at).decode()) for at in (now, now + later))
    assert first.keys() == second.keys(), "a node keeps its parts"
    counters = [key for key in first if key[0].endswith("_total")]
    moving = [key for key in counters if key[0].endswith("_bytes_total")]
    assert len(moving) == 2 * (8 + 10)
    assert all(second[key] >= first[key] for key in counters)
    assert all(second[key] > first[key] for key in moving)


@given(NODES, NODES, TIMES)
@settings(max_examples=examples(15), deadline=None)
def test_no_two_nodes_have_a_gpu_in_common(one: int, other: int, now: float) -> None:
    pages = (parsed(template().render(node, now).decode()) for node in (one, other))
    uuids = [
        {value for _, labels in page for name, value in labels if name == "uuid" and value} for page in pages
    ]
    assert len(uuids[0]) == 8
    assert uuids[0].isdisjoint(uuids[1]) == (one != other)


@settings(max_examples=examples(15), deadline=None)
@given(NODES, TIMES)
def test_a_collector_has_just_succeeded_and_nothing_is_in_the_future(node: int, now: float) -> None:
    made = parsed(template().render(node, now).decode())
    last = [made[key] for key in made if key[0] == "wirewatch_collector_last_success_timestamp_seconds"]
    assert last
    assert all(now - POLLS <= at <= now for at in last)


def test_probes_differ_from_node_to_node_by_little() -> None:
    key = "wirewatch_probe_busbw_ratio"
    made = [parsed(template().render(node, NOW).decode()) for node in range(20)]
    first = [
        next(value for (name, _), value in sorted(page.items(), key=str) if name == key) for page in made
    ]
    assert len(set(first)) > 10
    assert max(first) / min(first) < 1.05


@pytest.mark.parametrize("page", ["", "<html>", "up 1\n", "# TYPE\nwirewatch_health", "\x00"])
def test_what_is_no_page_is_refused(page: str) -> None:
    with pytest.raises(Unusable, match="no answer of an agent"):
        PageTemplate(page)


def test_faults_take_the_first_nodes_for_their_time() -> None:
    script = Script(
        10, (ScriptedFault("gpu-lost", 2, 10, 20), ScriptedFault(SILENT, 3), ScriptedFault(GONE, 1, 5))
    )
    at = {seconds: [script.fault(node, seconds) for node in range(10)] for seconds in (0, 10, 20)}
    assert at[0] == ["", "", *[SILENT] * 3, *[""] * 5]
    assert at[10] == [*["gpu-lost"] * 2, *[SILENT] * 3, GONE, *[""] * 4]
    assert at[20] == ["", "", *[SILENT] * 3, GONE, *[""] * 4]


def test_more_faults_than_nodes_are_refused() -> None:
    with pytest.raises(Unusable, match="take 3 nodes, and there are 2"):
        Script(2, (ScriptedFault(SILENT, 3),))


def test_a_node_that_is_gone_is_no_target_and_a_silent_one_is() -> None:
    script = Script(4, (ScriptedFault(GONE, 1, 60), ScriptedFault(SILENT, 1)))
    before, after = (targets(script, seconds, "127.0.0.1:9420", "lab") for seconds in (0, 60))
    assert [one["labels"]["node"] for one in before] == [node_name(node) for node in range(4)]  # type: ignore[index]
    assert before[1:] == after
    assert before[0] == {
        "targets": ["127.0.0.1:9420"],
        "labels": {
            "__metrics_path__": "/nodes/gpu-0001/metrics", "cluster": "lab", "node": "gpu-0001",
            "instance": "gpu-0001:9410",
        },
    }  # fmt: skip
