"""Simulated nodes: each page is one that an agent could have answered, and none is that of another node."""

import asyncio
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.examples import examples
from tests.node.goldens.made import metrics, played
from tests.rows import each
from wirewatch.core.types import Unusable
from wirewatch_fleet.cli import simulate
from wirewatch_fleet.cli.simulate import (
    GONE,
    MOST_NODES,
    PLAYED,
    POLLS,
    PROBES,
    SILENT,
    FaultOption,
    PageTemplate,
    Script,
    ScriptedFault,
    SimulatedFleet,
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


@each("page", ["", "<html>", "up 1\n", "# TYPE\nwirewatch_health", "\x00"])
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


BEGAN, LATER = 1000.0, 1100.0
OTHERS = "wirewatch_start_timestamp_seconds 1000\nwirewatch_created_timestamp_seconds 900\nup 1"


def values(line: str, kind: str, now: float = LATER) -> list[float]:
    """The values of one series of a page of BEGAN on a hundred nodes."""
    page = PageTemplate(f"# TYPE {line.partition(' ')[0]} {kind}\n{line}\n{OTHERS}\n")
    return [float(page.render(node, now).decode().splitlines()[1].split()[-1]) for node in range(100)]


@each(
    ("line", "kind", "low", "high"),
    [
        ("wirewatch_x_bytes_total 5000", "counter", 5000 + 0.5 * 20e9 * 100, 5000 + 1.5 * 20e9 * 100),
        ("wirewatch_x_seconds_total 5", "counter", 6.0, 8.0),
        ("wirewatch_probe_busbw_ratio 1.0", "gauge", 0.99, 1.01),
        ("wirewatch_peer_bandwidth_x 1.0", "gauge", 0.99, 1.01),
        ("wirewatch_gpu_celsius 50", "gauge", 49.0, 51.0),
        ("wirewatch_probe_last_success_timestamp_seconds 990", "gauge", LATER - PROBES, LATER),
        ("wirewatch_x_last_success_timestamp_seconds 990", "gauge", LATER - POLLS, LATER),
    ],
)
def test_a_series_goes_on_within_its_bounds(line: str, kind: str, low: float, high: float) -> None:
    found = values(line, kind)
    assert low <= min(found) < low + 0.1 * (high - low)
    assert high - 0.1 * (high - low) < max(found) <= high
    assert values(line, kind, LATER + PROBES) != found


@each(
    ("line", "kind"),
    [
        ("wirewatch_x_bytes_total 5000", "gauge"), ("wirewatch_x_seconds_total 5", "gauge"),
        ("wirewatch_x_seconds_total 0", "counter"), ("wirewatch_x_last_success_timestamp_seconds 0", "gauge"),
        ("wirewatch_x_total 3", "counter"), ("wirewatch_x_bytes 3", "gauge"),
    ],
)  # fmt: skip
def test_any_other_series_stands_still(line: str, kind: str) -> None:
    assert set(values(line, kind)) == {float(line.split()[1])}


def test_values_that_a_sensor_would_have_are_short() -> None:
    assert all(one == round(one, 3) for one in values("wirewatch_gpu_celsius 50", "gauge"))
    assert (PROBES, POLLS, PLAYED, MOST_NODES) == (600.0, 15.0, 120.0, 10_000)


@each(
    ("text", "made"),
    [
        ("gpu-lost=3", ScriptedFault("gpu-lost", 3)), ("silent=5@10m", ScriptedFault(SILENT, 5, 600.0)),
        ("silent=5@10m-20m", ScriptedFault(SILENT, 5, 600.0, 1200.0)),
        ("gone=1@-5m", ScriptedFault(GONE, 1, 0, 300)),
        ("gone=99999", ScriptedFault(GONE, 99999)),
    ],
)  # fmt: skip
def test_a_fault_has_its_nodes_and_its_time(text: str, made: ScriptedFault) -> None:
    assert FaultOption().convert(text, None, None) == made


@each(
    ("text", "why"),
    [
        ("=3", "is not NAME=NODES"),
        ("gone", "is not NAME=NODES"),
        ("gone=", "is not NAME=NODES"),
        ("gone=-1", "is not NAME=NODES"),
        ("gone=\u00b2", "is not NAME=NODES"),
        ("gone=\u0663", "is not NAME=NODES"),
        ("gone=100000", "is not NAME=NODES"),
        ("gone=1@5m-5m", "ends before it begins"),
        ("gone=1@0s-0s", "ends before it begins"),
    ],
)
def test_a_fault_that_cannot_be_meant_is_refused(text: str, why: str) -> None:
    with pytest.raises(click.BadParameter, match=why):
        FaultOption().convert(text, None, None)


def page(name: str) -> PageTemplate:
    return PageTemplate(f"wirewatch_{name} 1\n")


FLEET = SimulatedFleet(
    Script(5, (ScriptedFault("lost", 1, 10.0), ScriptedFault(SILENT, 1), ScriptedFault(GONE, 1))),
    [page("a"), page("b")], {"lost": page("lost")}, "h:1", "lab", BEGAN,
)  # fmt: skip


@each(
    ("path", "after", "status", "begins"),
    [
        ("/nodes/gpu-0001/metrics", 9.0, 200, b"wirewatch_a 1"),
        ("/nodes/gpu-0001/metrics", 10.0, 200, b"wirewatch_lost 1"),
        ("/nodes/gpu-0002/metrics", 0.0, 503, b"this node is silent"),
        ("/nodes/gpu-0003/metrics", 0.0, 503, b"this node is silent"),
        ("/nodes/gpu-0004/metrics", 0.0, 200, b"wirewatch_b 1"),
        ("/nodes/gpu-0005/metrics", 0.0, 200, b"wirewatch_a 1"),
        ("/nodes/gpu-0006/metrics", 0.0, 404, b"no such path"),
        ("/metrics", 0.0, 404, b"no such path"),
    ],
)
def test_each_path_has_its_answer(path: str, after: float, status: int, begins: bytes) -> None:
    found, kind, body = FLEET.answer(path, BEGAN + after)
    assert (found, kind[:10], body[: len(begins)]) == (status, b"text/plain", begins)


def answered(kind: str, path: str, *headers: tuple[bytes, bytes]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def receive() -> Any:
        raise AssertionError("nothing is read of a request")

    asyncio.run(FLEET({"type": kind, "path": path, "headers": list(headers)}, receive, send))
    return sent


@each(
    ("headers", "packed"),
    [
        ([(b"accept-encoding", b"deflate, gzip")], True), ([(b"accept-encoding", b"deflate")], False),
        ([(b"accept", b"gzip")], False), ([], False),
        ([(b"accept", b"*/*"), (b"accept-encoding", b"gzip")], True),
    ],
)  # fmt: skip
def test_an_answer_is_packed_for_who_takes_that(headers: list[tuple[bytes, bytes]], packed: bool) -> None:  # noqa: FBT001
    start, body = answered("http", "/targets", *headers)
    found = dict(start["headers"])
    assert (b"content-encoding" in found) == packed
    assert int(found[b"content-length"]) == len(body["body"])
    assert len(json.loads(gzip.decompress(body["body"]) if packed else body["body"])) == 4
    assert answered("lifespan", "/targets", *headers) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"), (b"up 1\n", "this is no answer of an agent's /metrics"),
        (b"\xff\x00", "it is not text in UTF-8: "),
    ],
)  # fmt: skip
def test_a_page_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / "page").write_bytes(content)
    done = CliRunner().invoke(
        simulate.simulate, ["--page", str(tmp_path / "page"), "--listen", "127.0.0.1:0"]
    )
    assert isinstance(done.exception, Unusable)
    assert str(done.exception).startswith(f"{tmp_path / 'page'}: {why}")


