"""What changed between two studies: how often it is said of the same machine, and how often it is missed."""

import json
import math
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.study.drawn import FULL, SHORT, Noise, curve, study
from tests.rows import each
from wirewatch.core.types import Health
from wirewatch_lab.study import compare as module
from wirewatch_lab.study.compare import (
    ALPHA,
    COMPARISON,
    Comparison,
    PartChange,
    compare,
    contests,
    health,
    losses,
)
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study
from wirewatch_lab.study.spread import alone, logarithms, together, welch

MIB = 1 << 20
NOISES = {
    "of each time": Noise(),
    "of a repeat": Noise(each=0.002, curve=0.01),
    "of a repeat of all curves": Noise(each=0.005, session=0.01),
    "small sizes are noisier": Noise(each=0.004, small=0.05),
    "one curve is noisier": Noise(each=0.0, curve=0.01, last=4.0),
}
BOUNDARY = 4 * MIB


def whole(comparison: Comparison, place: int = 0) -> PartChange:
    return comparison.curves[place].parts[0]


def by_hand(*curves: Curve, **environment: str) -> Study:
    return Study(0.0, "by hand", environment, curves)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_the_same_against_itself_has_not_changed(noise: Noise) -> None:
    """The long proof is `make simulation`."""
    random = Random(7)  # noqa: S311 - noise, and the same each time
    sizes = FULL[::3]
    pairs = ((study(random, noise, 2, sizes), study(random, noise, 2, sizes)) for _ in range(150))
    assert sum(compare(*pair).changed > 0 for pair in pairs) <= 1


def test_a_setting_that_became_slower_is_found_and_no_other() -> None:
    random = Random(8)  # noqa: S311
    found = 0
    for _ in range(60):
        a = study(random, Noise())
        b = study(random, Noise(), shift=lambda place, _size: 0.03 if place == 2 else 0.0)
        made = compare(a, b)
        found += whole(made, 2).verdict == "changed"
        assert whole(made, 2).speed == pytest.approx(1 / 1.03, abs=0.01)
        assert [part.verdict for place in (0, 1, 3, 4, 5) for part in made.curves[place].parts] == [
            "same"
        ] * 20
    assert found >= 57


def test_curves_learn_the_spread_from_each_other() -> None:
    """By their own levels alone, half of these would be missed."""
    random, noise = Random(16), Noise(0.007, 0.007)  # noqa: S311
    found = 0
    for _ in range(60):
        a = study(random, noise, sizes=FULL[::3])
        b = study(random, noise, sizes=FULL[::3], shift=lambda place, _size: 0.03 if place == 2 else 0.0)
        found += whole(compare(a, b), 2).verdict == "changed"
    assert found >= 54


@given(st.integers(1, 2**31), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4))
def test_any_repeats_can_be_compared(seed: int, ours: int, theirs: int, curves: int) -> None:
    random = Random(seed)  # noqa: S311
    a, b = (study(random, Noise(0.01, 0.3, last=9.0), curves, SHORT, n) for n in (ours, theirs))
    made = compare(a, b)
    judged = [part for curve in made.curves for part in curve.every() if part.verdict != "not judged"]
    assert len(judged) == made.judged
    far = [part for part in judged if part.spread is None]
    assert far == (judged if min(ours, theirs) == 1 else [])
    assert all(
        (part.verdict, abs(math.log(part.speed)) > math.log(1.42)) == ("changed", True) for part in far
    )
    assert COMPARISON.validate_json(COMPARISON.dump_json(made)) == made


def test_a_regime_that_changed_is_found_where_it_changed() -> None:
    random = Random(9)  # noqa: S311
    found = 0
    for _ in range(60):
        a, b = study(random, Noise(), 1), study(random, Noise(), 1, shift=lambda _, n: 0.03 * (n >= 16 * MIB))
        parts = {part.part: part.verdict for part in compare(a, b).curves[0].parts}
        assert (parts["latency"], parts["middle"]) == ("same", "same")
        found += parts["bandwidth"] == "changed"
    assert found >= 57


