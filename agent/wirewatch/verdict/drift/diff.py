"""What is different between two graphs: one change for one cause, in words for people."""

from collections.abc import Iterator

from wirewatch.verdict.drift.change import Change, Kind
from wirewatch.verdict.drift.graph import GpuNode, Graph, NicNode
from wirewatch.verdict.drift.matching import Matched, match
from wirewatch.verdict.drift.places import place_changes
from wirewatch.verdict.drift.wires import wire_changes
from wirewatch.verdict.drift.words import natural, part_name, several


def diff(before: Graph, after: Graph) -> tuple[Change, ...]:
    """All changes, in the order of their kinds.

    What either graph does not know is no change; numbers, names of devices and of PCI buses alone are none.
    """
    gpus, nics, renaming = match(before, after)
    changes = [
        *_gpu_changes(gpus),
        *_clique_changes(gpus),
        *wire_changes(before, after, gpus),
        *_nic_changes(nics),
        *place_changes(before, after, gpus, nics, renaming),
        *_version_changes(before, after),
    ]
    order = list(Kind)
    changes.sort(key=lambda one: (order.index(one.kind), natural(one.text), one.part))
    return tuple(changes)


def _gpu_changes(gpus: Matched[GpuNode]) -> Iterator[Change]:
    for gpu in gpus.lost:
        text = f"{part_name(gpu)} is gone: {_gpu_facts(gpu)}"
        yield Change(Kind.GPU_LOST, gpu.key, gpu.key, "", text, worse=True)
    for gpu in gpus.new:
        text = f"{part_name(gpu)} is new: {_gpu_facts(gpu)}"
        yield Change(Kind.GPU_NEW, gpu.key, "", gpu.key, text, worse=False)
    for old, new in gpus.replaced:
        text = f"{part_name(new)} replaced {part_name(old)}{_other(old.product, new.product)}"
        yield Change(Kind.GPU_REPLACED, new.key, old.key, new.key, text, worse=False)
    for old, new in gpus.same:
        if _differ(old.product, new.product):
            text = f"{part_name(new)}: product {old.product} -> {new.product}"
            yield Change(Kind.GPU_PRODUCT, new.key, old.product, new.product, text, worse=False)


def _clique_changes(gpus: Matched[GpuNode]) -> Iterator[Change]:
    """A rack is partitioned for all GPUs of a node at once: one change for all that went the same way."""
    ways: dict[tuple[str, str], list[GpuNode]] = {}
    for old, new in gpus.same:
        if old.clique is not None and new.clique is not None and old.clique != new.clique:
            ways.setdefault((old.clique, new.clique), []).append(new)
    for (was, now), members in ways.items():
        members.sort(key=lambda gpu: (gpu.index, gpu.key))
        text = f"{several(members)}: fabric clique {was or 'none'} -> {now or 'none'}"
        yield Change(Kind.CLIQUE, members[0].key, was, now, text, worse=bool(was))


def _gpu_facts(gpu: GpuNode) -> str:
    return " at ".join(fact for fact in (gpu.product or "GPU", gpu.spot.address) if fact)


def _nic_changes(nics: Matched[NicNode]) -> Iterator[Change]:
    for nic in nics.lost:
        yield Change(
            Kind.NIC_LOST, nic.key, nic.key, "", f"{nic.device} is gone: {_nic_facts(nic)}", worse=True
        )
    for nic in nics.new:
        yield Change(
            Kind.NIC_NEW, nic.key, "", nic.key, f"{nic.device} is new: {_nic_facts(nic)}", worse=False
        )
    for old, new in nics.replaced:
        text = f"{new.device}: GUID {old.guid} replaced by {new.guid}{_other(old.model, new.model)}"
        yield Change(Kind.NIC_REPLACED, new.key, old.key, new.key, text, worse=False)
    for old, new in nics.same:
        if _differ(old.model, new.model):
            text = f"{new.device}: model {old.model} -> {new.model}"
            yield Change(Kind.NIC_MODEL, new.key, old.model, new.model, text, worse=False)
        elif _differ(old.firmware, new.firmware):
            text = f"{new.device}: firmware {old.firmware} -> {new.firmware}"
            yield Change(Kind.NIC_FIRMWARE, new.key, old.firmware, new.firmware, text, worse=False)
    for old, new in nics.pairs:
        yield from _port_changes(old, new)


def _nic_facts(nic: NicNode) -> str:
    """A name may be another NIC's today, a GUID not."""
    where = f" at {nic.spot.address}" if nic.spot.address else ""
    return f"{nic.model or 'NIC'}{where}{', GUID ' + nic.guid if nic.guid else ''}"


def _port_changes(old: NicNode, new: NicNode) -> Iterator[Change]:
    """One change for all ports of a NIC; one that shows none was not read."""
    one, other = dict(old.ports), dict(new.ports)
    if not one or not other:
        return
    gone, came = sorted(one.keys() - other.keys()), sorted(other.keys() - one.keys())
    changed = [port for port in sorted(one.keys() & other.keys()) if _differ(one[port], other[port])]
    words = [f"port {port} is gone" for port in gone]
    words += [f"port {port} {one[port]} -> {other[port]}" for port in changed]
    words += [f"port {port} is new" for port in came]
    if words:
        was, now = (_ports(side, [*gone, *changed, *came]) for side in (one, other))
        worse = bool(gone or changed)
        yield Change(Kind.NIC_PORTS, new.key, was, now, f"{new.device}: {'; '.join(words)}", worse)


def _ports(ports: dict[str, str], which: list[str]) -> str:
    return ", ".join(f"{port} {ports[port]}".strip() for port in which if port in ports)


def _version_changes(before: Graph, after: Graph) -> Iterator[Change]:
    then = dict(before.versions)
    for name, version in after.versions:
        if _differ(then.get(name, ""), version):
            text = f"{name} {then[name]} -> {version}"
            yield Change(Kind.VERSION, name, then[name], version, text, worse=False)


def _differ(before: str, after: str) -> bool:
    """Whether both are known and are not the same."""
    return bool(before and after) and before != after


def _other(before: str, after: str) -> str:
    return f", {after} instead of {before}" if _differ(before, after) else ""
