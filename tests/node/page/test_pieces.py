"""Pieces of the page by themselves: times, tables, anchors of the runbook, names, drawings of other nodes."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.runbook import entries, page
from tests.node.busbw.nodes import H200, node, sockets, uuid
from tests.node.page.pages import content_of
from tests.support import EPOCH, Node
from wirewatch.core.topology import Topology
from wirewatch.core.words import ago, span
from wirewatch.page.content import PageContent
from wirewatch.page.drawing import draw
from wirewatch.page.findings import SHARED, anchor, heading, link
from wirewatch.page.model import Cell, Column, Drawing
from wirewatch.page.tables import GpuName, Readings, moment, number, table, unique, unknown
from wirewatch.verdict.node import judge_state


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (125, "2 min 5 s"), (3600, "1 h"), (3605, "1 h"),
        (12_000, "3 h 20 min"), (90_000, "1 d 1 h"), (86_460, "1 d"),
    ],
)  # fmt: skip
def test_a_length_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_time_is_reported_absolute_and_relative() -> None:
    told = moment(EPOCH - 64, EPOCH)
    assert (told.text, told.iso, told.ago) == (
        "2026-11-21 01:03:46 UTC",
        "2026-11-21T01:03:46Z",
        "1 min 4 s ago",
    )
    assert (ago(0.4), ago(-0.4), ago(-90)) == ("just now", "just now", "in 1 min 30 s")


@given(st.floats(allow_nan=False), st.floats(-1e18, 1e18))
def test_no_time_is_too_strange_to_be_reported(at: float, now: float) -> None:
    if abs(at) < 1e18:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", moment(at, now).text)


def test_what_is_not_known_for_one_reason_is_joined_or_noted() -> None:
    cells = [*[unknown("why")] * 3, number("1"), unknown("why"), unknown("else")]
    made = table("t", "caption", [Column("A")] * 7, [(Cell("row"), cells)])
    (only,) = made.rows
    assert [(one.text, one.span, one.mark) for one in only.cells] == [
        ("not known: why", 3, 0), ("1", 1, 0), ("not known", 1, 1), ("not known", 1, 2),
    ]  # fmt: skip
    assert made.notes == ("why", "else")


@given(st.lists(st.sampled_from(["", "a", "b"]), max_size=12))
def test_a_row_keeps_its_width(reasons: list[str]) -> None:
    cells: list[Cell] = [unknown(why) if why else number("1") for why in reasons]
    made = table("t", "caption", [Column("A")], [(Cell("row"), cells)])
    assert sum(one.span for one in made.rows[0].cells) == len(reasons)
    assert all(made.notes[one.mark - 1] == one.why for one in made.rows[0].cells if one.mark)


def headings() -> Mapping[str, str]:
    """Headings of the runbook by rule, as its entries have it; rules of a kind by the kind."""
    return {name: one.title.replace("`", "") for one in entries() for name in one.names}


def test_every_rule_leads_to_its_own_entry_in_the_runbook() -> None:
    for rule, title in headings().items():
        assert heading(rule.replace("*", "9")) == title, rule
    assert set(SHARED) <= set(headings().values())


def test_anchors_are_those_that_the_page_s_own_links_use() -> None:
    used = re.findall(r"\]\(#([^)]+)\)", page())
    titles = re.findall(r"^#{1,3} (.+)$", page(), re.MULTILINE)
    assert used
    assert set(used) <= {anchor(title.replace("`", "")) for title in titles}
    assert link("https://x.example/runbook", "nvlink.crc_errors") == "https://x.example/runbook#nvlink-errors"
    assert link("https://x.example/a#old", "gpu.lost") == "https://x.example/a#gpulost"
    assert link("", "gpu.lost") == ""


def test_gpus_are_listed_once_in_their_order() -> None:
    told = unique(
        [
            GpuName("10", "u10"),
            GpuName("2", "u2", "pci"),
            GpuName("2", "u2"),
            GpuName("2", ""),
            GpuName("3", ""),
        ]
    )
    assert [(one.index, one.uuid) for one in told] == [("2", "u2"), ("3", ""), ("10", "u10")]


def drawn(graph: Topology) -> Drawing:
    told = content_of(judge_state(Node("h200x1-idle").state), Node("h200x1-idle"))
    made = draw(replaced(told, graph), Readings({}, {}, EPOCH))
    assert made is not None
    return made


def replaced(told: PageContent, graph: Topology) -> PageContent:
    return PageContent(
        told.place, told.health, told.findings, told.state, graph, told.drift, told.probes, told.ends
    )


def test_gpus_that_are_wired_to_each_other_are_joined_by_curves() -> None:
    mesh = {a: {b: 6 for b in range(4) if b != a} for a in range(4)}
    made = drawn(node([H200] * 4, mesh, sockets(4)))
    curves = [wire for wire in made.wires if wire.bend]
    assert len(curves) == 6
    assert {wire.text for wire in curves} == {"6"}
    assert not [box for box in made.boxes if box.text == "NVLink switches"]
    assert "6 NVLink links up to GPU 1" in made.words[0]


def test_gpus_without_nvlink_have_none_drawn() -> None:
    made = drawn(node([H200] * 8, {}, sockets(8)))
    assert not [wire for wire in made.wires if wire.text]
    assert {frame.text for frame in made.frames} == {"NUMA 0", "NUMA 1"}
    assert all("no NVLink" in word for word in made.words)


def test_a_link_whose_other_end_is_not_known_is_drawn_so() -> None:
    made = drawn(node([H200] * 2, {0: {"unknown": 4}}, sockets(2)))
    assert [wire.text for wire in made.wires if wire.text] == ["4 ?"]
    assert "an unknown peer" in made.words[0]
    assert uuid(0)
