"""The plots of a report: what is drawn in them, as elements and words."""

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.lab.study.drawn import curve
from wirewatch_lab.study import plots
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, KnownRates
from wirewatch_lab.study.plots import DrawnPlots, draw, draw_bars
from wirewatch_lab.study.summary import summarize

MIB, GIB = 1 << 20, 1 << 30
TABLE = {8: 20.0, 4096: 21.0, MIB: 30.0, 16 * MIB: 100.0, GIB: 5000.0}
AUTO = curve({size: [us, us + 1, us + 2] for size, us in TABLE.items()})
RING = curve({size: 2 * us for size, us in TABLE.items()}, Configuration(4, "_Ring é " * 10))
KNOWN = KnownRates("all_reduce", 4, 478e9, ((16 * MIB, 245e9), (GIB, 350e9)))
SIZES = ["8", "256", "8K", "256K", "8M", "256M", "message size (B; K, M, G are powers of 1024)"]
MARKS = ["knee: half of the plateau", "plateau"]
CUT = "Ring ? _Ring ? _Ring ? _Ring ? _Ring ? ..."


def drawn(*curves: Curve, known: KnownRates | None = None) -> DrawnPlots:
    return draw("p", [(one, summarize(one)) for one in curves], known)


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ET.fromstring(svg).iter() if one.tag == "text"]  # noqa: S314 - ours


def elements(svg: str, of: str) -> Counter[tuple[str, str]]:
    """How many elements have a class of such a colour."""
    found = ((one.tag, one.get("class", "")) for one in ET.fromstring(svg).iter())  # noqa: S314 - ours
    return Counter(pair for pair in found if of in pair[1].split("-"))


def test_busbw_is_drawn_beside_what_is_known() -> None:
    plot = drawn(AUTO, RING, known=KNOWN).busbw
    known = ["expected busbw", "one GPU's wire, each way"]
    ticks = ["0", "100", "200", "300", "400", "500"]
    assert texts(plot) == [*SIZES, *ticks, "busbw (GB/s)", "auto", CUT, *known, *MARKS]
    # A line with its band, five points, knee and plateau; a line of its own for the legend, with its mark.
    assert elements(plot, "line0")["use", "fill-line0"] == 1
    assert elements(plot, "line1")["use", "fill-line1"] == 0
    assert elements(plot, "line0")["use", "stroke-line0"] == 8
    bare = drawn(AUTO, RING).busbw
    assert texts(bare)[len(SIZES) :] == [
        *map(str, range(0, 301, 50)), "busbw (GB/s)", "auto", CUT, *MARKS,
    ]  # fmt: skip
    # Two lines of what is known, each with one in the legend.
    assert elements(plot, "soft")["path", "stroke-soft"] - elements(bare, "soft")["path", "stroke-soft"] == 4


@pytest.mark.parametrize(
    ("text", "label"),
    [("x" * 42, "x" * 42), ("x" * 43, "x" * 39 + "..."), ("_é~", "?~"), ("", "")],
)
def test_a_label_has_42_characters_that_any_font_has(text: str, label: str) -> None:
    assert vars(plots)["_label"](text) == label


@pytest.mark.parametrize(
    ("known", "labels"),
    [
        (KnownRates("all_reduce", 4, None, KNOWN.expected), ["expected busbw"]),
        (KnownRates("all_reduce", 4, 478e9), ["one GPU's wire, each way"]),
    ],
)
def test_of_what_is_known_only_that_is_drawn(known: KnownRates, labels: list[str]) -> None:
    assert texts(drawn(AUTO, known=known).busbw)[-len(labels) - 3 : -2] == ["auto", *labels]


def test_only_two_sides_of_a_plot_have_a_line() -> None:
    """They, two marks of the legend, and the ticks are soft; a grid is behind them."""
    plot = drawn(AUTO).time
    paths = elements(plot, "soft")["path", "stroke-soft"]
    assert paths == 5
    assert sum(elements(plot, "rule").values()) > 10


def test_a_band_goes_from_the_lowest_to_the_highest_repeat() -> None:
    drawn_: list[tuple[str, Any]] = []
    axes: Any = SimpleNamespace(
        plot=lambda *given, **_: drawn_.append(("line", given)),
        fill_between=lambda *given, **_: drawn_.append(("band", given)),
    )
    made = curve({8: [3.0, 1.0, 2.0], 16: [5.0, 4.0, 9.0]})
    vars(plots)["_line"](axes, 0, made, lambda point: [round(one * 1e6) for one in point.seconds])
    assert drawn_ == [("line", ([8, 16], [2, 5])), ("band", ([8, 16], [1, 4], [3, 9]))]
    vars(plots)["_line"](axes, 0, curve({8: [3.0], 16: [4.0]}), lambda point: point.seconds)
    assert [kind for kind, _ in drawn_] == ["line", "band", "line"]


