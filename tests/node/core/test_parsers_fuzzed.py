"""Parsers of texts that others write, given any text and damaged good ones: none raises, none skips."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import damaged
from tests.rows import each
from wirewatch.core.kernellog import Record, parse_events, parse_record, recovery_word, wanted
from wirewatch.core.pci import Path, Place, acs_redirects, aer_total, generation, normal_pci, place, width
from wirewatch.core.rdma import Rate, counter, number, parse_ibstat, physical_state, port_rate, port_state
from wirewatch.core.tree import count_nodes, rdma_address, read_place
from wirewatch.core.types import Absent, Why
from wirewatch.core.xids import severity_of
from wirewatch.nccl.settings import gdr_level, parse_nccl_conf

IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 2
\tFirmware version: 28.40.1000
\tHardware version: 0
\tNode GUID: 0x00c0ffee00000000
\tSystem image GUID: 0x00c0ffee00000000
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tEffective speed: 397.5
\t\tBase lid: 75
\t\tLMC: 0
\t\tSM lid: 7
\t\tCapability mask: 0xa751e848
\t\tPort GUID: 0x00c0ffee00000001
\t\tLink layer: InfiniBand
\tPort 2:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 40 (FDR10)
\t\tBase lid: 0
\t\tLink layer: IB
CA: 'mlx5_1'
Port 1:
State: Initializing
Rate: 2.5
Link layer: Ethernet
"""
NCCL_CONF = (
    "# site\nNCCL_DEBUG=WARN\n\nNCCL_NET_GDR_LEVEL=PHB\nNCCL_TOPO_FILE=/etc/topo.xml\n#NCCL_IB_DISABLE=1\n"
)
KERNEL = (
    "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (0000:03:00): 14, Channel 00000001",
    "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000)",
    "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
    "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
    "NVRM: The NVIDIA GPU 0000:18:00.0",
    "NVRM: fallen off the bus and is not responding to commands.",
    "mlx5_core 0000:5c:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link",
    "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature",
)
RAW = tuple(f"3,12{i},98765432{i},-;{text}\n SUBSYSTEM=pci\n" for i, text in enumerate(KERNEL))
AER = "RxErr 0\nBadTLP 3\nTimeout 0\nTOTAL_ERR_COR 3\n"
PLACE = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0"
PCI = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(\.[0-7])?")

SMALL: Sequence[tuple[Callable[[str], object], type, Sequence[str]]] = (
    (port_state, str, ("4: ACTIVE", "5: ACTIVE_DEFER")),
    (physical_state, str, ("5: LinkUp", "7: Phy Test")),
    (port_rate, Rate, ("400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)", "10 Gb/sec (4X)")),
    (counter, int, ("230539874932483", "N/A (no PMA)")),
    (number, int, ("0x4b", "75")),
    (generation, int, ("32.0 GT/s PCIe", "Unknown")),
    (width, int, ("16", "255")),
    (aer_total, int, (AER,)),
)
"""Parsers of one value: what they give, and good texts."""


@pytest.mark.parametrize(("parser", "kind", "good"), SMALL, ids=[row[0].__name__ for row in SMALL])
@given(data=st.data())
def test_a_parser_of_one_value_gives_it_or_says_why_not(
    parser: Callable[[str], object], kind: type, good: Sequence[str], data: st.DataObject
) -> None:
    told = parser(data.draw(st.text() | damaged(*good)))
    assert isinstance(told, Absent | kind)
    assert not isinstance(told, Absent) or told.why in {Why.MALFORMED, Why.UNSUPPORTED}


LONG = "9" * 5000
"""More digits than Python turns into a number."""


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (counter, LONG),
        (number, LONG),
        (width, LONG),
        (generation, f"{LONG} GT/s PCIe"),
        (aer_total, f"RxErr {LONG}"),
        (port_state, f"{LONG}: ACTIVE"),
        (physical_state, f"{LONG}: LinkUp"),
        (port_rate, f"400 Gb/sec ({LONG}X NDR)"),
    ],
    ids=lambda value: getattr(value, "__name__", "long"),
)
def test_a_number_that_is_too_long_is_an_answer_and_no_crash(
    parser: Callable[[str], object], text: str
) -> None:
    assert isinstance(parser(text), Absent)


def test_numbers_that_are_too_long_in_texts_of_many_lines_are_no_crash_either() -> None:
    told = parse_ibstat(f"CA 'mlx5_0'\n\tPort 1:\n\t\tBase lid: {LONG}\n")
    assert told.ports["mlx5_0", "1"].lid is None
    assert len(told.unknown) == 1
    assert parse_record(f"6,{LONG},0,-;hello") is None
    (event,), _ = parse_events([Record(1, 0.0, f"NVRM: Xid (PCI:0000:05:00): {LONG}, x")])
    assert event.kind == "unknown"
    (event,), _ = parse_events([Record(1, 0.0, f"NVRM: Xid (PCI:0000:05:00): 74, x link {LONG}")])
    assert (event.number, event.link) == (74, "")
    found = place(PLACE, LONG)
    assert isinstance(found, Place)
    assert found.numa is None
    assert count_nodes(ScriptedSysfs(LONG, "")) is None
    assert gdr_level(LONG) in {(False, None), (True, Path.SYS)}


