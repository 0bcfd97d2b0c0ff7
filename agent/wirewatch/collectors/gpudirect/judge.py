"""Judging GPUDirect RDMA: what has been in the way for more than one look."""

from collections.abc import Iterator
from dataclasses import replace

from wirewatch.collectors.gpudirect.checks import Check, State, checks, known_acs
from wirewatch.collectors.gpudirect.paths import all_paths
from wirewatch.collectors.gpudirect.values import Acs, GpudirectPolicy, Memory, Reading
from wirewatch.core.component import blind_finding
from wirewatch.core.pci import Place
from wirewatch.core.rates import Streak
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok, Subject, Why

ACTIONS = {
    "rdma_stack": "load ib_uverbs, or install the RDMA packages",
    "peer_memory": "load nvidia_peermem, or use the driver's open kernel module on Linux 5.12 or newer",
    "acs": "switch ACS redirection off on this bridge (setpci, at each boot) or in the BIOS",
    "iommu": "boot with iommu=pt, so that the IOMMU does not translate for the host's own devices",
    "nccl_conf": "correct /etc/nccl.conf, or remove it: every job on this host reads it",
}


def judge(
    memory: Memory, ok: Ok[Reading], policy: GpudirectPolicy, expect: Expect
) -> tuple[Memory, tuple[Finding, ...]]:
    reading = ok.value
    if not reading.gpus or not reading.nics:
        return _missing(memory, policy, expect)
    acs = known_acs(memory, reading)
    told = {check.name: check for check in checks(reading, acs)}
    if not policy.judge_iommu:
        told.pop("iommu", None)
    shown = {name for name, check in told.items() if check.state is State.FAILED}
    held = {n for n, c in told.items() if c.state is State.UNKNOWN and n in memory.streaks}
    streaks = {
        name: memory.streaks.get(name, Streak()).see(present=True, sure=name in shown)
        for name in sorted(shown | held)
    }
    evidence = {**{n: memory.evidence.get(n, "") for n in held}, **{n: told[n].evidence for n in shown}}
    new = Memory(acs, reading.acs_looked, _places(memory, reading), streaks, evidence)
    return new, (*_findings(new, reading, policy, expect), *_blind(told, expect))


def _places(memory: Memory, reading: Reading) -> dict[str, Place]:
    now = {**{gpu.pci: place for gpu, place in reading.gpus}, **reading.nics}
    return {**memory.places, **{name: p for name, p in now.items() if not isinstance(p, Absent)}}


def _findings(memory: Memory, reading: Reading, policy: GpudirectPolicy, expect: Expect) -> Iterator[Finding]:
    for name, streak in memory.streaks.items():
        if streak.count < policy.confirm:
            continue
        health = Health.FAILED if expect.gpudirect and name in _NEEDED else Health.DEGRADED
        if name == "acs":
            yield from _bridges(memory.acs, reading, health)
        else:
            yield Finding(f"gpudirect.{name}", health, Subject(), memory.evidence[name], ACTIONS[name])


_NEEDED = frozenset({"rdma_stack", "peer_memory"})
"""Without these there is no GPUDirect RDMA at all; the others make it slow."""


def _bridges(acs: Acs, reading: Reading, health: Health) -> Iterator[Finding]:
    near = [
        (f"GPU {gpu.index} to {device}", gpu.pci, device)
        for gpu, device, path, nearest in all_paths(reading.gpus, reading.nics, reading.nodes)
        if nearest and not isinstance(path, Absent)
    ]
    for bridge, bits in acs.items():
        if isinstance(bits, Absent) or not bits:
            continue
        evidence = f"{' '.join(bits)} set: peer-to-peer packets go up to the root and back"
        pairs = _passing(bridge, reading, {(pci, device): words for words, pci, device in near})
        evidence += f"; on the way of {', '.join(pairs)}" if pairs else ""
        yield Finding("gpudirect.acs", health, Subject(device=bridge), evidence, ACTIONS["acs"])


def _passing(bridge: str, reading: Reading, near: dict[tuple[str, str], str]) -> list[str]:
    places = {gpu.pci: place for gpu, place in reading.gpus}
    found = []
    for (pci, device), words in near.items():
        ends = (places.get(pci), reading.nics[device])
        if any(end is not None and not isinstance(end, Absent) and bridge in end.bridges for end in ends):
            found.append(words)
    return found


def _blind(told: dict[str, Check], expect: Expect) -> Iterator[Finding]:
    """What cannot be told is a finding only where the operator says that it must work."""
    unknown = [f"{n}: {told[n].evidence}" for n in sorted(_NEEDED) if told[n].state is State.UNKNOWN]
    if expect.gpudirect and unknown:
        yield blind_finding("gpudirect", Subject(), Absent(Why.DENIED, "; ".join(unknown)))


def _missing(memory: Memory, policy: GpudirectPolicy, expect: Expect) -> tuple[Memory, tuple[Finding, ...]]:
    """No NIC or no GPU: nothing to watch, unless the operator says that there must be."""
    if not expect.gpudirect:
        return memory, ()
    streak = memory.streaks.get("missing", Streak()).see(present=True)
    new = replace(memory, streaks={**memory.streaks, "missing": streak})
    health = Health.FAILED if streak.count >= policy.confirm else Health.DEGRADED
    action = "look for RDMA devices that are missing (`ls /sys/class/infiniband`), or correct [expect]"
    evidence = "GPUDirect RDMA is expected, and there is no RDMA device or no GPU"
    return new, (Finding("gpudirect.missing", health, Subject(), evidence, action),)
