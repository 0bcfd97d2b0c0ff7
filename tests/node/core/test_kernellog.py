"""Lines of the kernel log, from raw records of /dev/kmsg to events, and the table of XIDs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.rows import each
from wirewatch.core import xids
from wirewatch.core.kernellog import (
    OFF_BUS,
    SXID,
    TEXTS,
    UNKNOWN,
    XID,
    Event,
    Record,
    failed_starts,
    parse_events,
    parse_record,
    recovery_word,
    wanted,
)
from wirewatch.core.nvml import RECOVERY_ACTIONS
from wirewatch.core.types import Health
from wirewatch.core.xids import (
    HEALTH,
    RECOVERIES,
    RECOVERY_CHANGED,
    UNLISTED,
    XIDS,
    Recovery,
    Severity,
    action_of,
    lookup,
    recovery,
    severity_of,
)

GPU = "0000:18:00"
FELL = "GPU has fallen off the bus."
NVLINK_74 = "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"
TO_REBOOT = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
TO_DRAIN = "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x4 (Drain and Reset)"
CRUMBSTORE = "Non-fatal, Link 46 MC TS crumbstore MCTO (First)"
OLD_FORM = (
    "NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:1e07)\\x0aNVRM: installed in this system has"
    "\\x0aNVRM: fallen off the bus and is not responding to commands."
)
ONE_LINE = "NVRM: The NVIDIA GPU 0000:05:00.0 installed in this system has fallen off the bus and is not"
TRAINING = "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!"
PEERMEM = (
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"
)
POWER = (
    "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268): "
    "Detected insufficient power on the PCIe slot (27W)."
)
MODULE = "mlx5_core 0000:5c:00.1 eth1: Port module event[error]: module 0, Cable error, High Temperature"
LIMITED = (
    "mlx5_core 0000:5c:00.0: 63.008 Gb/s available PCIe bandwidth, "
    "limited by 8.0 GT/s PCIe x8 link at 0000:5b:01.0"
)
REFUSED = (
    "mlx5_core 0000:c1:00.0: mlx5_cmd_out_err:838:(pid 12): ACCESS_REG(0x805) op_mod(0x1) failed, "
    "status bad resource(0x5), syndrome (0x1)"
)


def raw(text: str, sequence: int = 1234, microseconds: int = 98_500_000, flags: str = "-") -> str:
    """A record as /dev/kmsg gives it, with the lines of its device."""
    return f"4,{sequence},{microseconds},{flags};{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:18:00.0\n"


def records(*texts: str) -> tuple[Record, ...]:
    parsed = [parse_record(raw(text, sequence=i, microseconds=i * 1_000_000)) for i, text in enumerate(texts)]
    return tuple(record for record in parsed if record is not None)


def events(*texts: str) -> tuple[Event, ...]:
    return parse_events(records(*texts))[0]


def event(text: str) -> Event:
    (only,) = events(text)
    return only


def test_a_record_has_a_number_a_time_and_a_text_and_no_more() -> None:
    assert parse_record(raw("NVRM: hello")) == Record(1234, 98.5, "NVRM: hello")


@each(
    ("given", "text"),
    [
        ("6,0,0,-;hello\n", "hello"),
        ("6,7,0,-;hello", "hello"),
        ("6,7,0,-,caller=T123;hello\n", "hello"),
        ("6,7,0,c;hello\n", "hello"),
        ("30,7,1,+,more=1,flags;hello; and more\n", "hello; and more"),
        ("6,7,0,-;hello  \n", "hello"),
        ("6,7,0,-;\n SUBSYSTEM=pci\n", ""),
        ("6,7,0,-;a\\x0ab\n", "a\\x0ab"),
    ],
)
def test_a_record_is_read_with_any_flags_and_without_the_lines_of_its_device(given: str, text: str) -> None:
    record = parse_record(given)
    assert record is not None
    assert record.text == text


@each("given", ["", "\n", "hello", "6,7;hello", "6,7,0;hello", "6,x,0,-;hello", ";", " SUBSYSTEM=pci"])
def test_what_is_not_of_the_kernel_s_form_is_no_record(given: str) -> None:
    assert parse_record(given) is None


@each(
    ("text", "pci", "number", "link", "message"),
    [
        (f"NVRM: Xid (PCI:{GPU}): 79, pid='<unknown>', name=<unknown>, {FELL}", GPU, 79, "", FELL),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00", 14, "", "Channel 00000001"),
        ("NVRM: Xid (PCI:0000:3f:00): 46", "0000:3f:00", 46, "", ""),
        ("NVRM: Xid (PCI:0000:3f:00): 46,", "0000:3f:00", 46, "", ""),
        (
            "NVRM: Xid (PCI:0000:66:00): 32, pid=2280636, name=train.3, Channel ID 00000008 intr 00800000",
            "0000:66:00", 32, "", "Channel ID 00000008 intr 00800000",
        ),
        ("NVRM: Xid (PCI:0000:66:00): 31, pid=42, Ch 00000010", "0000:66:00", 31, "", "Ch 00000010"),
        ("NVRM: Xid (PCI:0000:66:00): 43, pid=42, name=python3", "0000:66:00", 43, "", ""),
        (
            f"NVRM: Xid (PCI:{GPU}): 74, pid='<unknown>', name=<unknown>, {NVLINK_74}",
            GPU, 74, "14", NVLINK_74,
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000)",
            "0018:01:00", 149, "9", "NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000)",
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 145, RLW_CTRL  Nonfatal XC0 i0 Link -1 (0x00000004 0x00000000)",
            "0018:01:00", 145, "", "RLW_CTRL  Nonfatal XC0 i0 Link -1 (0x00000004 0x00000000)",
        ),
        (f"NVRM: Xid (PCI:{GPU}): 154, {TO_REBOOT}", GPU, 154, "", TO_REBOOT),
        (f"NVRM: Xid (PCI:{GPU}): 154, pid='<unknown>', name=<unknown>, {TO_DRAIN}", GPU, 154, "", TO_DRAIN),
    ],
)  # fmt: skip
def test_a_line_of_an_xid_says_which_gpu_which_number_which_link_and_what(
    text: str, pci: str, number: int, link: str, message: str
) -> None:
    assert wanted(raw(text))
    assert replace(event(text), process="") == Event(XID, number, pci, link, message, 0.0)


@each(
    ("who", "process"),
    [
        ("pid=2280636, name=train.3, ", "2280636"), ("pid=42, ", "42"), ("pid='42', name=x, ", "42"),
        ("pid='<unknown>', name=<unknown>, ", ""), ("pid=<unknown>, name=<unknown>, ", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_line_of_an_xid_names_the_process_where_the_driver_knows_it(who: str, process: str) -> None:
    told = event(f"NVRM: Xid (PCI:{GPU}): 31, {who}Ch 00000010")
    assert (told.process, told.message) == (process, "Ch 00000010")


@pytest.mark.parametrize("instance", [" GPU-I:05", " GPU-I:05 GPU-CI:01"])
def test_an_xid_of_a_mig_instance_is_an_xid_of_its_gpu(instance: str) -> None:
    """The form is that of NVIDIA's open kernel modules (kernel_rc.c)."""
    told = event(f"NVRM: Xid (PCI:{GPU}{instance}): 31, pid=42, name=python3, Ch 00000010")
    assert (told.kind, told.number, told.pci, told.message) == (XID, 31, GPU, "Ch 00000010")


