"""XIDs: from which source, on which GPU, how bad, and until when."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.node.collectors.drawn import Gpus, Watched
from tests.rows import each
from tests.support import Node
from wirewatch.collectors.xid import RULES
from wirewatch.core import xids
from wirewatch.core.kernellog import TEXTS
from wirewatch.core.nvml import RECOVERY_ACTIONS
from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Absent, Health, Json, Why
from wirewatch.core.xids import XIDS, switch_row

DEGRADED, UNKNOWN, FAILED = Health.DEGRADED, Health.UNKNOWN, Health.FAILED
ADDRESSES = ("0000:05:00.0", "0000:3f:00.0", "0018:01:00.0")
DENIED = Absent(Why.DENIED, "/dev/kmsg: EPERM", 1)
DAY = 86400.0


def watched(*lines: str) -> Watched:
    node = Watched("xid", gpus=Gpus(ADDRESSES))
    node.log.lines += lines
    return node


def xid(number: int, card: str = "0000:05:00", rest: str = "") -> str:
    return f"NVRM: Xid (PCI:{card}): {number}{rest and f', {rest}'}"


def test_a_quiet_log_has_no_finding_and_a_series_for_each_gpu() -> None:
    node = watched("usb 1-1: new device", "NVRM: loading NVIDIA UNIX Open Kernel Module")
    assert node.poll(3) == ()
    assert node.series("xid_last_event_timestamp_seconds") == [0, 0, 0]
    assert node.series("xid_source_info", source="kmsg") == [1]
    assert node.series("kernel_log_unparsed_total") == [0]


def test_a_gpu_off_the_bus_is_failed_with_its_time_and_stays_so() -> None:
    node = watched("", "", xid(79, rest="pid='<unknown>', name=<unknown>, GPU has fallen off the bus."))
    node.poll()
    (finding,) = node.component.findings
    assert (finding.rule, finding.health, finding.subject.gpu) == ("xid.79", FAILED, "0")
    assert finding.since == 1_795_000_002.0
    assert "2026-11-18T11:06:42Z" in finding.evidence
    assert "reboot" in finding.action
    assert node.series("xid_events_total", gpu="0", xid="79") == [1]
    assert node.series("xid_last_event_timestamp_seconds", gpu="0") == [1_795_000_002.0]
    node.poll(3, every=30 * DAY)
    assert node.rules() == {("xid.79", "GPU 0"): FAILED}


def test_a_line_counts_once_however_often_the_log_is_read() -> None:
    node = watched(xid(94), xid(94))
    node.poll(5)
    assert node.series("xid_events_total", xid="94") == [2]
    node.log.lines.append(xid(94))
    node.poll(5)
    assert node.series("xid_events_total", xid="94") == [3]


def test_what_asks_for_no_reset_is_reported_for_a_day() -> None:
    node = watched(xid(94, rest="Contained memory error"))
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 10
    node.poll(2)
    assert node.rules() == {("xid.94", "GPU 0"): DEGRADED}
    node.poll(2, every=DAY)
    assert node.rules() == {}


@each("number", [43, 45, 121, 160, 162])
def test_what_needs_nothing_is_counted_and_no_finding(number: int) -> None:
    node = watched(xid(number))
    assert node.poll(2) == ()
    assert node.series("xid_events_total", xid=str(number)) == [1]


def test_a_number_that_is_not_in_the_table_is_reported_and_not_dropped() -> None:
    node = watched(xid(999))
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 10
    node.poll()
    assert node.rules() == {("xid.999", "GPU 0"): DEGRADED}
    assert "not in wirewatch's table" in node.component.findings[0].evidence


def test_an_application_s_xid_points_to_the_gpu_only_when_one_gpu_repeats_it() -> None:
    node = watched(*[xid(31)] * 9)
    node.log.step = 60.0
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 1_000
    assert node.poll() == ()
    node.log.lines.append(xid(31))
    node.poll()
    assert node.rules() == {("xid.31", "GPU 0"): DEGRADED}
    node.log.lines += [xid(31, "0000:3f:00")] * 2
    node.poll()
    assert node.rules() == {("xid.31", "GPU 0"): DEGRADED}
    assert "at most 2 times on another" in node.component.findings[0].evidence
    node.log.lines.append(xid(31, "0000:3f:00"))
    node.poll()
    assert node.rules() == {}


@pytest.mark.parametrize("number", [171, 172])
def test_details_of_an_error_that_was_not_seen_are_not_known_and_else_are_counted(number: int) -> None:
    node = watched("boot")
    node.poll()
    node.log.lines.append(xid(number))
    node.poll()
    assert node.rules() == {(f"xid.{number}", "GPU 0"): UNKNOWN}
    assert "48, 94 or 95" in node.component.findings[0].action
    node = watched("boot")
    node.poll()
    node.log.lines += [xid(94), xid(number)]
    node.poll()
    assert node.rules() == {("xid.94", "GPU 0"): DEGRADED}
    assert node.series("xid_events_total", xid=str(number)) == [1]


SM = "Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address"


def crash(number: int, pid: str = "4711") -> list[str]:
    """A line for each multiprocessor, and what the driver says without knowing the process."""
    lines = [xid(number, rest=f"pid={pid}, name=train, {SM}"), xid(number, rest="pid='<unknown>', ESR 0x1")]
    return lines * 6


@pytest.mark.parametrize("number", [13, 31, 137])
def test_one_crash_of_an_application_is_one_and_its_lines_are_counted(number: int) -> None:
    node = watched(*crash(number))
    node.log.step = 1e-4
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 100
    assert node.poll(2) == ()
    assert node.series("xid_events_total", xid=str(number)) == [12]


def test_ten_crashes_within_a_day_point_to_the_gpu() -> None:
    node = watched("boot")
    node.poll()
    for pid in range(10):
        assert node.rules() == {}
        node.log.lines += crash(13, str(pid))
        node.log.step = 1e-4
        node.poll(every=3600.0)
    (finding,) = node.component.findings
    assert finding.rule == "xid.13"
    assert "at least 10 times within a day" in finding.evidence


@pytest.mark.parametrize(
    "line",
    [
        xid(69, rest="pid=1, name=x, Class Error"), xid(94, rest="pid=1, name=x, Contained"), xid(68),
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 32 MC TS (First)",
    ],
)  # fmt: skip
def test_one_fault_of_many_lines_was_seen_once(line: str) -> None:
    node = watched(*[line] * 12)
    node.log.step = 1e-4
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 100
    node.poll()
    (finding,) = node.component.findings
    assert "seen once, at " in finding.evidence
    assert ", in 12 lines" in finding.evidence
    node.log.step = 60.0
    node.log.lines.append(line)
    node.poll()
    assert "seen 2 times, last at " in node.component.findings[0].evidence


def test_events_of_nvml_that_come_together_are_one_incident() -> None:
    node = watched()
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = [{"number": n, "uuid": "GPU-1", "xid": 13} for n in range(1, 13)]
    assert node.poll() == ()
    assert node.series("xid_events_total", xid="13") == [12]


@each(
    ("line", "health", "drained"),
    [
        (xid(145, rest="RLW_REMAP  Nonfatal XC1 i0 Link 00 (0x00000004 0x00000001)"), DEGRADED, False),
        (xid(145, rest="RLW_REMAP  Fatal XC1 i0 Link 00 (0x00000004 0x00000040)"), FAILED, True),
        (xid(149, rest="NETIR_BER_EVENT  Nonfatal XC0 i0 Link 03 (0x0)"), DEGRADED, False),
        (xid(46), FAILED, True),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 1 egress", FAILED, True),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 1 MC", DEGRADED, False),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 23001, Fatal, Link 1", FAILED, True),
    ],
)
def test_health_and_advice_are_those_of_the_vendor_s_row(line: str, health: Health, drained: bool) -> None:  # noqa: FBT001
    node = watched("boot")
    node.poll()
    node.log.lines.append(line)
    (finding,) = node.poll()
    assert finding.health is health
    assert ("drain" in finding.action) is drained


def test_a_milder_event_leaves_words_and_advice_of_the_fatal_one() -> None:
    node = watched("boot")
    node.poll()
    node.log.lines += [xid(149, rest=f"NETIR  {word}  Link 03 (0x0)") for word in ("Fatal", "Nonfatal")]
    (finding,) = node.poll()
    assert finding.health is FAILED
    assert finding.evidence.endswith("NETIR  Fatal  Link 03 (0x0)")
    assert "drain" in finding.action


def test_the_driver_s_last_word_wins() -> None:
    changed = "GPU recovery action changed from 0x0 (None) to "
    node = watched(xid(95), xid(154, rest=f"{changed}0x1 (GPU Reset Required)"))
    node.poll()
    assert {f.rule: f.health for f in node.component.findings} == {"xid.95": FAILED, "xid.154": FAILED}
    assert all("reset the GPU" in f.action for f in node.component.findings)
    node.log.lines.append(xid(154, rest=f"{changed}0x2 (Node Reboot Required)"))
    node.poll()
    assert all("reboot the node" in f.action for f in node.component.findings)
    node.log.lines.append(
        xid(154, rest="GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)")
    )
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 100
    node.poll()
    assert node.rules() == {("xid.95", "GPU 0"): DEGRADED}
    assert "the driver says it is over" in node.component.findings[0].evidence
    node.log.lines.append(xid(95))
    node.poll()
    assert node.rules() == {("xid.95", "GPU 0"): FAILED}


def test_nvlink_errors_name_the_link_and_what_is_not_decoded() -> None:
    node = watched(
        xid(74, rest="pid=1, name=x, NVLink: fatal error detected on link 14(0x0, 0x10000)"),
        xid(149, "0018:01:00", "NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000)"),
        xid(149, "0000:3f:00", "NETIR_LINK_EVT  Nonfatal   XC0 i0 Link -1 (0x03f525c6 0x00000000)"),
    )
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 100
    node.poll()
    assert node.rules() == {
        ("xid.74", "GPU 0 link 14"): FAILED,
        ("xid.149", "GPU 2 link 9"): FAILED,
        ("xid.149", "GPU 1"): DEGRADED,
    }, "an unknown sub-code goes by its word"
    evidence = {f.subject.gpu: f.evidence for f in node.component.findings}
    assert "sub-code 37, error status 0x0" in evidence["2"]
    assert "0x025525c6" in evidence["2"]
    assert "registers not decoded" in evidence["1"]


def test_switches_and_cards_and_lost_gpus_are_reported_by_their_address() -> None:
    node = watched(
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress error (First)",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "mlx5_core 0000:5c:00.0: Detected insufficient power on the PCIe slot (27W).",
        "NVRM: GPU 0000:99:00.0: GPU has fallen off the bus.",
        "mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:838: ACCESS_REG(0x805) op_mod(0x1) failed",
    )
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 100
    node.poll()
    assert node.rules() == {
        ("sxid.12028", "link 32 0000:c1:00"): FAILED,
        ("sxid.20034", "link 30 0000:c1:00"): FAILED,
        ("kernel.nic_power", "0000:5c:00.0"): DEGRADED,
        ("xid.79", "0000:99:00"): FAILED,
    }
    assert node.series("kernel_events_total", kind="nic_access_denied") == [1]
    assert node.series("sxid_events_total", device="0000:c1:00") == [1, 1]


def test_an_xid_of_a_gpu_that_nvml_lists_later_gets_its_name() -> None:
    node = watched(xid(79))
    node.gpus.absent = Absent(Why.MISSING, "the NVIDIA driver is not loaded", 9)
    node.poll()
    assert node.rules() == {("xid.79", "0000:05:00"): FAILED}
    assert node.series("xid_events_total", gpu="", xid="79") == [1]
    node.gpus.absent = None
    node.poll()
    assert node.rules() == {("xid.79", "GPU 0"): FAILED}


def test_lines_that_were_not_understood_or_not_read_are_counted() -> None:
    node = watched("NVRM: Xid what is this", xid(43))
    node.log.missed = 17
    assert node.poll() == ()
    assert node.series("kernel_log_unparsed_total") == [1]
    assert node.series("kernel_log_missed_total") == [17]


def test_where_the_log_may_not_be_read_nvml_s_events_take_its_place() -> None:
    node = watched()
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-1", "xid": 79}]
    node.poll(3)
    assert node.rules() == {("xid.79", "GPU 1"): FAILED}
    assert node.series("xid_events_total", xid="79") == [1]
    assert node.series("xid_source_info", source="nvml") == [1]
    node.gpus.table[None, "Events()"] = [
        {"number": 1, "uuid": "GPU-1", "xid": 79}, {"number": 2, "uuid": "GPU-1", "xid": 43}, {"odd": 1},
    ]  # fmt: skip
    node.poll()
    assert node.series("xid_events_total", xid="79") == [1]
    assert node.series("xid_events_total", xid="43") == [1]
    assert node.series("kernel_log_unparsed_total") == [1]


def test_events_of_a_new_nvml_session_are_new_ones() -> None:
    node = watched()
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-1", "xid": 94}]
    node.poll(2)
    node.gpus.number = 2
    node.poll(2)
    assert node.series("xid_events_total", xid="94") == [2]


def test_with_neither_source_nothing_is_known_and_both_reasons_are_reported() -> None:
    node = watched()
    node.log.absent = DENIED
    node.poll()
    assert node.rules() == {("xid.blind", "node"): UNKNOWN}
    assert "EPERM" in node.component.findings[0].evidence
    assert "not supported" in node.component.findings[0].evidence


def test_a_node_that_offers_neither_has_nothing_to_watch() -> None:
    node = watched()
    node.log.absent = Absent(Why.UNSUPPORTED, "none")
    assert node.poll() == ()
    assert node.component.health is None


def test_the_gpus_are_asked_for_once_and_again_while_one_has_no_name() -> None:
    node = watched("x")
    node.poll(10, every=5.0)
    assert node.gpus.listed == 1
    node.log.lines.append(xid(79, "0000:99:00"))
    node.poll(3, every=5.0)
    assert node.gpus.listed == 3


def test_nvml_that_is_not_initialised_is_not_waited_for() -> None:
    node = watched(xid(79))
    node.gpus.number = 0
    node.poll(2)
    assert node.gpus.listed == 0
    assert node.rules() == {("xid.79", "0000:05:00"): FAILED}


def test_a_log_that_cannot_be_read_once_is_not_counted_again() -> None:
    node = watched(*[xid(31)] * 5, xid(94))
    node.gpus.table[None, "Events()"] = []
    node.poll()
    node.log.absent = Absent(Why.TIMEOUT, "EIO", 5)
    node.poll()
    assert node.rules()["xid.blind", "node"] is UNKNOWN
    node.log.absent = None
    node.poll(2)
    assert node.series("xid_events_total", xid="94") == [1]
    assert node.series("xid_events_total", xid="31") == [5]


@pytest.mark.parametrize(
    ("asked", "rules"),
    [
        (0, {}),
        (1, {("xid.74", "GPU 1"): UNKNOWN}),
        (Absent(Why.UNSUPPORTED, "no such field", 3), {("xid.74", "GPU 1"): UNKNOWN}),
    ],
    ids=["nothing", "a reset", "an older driver"],
)
def test_an_event_that_was_not_read_is_settled_once_the_driver_says_that_the_gpu_needs_nothing(
    asked: Json | Absent, rules: object
) -> None:
    node = watched()
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = []
    node.gpus.table |= {("GPU-1", "Field(230)"): asked, ("GPU-0", "Field(230)"): 0}
    node.poll()
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-1", "xid": 74}]
    node.poll()
    assert node.rules() == {("xid.74", "GPU 1"): UNKNOWN}
    node.poll()
    assert node.rules() == rules
    assert node.series("xid_events_total", xid="74") == [1]


def test_an_event_that_was_read_is_not_settled_by_a_driver_that_asks_for_nothing() -> None:
    node = watched()
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-1", "xid": 79}]
    node.gpus.table["GPU-1", "Field(230)"] = 0
    node.poll(3)
    assert node.rules() == {("xid.79", "GPU 1"): FAILED}


def test_a_recovery_action_without_words_is_counted_and_left_to_who_can_read_it() -> None:
    node = watched()
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-1", "xid": 154}]
    assert node.poll(3) == ()
    assert node.series("xid_events_total", xid="154") == [1]


def test_the_lines_that_follow_an_sxid_are_not_more_of_them() -> None:
    start = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, "
    node = watched(
        f"{start}Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
        f"{start}Severity 0 Engine instance 46 Sub-engine instance 00",
        f"{start}Data {{0x00140004, 0x00100000}}",
    )
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 100
    node.poll()
    assert node.series("sxid_events_total") == [1]
    assert node.rules() == {("sxid.28006", "link 46 0000:c1:00"): DEGRADED}


def test_a_clock_that_is_set_while_we_look_makes_no_event_old() -> None:
    node = watched("boot")
    node.host.told["BootTime"] = 946_684_800.0
    node.poll()
    node.log.lines.append(xid(94))
    node.poll()
    assert node.rules() == {("xid.94", "GPU 0"): DEGRADED}


def test_a_card_in_a_lesser_slot_by_design_is_counted_and_no_finding() -> None:
    limited = "252.048 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x16 link at 0000:5b:01.0"
    node = watched(f"mlx5_core 0000:5c:00.0: {limited}")
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 100
    assert node.poll() == ()
    assert node.series("kernel_events_total", kind="nic_pcie_limited") == [1]


def test_a_gpu_that_is_not_enumerated_any_more_does_not_lend_its_number() -> None:
    node = watched(xid(79))
    node.poll()
    node.gpus.addresses, node.gpus.number = ADDRESSES[1:], 2
    node.poll(2)
    assert node.rules() == {("xid.79", "0000:05:00"): FAILED}
    assert len(node.series("xid_last_event_timestamp_seconds")) == 2


def test_a_log_that_can_be_read_later_does_not_take_over_from_events_already_counted() -> None:
    node = watched(xid(79, "0000:3f:00"))
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-1", "xid": 79}]
    node.poll(2)
    node.log.absent = None
    node.poll(2)
    assert node.series("xid_events_total", xid="79") == [1]
    assert node.series("xid_source_info", source="nvml") == [1]


@pytest.mark.parametrize("number", range(1, len(RECOVERY_ACTIONS) + 2))
def test_nvml_and_the_kernel_s_log_ask_for_the_same_in_the_same_words(number: int) -> None:
    """Before, "drain p2p" was FAILED where NVML said it, and DEGRADED where XID 154 did."""
    names = dict(enumerate(RECOVERY_ACTIONS))
    words = names.get(number, f"action {number}").replace("_", " ").title()
    node = watched()
    node.poll()
    node.log.lines.append(
        xid(154, rest=f"GPU recovery action changed from 0x0 (None) to {number:#x} ({words})")
    )
    node.poll()
    (by_log,) = node.component.findings
    by_nvml = Node()
    by_nvml.change("gpu0/Field(230)", "set", number)
    by_nvml.poll("gpu", times=2)
    (finding,) = by_nvml.findings()
    assert (finding.health, finding.action) == (by_log.health, by_log.action)
    assert by_log.evidence.startswith(finding.evidence)


@each(
    ("number", "alert"),
    [
        (13, "XidApplication"), (31, "XidApplication"), (79, "XidReboot"), (95, "XidReset"),
        (94, "XidRestart"), (74, "XidNVLink"), (149, "XidNVLink"), (154, "XidRecovery"),
    ],
)  # fmt: skip
def test_each_xid_has_the_alert_of_what_it_asks_for(number: int, alert: str) -> None:
    assert [rule.alert for rule in RULES if rule.name == f"xid.{number}"] == [alert]


def test_a_switch_s_error_with_the_number_of_an_xid_is_the_switch_s() -> None:
    node = watched("boot")
    node.poll()
    node.log.lines.append("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 154, Non-fatal, Link 1 x")
    node.poll()
    assert node.rules() == {("sxid.154", "link 1 0000:c1:00"): DEGRADED}


def test_two_gpus_with_an_application_s_xid_and_another_xid_elsewhere() -> None:
    """Only the same XID on another GPU says that the application is to blame."""
    node = watched("boot")
    node.poll()
    for pid in range(10):
        node.log.lines += [
            xid(13, rest=f"pid={pid}, name=x, y"),
            xid(31, "0000:3f:00", f"pid={pid}, name=x, y"),
        ]
    node.log.step = 60.0
    node.poll()
    assert node.rules() == {("xid.13", "GPU 0"): DEGRADED, ("xid.31", "GPU 1"): DEGRADED}


def test_the_driver_s_word_on_one_gpu_ends_nothing_on_another() -> None:
    node = watched("boot")
    node.poll()
    over = xid(154, rest="GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    node.log.lines += [xid(95), xid(95, "0000:3f:00"), over]
    node.poll()
    assert node.rules() == {("xid.95", "GPU 0"): DEGRADED, ("xid.95", "GPU 1"): FAILED}
    node.poll(2, every=DAY)
    assert node.rules() == {("xid.95", "GPU 1"): FAILED}


def test_which_start_of_the_machine_it_is_is_asked_once() -> None:
    node = watched(xid(79))
    node.poll()
    node.host.told.clear()
    node.poll(2)
    assert node.rules() == {("xid.79", "GPU 0"): FAILED}


def test_a_line_that_says_no_more_than_its_number_ends_with_its_time() -> None:
    node = watched("boot")
    node.poll()
    node.log.lines.append(xid(79))
    (finding,) = node.poll()
    assert finding.evidence.endswith("Z")


@pytest.mark.parametrize(
    "odd", [{"number": 2, "uuid": "GPU-1"}, {"number": 2, "xid": 94}, {"xid": 94, "uuid": "x"}]
)
def test_an_event_of_nvml_that_lacks_a_part_is_counted_as_odd_once(odd: dict[str, Json]) -> None:
    node = watched()
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-1", "xid": 43}, odd]
    assert node.poll(3) == ()
    assert node.series("xid_events_total") == [1]
    assert node.series("kernel_log_unparsed_total") == [1]


class Sleeping(Gpus):
    """An NVML port that begins a session when it is asked something, as the real one does."""

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        self.number = 1
        return super().ask(gpu, questions)


def test_the_gpus_are_known_as_soon_as_the_question_for_events_has_begun_a_session() -> None:
    node = watched()
    node.gpus = Sleeping(ADDRESSES, number=0)
    node.hardware = replace(node.hardware, nvml=node.gpus)
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-1", "xid": 79}]
    node.poll()
    assert node.rules() == {("xid.79", "GPU 1"): FAILED}


def test_an_event_of_nvml_that_is_there_at_the_start_is_of_now() -> None:
    """It has no time of its own; one of the log is by the machine's start."""
    node = watched()
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-1", "xid": 94}]
    (finding,) = node.poll()
    assert finding.since == node.clock.now() - 15


