"""Every bundled fault on the demo node: which findings it makes, of what, with which numbers and advice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.support import Node
from wirewatch.core.types import Health
from wirewatch.hw.overlay import bundled_overlays, load_overlay

DEMO = "demo-dgx-h200"
ROUNDS, EVERY, RARELY = 20, 15.0, 60.0
"""Rounds of so many seconds; the faults begin after 20 s, the last has shown itself after 4 minutes.

Collectors run in them as in service; those of five minutes, and ibstat, run each minute.
"""
OF_THE_DRIVER = frozenset({"gpu-hang", "gpu-slow", "driver-crash"})
"""These need a process that hangs or dies: tests/daemon/test_faults_of_the_driver.py."""
D, U, F = Health.DEGRADED, Health.UNKNOWN, Health.FAILED


@dataclass(frozen=True)
class Told:
    """A finding; `evidence` and `action` are parts of its texts."""

    rule: str
    subject: str
    health: Health
    evidence: str
    action: str


def watch(node: Node, rounds: int = ROUNDS) -> None:
    for _ in watching(node, rounds):
        pass


def watching(node: Node, rounds: int = ROUNDS) -> Iterator[None]:
    """Poll it round by round, for whoever has seen enough before the last."""
    node.options("infiniband", ibstat_interval=RARELY)
    for number in range(rounds):
        due = (
            name
            for name, collector in node.collectors.items()
            if number * EVERY % max(EVERY, min(collector.options.interval, RARELY)) == 0
        )
        node.poll(*due, every=EVERY)
        yield


def one(rule: str, subject: str, health: Health, evidence: str, action: str) -> Sequence[Told]:
    return (Told(rule, subject, health, evidence, action),)


LOST = "has fallen off the bus"
TABLE: dict[str, Sequence[Told]] = {
    "nvlink-link-down": one("nvlink.link_down", "GPU 2 link 7", F, "inactive; 17 of 18 links up", "drain"),
    "nvlink-link-slow": one("nvlink.link_slow", "GPU 2 link 7", F, "1.562 GB/s, usual 26.562", "drain"),
    "nvlink-all-down": one("nvlink.down", "GPU 2", F, "all 18 links are inactive", "drain"),
    "nvlink-crc": one("nvlink.crc_errors", "GPU 2", D, "in 60 s", "link"),
    "nvlink-replay": one("nvlink.replay_errors", "GPU 4", D, "5 in 3600 s", "link"),
    "nvlink-recovery": one("nvlink.recovery_errors", "GPU 6", D, "in 3600 s", "link"),
    "fabric-not-registered": one("fabric.state", "GPU 1", F, "registration in_progress", "fabric"),
    "gpu-throttle-thermal": one("gpu.throttle", "GPU 3 hw_thermal_slowdown", D, "polls in a row", "fans"),
    "gpu-power-brake": one("gpu.throttle", "GPU 0 hw_power_brake", D, "polls in a row", "power supplies"),
    "gpu-ecc-uncorrected": one("gpu.ecc_uncorrected", "GPU 5 dram", D, "2 uncorrected dram errors", "reset"),
    "gpu-row-remap-pending": one("gpu.row_remap_pending", "GPU 5", D, "1 uncorrected rows", "reset the GPU"),
    "gpu-row-remap-failed": one("gpu.row_remap_failed", "GPU 5", F, "8 uncorrected rows", "replace"),
    "gpu-recovery-action": one("gpu.recovery_action", "GPU 7", F, "asks for gpu reset", "reset the GPU"),
    "gpu-lost": (
        Told("gpu.lost", "GPU 5", F, f"0000:c3:00.0: lost: GPU {LOST}", "XID 79"),
        *(Told(f"{name}.blind", "GPU 5", U, LOST, "drain") for name in ("gpu", "nvlink", "pcie")),
    ),
    "pcie-x8": one("pcie.width", "GPU 1", F, "x8 of x16 lanes", "reseat"),
    "pcie-generation": one("pcie.generation", "GPU 1", F, "generation 3 of 5 while the GPU works", "reseat"),
    "pcie-slot": one("pcie.slot", "GPU 6", D, "generation 4, the other GPUs here 5", "slot"),
    "pcie-replays": one("pcie.replays", "GPU 4", D, "replays in a minute, limit 31", "reseat"),
    "pcie-aer": one("pcie.aer", "GPU 4", D, "1 fatal PCIe errors", "AER"),
    "ib-port-down": (
        Told("infiniband.port_down", "mlx5_2 port 1", F, "down, physical state polling; was active", "cable"),
    ),
    "ib-port-polling": one("infiniband.port_inactive", "mlx5_3 port 1", D, "7 of 8 ports of cards", "cable"),
    "ib-port-init": (
        Told("infiniband.port_down", "mlx5_1 port 1", F, "init, physical state link_up", "subnet manager"),
    ),
    "ib-port-slow": (
        Told("infiniband.port_slow", "mlx5_6 port 1", F, "100 Gb/s (1X NDR), expected 400 Gb/s", "cable"),
    ),
    "ib-port-flapping": one("infiniband.port_flapping", "mlx5_5 port 1", F, "3 times within 12 h", "cable"),
    "ib-symbol-errors": one("infiniband.symbol_errors", "mlx5_0 port 1", D, "in 3600 s", "cable"),
    "ib-counter-saturated": (
        Told("infiniband.symbol_errors", "mlx5_0 port 1", D, "65535 in 3600 s", "cable"),
        Told("infiniband.counter_saturated", "mlx5_0 port 1", D, "symbol at 65535", "perfquery -R"),
    ),
    "ib-link-downed": one("infiniband.link_downed_errors", "mlx5_4 port 1", D, "1 in 3600 s", "cable"),
    "ib-device-gone": one(
        "infiniband.device_gone", "mlx5_4", F, "mlx5_core is bound to 0000:9a:00.0", "driver"
    ),
    "ib-unreadable": one("infiniband.blind", "mlx5_7 port 1", U, "state: ", "driver does not answer"),
    "nic-moved": (),
    "nic-pcie-x8": one("infiniband.pcie", "mlx5_2", F, "8 of 16 lanes", "reseat"),
    "nic-cable-hot": one("kernel.nic_module", "0000:40:00", D, "High Temperature", "cable"),
    "ibstat-disagrees": one("infiniband.ibstat_disagrees", "node", D, "255) lists none of 10", "ibstat"),
    "peermem-unloaded": (),
    "gpudirect-lost": one("gpudirect.peer_memory", "node", D, "no peer memory module", "nvidia_peermem"),
    "acs-on": one("gpudirect.acs", "0000:17:00.0", D, "ReqRedir CmpltRedir", "setpci"),
    "iommu-translates": one("gpudirect.iommu", "node", D, "translates for 0000:1b:00.0", "iommu=pt"),
    "nccl-conf-gdr-off": one("gpudirect.nccl_conf", "node", D, "GPUDirect RDMA off", "nccl.conf"),
    "xid-79": one("xid.79", "GPU 5", F, f"GPU {LOST}", "reboot"),
    "xid-74": one("xid.74", "GPU 6 link 14", F, "on link 14(0x0", "other end"),
    "xid-149": one("xid.149", "GPU 2 link 9", F, "registers not decoded", "other end"),
    "xid-154": one("xid.154", "GPU 1", F, "0x2 (Node Reboot Required)", "reboot the node"),
    "xid-94": one("xid.94", "GPU 0", D, "contained memory error", "restart the application"),
    "sxid-fatal": one("sxid.20034", "link 30 0000:07:00", F, "LTSSM Fault Up", "fabric manager"),
    "probe-slow": one("probe.busbw", "node", F, "173.6 GB/s, 50 % of the expected 349.5", "keep jobs away"),
    "probe-host-memory": (
        Told("probe.busbw", "node", F, "26.7 GB/s, 8 % of the expected", "peer matrix"),
        Told("probe.transport", "node", F, "host memory (SHM/direct/direct) where NVLink is", "peer access"),
    ),
    "probe-wrong-data": one("probe.wrong_data", "node", F, "all_reduce of 256 MiB: 3 elements", "drain"),
    "probe-link-errors": one("probe.link_errors", "GPU 2", D, "5 replay", "reseat"),
    "probe-uneven": one("probe.uneven", "GPU 2 link 7", D, "49 % away", "this link"),
    "straggler-compute": one("straggler.compute", "GPU 3", F, "29 % slower than its peers", "clocks"),
    "straggler-memory": one("straggler.memory", "GPU 6", D, "17 % slower than its peers", "ECC"),
    "straggler-source": one("straggler.source", "GPU 5", F, "33 % slower than its peers", "NVLink"),
    "straggler-destination": one("straggler.destination", "GPU 2", D, "23 % slower than its peers", "NVLink"),
    "straggler-pair": one("straggler.pair", "GPU 6", F, "from GPU 6 to GPU 7", "links between"),
    "probe-no-nvls": one("probe.nvls", "node", D, "took ring where NVLink SHARP", "multicast"),
    "gpu-busy": (),
    "gpu-mig": (),
}  # fmt: skip
AFTER_HALF_AN_HOUR = frozenset({"probe-fails"})
"""These show themselves only after several probes."""


def test_every_bundled_fault_is_in_the_table() -> None:
    assert set(bundled_overlays()) == set(TABLE) | OF_THE_DRIVER | AFTER_HALF_AN_HOUR
    assert len(TABLE) >= 25
    assert all(load_overlay(name).about for name in bundled_overlays())


def test_the_healthy_demo_has_no_finding() -> None:
    node = Node(DEMO)
    watch(node)
    assert node.findings() == ()
    assert node.health() is Health.OK
    assert all(c.applicable for c in node.state.components.values())


@pytest.mark.parametrize("name", TABLE)
def test_a_fault_makes_its_findings_and_no_other(name: str) -> None:
    node = Node(DEMO, load_overlay(name).changes)
    watch(node)
    found = {(f.rule, str(f.subject)): f for f in node.findings()}
    assert {(*key, f.health) for key, f in found.items()} == {
        (t.rule, t.subject, t.health) for t in TABLE[name]
    }
    for told in TABLE[name]:
        finding = found[told.rule, told.subject]
        assert told.evidence in finding.evidence
        assert told.action in finding.action


def test_a_probe_that_cannot_be_done_is_told_after_three_and_is_no_fault_of_the_hardware() -> None:
    node = Node(DEMO, load_overlay("probe-fails").changes)
    watch(node, 70)
    assert node.findings() == ()
    watch(node, 35)
    (told,) = node.findings()
    assert (told.rule, told.health) == ("probe.failed", U)
    assert "3 probes in a row could not be done" in told.evidence
    assert node.series("probe_runs_total", result="failed") == [3]


def test_a_busy_node_is_not_probed_and_says_why() -> None:
    node = Node(DEMO, load_overlay("gpu-busy").changes)
    watch(node)
    assert node.series("probe_skips_total", reason="busy") == [1]
    assert node.series("probe_last_success_timestamp_seconds") == [0]
    assert node.series("probe_busbw_ratio") == []


def test_mig_has_nothing_to_probe() -> None:
    node = Node(DEMO, load_overlay("gpu-mig").changes)
    watch(node)
    assert node.state.components["probe"].applicable is False
    assert node.state.components["probe"].health is None


def test_a_card_that_a_pod_has_is_told_as_away() -> None:
    node = Node(DEMO, load_overlay("nic-moved").changes)
    watch(node)
    assert node.series("rdma_device_away_info", device="mlx5_4") == [1]


def test_without_peermem_dma_buf_is_likely() -> None:
    node = Node(DEMO, load_overlay("peermem-unloaded").changes)
    node.poll(times=2)
    assert node.series("gpudirect_info", peer_memory="dma-buf likely") == [1]
    assert node.series("gpudirect_check_state", check="peer_memory", state="passed") == [1]
