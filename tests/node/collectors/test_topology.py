"""The node as one graph."""

from typing import Any

import pytest

from tests.node.collectors.drawn import Gpus, Watched
from tests.node.collectors.test_gpudirect import GPUS, node_files
from tests.rows import each
from tests.support import Node
from wirewatch.core.topology import NicPath, NvlinkWires, Topology
from wirewatch.core.types import Absent, Health, Ok, Why

CLUSTER = "b1f300000000000000000000000000aa"


def graph(node: Watched) -> Topology:
    assert isinstance(node.component.outcome, Ok)
    value = node.component.outcome.value
    assert isinstance(value, Topology)
    return value


def linked() -> Gpus:
    """Two GPUs, joined by two bridged links, with a third that is down and one to a switch."""
    gpus = Gpus(GPUS)
    for index, peer in ((0, GPUS[1]), (1, GPUS[0])):
        gpus.table[f"GPU-{index}", "Field(91)"] = 4
        for link, state in enumerate((1, 1, 0, 1)):
            gpus.table[f"GPU-{index}", f"Field(165,{link})"] = state
            gpus.table[f"GPU-{index}", f"NvLinkRemoteDeviceType({link})"] = 2 if link == 3 else 0
            address = f"0000{peer.upper()}" if link < 3 else "FFFFFFFF:FF:FF.0"
            gpus.table[f"GPU-{index}", f"NvLinkRemotePciInfo({link})"] = {"busId": address}
    return gpus


def test_the_graph_holds_gpus_nics_wires_paths_and_versions() -> None:
    node = Watched("topology", node_files(), linked())
    assert node.poll() == ()
    told = graph(node)
    assert [gpu.place.bridges for gpu in told.gpus] == [
        ("0000:00:01.0", "0000:01:00.0", "0000:02:00.0"), ("0001:00:01.0", "0001:01:00.0", "0001:02:00.0"),
    ]  # fmt: skip
    assert [(nic.device, nic.guid, nic.ports) for nic in told.nics] == [
        ("mlx5_0", "0000:0000:0000:0004", (("1", "InfiniBand"),)),
        ("mlx5_1", "0000:0000:0000:0004", (("1", "InfiniBand"),)),
    ]
    assert told.nvlink == (
        NvlinkWires("GPU-0", "GPU-1", (0, 1)), NvlinkWires("GPU-0", "switch", (3,)),
        NvlinkWires("GPU-1", "GPU-0", (0, 1)), NvlinkWires("GPU-1", "switch", (3,)),
    )  # fmt: skip
    assert NicPath("GPU-0", "mlx5_0", "PIX") in told.paths
    assert NicPath("GPU-0", "mlx5_1", "SYS") in told.paths
    assert told.numa_nodes == 2
    assert ("mlx5_core", "24.10-0.7.0") in told.versions
    assert node.series("nvlink_peer_links", gpu="0", peer="GPU-1") == [2]
    assert node.series("topology_parts", part="bridge") == [8]


def test_wires_that_could_not_be_read_are_named_and_not_taken_for_none() -> None:
    gpus = linked()
    gpus.table["GPU-1", "Field(165,2)"] = Absent(Why.TIMEOUT, "no", 10)
    node = Watched("topology", node_files(), gpus)
    node.poll()
    assert graph(node).unread == ("GPU-1",)
    assert {wires.uuid for wires in graph(node).nvlink} == {"GPU-0"}


def test_a_link_that_the_driver_does_not_offer_is_none_and_the_others_count() -> None:
    gpus = linked()
    del gpus.table["GPU-1", "Field(165,0)"]
    gpus.table["GPU-1", "NvLinkState(0)"] = 1
    del gpus.table["GPU-1", "Field(165,1)"]
    node = Watched("topology", node_files(), gpus)
    node.poll()
    assert graph(node).unread == ()
    assert [w.links for w in graph(node).nvlink if w.uuid == "GPU-1"] == [(0,), (3,)]


def test_a_gpu_that_answers_nothing_of_its_links_is_named() -> None:
    gpus = linked()
    gpus.table |= {key: Absent(Why.LOST, "gone", 15) for key in gpus.table if key[0] == "GPU-1"}
    node = Watched("topology", node_files(), gpus)
    node.poll()
    assert graph(node).unread == ("GPU-1",)


@each(
    ("mode", "split", "unread"),
    [
        ((0, 0), (), ()),
        ((1, 1), ("GPU-1",), ("GPU-1",)),
        ((0, 1), ("GPU-1",), ("GPU-1",)),
        ((1, 0), ("GPU-1",), ("GPU-1",)),
        (Absent(Why.TIMEOUT, "no answer", 10), (), ("GPU-1",)),
    ],
)
def test_wires_and_fabric_of_a_gpu_that_mig_splits_are_not_known(
    mode: Any, split: tuple[str, ...], unread: tuple[str, ...]
) -> None:
    gpus = linked()
    gpus.table["GPU-1", "MigMode()"] = mode
    gpus.table["GPU-1", "GpuFabricInfoV()"] = {"cliqueId": 3, "clusterUuid": CLUSTER, "state": 3}
    node = Watched("topology", node_files(), gpus)
    node.poll()
    assert (graph(node).split, graph(node).unread) == (split, unread)
    assert (graph(node).gpus[1].clique is None) is bool(split)


