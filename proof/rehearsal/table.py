"""Which alerts each bundled overlay must raise: by docs/runbook.md and docs/recordings.md, not by what came.

A FAILED finding is a page (critical), a DEGRADED or UNKNOWN one a ticket. What has more than one alert has
more than one finding in the runbook, and says why here. A fault that has no line here is held to the findings
in its own file and to the alerts of their rules.
"""

from collections.abc import Mapping
from dataclasses import asdict

from proof.rehearsal.expected import CRITICAL, TICKET, Alert, Change, Ending, Row
from wirewatch.catalogue import components, rule_of
from wirewatch.core.types import Health
from wirewatch.hw.overlay import Expected, bundled_overlays, load_overlay

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
GRACE = 21
"""Looks until a fabric that does not register is FAILED: 300 s of 15 s each, and one more."""
FIRST_LEFT_OUT = 10.0
"""Seconds for which a GPU that hangs is left out at first; it doubles each time (hw/nvml/client.py)."""


def page(name: str, **labels: str) -> Alert:
    return Alert(f"Wirewatch{name}", CRITICAL, tuple(labels.items()))


def ticket(name: str, **labels: str) -> Alert:
    return Alert(f"Wirewatch{name}", TICKET, tuple(labels.items()))


def failed(alert: Alert, collector: str, looks: int = 3, ending: Ending = Ending.ACK, **more: float) -> Row:
    """FAILED after so many looks, on probation when it is over, until an operator says it was repaired."""
    return Row((alert,), collector, looks, ending=ending, **more)  # type: ignore[arg-type]


def degraded(alert: Alert, collector: str, looks: int = 1, told: float = 0.0, **more: float) -> Row:
    """DEGRADED, and over when it is not seen, or so long after it was."""
    return Row((alert,), collector, looks, told=told, **more)  # type: ignore[arg-type]


