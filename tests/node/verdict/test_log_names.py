"""What the kernel's log says of a card or a port has the name that the other collectors give it."""

from pathlib import Path

import pytest

from tests.node.products.machine import draw
from tests.node.products.rows import ROWS
from tests.node.verdict.recordednode import RecordedNode
from tests.support import Node
from wirewatch.core.types import Health
from wirewatch.hw.overlay import AnswerChange
from wirewatch.verdict.ledger import Stage

NIC = "0000:4f:00.0"
"""mlx5_2 of the demo."""
DEAD = f"mlx5_core {NIC}: device's health compromised - reached miss count"
ALL = ("inventory", "infiniband", "topology", "xid")


def said(node: RecordedNode, *lines: str) -> None:
    told = [f"4,{3000 + n},{864310 + n}000000,-;{line}" for n, line in enumerate(lines)]
    node.change("Records()", "set", told, port="kmsg")


def shown(node: RecordedNode) -> set[tuple[str, str, Health]]:
    return {(one.rule, str(one.subject), one.health) for one in node.verdict.findings}


def test_a_card_whose_firmware_is_dead_is_named_as_its_device(tmp_path: Path) -> None:
    node = RecordedNode(tmp_path, only=ALL)
    said(node, DEAD)
    node.poll(times=2)
    assert shown(node) == {("kernel.nic_failed", "mlx5_2", Health.FAILED)}


def test_a_card_gets_its_name_as_soon_as_its_device_is_read_and_keeps_one_entry(tmp_path: Path) -> None:
    node = RecordedNode(tmp_path, only=ALL)
    said(node, DEAD)
    node.poll("xid")
    assert shown(node) == {("kernel.nic_failed", NIC, Health.FAILED)}
    node.poll("infiniband", "xid")
    assert shown(node) == {("kernel.nic_failed", "mlx5_2", Health.FAILED)}
    assert len(node.ledger.entries) == 1


def test_a_card_that_its_driver_recovers_is_on_probation_and_not_failed_for_ever(tmp_path: Path) -> None:
    node = RecordedNode(tmp_path, only=ALL)
    said(node, DEAD)
    node.poll(times=2)
    said(node, DEAD, f"mlx5_core {NIC}: mlx5_health_try_recover:343:(pid 9): health recovery succeeded")
    node.poll(times=2)
    assert (node.health, node.stages()) == (Health.DEGRADED, {"kernel.nic_failed": Stage.PROBATION})
    said(node, DEAD, f"mlx5_core {NIC}: firmware version: 28.39.1002", DEAD)
    node.poll(times=2)
    assert node.health is Health.FAILED


def test_an_event_whose_text_was_not_read_keeps_jobs_away_and_leaves_nothing_behind(tmp_path: Path) -> None:
    node = RecordedNode(tmp_path, only=ALL)
    node.change("gpu*/Field(230)", "code", 3)
    sequel = "NVRM: Xid (PCI:0000:1b:00): 45, pid=7, name=x, Ch 00000008 caused by previous Xid 149"
    said(node, sequel)
    node.poll(times=2)
    assert (node.health, node.stages()) == (Health.UNKNOWN, {})
    said(
        node, sequel,
        "NVRM: Xid (PCI:0000:1b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000)",
    )  # fmt: skip
    node.poll()
    assert (node.health, node.stages()) == (Health.OK, {})


def bridge(node: RecordedNode, address: str) -> str:
    path = node.node.hardware.sysfs.link(f"/sys/bus/pci/devices/{address}")
    assert isinstance(path, str)
    return path.split("/")[-2]


@pytest.mark.parametrize(("address", "name"), [(NIC, "mlx5_2"), ("0000:1b:00.0", "GPU 0")])
def test_a_port_is_named_as_what_is_right_below_it(tmp_path: Path, address: str, name: str) -> None:
    node = RecordedNode(tmp_path, only=ALL)
    said(node, f"pcieport {bridge(node, address)}: DPC: containment event, status:0x1f01 source:0x0000")
    node.poll(times=2)
    assert shown(node) == {("kernel.pcie_fatal", name, Health.DEGRADED)}


def test_a_port_with_nothing_of_ours_below_it_keeps_its_address(tmp_path: Path) -> None:
    node = RecordedNode(tmp_path, only=ALL)
    said(node, "pcieport 0000:fe:00.0: pciehp: Slot(3): Link Down")
    node.poll(times=2)
    assert shown(node) == {("kernel.pcie_link_down", "0000:fe:00.0", Health.DEGRADED)}


@pytest.mark.parametrize(
    ("code", "healths"), [(38, set()), (37, {Health.FAILED}), (4, {Health.FAILED})], ids=["38", "37", "4"]
)
def test_a_tray_whose_driver_reports_an_nvlink_event_to_ignore_stays_ok(
    code: int, healths: set[Health]
) -> None:
    """gpud#1160: sub-code 38 of XID 149 on GB200."""
    node = Node(draw(next(row for row in ROWS if row.id == "gb200")))
    info = f"0x{code << 20 | 0x1C6:08x} 0x00000000 0x00000000"
    line = f"NVRM: Xid (PCI:0000:10:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 ({info})"
    node.changes.append(AnswerChange("kmsg", "Records()", "set", [f"4,3000,864310000000,-;{line}"]))
    node.poll(times=2)
    assert {finding.health for finding in node.findings()} == healths
