"""The bandwidth cliff: one way, with the ratios that follow, and links by generation."""

from xml.etree import ElementTree as ET

import pytest

from tests.rows import each
from wirewatch.busbw.expected import pcie_rate
from wirewatch.busbw.references import Confidence
from wirewatch_lab.advice.cost.cliff import (
    AXIS,
    GENERATIONS,
    HBM,
    NETWORK,
    NVLINK,
    PCIE,
    CliffStep,
    bars,
    cliff,
    plotted,
    ratio,
)
from wirewatch_lab.advice.described import PORTS, described
from wirewatch_lab.study.plots import draw_bars


@each(
    ("text", "rates", "to_pcie", "to_network"),
    [
        ("8xH100+8xNDR", (3350, 450, 63.0, 50), 7.1, 9.0),  # Sources 000 and 003 have 14 and 18
        ("8xB200+8xNDR", (8000, 900, 63.0, 50), 14.3, 18.0),
        ("8xB300+8xXDR", (8000, 900, 121.0, 100), 7.4, 9.0),  # With XDR 900 : 100
        ("8xA100+8xHDR", (2039, 300, 31.5, 25), 9.5, 12.0),  # Source 001 has 3 to 6
        ("8xA100+4xHDR", (2039, 300, 31.5, 12.5), 9.5, 24.0),
    ],
)
def test_each_step_is_one_way(text: str, rates: tuple[float, ...], to_pcie: float, to_network: float) -> None:
    steps = cliff(described(text))
    assert [step.name for step in steps] == [HBM, NVLINK, PCIE, NETWORK]
    assert [step.rate / 1e9 for step in steps] == pytest.approx(rates, rel=2e-3)
    assert ratio(steps, NVLINK, PCIE) == pytest.approx(to_pcie, rel=0.01)
    assert ratio(steps, NVLINK, NETWORK) == pytest.approx(to_network, rel=0.01)
    assert all(step.known for step in steps)


def test_what_vendors_print_counts_both_ways() -> None:
    printed = {step.name: step.printed for step in cliff(described("8xH100+8xNDR"))}
    assert printed[NVLINK] == 900e9
    assert printed[PCIE] == pytest.approx(126e9, rel=1e-3)


def test_links_of_a_gpu_are_4_6_12_18_18() -> None:
    assert [one.links for one in GENERATIONS] == [4, 6, 12, 18, 18]
    assert [2 * one.each_way / 1e9 for one in GENERATIONS] == [160, 300, 600, 900, 1800]


def test_pcie_4_is_31_and_a_half_each_way_and_hdr_is_below_it() -> None:
    rate = pcie_rate(4, 16)
    assert isinstance(rate, float)
    assert rate / 1e9 == pytest.approx(31.5, rel=1e-3)
    assert PORTS["HDR"].rate == 25e9 < rate


@each(("name", "gbs"), [("HDR", 25), ("NDR", 50), ("XDR", 100), ("100G", 12.5), ("400G", 50)])
def test_gigabits_are_an_eighth_of_gigabytes(name: str, gbs: float) -> None:
    """Source 002 has 900 and 400 and 100 in one column `bandwidth_gbps`."""
    assert PORTS[name].rate == gbs * 1e9


def test_one_gpu_alone_has_the_ports_that_were_described() -> None:
    (network,) = (step for step in cliff(described("1xH100+1xHDR")) if step.name == "network")
    assert (network.rate, network.known) == (25e9, True)


def test_a_network_that_is_not_known_is_marked() -> None:
    steps = cliff(described("8xH100"))
    assert [step.known for step in steps] == [True, True, True, False]
    assert ratio(cliff(described("8xL40S")), NVLINK, PCIE) is None
    assert ratio(cliff(described("8xL40S")), PCIE, NETWORK) is None


def test_bars_are_linear_and_never_empty() -> None:
    assert [len(bar) for bar in bars(cliff(described("8xH100+8xNDR")), 67)] == [67, 9, 1, 1]
    assert bars((), 10) == ()


@pytest.mark.parametrize(
    ("below", "text"), [(None, "450"), (0.9, "450"), (1.0, "450, 1.0x less"), (7.14, "450, 7.1x less")]
)
@pytest.mark.parametrize("known", [False, True])
def test_a_bar_has_its_rate_and_how_much_less_it_is(below: float | None, text: str, known: bool) -> None:  # noqa: FBT001
    step = CliffStep("a", "b", 450e9, None, known, Confidence.LOW, "c", below)
    assert plotted([step]) == [("a", 450.0, text, not known)]


def test_the_picture_is_svg_with_every_step() -> None:
    steps = cliff(described("8xH100+8xNDR"))
    text = draw_bars("8 H100 <b>\u2028", AXIS, plotted(steps))
    assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314 - our own
    assert all(f">{step.name}<" in text for step in steps)
    assert "9.0x" not in text  # Each step beside the one above it
    assert "7.1x less" in text
    assert draw_bars("8 H100 <b>\u2028", AXIS, plotted(steps)) == text
