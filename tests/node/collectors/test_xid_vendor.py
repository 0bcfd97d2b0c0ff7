"""What the vendors' tables say of events in the kernel's log: to ignore, to watch, to drain; and no more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.node.collectors.drawn import PCI, Gpus, Watched
from tests.rows import each
from wirewatch.collectors.xid import RULES
from wirewatch.core import xids
from wirewatch.core.kernellog import TEXTS
from wirewatch.core.types import Absent, Health, Why
from wirewatch.core.xids import Severity

_, DEGRADED, UNKNOWN, FAILED = Health
ADDRESSES = ("0000:05:00.0", "0000:3f:00.0")
GPU, LINK, SWITCH = "GPU 0", "GPU 0 link 3", "0000:c1:00"
NIC = "0000:4f:00.0"
CATALOGUE = "docs.nvidia.com/deploy/xid-errors (also leptonai/gpud, xid/catalog_generated.go)"
NVLINK_ERR = "WORKFLOW_NVLINK_ERR of NVIDIA's catalogue (NVIDIA/NVSentinel, docs/designs/024)"
GUIDE = "NVIDIA's Fabric Manager guide DU-09883, appendix D (also leptonai/gpud, sxid/sxid.go)"
DUMP = "NVIDIA/open-gpu-kernel-modules, error_nvswitch.c: _nvswitch_dump_error_entry"
SENTINEL = "NVIDIA/NVSentinel, docs/designs/048 (10.4); Linux mlx5/core/"
COMMAND, QUEUE = f"{SENTINEL}cmd.c: wait_func", f"{SENTINEL}en_main.c: mlx5e_tx_timeout"
MODULE = f"{SENTINEL}events.c: port_module"
CHARM = "charmplusplus/charm#2635; Linux mlx5/core/health.c: print_health_info"
AER, DPC = "Linux drivers/pci/pcie/aer.c: aer_print_source", "Linux drivers/pci/pcie/dpc.c: dpc_process_error"
HOTPLUG = "Linux drivers/pci/hotplug/pciehp_ctrl.c: pciehp_handle_presence_or_link_change"
MODULES = "NVIDIA/open-gpu-kernel-modules, kernel_rc.c (krcReportXid)"


@dataclass(frozen=True)
class Input:
    """Lines of the kernel's log, where they come from, and what is found with what words in its advice."""

    source: str
    lines: Sequence[str]
    found: Mapping[tuple[str, str], Health]
    words: str = ""


def xid(number: int, rest: str = "") -> str:
    return f"NVRM: Xid (PCI:0000:05:00): {number}{rest and f', {rest}'}"


def nvlink5(number: int, unit: str, word: str, info: int, status: int) -> str:
    return xid(number, f"{unit} {word} XC0 i0 Link 03 ({info:#010x} {status:#010x} 0x00000000 0x00000000)")


def link_event(code: int, word: str = "Fatal") -> str:
    return nvlink5(149, "NETIR_LINK_EVT", word, code << 20 | 0x1C6, 0)


def nvlink4(*registers: int) -> str:
    told = ", ".join(f"{one:#x}" for one in (*registers, *[0] * (7 - len(registers))))
    return xid(74, f"pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 3({told})")


def sxid(number: int, rest: str) -> str:
    return f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {number}, {rest}"


def after(cause: int) -> str:
    return xid(45, f"pid=4711, name=train, Ch 00000008 caused by previous Xid {cause}")