BLIND = ticket("NodeUnknown")
"""UNKNOWN has no severity series: the node's health shows it."""
NVLINK: Mapping[str, Row] = {
    # Nobody acknowledges this one: the ticket of its probation comes and goes by itself.
    "nvlink-link-down": Row(
        (page("NVLinkDown", gpu="2", link="7"),), "nvlink", 3, ending=Ending.PROBATION,
        later=(ticket("NVLinkDown", gpu="2", link="7"),),
    ),
    "nvlink-all-down": failed(page("NVLinkDown", gpu="2"), "nvlink"),
    "nvlink-link-slow": failed(page("NVLinkSlow", gpu="2", link="7"), "nvlink"),
    "nvlink-crc": degraded(ticket("NVLinkErrors", gpu="2", rule="nvlink.crc_errors"), "nvlink", 3, MINUTE),
    "nvlink-replay": degraded(
        ticket("NVLinkErrors", gpu="4", rule="nvlink.replay_errors"), "nvlink", told=HOUR
    ),
    "nvlink-recovery": degraded(
        ticket("NVLinkErrors", gpu="6", rule="nvlink.recovery_errors"), "nvlink", 2, HOUR
    ),
    # UNKNOWN for five minutes at first: registration may take that long.
    "fabric-not-registered": failed(page("Fabric", gpu="1", rule="fabric.state"), "nvlink", GRACE),
}  # fmt: skip
GPU: Mapping[str, Row] = {
    "gpu-throttle-thermal": degraded(ticket("Throttled", gpu="3", device="hw_thermal_slowdown"), "gpu", 3),
    "gpu-power-brake": degraded(ticket("Throttled", gpu="0", device="hw_power_brake"), "gpu", 3),
    "gpu-ecc-uncorrected": degraded(
        ticket("GPUMemory", gpu="5", device="dram", rule="gpu.ecc_uncorrected"), "gpu", told=DAY
    ),
    "gpu-row-remap-pending": degraded(ticket("GPUMemory", gpu="5", rule="gpu.row_remap_pending"), "gpu"),
    "gpu-row-remap-failed": failed(page("GPUMemory", gpu="5", rule="gpu.row_remap_failed"), "gpu", 1),
    "gpu-recovery-action": failed(page("XidRecovery", gpu="7", rule="gpu.recovery_action"), "gpu", 2),
    # gpu.blind, nvlink.blind and pcie.blind come with it; FAILED is the worse, so no NodeUnknown.
    "gpu-lost": failed(page("GPULost", gpu="5"), "inventory", 2, Ending.RELEASE),
    # NVML counts its GPUs when it starts: the agent finds one that is missing when it starts itself.
    "gpu-missing": Row(
        (page("GPULost", gpu="7", rule="gpu.missing"),), "inventory", 2, ending=Ending.RELEASE, at_start=True
    ),
    # The process that hangs is killed after 5 s; then the GPU is left out and tried again, ever more seldom.
    "gpu-hang": Row((BLIND,), "gpu", ending=Ending.RELEASE, real=3 * FIRST_LEFT_OUT),
    "gpu-slow": Row((BLIND,), "gpu", ending=Ending.RELEASE, real=3 * FIRST_LEFT_OUT),
    "driver-crash": Row((BLIND,), "gpu", ending=Ending.RELEASE, real=3 * FIRST_LEFT_OUT),
}  # fmt: skip
PCIE: Mapping[str, Row] = {
    "pcie-x8": failed(page("PCIeLink", gpu="1", rule="pcie.width"), "pcie"),
    "pcie-generation": failed(page("PCIeLink", gpu="1", rule="pcie.generation"), "pcie"),
    # A slot is asked once a boot: nothing but a reboot changes it.
    "pcie-slot": Row(
        (ticket("PCIeLink", gpu="6", rule="pcie.slot"),), "pcie", ending=Ending.REBOOT, at_start=True
    ),
    # Replays are counted over a minute of the clock.
    "pcie-replays": degraded(ticket("PCIeErrors", gpu="4", rule="pcie.replays"), "pcie", 3, real=MINUTE),
    "pcie-aer": degraded(ticket("PCIeErrors", gpu="4", rule="pcie.aer"), "pcie", told=DAY),
}  # fmt: skip
RDMA: Mapping[str, Row] = {
    "ib-port-down": failed(page("PortDown", device="mlx5_2", port="1"), "infiniband"),
    # A port may wait for the subnet manager for a minute.
    "ib-port-init": failed(page("PortDown", device="mlx5_1", port="1"), "infiniband", 5),
    # A rail of the GPUs that was never seen to work: nobody knows whether it is meant so.
    "ib-port-polling": Row((BLIND,), "infiniband", at_start=True),
    "ib-device-gone": failed(page("PortDown", device="mlx5_4", rule="infiniband.device_gone"), "infiniband"),
    "ib-port-slow": failed(page("PortSlow", device="mlx5_6", port="1"), "infiniband"),
    "nic-pcie-x8": failed(page("PortSlow", device="mlx5_2", rule="infiniband.pcie"), "infiniband"),
    # It is down for 45 of 60 seconds: first a port that is down, and with the third time one that flaps.
    "ib-port-flapping": Row(
        (page("PortFlapping", device="mlx5_5", port="1"), page("PortDown", device="mlx5_5", port="1")),
        "infiniband", 3, ending=Ending.ACK, told=12 * HOUR,
    ),
    "ib-symbol-errors": degraded(
        # 120 an hour, at one a second.
        ticket("PortErrors", device="mlx5_0", rule="infiniband.symbol_errors"), "infiniband", 9, HOUR
    ),
    "ib-link-downed": degraded(
        ticket("PortErrors", device="mlx5_4", rule="infiniband.link_downed_errors"), "infiniband", told=HOUR
    ),
    # 65,535 errors are errors, and the counter that stands at its ceiling is blind: two things to put right.
    "ib-counter-saturated": Row(
        (
            ticket("PortErrors", device="mlx5_0", rule="infiniband.symbol_errors"),
            ticket("PortErrors", device="mlx5_0", rule="infiniband.counter_saturated"),
        ), "infiniband", told=HOUR,
    ),
    "ib-unreadable": Row((BLIND,), "infiniband"),
    "ibstat-disagrees": Row((ticket("Finding", rule="infiniband.ibstat_disagrees"),), "ibstat", 2),
    "nic-cable-hot": degraded(
        ticket("PortErrors", device="mlx5_1", rule="kernel.nic_module"), "xid", told=DAY
    ),
    "gpudirect-lost": degraded(ticket("GPUDirectLost", rule="gpudirect.peer_memory"), "gpudirect", 2),
    "acs-on": degraded(ticket("GPUDirectLost", rule="gpudirect.acs", device="0000:17:00.0"), "acs", 1),
    "iommu-translates": degraded(ticket("GPUDirectLost", rule="gpudirect.iommu"), "gpudirect", 2),
    "nccl-conf-gdr-off": degraded(ticket("GPUDirectLost", rule="gpudirect.nccl_conf"), "gpudirect", 2),
}  # fmt: skip
KERNEL: Mapping[str, Row] = {
    "xid-74": failed(page("XidNVLink", gpu="6", link="14", rule="xid.74"), "xid", 1, Ending.LATCHED),
    "xid-79": failed(page("XidReboot", gpu="5", rule="xid.79"), "xid", 1, Ending.REBOOT),
    "xid-94": Row((ticket("XidRestart", gpu="0", rule="xid.94"),), "xid", ending=Ending.LATCHED),
    "xid-149": failed(page("XidNVLink", gpu="2", link="9", rule="xid.149"), "xid", 1, Ending.LATCHED),
    "xid-154": failed(page("XidRecovery", gpu="1", rule="xid.154"), "xid", 1, Ending.REBOOT),
    "sxid-fatal": failed(page("SwitchError", link="30", device="0000:07:00"), "xid", 1, Ending.REBOOT),
}  # fmt: skip