@pytest.mark.parametrize(
    ("text", "pci", "number", "link"),
    [
        (f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, {CRUMBSTORE}", "0000:c1:00.0", 28006, "46"),
        ("nvidia-nvswitch: SXid (PCI:0000:C1:00.0): 12028, Fatal, Link 00", "0000:c1:00.0", 12028, "0"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 10001, Severity 1 Engine", "0000:c1:00.0", 10001, ""),
    ],
)  # fmt: skip
def test_a_line_of_a_switch_is_not_one_of_a_gpu(text: str, pci: str, number: int, link: str) -> None:
    assert wanted(raw(text))
    told = event(text)
    assert (told.kind, told.number, told.pci, told.link) == (SXID, number, pci, link)


@each(
    ("text", "pci"),
    [
        (f"NVRM: GPU 0000:18:00.0: {FELL}", "0000:18:00.0"),
        (f"NVRM: GPU 0000:18:00.0: {FELL}".replace("0000:18", "00000000:AF"), "0000:af:00.0"),
        (f"NVRM: GPU at PCI:0000:18:00: {FELL}", "0000:18:00"),
        (ONE_LINE, "0000:05:00.0"),
        (OLD_FORM, "0000:05:00.0"),
    ],
)
def test_a_gpu_that_fell_off_the_bus_is_named_also_without_an_xid(text: str, pci: str) -> None:
    assert wanted(raw(text))
    told = event(text)
    assert (told.kind, told.pci) == (OFF_BUS, pci)


FIRST = "NVRM: The NVIDIA GPU 0000:18:00.0"
FALLEN = (
    FIRST,
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
UNSUPPORTED = (
    FIRST,
    "NVRM: (PCI ID: 10de:1b06) installed in this system is not supported by the",
    "NVRM: NVIDIA 550.54.15 driver release.",
)


def test_a_message_of_several_records_names_the_gpu_of_its_first() -> None:
    (told,) = events(*FALLEN)
    assert (told.kind, told.pci, told.seconds) == (OFF_BUS, "0000:18:00.0", 2.0)


def test_a_message_of_several_lines_in_one_record_names_its_gpu() -> None:
    told = event("\\x0a".join(FALLEN))
    assert (told.kind, told.pci) == (OFF_BUS, "0000:18:00.0")


@pytest.mark.parametrize("cut", [1, 2])
def test_a_message_of_several_records_may_come_in_two_readings(cut: int) -> None:
    before, about = parse_events(records(*FALLEN[:cut]))
    assert before == ()
    (told,), about = parse_events(records(*FALLEN[cut:]), about)
    assert (told.kind, told.pci) == (OFF_BUS, "0000:18:00.0")
    assert about == ""


def test_two_gpus_that_fall_one_after_the_other_are_both_named() -> None:
    told = events(*FALLEN, *(line.replace(":18:", ":2a:") for line in FALLEN))
    assert [one.pci for one in told] == ["0000:18:00.0", "0000:2a:00.0"]


def test_a_gpu_that_is_only_not_supported_did_not_fall() -> None:
    assert events(*UNSUPPORTED) == ()
    assert events("\\x0a".join(UNSUPPORTED)) == ()


def test_a_gpu_that_is_not_supported_is_not_blamed_for_what_falls_later() -> None:
    (told,) = events(*UNSUPPORTED, f"NVRM: RmInitAdapter: {FELL}")
    assert (told.kind, told.pci) == (UNKNOWN, "")


def test_a_message_that_another_one_breaks_into_is_still_reported() -> None:
    told = events(FALLEN[0], f"NVRM: Xid (PCI:0000:2a:00): 79, {FELL}", *FALLEN[1:])
    assert [one.kind for one in told] == [XID, UNKNOWN]


@each(
    "text",
    [
        "NVRM: Xid (PCI:0000:18:00) 79, no colon",
        "NVRM: Xid (PCI:0000:18:00): seventy-nine",
        "NVRM: Xid (GPU-c0ffee): 79, a form of next year",
        "NVRM: the GPU has fallen off the bus",
        "nvidia-nvswitch0: SXid (fabric): 12028, a form of next year",
    ],
)
def test_a_line_that_speaks_of_an_xid_in_an_unknown_form_is_reported_as_unknown(text: str) -> None:
    told = event(text)
    assert (told.kind, told.pci, told.message) == (UNKNOWN, "", text)


@pytest.mark.parametrize("facility", [1, 3, 16])
def test_only_the_kernel_s_own_lines_are_events_and_another_s_xid_is_counted(facility: int) -> None:
    """User space may write to /dev/kmsg; its lines have another facility, mostly 1 (printk/printk.c)."""
    texts = (f"NVRM: Xid (PCI:{GPU}): 79, {FELL}", POWER, f"NVRM: GPU {GPU}.0: RmInitAdapter failed! (0x22)")
    own = [parse_record(f"{level},{level},0,-;{text}") for level, text in enumerate(texts)]
    others = [parse_record(f"{facility * 8 + 4},1,0,-;{text}") for text in texts]
    assert [one.kind for one in parse_events([r for r in own if r])[0]] == [XID, "nic_power"]
    assert [one.kind for one in parse_events([r for r in others if r])[0]] == [UNKNOWN]
    assert failed_starts([r for r in own if r])
    assert not failed_starts([r for r in others if r])


@each(
    ("text", "cause"),
    [
        (f"NVRM: Xid (PCI:{GPU}): 45, pid=4711, name=train, Ch 00000008 caused by previous Xid 149", 149),
        (f"NVRM: Xid (PCI:{GPU}): 45,  caused by previous Xid 31", 31),
        (f"NVRM: Xid (PCI:{GPU}): 45, pid=4711, name=train, Ch 00000008", 0),
        (f"nvidia-nvswitch3: SXid (PCI:{GPU}.0): 28006, Severity 0 Engine instance 46 Sub-engine instance 00",
         28006),
        (f"nvidia-nvswitch3: SXid (PCI:{GPU}.0): 28006, Data {{0x00140004, 0x00100000}}", 28006),
        (f"nvidia-nvswitch3: SXid (PCI:{GPU}.0): 28006, {CRUMBSTORE}", 0),
    ],
)  # fmt: skip
def test_a_sequel_says_of_what(text: str, cause: int) -> None:
    assert event(text).cause == cause


NIC, PORT, BELOW = "0000:4f:00.0", "0000:4e:01.0", "0000:4f:00.1"
MLX5 = f"mlx5_core {NIC}:"
UVM = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot."
TOLD = (
    (TRAINING, "nvlink_training", ""),
    (PEERMEM, "peermem_context", ""),
    (PEERMEM.replace("nvidia-peermem", "nvidia_peermem"), "peermem_context", ""),
    (POWER, "nic_power", "0000:5c:00.0"),
    (MODULE, "nic_module", "0000:5c:00.1"),
    (LIMITED, "nic_pcie_limited", "0000:5c:00.0"),
    (UVM, "uvm_failed", ""),
    (REFUSED, "nic_access_denied", "0000:c1:00.0"),
    # Linux, drivers/net/ethernet/mellanox/mlx5/core: health.c (poll_health, print_health_info, try_recover)
    (f"{MLX5} device's health compromised - reached miss count", "nic_failed", NIC),
    (f"{MLX5} print_health_info:510:(pid 0): PCI slot is unavailable", "nic_failed", NIC),
    (f"{MLX5} mlx5_fw_fatal_reporter_err_work:751:(pid 9): Driver is in error state. Unloading",
     "nic_failed", NIC),
    (f"{MLX5} poll_health:739:(pid 0): Fatal error 1 detected", "nic_failed", NIC),
    # In cmd.c wait_func and cmd_work_handler, in main.c probe_one and wait_fw_init
    (f"{MLX5} wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
     "nic_failed", NIC),
    (f"{MLX5} cmd_work_handler:962: MANAGE_PAGES(0x108) No done completion", "nic_failed", NIC),
    (f"{MLX5} probe_one:1517:(pid 7): mlx5_init_one failed with error code -110", "nic_failed", NIC),
    (f"{MLX5} wait_fw_init:201:(pid 8): Firmware over 120000 MS in pre-initializing state, aborting",
     "nic_failed", NIC),
    (f"{MLX5} mlx5_function_enable:1500: Firmware over 2000 MS in initializing state, aborting",
     "nic_failed", NIC),
    (f"{MLX5} wait_func:1042: DESTROY_EQ(0x302) canceled on out of queue timeout.", "nic_firmware", NIC),
    (f"{MLX5} mlx5_health_try_recover:338: health recovery flow aborted, PCI reads still not working",
     "nic_failed", NIC),
    (f"{MLX5} Health issue observed, firmware internal error, severity(2) CRITICAL:", "nic_failed", NIC),
    (f"{MLX5} Health issue observed, firmware internal error, severity(3) ERROR:", "nic_firmware", NIC),
    (f"{MLX5} print_health_info:431: synd 0x7: irisc not responding", "nic_firmware", NIC),
    # events.c (temp_warn): bit 0 is the chip, and others mean nothing on a network card
    (f"{MLX5} temp_warn:171:(pid 0): High temperature on sensors with bit set 0 8000000000000001",
     "nic_module", NIC),
    (f"{MLX5} temp_warn:171:(pid 0): High temperature on sensors with bit set 0x0 0x1", "nic_module", NIC),
    # en_main.c (mlx5e_tx_timeout), en/reporter_rx.c, net/sched/sch_generic.c from 6.8 on
    (f"{MLX5[:-1]} ens15np0: TX timeout detected", "nic_timeout", NIC),
    (f"{MLX5[:-1]} ens15np0: RX timeout on channel: 20, RQ: 0x1e43, CQ: 0x3ea6", "nic_timeout", NIC),
    (f"{MLX5[:-1]} ens15np0: RX timeout on channel: 20, ICOSQ: 0x1ee0, RQ: 0x1e43", "nic_timeout", NIC),
    (f"{MLX5[:-1]} ens15np0: NETDEV WATCHDOG: CPU: 94: transmit queue 3 timed out", "nic_timeout", NIC),
    (f"{MLX5} mlx5_health_try_recover:343: health recovery succeeded", "nic_recovered", NIC),
    (f"{MLX5} mlx5_pci_resume: device recovered", "nic_recovered", NIC),
    (f"{MLX5} mlx5_pci_slot_reset Device state = 2. Exit, result = 5, recovered", "nic_recovered", NIC),
    (f"{MLX5} mlx5_pci_resume Device state = 1. Done, err = 0, device recovered", "nic_recovered", NIC),
    (f"{MLX5} mlx5_pci_resume Device state = 1. Done, err = -5, device Failed", "nic_failed", NIC),
    (f"{MLX5} mlx5_function_setup:1018:(pid 40948): enable hca failed", "nic_failed", NIC),
    # words of mlx5 main.c and of drivers/base/dd.c, before and after 6.10
    (f"{MLX5} init_one:1371:(pid 803): mlx5_load_one failed with error code -22", "nic_failed", NIC),
    (f"mlx5_core: probe of {NIC} failed with error -22", "nic_failed", NIC),
    (f"{MLX5} probe with driver mlx5_core failed with error -22", "nic_failed", NIC),
    # mlx5 events.c: temp_warn, and health.c: print_health_info
    (f"{MLX5} temp_warn:170:(pid 0): High temperature on sensors with bit set 0 1", "nic_module", NIC),
    (f"{MLX5} print_health_info:520:(pid 0): synd 0x10: High temperature", "nic_module", NIC),
    (f"{MLX5} Health issue observed, High temperature, severity(1) ALERT:", "nic_failed", NIC),
    (f"pcieport {PORT}: DPC: containment event, status:0x200d, ERR_FATAL received from {BELOW}", "pcie_fatal",
     BELOW),
    # Linux, drivers/pci/pcie: aer.c with aer_print_source and aer_print_error, dpc.c with dpc_process_error
    (f"pcieport {PORT}: AER: Uncorrected (Fatal) error received: {BELOW}", "pcie_fatal", BELOW),
    (f"pcieport {PORT}: AER: Uncorrectable (Fatal) error message received from {BELOW}", "pcie_fatal", BELOW),
    (f"{MLX5} PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", "pcie_fatal", NIC),
    (f"pcieport {PORT}: AER: device recovery failed", "pcie_fatal", PORT),
    (f"pcieport {PORT}: DPC: containment event, status:0x1f01 source:0x0000", "pcie_fatal", PORT),
    (f"nvidia {BELOW}: PCIe Bus Error: severity=Uncorrectable (Fatal), type=", "pcie_fatal", BELOW),
    (f"pcieport {PORT}: AER: Multiple Uncorrectable (Fatal) error message received from {BELOW} (no",
     "pcie_fatal", BELOW),
    (f"pcieport {PORT}: DPC: containment event, status:0x1f01: unmasked uncorrectable error detected",
     "pcie_fatal", PORT),
    (f"pcieport {PORT}: DPC: containment event, status:0x0005, ERR_FATAL received from {BELOW}",
     "pcie_fatal", BELOW),
    (f"pcieport {PORT}: DPC: ERR_FATAL detected", "pcie_fatal", PORT),
    # In hotplug/pciehp_ctrl.c pciehp_handle_presence_or_link_change, in quirks.c pcie_failed_link_retrain
    (f"pcieport {PORT}: retraining failed", "pcie_link_down", PORT),
    (f"pcieport {PORT}: pciehp: Slot(12): Link Down", "pcie_link_down", PORT),
    (f"pcieport {PORT}: pciehp: Slot(12): Card not present", "pcie_link_down", PORT),
)  # fmt: skip


@each(("text", "kind", "pci"), TOLD)
def test_named_messages_of_wires_are_wanted_and_understood(text: str, kind: str, pci: str) -> None:
    assert wanted(raw(text))
    told = event(text)
    assert (told.kind, told.pci, told.message) == (kind, pci, text)


@each(
    "text",
    [
        # A card whose reads are all ones has this version, which is printed before its start.
        f"{MLX5} firmware version: 65535.65535.65535",
        f"{MLX5} temp_warn:171:(pid 0): High temperature on sensors with bit set 0 8000000000000000",
        f"{MLX5} Port module event: module 0, Cable unplugged",
        f"{MLX5} starting health recovery flow",
        f"pcieport {PORT}: AER: Uncorrectable (Non-Fatal) error message received from {BELOW}",
        f"pcieport {PORT}: AER: device recovery successful",
        f"pcieport {PORT}: pciehp: Slot(12): Link Down/Up ignored (recovered by DPC)",
        f"pcieport {PORT}: pciehp: Slot(12): Link Down event ignored; already powering off",
        f"pcieport {PORT}: pciehp: Slot(12): Link Up",
        f"nvidia {BELOW}: AER: can't recover (no error_detected callback)",
    ],
)
def test_what_cards_and_ports_say_without_a_fault_is_no_event(text: str) -> None:
    assert wanted(raw(text))
    assert events(text) == ()


def test_every_kind_of_named_message_is_among_these_tests() -> None:
    assert {kind for _, kind, _ in TOLD} == set(TEXTS)


@each(
    "text",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build",
        "NVRM: GPU at PCI:0000:18:00: GPU-00000000-0000-0000-0000-000000000000",
        "NVRM: GPU 0000:18:00.0: GPU serial number is 1650000000000.",
        "NVRM: A GPU crash dump has been created. If possible, please run nvidia-bug-report.sh",
        "mlx5_core 0000:5c:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
        "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged",
        "pcieport 0000:00:01.0: AER: Corrected error message received from 0000:01:00.0",
        "pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:01:00.0",
        "pcieport 0000:00:01.0: AER: device recovery successful",
        "pcieport 0000:00:01.0: DPC: enabled with IRQ 41",
        "pcieport 0000:00:01.0: pciehp: Slot(3): Link Down/Up ignored (recovered by DPC)",
        "pcieport 0000:00:01.0: pciehp: Slot(3): Card present",
        "mlx5_core 0000:5c:00.0: synd 0x0: no error",
        "mlx5_core 0000:5c:00.0: Health issue observed, info, severity(6) INFO:",
        "mlx5_core 0000:5c:00.0 ens6np0: Link up",
        "",
    ],
)
def test_what_the_driver_says_on_a_good_day_is_no_event(text: str) -> None:
    assert events(text) == ()


def test_events_keep_the_order_and_the_times_of_their_records() -> None:
    words = ("None", "GPU Reset Required", "Drain and Reset")
    told = events(
        "NVRM: hello",
        *(f"NVRM: Xid (PCI:{GPU}): 154, {TO_REBOOT.replace('Node Reboot Required', w)}" for w in words),
    )
    assert [one.seconds for one in told] == [1.0, 2.0, 3.0]
    assert [recovery_word(one.message) for one in told] == [word.lower() for word in words]


@pytest.mark.parametrize(
    "text",
    ["usb 1-1: new high-speed USB device", "Xid (PCI:0000:18:00): 79", "sudo: NVRM: said by a user", ""],
)
def test_the_rest_of_the_log_is_not_wanted(text: str) -> None:
    assert not wanted(raw(text))


@each("word", ["None", "Drain P2P", "Drain and Reset", "GPU Reset Required", "Node Reboot Required"])
def test_what_xid_154_asks_for_is_an_action_of_the_table(word: str) -> None:
    told = recovery_word(f"GPU recovery action changed from 0x0 (None) to 0x3 ({word})")
    assert told == word.lower()
    assert recovery(told).name in RECOVERIES


@pytest.mark.parametrize(
    "message", ["", "GPU recovery action changed", "GPU recovery action changed to (None)", FELL]
)
def test_a_message_that_names_no_action_has_no_word(message: str) -> None:
    assert recovery_word(message) == ""


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("0x1 (PF FLR)", "gpu reset"), ("0x2 (OS Reboot)", "node reboot"), ("0x0 (Nothing)", "none"),
        ("0x2 (Drain P2P)", "drain p2p"),
    ],
)  # fmt: skip
def test_words_that_are_not_known_give_way_to_their_number(said: str, word: str) -> None:
    """The newest drivers call the same numbers otherwise."""
    assert recovery_word(f"GPU recovery action changed from 0x4 (Drain and Reset) to {said}") == word