FIELDS = "LMC|SM lid|Capability mask|Port GUID|Effective speed"
PHYSICAL = "No state change|Sleep|Polling|Disabled|PortConfigurationTraining|LinkUp|LinkErrorRecovery|PhyTest"
ABOUT_DEVICE = "Number of ports|Firmware version|Hardware version|Node GUID|System image GUID"
KNOWN = re.compile(
    rf"""
    (CA|Switch|Router|iWARP\ RNIC|\?\?\?):?\ '[^']+' | Port\ \d+:
    | State:\s*(Down|Initializing|Armed|Active)
    | Physical\ state:\s*({PHYSICAL.replace(" ", "[ ]")}) | Rate:\s*\d+(\.\d+)?(\ \(FDR10\))?
    | Base\ lid:\s*[0-9]+ | Link\ layer:\s*\S.* | ({FIELDS.replace(" ", "[ ]")}):.*
    | (CA|Switch|Router|iWARP\ RNIC|\?\?\?)\ type:.* | ({ABOUT_DEVICE.replace(" ", "[ ]")}):.*
    """,
    re.VERBOSE,
)
"""Lines that ibstat can print, written down a second time."""

LINES: st.SearchStrategy[str] = st.text(min_size=1).filter(
    lambda line: line.strip() and line.splitlines() == [line]
)
FOREIGN = LINES.filter(lambda line: "'" not in line and not KNOWN.fullmatch(line.strip()))


@given(st.text() | damaged(IBSTAT))
def test_ibstat_every_line_is_one_that_it_prints_or_is_reported_as_unknown(text: str) -> None:
    told = parse_ibstat(text)
    lines = [line for line in text.splitlines() if line.strip()]
    assert set(told.unknown) <= set(lines)
    for line in lines:
        assert line in told.unknown or KNOWN.fullmatch(line.strip()), line
    assert {device for device, _ in told.ports} <= set(told.devices)


@given(st.integers(0, len(IBSTAT.splitlines())), FOREIGN)
def test_ibstat_a_foreign_line_anywhere_is_reported_and_the_rest_is_read(at: int, line: str) -> None:
    lines = IBSTAT.splitlines()
    told, whole = parse_ibstat("\n".join([*lines[:at], line, *lines[at:]])), parse_ibstat(IBSTAT)
    assert told.unknown == (line,)
    assert set(told.devices) <= set(whole.devices)


@given(st.text() | damaged(NCCL_CONF))
def test_nccl_conf_every_line_is_a_setting_a_comment_or_listed_as_unknown(text: str) -> None:
    told = parse_nccl_conf(text)
    for line in text.splitlines():
        known = line.partition("=")[0].strip() in told.settings
        assert line in told.unknown or known or not line.partition("#")[0].strip(), line


@given(st.integers(0, 6), LINES.filter(lambda line: not set("=#") & set(line)))
def test_nccl_conf_a_foreign_line_anywhere_is_reported_and_the_rest_is_read(at: int, line: str) -> None:
    lines = NCCL_CONF.splitlines()
    told = parse_nccl_conf("\n".join([*lines[:at], line, *lines[at:]]))
    assert told.unknown == (line,)
    assert told.settings == parse_nccl_conf(NCCL_CONF).settings


@given(st.text() | damaged("PIX", "PHB", "SYS", "4"))
def test_any_level_is_known_or_not(value: str) -> None:
    known, path = gdr_level(value)
    assert isinstance(known, bool)
    assert path is None or (known and isinstance(path, Path))


@given(st.text() | damaged(*RAW))
def test_any_record_is_read_or_is_none(raw: str) -> None:
    record = parse_record(raw)
    assert isinstance(wanted(raw), bool)
    assert record is None or (record.sequence >= 0 and record.seconds >= 0 and "\n" not in record.text)


_TEXTS = st.text() | damaged(*KERNEL, "\\x0a".join(KERNEL[6:8]))
_RECORDS = st.lists(st.builds(Record, st.integers(0), st.floats(0, 1e9), _TEXTS), max_size=5)


@given(_RECORDS, st.sampled_from(["", "0000:18:00.0"]))
def test_any_records_are_events_with_addresses_and_links_in_one_form(
    records: list[Record], about: str
) -> None:
    events, about = parse_events(records, about)
    assert len(events) <= len(records)
    for event in events:
        assert not event.pci or normal_pci(event.pci) == event.pci
        assert not event.link or event.link == str(int(event.link))
        assert recovery_word(event.message) == recovery_word(event.message).lower()
        severity_of(event.number, event.message)
    assert not about or normal_pci(about) == about