def test_gpus_that_are_listed_later_get_their_series_then() -> None:
    node = watched("boot")
    node.gpus.absent = Absent(Why.MISSING, "the NVIDIA driver is not loaded", 9)
    node.poll()
    assert node.series("xid_last_event_timestamp_seconds") == []
    node.gpus.absent = None
    node.poll()
    assert node.series("xid_last_event_timestamp_seconds") == [0, 0, 0]


def test_one_gpu_without_a_name_among_others_is_asked_for_again() -> None:
    node = watched(xid(43), xid(43, "0000:99:00"))
    node.poll(3)
    assert node.gpus.listed == 3


def test_events_of_nvml_that_are_no_list_are_odd() -> None:
    node = watched()
    node.log.absent = DENIED
    node.gpus.table[None, "Events()"] = 7
    assert node.poll(2) == ()
    assert node.series("kernel_log_unparsed_total") == [1]


@pytest.mark.parametrize(
    ("line", "action"),
    [
        (xid(94), XIDS[94].action),
        ("NVRM: GPU 0000:05:00.0: GPU has fallen off the bus.", XIDS[79].action),
        ("mlx5_core 0000:5c:00.0: insufficient power on the PCIe slot", TEXTS["nic_power"].action),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 23001, Fatal, Link 1", switch_row(23001, "").action),
    ],
)  # fmt: skip
def test_the_advice_is_that_of_the_kind_of_message(line: str, action: str) -> None:
    node = watched("boot")
    node.poll()
    node.log.lines.append(line)
    (finding,) = node.poll()
    assert finding.action == action


