"""Texts of the kernel about an RDMA port, as drivers/infiniband/core/sysfs.c writes them."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from tests.recorded import PUBLISHED
from tests.rows import each
from wirewatch.core.rdma import (
    ACTIVE,
    DEVICE_FIELD,
    PHYSICAL,
    PORT_FIELD,
    STATES,
    Ibstat,
    PortFacts,
    Rate,
    counter,
    gigabits,
    number,
    parse_ibstat,
    physical_state,
    port_rate,
    port_state,
)
from wirewatch.core.types import Absent, Why

LANE_RATES = {
    "SDR": 2.5,
    "DDR": 5,
    "QDR": 10,
    "FDR10": 10,
    "FDR": 14,
    "EDR": 25,
    "HDR": 50,
    "NDR": 100,
    "XDR": 200,
}
"""Gb/s of one lane."""
WIDTHS = (1, 2, 4, 8, 12)
RATES = [(speed, lanes, rate * lanes) for speed, rate in LANE_RATES.items() for lanes in WIDTHS]


@each(
    ("text", "name"),
    [
        ("0: NOP", "nop"),
        ("1: DOWN", "down"),
        ("2: INIT", "init"),
        ("3: ARMED", "armed"),
        ("4: ACTIVE", "active"),
        ("5: ACTIVE_DEFER", "active_defer"),
    ],
)
def test_every_state_of_a_port_has_a_name(text: str, name: str) -> None:
    assert port_state(text) == name


@each(
    ("text", "name"),
    [
        ("0: <unknown>", "unknown"),
        ("1: Sleep", "sleep"),
        ("2: Polling", "polling"),
        ("3: Disabled", "disabled"),
        ("4: PortConfigurationTraining", "training"),
        ("5: LinkUp", "link_up"),
        ("6: LinkErrorRecovery", "recovery"),
        ("7: Phy Test", "phy_test"),
    ],
)
def test_every_physical_state_of_a_port_has_a_name(text: str, name: str) -> None:
    assert physical_state(text) == name


@each("text", ["", "ACTIVE", "4", "4 ACTIVE", "-1: DOWN", "9: UNKNOWN", "unknown", ": DOWN"])
def test_a_state_that_is_none_of_the_kernel_s_is_malformed(text: str) -> None:
    told = port_state(text)
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED
    assert repr(text) in told.detail


@pytest.mark.parametrize("text", ["", "LinkUp", "8: <unknown>"])
def test_a_physical_state_that_is_none_of_the_kernel_s_is_malformed(text: str) -> None:
    told = physical_state(text)
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED


def test_names_of_states_can_be_label_values_and_active_ones_are_among_them() -> None:
    for names in (STATES, PHYSICAL):
        assert len(set(names)) == len(names)
        assert all(name.isidentifier() and name.islower() for name in names)
    assert set(STATES) >= ACTIVE


@each(("speed", "lanes", "gbps"), RATES)
def test_every_width_at_every_speed_is_a_rate_in_bytes_per_second(
    speed: str, lanes: int, gbps: float
) -> None:
    rate = port_rate(f"{gbps:g} Gb/sec ({lanes}X {speed})")
    assert rate == Rate(gbps * 1e9 / 8, lanes, speed)
    assert str(rate) == f"{gbps:g} Gb/s ({lanes}X {speed})"


@each(
    ("text", "rate", "words"),
    [
        ("2.5 Gb/sec (1X SDR)", Rate(312.5e6, 1, "SDR"), "2.5 Gb/s (1X SDR)"),
        ("10 Gb/sec (4X)", Rate(1.25e9, 4, ""), "10 Gb/s (4X)"),
        ("40 Gb/sec (4X QDR)", Rate(5e9, 4, "QDR"), "40 Gb/s (4X QDR)"),
        ("40 Gb/sec (4X FDR10)", Rate(5e9, 4, "FDR10"), "40 Gb/s (4X FDR10)"),
        ("25 Gb/sec (1X EDR)", Rate(3.125e9, 1, "EDR"), "25 Gb/s (1X EDR)"),
        ("200 Gb/sec (2X NDR)", Rate(25e9, 2, "NDR"), "200 Gb/s (2X NDR)"),
        ("200 Gb/sec (4X HDR)", Rate(25e9, 4, "HDR"), "200 Gb/s (4X HDR)"),
        ("400 Gb/sec (4X NDR)", Rate(50e9, 4, "NDR"), "400 Gb/s (4X NDR)"),
        ("2400 Gb/sec (12X XDR)", Rate(300e9, 12, "XDR"), "2400 Gb/s (12X XDR)"),
    ],
)
def test_a_rate_is_read_and_shown_to_people(text: str, rate: Rate, words: str) -> None:
    told = port_rate(text)
    assert told == rate
    assert str(told) == words


@each(
    "text",
    [
        "",
        "400",
        "400 Gb/sec",
        "400 Gb/s (4X NDR)",
        "-2.5 Gb/sec (-1X SDR)",
        "4X NDR",
        "unknown",
        "400 Gb/sec (4X NDR) x",
    ],
)
def test_what_is_no_rate_is_malformed_and_not_zero(text: str) -> None:
    told = port_rate(text)
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED


def test_a_rate_for_people_has_no_more_digits_than_it_needs() -> None:
    assert [gigabits(rate) for rate in (0.0, 312.5e6, 50e9, 300e9)] == [
        "0 Gb/s", "2.5 Gb/s", "400 Gb/s", "2400 Gb/s",
    ]  # fmt: skip


@each("value", [0, 15, 255, 65535, 2**32 - 1, 230539874932483, 2**64 - 1])
def test_a_counter_is_its_number(value: int) -> None:
    assert counter(str(value)) == value


@each(
    ("text", "why"),
    [
        ("N/A (no PMA)", Why.UNSUPPORTED),
        ("N/A", Why.UNSUPPORTED),
        ("", Why.MALFORMED),
        ("-1", Why.MALFORMED),
        ("0x10", Why.MALFORMED),
        ("1 2", Why.MALFORMED),
        ("\N{SUPERSCRIPT TWO}", Why.MALFORMED),
    ],
)
def test_a_counter_that_is_not_there_is_not_zero(text: str, why: Why) -> None:
    told = counter(text)
    assert isinstance(told, Absent)
    assert told.why is why


@each(("text", "value"), [("0x4b", 75), ("0x0", 0), ("0xffff", 65535), ("75", 75), ("0", 0)])
def test_a_lid_is_read_in_either_notation(text: str, value: int) -> None:
    assert number(text) == value


@each("text", ["", "4b", "0x", "lid", "1.5", "unknown"])
def test_what_is_no_number_is_malformed(text: str) -> None:
    told = number(text)
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED


@pytest.mark.parametrize("text", ["1_000", "0x_4b", "0b101", "0o17"])
def test_a_number_as_only_python_writes_it_is_not_one_of_the_kernel_s(text: str) -> None:
    assert isinstance(number(text), Absent)


def test_what_could_not_be_read_stays_as_it_is() -> None:
    gone = Absent(Why.LOST, "/sys/class/infiniband/mlx5_0/ports/1/state: ENODEV", 19)
    for parser in (port_state, physical_state, port_rate, counter, number):
        assert parser(gone) is gone


def test_a_malformed_text_of_any_length_is_reported_in_short() -> None:
    for parser in (port_state, physical_state, port_rate, counter, number):
        told = parser("x" * 5000)
        assert isinstance(told, Absent)
        assert len(told.detail) < 100


_BLOCK = re.compile(r"Infiniband device '(\w+)' port (\d+) status:")
_LINE = re.compile(r"\t(.+?):\s+(.*)")


def _ports(text: str) -> Mapping[str, Mapping[str, str]]:
    """What the script `ibstatus` printed: files of sysfs, a port a block."""
    ports: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if head := _BLOCK.fullmatch(line):
            ports[head[1]] = {}
        elif told := _LINE.fullmatch(line):
            ports[list(ports)[-1]][told[1]] = told[2]
    return ports


def test_published_ports_are_understood_a_port_that_is_down_with_its_rate_too() -> None:
    down, up = _ports((PUBLISHED / "ibstatus.mixed_down_active.roce_edr.txt").read_text("utf-8")).values()
    for port, state, physical in ((down, "down", "disabled"), (up, "active", "link_up")):
        assert port_state(port["state"]) == state
        assert physical_state(port["phys state"]) == physical
        assert port_rate(port["rate"]) == Rate(12.5e9, 4, "EDR")
        assert port["link_layer"] == "Ethernet"
        assert number(port["base lid"]) == number(port["sm lid"]) == 0


def test_a_port_that_defers_its_going_down_still_carries_traffic_and_an_armed_one_does_not() -> None:
    assert {name for name in STATES if name in ACTIVE} == {"active", "active_defer"}


def port(
    number: int = 1,
    state: str = "Active",
    physical: str = "LinkUp",
    rate: str = "400",
    layer: str = "InfiniBand",
) -> str:
    return f"""\
