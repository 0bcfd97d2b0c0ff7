"""The report of a study: complete in itself, right for anybody's texts, whatever was measured."""

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.lab.study.drawn import SHORT, Noise, curve, study
from tests.node.page.pages import Strict
from tests.rows import each
from wirewatch_lab.study import report
from wirewatch_lab.study.compare import Contest, Placing
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, KnownRates, Study
from wirewatch_lab.study.report import ReportError, page, write_report
from wirewatch_lab.study.spread import Regime
from wirewatch_lab.study.summary import summarize

HOSTILE = "<script>alert(1)</script> $x_{ %s \x00\x1b[2J é 中 \ud800"


def drawn(curves: int = 2) -> Study:
    return study(Random(1), Noise(), curves, SHORT)  # noqa: S311


@pytest.fixture(scope="module")
def text() -> str:
    return page(drawn(), [KnownRates("all_reduce", 4, 478e9, ((8 << 24, 300e9),))])


def test_it_asks_for_nothing_and_allows_nothing(text: str) -> None:
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"default-src &#39;none&#39;; style-src &#39;sha256-{digest}&#39;" in text
    body = text.replace(style[0], "")
    assert not re.search(r"https?:|<script|\sstyle=|\son\w+=|@import|url\((?!#)", body)
    assert set(re.findall(r'href="([^"#]*)', body)) == {""}


def test_each_id_is_there_once_and_each_that_is_named_is_there(text: str) -> None:
    found = re.findall(r'\sid="([^"]+)"', text)
    assert len(found) == len(set(found))
    named = re.findall(
        r'(?:aria-labelledby|aria-describedby)="([^"]+)"|href="#([^"]+)"|url\(#([^)]+)\)', text
    )
    assert len(named) > 20
    assert {one for some in named for one in some if one} <= set(found)


def test_it_is_well_formed(text: str) -> None:
    assert Strict(text).tags()[0] == "html"


def test_what_is_known_is_drawn_beside_what_was_measured(text: str) -> None:
    assert "wire, each way" in text
    assert "Busbw and time against message size" in text
    assert "expected busbw" in text
    assert "expected busbw" not in page(drawn(1), [KnownRates("all_gather", 4, None)])


def test_texts_of_others_do_no_harm() -> None:
    settings = Configuration(4, f"_{HOSTILE}", settings=((HOSTILE, HOSTILE),))
    odd = Study(0.0, HOSTILE, {HOSTILE: HOSTILE}, [curve({8: 20.0}, settings)], (HOSTILE,), (HOSTILE,))
    text = page(odd)
    assert "<script" not in text
    assert not re.search(r"[\x00\x1b]", text)
    assert "&lt;script&gt;" in text


ODD = {
    "nothing": (),
    "a curve without points": (Curve("all_reduce", Configuration(4), ()),),
    "one size": (curve({8: 20.0}),),
    "wrong values alone": (Curve("all_reduce", Configuration(4), (CurvePoint(8, (1e-5,), 3),)),),
    "no busbw": (curve({8: [20.0, 21.0]}, Configuration(1)), curve({8: 20.0}, op="hypercube")),
    "sizes that are no powers of two": (curve({104_856: 20.0, 104_832: 20.0, 3: 19.0}),),
}


@pytest.mark.parametrize("curves", ODD.values(), ids=ODD)
def test_it_can_be_made_of_anything(curves: tuple[Curve, ...]) -> None:
    text = page(Study(0.0, "by hand", {}, curves))
    assert text.count("<svg") == 2 * len({curve.op for curve in curves})


def test_who_wins_is_a_row_for_each_setting() -> None:
    shares = (0.99, 1.0, 1.01, 1.0, 1.0)
    fast, slow = (
        curve({8: [us * x for x in shares], 8 << 20: [9 * us] * 5}, Configuration(4, name))
        for us, name in ((20.0, "Ring"), (26.0, "Tree"))
    )
    text = page(Study(0.0, "by hand", {}, [fast, slow]))
    assert '<th scope="row">Ring</th><td>fastest (0.71%)</td>' in text
    assert '<th scope="row">Tree</th><td>+30.0% (0.71%)</td>' in text
    text = page(Study(0.0, "by hand", {}, [fast, replace(fast, configuration=Configuration(4, "NVLS"))]))
    assert text.count("first (0.71%)") == 1
    assert text.count("tied, +0.0% (0.71%)") == 1
    near = curve({8: [20.2, 19.0, 21.0, 22.0, 21.6], 8 << 20: [180.0] * 5}, Configuration(4, "NVLS"))
    text = page(Study(0.0, "by hand", {}, [fast, near]))
    assert "may be noise: +3.7% (5.84%)" in text
    text = page(Study(0.0, "by hand", {}, [curve({8: 20.0}), curve({8: 30.0}, Configuration(4, "Tree"))]))
    assert "+50.0% (not judged)" in text


