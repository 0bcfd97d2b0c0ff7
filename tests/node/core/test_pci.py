"""PCI trees drawn by hand, configuration spaces built byte by byte, and the texts of the kernel."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch.core.pci import (
    ACS_FLAGS,
    LANE_RATES,
    Path,
    Place,
    acs_redirects,
    aer_total,
    bridges_between,
    generation,
    hidden,
    normal_pci,
    path_between,
    place,
    width,
)
from wirewatch.core.types import Absent, Why

NOT_TOLD = Absent(Why.MISSING, "numa_node")


def drawn(picture: str) -> Mapping[str, Place]:
    """Places by name: two spaces a level, a name after the address of each device that the test asks of.

    `numa=N` on a root is what `numa_node` reads below it; without it the file is missing.
    """
    places: dict[str, Place] = {}
    above: list[str] = []
    numa: str | Absent = NOT_TOLD
    for line in picture.strip("\n").splitlines():
        part, *words = line.split()
        level = (len(line) - len(line.lstrip())) // 2
        above[level:] = [part]
        if level == 0:
            numa = next((word.removeprefix("numa=") for word in words), NOT_TOLD)
        elif words:
            found = place("/sys/devices/" + "/".join(above), numa)
            assert isinstance(found, Place)
            places[words[0]] = found
    return places


ONE_SWITCH = """
pci0000:16 numa=0
  0000:16:01.0
    0000:17:00.0
      0000:18:00.0
        0000:19:00.0 gpu
      0000:18:01.0
        0000:1a:00.0 nic
"""
CASCADE = """
pci0000:16 numa=0
  0000:16:01.0
    0000:17:00.0
      0000:18:00.0
        0000:19:00.0
          0000:1a:00.0
            0000:1b:00.0 gpu
      0000:18:01.0
        0000:1c:00.0
          0000:1d:00.0
            0000:1e:00.0 nic
      0000:18:02.0
        0000:1f:00.0 upper
"""
MACHINE = """
pci0000:16 numa=0
  0000:16:01.0
    0000:17:00.0 gpu
  0000:16:03.0
    0000:18:00.0 nic
pci0000:34 numa=0
  0000:34:01.0
    0000:35:00.0 node
pci0000:97 numa=1
  0000:97:01.0
    0000:98:00.0 socket
"""
FUNCTIONS = """
pci0000:16 numa=0
  0000:16:01.0
    0000:17:00.0 first
    0000:17:00.1 second
  0000:16:02.0
    0000:18:00.0
      0000:19:00.0
        0000:1a:00.0 third
        0000:1a:00.1 fourth
"""
BESIDE = """
pci0000:16 numa=0
  0000:16:01.0
    0000:17:00.0
      0000:18:00.0
        0000:19:00.0 gpu
    0000:17:00.1 nic
"""
GRACE = """
pci0009:00 numa=0
  0009:00:00.0
    0009:01:00.0 gpu
pci0002:00 numa=0
  0002:00:00.0
    0002:01:00.0 nic
"""
FLAT = """
pci0000:00
  0000:00:05.0 gpu
  0000:00:06.0 nic
"""
FLAT_WITH_NUMA = FLAT.replace("pci0000:00", "pci0000:00 numa=0")
AZURE = """
pci0001:00 numa=0
  0001:00:00.0 gpu
pci0101:00 numa=0
  0101:00:02.0 nic
"""
PASSED_THROUGH = """
pci0000:00 numa=0
  0000:00:05.0 gpu
  0000:00:1d.0
    0000:01:00.0 nic
"""
UNTOLD = """
pci0000:16 numa=-1
  0000:16:01.0
    0000:17:00.0 gpu
pci0000:34 numa=-1
  0000:34:01.0
    0000:35:00.0 nic