\tPort {number}:
\t\tState: {state}
\t\tPhysical state: {physical}
\t\tRate: {rate}
\t\tBase lid: {40 + number}
\t\tLMC: 0
\t\tSM lid: 7
\t\tCapability mask: 0xa751e848
\t\tPort GUID: 0x00c0ffee000000{number:02x}
\t\tLink layer: {layer}
"""


def device(name: str, *ports: str, kind: str = "CA") -> str:
    return f"""\
{kind} '{name}'
\t{kind} type: MT4129
\tNumber of ports: {len(ports)}
\tFirmware version: 28.40.1000
\tHardware version: 0
\tNode GUID: 0x00c0ffee00000000
\tSystem image GUID: 0x00c0ffee00000000
{"".join(ports)}"""


UP = PortFacts("active", "link_up", 50e9, "InfiniBand", 41)
TWO = device("mlx5_0", port()) + device("mlx5_1", port(state="Down", physical="Polling", rate="40"))
DOWN = PortFacts("down", "polling", 5e9, "InfiniBand", 41)


def understood(text: str) -> Ibstat:
    told = parse_ibstat(text)
    assert told.unknown == ()
    return told


def test_devices_and_ports_are_reported_in_bytes_per_second_and_by_the_names_of_sysfs() -> None:
    told = understood(TWO)
    assert told.ports == {("mlx5_0", "1"): UP, ("mlx5_1", "1"): DOWN}
    assert told.devices["mlx5_0"] == {
        "CA type": "MT4129",
        "Number of ports": "1",
        "Firmware version": "28.40.1000",
        "Hardware version": "0",
        "Node GUID": "0x00c0ffee00000000",
        "System image GUID": "0x00c0ffee00000000",
    }


@each(
    "text",
    [
        TWO.replace("\t", " " * 8),
        TWO.replace("\t", ""),
        TWO.rstrip("\n"),
        TWO.replace("\t", " " * 8).rstrip("\n"),
        TWO.replace("\n", "\r\n"),
        TWO.replace("CA 'mlx5_1'", "\n\nCA 'mlx5_1'") + "\n\n",
        TWO.replace("Link layer: InfiniBand", "Link layer: InfiniBand  "),
    ],
    ids=["spaces", "bare", "no last line end", "both", "carriage returns", "empty lines", "trailing"],
)
def test_a_capture_says_the_same_whatever_was_done_to_its_white_space(text: str) -> None:
    assert understood(text) == understood(TWO)


def test_devices_keep_the_order_of_their_names_as_text() -> None:
    names = ["mlx5_0", "mlx5_1", "mlx5_10", "mlx5_11", "mlx5_2"]
    assert list(understood("".join(device(name, port()) for name in names)).devices) == names


def test_a_device_may_have_two_ports_and_each_has_its_own_lines() -> None:
    told = understood(device("mlx4_0", port(1), port(2, "Down", "Disabled", "10", "Ethernet")))
    assert told.ports == {
        ("mlx4_0", "1"): UP,
        ("mlx4_0", "2"): PortFacts("down", "disabled", 1.25e9, "Ethernet", 42),
    }


def test_a_device_without_ports_is_a_device() -> None:
    told = understood(device("mlx5_0"))
    assert list(told.devices) == ["mlx5_0"]
    assert told.ports == {}


@each(
    ("rate", "value"),
    [("2.5", 312.5e6), ("10", 1.25e9), ("40 (FDR10)", 5e9), ("56", 7e9), ("100", 12.5e9), ("800", 100e9)],
)
def test_a_rate_is_in_bytes_per_second(rate: str, value: float) -> None:
    assert understood(device("mlx5_0", port(rate=rate))).ports["mlx5_0", "1"].rate == value


@pytest.mark.parametrize(
    ("printed", "state"),
    [("Down", "down"), ("Initializing", "init"), ("Armed", "armed"), ("Active", "active")],
)
def test_every_state_that_ibstat_prints_has_the_name_of_sysfs(printed: str, state: str) -> None:
    assert understood(device("mlx5_0", port(state=printed))).ports["mlx5_0", "1"].state == state


@each(
    ("printed", "physical"),
    [
        ("No state change", ""),
        ("Sleep", "sleep"),
        ("Polling", "polling"),
        ("Disabled", "disabled"),
        ("PortConfigurationTraining", "training"),
        ("LinkUp", "link_up"),
        ("LinkErrorRecovery", "recovery"),
        ("PhyTest", "phy_test"),
    ],
)
def test_every_physical_state_that_ibstat_prints_has_the_name_of_sysfs(printed: str, physical: str) -> None:
    assert understood(device("mlx5_0", port(physical=printed))).ports["mlx5_0", "1"].physical == physical


@each(
    "line",
    [
        "\t\tState: ???",
        "\t\tPhysical state: ???",
        "\t\tRate: fast",
        "\t\tRate: -1",
        "\t\tBase lid: none",
        "\t\tLink layer: ",
        "\t\tColour: green",
        "\tPort one:",
        "ibwarn: [12] mad_rpc: _do_madrpc failed",
        "ibpanic: [12] main: stat of IB device 'mlx5_8' failed: No such file or directory",
        "Segmentation fault",
    ],
)
def test_a_line_that_says_nothing_known_is_kept_and_takes_nothing_away(line: str) -> None:
    told = parse_ibstat(device("mlx5_0", port()) + line + "\n" + device("mlx5_1", port()))
    assert told.unknown == (line,)
    assert told.ports == {("mlx5_0", "1"): UP, ("mlx5_1", "1"): UP}


def test_a_state_that_ibstat_itself_does_not_know_is_not_reported_as_one() -> None:
    told = parse_ibstat(device("mlx5_0", port(state="???", physical="???")))
    assert told.unknown == ("\t\tState: ???", "\t\tPhysical state: ???")
    assert told.ports["mlx5_0", "1"] == PortFacts("", "", 50e9, "InfiniBand", 41)


def test_one_port_asked_for_alone_has_a_colon_and_no_indent() -> None:
    alone = "CA: 'mlx5_0'\n" + port().replace("\t", "")
    told = understood(alone)
    assert told.devices == {"mlx5_0": {}}
    assert told.ports == {("mlx5_0", "1"): UP}


def test_the_effective_speed_of_newer_versions_is_no_rate() -> None:
    newer = port(rate="800").replace("\t\tBase", "\t\tEffective speed: 794.5\n\t\tBase")
    assert understood(device("mlx5_0", newer)).ports["mlx5_0", "1"].rate == 100e9


def test_the_link_layer_is_named_alike_whichever_version_prints_it() -> None:
    layers = {"InfiniBand": "InfiniBand", "IB": "InfiniBand", "Ethernet": "Ethernet"}
    for printed, layer in layers.items():
        told = understood(device("mlx5_0", port(layer=printed)))
        assert told.ports["mlx5_0", "1"].link_layer == layer


@each("lines", range(len(TWO.splitlines())))
def test_an_output_that_was_cut_short_says_what_it_had_said(lines: int) -> None:
    cut = understood("".join(TWO.splitlines(keepends=True)[:lines]))
    whole = understood(TWO)
    assert list(whole.devices)[: len(cut.devices)] == list(cut.devices)
    for key, facts in cut.ports.items():
        for name in ("state", "physical", "rate", "link_layer", "lid"):
            assert getattr(facts, name) in {getattr(whole.ports[key], name), getattr(PortFacts(), name)}


def test_a_device_that_failed_leaves_the_ones_before_it() -> None:
    told = parse_ibstat(TWO + "ibpanic: [7] main: stat of IB device 'mlx5_2' failed: Input/output error\n")
    assert told.ports == {("mlx5_0", "1"): UP, ("mlx5_1", "1"): DOWN}
    assert len(told.unknown) == 1


@pytest.mark.parametrize("text", ["", "\n", " \t\n\n"])
def test_nothing_printed_is_no_device_and_no_complaint(text: str) -> None:
    assert parse_ibstat(text) == Ibstat()


def test_lines_before_any_device_belong_to_none() -> None:
    told = parse_ibstat(port())
    assert told.ports == {}
    assert len(told.unknown) == len(port().splitlines())


@pytest.mark.parametrize("kind", ["iWARP RNIC", "Switch", "Router", "???"])
def test_a_device_of_another_kind_does_not_write_over_the_one_before_it(kind: str) -> None:
    """As ibstat.c prints them: an iWARP port that is down is no mlx5 port that is down."""
    other = device("irdma0", port(state="Down", physical="Disabled", rate="25", layer="Ethernet"), kind=kind)
    told = parse_ibstat(device("mlx5_0", port()) + other)
    assert told.ports["mlx5_0", "1"] == UP
    assert told.devices["mlx5_0"]["Number of ports"] == "1"


@pytest.mark.parametrize("kind", ["iWARP RNIC", "Switch"])
def test_a_device_of_another_kind_is_understood(kind: str) -> None:
    told = understood(device("other0", port(), kind=kind))
    assert told.ports == {("other0", "1"): UP}


def test_an_unknown_header_does_not_lend_its_lines_to_the_device_before_it() -> None:
    told = parse_ibstat(device("mlx5_0", port()) + device("new0", port(state="Down"), kind="Quantum NIC"))
    assert told.ports["mlx5_0", "1"] == UP


def test_fields_of_a_device_and_of_a_port_are_told_apart() -> None:
    of_devices = ("CA type", "Number of ports", "Firmware version", "Hardware version", "Node GUID")
    of_ports = ("State", "Physical state", "Rate", "Base lid", "SM lid", "Port GUID", "Link layer")
    assert all(DEVICE_FIELD.fullmatch(name) and not PORT_FIELD.fullmatch(name) for name in of_devices)
    assert all(PORT_FIELD.fullmatch(name) and not DEVICE_FIELD.fullmatch(name) for name in of_ports)


IBSTAT = (
    "ibstat.47.0.a100.all.active.0.txt",
    "ibstat.47.0.h100.all.active.2.txt",
    "ibstat.47.0.h100.some.down.0.txt",
)


def _sample(name: str) -> Ibstat:
    return parse_ibstat((PUBLISHED / name).read_text("utf-8"))


@pytest.mark.parametrize("name", IBSTAT)
def test_nothing_in_a_published_output_is_unknown(name: str) -> None:
    told = _sample(name)
    text = (PUBLISHED / name).read_text("utf-8")
    assert told.unknown == ()
    assert len(told.devices) == text.count("CA '")
    assert len(told.ports) == text.count("Port 1:")
    for facts in told.ports.values():
        assert all((facts.state, facts.physical, facts.rate, facts.link_layer))
        assert facts.lid is not None
    assert all(len(fields) == 6 for fields in told.devices.values())


@pytest.mark.parametrize(
    ("name", "states", "rates", "layers"),
    [
        (
            "ibstat.47.0.a100.all.active.0.txt",
            {("active", "link_up"): 3}, {25e9: 3}, {"InfiniBand": 2, "Ethernet": 1},
        ),
        (
            "ibstat.47.0.h100.all.active.2.txt",
            {("active", "link_up"): 3}, {50e9: 2, 25e9: 1}, {"InfiniBand": 2, "Ethernet": 1},
        ),
        (
            "ibstat.47.0.h100.some.down.0.txt",
            {("active", "link_up"): 3, ("down", "disabled"): 2}, {50e9: 2, 12.5e9: 1, 5e9: 2},
            {"InfiniBand": 2, "Ethernet": 3},
        ),
    ],
)  # fmt: skip
def test_published_outputs_say_what_a_person_counts_in_them(
    name: str, states: dict[tuple[str, str], int], rates: dict[float, int], layers: dict[str, int]
) -> None:
    ports: Sequence[PortFacts] = list(_sample(name).ports.values())
    assert Counter((p.state, p.physical) for p in ports) == states
    assert Counter(p.rate for p in ports) == rates
    assert Counter(p.link_layer for p in ports) == layers
