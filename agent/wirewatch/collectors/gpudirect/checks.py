"""What stands in the way of GPUDirect RDMA: each question answered with yes, no, or cannot tell and why."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from wirewatch.collectors.gpudirect.paths import all_paths, hidden
from wirewatch.collectors.gpudirect.values import Memory, Reading, Software
from wirewatch.core.ncclconf import GDR_LEVEL, IB_OFF, TOPOLOGY, NcclConf, gdr_level
from wirewatch.core.types import Absent, Why

DMA_BUF_KERNEL = (5, 12)
"""First kernel whose RDMA core takes dma-buf memory."""
TRANSLATING = ("DMA", "DMA-FQ")
X86 = "x86_64"


KnownAcs = Mapping[str, tuple[str, ...] | Absent]


class State(Enum):
    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """One answer; `evidence` says what was seen, `needs` which privilege it would take to see it."""

    name: str
    state: State
    evidence: str
    needs: str = ""


def _unknown(name: str, why: Absent, evidence: str, privilege: str = "root") -> Check:
    """Cannot tell; what is not a matter of permission no privilege helps."""
    needs = privilege if why.why is Why.DENIED else "none"
    return Check(name, State.UNKNOWN, evidence, needs)


def known_acs(memory: Memory, reading: Reading) -> KnownAcs:
    """What is known of each bridge; one that cannot be read now is as it was."""
    known: dict[str, tuple[str, ...] | Absent] = {}
    for bridge, bits in reading.acs.items():
        last = memory.acs.get(bridge, bits) if isinstance(bits, Absent) else bits
        known[bridge] = last if isinstance(last, Absent) else tuple(last)
    return known


def checks(reading: Reading, acs: KnownAcs) -> Iterator[Check]:
    """All that apply here; on a machine whose PCI bridges are hidden nothing is said of them."""
    yield _stack(reading.software)
    yield _peer_memory(reading.software)
    yield _conf(reading)
    if not hidden(reading.gpus, reading.nics, reading.nodes):
        yield _acs(acs)
        if reading.machine == X86:
            yield _iommu(reading)


def _stack(software: Software) -> Check:
    if isinstance(software.verbs, Absent):
        return _unknown("rdma_stack", software.verbs, str(software.verbs))
    version = software.stack or "the kernel's own"
    if software.verbs:
        return Check("rdma_stack", State.PASSED, f"user verbs are there, version {version}")
    return Check("rdma_stack", State.FAILED, "ib_uverbs is not loaded: no program can open an RDMA device")


def dma_buf(software: Software) -> bool | Absent:
    """Whether the kernel and the driver can share GPU memory as dma-buf; only a job's own log proves it."""
    if isinstance(software.module, Absent):
        return software.module
    if isinstance(software.kernel, Absent):
        return software.kernel
    match = re.match(r"(\d+)\.(\d+)", software.kernel)
    new = bool(match) and (int(match[1]), int(match[2])) >= DMA_BUF_KERNEL if match else False
    return software.module == "open" and new


def peer_memory(software: Software) -> str:
    """`peermem`, `dma-buf likely`, `both likely`, `none` or `unknown`."""
    shared = dma_buf(software)
    if not isinstance(software.peermem, Absent) and software.peermem:
        return "both likely" if shared is True else "peermem"
    if shared is True:
        return "dma-buf likely"
    return "unknown" if isinstance(shared, Absent) or isinstance(software.peermem, Absent) else "none"


def _peer_memory(software: Software) -> Check:
    how = peer_memory(software)
    if how == "unknown":
        reasons = [a for a in (software.peermem, dma_buf(software)) if isinstance(a, Absent)]
        return _unknown("peer_memory", reasons[0], "; ".join(map(str, reasons)))
    if how == "none":
        evidence = (
            f"no peer memory module is loaded, and no dma-buf with the {software.module} kernel module "
            f"of the driver on Linux {software.kernel}"
        )
        return Check("peer_memory", State.FAILED, evidence)
    return Check("peer_memory", State.PASSED, how)


def _acs(acs: KnownAcs) -> Check:
    redirecting = {bridge: bits for bridge, bits in acs.items() if not isinstance(bits, Absent) and bits}
    if redirecting:
        told = "; ".join(f"{bridge}: {' '.join(bits)}" for bridge, bits in redirecting.items())
        return Check("acs", State.FAILED, told)
    barred = [bits for bits in acs.values() if isinstance(bits, Absent)]
    if barred:
        told = f"{len(barred)} of {len(acs)} bridges: {barred[0]}"
        return _unknown("acs", barred[0], told, "CAP_SYS_ADMIN")
    return Check("acs", State.PASSED, f"none of {len(acs)} bridges between GPUs and NICs redirects")


def _iommu(reading: Reading) -> Check:
    translated = [
        a for a, kind in reading.iommu.items() if not isinstance(kind, Absent) and kind in TRANSLATING
    ]
    if translated:
        return Check("iommu", State.FAILED, f"translates for {', '.join(translated)}")
    barred = [kind for kind in reading.iommu.values() if isinstance(kind, Absent)]
    if barred:
        return _unknown("iommu", barred[0], str(barred[0]))
    kinds = sorted({str(kind) or "off" for kind in reading.iommu.values()}) or ["off"]
    return Check("iommu", State.PASSED, ", ".join(kinds))


def _conf(reading: Reading) -> Check:
    conf = reading.software.conf
    if isinstance(conf, Absent):
        return _unknown("nccl_conf", conf, str(conf))
    wrong = [*_settings(conf, reading)]
    if wrong:
        return Check("nccl_conf", State.FAILED, "; ".join(wrong))
    if isinstance(reading.software.topology_file, Absent):
        return _unknown("nccl_conf", reading.software.topology_file, str(reading.software.topology_file))
    return Check(
        "nccl_conf", State.PASSED, ", ".join(f"{k}={v}" for k, v in conf.settings.items()) or "not there"
    )


def _settings(conf: NcclConf, reading: Reading) -> Iterator[str]:
    """What the settings of this host take from every job on it."""
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
        paths = [*all_paths(reading.gpus, reading.nics, reading.nodes)]
        too_far = [
            f"GPU {g.index} ({p.name})"
            for g, _, p, best in paths
            if best and not isinstance(p, Absent) and p > level
        ]
        if too_far:
            yield f"{GDR_LEVEL}={value} is nearer than the nearest NIC of {', '.join(dict.fromkeys(too_far))}"