@given(
    st.text(), st.sampled_from([" Xid ", " SXid ", "(Xid)", "NVRM: Xid: ", "fallen off the bus"]), st.text(),
    st.sampled_from(["", "0000:18:00.0"]),
)  # fmt: skip
def test_a_line_that_speaks_of_an_xid_or_of_the_bus_is_never_dropped(
    before: str, word: str, after: str, about: str
) -> None:
    events, _ = parse_events([Record(1, 0.0, f"{before}{word}{after}")], about)
    assert len(events) == 1


@given(st.lists(damaged(*KERNEL), max_size=6), st.integers(0, 6))
def test_events_do_not_depend_on_how_the_records_were_read(texts: list[str], cut: int) -> None:
    records = [Record(i, float(i), text) for i, text in enumerate(texts)]
    whole = parse_events(records)
    first, about = parse_events(records[:cut])
    second, about = parse_events(records[cut:], about)
    assert ((*first, *second), about) == whole


@given(st.text() | damaged(KERNEL[3]))
def test_any_message_has_a_recovery_word_or_none(message: str) -> None:
    assert recovery_word(message) == recovery_word(message).strip()


@given(st.from_regex(PCI, fullmatch=True))
def test_every_pci_address_has_one_form(address: str) -> None:
    normal = normal_pci(address)
    assert PCI.fullmatch(normal)
    assert normal == normal_pci(normal) == normal_pci(address.upper()) == normal.lower()
    assert int(normal.partition(":")[0], 16) == int(address.partition(":")[0], 16)


@given(st.text() | damaged("00000000:3F:00.0"))
def test_any_text_is_a_pci_address_or_empty(text: str) -> None:
    normal = normal_pci(text)
    assert not normal or PCI.fullmatch(normal)


_NUMA = st.text() | st.sampled_from(["0", "1", "-1"]) | st.builds(Absent, st.sampled_from(Why))


@given(st.text() | damaged(PLACE), _NUMA)
def test_any_path_is_a_place_or_says_why_not(resolved: str, numa: str | Absent) -> None:
    found = place(resolved, numa)
    if not isinstance(found, Absent):
        assert all(PCI.fullmatch(one) for one in (*found.bridges, found.address))
        assert "/".join((found.root, *found.bridges, found.address)) in resolved


@given(st.binary(max_size=4100))
def test_any_bytes_are_a_configuration_space(config: bytes) -> None:
    told = acs_redirects(config)
    assert isinstance(told, Absent | tuple)


class ScriptedSysfs:
    """Answers every question alike."""

    def __init__(self, text: str | Absent, resolved: str | Absent) -> None:
        self._text, self._resolved = text, resolved

    def read(self, path: str) -> str | Absent:
        assert path.startswith("/sys/")
        return self._text

    def data(self, path: str) -> bytes | Absent:
        return Absent(Why.MISSING, path)

    def entries(self, path: str) -> Sequence[str] | Absent:
        return Absent(Why.MISSING, path)

    def link(self, path: str) -> str | Absent:
        assert path.startswith("/sys/")
        return self._resolved


_ABSENT = st.builds(Absent, st.sampled_from(Why))


@given(st.text() | damaged("0-1", "0,2-3", "0") | _ABSENT, st.text() | damaged(PLACE) | _ABSENT, st.text())
def test_any_answer_of_sysfs_about_the_tree_is_understood_or_reported(
    text: str | Absent, resolved: str | Absent, address: str
) -> None:
    sysfs = ScriptedSysfs(text, resolved)
    nodes = count_nodes(sysfs)
    assert nodes is None or isinstance(nodes, int)
    found: Any = read_place(sysfs, address)
    assert isinstance(found, Place | Absent)
    assert isinstance(rdma_address(sysfs, "mlx5_0"), str | Absent)
    if isinstance(resolved, Absent) and address:
        assert found is resolved


@each(
    ("text", "nodes"),
    [("0", 1), ("0-1", 2), ("0-7", 8), ("0,2-3", 3), ("0-1,8-9", 4), ("", None), ("0-", None)],
)
def test_numa_nodes_are_counted_over_their_ranges(text: str, nodes: int | None) -> None:
    assert count_nodes(ScriptedSysfs(text, "")) == nodes


@pytest.mark.parametrize("text", ["1-0", "3-1,0"])
def test_a_range_that_runs_backwards_counts_nothing(text: str) -> None:
    assert count_nodes(ScriptedSysfs(text, "")) is None


def test_a_place_is_read_with_its_numa_node_and_without_an_address_there_is_none() -> None:
    told = read_place(ScriptedSysfs("1", PLACE), "0000:19:00.0")
    assert told == Place("0000:19:00.0", "pci0000:16", ("0000:16:01.0", "0000:17:00.0", "0000:18:00.0"), 1)
    nowhere = read_place(ScriptedSysfs("1", PLACE), "")
    assert isinstance(nowhere, Absent)
    assert nowhere.why is Why.MISSING
