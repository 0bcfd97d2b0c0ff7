"""Parts of the drawing by readings and findings that are drawn by hand; each row differs in one thing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.node.busbw.nodes import uuid
from tests.node.page.states import state
from tests.node.page.test_hardware import collector, readings
from tests.node.page.test_pieces import gpu_at, graph_of, nic_at
from tests.rows import each
from wirewatch.core.topology import SWITCH, UNKNOWN_PEER, NvlinkWires, Topology
from wirewatch.documents.state import Series
from wirewatch.page.content import PageContent
from wirewatch.page.drawing import DrawingState, Links, _Layout, draw, drawing_state, words
from wirewatch.page.model import Drawing
from wirewatch.page.tables import Readings

GPU = {"gpu": "0", "uuid": uuid(0)}
ONE = graph_of([gpu_at(0)])


def found(
    *subjects: Mapping[str, str], rule: str = "nvlink.link_down", health: str = "failed"
) -> PageContent:
    """A node with a finding of each of these parts, the first worst."""
    content = state("healthy")
    (template,) = state("link-down").health.findings
    made = [replace(template, subject=dict(one), rule=rule, health=health) for one in subjects]  # type: ignore[arg-type]
    return replace(content, health=replace(content.health, findings=made))


def of_links(up: float | None, expected: float | None = None, *, watched: bool = True) -> Readings:
    series = [] if up is None else [Series("nvlink_links", {**GPU, "state": "active"}, up)]
    series += [] if expected is None else [Series("nvlink_links_expected", GPU, expected)]
    return readings(*series, collectors=[collector("nvlink")] if watched else [])


def wired(*wires: NvlinkWires, unread: Sequence[str] = ()) -> Topology:
    return replace(ONE, nvlink=wires, unread=tuple(unread))


TO_SWITCH = NvlinkWires(uuid(0), SWITCH, tuple(range(18)))
OF_ANOTHER = NvlinkWires(uuid(1), SWITCH, (0, 1))
TWO_PEERS = (NvlinkWires(uuid(0), uuid(1), (0, 1)), NvlinkWires(uuid(0), uuid(2), (2,)))
DOWN = {**GPU, "link": "7"}


@each(
    ("why", "graph", "here", "parts", "links"),
    [
        ("the newer number", wired(TO_SWITCH), of_links(17, 18), [DOWN], (Links(SWITCH, 17, 18, ("7",)),)),
        ("the graph's alone", wired(TO_SWITCH), of_links(None, watched=False), [],
         (Links(SWITCH, 18, None),)),
        ("a link of another GPU is down", wired(TO_SWITCH), of_links(17, 18), [{**DOWN, "uuid": uuid(1)}],
         (Links(SWITCH, 17, 18),)),
        ("all links are down", wired(TO_SWITCH), of_links(17, 18), [GPU], (Links(SWITCH, 17, 18),)),
        ("watched, and no number", wired(TO_SWITCH), of_links(None, 18), [],
         (Links(SWITCH, 18, 18, unread=True),)),
        ("the graph could not read it", wired(TO_SWITCH, unread=[uuid(0)]), of_links(18, 18), [],
         (Links(SWITCH, 18, 18, unread=True),)),
        ("two peers", wired(*TWO_PEERS), of_links(3, 3), [DOWN],
         (Links(uuid(1), 2, None), Links(uuid(2), 1, None))),
        ("two peers, and no number", wired(*TWO_PEERS), of_links(None), [],
         (Links(uuid(1), 2, None, unread=True), Links(uuid(2), 1, None, unread=True))),
        ("none now, expected", wired(), of_links(0, 18), [DOWN], (Links(UNKNOWN_PEER, 0, 18, ("7",)),)),
        ("none now, expected as of the others", wired(OF_ANOTHER), of_links(0, 18), [],
         (Links(SWITCH, 0, 18),)),
        ("none in the graph, some up since", wired(OF_ANOTHER), of_links(2, 18), [], (Links(SWITCH, 2, 18),)),
        ("none known, expected", wired(), of_links(None, 18), [], (Links(UNKNOWN_PEER, 0, 18, unread=True),)),
        ("none in the graph, which could not read it", wired(unread=[uuid(0)]), of_links(None), [],
         (Links(UNKNOWN_PEER, 0, None, unread=True),)),
        ("none, and none expected", wired(), of_links(0), [], ()),
        ("none, and no number", wired(), of_links(None), [], ()),
    ],
)  # fmt: skip
def test_links_of_a_gpu(
    why: str, graph: Topology, here: Readings, parts: Sequence[Mapping[str, str]], links: tuple[Links, ...]
) -> None:
    assert drawing_state(found(*parts), graph, here).links[uuid(0)] == links, why


def test_links_that_nobody_can_watch_are_as_the_graph_has_them() -> None:
    here = readings(collectors=[collector("nvlink", applicable=False)])
    assert drawing_state(found(), wired(TO_SWITCH), here).links[uuid(0)] == (Links(SWITCH, 18, None),)
    other = found({**DOWN}, rule="nvlink.crc_errors")
    assert drawing_state(other, wired(TO_SWITCH), of_links(18, 18)).links[uuid(0)][0].down == ()


@each(
    ("why", "subject", "rule", "gpus", "pcie"),
    [
        ("by its name", {"gpu": "9", "uuid": uuid(0)}, "gpu.hot", [0], []),
        ("another name at its index", {"gpu": "0", "uuid": "else"}, "gpu.hot", [], []),
        ("by its index", {"gpu": "1"}, "gpu.hot", [1], []),
        ("a device", {"device": "mlx5_0"}, "gpu.hot", [], []),
        ("its PCIe", {"gpu": "0", "uuid": uuid(0)}, "pcie.width", [0], [uuid(0)]),
        ("PCIe of a card", {"device": "mlx5_0"}, "infiniband.pcie", [], ["mlx5_0"]),
    ],
)
def test_a_part_looks_as_its_finding(
    why: str, subject: Mapping[str, str], rule: str, gpus: list[int], pcie: list[str]
) -> None:
    graph = graph_of([gpu_at(0), gpu_at(1)], [nic_at("mlx5_0")])
    made = drawing_state(found(subject, rule=rule, health="degraded"), graph, readings())
    assert made.gpus == {uuid(n): "warn" for n in gpus}, why
    assert made.nics == ({"mlx5_0": "warn"} if "device" in subject else {}), why
    assert made.pcie == dict.fromkeys(pcie, "warn"), why


def test_the_worst_finding_of_a_part_decides() -> None:
    content = found(GPU, GPU)
    worst, other = content.health.findings
    both = [worst, replace(other, health="degraded")]
    content = replace(content, health=replace(content.health, findings=both))
    assert drawing_state(content, ONE, readings()).gpus == {uuid(0): "bad"}


@pytest.mark.parametrize(
    ("why", "collectors", "gpus", "nics"),
    [
        ("all read", [collector("gpu"), collector("infiniband")], {}, {}),
        ("none of them runs", [], {}, {}),
        ("GPUs are not read", [collector("gpu", success=False)], {uuid(0): "unknown"}, {}),
        ("cards are not read", [collector("infiniband", success=False)], {}, {"mlx5_0": "unknown"}),
    ],
)
def test_what_is_not_read_is_drawn_as_unknown(
    why: str, collectors: Sequence[object], gpus: Mapping[str, str], nics: Mapping[str, str]
) -> None:
    graph = graph_of([gpu_at(0)], [nic_at("mlx5_0")])
    made = drawing_state(found(), graph, readings(collectors=collectors))  # type: ignore[arg-type]
    assert (made.gpus, made.nics) == (gpus, nics), why


def port_series(number: str, rate: float | None, **states: float) -> list[Series]:
    part = {"device": "mlx5_0", "port": number}
    known = [Series("rdma_port_state", {**part, "state": name}, value) for name, value in states.items()]
    return known + ([] if rate is None else [Series("rdma_port_rate_bytes_per_second", part, rate)])


@each(
    ("why", "series", "port"),
    [
        ("both up", [*port_series("1", 50e9, active=1.0), *port_series("2", 25e9, active=1.0)],
         ("400 + 200", "good")),
        ("a rate is not known", [*port_series("1", 50e9, active=1.0), *port_series("2", None, active=1.0)],
         ("400 + ?", "good")),
        ("one is down", [*port_series("1", 50e9, active=1.0), *port_series("2", None, active=0.0, down=1.0)],
         ("down", "bad")),
        ("one has a state without a name",
         [*port_series("1", 50e9, active=1.0), *port_series("2", None, active=0.0)], ("not up", "bad")),
        ("one is not known", [*port_series("1", None, active=0.0, down=1.0)], ("?", "unknown")),
    ],
)  # fmt: skip
def test_the_wire_of_a_card_with_two_ports(why: str, series: list[Series], port: tuple[str, str]) -> None:
    card = replace(nic_at("mlx5_0"), ports=(("1", "InfiniBand"), ("2", "Ethernet")))
    bare = replace(nic_at("mlx5_1"), ports=())
    made = drawing_state(found(), graph_of([], [card, bare]), readings(*series))
    assert made.ports == {"mlx5_0": port}, why
    both, none = list(words(graph_of([], [card, bare]), replace(made, ports={})))
    assert both.endswith(": port 1 InfiniBand, port 2 Ethernet.")
    assert none.endswith(": no port.")


def layout(
    count: int, links: Mapping[int, tuple[Links, ...]], graph: Topology | None = None
) -> tuple[Topology, DrawingState]:
    graph = graph or graph_of([gpu_at(n) for n in range(count)])
    named = {gpu.uuid: links.get(gpu.index, ()) for gpu in graph.gpus}
    near = {gpu.uuid: ("", "") for gpu in graph.gpus}
    return graph, DrawingState({}, {}, named, near, {}, {})


def made(*given: Topology | DrawingState) -> Drawing:
    graph, looks = given
    return _Layout(graph, looks).drawing()  # type: ignore[arg-type]


def mesh(pairs: Sequence[tuple[int, int]], up: int = 4) -> dict[int, tuple[Links, ...]]:
    found: dict[int, list[Links]] = {}
    for one, other in pairs:
        found.setdefault(one, []).append(Links(uuid(other), up, 4))
        found.setdefault(other, []).append(Links(uuid(one), 4, 4))
    return {gpu: tuple(links) for gpu, links in found.items()}


EVERY = [(a, b) for a in range(5) for b in range(a + 1, 5)]


def test_with_many_curves_only_what_is_short_has_its_numbers() -> None:
    assert {wire.text for wire in made(*layout(5, mesh(EVERY[:8]))).wires} == {"4/4"}
    assert {wire.text for wire in made(*layout(5, mesh(EVERY[:9]))).wires} == {""}
    one = {**mesh(EVERY), 0: tuple(replace(link, up=3) for link in mesh(EVERY)[0][:1]) + mesh(EVERY)[0][1:]}
    assert [(wire.text, wire.style) for wire in made(*layout(5, one)).wires if wire.text] == [("3/4", "bad")]
    assert {wire.text for wire in made(*layout(5, mesh(EVERY[:1], up=2))).wires} == {"2/4"}


def test_links_to_a_peer_that_is_not_here_are_drawn_and_of_one_that_is_not_twice() -> None:
    drawn = made(*layout(2, {0: (Links(uuid(1), 4, 4), Links("away", 2, None)), 1: (Links(uuid(0), 4, 4),)}))
    assert [wire.text for wire in drawn.wires] == ["4/4", "2 ?"]


@pytest.mark.parametrize(
    ("why", "links", "heights", "switch"),
    [
        ("no link", {}, [36.0] * 2, False),
        ("a switch", {0: (Links(SWITCH, 1, 1),)}, [140.0] * 2, True),
        ("a switch and a curve", {0: (Links(SWITCH, 1, 1),), 1: (Links(uuid(0), 1, 1),)}, [140.0] * 2, True),
        ("a curve", {0: (Links(uuid(1), 1, 1),)}, [98.0] * 2, False),
    ],
)
def test_the_room_above_the_gpus_is_for_what_is_there(
    why: str, links: Mapping[int, tuple[Links, ...]], heights: list[float], *, switch: bool
) -> None:
    drawn = made(*layout(2, links))
    assert [box.y for box in drawn.boxes if box.text.startswith("GPU")] == heights, why
    assert any(box.text == "NVLink switches" for box in drawn.boxes) is switch, why


BRIDGED = [gpu_at(0), gpu_at(1, 0, "pci0000:20", "b1")]


@pytest.mark.parametrize(
    ("why", "graph", "quiet", "foot"),
    [
        ("neither bridge nor card", graph_of([gpu_at(0)]), [], 122.0),
        ("one has a bridge", graph_of(BRIDGED), ["PCIe", "PCIe"], 178.0),
        ("a card", graph_of([], [nic_at("mlx5_0")]), ["PCIe"], 304.0),
    ],
)
def test_bridges_are_drawn_where_one_part_has_one_or_a_card_is_there(
    why: str, graph: Topology, quiet: list[str], foot: float
) -> None:
    drawn = made(*layout(0, {}, graph))
    assert [box.text for box in drawn.boxes if box.style == "quiet"] == quiet, why
    assert (drawn.height, len(drawn.wires)) == (foot, len(quiet)), why


def test_names_that_do_not_fit_are_cut_and_narrow_nodes_have_some_width() -> None:
    graph = graph_of([], [nic_at("mlx5_bon0"), nic_at("mlx5_bond1"), replace(nic_at("e", None), ports=())])
    drawn = made(*layout(0, {}, graph))
    assert [(box.text, box.note) for box in drawn.boxes if box.style == "plain"] == [
        ("mlx5_bon0", "InfiniBand"), ("mlx5_bon…", "InfiniBand"), ("e", "no port"),
    ]  # fmt: skip
    assert [frame.text for frame in drawn.frames] == ["NUMA 0", "NUMA not known"]
    assert made(*layout(1, {})).width == 240.0
    assert made(*layout(8, {})).width == 824.0


def test_nothing_is_drawn_without_a_graph_or_a_part() -> None:
    content = state("healthy")
    for graph in (None, graph_of([])):
        assert draw(replace(content, topology=graph), readings()) is None
    for graph in (ONE, graph_of([], [nic_at("mlx5_0")])):
        assert draw(replace(content, topology=graph), readings()) is not None