@pytest.mark.parametrize("own", [True, False])
def test_healthy_nodes_say_what_is_given_or_what_a_recording_shows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: bool,  # noqa: FBT001
) -> None:
    served: list[SimulatedFleet] = []
    asked: list[tuple[str, ...]] = []

    async def serve(fleet: SimulatedFleet, _listening: Any) -> None:
        served.append(fleet)

    def played_page(recording: str, overlays: tuple[str, ...], tier: Any) -> PageTemplate:
        asked.append((recording, *overlays, tier.value))
        return page("played")

    monkeypatch.setattr(simulate, "_serve", serve)
    monkeypatch.setattr(simulate, "page_of", played_page)
    (tmp_path / "page").write_text("wirewatch_own 1\nwirewatch_more 1\n")
    words = [
        "--nodes",
        "3",
        "--listen",
        "127.0.0.1:0",
        "--fault",
        "lost=1",
        "--fault",
        "silent=1",
        "--tier",
        "full",
    ]
    done = CliRunner().invoke(
        simulate.simulate, [*words, *(("--page", str(tmp_path / "page")) if own else ())]
    )
    (fleet,) = served
    assert done.output == f"3 nodes, {6 if own else 3} series; targets: http://{fleet.address}/targets\n"
    assert fleet.address.startswith("127.0.0.1:")
    assert asked == [*([] if own else [("demo-dgx-h200", "full")]), ("demo-dgx-h200", "lost", "full")]
    assert [*fleet.faulty] == ["lost"]