def test_an_action_of_next_year_is_a_word_that_the_table_does_not_have() -> None:
    word = recovery_word("GPU recovery action changed from 0x0 (None) to 0x9 (Replace The Fan)")
    assert word == "replace the fan"
    assert recovery(word) == Recovery(
        word, Health.UNKNOWN, f"the driver asks for: replace the fan; {xids.SUPPORT}"
    )


@each("number", [144, 145, 146, 147, 148, 149, 150])
@each(
    ("word", "severity"),
    [
        ("Fatal", Severity.FATAL),
        ("FATAL", Severity.FATAL),
        ("Nonfatal", Severity.SERIOUS),
        ("Non-fatal", Severity.SERIOUS),
        ("NonFatal", Severity.SERIOUS),
    ],
)
def test_on_blackwell_s_nvlink_the_message_says_how_bad_it_is(
    number: int, word: str, severity: Severity
) -> None:
    assert severity_of(number, f"NETIR_LINK_EVT  {word}   XC0 i0 Link 09 (0x03f525c6 0x7)") is severity


@each("number", range(144, 151))
def test_on_blackwell_s_nvlink_the_message_says_what_to_do(number: int) -> None:
    assert "drain" in action_of(number, "RLW_REMAP  Fatal  XC0 i0 Link 00 (0x1)")
    for word in ("Nonfatal", "Non-fatal"):
        assert "drain" not in action_of(number, f"RLW_REMAP  {word}  XC0 i0 Link 00 (0x1)")


