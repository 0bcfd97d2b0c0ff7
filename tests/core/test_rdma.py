"""Texts of the kernel about an RDMA port, as drivers/infiniband/core/sysfs.c writes them."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from wirewatch.core.rdma import (
    ACTIVE,
    PHYSICAL,
    STATES,
    Rate,
    counter,
    gigabits,
    number,
    physical_state,
    port_rate,
    port_state,
)
from wirewatch.core.types import Absent, Why

SAMPLES = Path(__file__).parents[2].parent / "shared/samples"
IBSTATUS = sorted(SAMPLES.glob("ibstatus.*"))

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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "text", ["", "ACTIVE", "4", "4 ACTIVE", "-1: DOWN", "9: UNKNOWN", "unknown", ": DOWN"]
)
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
        assert len(set(names.values())) == len(names)
        assert all(name.isidentifier() and name.islower() for name in names.values())
    assert set(STATES.values()) >= ACTIVE


@pytest.mark.parametrize(("speed", "lanes", "gbps"), RATES)
def test_every_width_at_every_speed_is_a_rate_in_bytes_per_second(
    speed: str, lanes: int, gbps: float
) -> None:
    rate = port_rate(f"{gbps:g} Gb/sec ({lanes}X {speed})")
    assert rate == Rate(gbps * 1e9 / 8, lanes, speed)
    assert str(rate) == f"{gbps:g} Gb/s ({lanes}X {speed})"


@pytest.mark.parametrize(
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
def test_a_rate_is_read_and_told_to_people(text: str, rate: Rate, words: str) -> None:
    told = port_rate(text)
    assert told == rate
    assert str(told) == words


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("value", [0, 15, 255, 65535, 2**32 - 1, 230539874932483, 2**64 - 1])
def test_a_counter_is_its_number(value: int) -> None:
    assert counter(str(value)) == value


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("text", "value"), [("0x4b", 75), ("0x0", 0), ("0xffff", 65535), ("75", 75), ("0", 0)]
)
def test_a_lid_is_read_in_either_notation(text: str, value: int) -> None:
    assert number(text) == value


@pytest.mark.parametrize("text", ["", "4b", "0x", "lid", "1.5", "unknown"])
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


def test_a_malformed_text_of_any_length_is_told_in_short() -> None:
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


@pytest.mark.skipif(
    not IBSTATUS, reason="published samples stay outside the project: none beside this checkout"
)
def test_published_ports_are_understood_a_port_that_is_down_with_its_rate_too() -> None:
    down, up = _ports((SAMPLES / "ibstatus.mixed_down_active.roce_edr.txt").read_text("utf-8")).values()
    for port, state, physical in ((down, "down", "disabled"), (up, "active", "link_up")):
        assert port_state(port["state"]) == state
        assert physical_state(port["phys state"]) == physical
        assert port_rate(port["rate"]) == Rate(12.5e9, 4, "EDR")
        assert port["link_layer"] == "Ethernet"
        assert number(port["base lid"]) == number(port["sm lid"]) == 0


@pytest.mark.parametrize("sample", IBSTATUS, ids=lambda sample: sample.name)
def test_every_published_output_of_ibstatus_is_understood(sample: Path) -> None:
    ports = _ports(sample.read_text("utf-8"))
    assert ports
    for port in ports.values():
        assert isinstance(port_state(port["state"]), str)
        assert isinstance(physical_state(port["phys state"]), str)
        assert isinstance(port_rate(port["rate"]), Rate)


def test_a_port_that_defers_its_going_down_still_carries_traffic_and_an_armed_one_does_not() -> None:
    assert {name for name in STATES.values() if name in ACTIVE} == {"active", "active_defer"}