@pytest.mark.parametrize(
    ("point", "cells"),
    [
        (CurvePoint(8, (1e-5, 2e-5, 6e-5), 0, ("Ring LL", "Tree LL")),
         ("Ring LL, Tree LL", "8 B", "20.00", "10.00", "60.00", "0.00", "3", "0")),
        (CurvePoint(1 << 30, (0.1,), None), ("-", "1 GiB", "100,000.00", "100,000.00", "100,000.00", "16.11",
                                             "1", "not checked")),
        (CurvePoint(8, (1e-5,), 3), ("-", "8 B", "-", "-", "-", "-", "1", "3")),
        (CurvePoint(8, (), None), ("-", "8 B", "-", "-", "-", "-", "0", "not checked")),
    ],
)  # fmt: skip
def test_the_row_of_a_size(point: CurvePoint, cells: tuple[str, ...]) -> None:
    """Of wrong values no time is shown, but how often it was measured."""
    row = vars(report)["_row"](Curve("all_reduce", Configuration(4), (point,)), point)
    assert row == ("auto", *cells)


def test_the_figures_of_a_curve_say_what_is_a_lower_bound() -> None:
    grows = curve({8: [20.0, 20.0], 8 << 20: [60.0, 60.0], 16 << 20: [100.0, 100.0]})
    none = Curve("all_reduce", Configuration(4), ())
    sheet = vars(report)["_figures"]("c0", [(one, summarize(one)) for one in (grows, none)])
    assert sheet.rows == (
        ("auto", "20.0 us", "at least 8 MiB", "at least 251.7 GB/s", "16 MiB", "2"),
        ("auto", "-", "-", "-", "-", "0"),
    )


def test_nccls_own_choice_stands_first() -> None:
    names = (("Ring", "auto"), ("auto", "auto"), ("auto", "LL"), ("Ring", "LL"))
    ordered = sorted((Configuration(4, *one) for one in names), key=vars(report)["_order"])
    assert [(one.algorithm, one.protocol) for one in ordered] == [
        ("auto", "auto"), ("Ring", "LL"), ("Ring", "auto"), ("auto", "LL"),
    ]  # fmt: skip


def placing(noise: float | None = None, spread: float | None = 0.01, *, tied: bool = False) -> Placing:
    return Placing(Configuration(4), 0.02, spread, tied, noise)


FIRST = placing()


@each(
    ("one", "others", "cell"),
    [
        (placing(spread=None), (), "+2.0% (not judged)"), (FIRST, (placing(),), "fastest (1.00%)"),
        (FIRST, (placing(), placing(tied=True)), "first (1.00%)"), (placing(), (), "+2.0% (1.00%)"),
        (placing(0.05, tied=True), (), "tied, +2.0% (1.00%)"),
        (placing(tied=True), (), "tied, +2.0% (1.00%)"),
        (placing(0.06, tied=True), (), "may be noise: +2.0% (1.00%)"),
    ],
)  # fmt: skip
def test_the_place_of_a_setting(one: Placing, others: tuple[Placing, ...], cell: str) -> None:
    contest = Contest(Regime.LATENCY, (8,), (FIRST, *others))
    assert vars(report)["_place"](contest, one) == cell


def test_many_curves_are_shared_out_over_plots_with_few_lines() -> None:
    text = page(drawn(13))
    assert text.count('class="plot"') == 2 * 3
    assert "Plot 3 of 3" in text


def test_the_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_report(drawn(), tmp_path / "report.html")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text("utf-8").endswith("</html>")
    with pytest.raises(ReportError, match="cannot be written: No such file"):
        write_report(drawn(), tmp_path / "none" / "report.html")
    monkeypatch.setattr(report, "find_spec", lambda _name: None)
    with pytest.raises(ReportError, match=r"takes matplotlib: pip install 'matplotlib>=3\.10'"):
        write_report(drawn(), tmp_path / "other.html")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_settings_stand_as_people_count() -> None:
    values = ("", "8", "16", "24", "128")
    curves = [
        curve({1 << 24: [99.0, 98.0]}, Configuration(2, settings=(("NCCL_MAX_NCHANNELS", one),)))
        for one in reversed(values)
    ]
    found = re.findall(
        r'<th scope="row">auto NCCL_<wbr>MAX_<wbr>NCHANNELS=([^<]*)</th>', page(Study(0.0, "a", {}, curves))
    )
    assert found[:5] == ["as found", "8", "16", "24", "128"]


def test_only_what_is_drawn_is_in_the_legend(text: str) -> None:
    assert "latency floor</text>" in text
    assert "latency floor</text>" not in page(Study(0.0, "a", {}, [curve({1 << 24: 99.0, 1 << 25: 190.0})]))


def test_what_curves_have_in_common_is_said_once_in_the_summary() -> None:
    fast, slow = (
        curve({8: [us, us + 1, us + 2]}, Configuration(4, "Ring", launch=how))
        for us, how in ((20.0, "graph"), (40.0, "eager"))
    )
    text = page(Study(0.0, "a", {}, [fast, slow], problems=("GPU 3 was busy",)))
    summary = text[text.index('id="summary"') : text.index('id="c0"')]
    assert summary.count("all_reduce, 4 ranks, float32, in place") == 1
    assert "<li>latency, 8 B: Ring graph wins" in summary
    assert "<h3>Missing or wrong</h3>" in summary
    assert "<li>problem: GPU 3 was busy</li>" in summary