@each("number", [20001, 10001, 10004, 20012, 28006])
def test_an_sxid_that_is_not_fatal_asks_for_no_drain(number: int) -> None:
    for message in ("Non-fatal, Link 32 egress error (First)", ""):
        assert xids.switch_row(number, message).severity is Severity.SERIOUS
        assert "drain" not in xids.switch_row(number, message).action


@each("number", [11012, 12021, 15008, 19071, 24003, 10005, 22013])
def test_an_sxid_that_the_guide_ignores_is_noted(number: int) -> None:
    for message in ("Non-fatal, Link 57 Minion Link DLREQ interrupt", ""):
        assert xids.switch_row(number, message).severity is Severity.NOTED


@each("number", [11012, 11001, 12020, 10003, 20034, 29999])
def test_an_sxid_that_calls_itself_fatal_is_so_and_asks_for_a_drain(number: int) -> None:
    row = xids.switch_row(number, "Fatal, Link 30 LTSSM Fault Up")
    assert row.severity is Severity.FATAL
    assert row.action.startswith("drain")


def test_what_a_switch_does_not_say_of_its_error_the_table_does() -> None:
    assert xids.switch_row(20034, "Link 30 LTSSM Fault Up").severity is Severity.FATAL
    assert xids.switch_row(23001, "Link 30").action == xids.SWITCH_REBOOT
    assert xids.switch_row(20034, "Non-fatal, Link 30").severity is Severity.SERIOUS
    assert xids.switch_row(28006, "Severity 1 Engine instance 46").severity is Severity.FATAL
    assert xids.switch_row(20034, "Severity 0 Engine instance 46").severity is Severity.SERIOUS
    assert not set(xids.SWITCH_FATAL) & set(xids.SWITCH_NONFATAL)


