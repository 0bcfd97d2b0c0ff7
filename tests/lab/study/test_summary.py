"""The three figures of a curve, and the plain words of a study."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.study.drawn import FULL, Noise, curve, study
from tests.recorded import PUBLISHED
from tests.rows import each
from wirewatch.core.types import Absent, Why
from wirewatch_lab.study import summary as module
from wirewatch_lab.study.compare import Placing, contests, groups
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study
from wirewatch_lab.study.summary import (
    CurveSummary,
    RepeatedFigure,
    gigabytes,
    in_words,
    rates_of,
    setting,
    summarize,
    summary_lines,
)

MEASURED = Path(__file__).parent / "measured.json"
SAMPLE = PUBLISHED / "nccltests.2.18.3.h100x4.allreduce.txt"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RING, TREE = Configuration(4, "Ring"), Configuration(4, "Tree")
TABLE = {
    8: 23.3, 64: 23.4, 1 * KIB: 23.1, 4 * KIB: 23.2, 64 * KIB: 25.5, 1 * MIB: 26.8, 4 * MIB: 43.4,
    8 * MIB: 63.1, 16 * MIB: 101.9, 256 * MIB: 1186.2, 4 * GIB: 17744.6, 8 * GIB: 35187.6,
}  # fmt: skip
"""The shape of four H100 on one switch: microseconds of an all_reduce."""


def known(one: RepeatedFigure | Absent) -> RepeatedFigure:
    assert isinstance(one, RepeatedFigure)
    return one


def words(*curves: object, **fields: tuple[str, ...]) -> str:
    return "\n".join(summary_lines(Study(0.0, "by hand", {}, curves, **fields)))  # type: ignore[arg-type]


def test_floor_knee_and_plateau_of_a_table() -> None:
    found = summarize(curve(TABLE))
    assert known(found.floor).value == pytest.approx(23.25e-6)
    assert known(found.knee).value == 8 * MIB
    assert known(found.plateau).value == pytest.approx(366.2e9, rel=1e-3)
    assert (found.bound, found.plateau_bytes) == ("", 8 * GIB)
    assert in_words(found) == ("latency floor 23.2 us, knee 8 MiB, plateau 366.2 GB/s; no spread: one repeat")


def test_the_published_figures_follow_from_the_published_table() -> None:
    rows = [line.split() for line in SAMPLE.read_text("utf-8").splitlines() if line.strip()[:1].isdigit()]
    found = summarize(curve({int(row[0]): float(row[5]) for row in rows}))
    assert in_words(found).startswith("latency floor 23.3 us, knee 8 MiB, plateau 366.2 GB/s")


def test_repeats_give_each_figure_a_range() -> None:
    shares = (1.00, 1.02, 0.98, 1.01, 0.99)
    found = summarize(curve({size: [us * share for share in shares] for size, us in TABLE.items()}))
    assert in_words(found) == (
        "latency floor 23.2 us (22.8 to 23.7), knee 8 MiB, plateau 366.2 GB/s (359.0 to 373.7)"
    )


def test_what_the_sizes_do_not_reach_is_absent_with_the_reason() -> None:
    large = summarize(curve({size: us for size, us in TABLE.items() if size >= 16 * MIB}))
    assert in_words(large) == (
        "plateau 366.2 GB/s; no latency floor: no size up to 4 KiB was measured; "
        "no knee: the smallest size, 16 MiB, has half of the plateau already; no spread: one repeat"
    )
    small = summarize(curve({size: us for size, us in TABLE.items() if size <= 16 * MIB}))
    assert in_words(small) == (
        "latency floor 23.2 us, knee at least 4 MiB, plateau at least 247.0 GB/s; "
        "busbw still grows by 24% with each doubling at 16 MiB, the largest size; no spread: one repeat"
    )
    one = summarize(curve({MIB: 26.8}))
    assert "at least 58.7 GB/s" in in_words(one)
    assert "1 MiB is the only size" in one.bound
    nothing = summarize(replace(curve({MIB: 26.8}), points=()))
    assert all(isinstance(x, Absent) for x in (nothing.floor, nothing.knee, nothing.plateau))


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (None, "2.0% apart, 0.0% may be noise"), (0.5, "2.0% apart, 50.0% may be noise"),
        (9.9, "2.0% apart, 990.0% may be noise"), (10.0, "2.0% apart, any difference may be noise"),
    ],
)  # fmt: skip
def test_noise_of_ten_times_the_time_is_no_figure(noise: float | None, said: str) -> None:
    assert vars(module)["_apart"](Placing(RING, 0.02, 0.1, tied=True, noise=noise)) == said


def test_a_figure_with_repeats_beside_one_without_has_a_spread() -> None:
    none = Absent(Why.MISSING, "none")
    found = CurveSummary(RepeatedFigure(1e-6, 1e-6, 2e-6, 2), RepeatedFigure(1e9, 1e9, 1e9, 1), none)
    assert in_words(found) == "latency floor 1.0 us (1.0 to 2.0), plateau 1.0 GB/s; no knee: none"
    assert (
        in_words(CurveSummary(none, none, none)) == "no latency floor: none; no knee: none; no plateau: none"
    )


@pytest.mark.parametrize(("op", "ranks"), [("all_reduce", 1), ("hypercube", 4)])
def test_what_has_no_busbw_has_a_floor_alone(op: str, ranks: int) -> None:
    found = summarize(curve(TABLE, Configuration(ranks), op))
    assert known(found.floor).value == pytest.approx(23.25e-6)
    assert isinstance(found.plateau, Absent)
    assert isinstance(found.knee, Absent)


def test_points_that_are_no_measurements_count_nowhere() -> None:
    good = curve(TABLE)
    odd = (
        CurvePoint(0, (1e-9,)), CurvePoint(2, ()), CurvePoint(16 * GIB, (1e-6,), wrong=3),
        CurvePoint(4, (0.0,)), CurvePoint(6, (float("nan"),)),
    )  # fmt: skip
    assert summarize(replace(good, points=(*odd, *good.points))) == summarize(good)


@given(st.integers(1, 6), st.integers(1, 2**31), st.integers(1, len(FULL)))
def test_the_value_lies_within_its_range(repeats: int, seed: int, sizes: int) -> None:
    drawn = study(Random(seed), Noise(0.1, 0.1), 1, FULL[:sizes], repeats).curves[0]  # noqa: S311
    found: CurveSummary = summarize(drawn)
    for one in (found.floor, found.plateau, found.knee):
        assert isinstance(one, Absent) or (one.low <= one.value <= one.high and one.repeats == repeats)


def _twice(share: float, configuration: Configuration, spread: float = 0.004) -> object:
    shares = [share * (1 + spread * step) for step in (-1, -0.5, 0, 0.5, 1)]
    return curve({size: [us * x for x in shares] for size, us in TABLE.items()}, configuration)


def test_the_setting_that_wins_is_named_with_its_lead_and_its_spread() -> None:
    told = words(_twice(1.3, TREE), _twice(1, RING))
    assert "all_reduce, 4 ranks, float32, in place, 2 settings: lowest latency floor 23.2 us" in told
    assert "bandwidth, 16 MiB to 8 GiB: Ring wins (spread 0.3%); the next, Tree, takes 30.0% longer." in told
    assert told.count("Ring wins") == 3


def test_ties_within_the_spread_are_called_ties() -> None:
    told = words(_twice(1.002, TREE), _twice(1, RING), _twice(1.5, Configuration(4, "NVLS")))
    assert told.count("a tie of Ring, Tree (0.2% apart, 0.6% may be noise)") == 3
    assert told.count("the next, NVLS, takes 50.0% longer") == 3


def test_what_nccl_chooses_by_itself_is_placed_between_the_others() -> None:
    auto = Configuration(4)
    told = words(
        _twice(1.1, auto), _twice(1, RING), _twice(1.05, Configuration(4, "NVLS")), _twice(1.5, TREE)
    )
    assert "the last, Tree, 50.0%; auto, which is what NCCL chooses by itself, 10.0%" in told


def test_no_setting_wins_in_a_single_run() -> None:
    told = words(curve(TABLE, RING), curve({n: us * 1.3 for n, us in TABLE.items()}, TREE))
    assert "no spread, so there is no winner: Ring was 30.0% faster than Tree in its one run" in told
    assert "wins" not in told


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize("curves", [2, 6, 12])
def test_equal_settings_are_hardly_ever_told_apart(curves: int, repeats: int) -> None:
    random = Random(20)  # noqa: S311
    held = [study(random, Noise(), curves, (8, MIB, GIB), repeats).curves for _ in range(100)]
    found = [one for some in held for one in contests(some)]
    assert len(found) == 300
    assert sum(not placing.tied for one in found for placing in one.placings[1:]) <= 8


def measured(name: str) -> Study:
    """Three sweeps of two H200, trimmed to the sizes below 16 MiB; microseconds."""
    curves = [
        curve(
            {int(n): us for n, us in one["us"].items()},
            Configuration(
                2, one["algorithm"], launch=one["launch"], settings=tuple(map(tuple, one["settings"]))
            ),
            one["op"],
        )
        for one in json.loads(MEASURED.read_text("utf-8"))[name]
    ]
    return Study(0.0, name, {}, curves)


def test_what_is_far_apart_is_no_tie() -> None:
    """It was `a tie of auto graph, auto (69.6% apart, spread 1.4%)`: the first's spread; auto had 13 %."""
    told = "\n".join(summary_lines(measured("chosen")))
    assert told.count("auto graph wins") == 6
    assert (
        "middle, 128 KiB to 8 MiB: auto graph wins (spread 1.4%); the next, auto, takes 69.6% longer" in told
    )
    told = "\n".join(summary_lines(measured("channels")))
    assert (
        "NCCL_MAX_NCHANNELS=16, auto (3.5% apart, 17.5% may be noise); "
        "the next, auto NCCL_MAX_NCHANNELS=8, takes 23.7% longer" in told
    )


