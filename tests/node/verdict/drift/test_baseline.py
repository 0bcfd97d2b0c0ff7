"""What is learned as the baseline, and what never is."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.verdict.drift.drawn import (
    A100_CARD,
    BOXES,
    H200,
    NOWHERE,
    Box,
    Edit,
    bridged,
    guid,
    meshed,
    renumbered,
    switched,
    uuid,
)
from tests.node.verdict.drift.edits import (
    bridge_lost,
    clustering,
    driver,
    gpu_lost,
    gpu_moved,
    gpu_new,
    gpu_product,
    gpu_replaced,
    link_lost,
    link_new,
    nic_firmware,
    nic_lost,
    nic_new,
    nic_ports,
    nic_replaced,
)
from tests.node.verdict.drift.omissions import OF_GPUS, OF_NICS
from tests.node.verdict.drift.readings import POLICY, changes, drawn, since, streaks
from tests.rows import each
from wirewatch.core.topology import SWITCH, UNKNOWN_PEER, nvlink_product
from wirewatch.core.types import Expect, Health, OperatorNote, Subject
from wirewatch.verdict.drift.baseline import Baseline, against_given, findings_hold, why_not
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.watch import DriftPolicy, DriftWatch, counts, fold_drift
from wirewatch.verdict.drift.wiring import Graph, fingerprint

HERE = Expect()


def learned(
    *graphs: Graph, troubles: tuple[str, ...] = (), expect: Expect = HERE, policy: DriftPolicy = POLICY
) -> tuple[DriftWatch, Baseline | None]:
    """After these readings, a second apart; the last of them."""
    memory, baseline = DriftWatch(), None
    for at, graph in enumerate(graphs):
        assert baseline is None
        against = (*findings_hold(troubles), *why_not(graph, expect))
        memory, baseline = fold_drift(memory, None, graph, float(at), against, policy)
        assert memory.graph is graph
        assert (changes(memory), streaks(memory), since(memory)) == ((), (), ())
        assert bool(memory.learning) is (baseline is None)
    return memory, baseline


@pytest.mark.parametrize("make", BOXES)
def test_three_readings_alike_are_learned(make: type[Box]) -> None:
    graph = drawn(make=make)
    memory, baseline = learned(graph, graph, graph)
    said = OperatorNote("wirewatch", "learned: 3 readings alike, nothing wrong", 2.0)
    assert baseline == Baseline(graph, said, "learned")
    assert not any(counts(memory).values())
    again, second = fold_drift(memory, baseline, graph, 3.0, (), POLICY)
    assert (changes(again), again.learning, second) == ((), "", None)


def test_how_far_it_is() -> None:
    graph, other = drawn(), drawn(driver)
    assert learned(graph)[0].learning == "1 of 3 readings alike, nothing wrong"
    assert learned(graph, graph)[0].learning == "2 of 3 readings alike, nothing wrong"
    assert learned(graph, graph, other)[0].learning == "1 of 3 readings alike, nothing wrong"
    assert learned(graph, graph, other, graph, graph)[1] is None
    assert learned(graph, policy=DriftPolicy(learn=1))[1] is not None


def test_a_bad_reading_starts_again() -> None:
    good, bad = drawn(), drawn(link_lost)
    memory, _ = learned(good, good, bad)
    assert memory.same == 0
    assert learned(good, good, bad, good, good)[0].same == 2
    assert learned(good, good, bad, good, good, good)[1] is not None


def test_nothing_is_learned_while_something_is_wrong() -> None:
    memory, baseline = learned(*[drawn()] * 9, troubles=("xid.79", "nvlink.link_down", "xid.79"))
    assert baseline is None
    assert memory.learning == "these findings must end first: nvlink.link_down, xid.79"
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


@pytest.mark.parametrize("fewer", [0, 1])
def test_what_the_operator_expects_may_be_exceeded_but_by_links(fewer: int) -> None:
    expect = Expect(gpus=8 - fewer, nvlink_links=18, rdma_ports=8 - fewer)
    assert learned(*[drawn()] * 3, expect=expect)[1] is not None


def test_three_cards_without_wires_are_on_no_switch_and_are_learned() -> None:
    assert learned(*[drawn(bridge_lost, lambda box: box.drop_gpu(3), make=bridged)] * 3)[1] is not None


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


@each("what", [*OF_GPUS, *OF_NICS])
def test_what_must_be_known(what: str) -> None:
    omit: Edit = lambda box: {**OF_GPUS, **OF_NICS}[what](box, 1)  # noqa: E731
    baseline = learned(*[drawn(omit)] * 3)[1]
    assert (baseline is None) is (what in MATTERS)


def test_the_clique_of_a_gpu_need_not_be_known() -> None:
    assert learned(*[drawn(lambda box: box.gpu(1, clique=None))] * 3)[1] is not None


def test_numa_nodes_that_no_part_gives_are_a_fact_of_the_machine() -> None:
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
    memory = DriftWatch()
    for at, graph in enumerate(graphs):
        troubles = ("xid.74",) if wrong[at] else ()
        against = (*findings_hold(troubles), *why_not(graph, HERE))
        memory, baseline = fold_drift(memory, None, graph, float(at), against, POLICY)
        if baseline is None:
            continue
        assert at >= 2
        assert not any(wrong[at - 2 : at + 1])
        assert baseline.graph == graph == graphs[at - 1] == graphs[at - 2]
        assert why_not(baseline.graph, HERE) == ()
        for gpu in baseline.graph.gpus:
            product = nvlink_product(gpu.product)
            assert gpu.uuid
            assert gpu.read
            assert product is not None
            assert UNKNOWN_PEER not in {wire.peer for wire in gpu.wires}
            assert sum(len(wire.links) for wire in gpu.wires) in product.counts
            if gpu.product == H200:
                assert len(gpu.peers()) == 18
        memory = DriftWatch()


def test_the_property_can_be_met() -> None:
    assert learned(*[drawn(make=switched)] * 3)[1] is not None


FAILED, DEGRADED, UNKNOWN, OK = Health.FAILED, Health.DEGRADED, Health.UNKNOWN, Health.OK
BY = "; compared with the baseline given for its product"


def another(*edits: Edit, make: Callable[[], Box] = switched, seed: int = 0) -> Graph:
    """Another node of the product: no name in common, other numbers."""
    box = make()
    names = {gpu.uuid: uuid(1000 + n) for n, gpu in box.gpus.items()}
    for number in box.gpus:
        box.gpu(number, uuid=uuid(1000 + number))
        box.links[number] = {link: names.get(peer, peer) for link, peer in box.links[number].items()}
    for number in box.nics:
        box.nic(number, guid=guid(1000 + number))
    for edit in edits:
        edit(box)
    return graph_of(renumbered(box.build(), seed) if seed else box.build())


def health(given: Graph, graph: Graph) -> Health:
    found = against_given(given, graph)
    assert len(found) <= 1
    assert all((one.rule, one.subject) == ("topology.shape", Subject()) for one in found)
    assert all(one.action and one.evidence.endswith(BY) for one in found)
    return max((one.health for one in found), default=OK)


@pytest.mark.parametrize("make", BOXES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_node_of_the_same_shape(make: Callable[[], Box], seed: int) -> None:
    assert against_given(drawn(make=make), another(make=make, seed=seed)) == ()


@pytest.mark.parametrize("edit", [driver, nic_firmware, gpu_replaced, nic_replaced])
def test_names_and_versions_are_no_shape(edit: Edit) -> None:
    assert against_given(drawn(), another(edit)) == ()


TOLD: dict[str, tuple[Callable[[], Box], tuple[Edit, ...], Health, str]] = {
    "GPU and link": (
        switched, (lambda box: box.drop_gpu(7), link_lost), FAILED,
        "7 of 8 NVIDIA H200; GPU 3 (...1003) 17 of 18 links",
    ),
    "all links": (
        switched, (lambda box: box.cut(2, *range(18)),), FAILED, "GPU 2 (...1002) 0 of 18 links",
    ),
    "bridge": (
        bridged, (bridge_lost,), FAILED,
        ("GPU 0 (...1000) 0 of 12 links; GPU 1 (...1001) 0 of 12 links; "
         "NVLink islands of 2 + 1 + 1 GPUs instead of 2 + 2"),
    ),
    "NIC": (switched, (nic_lost,), FAILED, "7 of 8 MT4129 NICs"),
    "port": (
        switched, (nic_ports,), FAILED, "7 of 8 InfiniBand ports; 1 instead of 0 Ethernet ports",
    ),
    "product": (
        switched, (gpu_product,), FAILED, "7 of 8 NVIDIA H200; 1 instead of 0 NVIDIA H200 NVL",
    ),
    "more GPUs": (switched, (gpu_new,), DEGRADED, "9 instead of 8 NVIDIA H200"),
    "more links": (switched, (link_new,), DEGRADED, "GPU 2 (...1002) 20 instead of 18 links"),
    "more NICs": (
        switched, (nic_new,), DEGRADED, "9 instead of 8 MT4129 NICs; 9 instead of 8 InfiniBand ports",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_what_is_less_and_what_is_only_different(name: str) -> None:
    make, edits, how, text = TOLD[name]
    given_graph, graph = drawn(make=make), another(*edits, make=make)
    (found,) = against_given(given_graph, graph)
    assert (found.evidence, found.health) == (text + BY, how)
    assert health(given_graph, graph) is how


@pytest.mark.parametrize("edit", [gpu_moved, clustering])
def test_another_tree_is_degraded(edit: Edit) -> None:
    (found,) = against_given(drawn(), another(edit))
    shapes = fingerprint(another(edit)), fingerprint(drawn())
    text = f"the same parts on other wires or another PCI tree: shape {shapes[0]} instead of {shapes[1]}"
    assert (found.evidence, found.health) == (text + BY, DEGRADED)


def test_cards_that_are_not_alike_are_paired_by_their_links() -> None:
    def one_bridge(box: Box) -> None:
        bridge_lost(box)

    assert against_given(drawn(one_bridge, make=bridged), another(one_bridge, make=bridged)) == ()
    (found,) = against_given(
        drawn(one_bridge, make=bridged), another(one_bridge, lambda b: b.drop_gpu(1), make=bridged)
    )
    assert found.evidence == "3 of 4 NVIDIA A100 80GB PCIe" + BY


@pytest.mark.parametrize("what", ["wires", "peers", "product", "uuid"])
def test_what_cannot_be_read_of_a_gpu_is_unknown_and_no_excuse(what: str) -> None:
    blind: Edit = lambda box: OF_GPUS[what](box, 1)  # noqa: E731
    assert health(drawn(), another(blind)) is UNKNOWN
    assert health(drawn(), another(blind, gpu_lost)) is FAILED
    assert health(drawn(), another(blind, link_lost)) is FAILED
    assert health(drawn(), another(blind, nic_lost)) is FAILED


@pytest.mark.parametrize("what", [*OF_NICS, "gpu place", "gpu numa", "nodes", "versions"])
def test_what_else_is_not_known_is_counted_as_well_as_can_be(what: str) -> None:
    omit: Edit = lambda box: {**OF_GPUS, **OF_NICS}[what](box, 1)  # noqa: E731
    assert health(drawn(), another(omit)) is OK
    assert health(drawn(omit), another()) is OK
    assert health(drawn(), another(omit, gpu_lost)) is FAILED
    assert health(drawn(omit), another(gpu_lost)) is FAILED


def test_a_port_that_is_not_known_may_be_any() -> None:
    def two_ports(box: Box) -> None:
        for number in box.nics:
            box.nic(number, ports=(("1", "InfiniBand"), ("2", "InfiniBand")))

    def gone(box: Box) -> None:
        box.nic(4, ports=(("1", "InfiniBand"),))

    assert health(drawn(two_ports), another(two_ports, lambda box: box.nic(4, ports=()))) is OK
    assert health(drawn(), another(lambda box: box.nic(4, ports=(("1", ""),)))) is OK
    (found,) = against_given(drawn(two_ports), another(two_ports, gone))
    assert found.evidence == "15 of 16 InfiniBand ports" + BY


def test_where_no_nic_shows_its_ports_each_may_have_one() -> None:
    def silent(box: Box) -> None:
        for number in box.nics:
            box.nic(number, ports=())

    assert health(drawn(), another(silent)) is OK
    assert health(drawn(), another(silent, nic_lost)) is FAILED


def test_what_both_do_not_know_hides_no_difference() -> None:
    """This node's own graph was given for its product: what is not known has the same words in both."""
    blind: Edit = lambda box: box.gpu(1, name="")  # noqa: E731
    assert health(drawn(blind), drawn(blind)) is UNKNOWN
    out_of_sight: Edit = lambda box: OF_GPUS["peers"](box, 1)  # noqa: E731
    given_graph = drawn(out_of_sight, make=meshed)
    assert health(given_graph, drawn(out_of_sight, make=meshed)) is OK
    (found,) = against_given(given_graph, drawn(out_of_sight, lambda box: box.add_nic(1), make=meshed))
    assert (found.evidence, found.health) == (
        "1 instead of 0 MT4129 NICs; 1 instead of 0 InfiniBand ports" + BY, DEGRADED,
    )  # fmt: skip