@each("number", [74, *range(144, 150)])
def test_an_event_whose_text_decides_is_unread_without_it(number: int) -> None:
    assert severity_of(number, "") is Severity.UNREAD
    assert action_of(number, "") == xids.UNSAID


def test_every_row_of_xid_150_asks_for_a_reset_so_that_its_number_is_enough() -> None:
    assert {row.severity for key, row in xids.NVLINK5_ROWS.items() if key[0] == 150} == {Severity.FATAL}
    assert severity_of(150, "") is Severity.FATAL


def test_elsewhere_the_word_in_the_message_changes_nothing() -> None:
    assert severity_of(74, "NVLink: nonfatal error detected on link 14") is Severity.FATAL
    assert severity_of(43, "fatal") is Severity.NOTED


@each("number", [48, 74, 79, 95, 119, 120, 140])
def test_what_dcgm_fails_a_gpu_for_is_fatal_here(number: int) -> None:
    assert severity_of(number, "text") is Severity.FATAL


@each("number", [48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 119, 120])
def test_what_azure_looks_for_is_more_than_noted(number: int) -> None:
    """Without 92, which NVIDIA's catalogue says to ignore."""
    assert severity_of(number, "") in HEALTH


@pytest.mark.parametrize("number", [13, 31])
def test_what_applications_do_is_no_fault_of_the_node_by_itself(number: int) -> None:
    assert severity_of(number, "") is Severity.APPLICATION


