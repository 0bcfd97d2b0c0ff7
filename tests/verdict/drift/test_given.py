"""A node against the shape that the operator gave for its product."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verdict.drift.drawn import (
    BOXES,
    Box,
    Edit,
    bridged,
    guid,
    meshed,
    renumbered,
    switched,
    uuid,
)
from tests.verdict.drift.edits import (
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
from tests.verdict.drift.omissions import OF_GPUS, OF_NICS
from tests.verdict.drift.watching import drawn
from wirewatch.core.topology import SWITCH
from wirewatch.core.types import Health, Subject
from wirewatch.verdict.drift.baseline import against_given
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.graph import Graph, fingerprint

FAILED, DEGRADED, UNKNOWN, OK = Health.FAILED, Health.DEGRADED, Health.UNKNOWN, Health.OK
BY = "; by the baseline given for its product"


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
def test_what_else_is_not_told_is_counted_as_well_as_can_be(what: str) -> None:
    omit: Edit = lambda box: {**OF_GPUS, **OF_NICS}[what](box, 1)  # noqa: E731
    assert health(drawn(), another(omit)) is OK
    assert health(drawn(omit), another()) is OK
    assert health(drawn(), another(omit, gpu_lost)) is FAILED
    assert health(drawn(omit), another(gpu_lost)) is FAILED


def test_a_port_that_is_not_told_may_be_any() -> None:
    def two_ports(box: Box) -> None:
        for number in box.nics:
            box.nic(number, ports=(("1", "InfiniBand"), ("2", "InfiniBand")))

    def gone(box: Box) -> None:
        box.nic(4, ports=(("1", "InfiniBand"),))

    assert health(drawn(two_ports), another(two_ports, lambda box: box.nic(4, ports=()))) is OK
    assert health(drawn(), another(lambda box: box.nic(4, ports=(("1", ""),)))) is OK
    (found,) = against_given(drawn(two_ports), another(two_ports, gone))
    assert found.evidence == "15 of 16 InfiniBand ports" + BY


def test_wires_that_nobody_ever_sees_are_not_asked() -> None:
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
@settings(max_examples=50)
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