def test_wires_that_are_never_seen_are_not_asked() -> None:
    """In a virtual machine with some of the GPUs of a mesh."""
    blind: Edit = lambda box: OF_GPUS["peers"](box, 1)  # noqa: E731
    assert health(drawn(blind, make=meshed), another(blind, make=meshed)) is OK
    assert health(drawn(blind, make=meshed), another(blind, link_lost, make=meshed)) is FAILED


def test_pairs_that_grew_together_are_other_wires() -> None:
    def crossed(box: Box) -> None:
        box.cut(1, *range(12))
        box.cut(0, *range(12))
        for number in (0, 1):
            box.links[number] = dict.fromkeys(range(12), SWITCH)

    assert health(drawn(make=bridged), another(crossed, make=bridged)) is DEGRADED


LOSSES: tuple[Edit, ...] = (
    gpu_lost, link_lost, nic_lost, nic_ports, lambda box: box.cut(0, *range(9)), lambda box: box.drop_gpu(0),
    lambda box: box.unread.add(2),
)  # fmt: skip
OTHERS: tuple[Edit, ...] = (gpu_moved, clustering, nic_new, driver, gpu_replaced)


@given(
    st.lists(st.sampled_from(LOSSES), unique=True),
    st.lists(st.sampled_from(OTHERS), unique=True),
    st.sampled_from(LOSSES[:4]),
    st.integers(1, 2**16),
)
@settings(max_examples=examples(250))
def test_one_more_loss_never_makes_it_better(
    losses: list[Edit], others: list[Edit], more: Edit, seed: int
) -> None:
    def made(*edits: Edit) -> Graph:
        def all_of(box: Box) -> None:
            for edit in edits:
                if edit is not gpu_lost or 3 in box.gpus:
                    if edit is nic_lost and 4 not in box.nics:
                        continue
                    if edit is LOSSES[5] and 0 not in box.gpus:
                        continue
                    edit(box)

        return another(all_of, seed=seed)

    before, after = made(*others, *losses), made(*others, *losses, more)
    if after != before:
        assert health(drawn(), after) >= health(drawn(), before)
    assert health(drawn(), replace(after, versions=())) is health(drawn(), after)
