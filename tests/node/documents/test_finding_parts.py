"""Facts and numbers of a finding's part, from parts and series drawn by hand; rows differ in one thing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.node.probe.drawn import drawn, on_switch
from tests.rows import each
from tests.support import EPOCH
from wirewatch.collectors.infiniband import InfinibandFacts
from wirewatch.collectors.infiniband.model import RdmaIdentity
from wirewatch.collectors.inventory import InventoryFacts, KnownGpu
from wirewatch.collectors.nvlink import LINK_UP, NvlinkFacts
from wirewatch.collectors.nvlink.model import NvlinkLink
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.pci import Place
from wirewatch.core.ports import Gpu
from wirewatch.core.topology import GpuPart, NicPart, NvlinkWires, Topology
from wirewatch.core.tree import PciLink
from wirewatch.core.types import Absent, Failed, Finding, Health, Kind, Metric, Ok, Sample, Subject, Why
from wirewatch.documents.finding import (
    COLLECTIVES,
    NEVER,
    NO_GRAPH,
    NodeParts,
    Number,
    Peers,
    evidence,
    known_parts,
    node_facts,
    numbers,
    part_of,
    quantities_of,
    read_at,
)
from wirewatch.probe.collector import PROBE_NAME
from wirewatch.probe.measurement import measure
from wirewatch.probe.model import ProbeMemory
from wirewatch.verdict.ledger import Entry, Ledger, Stage
from wirewatch.verdict.node import LATCHED, LIVE, SUPPRESSED, Judged, Standing, Verdict

GONE = Absent(Why.UNSUPPORTED, "gone")
BRIDGE = "0000:15:01.0"
KNOWN = KnownGpu(
    Gpu(0, "GPU-0", "0000:18:00.0", "NVIDIA H200"),
    {"serial": "165", "board_part_number": "", "module_id": GONE},
)
UNNAMED = KnownGpu(Gpu(5, ""), {"serial": "166"})
CARD = RdmaIdentity("0000:1a:00.0", "0", "28.41", "MT4129", "MT_838", "b83f", ("ib0", "ib1"), {})
BARE = RdmaIdentity("", "", "", "", "", "", (), {})
GPU_PLACE = Place("0000:18:00.0", "pci0000:15", (BRIDGE, "0000:16:00.0"), 0)
NIC_PLACE = Place("0000:1a:00.0", "pci0000:15", (BRIDGE,), None)
GRAPH = Topology(
    (GpuPart("GPU-0", 0, "NVIDIA H200", GPU_PLACE), GpuPart("GPU-1", 1, "NVIDIA H200", GPU_PLACE)),
    (NicPart("b83f", "mlx5_0", "MT4129", "28", NIC_PLACE, (("1", "InfiniBand"),)),),
    (
        NvlinkWires("GPU-1", "GPU-0", (0, 2)),
        NvlinkWires("GPU-0", "GPU-9", (1,)),
        NvlinkWires("GPU-0", "GPU-1", (2,)),
    ),
    (), 1, (("kernel", "5.15"),),
)  # fmt: skip
SECOND = KnownGpu(Gpu(1, "GPU-1"), {})
INVENTORY = InventoryFacts(
    {"GPU-0": KNOWN, "GPU-1": SECOND, "index:5": UNNAMED}, frozenset(), {"driver": "580"}, frozenset()
)
NETWORK = InfinibandFacts({"mlx5_0": CARD, "bare": BARE}, {}, frozenset())
HERE = NodeParts(INVENTORY, NETWORK, GRAPH)
NOWHERE = replace(HERE, graph=None)
NOTHING = known_parts(NodeState())
NOT_IN_TREE = "it was not in the PCI tree when last read"


def standing(subject: Subject, rule: str = "some.rule", collector: str = "some") -> Standing:
    return Standing(Finding(rule, Health.FAILED, subject, "evidence", "action"), LIVE, collector)


def facts(here: NodeParts, subject: Subject, *names: str, collector: str = "some") -> tuple[str, ...]:
    """The value of each fact, or why it is not known."""
    _, found = part_of(here, standing(subject, collector=collector))
    return tuple(str(found[name].value or found[name].unknown) for name in names)


@each(
    ("why", "one", "kind", "device"),
    [
        ("a GPU with a UUID alone", standing(Subject(uuid="GPU-0")), "gpu", ""),
        ("a GPU with an index alone", standing(Subject(gpu="5")), "gpu", ""),
        ("no part", standing(Subject()), "node", ""),
        ("a device that is known by name", standing(Subject(device="mlx5_0")), "network_device", "mlx5_0"),
        ("by its address", standing(Subject(device="0000:1a:00.0")), "network_device", "mlx5_0"),
        ("by its address without function", standing(Subject(device="0000:1a:00")), "network_device",
         "mlx5_0"),
        ("the network's collector names it", standing(Subject(device="mlx5_9"), "x.y", "infiniband"),
         "network_device", "mlx5_9"),
        ("a rule of the network", standing(Subject(device="mlx5_9"), "infiniband.gone", ""),
         "network_device", "mlx5_9"),
        ("any other device", standing(Subject(device="mlx5_9")), "pci_device", "mlx5_9"),
    ],
)  # fmt: skip
def test_the_kind_of_a_part(why: str, one: Standing, kind: str, device: str) -> None:
    found, known = part_of(HERE, one)
    assert (found, known["device"].value if device else "") == (kind, device), why


def test_parts_are_those_of_the_published_state() -> None:
    known = (INVENTORY, NETWORK, GRAPH)
    state = NodeState({str(n): component(name=str(n), known=one) for n, one in enumerate(known)})
    assert known_parts(state) == HERE
    assert (NOTHING.inventory.gpus, NOTHING.network.devices, NOTHING.graph) == ({}, {}, None)


def test_facts_of_the_node_that_are_known_and_that_are_not() -> None:
    assert {name: fact.value for name, fact in node_facts(HERE, "live").items() if fact.value} == {
        "product": "NVIDIA H200", "gpus": "3", "driver": "580", "kernel": "5.15", "source": "live",
        "wirewatch": node_facts(HERE, "live")["wirewatch"].value,
    }  # fmt: skip
    lost = replace(HERE, inventory=replace(INVENTORY, lost=frozenset({"GPU-0"})))
    assert node_facts(lost, "live")["gpus"].value == "3, 1 of them lost"
    unknown = {name: fact.unknown for name, fact in node_facts(NOTHING, "live").items() if fact.unknown}
    assert unknown == {
        **dict.fromkeys(("product", "gpus", "driver", "nvml", "cuda_driver"), NEVER),
        **dict.fromkeys(("kernel", "mlx5_core"), NO_GRAPH),
    }
    assert node_facts(HERE, "live")["mlx5_core"].unknown == "no file has it"


GPU_NAMES = ("product", "serial", "board_part_number", "module_id", "vbios", "pci_address", "pci_path")
PATH = "pci0000:15 / 0000:15:01.0 / 0000:16:00.0 / 0000:18:00.0"


@each(
    ("why", "here", "subject", "told"),
    [
        ("known", HERE, Subject("0", "GPU-0"),
         ("NVIDIA H200", "165", "the driver gives an empty text", str(GONE), NEVER, "0000:18:00.0", PATH)),
        ("known by its index", HERE, Subject("5"),
         (NEVER, "166", NEVER, NEVER, NEVER, NEVER, NOT_IN_TREE)),
        ("in the graph alone", HERE, Subject("1", "GPU-1"),
         (NEVER, NEVER, NEVER, NEVER, NEVER, "0000:18:00.0", PATH)),
        ("no graph", NOWHERE, Subject("0", "GPU-0"),
         ("NVIDIA H200", "165", "the driver gives an empty text", str(GONE), NEVER, "0000:18:00.0",
          NO_GRAPH)),
        ("nothing is known", NOTHING, Subject("0", "GPU-0"), (*[NEVER] * 6, NO_GRAPH)),
    ],
)  # fmt: skip
def test_facts_of_a_gpu(why: str, here: NodeParts, subject: Subject, told: tuple[str, ...]) -> None:
    assert facts(here, subject, *GPU_NAMES) == told, why


@pytest.mark.parametrize(
    ("why", "here", "gpu", "link", "end"),
    [
        ("a GPU that is known", HERE, "GPU-0", "2", "GPU 1 (GPU-1)"),
        ("a GPU that is not", HERE, "GPU-0", "1", "GPU-9"),
        ("a link of another GPU", HERE, "GPU-0", "0", "the link was not up when the topology was last read"),
        ("no graph", NOWHERE, "GPU-0", "2", NO_GRAPH),
    ],
)
def test_the_far_end_of_a_link(why: str, here: NodeParts, gpu: str, link: str, end: str) -> None:
    assert facts(here, Subject("0", gpu, link), "link", "link_goes_to") == (link, end), why


def placed(place: Place) -> NodeParts:
    nics = (replace(GRAPH.nics[0], device="other"), replace(GRAPH.nics[0], place=place))
    return replace(HERE, graph=replace(GRAPH, nics=nics))


@each(
    ("why", "here", "device", "told"),
    [
        ("all is known", placed(replace(NIC_PLACE, numa=1)), "mlx5_0",
         ("0000:1a:00.0", "pci0000:15 / 0000:15:01.0 / 0000:1a:00.0", "1")),
        ("no NUMA node", placed(NIC_PLACE), "mlx5_0",
         ("0000:1a:00.0", "pci0000:15 / 0000:15:01.0 / 0000:1a:00.0",
          "the firmware or hypervisor does not give it")),
        ("no bridge", placed(replace(NIC_PLACE, bridges=())), "mlx5_0",
         ("0000:1a:00.0", "the hypervisor shows no bridges above it, only pci0000:15",
          "the firmware or hypervisor does not give it")),
        ("no root", placed(replace(NIC_PLACE, root="", numa=1)), "mlx5_0",
         ("0000:1a:00.0", NOT_IN_TREE, NOT_IN_TREE)),
        ("not in the graph", HERE, "bare", (NEVER, NOT_IN_TREE, NOT_IN_TREE)),
        ("no graph", NOWHERE, "mlx5_0", ("0000:1a:00.0", NO_GRAPH, NO_GRAPH)),
    ],
)  # fmt: skip
def test_the_place_of_a_card(why: str, here: NodeParts, device: str, told: tuple[str, ...]) -> None:
    assert facts(here, Subject(device=device), "pci_address", "pci_path", "numa_node") == told, why


CARD_NAMES = (
    "product", "psid", "node_guid", "firmware", "network_interfaces", "serial", "port", "link_layer",
)  # fmt: skip
ABSENT_PORT = "the port was absent when the topology was last read"
VITAL = "no file has it; as root: `lspci -vvs {}` (Vital Product Data)"


@each(
    ("why", "here", "subject", "told"),
    [
        ("known", HERE, Subject(device="mlx5_0", port="1"),
         ("MT4129", "MT_838", "b83f", "28.41", "ib0, ib1", "0000:1a:00.0", "1", "InfiniBand")),
        ("another port", HERE, Subject(device="mlx5_0", port="2"),
         ("MT4129", "MT_838", "b83f", "28.41", "ib0, ib1", "0000:1a:00.0", "2", ABSENT_PORT)),
        ("no graph", NOWHERE, Subject(device="mlx5_0", port="1"),
         ("MT4129", "MT_838", "b83f", "28.41", "ib0, ib1", "0000:1a:00.0", "1", ABSENT_PORT)),
        ("sysfs has none of it", HERE, Subject(device="bare", port="1"),
         (*["sysfs does not have it"] * 5, "ADDRESS", "1", ABSENT_PORT)),
        ("never read", HERE, Subject(device="mlx5_9", port="1"), (*[NEVER] * 5, "ADDRESS", "1", ABSENT_PORT)),
    ],
)  # fmt: skip
def test_facts_of_a_card(why: str, here: NodeParts, subject: Subject, told: tuple[str, ...]) -> None:
    found = facts(here, subject, *CARD_NAMES, collector="infiniband")
    assert found == (*told[:5], VITAL.format(told[5]), *told[6:]), why


@each(
    ("why", "here", "device", "told"),
    [
        ("above all", HERE, BRIDGE, (BRIDGE, "pci0000:15 / 0000:15:01.0", "GPU 0, GPU 1, mlx5_0")),
        ("below another", HERE, "00000000:16:00.0",
         ("0000:16:00.0", "pci0000:15 / 0000:15:01.0 / 0000:16:00.0", "GPU 0, GPU 1")),
        ("above nothing", HERE, "0000:99:00.0",
         ("0000:99:00.0", "it is above no GPU and no network card", "no GPU and no network card")),
        ("no address", HERE, "switch 1",
         ("'switch 1' is not a PCI address", "it is above no GPU and no network card",
          "no GPU and no network card")),
        ("no graph", NOWHERE, BRIDGE, (BRIDGE, NO_GRAPH, NO_GRAPH)),
    ],
)  # fmt: skip
def test_facts_of_a_bridge(why: str, here: NodeParts, device: str, told: tuple[str, ...]) -> None:
    assert facts(here, Subject(device=device), "pci_address", "pci_path", "above") == told, why
    assert facts(here, Subject(device=device, link="3"), "link") == ("3",)
    assert "link" not in part_of(here, standing(Subject(device=device)))[1]


def metric(name: str, *labels: str, kind: Kind = Kind.GAUGE) -> Metric:
    return Metric(name, kind, labels, "Drawn by hand.")


HEAT = metric("heat_celsius", "gpu", "uuid", "kind")
NAMES = metric("name_info", "gpu", "uuid", kind=Kind.INFO)
LINK_ERRORS = metric("link_bytes", "gpu", "uuid", "link")
RATE = metric("rate_bytes_per_second", "device", "port")
WIDTH = metric("width_ratio", "device")
WHOLE = metric("whole_seconds")
SAMPLES = (
    HEAT.sample(1, "0", "GPU-0", "core"), HEAT.sample(9, "0", "GPU-0", "memory"),
    HEAT.sample(2, "1", "GPU-1", "core"), HEAT.sample(4, "2", "GPU-2", "core"),
    HEAT.sample(6, "3", "GPU-3", "core"), NAMES.sample(1, "0", "GPU-0"),
    LINK_ERRORS.sample(7, "0", "GPU-0", "1"), LINK_ERRORS.sample(8, "0", "GPU-0", "2"),
    RATE.sample(5, "mlx5_0", "1"), RATE.sample(6, "mlx5_0", "2"), WIDTH.sample(16, "mlx5_0"),
    WHOLE.sample(3),
)  # fmt: skip
OK = Ok(None, EPOCH, 0.0)


def component(*samples: Sample, name: str = "some", memory: object = None, known: object = None) -> Component:
    return Component(name, memory, OK, samples=samples, facts=known, last_success=EPOCH)


def of(one: Component, subject: Subject) -> list[tuple[str, float | None]]:
    found, _ = numbers(NodeState({one.name: one}), standing(subject, collector=one.name))
    return [(number.name.removeprefix("wirewatch_"), number.value) for number in found]


@each(
    ("why", "subject", "told"),
    [
        ("a GPU by its name, without its links", Subject("9", "GPU-0"),
         [("heat_celsius", 1.0), ("heat_celsius", 9.0)]),
        ("a GPU by its index", Subject("1"), [("heat_celsius", 2.0)]),
        ("a GPU by its name alone", Subject(uuid="GPU-1"), [("heat_celsius", 2.0)]),
        ("a link, with its GPU", Subject("0", "GPU-0", "2"),
         [("heat_celsius", 1.0), ("heat_celsius", 9.0), ("link_bytes", 8.0)]),
        ("a card with all its ports", Subject(device="mlx5_0"),
         [("rate_bytes_per_second", 5.0), ("rate_bytes_per_second", 6.0), ("width_ratio", 16.0)]),
        ("a port with its card", Subject(device="mlx5_0", port="2"),
         [("rate_bytes_per_second", 6.0), ("width_ratio", 16.0)]),
        ("the node", Subject(), [("whole_seconds", 3.0)]),
        ("another card", Subject(device="mlx5_1"), []),
    ],
)  # fmt: skip
def test_the_numbers_of_a_part(why: str, subject: Subject, told: list[tuple[str, float]]) -> None:
    assert of(component(*SAMPLES), subject) == told, why


def test_a_number_beside_its_peers() -> None:
    state = NodeState({"some": component(*SAMPLES)})
    found, why = numbers(state, standing(Subject("0", "GPU-0")))
    assert why == ""
    assert found == [
        Number("wirewatch_heat_celsius", {"kind": "core"}, "degrees celsius", 1.0, None,
               Peers("GPUs", 3, 2.0, 4.0, 6.0), None),
        Number("wirewatch_heat_celsius", {"kind": "memory"}, "degrees celsius", 9.0, None, None,
               "no other of the GPUs has this number"),
    ]  # fmt: skip
    (alone, *_), _ = numbers(state, standing(Subject(uuid="GPU-0")))
    assert alone == found[0]
    (rate, *_), _ = numbers(state, standing(Subject(device="mlx5_0", port="2")))
    assert (rate.labels, rate.peers) == ({}, Peers("ports", 1, 5.0, 5.0, 5.0))
    (rate, *_), _ = numbers(state, standing(Subject(device="mlx5_0")))
    assert (rate.labels, rate.peers) == ({"port": "1"}, None)
    (whole,), _ = numbers(state, standing(Subject()))
    assert whole.peers_unknown == "it is a number of the whole node, which has no peers"


LINKS = NvlinkFacts(
    {
        Gpu(0, "GPU-0"): (
            NvlinkLink(1, 1, 25e9), NvlinkLink(2, 0, GONE), NvlinkLink(3, GONE, 20e9), NvlinkLink(4, 2, GONE),
        )
    }
)  # fmt: skip
UP, SPEED = "nvlink_link_up", "nvlink_link_speed_bytes_per_second"


@pytest.mark.parametrize(
    ("why", "samples", "known", "told"),
    [
        ("read", SAMPLES[:1], LINKS,
         {"1": [(UP, 1.0), (SPEED, 25e9)], "2": [(UP, 0.0)], "3": [(SPEED, 20e9)], "4": [(UP, 1.0)]}),
        ("no sample: not read now", (), LINKS, {}),
        ("it has the series", (SAMPLES[0], LINK_UP.sample(1, "0", "GPU-0", "1")), LINKS, {"1": [(UP, 1.0)]}),
        ("facts of another collector", SAMPLES[:1], NETWORK, {}),
    ],
)  # fmt: skip
def test_links_have_state_and_speed_where_they_were_read(
    why: str, samples: tuple[Sample, ...], known: object, told: Mapping[str, list[tuple[str, float]]]
) -> None:
    one = component(*samples, known=known)
    for link in "1234":
        found = [row for row in of(one, Subject("0", "GPU-0", link)) if row[0] != "heat_celsius"]
        assert found == told.get(link, []), (why, link)


@pytest.mark.parametrize(
    ("why", "samples", "known", "told"),
    [
        ("read", SAMPLES[:1], {"mlx5_0": PciLink(5, GONE, 5, 16)},
         [("card_pcie_generation", 5.0), ("card_pcie_generation_max", 5.0), ("card_pcie_width_max", 16.0)]),
        ("no sample: not read now", (), {"mlx5_0": PciLink(5, 8, 5, 16)}, []),
        ("facts of another collector", SAMPLES[:1], None, []),
    ],
)  # fmt: skip
def test_cards_have_their_pcie_where_it_was_read(
    why: str, samples: tuple[Sample, ...], known: Mapping[str, PciLink] | None, told: list[tuple[str, float]]
) -> None:
    found = LINKS if known is None else InfinibandFacts({}, known, frozenset())
    assert of(component(*samples, known=found), Subject(device="mlx5_0")) == told, why


BLIND = Finding("some.blind", Health.UNKNOWN, Subject("0", "GPU-0"), "no answer", "wait")
PART = Subject("0", "GPU-0", "7")
EMPTY = component()


@each(
    ("why", "one", "told"),
    [
        ("no probe yet", replace(EMPTY, memory=ProbeMemory()), "no complete probe is known"),
        ("a probe, and none of this part", replace(EMPTY, memory=ProbeMemory(last=drawn(on_switch(2)))),
         "the collector `some` has no numbers of this part alone"),
        ("overdue", replace(EMPTY, overdue_since=EPOCH),
         "the collector `some` is overdue: the driver or a file does not answer"),
        ("failed", replace(EMPTY, outcome=Failed(GONE, EPOCH, 0.0)),
         f"the collector `some` cannot read: {GONE}"),
        ("the GPU is blind", replace(EMPTY, findings=(BLIND,)), "the part cannot be read: no answer"),
        ("the link is blind", replace(EMPTY, findings=(replace(BLIND, subject=PART),)),
         "the part cannot be read: no answer"),
        ("another GPU is blind", replace(EMPTY, findings=(replace(BLIND, subject=Subject("1", "GPU-1")),)),
         "the collector `some` has no numbers of this part alone"),
        ("another rule of the GPU", replace(EMPTY, findings=(replace(BLIND, rule="some.hot"),)),
         "the collector `some` has no numbers of this part alone"),
    ],
)  # fmt: skip
def test_why_a_part_has_no_numbers(why: str, one: Component, told: str) -> None:
    subject = Subject("8", "GPU-8", "7") if isinstance(one.memory, ProbeMemory) else PART
    assert numbers(NodeState({"some": one}), standing(subject)) == ([], told), why


def test_why_a_finding_without_its_collector_has_no_numbers() -> None:
    one = standing(Subject(), collector="")
    assert numbers(NodeState(), standing(Subject()))[1] == "the collector `some` is switched off"
    assert numbers(NodeState(), one)[1] == "no collector measures this"
    assert numbers(NodeState(), replace(one, stage=SUPPRESSED))[1].startswith(
        "it is suppressed and not found"
    )


PROBED = drawn(on_switch(2), at=EPOCH - 50)
MEMORY = ProbeMemory(last=PROBED, measured=tuple(measure(PROBED)))
PROBE = component(SAMPLES[0], WHOLE.sample(3), name=PROBE_NAME, memory=MEMORY)


def test_only_a_finding_of_the_probe_without_a_part_has_the_numbers_of_all_gpus() -> None:
    whole, _ = numbers(NodeState({PROBE_NAME: PROBE}), standing(Subject(), collector=PROBE_NAME))
    products = [one for one in whole if one.name == "matrix_product_seconds"]
    assert [(one.value, one.peers and one.peers.count, one.peers_unknown) for one in products] == [
        (None, 2, None)
    ]
    assert "wirewatch_whole_seconds" not in {one.name for one in whole}
    rates = [one for one in whole if one.name.startswith("wirewatch_probe_")]
    assert {one.name.removeprefix("wirewatch_") for one in rates} == {one.name for one in COLLECTIVES}
    assert "link_transmit_bytes" not in {one.name for one in whole}
    uuid = PROBED.gpus[1].uuid
    alone, _ = numbers(NodeState({PROBE_NAME: PROBE}), standing(Subject("1", uuid), collector=PROBE_NAME))
    assert all(one.value is not None for one in alone)
    assert all(one.peers and one.peers.count == 1 for one in alone)
    assert numbers(NodeState({"some": component(*SAMPLES)}), standing(Subject()))[0][1:] == []


def test_a_link_of_a_probe_that_was_not_counted_has_no_number() -> None:
    counted = replace(PROBED.links[0], transmit=(None, *PROBED.links[0].transmit[1:]))
    one = replace(PROBE, memory=ProbeMemory(last=replace(PROBED, links=(counted,))))
    subject = Subject("0", PROBED.gpus[0].uuid, str(counted.links[0]))
    assert "link_transmit_bytes" not in dict(of(one, subject))
    assert dict(of(one, subject))["link_receive_bytes"] == counted.receive[0]


def test_each_gpu_has_its_own_clock() -> None:
    clocks = tuple(replace(one, sm=1e9 + place) for place, one in enumerate(PROBED.clocks))
    assert len(clocks) == 2
    found = [quantities_of(replace(PROBED, clocks=clocks), place)["sm_clock_hertz"] for place in (0, 1)]
    assert found == [1e9, 1e9 + 1]


@each(
    ("why", "state", "at"),
    [
        ("of the last probe", NodeState({"some": replace(PROBE, name="some")}), EPOCH - 50),
        ("no probe yet", NodeState({"some": component(memory=ProbeMemory())}), None),
        ("of the collector", NodeState({"some": component()}), EPOCH),
        ("never read", NodeState({"some": replace(component(), last_success=0.0)}), None),
        ("no collector", NodeState(), None),
    ],
)
def test_when_the_numbers_were_read(why: str, state: NodeState, at: float | None) -> None:
    assert read_at(state, standing(Subject())) == at, why


ENTRY = Entry(
    "some.rule", Subject(), "some", Health.FAILED, Stage.LATCHED, "evidence", "action", EPOCH - 900,
    EPOCH - 500,
)  # fmt: skip


@pytest.mark.parametrize(
    ("why", "change", "entries", "seen"),
    [
        ("an event has its time", {"last": EPOCH - 7}, {}, EPOCH - 7),
        ("measured: the newest reading", {"measured": Health.FAILED}, {}, EPOCH),
        ("remembered: as the ledger says", {}, {"it": ENTRY}, EPOCH - 500),
        ("neither", {}, {}, None),
    ],
)
def test_when_a_finding_was_last_seen(
    why: str, change: Mapping[str, Any], entries: Mapping[str, Entry], seen: float | None
) -> None:
    one = replace(
        standing(Subject()), stage=LATCHED, measured=change.get("measured")
    )  # fmt: skip
    one = replace(one, finding=replace(one.finding, last=change.get("last", 0.0)))
    ledger = Ledger(entries=dict.fromkeys([one.key] if entries else [], ENTRY))
    judged = Judged(
        NodeState({"some": component(*SAMPLES)}), Verdict(Health.FAILED, (one.finding,), (one,)), ledger
    )
    document = evidence(judged, one.id, EPOCH, "live")
    assert document.last_seen == seen, why
    assert document.measured == ("failed" if "measured" in change else None)
    assert (document.collector, document.numbers_at, document.numbers_unknown) == ("some", EPOCH, None)
    nobody = replace(one, collector="")
    orphan = evidence(replace(judged, verdict=Verdict(Health.FAILED, (), (nobody,))), one.id, EPOCH, "live")
    assert (orphan.collector, orphan.numbers) == (None, [])
    bare = evidence(replace(judged, state=NodeState({"some": EMPTY})), one.id, EPOCH, "live")
    assert (bare.numbers_at, bool(bare.numbers_unknown)) == (None, True)