def test_every_number_that_nvidia_s_sheets_name_for_wires_is_in_the_table() -> None:
    sheets: Sequence[int] = (
        *(13, 31, 43, 45, 48, 62, 63, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 121, 136, 137, 140, 143),
        *range(144, 152), *range(154, 159), *range(160, 166), 167, 168, 171, 172,
    )  # fmt: skip
    assert set(sheets) <= set(XIDS)


def test_a_number_of_next_year_is_reported_with_where_to_look_it_up() -> None:
    assert lookup(4711) is UNLISTED
    assert severity_of(4711, "fatal") in HEALTH
    assert "catalogue" in UNLISTED.action


@each("number", sorted(XIDS))
def test_every_entry_has_a_meaning_and_an_action_that_end_without_a_period(number: int) -> None:
    entry = XIDS[number]
    for text in (entry.meaning, entry.action):
        assert text
        assert text == text.strip()
        assert not text.endswith((".", ",", ";"))


@each("name", sorted(RECOVERIES))
def test_every_recovery_action_is_by_its_own_word_and_ends_without_a_period(name: str) -> None:
    wish = RECOVERIES[name]
    assert name == name.strip().lower() == wish.name
    assert not wish.action.endswith(".")


@each("number", range(len(RECOVERY_ACTIONS)))
def test_what_nvml_names_and_what_xid_154_says_are_one_action(number: int) -> None:
    name = RECOVERY_ACTIONS[number]
    words = name.replace("_", " ").title()
    for said in (name, words, f"{words} Required"):
        told = recovery_word(f"GPU recovery action changed from 0x0 (None) to {number:#x} ({said})")
        assert recovery(told) is recovery(name) is RECOVERIES[name.replace("_", " ")]


