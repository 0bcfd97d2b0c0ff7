"""Pieces of the page by themselves: times, tables, anchors of the runbook, names, drawings of other nodes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.runbook import entries, page
from tests.node.busbw.nodes import H200, node, sockets, uuid
from tests.node.page.pages import content_of
from tests.rows import each
from tests.support import EPOCH, Node
from wirewatch.core.pci import Place
from wirewatch.core.topology import SWITCH, GpuPart, NicPart, NicPath, Topology
from wirewatch.core.words import ago, span
from wirewatch.documents.health import ReportedFinding
from wirewatch.documents.state import CollectorState, Series
from wirewatch.page.content import PageContent
from wirewatch.page.drawing import DrawingState, Links, _Layout, draw, groups, nearest, words
from wirewatch.page.findings import SHARED, anchor, heading, link
from wirewatch.page.model import Cell, Column, Drawing, Style
from wirewatch.page.tables import (
    NOT_GIVEN,
    NOT_YET,
    GpuName,
    Readings,
    moment,
    number,
    order,
    plain,
    table,
    unique,
    unknown,
)
from wirewatch.verdict.node import judge_state


@each(
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
    assert told[0].pci == "pci"
    moved = unique([GpuName("2", "u9"), GpuName("2", "u2")])
    assert [(one.index, one.uuid) for one in moved] == [("2", "u2"), ("2", "u9")]
    assert [one.part for one in told[:2]] == [{"gpu": "2", "uuid": "u2"}, {"gpu": "3"}]


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


def gpu_at(number: int, numa: int | None = 0, root: str = "pci0000:10", *bridges: str) -> GpuPart:
    return GpuPart(uuid(number), number, H200, Place(f"0000:1{number}:00.0", root, bridges, numa))


def nic_at(name: str, numa: int | None = 0, root: str = "pci0000:10", *bridges: str) -> NicPart:
    place = Place("0000:19:00.0", root, bridges, numa)
    return NicPart("guid", name, "MT4129", "1", place, (("1", "InfiniBand"),))


def graph_of(
    gpus: Sequence[GpuPart], nics: Sequence[NicPart] = (), paths: Sequence[NicPath] = ()
) -> Topology:
    return Topology(tuple(gpus), tuple(nics), (), tuple(paths), 2, ())


def test_parts_are_drawn_by_node_and_root_port_those_with_gpus_first() -> None:
    gpus = [gpu_at(1), gpu_at(0), gpu_at(2, 1, "pci0000:20", "b1"), gpu_at(3, None, "")]
    nics = [
        nic_at("mlx5_10"),
        nic_at("mlx5_9"),
        nic_at("mlx5_1", 0, "pci0000:05"),
        nic_at("mlx5_2", 1, "pci0000:20", "b2"),
    ]
    made = [
        (one.numa, one.root, one.bridge, [gpu.index for gpu in one.gpus], [nic.device for nic in one.nics])
        for one in groups(graph_of(gpus, nics))
    ]
    assert made == [
        (0, "pci0000:10", "", [0, 1], ["mlx5_9", "mlx5_10"]),
        (0, "pci0000:05", "", [], ["mlx5_1"]),
        (1, "pci0000:20", "b1", [2], []),
        (1, "pci0000:20", "b2", [], ["mlx5_2"]),
        (None, "", "", [3], []),
    ]


def test_the_nearest_nics_are_those_by_the_nearest_known_path() -> None:
    paths = [
        NicPath(uuid(0), name, path)
        for name, path in (("mlx5_10", "PXB"), ("mlx5_2", "PXB"), ("mlx5_1", "SYS"), ("mlx5_0", ""))
    ]
    graph = graph_of([gpu_at(0)], paths=[*paths, NicPath(uuid(1), "mlx5_7", "PIX")])
    assert nearest(graph, uuid(0)) == ("PXB", "mlx5_2, mlx5_10")
    assert nearest(graph, uuid(5)) == ("", "")


@each(
    ("links", "said", "text", "style"),
    [
        (Links(SWITCH, 18, 18), "18 of 18 NVLink links up to the switch", "18/18", "good"),
        (
            Links(SWITCH, 17, 18, ("7",)),
            "17 of 18 NVLink links up to the switch, link 7 down",
            "17/18",
            "bad",
        ),
        (Links(SWITCH, 18, None), "18 NVLink links up to the switch", "18", "plain"),
        (Links(SWITCH, 0, 18, (), unread=True), "NVLink to the switch could not be read", "?", "unknown"),
        (Links("else", 4, 4), "4 of 4 NVLink links up to an unknown peer", "4/4 ?", "good"),
    ],
)
def test_links_are_drawn_as_they_are(links: Links, said: str, text: str, style: str) -> None:
    graph = graph_of([gpu_at(0)])
    state = DrawingState({}, {}, {uuid(0): (links,)}, {uuid(0): ("", "")}, {}, {})
    assert (
        next(iter(words(graph, state)))
        == f"GPU 0, 0000:10:00.0, NUMA node 0: {said}; no NIC with a known path."
    )
    assert links.short is (style == "bad")
    drawing = _Layout(graph, state).drawing()
    assert [(wire.text, wire.style) for wire in drawing.wires if wire.text] == [(text, style)]


@pytest.mark.parametrize(
    ("port", "said"),
    [
        (("400", "good"), ", 400 Gb/s"), (("down", "bad"), ", down"), (("?", "unknown"), ", state not known"),
        (None, ""),
    ],
)  # fmt: skip
def test_a_port_is_drawn_as_it_is(port: tuple[str, Style] | None, said: str) -> None:
    graph = graph_of([], [nic_at("mlx5_bond_long")])
    ports = {} if port is None else {"mlx5_bond_long": port}
    state = DrawingState({}, {}, {}, {}, ports, {})
    assert list(words(graph, state)) == [
        f"mlx5_bond_long, 0000:19:00.0, NUMA node 0: port 1 InfiniBand{said}."
    ]
    drawing = _Layout(graph, state).drawing()
    assert [wire.text for wire in drawing.wires if wire.text] == ([] if port is None else [port[0]])
    assert "mlx5_bon\u2026" in [box.text for box in drawing.boxes]


@pytest.mark.parametrize(
    ("gpus", "nics", "name"),
    [
        ([gpu_at(0, 0, "pci0000:10", "b")], [nic_at("n", 0, "pci0000:10", "b")], "PCIe switch"),
        ([gpu_at(0, 0, "pci0000:10", "b")], [], "PCIe"),
        ([gpu_at(0)], [nic_at("n")], "PCIe"),
        ([gpu_at(0, 0, "")], [nic_at("n", 0, "")], "PCI not known"),
    ],
)
def test_what_joins_parts_is_named(gpus: Sequence[GpuPart], nics: Sequence[NicPart], name: str) -> None:
    state = DrawingState({}, {}, {one.uuid: () for one in gpus}, {one.uuid: ("", "") for one in gpus}, {}, {})
    boxes = _Layout(graph_of(gpus, nics), state).drawing().boxes
    assert [box.text for box in boxes if box.style == "quiet"] == [name]


COLLECTOR = CollectorState(
    "gpu", "ok", applicable=True, success=True, error=None, overdue_since=None, last_success=EPOCH,
    duration_seconds=0.0, failures=0, findings=[], samples=[],
)  # fmt: skip
BLIND = ReportedFinding("gpu.blind", "unknown", {"gpu": "0", "uuid": "GPU-0"}, "lost", "a", EPOCH)


@each(
    ("change", "part", "why"),
    [
        ({}, None, NOT_GIVEN),
        ({"last_success": 0.0}, None, NOT_YET),
        ({"error": "denied"}, None, "denied"),
        ({"overdue_since": EPOCH - 70, "error": "denied"}, None,
         "gpu is overdue since 2026-11-21 01:03:40 UTC, 1 min 10 s ago"),
        ({"findings": [BLIND]}, {"gpu": "0", "uuid": "GPU-0"}, "lost"),
        ({"findings": [BLIND]}, {"gpu": "1", "uuid": "GPU-1"}, NOT_GIVEN),
        ({"findings": [BLIND]}, None, NOT_GIVEN),
        ({"findings": [BLIND]}, {"device": "mlx5_0"}, NOT_GIVEN),
        ({"findings": [replace(BLIND, subject={})], "error": "denied"}, None, "lost"),
        ({"findings": [replace(BLIND, rule="gpu.hot")]}, {"gpu": "0", "uuid": "GPU-0"}, NOT_GIVEN),
    ],
)  # fmt: skip
def test_why_a_number_is_not_known(change: dict[str, object], part: dict[str, str] | None, why: str) -> None:
    one = replace(COLLECTOR, **change)  # type: ignore[arg-type]
    here = Readings({}, {"gpu": one}, EPOCH)
    assert here.why("gpu", part) == why
    assert here.why("pcie") == "the collector pcie is switched off"


@pytest.mark.parametrize(
    ("applicable", "findings", "applies"),
    [(True, [], True), (None, [], True), (False, [], False), (False, [BLIND], True)],
)
def test_what_may_have_something_to_watch(
    *, applicable: bool | None, findings: list[ReportedFinding], applies: bool
) -> None:
    here = Readings({}, {"gpu": replace(COLLECTOR, applicable=applicable, findings=findings)}, EPOCH)
    assert here.applies("gpu") is applies
    assert here.applies("pcie")
    assert (here.nothing("gpu", "none").text == "none") is not applies


def test_a_state_is_the_one_that_holds_and_empty_where_none_does() -> None:
    def here(**values: float) -> Readings:
        return Readings({"s": [Series("s", {"state": one}, at) for one, at in values.items()]}, {}, EPOCH)

    assert (here(up=0.0, down=1.0).state("s", {}), here(up=0.0).state("s", {}), here().state("s", {})) == (
        "down", "", None,
    )  # fmt: skip


def test_numbers_are_in_order_before_other_names() -> None:
    names = ["b", "10", "9", "a", "9999999999", "999999999"]
    assert sorted(names, key=order) == ["9", "10", "999999999", "9999999999", "a", "b"]
    assert (plain(1234.0), plain(0.25), plain(2.5)) == ("1,234", "0.2", "2.5")