CHANGED = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"


def test_the_driver_s_word_on_a_gpu_is_the_advice_of_its_xids_and_of_nothing_else() -> None:
    node = watched("boot")
    node.poll()
    training = "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!"
    node.log.lines += [xid(95), f"{training} GPU 0000:05:00.0", xid(154, rest=CHANGED)]
    node.poll()
    found = {finding.rule: finding for finding in node.component.findings}
    assert found["xid.95"].action.endswith("the driver's latest request, XID 154: gpu reset required")
    assert found["xid.154"].action.endswith(xids.CAUSE)
    assert found["xid.154"].evidence.startswith("the driver asks for gpu reset; ")
    assert "the driver asks for" not in found["xid.95"].evidence


def test_a_recovery_action_that_is_not_understood_is_reported_in_its_own_words() -> None:
    """Before: with the words and the advice of the request before it."""
    node = watched("boot")
    node.poll()
    node.log.lines += [xid(154, rest=CHANGED), xid(154, rest="something of a later driver")]
    (finding,) = node.poll()
    assert finding.health is UNKNOWN
    assert finding.evidence.startswith("the recovery action changed; ")
    assert finding.evidence.endswith(": something of a later driver")
    assert finding.action == XIDS[154].action


def test_the_newest_words_of_an_event_stand_and_a_line_without_words_takes_none_away() -> None:
    node = watched("boot")
    node.poll()
    for words, shown in (("first", "first"), ("second", "second"), ("", "second")):
        node.log.lines.append(xid(79, rest=words))
        (finding,) = node.poll()
        assert finding.evidence.endswith(f": {shown}")


@pytest.mark.parametrize(
    ("number", "healths"),
    [(94, (DEGRADED,)), (79, (FAILED,)), (149, (DEGRADED, UNKNOWN, FAILED)), (13, (DEGRADED,))],
)
def test_an_xid_can_be_as_bad_as_its_row_says(number: int, healths: tuple[Health, ...]) -> None:
    assert [rule.healths for rule in RULES if rule.name == f"xid.{number}"] == [healths]
