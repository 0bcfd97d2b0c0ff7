"""Judge GPUDirect RDMA: each check passes, fails or is unknown; a lasting failure is a finding."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from wirewatch.collectors.gpudirect.read import (
    AcsBits,
    GpudirectMemory,
    GpudirectPolicy,
    GpudirectReading,
    RdmaSoftware,
    all_paths,
)
from wirewatch.core.collector import CONFIRMED, DEGRADED, Rule, blind_finding
from wirewatch.core.pci import Place
from wirewatch.core.statistics import Streak, streaks
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok, Subject, Why
from wirewatch.nccl.settings import GDR_LEVEL, IB_OFF, TOPOLOGY, NcclConf, gdr_level

MISSING = Rule("gpudirect.missing", CONFIRMED, "GPUDirectLost")
"""No NIC or no GPU where some are expected."""
ACTIONS = {
    "rdma_stack": "load ib_uverbs, or install the RDMA packages",
    "peer_memory": "load nvidia_peermem, or use the driver's open kernel module on Linux 5.12 or newer",
    "acs": "switch ACS redirection off on this bridge (setpci, at each boot) or in the BIOS",
    "iommu": "boot with iommu=pt, so that the IOMMU does not translate for the host's own devices",
    "nccl_conf": "correct /etc/nccl.conf, or remove it: every job on this host reads it",
}


class CheckState(Enum):
    """The answer to one check."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GpudirectCheck:
    """A check: `evidence` says why it did not pass, `needs` names the privilege for a full reading."""

    name: str
    state: CheckState
    evidence: str
    needs: str = ""


_NEEDED = frozenset({"rdma_stack", "peer_memory"})
"""Checks without which there is no GPUDirect RDMA at all; the others make it slow."""
_DMA_BUF_KERNEL = (5, 12)
"""First kernel whose RDMA core takes dma-buf memory."""
_TRANSLATING = ("DMA", "DMA-FQ")
_X86 = "x86_64"
RULES = (
    *(
        Rule(f"gpudirect.{name}", CONFIRMED if name in _NEEDED else DEGRADED, "GPUDirectLost")
        for name in ACTIONS
    ),
    MISSING,
)


def judge(
    memory: GpudirectMemory, ok: Ok[GpudirectReading], policy: GpudirectPolicy, expect: Expect
) -> tuple[GpudirectMemory, tuple[Finding, ...]]:
    """Return the memory, and the lasting failures; nothing where there is no GPU or no NIC."""
    reading = ok.value
    if not reading.gpus or not reading.nics:
        return _missing(memory, policy, expect)
    acs = known_acs(memory, reading)
    found = {check.name: check for check in checks(reading, acs)}
    if not policy.judge_iommu:
        found.pop("iommu", None)
    shown = {name for name, check in found.items() if check.state is CheckState.FAILED}
    held = {name for name, check in found.items() if check.state is CheckState.UNKNOWN}
    faults = streaks(memory.streaks, {name: name in shown for name in sorted(shown | held)})
    evidence = {**{n: memory.evidence.get(n, "") for n in held}, **{n: found[n].evidence for n in shown}}
    now = {**{gpu.pci: place for gpu, place in reading.gpus}, **reading.nics}
    places = {**memory.places, **{name: p for name, p in now.items() if not isinstance(p, Absent)}}
    new = GpudirectMemory(acs, reading.acs_looked, places, faults, evidence)
    return new, (*_findings(new, reading, policy, expect), *_blind(found, expect))


def known_acs(memory: GpudirectMemory, reading: GpudirectReading) -> AcsBits:
    """Return the known state of each bridge; an unreadable bridge keeps its last state."""
    return {
        bridge: memory.acs.get(bridge, bits) if isinstance(bits, Absent) else bits
        for bridge, bits in reading.acs.items()
    }


def checks(reading: GpudirectReading, acs: AcsBits) -> Iterator[GpudirectCheck]:
    """Yield all checks that apply here; a machine that hides its PCI bridges has no checks of them."""
    yield _stack(reading.software)
    yield _peer_memory(reading.software)
    yield _conf(reading)
    if not all(isinstance(path, Absent) for _, _, path, _ in all_paths(reading)):
        yield _acs(acs)
        if reading.machine == _X86:
            yield _iommu(reading)


