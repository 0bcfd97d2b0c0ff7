"""A part as a state shows it: whether it was read, and what the driver says about a GPU."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from wirewatch.collectors.gpu import GpuFacts
from wirewatch.collectors.infiniband import InfinibandFacts
from wirewatch.collectors.inventory import InventoryFacts, KnownGpu
from wirewatch.core.collector import Component, NodeState, blind_rule
from wirewatch.core.topology import Topology
from wirewatch.core.types import Finding, Health, Ok, Subject
from wirewatch.verdict.ledger import Entry, Stage

XID_RECOVERY = "xid.154"
"""The rule for what a GPU needs by the kernel's log; it holds until the log takes it back, or a boot."""
RECOVERY_RULES = frozenset({"gpu.recovery_action", XID_RECOVERY})
"""Findings by which the driver asks for a reset."""
_RECOVERY_COLLECTORS = ("gpu", "xid")
"""Collectors of these findings."""
_PROBE = "probe"
"""The collector that measures now and then, and names no GPU in its series."""
_LOGGED = "kernel."
"""Rules for messages of the kernel that are no XIDs."""
_PORT_DOWN = "infiniband.port_down"
"""A rule that depends on what its collector remembers: after a restart its silence says nothing."""


def observed_at(state: NodeState, entry: Entry, probes: int) -> float | None:
    """When (monotonic seconds) the part was last read, None when it is not: not knowing is not "gone"."""
    component = state.components.get(entry.collector)
    if component is None or _blind(component, entry.subject) or not component.observed.covers(entry.subject):
        return None
    if _lasts(state, entry) or not _answers(state, entry):
        return None
    held = entry.stage in {Stage.ACTIVE, Stage.LATCHED}
    return None if held and not is_current(entry.collector, probes) else read_at(state, entry.collector)


def gates(state: NodeState, collector: str) -> bool:
    """Tell whether what a collector finds counts for the verdict; also where it is switched off."""
    component = state.components.get(collector)
    return component is None or component.gates


def read_at(state: NodeState, collector: str) -> float | None:
    """When (monotonic seconds) a collector last read; None when its newest turn failed or is overdue."""
    component = state.components.get(collector)
    outcome = component.outcome if component is not None and component.overdue_since is None else None
    return outcome.mono if isinstance(outcome, Ok) else None


def is_current(collector: str, probes: int) -> bool:
    """Tell whether findings are current: a probe's findings stand until the next, over restarts and boots."""
    return collector != _PROBE or probes > 0


def _blind(component: Component, part: Subject) -> bool:
    """Tell whether the collector cannot read this part, or a part that may be this part."""
    rule = blind_rule(component.name)
    return any(f.rule == rule and _may_be(f.subject, part) for f in component.findings)


def _may_be(one: Subject, other: Subject) -> bool:
    """Tell whether two names may mean one part, or a part and its owner; a GPU without UUID may be any."""
    mine, theirs = one.levels(), other.levels()
    compared = (mine.keys() & theirs.keys()) - ({"gpu"} if one.uuid or other.uuid else set())
    return all(mine[level] == theirs[level] for level in compared)


def _answers(state: NodeState, entry: Entry) -> bool:
    """Tell whether a GPU known only by its address answers: nothing is reported of a silent GPU."""
    part = entry.subject
    if not part.device or not entry.rule.startswith("xid."):
        return True
    return part.device in {gpu.gpu.pci.partition(".")[0] for gpu in _answering(state)}


def _lasts(state: NodeState, entry: Entry) -> bool:
    """Tell whether a port is still down, although there is no finding."""
    facts = state.facts(InfinibandFacts)
    place = (entry.subject.device, entry.subject.port)
    return entry.rule == _PORT_DOWN and facts is not None and place in facts.inactive


def _answering(state: NodeState) -> list[KnownGpu]:
    """The GPUs that answer now; none while the inventory cannot be read."""
    facts = state.facts(InventoryFacts) if _inventory(state) else None
    return [facts.gpus[key] for key in facts.gpus if key in facts.answering] if facts else []


def _inventory(state: NodeState) -> Component | None:
    component = state.components.get("inventory")
    return component if component is not None and component.succeeding else None


def answering_gpus(state: NodeState) -> frozenset[str]:
    """UUIDs of the GPUs that answer with one now."""
    return frozenset(gpu_indexes(state))