def test_settings_that_are_not_told_apart_have_the_difference_that_repeats_would_show() -> None:
    told = "\n".join(summary_lines(measured("algorithms")))
    assert (
        "8 B to 32 KiB: no winner among auto graph, Ring graph, Tree graph (9.4% apart, 9.8% may be noise); "
        "the next, auto, takes 136.1% longer"
    ) in told
    for name in ("algorithms", "channels", "chosen"):
        study = measured(name)
        for group in groups(study):
            for one in contests(group, others=study.curves):
                assert all(x.behind < (x.noise or 0) for x in one.placings[1:] if x.tied)


def test_one_loud_setting_is_not_placed_and_the_others_are() -> None:
    told = words(
        curve({8: [20.0, 20.1, 20.2]}, RING), curve({8: [30.0, 30.2, 30.1]}, TREE),
        curve({8: [16.0, 40.0, 76.0]}, Configuration(4, "NVLS")),
    )  # fmt: skip
    assert "Ring wins" in told
    assert "the next, Tree, takes 49.8% longer; too noisy to place: NVLS (" in told
    assert "any difference may be noise)" in told


def test_only_sizes_that_all_settings_have_are_compared() -> None:
    short = curve({size: us for size, us in TABLE.items() if size <= 4 * MIB}, TREE)
    told = words(curve(TABLE, RING), short)
    assert "middle, 1 MiB to 4 MiB:" in told
    assert "bandwidth" not in told


