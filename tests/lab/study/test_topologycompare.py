"""A topology file of NCCL beside a recorded node."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.lab.study.topologies import gpu, nic, switch, system
from tests.recorded import OWN
from tests.support import Node
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent
from wirewatch_lab.study import topologycompare as module
from wirewatch_lab.study.topologycompare import SeenNode, TopologyComparison, compare_topology, read_node
from wirewatch_lab.study.topologyxml import NcclTopology, read_topology

DEMO = "demo-dgx-h200"


def seen(recording: str = DEMO) -> SeenNode:
    node = read_node(Node(recording).hardware)
    assert not isinstance(node, Absent)
    return node


def parsed(body: bytes) -> NcclTopology:
    found = read_topology(io.BytesIO(body))
    assert isinstance(found, NcclTopology)
    return found


def of(topology: Topology) -> bytes:
    """What NCCL would write of the demo node: each GPU below a switch with its nearest NIC, others alone."""
    cpus: list[list[str]] = [[], []]
    near = {path.device: path.uuid for path in topology.paths if path.path == "PIX"}
    for part in topology.gpus:
        cards = [
            nic(card.place.address, card.device)
            for card in topology.nics
            if near.get(card.device) == part.uuid
        ]
        bridge = f"00f{part.index}:00:00.0"
        cpus[part.place.numa or 0].append(switch(bridge, gpu(part.place.address, part.index), *cards))
    for card in topology.nics:
        if card.device not in near:
            cpus[card.place.numa or 0].append(nic(card.place.address, card.device, 200000))
    return system(*cpus)


def against_demo(old: str = "", new: str = "") -> TopologyComparison:
    node = seen()
    body = of(node.topology).decode()
    assert old in body
    return compare_topology(parsed(body.replace(old, new, 1).encode() if old else body.encode()), node)


def test_a_file_of_the_same_node_agrees_in_all() -> None:
    found = against_demo()
    assert (found.differs, found.unknown, found.other_machine) == ((), (), False)
    assert found.same == (
        "8 GPUs", "10 NICs", "144 NVLinks", "36 PCIe figures", "10 port rates", "80 paths from GPU to NIC",
    )  # fmt: skip
    assert found.lines()[0] == "Beside this node: 0 differences"


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ('count="18"', 'count="17"', "GPU 0: 17 NVLinks to the switch in the file, 18 NVLinks to the"),
        ('tclass="0x068000"', 'tclass="0x0a"', "GPU 0: 18 NVLinks to a peer that is not known in the file"),
        ('link_width="16"><gpu', 'link_width="8"><gpu', "GPU 0: PCIe lanes 8 in the file, 16 on this node"),
        ('32.0 GT/s PCIe" link_width="16"><gpu', '16.0 GT/s" link_width="16"><gpu', "GPU 0: PCIe generation"),
        ('speed="400000"', 'speed="200000"', "mlx5_0: 200 Gb/s in the file, 400 Gb/s on this node"),
        ('busid="0000:1b:00.0"', 'busid="0000:1c:00.0"', "GPU 0 at 0000:1b:00.0: only on this node"),
        ('busid="0000:1b:00.0"', 'busid="0000:1c:00.0"', "GPU 0000:1c:00.0: only in the file"),
        ('busid="0000:18:00.0"', 'busid="0000:19:00.0"', "NIC mlx5_0 at 0000:19:00.0: only in the file"),
        ('busid="0000:18:00.0"', 'busid="0000:19:00.0"', "NIC mlx5_0: only on this node"),
    ],
)  # fmt: skip
def test_what_differs_is_named(old: str, new: str, difference: str) -> None:
    found = against_demo(old, new)
    assert any(text.startswith(difference) for text in found.differs), found.differs


def test_a_path_that_differs_is_named() -> None:
    node = seen()
    body = of(node.topology).decode()
    card = nic("0000:18:00.0", "mlx5_0")
    moved = body.replace(card, "", 1).replace("</cpu>\n", f"{card}</cpu>\n", 1)
    found = compare_topology(parsed(moved.encode()), node)
    assert found.differs == ("GPU 0 to mlx5_0: PHB in the file, PIX on this node",)


def test_what_either_side_does_not_say_is_not_compared() -> None:
    found = against_demo('link_width="16"><gpu', 'link_width="0"><gpu')
    assert found.differs == ()
    assert found.unknown == ("PCIe lanes of GPU 0: the file does not say",)
    node = seen()
    blind = replace(
        node, pcie={}, rates={}, topology=replace(node.topology, unread=(node.topology.gpus[2].uuid,))
    )
    unknown = compare_topology(parsed(of(node.topology)), blind).unknown
    assert "NVLinks of GPU 2: they cannot be read on this node" in unknown
    assert "PCIe generation of GPU 0, GPU 1" in "\n".join(unknown)
    assert "rate of mlx5_0, mlx5_1" in "\n".join(unknown)


def test_a_file_by_hand_leaves_links_to_nccl() -> None:
    node = seen()
    bare = "".join(f'<pci busid="{one.place.address}" class="0x030200"/>' for one in node.topology.gpus)
    found = compare_topology(parsed(system([bare])), node)
    assert "NVLinks: the file leaves them to NCCL" in found.unknown
    assert not any("NVLink" in text for text in found.differs)


def test_a_file_of_another_machine_says_so_and_nothing_else() -> None:
    found = compare_topology(parsed(system([gpu("0001:00:00.0")])), seen())
    assert found.other_machine
    (line,) = found.lines()
    assert line.startswith(
        "This file is of another machine: its GPUs are at 0001:00:00.0, those of this node at"
    )


def test_a_file_of_several_hosts_says_that_addresses_may_be_shared() -> None:
    node = seen()
    several = system([gpu(node.topology.gpus[0].place.address)], [gpu("0000:ff:00.0")], hosts=("0x1", "0x2"))
    assert (
        "GPUs: the file has 2 hosts, which may share addresses"
        in compare_topology(parsed(several), node).unknown
    )


def test_a_node_whose_cards_cannot_be_read_has_neither_their_rates_nor_their_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = seen()
    blind = SimpleNamespace(facts=None, samples=())
    monkeypatch.setattr(module, "_read", lambda *_: blind)
    node = seen()
    assert (node.rates, set(node.pcie)) == ({}, {gpu.place.address for gpu in whole.topology.gpus})
    assert set(node.pcie.values()) == {(None, None)}


def test_a_node_without_gpus_compares_nothing() -> None:
    node = seen()
    none = replace(node, topology=replace(node.topology, gpus=()))
    assert compare_topology(parsed(system([gpu("0001:00:00.0")])), none).unknown == (
        "this node shows no GPU",
    )


def test_the_recorded_machine_and_the_file_that_nccl_wrote_on_it() -> None:
    file = OWN / "nccl_topo.xml"
    found = compare_topology(parsed(file.read_bytes()), seen("h200x8"))
    assert found.differs == ()
    assert found.same == ("8 GPUs", "144 NVLinks", "8 PCIe figures")
    assert found.unknown[0] == "place of eth0: the file gives no PCI device (virtual, or a socket)"
    four = compare_topology(parsed(file.read_bytes()), seen("h200x4-idle"))
    assert four.differs == tuple(f"GPU 0000:00:0{n}.0: only in the file" for n in "abcd")


def test_what_the_file_gives_of_a_port_and_what_it_leaves_out() -> None:
    found = against_demo('speed="400000"', 'speed="0"')
    assert found.unknown == ("rate of mlx5_0: the file gives none",)
    node = seen()
    silent = replace(node, rates={key: rate for key, rate in node.rates.items() if key[0] != "mlx5_0"})
    assert compare_topology(parsed(of(node.topology)), silent).unknown == (
        "rate of mlx5_0: no active port on this node",
    )


@pytest.mark.parametrize(
    ("megabits", "differs"), [(392000, False), (391000, True), (408000, False), (409000, True)]
)
def test_rates_that_differ_by_no_more_than_a_fiftieth_are_the_same(megabits: int, differs: bool) -> None:  # noqa: FBT001
    assert bool(against_demo('speed="400000"', f'speed="{megabits}"').differs) is differs


def test_a_card_without_an_address_is_known_by_its_name_and_its_only_port() -> None:
    node = seen()
    name = node.topology.nics[0].device
    nics = f'<nic><net name="{name}" speed="400000"/></nic><nic><net name="eth9" speed="10000"/></nic>'
    body = of(node.topology).decode().replace("</cpu>", f"{nics}</cpu>", 1)
    found = compare_topology(parsed(body.encode()), node)
    assert found.unknown[0] == "place of eth9: the file gives no PCI device (virtual, or a socket)"
    assert not any("eth9" in text for text in found.differs)
    assert {"11 NICs", "11 port rates"} <= set(found.same)
    two = replace(node, rates={**node.rates, (name, "2"): node.rates[name, "1"]})
    unknown = compare_topology(parsed(body.encode()), two).unknown
    assert f"rate of {name}, {name}: 2 active ports on this node" in unknown


def test_a_gpu_without_links_in_a_file_of_nccl_differs() -> None:
    """Another GPU of the file has links, so that NCCL wrote it."""
    node = seen()
    first = node.topology.gpus[0].place.address
    body = of(node.topology).decode().replace(gpu(first, 0), f'<pci busid="{first}" class="0x030200"/>', 1)
    found = compare_topology(parsed(body.encode()), node)
    assert found.differs == ("GPU 0: no NVLink in the file, 18 NVLinks to the switch on this node",)
    assert not any(text.startswith("NVLinks:") for text in found.unknown)


@pytest.mark.parametrize(
    ("without", "same", "differs"),
    [(' gdr="1"', True, 0), ('<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>', False, 8)],
)
def test_links_or_gpudirect_show_that_nccl_wrote_a_file(without: str, same: bool, differs: int) -> None:  # noqa: FBT001
    node = seen()
    body = of(node.topology).decode()
    assert without in body
    found = compare_topology(parsed(body.replace(without, "").encode()), node)
    assert ("144 NVLinks" in found.same, len(found.differs)) == (same, differs)


def test_a_file_of_cards_alone_is_compared_by_its_cards() -> None:
    node = seen()
    card = node.topology.nics[0]
    found = compare_topology(parsed(system([nic(card.place.address, card.device)])), node)
    assert not found.other_machine
    assert found.same[0] == "1 NIC"
    both = system([gpu("0001:00:00.0"), nic(card.place.address, card.device)])
    assert compare_topology(parsed(both), node).other_machine
    strange = compare_topology(parsed(system([nic("0001:00:00.0", "x")])), node)
    assert strange.other_machine
    assert "its GPUs are at none, those of this node at 0000:" in strange.differs[0]


def test_what_agrees_in_nothing_says_so() -> None:
    found = TopologyComparison((), ("a", "b"), ("c",))
    assert found.lines() == (
        "Beside this node: 2 differences", "  a", "  b", "  nothing is the same", "  cannot be compared: c",
    )  # fmt: skip


def test_paths_that_the_node_hides_are_counted() -> None:
    node = seen()
    hidden = replace(node, topology=replace(node.topology, paths=node.topology.paths[:1]))
    found = compare_topology(parsed(of(node.topology)), hidden)
    assert "79 paths from GPU to NIC: the hypervisor hides the bridges" in found.unknown
    assert "1 path from GPU to NIC" in found.same