def slow(signal: str, gpu: str, *, twice_over: bool = False) -> Row:
    """Three probes in a row; two where the part has lost what it takes to be FAILED twice over."""
    again = 1 if twice_over else 2
    return Row((page("Straggler", gpu=gpu, rule=f"straggler.{signal}"),), "probe", 1, again, Ending.ACK)


def rather_slow(signal: str, gpu: str) -> Row:
    return Row((ticket("Straggler", gpu=gpu, rule=f"straggler.{signal}"),), "probe", 1, 1)


PROBE: Mapping[str, Row] = {
    "probe-slow": Row((page("BusbwLow"),), "probe", 1, 1, Ending.ACK),
    # From the start: after ten healthy probes it would be slower than usual.
    "probe-unknown-product": Row((page("ProbeImplausible"),), "probe", 1, 1, Ending.ACK, at_start=True),
    # That it is slow, and why: the way that NCCL took.
    "probe-host-memory": Row(
        (page("BusbwLow"), page("ProbePath", rule="probe.transport")), "probe", 1, 1, Ending.ACK
    ),
    "probe-wrong-data": Row((page("WrongData"),), "probe", ending=Ending.LATCHED),
    "probe-link-errors": Row((ticket("NVLinkErrors", gpu="2", rule="probe.link_errors"),), "probe"),
    "probe-uneven": Row((ticket("ProbePath", gpu="2", link="7", rule="probe.uneven"),), "probe"),
    "probe-no-nvls": Row((ticket("ProbePath", rule="probe.nvls"),), "probe"),
    "probe-fails": Row((BLIND,), "probe", 3),
    "host-link-slow": Row((page("ProbeHostLink", gpu="5"),), "probe", 1, 1, Ending.ACK),
    "straggler-compute": slow("compute", "3"),
    "straggler-memory": rather_slow("memory", "6"),
    "straggler-source": slow("source", "5"),
    "straggler-destination": rather_slow("destination", "2"),
    "straggler-pair": slow("pair", "6", twice_over=True),
}
HARMLESS: Mapping[str, Row] = {
    name: Row((), at_start=name in {"gpu-mig", "peermem-unloaded"})
    for name in ("gpu-busy", "gpu-mig", "nic-moved", "peermem-unloaded")
}
# The job has the GPUs all the time, and no probe runs on them for what two weeks are here.
HANGS: Mapping[str, Row] = {
    name: Row(
        (ticket("JobHangs", gpu=gpu, rule=rule),), "hangs", 3, besides=(ticket("ProbeStale"),)
    )
    for name, gpu, rule in (
        ("job-hang-skipped", "5", "hangs.asymmetric"), ("job-hang-stopped", "3", "hangs.stopped"),
    )
}  # fmt: skip
WRITTEN: Mapping[str, Row] = {**NVLINK, **GPU, **PCIE, **RDMA, **KERNEL, **PROBE, **HANGS, **HARMLESS}