def test_a_single_size_is_judged_by_itself() -> None:
    random = Random(10)  # noqa: S311
    a, b = study(random, Noise(), 1), study(random, Noise(), 1, shift=lambda _, n: 0.3 * (n == BOUNDARY))
    found = [part.first_bytes for part in compare(a, b).curves[0].points if part.verdict == "changed"]
    assert found == [BOUNDARY]


def test_the_least_change_that_would_be_seen_is_said() -> None:
    random = Random(11)  # noqa: S311
    few, many = (
        whole(compare(study(random, Noise(), 1, repeats=n), study(random, Noise(), 1, repeats=n)))
        for n in (3, 12)
    )
    assert few.least is not None
    assert many.least is not None
    assert many.least < few.least < 0.2


def test_one_that_printed_the_same_digits_in_every_repeat_has_no_spread_of_nought() -> None:
    a = curve({8: [23.30] * 5, MIB: [50.0] * 5})
    close, apart = (curve({8: [us] * 5, MIB: [50.0] * 5}) for us in (23.31, 25.0))
    assert compare(by_hand(a), by_hand(close)).changed == 0
    assert compare(by_hand(a), by_hand(apart)).changed > 0


@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (1, 5), (5, 1)])
def test_a_single_run_is_not_judged_and_its_difference_is_shown(ours: int, theirs: int) -> None:
    a, b = (curve({8: [us] * n}) for us, n in ((20.0, ours), (25.0, theirs)))
    made = compare(by_hand(a), by_hand(b))
    assert (made.judged, made.changed) == (0, 0)
    assert {part.verdict for part in made.curves[0].every()} == {"not judged"}
    assert whole(made).speed == pytest.approx(0.8)
    assert (whole(made).spread, whole(made).least) == (None, None)
    assert health(made, 0.99) is Health.UNKNOWN
    assert health(made, None) is Health.OK


def test_what_only_one_of_them_has_is_listed() -> None:
    ring, tree = Configuration(4, "Ring"), Configuration(4, "Tree")
    here = {8: [20.0, 20.1], 16: [20.0, 20.1]}
    a = by_hand(curve(here, ring), curve(here, tree), curve(here, op="reduce"), curve(here, op="reduce"))
    b = by_hand(
        curve({8: [20.0, 20.1], 32: [20.0, 20.1]}, ring),
        curve(here, op="reduce"),
        curve(here, ring, in_place=False),
    )
    made = compare(a, b)
    assert [(one.op, one.configuration.algorithm, one.in_place, one.why) for one in made.unmatched] == [
        ("all_reduce", "Tree", True, "only in A"),
        ("reduce", "auto", True, "more than once in one of them"),
        ("all_reduce", "Ring", False, "only in B"),
    ]
    assert (made.curves[0].only_a, made.curves[0].only_b) == ((16,), (32,))
    assert [part.first_bytes for part in made.curves[0].points] == [8]


def test_another_environment_comes_first() -> None:
    one = curve({8: [20.0, 20.1]})
    made = compare(by_hand(one, driver="580", NCCL="2.28"), by_hand(one, driver="590", GPUs="4", NCCL="2.28"))
    assert [(x.name, x.a, x.b) for x in made.environment] == [("driver", "580", "590"), ("GPUs", None, "4")]


def test_a_size_that_lost_repeats_shortens_no_other() -> None:
    random = Random(12)  # noqa: S311
    a, b = study(random, Noise(), 1), study(random, Noise(), 1)
    torn = a.curves[0].points
    torn = (replace(torn[0], seconds=torn[0].seconds[:1]), *torn[1:])
    made = compare(replace(a, curves=(replace(a.curves[0], points=torn),)), b)
    assert (whole(made).sizes, whole(made).repeats) == (30, (5, 5))
    assert made.curves[0].points[0].verdict == "not judged"


def test_wrong_values_are_no_speed() -> None:
    one = curve({8: [20.0, 20.1], MIB: [50.0, 50.1]})
    bad = replace(one, points=(one.points[0], CurvePoint(MIB, (1e-6, 1e-6), wrong=9)))
    made = compare(by_hand(one), by_hand(bad))
    assert made.curves[0].wrong_b == (MIB,)
    assert [part.first_bytes for part in made.curves[0].points] == [8]
    assert health(made, 0.9) is Health.DEGRADED
    assert health(compare(by_hand(bad), by_hand(bad)), 0.9) is Health.OK