def test_what_is_missing_or_wrong_is_said() -> None:
    ring = curve(TABLE, RING)
    points = [
        replace(p, ran=("Ring SIMPLE",) if p.size_bytes < MIB else ("TREE SIMPLE",)) for p in ring.points
    ]
    asked = replace(ring, configuration=replace(TREE, protocol="Simple"), points=tuple(points))
    wrong = replace(ring, points=(*ring.points[:-1], replace(ring.points[-1], wrong=7)))
    unchecked = replace(curve(TABLE, op="broadcast"), points=(CurvePoint(8, (1e-5,), None),))
    told = words(asked, wrong, unchecked, not_offered=("Tree of all_gather",), problems=("GPU 3 was busy",))
    assert "not offered: Tree of all_gather" in told
    assert "problem: GPU 3 was busy" in told
    assert "Tree Simple: NCCL's log has Ring SIMPLE at 8 B to 64 KiB." in told
    assert "wrong values: all_reduce, 4 ranks, float32, in place, Ring: at 1 size from 8 GiB on" in told
    assert "not checked: the values of 1 curve" in told


@pytest.mark.parametrize(
    ("growth", "bound"),
    [
        (1.049, ""),
        (1.051, "busbw still grows by 5% with each doubling at 32 MiB, the largest size"),
        (1.07, "busbw still grows by 7% with each doubling at 32 MiB, the largest size"),
    ],
)
def test_busbw_that_grows_by_a_twentieth_with_a_doubling_is_not_at_its_plateau(
    growth: float, bound: str
) -> None:
    assert summarize(curve({16 * MIB: 100.0, 32 * MIB: 200.0 / growth})).bound == bound