def gpu_indexes(state: NodeState) -> Mapping[str, str]:
    """Today's index of each GPU that answers, by UUID."""
    return {one.gpu.uuid: str(one.gpu.index) for one in _answering(state) if one.gpu.uuid}


def found(state: NodeState, known: Mapping[str, Subject]) -> Iterator[tuple[str, Finding]]:
    """Return each finding with its collector, and with its GPU's name by the addresses in `known`."""
    names = Names({**known, **cards(state)}, state)
    for name, component in state.components.items():
        for finding in component.findings:
            part = names.of(finding.rule, finding.subject)
            yield name, finding if part is finding.subject else replace(finding, subject=part)


class Names:
    """Lasting names of parts that the kernel's log knows by their PCI address, before NVML has answered."""

    def __init__(self, gpus: Mapping[str, Subject], state: NodeState) -> None:
        self._gpus = gpus
        self._wires = _wires(state)

    def of(self, rule: str, part: Subject) -> Subject:
        """The part by its lasting name; a network card and a port only in a message of their own."""
        if part.uuid:
            return part
        wire = self._wires.get(part.device) if rule.startswith(_LOGGED) else None
        one = wire or self._gpus.get(part.device.partition(".")[0])
        return part if one is None else replace(one, link=part.link)


def _wires(state: NodeState) -> Mapping[str, Subject]:
    """The network card at each PCI address, and the card or GPU right below each PCIe port."""
    graph, facts = state.facts(Topology), state.facts(InfinibandFacts)
    gpus = [(one.place, Subject(gpu=str(one.index), uuid=one.uuid)) for one in graph.gpus] if graph else []
    nics = [(one.place, Subject(device=one.device)) for one in graph.nics] if graph else []
    ports = {place.bridges[-1]: part for place, part in reversed([*gpus, *nics]) if place.bridges}
    known = facts.devices.items() if facts else ()
    return {**ports, **{one.pci: Subject(device=name) for name, one in known if one.pci}}


def cards(state: NodeState) -> Mapping[str, Subject]:
    """Return the GPU at each PCI address, without its function.

    Addresses of the newest reading that succeeded stand: no GPU moves because the inventory cannot be read.
    Where two GPUs had an address since the start, the GPU that is not lost has it.
    """
    inventory = state.facts(InventoryFacts)
    if inventory is None:
        return {}
    lost_first = sorted(inventory.gpus, key=lambda key: key not in inventory.lost)
    gpus = (inventory.gpus[key].gpu for key in lost_first)
    known = (gpu for gpu in gpus if gpu.pci and gpu.uuid)
    return {gpu.pci.partition(".")[0]: Subject(gpu=str(gpu.index), uuid=gpu.uuid) for gpu in known}


def belonging_gpus(state: NodeState) -> frozenset[str]:
    """Return UUIDs of the GPUs that answer, and of GPUs that the inventory misses."""
    inventory = _inventory(state)
    missed = {finding.subject.uuid for finding in inventory.findings} if inventory else set()
    return answering_gpus(state) | (missed - {""})


def gone_for_good(state: NodeState, uuid: str, most: int) -> bool:
    """Tell whether an operator took the GPU out, or `most` GPUs answer and it is not missed."""
    inventory = state.facts(InventoryFacts)
    if not uuid or uuid in belonging_gpus(state):
        return False
    taken_out = inventory is not None and uuid in inventory.forgotten
    return taken_out or 0 < most <= len(answering_gpus(state))


def asks_for_reset(state: NodeState, uuid: str) -> bool:
    """Tell whether the driver says that this GPU needs a reset; NVML's word counts above the log's."""
    return Health.FAILED in _recovery_healths(state, uuid) and not _needs_none(state, uuid)


def needs_nothing(state: NodeState, uuid: str) -> bool:
    """Whether the driver says that this GPU needs nothing, and all collectors of such needs are reading."""
    readings = [read_at(state, name) for name in _RECOVERY_COLLECTORS if name in state.components]
    return None not in readings and not _recovery_healths(state, uuid) and _needs_none(state, uuid)


def _needs_none(state: NodeState, uuid: str) -> bool:
    facts = state.facts(GpuFacts) if read_at(state, "gpu") is not None else None
    return facts is not None and uuid in facts.well


def _recovery_healths(state: NodeState, uuid: str) -> list[Health]:
    findings = (finding for component in state.components.values() for finding in component.findings)
    asked = (one for one in findings if one.rule in RECOVERY_RULES)
    return [one.health for one in asked if uuid and one.subject.uuid == uuid]