"""
HALF_TOLD = UNTOLD.replace("pci0000:34 numa=-1", "pci0000:34 numa=0")


@each(
    ("picture", "one", "other", "path", "bridges"),
    [
        (ONE_SWITCH, "gpu", "nic", Path.PIX, ["0000:18:00.0", "0000:18:01.0"]),
        (
            CASCADE, "gpu", "nic", Path.PXB,
            ["0000:18:00.0", "0000:19:00.0", "0000:1a:00.0", "0000:18:01.0", "0000:1c:00.0", "0000:1d:00.0"],
        ),
        (
            CASCADE, "gpu", "upper", Path.PXB,
            ["0000:18:00.0", "0000:19:00.0", "0000:1a:00.0", "0000:18:02.0"],
        ),
        (MACHINE, "gpu", "nic", Path.PHB, ["0000:16:01.0", "0000:16:03.0"]),
        (MACHINE, "gpu", "node", Path.NODE, ["0000:16:01.0", "0000:34:01.0"]),
        (MACHINE, "gpu", "socket", Path.SYS, ["0000:16:01.0", "0000:97:01.0"]),
        (FUNCTIONS, "first", "second", Path.PIX, []),
        (FUNCTIONS, "third", "fourth", Path.PIX, []),
        (
            FUNCTIONS, "first", "third", Path.PHB,
            ["0000:16:01.0", "0000:16:02.0", "0000:18:00.0", "0000:19:00.0"],
        ),
        (BESIDE, "gpu", "nic", Path.PIX, ["0000:17:00.0", "0000:18:00.0"]),
        (GRACE, "gpu", "nic", Path.NODE, ["0009:00:00.0", "0002:00:00.0"]),
        (HALF_TOLD, "nic", "nic", Path.PIX, []),
    ],
)  # fmt: skip
def test_two_devices_have_the_path_that_a_person_reads_off_the_tree(
    picture: str, one: str, other: str, path: Path, bridges: Sequence[str]
) -> None:
    places = drawn(picture)
    assert path_between(places[one], places[other]) is path
    assert bridges_between(places[one], places[other]) == tuple(bridges)


@pytest.mark.parametrize("picture", [FLAT, FLAT_WITH_NUMA, AZURE, PASSED_THROUGH])
def test_of_a_device_that_a_hypervisor_shows_flat_no_path_is_reported(picture: str) -> None:
    places = drawn(picture)
    assert hidden(places["gpu"])
    for nodes in (None, 1, 2):
        path = path_between(places["gpu"], places["nic"], nodes=nodes)
        assert isinstance(path, Absent)
        assert path.why is Why.UNSUPPORTED
    assert bridges_between(places["gpu"], places["nic"]) == places["nic"].bridges


@pytest.mark.parametrize("picture", [UNTOLD, HALF_TOLD])
def test_without_numa_different_roots_say_nothing_but_on_a_machine_with_one_node(picture: str) -> None:
    gpu, nic = drawn(picture)["gpu"], drawn(picture)["nic"]
    assert gpu.numa is None
    for nodes in (None, 2):
        path = path_between(gpu, nic, nodes=nodes)
        assert isinstance(path, Absent)
        assert path.why is Why.UNSUPPORTED
    assert path_between(gpu, nic, nodes=1) is Path.NODE
    assert bridges_between(gpu, nic) == ("0000:16:01.0", "0000:34:01.0")


def test_under_one_root_numa_is_not_asked() -> None:
    gpu, nic = drawn(ONE_SWITCH.replace("numa=0", "numa=-1")).values()
    assert path_between(gpu, nic) is Path.PIX


def test_the_best_of_many_paths_is_the_least() -> None:
    assert min(Path.SYS, Path.PXB, Path.PIX, Path.NODE) is Path.PIX
    assert [path.name for path in Path] == ["PIX", "PXB", "PHB", "NODE", "SYS"]


@each(
    ("resolved", "why"),
    [
        ("/sys/devices/virtual/net/lo", Why.UNSUPPORTED),
        ("/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/c0ffee00-1", Why.UNSUPPORTED),
        ("/sys/devices/platform/hisi_roce", Why.UNSUPPORTED),
        ("", Why.UNSUPPORTED),
        ("/sys/devices/pci0000:00", Why.MALFORMED),
        ("/sys/devices/pci0000:00/pci_bus", Why.MALFORMED),
    ],
)
def test_a_device_that_is_not_on_pci_has_no_place(resolved: str, why: Why) -> None:
    found = place(resolved, "0")
    assert isinstance(found, Absent)
    assert found.why is why


@each(
    ("resolved", "expected"),
    [
        (
            "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0",
            Place("0000:01:00.0", "pci0000:00", ("0000:00:01.0",), 1),
        ),
        ("/sys/devices/pci0000:00/0000:00:1f.6/", Place("0000:00:1f.6", "pci0000:00", (), 1)),
        (
            "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/mlx5_core.sf.2",
            Place("0000:01:00.0", "pci0000:00", ("0000:00:01.0",), 1),
        ),
        (
            "/sys/devices/LNXSYSTM:00/LNXSYBUS:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0",
            Place("0001:00:00.0", "pci0001:00", (), 1),
        ),
        (
            "/sys/devices/pci10000:e0/10000:e0:03.0/10000:e1:00.0",
            Place("10000:e1:00.0", "pci10000:e0", ("10000:e0:03.0",), 1),
        ),
    ],
)
def test_a_resolved_path_is_taken_apart(resolved: str, expected: Place) -> None:
    assert place(resolved, "1") == expected


def test_a_device_on_a_root_that_hangs_below_another_is_itself_and_not_the_controller_above() -> None:
    """As behind Intel's VMD, whose domain is a root below a device of the first one."""
    vmd = "/sys/devices/pci0000:64/0000:64:00.5"
    found = place(f"{vmd}/pci10000:00/10000:00:02.0/10000:01:00.0", "0")
    assert isinstance(found, Place)
    assert (found.address, found.root) == ("10000:01:00.0", "pci10000:00")