def test_growth_is_that_of_a_doubling_from_the_next_size_of_half_or_less() -> None:
    """Four times the size and 21 % more is 10 % each; a size between them does not count."""
    found = summarize(curve({8 * MIB: 50.0, 24 * MIB: 140.0, 32 * MIB: 200.0 / 1.21}))
    assert found.bound == "busbw still grows by 10% with each doubling at 32 MiB, the largest size"


@pytest.mark.parametrize(
    ("wanted", "words_"),
    [
        (Configuration(4), "auto"),
        (Configuration(4, "Ring"), "Ring"),
        (Configuration(4, protocol="LL"), "LL"),
        (
            Configuration(4, "Ring", "LL", "graph", registered=True, settings=(("A", "1"), ("B", ""))),
            "Ring LL graph registered A=1 B=as found",
        ),
    ],
)
def test_a_setting_in_words(wanted: Configuration, words_: str) -> None:
    assert setting(wanted) == words_


def test_a_lone_setting_has_its_figures_and_no_contest() -> None:
    assert words(curve(TABLE, in_place=False)) == (
        "all_reduce, 4 ranks, float32, out of place, auto: latency floor 23.2 us, knee 8 MiB, plateau 366.2 "
        "GB/s; no spread: one repeat."
    )


def test_of_several_settings_the_best_figures_are_named_with_what_bounds_them() -> None:
    small = {size: us for size, us in TABLE.items() if size <= 16 * MIB}
    text = words(curve(small, RING), curve({n: us * 1.3 for n, us in small.items()}, TREE))
    assert text.split("\n")[0] == (
        "all_reduce, 4 ranks, float32, in place, 2 settings: lowest latency floor 23.2 us with Ring; "
        "highest plateau at least 247.0 GB/s with Ring, its knee at least 4 MiB."
    )
    large = {size: us for size, us in TABLE.items() if size >= 256 * MIB}
    text = words(curve(large, RING), curve({n: us * 1.3 for n, us in large.items()}, TREE))
    assert text.split("\n")[0] == (
        "all_reduce, 4 ranks, float32, in place, 2 settings: highest plateau 366.2 GB/s with Ring."
    )
    nothing = replace(curve(TABLE, RING), points=())
    assert words(nothing, replace(nothing, configuration=TREE)) == (
        "all_reduce, 4 ranks, float32, in place, 2 settings: nothing was measured."
    )


@each(
    ("figure", "text"),
    [
        (RepeatedFigure(1.0, 1.0, 1.0, 1), "1.0"),
        (RepeatedFigure(1.0, 0.5, 2.0, 1), "1.0"),
        (RepeatedFigure(1.0, 1.0, 1.0, 2), "1.0"),
        (RepeatedFigure(1.0, 0.96, 1.04, 2), "1.0"),
        (RepeatedFigure(1.0, 0.5, 2.0, 2), "1.0 (0.5 to 2.0)"),
    ],
)
def test_a_range_is_shown_where_repeats_have_one_that_shows(figure: RepeatedFigure, text: str) -> None:
    found = gigabytes(replace(figure, value=figure.value * 1e9, low=figure.low * 1e9, high=figure.high * 1e9))
    assert found.replace(" GB/s", "", 1) == text