@each(
    ("kind", "address", "peer"),
    [
        (0, f"0000{GPUS[0].upper()}", "GPU-0"),
        (0, "", "unknown"),
        (0, None, "unknown"),
        (2, f"0000{GPUS[0].upper()}", "switch"),
        (1, "00000000:99:00.0", "unknown"),
    ],
)
def test_the_other_end_of_a_link_is_a_gpu_by_its_address(kind: int, address: str | None, peer: str) -> None:
    gpus = linked()
    gpus.addresses = (*GPUS, "")
    gpus.table["GPU-2", "Field(91)"] = 0
    gpus.table["GPU-1", "NvLinkRemoteDeviceType(3)"] = kind
    gpus.table["GPU-1", "NvLinkRemotePciInfo(3)"] = {"busId": address}
    for link in (0, 1):
        gpus.table["GPU-1", f"Field(165,{link})"] = 0
    node = Watched("topology", node_files(), gpus)
    node.poll()
    assert [w.peer for w in graph(node).nvlink if w.uuid == "GPU-1"] == [peer]


@pytest.mark.parametrize("lost", ["gpus", "devices"])
def test_there_is_no_graph_while_gpus_or_network_cards_cannot_be_listed(lost: str) -> None:
    node = Watched("topology", node_files(), linked())
    if lost == "gpus":
        node.gpus.absent = Absent(Why.TIMEOUT, "no answer", 10)
    else:
        node.files.texts["/sys/class/infiniband"] = Absent(Why.DENIED, "EACCES", 13)
    node.poll()
    assert node.rules() == {("topology.blind", "node"): Health.UNKNOWN}
    assert node.component.findings[0].evidence.endswith("no answer" if lost == "gpus" else "EACCES")


def test_a_gpu_without_nvlink_and_a_node_without_nics_have_none() -> None:
    node = Watched("topology", gpus=Gpus(GPUS))
    node.gpus.table |= {(f"GPU-{n}", "Field(91)"): 0 for n in range(2)}
    assert node.poll() == ()
    told = graph(node)
    assert not (*told.nvlink, *told.nics, *told.paths, *told.unread)


def test_the_demo_node_has_eighteen_links_a_gpu_and_a_near_nic_each() -> None:
    node = Node("demo-dgx-h200")
    node.poll("topology")
    assert node.series("nvlink_peer_links", peer="switch") == [18] * 8
    outcome = node.state.components["topology"].outcome
    assert isinstance(outcome, Ok)
    assert [p.device for p in outcome.value.paths if p.path == "PIX"] == [f"mlx5_{n}" for n in range(8)]


def cliques(**fabric: Any) -> set[str | None]:
    node = Node("h200x4-idle")
    answer = {"cliqueId": 3, "clusterUuid": CLUSTER, "state": 3, "status": 0, "healthMask": 0} | fabric
    node.change("gpu*/GpuFabricInfoV()", "set", answer)
    node.poll("topology")
    graph = node.state.components["topology"].facts
    assert isinstance(graph, Topology)
    return {gpu.clique for gpu in graph.gpus}


def test_a_board_whose_fabric_ends_at_the_node_has_none() -> None:
    assert cliques(clusterUuid="0" * 32) == {""}
    assert cliques(state=0) == {""}
    assert cliques(state=0, clusterUuid=None, cliqueId=None) == {""}


@pytest.mark.parametrize("odd", ["state", "clusterUuid", "cliqueId"])
def test_a_fabric_that_is_not_understood_is_not_known(odd: str) -> None:
    assert cliques(**{odd: None}) == {None}


def test_in_a_rack_it_is_that_of_the_cluster() -> None:
    assert cliques() == {f"{CLUSTER}/3"}


@pytest.mark.parametrize("state", [1, 2])
def test_while_it_registers_it_is_not_known(state: int) -> None:
    assert cliques(state=state) == {None}


@pytest.mark.parametrize(("code", "clique"), [(3, ""), (13, ""), (999, None), (15, None)])
def test_what_cannot_be_asked_is_none_and_what_cannot_be_read_is_not_known(
    code: int, clique: str | None
) -> None:
    node = Node("h200x4-idle")
    node.change("gpu*/GpuFabricInfoV()", "code", code)
    node.poll("topology")
    graph = node.state.components["topology"].facts
    assert isinstance(graph, Topology)
    assert {gpu.clique for gpu in graph.gpus} == {clique}