def peer_memory(software: RdmaSoftware) -> str:
    """`peermem`, `dma-buf likely`, `both likely`, `none` or `unknown`."""
    shared = _dma_buf(software)
    if not isinstance(software.peermem, Absent) and software.peermem:
        return "both likely" if shared is True else "peermem"
    if shared is True:
        return "dma-buf likely"
    return "unknown" if isinstance(shared, Absent) or isinstance(software.peermem, Absent) else "none"


def _findings(
    memory: GpudirectMemory, reading: GpudirectReading, policy: GpudirectPolicy, expect: Expect
) -> Iterator[Finding]:
    for name, streak in memory.streaks.items():
        if streak.count < policy.confirm:
            continue
        health = Health.FAILED if expect.gpudirect and name in _NEEDED else Health.DEGRADED
        if name == "acs":
            yield from _bridges(memory.acs, reading, health)
        else:
            yield Finding(f"gpudirect.{name}", health, Subject(), memory.evidence[name], ACTIONS[name])


def _bridges(acs: AcsBits, reading: GpudirectReading, health: Health) -> Iterator[Finding]:
    places = {gpu.pci: place for gpu, place in reading.gpus}
    near = {
        f"GPU {gpu.index} to {device}": _bridges_of(places[gpu.pci], reading.nics[device])
        for gpu, device, path, nearest in all_paths(reading)
        if path is nearest
    }
    for bridge, bits in acs.items():
        if isinstance(bits, Absent) or not bits:
            continue
        evidence = f"{' '.join(bits)} set: peer-to-peer packets take a detour through the root complex"
        pairs = [words for words, bridges in near.items() if bridge in bridges]
        evidence += f"; on the path of {', '.join(pairs)}" if pairs else ""
        yield Finding("gpudirect.acs", health, Subject(device=bridge), evidence, ACTIONS["acs"])


def _bridges_of(*places: Place | Absent) -> frozenset[str]:
    return frozenset(bridge for one in places if isinstance(one, Place) for bridge in one.bridges)


def _blind(found: dict[str, GpudirectCheck], expect: Expect) -> Iterator[Finding]:
    """An unknown check is a finding only where the operator says that GPUDirect RDMA must work."""
    unknown = [f"{n}: {found[n].evidence}" for n in sorted(_NEEDED) if found[n].state is CheckState.UNKNOWN]
    if expect.gpudirect and unknown:
        yield blind_finding("gpudirect", Subject(), Absent(Why.DENIED, "; ".join(unknown)))


def _missing(
    memory: GpudirectMemory, policy: GpudirectPolicy, expect: Expect
) -> tuple[GpudirectMemory, tuple[Finding, ...]]:
    """No NIC or no GPU: nothing to watch, unless the operator says that there must be."""
    if not expect.gpudirect:
        return memory, ()
    streak = memory.streaks.get("missing", Streak()).see(present=True)
    new = replace(memory, streaks={**memory.streaks, "missing": streak})
    health = Health.FAILED if streak.count >= policy.confirm else Health.DEGRADED
    action = "look for RDMA devices that are missing (`ls /sys/class/infiniband`), or correct [expect]"
    evidence = "GPUDirect RDMA is expected, and there is no RDMA device or no GPU"
    return new, (MISSING.finding(Subject(), evidence, health, action),)


def _stack(software: RdmaSoftware) -> GpudirectCheck:
    if isinstance(software.verbs, Absent):
        return _unknown("rdma_stack", software.verbs, str(software.verbs))
    missing = "" if software.verbs else "ib_uverbs is not loaded: no program can open an RDMA device"
    return _known("rdma_stack", missing)