def test_what_is_placed_and_what_is_too_noisy() -> None:
    assert words(
        curve({8: [20.0, 20.1, 20.2]}, RING), curve({8: [30.0, 30.2, 30.1]}, TREE),
        curve({8: [33.0, 33.1, 33.2]}), curve({8: [40.0, 40.1, 40.2]}, Configuration(4, "PAT")),
    ).split("\n")[1] == (
        "all_reduce, 4 ranks, float32, in place, latency, 8 B: Ring wins (spread 0.5%); the next, Tree, "
        "takes 49.8% longer, the last, PAT, 99.5%; auto, which is what NCCL chooses by itself, 64.7%."
    )  # fmt: skip


# --- words of a contest


def part(name: str, *values: Any) -> Any:
    return vars(module)[f"_{name}"](*values)


def placing(
    behind: float, *, tied: bool = False, noise: float | None = 0.01, spread: float | None = 0.01,
    how: Configuration = TREE,
) -> Any:  # fmt: skip
    return SimpleNamespace(configuration=how, behind=behind, tied=tied, noise=noise, spread=spread)


FIRST = placing(0.0, how=RING)
LL, AUTO = Configuration(4, "Tree", "LL"), Configuration(4)
AT = "8 B to 64 B: "
WON = "Ring wins (spread 1.0%); the next, Tree, takes 5.0% longer"


@each(
    ("placings", "text"),
    [
        ([placing(0.0, how=RING, spread=None), placing(0.05)],
         "no spread, so there is no winner: Ring was 5.0% faster than Tree in its one run"),
        ([FIRST, placing(0.05)], WON),
        ([FIRST, placing(0.05), placing(0.07, how=LL)],
         f"{WON}, the last, Tree LL, 7.0%"),
        ([FIRST, placing(0.01, tied=True)], "a tie of Ring, Tree (1.0% apart, 1.0% may be noise)"),
        ([FIRST, placing(0.01, tied=True, noise=0.5)],
         "no winner among Ring, Tree (1.0% apart, 50.0% may be noise)"),
        ([FIRST, placing(0.01, tied=True, noise=None)],
         "a tie of Ring, Tree (1.0% apart, 0.0% may be noise)"),
        ([FIRST, placing(0.01, tied=True), placing(0.05, how=LL)],
         "a tie of Ring, Tree (1.0% apart, 1.0% may be noise); the next, Tree LL, takes 5.0% longer"),
        ([FIRST, placing(0.05), placing(0.06, tied=True, noise=99.0, how=LL)],
         f"{WON}; too noisy to place: Tree LL (6.0% apart, any difference may be noise)"),
        ([FIRST, placing(0.05), placing(0.05, tied=True, how=LL)],
         f"{WON}; too noisy to place: Tree LL (5.0% apart, 1.0% may be noise)"),
        ([FIRST, placing(0.05), placing(0.06, how=AUTO), placing(0.07, how=LL)],
         f"{WON}, the last, Tree LL, 7.0%; auto, which is what NCCL chooses by itself, 6.0%"),
        ([FIRST, placing(0.05, how=AUTO), placing(0.07, how=LL)],
         "Ring wins (spread 1.0%); the next, auto, takes 5.0% longer, the last, Tree LL, 7.0%"),
    ],
)  # fmt: skip
def test_a_contest_in_words(placings: list[Any], text: str) -> None:
    assert part("contest_words", SimpleNamespace(sizes=(8, 64), placings=placings)) == AT + text


@each(
    ("ran", "asked", "found"),
    [
        (("Ring LL",), ("Ring", "LL"), {}),
        (("RING ll",), ("Ring", "LL"), {}),
        (("Tree LL",), ("Ring", "LL"), {"Tree LL": [8, 64]}),
        (("Ring Simple",), ("Ring", "LL"), {"Ring Simple": [8, 64]}),
        (("Tree Simple",), ("auto", "auto"), {}),
        (("Tree Simple",), ("auto", "LL"), {"Tree Simple": [8, 64]}),
        (("Tree",), ("Tree", "LL"), {}),
        (("Ring LL", "Tree LL"), ("Ring", "LL"), {"Tree LL": [8, 64]}),
    ],
)
def test_what_ran_otherwise_than_was_asked_for(ran: Any, asked: Any, found: Any) -> None:
    points = [SimpleNamespace(size_bytes=size, ran=ran) for size in (8, 64)]
    how = SimpleNamespace(algorithm=asked[0], protocol=asked[1])
    assert part("otherwise", SimpleNamespace(configuration=how, points=points)) == found