def test_time_is_drawn_with_its_floor() -> None:
    plot = drawn(AUTO, RING, known=KNOWN).time
    ticks = ["20", "50", "100", "200", "500", "1,000", "2,000", "5,000", "10,000"]
    assert texts(plot) == [*SIZES, *ticks, "time (us)", "auto", CUT, "latency floor"]
    assert elements(plot, "line0")["use", "stroke-line0"] == 6
    assert elements(plot, "line0")["path", "stroke-line0"] == 4
    large = drawn(curve({MIB: 30.0, 2 * MIB: 40.0})).time
    assert texts(large)[-1] == "auto"


@pytest.mark.parametrize(
    ("odd", "kept"),
    [(CurvePoint(64, (2e-5,), wrong=1), 0), (CurvePoint(0, (2e-5,)), 0), (CurvePoint(64, (2e-5,)), 1)],
)
def test_what_is_no_measurement_is_not_drawn(odd: CurvePoint, kept: int) -> None:
    whole = Curve("all_reduce", Configuration(4), (*AUTO.points[:1], odd, *AUTO.points[1:]))
    for plot, before in zip(
        (drawn(whole).busbw, drawn(whole).time), (drawn(AUTO).busbw, drawn(AUTO).time), strict=True
    ):
        more = (
            elements(plot, "line0")["use", "stroke-line0"] - elements(before, "line0")["use", "stroke-line0"]
        )
        assert more == kept


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((8,), ["8"]),
        ((8, 16), ["8", "16"]),
        ((1024, 65536), ["1K", "2K", "4K", "8K", "16K", "32K", "64K"]),
        ((1024, 131072), ["1K", "4K", "16K", "64K"]),
        ((1023, 1 << 33), ["1K", "16K", "256K", "4M", "64M", "1G"]),
        ((), ["8"]),
    ],
)
def test_the_axis_of_sizes_has_at_most_six_steps(sizes: tuple[int, ...], words: list[str]) -> None:
    plot = drawn(curve(dict.fromkeys(sizes, 20.0))).time
    assert texts(plot)[: len(words) + 1] == [*words, SIZES[-1]]


def test_a_drawing_stands_in_a_page_by_its_own_names() -> None:
    root = ET.fromstring(drawn(AUTO).busbw)  # noqa: S314 - ours
    about = {"aria-labelledby": "p-busbw-title", "aria-describedby": "p-words"}
    assert root.attrib == {"viewBox": root.get("viewBox"), "role": "img", "class": "plot", **about}
    assert root[0].tag == "title"
    assert (root[0].get("id"), root[0].text) == ("p-busbw-title", "busbw against message size")
    tags = {one.tag for one in root.iter()}
    assert tags <= {"svg", "title", "defs", "g", "path", "use", "text", "clipPath", "rect"}
    assert not any(one.get("style") for one in root.iter())
    said = " ".join(value for one in root.iter() for value in one.attrib.values())
    ways = " ".join(one.get("d", "") for one in root.iter())
    assert not re.search(r"\d\.\d{2,}|\n", ways), "a tenth of a unit is enough"
    assert set(re.findall(r"url\(#([^)]+)\)|#(\S+)", said)) <= {
        pair for one in root.iter() for pair in ((one.get("id", ""), ""), ("", one.get("id", "")))
    }
    assert all(one.get("id", "p-busbw").startswith("p-busbw") for one in root.iter())


def test_only_two_sides_of_bars_have_a_line() -> None:
    """Beside the page, the field and each bar."""
    text = draw_bars("t", "GB/s", [("a", 1.0, "1", False), ("b", 2.0, "2", True)])
    assert text.count('<g id="patch_') == 2 + 2 + 2


def test_bars_have_their_names_values_and_labels() -> None:
    bars = [("HBM", 3350.0, "3,350", False), ("é", 450.0, "450, 7.4x less", True)]
    svg = draw_bars("one é", "GB/s", bars)
    found = [one.text for one in ET.fromstring(svg).iter() if one.tag.endswith("}text")]  # noqa: S314 - ours
    assert {"HBM", "é", "GB/s", "3,350", "450, 7.4x less", "one ?"} <= set(found)
    assert (svg.count("fill: #2f6f9f"), svg.count("fill: #9fb8c9")) == (1, 1)
    assert draw_bars("none", "GB/s", []).startswith("<?xml")