NOTHING: Mapping[tuple[str, str], Health] = {}
X149, X74 = ("xid.149", LINK), ("xid.74", LINK)
INPUTS = {
    # XID 74: a bit that the vendor ignores alone, beside another, and others
    **{f"74 bit {bit}": Input(NVLINK_ERR, [nvlink4(1 << bit)], NOTHING) for bit in (0, 23, 30)},
    "74 all ignorable": Input(NVLINK_ERR, [nvlink4(1 | 1 << 23 | 1 << 30)], NOTHING),
    "74 ECC": Input(NVLINK_ERR, [nvlink4(1 << 4)], {X74: FAILED}, "ECC"),
    "74 ignorable and ECC": Input(NVLINK_ERR, [nvlink4(1 | 1 << 5)], {X74: FAILED}, "ECC"),
    "74 sympathetic": Input(NVLINK_ERR, [nvlink4(1 << 20)], {X74: FAILED}, "follow that one"),
    "74 sympathetic and seating": Input(NVLINK_ERR, [nvlink4(1 << 1 | 1 << 28)], {X74: FAILED}, "reseat"),
    "74 signal": Input(NVLINK_ERR, [nvlink4(1 << 21)], {X74: FAILED}, "marginal"),
    "74 third": Input(NVLINK_ERR, [nvlink4(0, 0, 1 << 16)], {X74: FAILED}, "if it returns"),
    "74 fourth": Input(NVLINK_ERR, [nvlink4(0, 0, 0, 1 << 18)], {X74: FAILED}, "follow that one"),
    "74 fifth": Input(NVLINK_ERR, [nvlink4(0, 0, 0, 0, 1 << 27)], {X74: FAILED}, "ECC"),
    "74 threshold": Input(NVLINK_ERR, [nvlink4(0, 0, 0, 0, 1 << 20)], {X74: DEGRADED}, "no reset needed"),
    "74 unlisted bit": Input(NVLINK_ERR, [nvlink4(1 << 2)], {X74: FAILED}),
    "74 bit 0 of the second": Input(NVLINK_ERR, [nvlink4(0, 1)], {X74: FAILED}),
    "74 no bit": Input(NVLINK_ERR, [nvlink4()], {X74: FAILED}),
    # XIDs 144 to 150
    "149 of gpud#1160": Input("leptonai/gpud#1160", [link_event(38)], NOTHING),
    "149 host": Input(CATALOGUE, [link_event(40)], NOTHING),
    "149 peer": Input(CATALOGUE, [link_event(37)], {X149: FAILED}, "at the other end of this link"),
    "149 peer 21": Input(CATALOGUE, [link_event(21)], {X149: FAILED}, "at the other end of this link"),
    "149 retrain": Input(CATALOGUE, [link_event(42)], {X149: FAILED}, "drain and reset"),
    "149 unlisted, fatal": Input(CATALOGUE, [link_event(63)], {X149: FAILED}),
    "149 unlisted, not fatal": Input(CATALOGUE, [link_event(63, "Nonfatal")], {X149: DEGRADED}),
    "149 old and new name": Input(
        CATALOGUE, [nvlink5(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", "Fatal", 0x02600011, 0)], NOTHING
    ),
    "149 BER": Input(CATALOGUE, [nvlink5(149, "NETIR_BER_EVENT", "Nonfatal", 0x13, 1)], NOTHING),
    "149 MFDE": Input(CATALOGUE, [nvlink5(149, "NETIR_MFDE_EVENT", "Nonfatal", 0x14, 3)], NOTHING),
    "149 MFDE fatal": Input(CATALOGUE, [nvlink5(149, "NETIR_MFDE_EVENT", "Fatal", 0x14, 4)], {X149: FAILED}),
    "144": Input(CATALOGUE, [nvlink5(144, "SAW_MVB", "Nonfatal", 0x1, 0x20)], NOTHING),
    "144 fatal": Input(
        CATALOGUE, [nvlink5(144, "SAW_MVB", "Fatal", 0x1, 0x10)], {("xid.144", LINK): FAILED}, "reset"
    ),
    "145 follow": Input(
        CATALOGUE, [nvlink5(145, "RLW_REMAP", "Nonfatal", 0x4, 0x20)], {("xid.145", LINK): DEGRADED}
    ),
    "145 promotable": Input(CATALOGUE, [nvlink5(145, "RLW_RXPIPE", "Nonfatal", 0x6, 1)], NOTHING),
    "145 promoted": Input(
        CATALOGUE, [nvlink5(145, "RLW_RXPIPE", "Fatal", 0x86, 1)], {("xid.145", LINK): FAILED}, "reset"
    ),
    "146": Input(CATALOGUE, [nvlink5(146, "TLW_TX_PIPE1", "Nonfatal", 0xD, 2)], NOTHING),
    "146 fatal": Input(
        CATALOGUE, [nvlink5(146, "TLW_RX_PIPE0", "Fatal", 0xA, 4)], {("xid.146", LINK): FAILED}, "reset"
    ),
    "147": Input(CATALOGUE, [nvlink5(147, "TREX", "Nonfatal", 0xE, 1)], NOTHING),
    "148": Input(CATALOGUE, [nvlink5(148, "NVLPW_CTRL", "Nonfatal", 0xF, 0x80000000)], NOTHING),
    "150": Input(CATALOGUE, [nvlink5(150, "MSE_WATCHDOG", "Fatal", 0, 0)], {("xid.150", LINK): FAILED}),
    # to be ignored by the catalogue
    **{str(n): Input(CATALOGUE, [xid(n)], NOTHING) for n in (43, 92, 152, 153, 157)},
    "155": Input(CATALOGUE, [xid(155)], {("xid.155", GPU): FAILED}, "reset"),
    # sequels
    "45 after 149": Input(MODULES, [after(149)], {("xid.149", GPU): UNKNOWN}, "its registers say"),
    "45 after 74": Input(MODULES, [after(74)], {("xid.74", GPU): UNKNOWN}, "its registers say"),
    "45 after 79": Input(MODULES, [after(79)], {("xid.79", GPU): FAILED}, "reboot"),
    "45 after 94": Input(MODULES, [after(94)], {("xid.94", GPU): DEGRADED}),
    "45 after 43": Input(MODULES, [after(43)], NOTHING),
    "45 after 31": Input(MODULES, [after(31)], NOTHING),
    "45 alone": Input(MODULES, [xid(45, "pid=4711, name=train, Ch 00000008")], NOTHING),
    "149 and its 45": Input(MODULES, [link_event(37), after(149)], {X149: FAILED}),
    "149 to ignore and its 45": Input(MODULES, [link_event(38), after(149)], NOTHING),
    "45 before its 149": Input(MODULES, [after(149), link_event(37)], {X149: FAILED}),
    "45 before its 149 to ignore": Input(MODULES, [after(149), link_event(38)], NOTHING),
    # switches
    "11004": Input(GUIDE, [sxid(11004, "Non-fatal, Link 3 ingress ACL")],
                   {("sxid.11004", f"link 3 {SWITCH}"): FAILED}, "drain"),
    "12028": Input(GUIDE, [sxid(12028, "Non-fatal, Link 3 egress PRIV")],
                   {("sxid.12028", f"link 3 {SWITCH}"): FAILED}, "drain"),
    "19084": Input(GUIDE, [sxid(19084, "Non-fatal, Link 20 AN1 Heartbeat Timeout Error (First)")],
                   {("sxid.19084", f"link 20 {SWITCH}"): FAILED}, "reset all GPUs and switches"),
    "22013": Input(GUIDE, [sxid(22013, "Non-fatal, Link 57 Minion Link DLREQ interrupt")], NOTHING),
    "11012": Input(GUIDE, [sxid(11012, "Non-fatal, Link 3 ingress ECC")], NOTHING),
    "20001": Input(GUIDE, [sxid(20001, "Non-fatal, Link 3 TX Replay Error")],
                   {("sxid.20001", f"link 3 {SWITCH}"): DEGRADED}),
    "20034": Input(GUIDE, [sxid(20034, "Fatal, Link 3 LTSSM Fault Up")],
                   {("sxid.20034", f"link 3 {SWITCH}"): FAILED}, "drain"),
    "fatal data line": Input(DUMP, [sxid(28006, "Severity 1 Engine instance 46 Sub-engine instance 00")],
                             {("sxid.28006", SWITCH): FAILED}, "drain"),
    "data line": Input(DUMP, [sxid(28006, "Severity 0 Engine instance 46 Sub-engine instance 00"),
                                  sxid(28006, "Data {0x00140004, 0x00100000}")],
                       {("sxid.28006", SWITCH): DEGRADED}),
    "last data line of a fatal one": Input(DUMP, [sxid(20034, "Data {0x00140004}")],
                                           {("sxid.20034", SWITCH): FAILED}),
    "data line to ignore": Input(DUMP, [sxid(22013, "Data {0x00140004}")], NOTHING),
    # network cards and PCIe ports
    "charm#2635": Input(
        CHARM,
        [f"mlx5_core {NIC}: device's health compromised - reached miss count",
         f"mlx5_core {NIC}: assert_var[0] 0x00000001", f"mlx5_core {NIC}: synd 0x7: irisc not responding"],
        {("kernel.nic_failed", NIC): FAILED, ("kernel.nic_firmware", NIC): DEGRADED}, "drain",
    ),
    "firmware alone": Input(CHARM, [f"mlx5_core {NIC}: synd 0x7: irisc not responding"],
                            {("kernel.nic_firmware", NIC): DEGRADED}),
    "command": Input(COMMAND, [f"mlx5_core {NIC}: INIT_HCA(0x102) timeout. Will cause a leak of a command"],
                     {("kernel.nic_failed", NIC): FAILED}, "drain"),
    "command in time": Input(COMMAND, [f"mlx5_core {NIC}: cmd0: ENABLE_HCA(0x104) recovered after timeout"],
                             NOTHING),
    "queue": Input(QUEUE, [f"mlx5_core {NIC} ens15np0: TX timeout detected"],
                   {("kernel.nic_timeout", NIC): DEGRADED}),
    "a cable is pulled": Input(MODULE, [f"mlx5_core {NIC}: Port module event: module 0, Cable unplugged"],
                               NOTHING),
    "recovered": Input(
        f"{SENTINEL}health.c: mlx5_health_try_recover",
        [f"mlx5_core {NIC}: device's health compromised - reached miss count",
         f"mlx5_core {NIC}: mlx5_health_try_recover:343:(pid 9): health recovery succeeded"],
        {("kernel.nic_failed", NIC): DEGRADED}, "if it returns",
    ),
    # A start begins with the version of the firmware; a command that recovered never timed out for good.
    **{
        f"not over with {last}": Input(
            COMMAND, [f"mlx5_core {NIC}: {first}", f"mlx5_core {NIC}: {last}"],
            {("kernel.nic_failed", NIC): FAILED},
        )
        for first, last in (
            ("device's health compromised - reached miss count", "firmware version: 28.41.1000"),
            ("INIT_HCA(0x102) timeout. Will cause a leak of a command resource",
             "cmd[2]: QUERY_VPORT_STATE(0x750) recovered after timeout"),
        )
    },
    "another recovered": Input(
        f"{SENTINEL}health.c: poll_health, main.c: mlx5_function_enable",
        [f"mlx5_core {NIC}: device's health compromised - reached miss count",
         "mlx5_core 0000:4f:00.1: health recovery succeeded"],
        {("kernel.nic_failed", NIC): FAILED}, "drain",
    ),
    "a card that is gone looks for its version": Input(
        f"{SENTINEL}main.c: mlx5_function_enable",
        [f"mlx5_core {NIC}: device's health compromised - reached miss count",
         f"mlx5_core {NIC}: firmware version: 65535.65535.65535"],
        {("kernel.nic_failed", NIC): FAILED}, "drain",
    ),
    "unloaded": Input(f"{SENTINEL}health.c: mlx5_fw_fatal_reporter_err_work",
                      [f"mlx5_core {NIC}: Driver is in error state. Unloading"],
                      {("kernel.nic_failed", NIC): FAILED}, "drain"),
    "hot chip": Input(f"{SENTINEL}events.c: temp_warn",
                      [f"mlx5_core {NIC}: temp_warn:171: High temperature on sensors with bit set 0 1"],
                      {("kernel.nic_module", NIC): DEGRADED}, "cool"),
    "fatal AER of a GPU": Input(
        AER, ["pcieport 0000:04:00.0: AER: Uncorrected (Fatal) error received: 0000:05:00.0"],
        {("kernel.pcie_fatal", GPU): DEGRADED},
    ),
    "non-fatal AER": Input(
        AER, ["pcieport 0000:04:00.0: AER: Uncorrected (Non-Fatal) error received: 0000:05:00.0"], NOTHING
    ),
    "DPC": Input(DPC, ["pcieport 0000:04:00.0: DPC: containment event, status:0x1f01 source:0x0000"],
                 {("kernel.pcie_fatal", "0000:04:00.0"): DEGRADED}),
    "link down": Input(HOTPLUG, ["pcieport 0000:04:00.0: pciehp: Slot(12): Link Down"],
                       {("kernel.pcie_link_down", "0000:04:00.0"): DEGRADED}),
}  # fmt: skip


def watched(*lines: str) -> Watched:
    node = Watched("xid", gpus=Gpus(ADDRESSES))
    node.log.lines += ["boot", *lines]
    node.clock.seconds = 1_795_000_000.0 - node.clock.now() + 100
    return node


@each("name", INPUTS)
def test_an_input_has_the_answer_of_its_vendor(name: str) -> None:
    told = INPUTS[name]
    node = watched(*told.lines)
    node.poll(2)
    assert node.rules() == told.found
    assert not told.words or told.words in node.component.findings[0].action
    for finding in node.component.findings:
        assert ("drain" in finding.action) == (finding.health is FAILED)


@each("name", INPUTS)
def test_every_xid_and_sxid_is_counted_also_one_to_ignore(name: str) -> None:
    node = watched(*INPUTS[name].lines)
    node.poll(2)
    lines = INPUTS[name].lines
    assert sum(node.series("xid_events_total")) == sum("NVRM: Xid" in line for line in lines)
    assert bool(node.series("sxid_events_total")) == any("SXid" in line for line in lines)


@pytest.mark.parametrize("priority", [12, 28, 132])
def test_a_program_s_line_is_no_event_and_one_that_looks_like_an_xid_is_counted(priority: int) -> None:
    """Facility 1 is `user`: /dev/kmsg gives it to whoever writes there (Linux, printk.c)."""
    node = watched(
        xid(79), xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    )
    node.log.lines.append(f"mlx5_core {NIC}: device's health compromised - reached miss count")
    node.log.priority = priority
    node.poll(2)
    assert node.rules() == {}
    assert node.series("kernel_log_unparsed_total") == [2]
    assert node.series("xid_events_total") == []


@each("number", [74, *range(144, 150)])
def test_by_nvml_alone_what_its_text_decides_is_unknown_for_a_day(number: int) -> None:
    node = watched()
    node.log.absent = Absent(Why.DENIED, "/dev/kmsg: EPERM", 1)
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-0", "xid": number}]
    node.poll(3)
    assert node.rules() == {(f"xid.{number}", GPU): UNKNOWN}
    assert "was not read" in node.component.findings[0].evidence
    node.poll(2, every=86400.0)
    assert node.rules() == {}


@pytest.mark.parametrize("number", [79, 95, 150])
def test_by_nvml_alone_what_its_number_decides_is_failed(number: int) -> None:
    node = watched()
    node.log.absent = Absent(Why.DENIED, "/dev/kmsg: EPERM", 1)
    node.gpus.table[None, "Events()"] = [{"number": 1, "uuid": "GPU-0", "xid": number}]
    node.poll(3)
    assert node.rules() == {(f"xid.{number}", GPU): FAILED}


def rows() -> list[tuple[str, Severity, str]]:
    """Every row of every table: its name, how bad it is, and what to do."""
    by_health = {health: severity for severity, health in xids.HEALTH.items()}
    return [
        *((f"XID {n}", one.severity, one.action) for n, one in xids.XIDS.items() if not one.by_word),
        *((f"XID {n}, fatal", Severity.FATAL, one.action) for n, one in xids.XIDS.items() if one.by_word),
        *((f"XID {n}, not", Severity.SERIOUS, one.nonfatal) for n, one in xids.XIDS.items() if one.by_word),
        ("another XID", xids.UNLISTED.severity, xids.UNLISTED.action),
        ("an unread XID", Severity.UNREAD, xids.UNSAID),
        *((f"XID 74, {key}", one.severity, one.action) for key, one in xids.NVLINK_BITS.items()),
        *((f"NVLink 5, {key}", one.severity, one.action) for key, one in xids.NVLINK5_ROWS.items()),
        *((f"SXid {n}", Severity.FATAL, action) for n, action in xids.SWITCH_FATAL.items()),
        *((f"SXid {n}", one.severity, one.action) for n, one in xids.SWITCH_NONFATAL.items()),
        ("another SXid, fatal", Severity.FATAL, xids.SWITCH_DRAIN),
        ("another SXid", Severity.SERIOUS, xids.SWITCH_WATCH),
        *((kind, text.severity, text.action) for kind, text in TEXTS.items()),
        *(
            (name, by_health.get(one.health, Severity.NOTED), one.action)
            for name, one in xids.RECOVERIES.items()
        ),
        ("another recovery", by_health[xids.recovery("new").health], xids.recovery("new").action),
    ]


@each(("name", "severity", "action"), rows())
def test_what_says_drain_is_fatal_and_what_is_fatal_says_drain(
    name: str, severity: Severity, action: str
) -> None:
    assert ("drain" in action) == (severity is Severity.FATAL), name


IGNORED = (14, 37, 38, 43, 44, 66, 67, 92, 93, 106, 107, 108, 121, 141, 152, 153, 157, 160, 161)
"""What the catalogue says to ignore at once, without 63 (a reset waits) and 137 (one GPU repeats it)."""


@each("number", IGNORED)
def test_what_the_catalogue_says_to_ignore_changes_no_health(number: int) -> None:
    assert xids.severity_of(number, "") is Severity.NOTED
    assert f"xid.{number}" not in {rule.name for rule in RULES}


@each("kind", sorted(TEXTS))
def test_every_text_that_is_reported_has_a_rule_with_its_health(kind: str) -> None:
    healths = {rule.name: rule.healths for rule in RULES}.get(f"kernel.{kind}", ())
    health = xids.HEALTH.get(TEXTS[kind].severity)
    assert (healths != ()) == (health is not None)
    assert health is None or health in healths


@pytest.mark.parametrize(
    ("listed", "physfn", "health"),
    [
        (("0000:4f:00.0", "0000:4f:00.3"), "../0000:4f:00.0", Health.OK),
        (("0000:4f:00.0",), "", Health.OK),
        (("0000:4f:00.0", "0000:4f:00.3"), "", FAILED),
        ((), "", FAILED),
    ],
    ids=["a virtual function", "one that is gone", "a second port", "a card that is gone"],
)
def test_a_virtual_function_is_nobody_s_wire(listed: Sequence[str], physfn: str, health: Health) -> None:
    """Linux, drivers/pci/iov.c: a function's link physfn leads to its card while it is there."""
    node = watched("mlx5_core 0000:4f:00.3: device's health compromised - reached miss count")
    for address in listed:
        node.files.device(address, "pci0000:4e/0000:4e:01.0", driver="mlx5_core")
    if physfn:
        node.files.links[f"{PCI}/0000:4f:00.3/physfn"] = physfn
    found = node.poll()
    assert max((one.health for one in found), default=Health.OK) is health
    assert node.series("kernel_events_total", kind="nic_failed") == [1]