@each(
    ("rates", "bound"),
    [
        ({MIB: (1e9,)}, "1 MiB is the only size, so there may be more"),
        ({MIB: (1e9,), 2 * MIB: (1e9,)}, ""),
        (
            {MIB: (1e9,), 2 * MIB: (1.5e9,)},
            "busbw still grows by 50% with each doubling at 2 MiB",
        ),
        (
            {MIB: (1e9,), 4 * MIB: (2.25e9,)},
            "busbw still grows by 50% with each doubling at 4 MiB",
        ),
        ({MIB: (1e9,), 2 * MIB: (2e9,), 3 * MIB: (2.2e9,)}, "busbw still grows by 64% with each doubling"),
        ({3 * MIB: (1e9,), 4 * MIB: (1.5e9,)}, "4 MiB is the only size"),
        ({MIB: (2e9,), 2 * MIB: (1e9,)}, ""),
    ],
)
def test_why_a_plateau_may_be_higher(rates: Any, bound: str) -> None:
    best = max(rates, key=lambda size: rates[size][0])
    found = part("bound", rates, best)
    assert found.startswith(bound)
    assert bool(found) is bool(bound)


@pytest.mark.parametrize(
    ("rates", "knee"),
    [
        ({8: (1.0, 1.0), 64: (5.0, 4.9), 512: (10.0, 10.0)}, RepeatedFigure(64, 64, 512, 2)),
        ({8: (1.0,), 64: (5.0,), 512: (10.0, 10.0)}, RepeatedFigure(64, 64, 512, 2)),
        ({8: (5.0,), 512: (10.0,)}, None),
        ({512: (10.0,)}, None),
    ],
)
def test_a_knee_is_the_first_size_with_half_of_the_plateau(rates: Any, knee: RepeatedFigure | None) -> None:
    found = part("knee", rates, 512)
    assert (None if isinstance(found, Absent) else found) == knee


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (Absent(Why.MISSING, "so"), "not known: so"),
        (RepeatedFigure(1.0, 0.9, 1.1, 3), "1.0 u (0.9 to 1.1)"),
        (RepeatedFigure(1.0, 0.9, 1.1, 1), "1.0 u"),
        (RepeatedFigure(1.0, 0.99, 1.01, 3), "1.0 u"),
    ],
)
def test_a_figure_has_its_range_where_that_shows(one: Any, text: str) -> None:
    assert part("ranged", one, lambda value: f"{value:.1f}", " u") == text


@pytest.mark.parametrize(
    ("ranks", "op", "rates"),
    [(4, "all_reduce", True), (0, "all_reduce", False), (4, "hypercube", False), (1, "all_reduce", False)],
)
def test_a_collective_without_bus_bandwidth_has_a_floor_alone(ranks: int, op: str, rates: bool) -> None:  # noqa: FBT001
    made = Curve(op, Configuration(ranks), (CurvePoint(8, (2e-5,)), CurvePoint(MIB, (3e-5,))))
    found = summarize(made)
    assert not isinstance(found.floor, Absent)
    assert isinstance(found.plateau, Absent) is not rates
    none = summarize(replace(made, points=()))
    assert isinstance(none.floor, Absent)
    assert isinstance(none.plateau, Absent)
    assert rates_of(made, made.points[1])[0] > 0 or not rates


def test_settings_in_words_leave_out_what_is_usual() -> None:
    assert setting(Configuration(4)) == "auto"
    how = Configuration(4, "Ring", "LL", "graph", True, (("NCCL_A", ""), ("NCCL_B", "2")))  # noqa: FBT003
    assert setting(how) == "Ring LL graph registered NCCL_A=as found NCCL_B=2"
    assert (
        module.title(Curve("op", Configuration(1), (), "int8", in_place=False))
        == "op, 1 rank, int8, out of place"
    )
    assert (module.span(8, 8), module.span(8, 64)) == ("8 B", "8 B to 64 B")