def _peer_memory(software: RdmaSoftware) -> GpudirectCheck:
    how = peer_memory(software)
    if how == "unknown":
        reasons = [a for a in (software.peermem, _dma_buf(software)) if isinstance(a, Absent)]
        return _unknown("peer_memory", reasons[0], "; ".join(map(str, reasons)))
    missing = (
        f"no peer memory module is loaded, and no dma-buf with the {software.module} kernel module "
        f"of the driver on Linux {software.kernel}"
    )
    return _known("peer_memory", missing if how == "none" else "")


def _dma_buf(software: RdmaSoftware) -> bool | Absent:
    """Whether the kernel and the driver can share GPU memory as dma-buf; only a job's own log proves it."""
    if isinstance(software.module, Absent):
        return software.module
    if isinstance(software.kernel, Absent):
        return software.kernel
    match = re.match(r"(\d+)\.(\d+)", software.kernel)
    if match is None:
        return Absent(Why.MALFORMED, f"not a version of Linux: {software.kernel[:40]!r}")
    return software.module == "open" and (int(match[1]), int(match[2])) >= _DMA_BUF_KERNEL


def _acs(acs: AcsBits) -> GpudirectCheck:
    known = {bridge: bits for bridge, bits in acs.items() if not isinstance(bits, Absent)}
    redirecting = "; ".join(f"{bridge}: {' '.join(bits)}" for bridge, bits in known.items() if bits)
    barred = [bits for bits in acs.values() if isinstance(bits, Absent)]
    if barred and not redirecting:
        return _unknown(
            "acs", barred[0], f"{len(barred)} of {len(acs)} bridges: {barred[0]}", "CAP_SYS_ADMIN"
        )
    return _known("acs", redirecting)


def _iommu(reading: GpudirectReading) -> GpudirectCheck:
    translated = ", ".join(a for a, kind in reading.iommu.items() if kind in _TRANSLATING)
    barred = [kind for kind in reading.iommu.values() if isinstance(kind, Absent)]
    if barred and not translated:
        return _unknown("iommu", barred[0], str(barred[0]))
    return _known("iommu", translated and f"translates for {translated}")


def _conf(reading: GpudirectReading) -> GpudirectCheck:
    conf = reading.software.conf
    if isinstance(conf, Absent):
        return _unknown("nccl_conf", conf, str(conf))
    wrong, file = "; ".join(_settings(conf, reading)), reading.software.topology_file
    if isinstance(file, Absent) and not wrong:
        return _unknown("nccl_conf", file, str(file))
    return _known("nccl_conf", wrong)


def _settings(conf: NcclConf, reading: GpudirectReading) -> Iterator[str]:
    """Find the settings of this host that cost every job on it something."""
    if conf.settings.get(IB_OFF, "0") not in {"", "0"}:
        yield f"{IB_OFF}={conf.settings[IB_OFF]} switches InfiniBand and RoCE off"
    if reading.software.topology_file is False:
        yield f"{TOPOLOGY}={conf.settings[TOPOLOGY]} does not exist"
    if GDR_LEVEL not in conf.settings:
        return
    value = conf.settings[GDR_LEVEL]
    known, level = gdr_level(value)
    if not known:
        yield f"{GDR_LEVEL}={value} is not a level"
    elif level is None:
        yield f"{GDR_LEVEL}={value} switches GPUDirect RDMA off"
    else:
        nearest = {gpu.index: best for gpu, _, _, best in all_paths(reading) if best is not None}
        too_far = [f"GPU {index} ({path.name})" for index, path in nearest.items() if path > level]
        if too_far:
            yield f"{GDR_LEVEL}={value} is nearer than the nearest NIC of {', '.join(too_far)}"


def _known(name: str, wrong: str) -> GpudirectCheck:
    """Return the result of a check that was made: FAILED where something is wrong."""
    return GpudirectCheck(name, CheckState.FAILED if wrong else CheckState.PASSED, wrong)


def _unknown(name: str, why: Absent, evidence: str, privilege: str = "root") -> GpudirectCheck:
    """Return the result of an impossible check; a privilege is named only where the permission was denied."""
    needs = privilege if why.why is Why.DENIED else "none"
    return GpudirectCheck(name, CheckState.UNKNOWN, evidence, needs)