def test_only_what_is_fatal_fails_a_node() -> None:
    assert HEALTH == {
        Severity.FATAL: Health.FAILED, Severity.UNREAD: Health.UNKNOWN, Severity.SERIOUS: Health.DEGRADED
    }  # fmt: skip
    assert XIDS[RECOVERY_CHANGED].severity is Severity.NOTED


def test_which_xids_keep_jobs_away_which_degrade_and_which_are_the_application_s() -> None:
    """The table once more, on purpose: a severity is changed in both places or by mistake."""
    told = {severity: {n for n, xid in XIDS.items() if xid.severity is severity} for severity in Severity}
    assert told[Severity.FATAL] == {
        46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 150, 155, 156, 158,
    }  # fmt: skip
    assert told[Severity.APPLICATION] == {13, 31, 137}
    assert told[Severity.NOTED] == {
        14, 37, 38, 43, 44, 45, 66, 67, 92, 93, 106, 107, 108, 121, 141, 152, 153, 154, 157, 160, 161, 162,
        163, 164, 165,
    }  # fmt: skip
    assert told[Severity.UNREAD] == {*range(144, 150), 171, 172}
    assert {n for n, xid in XIDS.items() if xid.by_word} == set(range(144, 151))
    assert told[Severity.SERIOUS] == set(XIDS).difference(
        *(told[s] for s in Severity if s.value != "serious")
    )