def derived(name: str) -> Row:
    """What a fault must raise by the findings that its file names and by the rules of its collector."""
    findings = load_overlay(name).findings
    alerts = tuple(dict.fromkeys(_alert(one) for one in findings))
    owner = next(one for one in components() if rule_of(findings[0].rule, one.rules))
    paged = any(one.severity == CRITICAL for one in alerts)
    looks = getattr(owner.policy, "confirm", 3)
    return Row(alerts, owner.name, looks, ending=Ending.ACK if paged else Ending.ITSELF)


def _alert(one: Expected) -> Alert:
    rule = rule_of(one.rule)
    assert rule is not None, f"no collector declares {one.rule}"
    if one.health is Health.UNKNOWN:
        return BLIND
    where = {key: value for key, value in asdict(one.subject).items() if value}
    severity = CRITICAL if one.health is Health.FAILED else TICKET
    return Alert(rule.reported, severity, (*where.items(), ("rule", one.rule)))


TABLE: Mapping[str, Row] = {
    **WRITTEN,
    **{name: derived(name) for name in bundled_overlays() if name not in WRITTEN},
}


def xids(*lines: str) -> tuple[Change, ...]:
    """The kernel log of the demo node with these XIDs of GPU 0."""
    records = [
        f"4,{2000 + number},{864310000000 + number},-;NVRM: Xid (PCI:0000:1b:00): {line}"
        for number, line in enumerate(lines)
    ]
    return ({"port": "kmsg", "match": "Records()", "set": records},)


LISTED = [f"mlx5_{number}" for number in range(10) if number != 4]
NO_IBSTAT: Change = {"port": "command", "match": "ibstat()", "errno": "ENOENT"}
OTHERS: Mapping[str, Row] = {
    "agent-killed": Row(
        (ticket("AgentDown"),), "agent", 0, kills=True, about="the agent is killed, and started again"
    ),
    # Three starts within an hour, of which each takes a few seconds that nothing squeezes.
    "agent-crashes": Row(
        (ticket("AgentRestarting"),), "agent", 0, told=HOUR, real=30.0, crashes=True,
        about="the agent is killed a minute after each of its starts, for a quarter of an hour",
    ),
    # It was there when the baseline was learned; since the agent was started it was not. Its PCI device is
    # known from before; once that is acknowledged, it is missing in the baseline.
    "nic-gone-at-boot": Row(
        (page("PortDown", device="0000:9a:00.0", rule="infiniband.device_gone"),), "infiniband",
        ending=Ending.ACK, at_start=True,
        later=(page("TopologyDrift", device="mlx5_4", rule="topology.nic_lost"),),
        changes=({"port": "sysfs", "match": "list /sys/class/infiniband", "set": LISTED}, NO_IBSTAT),
        about="mlx5_4 is not there when the node comes up",
    ),
    "xid-13-repeated": Row(
        (ticket("XidApplication", gpu="0", rule="xid.13"),), "xid", ending=Ending.LATCHED,
        changes=xids(*(f"13, pid={4711 + n}, name=train, Graphics SM Warp Exception" for n in range(10))),
        about="an error of applications, of ten processes on GPU 0 alone",
    ),
    "xid-48": Row(
        (page("XidReset", gpu="0", rule="xid.48"),), "xid", ending=Ending.LATCHED,
        changes=xids("48, pid=4711, name=train, DBE (double bit error)"), about="a double-bit error of GPU 0",
    ),
    "xid-63": Row(
        (ticket("XidResetLater", gpu="0", rule="xid.63"),), "xid", ending=Ending.LATCHED,
        changes=xids("63, pid=4711, name=train, Row Remapper: New row marked for remapping"),
        about="GPU 0 will replace a row with the next reset",
    ),
    "xid-92": Row(
        (ticket("XidSupport", gpu="0", rule="xid.92"),), "xid", ending=Ending.LATCHED,
        changes=xids("92, pid=4711, name=train, High single-bit ECC error rate"),
        about="GPU 0 corrects many errors: a matter for the vendor",
    ),
}  # fmt: skip
"""Faults without an overlay of their own, for alerts that no bundled one raises."""
ALL: Mapping[str, Row] = {**TABLE, **OTHERS}