@pytest.mark.parametrize(
    ("least", "expected"), [(0.98, Health.DEGRADED), (0.96, Health.OK), (None, Health.OK)]
)
def test_a_loss_counts_against_the_limit(least: float | None, expected: Health) -> None:
    random = Random(13)  # noqa: S311
    a = study(random, Noise(0.002), 1, SHORT)
    b = study(random, Noise(0.002), 1, SHORT, shift=lambda _curve, _size: 0.03)
    assert health(compare(a, b), least) is expected
    assert health(compare(b, a), least) is Health.OK


def test_nothing_in_common_cannot_be_judged() -> None:
    made = compare(by_hand(curve({8: [20.0, 20.1]})), by_hand())
    assert (made.curves, made.judged) == ((), 0)
    assert health(made, 0.5) is Health.UNKNOWN


def test_as_json() -> None:
    made = compare(by_hand(curve({8: [20.0, 20.1]})), by_hand(curve({8: [20.0, 20.1]}), NCCL="2.30"))
    document = json.loads(COMPARISON.dump_json(made))
    assert document["schema"] == "wirewatch.compare/1"
    assert COMPARISON.validate_python(document) == made


def test_how_little_would_have_been_seen_is_a_figure_of_the_limit_of_error() -> None:
    """Of five repeats that are 1 % apart each, by the promise of one wrong comparison in a hundred."""
    shares = (0.98, 0.99, 1.0, 1.01, 1.02)
    one = curve({8: [20 * x for x in shares], MIB: [50 * x for x in shares]})
    (change,) = compare(by_hand(one), by_hand(one)).curves
    found = {part.part: round(part.least or 0, 4) for part in change.every()}
    assert found == {"all sizes": 0.0421, "latency": 0.0533, "middle": 0.0533, "size": 0.0533}


@pytest.mark.parametrize(("spread", "verdict"), [(0.12, "same"), (0.15, "not judged")])
def test_a_part_in_which_twice_the_time_would_not_be_seen_is_not_judged(spread: float, verdict: str) -> None:
    shares = [1 + spread * step for step in (-2, -1, 0, 1, 2)]
    one = curve({8: [20 * x for x in shares], MIB: [50 * x for x in shares]})
    parts = {part.part: part for part in compare(by_hand(one), by_hand(one)).curves[0].every()}
    size = parts["size"]
    assert (size.verdict, size.least is None) == (verdict, verdict == "not judged")


def test_of_sizes_that_are_one_test_the_whole_curve_decides() -> None:
    """A curve of one size is judged with what like curves tell of its spread, as all sizes are."""
    random = Random(5)  # noqa: S311
    a, b = study(random, Noise(), sizes=(8,)), study(random, Noise(), sizes=(8,))
    both = zip(a.curves, b.curves, strict=True)
    ours, theirs = ([[*logarithms(curve.points[0])] for curve in some.curves] for some in (a, b))
    judged = [welch(*pair) for pair in zip(together(ours), together(theirs), strict=True)]
    by_itself = [welch(*(alone(logarithms(curve.points[0])) for curve in pair)) for pair in both]
    assert [one.freedom for one in judged] != [one.freedom for one in by_itself]
    for change, one in zip(compare(a, b).curves, judged, strict=True):
        assert {part.least for part in change.every()} == {math.expm1(one.least(ALPHA / 6))}


RING, TREE = Configuration(4, "Ring"), Configuration(4, "Tree")
FIVE = [20.0, 20.1, 19.9, 20.05, 19.95]


def test_settings_without_a_size_in_common_have_no_contest() -> None:
    one, other = curve({8: FIVE}, RING), curve({16: FIVE}, TREE)
    assert list(contests([one, other])) == []
    assert list(contests([one])) == []
    assert [found.sizes for found in contests([one, curve({8: FIVE, 16: FIVE}, TREE)])] == [(8,)]