@each(
    ("text", "kept"),
    [
        ("pci 0000:df:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space", True),
        ("pci 0000:df:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]", True),
        ("pci 0000:df:00.0: BAR 1: assigned [mem 0x2000000000-0x3fffffffff 64bit pref]", True),
        ("pci 0000:df:00.0: BAR 1 [mem 0x2000000000-0x3fffffffff 64bit pref]", False),
        ("pci 0000:df:00.0: BAR 13 [io  size 0x1000]: can't assign; no space", False),
        ("nvidia 0000:df:00.0: probe with driver nvidia failed with error -1", True),
        ("nvidia: probe of 0000:df:00.0 failed with error -1", True),
    ],
)
def test_what_the_kernel_says_of_a_start_is_wanted_and_no_event(text: str, *, kept: bool) -> None:
    assert wanted(raw(text)) is kept
    assert parse_events([Record(1, 1.0, text)]) == ((), "")


def test_a_start_that_failed_says_most_by_its_driver_and_nothing_once_memory_was_found() -> None:
    lines = [
        "nvidia: probe of 0000:df:00.0 failed with error -1",
        "pci 0000:df:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]",
        "pci 0000:d1:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]",
        "pci 0000:d1:00.0: BAR 1: assigned [mem 0x2000000000-0x3fffffffff 64bit pref]",
        "NVRM: The NVIDIA GPU 0000:c3:00.0 (PCI ID: 10de:2335)",
        "NVRM: installed in this system is not supported by the NVIDIA 580.126.09 driver release.",
        "nvidia 0000:c3:00.0: probe with driver nvidia failed with error -1",
    ]
    assert failed_starts(Record(n, 1.0, line) for n, line in enumerate(lines)) == {
        "0000:df:00.0": lines[1],
        "0000:c3:00.0": lines[5],
    }
