"""What is learned as the baseline, and what never is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verdict.drift.drawn import (
    A100_CARD,
    BOXES,
    H200,
    NOWHERE,
    Box,
    Edit,
    bridged,
    meshed,
    switched,
)
from tests.verdict.drift.edits import bridge_lost, driver, gpu_lost, link_lost, nic_lost, nic_ports
from tests.verdict.drift.omissions import OF_GPUS, OF_NICS
from tests.verdict.drift.watching import POLICY, drawn
from wirewatch.core.topology import UNKNOWN_PEER, nvlink_product
from wirewatch.core.types import Expect
from wirewatch.verdict.drift.baseline import Baseline, why_not
from wirewatch.verdict.drift.graph import Graph
from wirewatch.verdict.drift.watch import DriftPolicy, Memory, counts, see
from wirewatch.verdict.ledger import Word

HERE = Expect()


def learned(
    *graphs: Graph, troubles: tuple[str, ...] = (), expect: Expect = HERE, policy: DriftPolicy = POLICY
) -> tuple[Memory, Baseline | None]:
    """After these readings, a second apart; the last of them."""
    memory, baseline = Memory(), None
    for at, graph in enumerate(graphs):
        assert baseline is None
        memory, baseline = see(memory, None, graph, float(at), troubles, expect, policy)
        assert memory.graph is graph
        assert (memory.changes, memory.streaks, memory.since) == ((), (), ())
        assert bool(memory.learning) is (baseline is None)
    return memory, baseline


@pytest.mark.parametrize("make", BOXES)
def test_three_readings_alike_are_learned(make: type[Box]) -> None:
    graph = drawn(make=make)
    memory, baseline = learned(graph, graph, graph)
    said = Word("wirewatch", "learned: 3 readings alike, nothing wrong", 2.0)
    assert baseline == Baseline(graph, said, "learned")
    assert not any(counts(memory).values())
    again, second = see(memory, baseline, graph, 3.0, (), HERE, POLICY)
    assert (again.changes, again.learning, second) == ((), "", None)


def test_how_far_it_is() -> None:
    graph, other = drawn(), drawn(driver)
    assert learned(graph)[0].learning == "1 of 3 readings alike, nothing wrong"
    assert learned(graph, graph)[0].learning == "2 of 3 readings alike, nothing wrong"
    assert learned(graph, graph, other)[0].learning == "1 of 3 readings alike, nothing wrong"
    assert learned(graph, graph, other, graph, graph)[1] is None
    assert learned(graph, policy=DriftPolicy(learn=1))[1] is not None


def test_a_bad_reading_starts_anew() -> None:
    good, bad = drawn(), drawn(link_lost)
    memory, _ = learned(good, good, bad)
    assert memory.same == 0
    assert learned(good, good, bad, good, good)[0].same == 2
    assert learned(good, good, bad, good, good, good)[1] is not None


def test_nothing_is_learned_while_something_is_wrong() -> None:
    memory, baseline = learned(*[drawn()] * 9, troubles=("xid.79", "nvlink.link_down", "xid.79"))
    assert baseline is None
    assert memory.learning == "findings hold: nvlink.link_down, xid.79"
    # That the old one is of no use is no reason against a new one.
    assert learned(*[drawn()] * 3, troubles=("topology.baseline",))[1] is not None


REFUSED: tuple[tuple[str, Graph, Expect, str], ...] = (
    ("born with 17", drawn(link_lost), HERE, "GPU 3 (...0003) shows 17 of 18 links up"),
    (
        "two short", drawn(link_lost, lambda box: box.cut(0, *range(18))), HERE,
        "GPU 0 (...0000) shows 0 of 18 links up; GPU 3 (...0003) shows 17 of 18 links up",
    ),
    (
        "a bridge fell off", drawn(bridge_lost, make=bridged), HERE,
        f"not all {A100_CARD} are alike: GPU 2 (...0002) shows 12 links up, GPU 0 (...0000) shows 0 links up",
    ),
    (
        "of a product that is not listed",
        drawn(*(lambda box, n=n: box.gpu(n, name="NVIDIA X1") for n in range(8)), link_lost), HERE,
        "not all NVIDIA X1 are alike: GPU 0 (...0000) shows 18 links up, GPU 3 (...0003) shows 17 links up",
    ),
    ("GPUs", drawn(gpu_lost), Expect(gpus=8), "7 of 8 expected GPUs are here"),
    ("ports", drawn(nic_lost), Expect(rdma_ports=8), "7 of 8 expected RDMA ports are here"),
    (
        "links", drawn(make=meshed), Expect(nvlink_links=13),
        "; ".join(f"GPU {n} (...000{n}) shows 12 of 13 links up" for n in range(4)),
    ),
    ("nothing", drawn(make=Box), HERE, "no GPU is here; not known: node: number of NUMA nodes"),
    (
        "unread", drawn(lambda box: box.unread.update({2, 5})), HERE,
        "not known: GPU 2 (...0002): NVLink links and 1 more",
    ),
    (
        "several", drawn(gpu_lost, lambda box: box.cut(1, 0)), Expect(gpus=8, rdma_ports=9),
        ("7 of 8 expected GPUs are here; 8 of 9 expected RDMA ports are here; "
         "GPU 1 (...0001) shows 17 of 18 links up"),
    ),
)  # fmt: skip


@pytest.mark.parametrize(("graph", "expect", "told"), [pytest.param(*r[1:], id=r[0]) for r in REFUSED])
def test_what_is_refused_is_said(graph: Graph, expect: Expect, told: str) -> None:
    if not graph.gpus:
        graph = replace(graph, numa_nodes=2)
        told = "no GPU is here"
    memory, baseline = learned(*[graph] * 5, expect=expect)
    assert baseline is None
    assert (memory.learning, memory.same) == (told, 0)


def test_what_the_operator_expects_may_be_exceeded_but_by_links() -> None:
    expect = Expect(gpus=7, nvlink_links=18, rdma_ports=7)
    assert learned(*[drawn()] * 3, expect=expect)[1] is not None


MATTERS = {
    "uuid",
    "wires",
    "product",
    "peers",
    "gpu place",
    "gpu address",
    "gpu numa",
    "nodes",
    "ports",
    "layer",
}
"""Of what may not be told."""


@pytest.mark.parametrize("what", [*OF_GPUS, *OF_NICS])
def test_what_must_be_known(what: str) -> None:
    omit: Edit = lambda box: {**OF_GPUS, **OF_NICS}[what](box, 1)  # noqa: E731
    baseline = learned(*[drawn(omit)] * 3)[1]
    assert (baseline is None) is (what in MATTERS)


def test_numa_nodes_that_no_part_tells_are_a_fact_of_the_machine() -> None:
    def untold(box: Box) -> None:
        box.numa_nodes = None
        for n in range(8):
            box.gpu(n, place=replace(box.gpus[n].place, numa=None))
            box.nic(n, place=NOWHERE)

    assert learned(*[drawn(untold)] * 3)[1] is not None


def test_ports_that_speak_another_protocol_are_learned_as_they_are() -> None:
    assert learned(*[drawn(nic_ports)] * 3)[1] is not None


@st.composite
def readings(draw: st.DrawFn) -> Graph:
    """A node that may lack links, GPUs, and whatever may not be told."""
    box = draw(st.sampled_from(BOXES))()
    for number, links in draw(st.dictionaries(st.integers(0, 7), st.sets(st.integers(0, 17)))).items():
        box.cut(number, *links)
    for number in draw(st.sets(st.integers(0, 3), max_size=1)):
        box.drop_gpu(number)
    for what, number in draw(st.sets(st.tuples(st.sampled_from([*OF_GPUS, *OF_NICS]), st.integers(0, 3)))):
        if what in OF_GPUS and number in box.gpus:
            OF_GPUS[what](box, number)
        elif what in OF_NICS and number in box.nics:
            OF_NICS[what](box, number)
    return drawn(make=lambda: box)


@st.composite
def histories(draw: st.DrawFn) -> list[Graph]:
    """Each reading a few times, in whatever order."""
    kinds = draw(st.lists(readings(), min_size=1, max_size=3))
    return draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=12))


@given(histories(), st.lists(st.booleans(), min_size=12, max_size=12))
def test_no_history_teaches_fewer_links_than_the_product_has(graphs: list[Graph], wrong: list[bool]) -> None:
    memory = Memory()
    for at, graph in enumerate(graphs):
        troubles = ("xid.74",) if wrong[at] else ()
        memory, baseline = see(memory, None, graph, float(at), troubles, HERE, POLICY)
        if baseline is None:
            continue
        assert at >= 2
        assert not any(wrong[at - 2 : at + 1])
        assert baseline.graph == graph == graphs[at - 1] == graphs[at - 2]
        assert why_not(baseline.graph, (), HERE) == ()
        for gpu in baseline.graph.gpus:
            product = nvlink_product(gpu.product)
            assert gpu.uuid
            assert gpu.read
            assert product is not None
            assert UNKNOWN_PEER not in {wire.peer for wire in gpu.wires}
            assert sum(len(wire.links) for wire in gpu.wires) in product.counts
            if gpu.product == H200:
                assert len(gpu.peers()) == 18
        memory = Memory()


def test_the_property_can_be_met() -> None:
    assert learned(*[drawn(make=switched)] * 3)[1] is not None