def test_what_came_out_wrong_is_in_no_contest() -> None:
    one = curve({8: FIVE, 16: FIVE}, RING)
    bad = replace(one, configuration=TREE, points=(one.points[0], replace(one.points[1], wrong=1)))
    assert [found.sizes for found in contests([one, bad])] == [(8,)]


def test_a_setting_with_one_repeat_leaves_all_without_a_spread() -> None:
    (found,) = contests([curve({8: FIVE}, RING), curve({8: [25.0]}, TREE)])
    assert [(one.spread, one.noise, one.tied) for one in found.placings] == [(None, None, True)] * 2
    assert found.placings[1].behind == pytest.approx(0.25, abs=1e-3)


def test_curves_of_one_repeat_tell_nothing_of_the_spread() -> None:
    rivals = [curve({8: FIVE}, RING), curve({8: [1.3 * us for us in FIVE]}, TREE)]
    other = curve({8: [33.0]}, Configuration(4, "NVLS"))
    assert list(contests(rivals, others=[*rivals, other])) == list(contests(rivals, others=rivals))


@pytest.mark.parametrize(("chance", "tied"), [(0.009, False), (0.011, True)])
def test_a_contest_among_equals_names_a_winner_once_in_a_hundred(chance: float, tied: bool) -> None:  # noqa: FBT001
    """Two settings whose difference noise makes with this chance."""
    low, high = 0.0, 0.1
    one = curve({8: FIVE}, RING)

    def other(share: float) -> Curve:
        return curve({8: [us * (1 + share) for us in FIVE]}, TREE)

    for _ in range(40):
        middle = (low + high) / 2
        (found,) = contests([one, other(middle)], alpha=chance)
        low, high = (middle, high) if found.placings[1].tied else (low, middle)
    (found,) = contests([one, other(high)])
    assert found.placings[1].tied is tied


def change(verdict: str, speed: float) -> Any:
    return SimpleNamespace(verdict=verdict, speed=speed)


def compared(*parts: Any, judged: int = 1, wrong: tuple[Any, Any] = ((), ())) -> Any:
    one = SimpleNamespace(every=lambda: parts, wrong_a=wrong[0], wrong_b=wrong[1])
    return SimpleNamespace(curves=[one], judged=judged)


@each(
    ("found", "least", "end"),
    [
        (compared(change("changed", 0.8)), None, Health.OK),
        (compared(change("changed", 0.8)), 0.9, Health.DEGRADED),
        (compared(change("changed", 0.9)), 0.9, Health.OK),
        (compared(change("same", 0.8)), 0.9, Health.OK),
        (compared(change("not judged", 0.8)), 0.9, Health.OK),
        (compared(judged=0), 0.9, Health.UNKNOWN),
        (compared(wrong=((), (8,))), 0.9, Health.DEGRADED),
        (compared(wrong=((8,), (8,))), 0.9, Health.OK),
        (compared(wrong=((8,), ())), 0.9, Health.OK),
        (compared(wrong=((8,), (64,)), judged=0), 0.9, Health.DEGRADED),
    ],
)
def test_b_is_worse_by_what_it_lost_or_got_wrong(found: Any, least: float | None, end: Health) -> None:
    assert health(found, least) is end


def test_the_worst_loss_comes_first() -> None:
    parts = (change("changed", 0.7), change("changed", 0.5), change("changed", 1.5), change("same", 0.1))
    assert [one.speed for _, one in losses(compared(*parts), 0.9)] == [0.5, 0.7]


def test_curves_without_one_counterpart_are_named() -> None:
    def named(*ops: str) -> Any:
        how = Configuration(4)
        curves = [SimpleNamespace(op=op, configuration=how, dtype="float32", in_place=True) for op in ops]
        return SimpleNamespace(curves=curves)

    found = vars(module)["_unmatched"](named("a", "b", "c", "c", "d", "d"), named("b", "c", "d", "d", "e"))
    assert [(one.op, one.why) for one in found] == [
        ("a", "only in A"), ("c", "more than once in one of them"), ("d", "more than once in one of them"),
        ("e", "only in B"),
    ]  # fmt: skip