@each(
    ("numa", "node"),
    [
        ("0", 0), ("1", 1), ("-1", None), ("", None), ("none", None), ("\N{SUPERSCRIPT TWO}", None),
        (NOT_TOLD, None),
    ],
)  # fmt: skip
def test_a_numa_node_is_known_only_when_it_is_a_number_from_zero(
    numa: str | Absent, node: int | None
) -> None:
    found = place("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0", numa)
    assert isinstance(found, Place)
    assert found.numa == node


@each(
    ("given", "normal"),
    [
        ("0000:18:00", "0000:18:00"),
        ("0000:AF:00.0", "0000:af:00.0"),
        ("00000000:3F:00.0", "0000:3f:00.0"),
        ("00000000:3F:00", "0000:3f:00"),
        ("0018:01:00", "0018:01:00"),
        ("00000018:01:00.0", "0018:01:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
    ],
)
def test_a_pci_address_is_the_same_in_nvml_s_and_in_the_kernel_s_form(given: str, normal: str) -> None:
    assert normal_pci(given) == normal
    assert normal_pci(normal) == normal


@each(
    "text",
    ["", "GPU-0", "0000", "0000:18", "18:00.0", "0000:18:00.8", "0000:18:00.0 x", "xyzw:18:00.0", "N/A"],
)
def test_what_is_no_pci_address_is_empty(text: str) -> None:
    assert normal_pci(text) == ""


def _address(steps: Sequence[int]) -> str:
    number = 0
    for step in steps:
        number = number * 4 + step + 1
    return f"0000:{number >> 5 & 0xFF:02x}:{number & 0x1F:02x}.{number >> 13}"


_ANY_BRIDGES = st.lists(st.integers(0, 2), max_size=5)
_NUMAS = st.none() | st.integers(0, 2)


def _any_place(root: int, steps: list[int], end: int, numa: int | None) -> Place:
    bridges = tuple(_address([root, *steps[: i + 1]]) for i in range(len(steps)))
    return Place(_address([root, *steps, end]), f"pci0000:0{root}", bridges, numa)


ANY_PLACE = st.builds(_any_place, st.integers(0, 1), _ANY_BRIDGES, st.integers(0, 2), _NUMAS)


@given(ANY_PLACE, ANY_PLACE, st.none() | st.integers(1, 4))
def test_there_and_back_is_the_same_path_over_the_same_bridges(
    one: Place, other: Place, nodes: int | None
) -> None:
    there, back = path_between(one, other, nodes=nodes), path_between(other, one, nodes=nodes)
    assert there == back
    assert set(bridges_between(one, other)) == set(bridges_between(other, one))


@given(ANY_PLACE, ANY_PLACE)
def test_bridges_between_are_those_that_only_one_of_the_two_has_above_it(one: Place, other: Place) -> None:
    between = bridges_between(one, other)
    assert len(set(between)) == len(between)
    if one.root == other.root:
        assert set(between) == set(one.bridges) ^ set(other.bridges)
    else:
        assert set(between) == {*one.bridges, *other.bridges}


@given(ANY_PLACE.filter(lambda one: not hidden(one)))
def test_no_bridge_is_between_a_device_and_itself(one: Place) -> None:
    assert path_between(one, one) is Path.PIX
    assert bridges_between(one, one) == ()


Chain = tuple[int, ...]


def _under_switches(port: int, chain: Chain) -> Place:
    """Below a root port, through one switch for each number: that of the downstream port taken."""
    bridges = [_address([port])]
    for i in range(len(chain)):
        bridges += [_address([port, *chain[:i], 3]), _address([port, *chain[: i + 1]])]
    return Place(_address([port, *chain, 2]), "pci0000:00", tuple(bridges), None)


_CHAINS = st.lists(st.integers(0, 1), max_size=3).map(tuple)


@given(st.integers(0, 1), _CHAINS, st.integers(0, 1), _CHAINS)
def test_the_path_is_what_counting_the_switches_on_the_way_gives(
    one_port: int, one: Chain, other_port: int, other: Chain
) -> None:
    def switches(chain: Chain, since: int) -> set[Chain]:
        return {chain[:i] for i in range(since, len(chain))}

    meeting = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    passed = switches(one, meeting) | switches(other, meeting)
    below_one_port = Path.PIX if len(passed) <= 1 else Path.PXB
    expected = below_one_port if one_port == other_port else Path.PHB
    assert path_between(_under_switches(one_port, one), _under_switches(other_port, other)) is expected


ACS, AER, DSN, SRIOV = 0x000D, 0x0001, 0x0003, 0x0010
SPACE = 4096


def space(*capabilities: tuple[int, int], control: int = 0, last: int = 0, size: int = SPACE) -> bytes:
    """A configuration space with a list of extended capabilities, each at an offset with its number."""
    config = bytearray(SPACE)
    config[:4] = bytes.fromhex("de103023")
    for i, (at, number) in enumerate(capabilities):
        then = capabilities[i + 1][0] if i + 1 < len(capabilities) else last
        config[at : at + 4] = (number | 1 << 16 | then << 20).to_bytes(4, "little")
        if number == ACS:
            config[at + 4 : at + 8] = (0x005F | control << 16).to_bytes(4, "little")
        else:
            config[at + 4 : at + 8] = b"\xff\xff\xff\xff"
    return bytes(config[:size])


def express(code: int) -> bytes:
    """Return a configuration space with PCI Express as its second capability, and this code of a payload."""
    config = bytearray(256)
    config[0x34], config[0x40:0x42], config[0x60:0x62] = 0x40, bytes([0x01, 0x60]), bytes([0x10, 0])
    config[0x68] = code << 5 | 0x1F
    return bytes(config)


@each(
    "capabilities",
    [
        ((0x100, ACS),),
        ((0x100, ACS), (0x148, AER)),
        ((0x100, AER), (0x148, DSN), (0x2A0, ACS)),
        ((0x100, AER), (0x800, SRIOV), (0x240, ACS), (0x300, DSN)),
        ((0x100, DSN), (0xFF8, ACS)),
    ],
)
def test_acs_is_found_wherever_it_stands_in_the_list(capabilities: Sequence[tuple[int, int]]) -> None:
    assert acs_redirects(space(*capabilities, control=0x1D)) == ("ReqRedir", "CmpltRedir", "UpstreamFwd")
    assert acs_redirects(space(*capabilities, control=0)) == ()


@given(st.integers(0, 0xFFFF))
def test_only_the_bits_that_send_peer_packets_up_are_reported(control: int) -> None:
    told = acs_redirects(space((0x100, AER), (0x148, ACS), control=control))
    assert not isinstance(told, Absent)
    assert set(told) == {name for name, bit in ACS_FLAGS.items() if control & bit}


@each(
    ("control", "flags"),
    [
        (0x01, ()),
        (0x04, ("ReqRedir",)),
        (0x08, ("CmpltRedir",)),
        (0x10, ("UpstreamFwd",)),
        (0x1D, ("ReqRedir", "CmpltRedir", "UpstreamFwd")),
        (0x62, ()),
    ],
)
def test_the_bits_are_those_that_lspci_names(control: int, flags: Sequence[str]) -> None:
    assert acs_redirects(space((0x100, ACS), control=control)) == flags


@pytest.mark.parametrize("size", [0, 64, 128, 256])
def test_a_space_as_the_kernel_gives_it_without_privilege_is_denied_and_not_free_of_acs(size: int) -> None:
    told = acs_redirects(space((0x100, ACS), control=0x1D, size=size))
    assert isinstance(told, Absent)
    assert told.why is Why.DENIED


@each(
    "config",
    [
        space(),
        space((0x100, AER)),
        space((0x100, AER), (0x148, DSN)),
        space((0x100, AER), (0x148, DSN), last=0x100),
        space((0x100, AER), (0x148, DSN), last=0x148),
    ],
    ids=["no list", "one", "two", "a circle", "a circle of one"],
)
def test_a_device_without_acs_redirects_nothing(config: bytes) -> None:
    assert acs_redirects(config) == ()


@each("size", [0x101, 0x148, 0x200, 0x2A0, 0x2A4, 0x2A7])
def test_a_space_that_ends_before_its_list_does_is_not_free_of_acs(size: int) -> None:
    told = acs_redirects(space((0x100, AER), (0x148, DSN), (0x2A0, ACS), control=0x1D, size=size))
    assert isinstance(told, Absent)


def test_a_bridge_that_does_not_answer_is_not_free_of_acs() -> None:
    """Reads of a device that is gone succeed, and give ones."""
    told = acs_redirects(b"\xff" * SPACE)
    assert isinstance(told, Absent)
    assert told.why is Why.LOST


@pytest.mark.parametrize("then", [0x40, 0xF8])
def test_a_list_that_points_below_the_extended_space_ends_there_as_in_the_kernel(then: int) -> None:
    config = bytearray(space((0x100, AER), last=then))
    config[then : then + 8] = (ACS | 1 << 16).to_bytes(4, "little") + b"\x00\x00\x1d\x00"
    assert acs_redirects(bytes(config)) == ()


def test_the_two_reserved_bits_of_a_pointer_are_left_aside_as_in_the_kernel() -> None:
    config = bytearray(space((0x100, AER), (0x148, ACS), control=0x04))
    config[0x102] |= 0x20
    assert acs_redirects(bytes(config)) == ("ReqRedir",)


@given(st.binary(max_size=700), st.sampled_from([0, 64, 256, 700, SPACE]))
def test_no_space_whatever_it_holds_is_too_much(extended: bytes, size: int) -> None:
    told = acs_redirects((bytes(0x100) + extended).ljust(size, b"\0"))
    assert isinstance(told, Absent) or set(told) <= set(ACS_FLAGS)


@given(st.lists(st.tuples(st.integers(0x40, 0x3FF), st.integers(0, 0x20)), max_size=8), st.integers(0, 0xFFF))
def test_a_list_that_goes_anywhere_ends(capabilities: list[tuple[int, int]], last: int) -> None:
    there = [(at << 2, number) for at, number in capabilities]
    told = acs_redirects(space((0x100, DSN), *there, control=0x1D, last=last))
    assert isinstance(told, Absent) or set(told) <= set(ACS_FLAGS)


@each(
    ("text", "number"),
    [
        ("2.5 GT/s PCIe", 1),
        ("5.0 GT/s PCIe", 2),
        ("8.0 GT/s PCIe", 3),
        ("16.0 GT/s PCIe", 4),
        ("32.0 GT/s PCIe", 5),
        ("64.0 GT/s PCIe", 6),
        ("2.5 GT/s", 1),
        ("5 GT/s", 2),
        ("8 GT/s", 3),
        ("16 GT/s", 4),
    ],
)
def test_a_link_speed_is_a_generation_with_and_without_the_word_pcie(text: str, number: int) -> None:
    assert generation(text) == number


@each(
    ("text", "why"),
    [
        ("Unknown", Why.UNSUPPORTED),
        ("Unknown speed", Why.UNSUPPORTED),
        ("", Why.MALFORMED),
        ("9.9 GT/s PCIe", Why.MALFORMED),
        ("66 MHz PCI", Why.MALFORMED),
        ("133 MHz PCI-X 533", Why.MALFORMED),
        ("32.0 GT/s PCIe x16", Why.MALFORMED),
    ],
)
def test_what_is_no_link_speed_has_no_generation(text: str, why: Why) -> None:
    told = generation(text)
    assert isinstance(told, Absent)
    assert told.why is why


@each("lanes", [1, 2, 4, 8, 12, 16, 32])
def test_a_link_width_is_a_number_of_lanes(lanes: int) -> None:
    assert width(str(lanes)) == lanes


@each(
    ("text", "why"),
    [
        ("0", Why.UNSUPPORTED),
        ("255", Why.UNSUPPORTED),
        ("63", Why.LOST),
        ("33", Why.MALFORMED),
        ("64", Why.MALFORMED),
        ("", Why.MALFORMED),
        ("x16", Why.MALFORMED),
        ("-1", Why.MALFORMED),
        ("\N{SUPERSCRIPT TWO}", Why.MALFORMED),
    ],
)
def test_a_width_that_no_link_has_is_not_a_number_of_lanes(text: str, why: Why) -> None:
    told = width(text)
    assert isinstance(told, Absent)
    assert told.why is why


CORRECTABLE = """\
RxErr 7
BadTLP 0
BadDLLP 2
Rollover 0
Timeout 1
NonFatalErr 0
CorrIntErr 0
HeaderOF 0
TOTAL_ERR_COR 9
"""
FATAL_NAMES = (
    "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol UncorrIntErr "
    "BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked DMWrReqBlocked IDECheck MisIDETLP PCRC_CHECK "
    "TLPXlatBlocked"
)
"""As of Linux 6.x."""
LONG_NAMES = """\
Receiver Error 2
Bad TLP 0
Bad DLLP 0
RELAY_NUM Rollover 0
Replay Timer Timeout 0
Advisory Non-Fatal 0
Corrected Internal Error 0
Header Log Overflow 0
TOTAL_ERR_COR 2
"""
"""As Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats shows it."""


def test_the_total_of_errors_is_the_kernel_s_own_which_need_not_be_the_sum() -> None:
    assert aer_total(CORRECTABLE) == 9
    assert aer_total(CORRECTABLE.rstrip()) == 9


@pytest.mark.parametrize("severity", ["FATAL", "NONFATAL"])
def test_errors_that_are_not_correctable_have_a_total_too(severity: str) -> None:
    lines = [f"{name} 0" for name in FATAL_NAMES.split()]
    assert aer_total("\n".join([*lines, f"TOTAL_ERR_{severity} 0"])) == 0
    assert aer_total("\n".join([*lines, f"TOTAL_ERR_{severity} 3"])) == 3


def test_without_a_line_of_the_total_the_errors_are_added_up() -> None:
    assert aer_total(CORRECTABLE.replace("TOTAL_ERR_COR 9\n", "")) == 10


@pytest.mark.parametrize("line", ["dev_cor_errs_bit[9] 4", "dev_fatal_errs_bit[27] 1"])
def test_an_error_that_the_kernel_has_no_name_for_does_not_hide_the_total(line: str) -> None:
    """Such a line stands there only when the error has happened (drivers/pci/pcie/aer.c)."""
    assert aer_total(CORRECTABLE.replace("TOTAL", f"{line}\nTOTAL")) == 9


def test_names_of_errors_may_have_spaces_as_in_the_kernel_s_own_document() -> None:
    assert aer_total(LONG_NAMES) == 2


@each("text", ["", "0", "RxErr", "RxErr x", "RxErr -1", CORRECTABLE.replace("BadTLP 0", "BadTLP")])
def test_what_is_no_list_of_errors_is_malformed_and_not_zero(text: str) -> None:
    told = aer_total(text)
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED


def test_what_could_not_be_read_stays_as_it_is() -> None:
    denied = Absent(Why.DENIED, "/sys/...", 13)
    assert generation(denied) is width(denied) is aer_total(denied) is denied


def test_every_generation_is_twice_as_fast_as_the_one_before_or_nearly() -> None:
    rates = sorted(LANE_RATES, key=LANE_RATES.__getitem__)
    assert rates == sorted(rates)
    assert all(1.5 < b / a <= 2.0 for a, b in pairwise(rates))
