"""Who is believed to be slow after several probes, and what becomes history."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.verdict.straggler.nodes import POLICY, gpu, history, probe, told, watched
from tests.rows import each
from wirewatch.core.statistics import APART, FORGOTTEN, KEPT, LEARNING
from wirewatch.verdict.straggler.naming import SlowPart, StragglerWatch, fold_stragglers
from wirewatch.verdict.straggler.signals import (
    RateHistory,
    Resource,
    Signals,
    Unit,
    learn,
)

GOOD, SLOW, BAD = probe(4), probe(4, {"compute 2": 0.88}), probe(4, {"compute 2": 0.6})
HALF = probe(4, {"compute 2": 0.5})
UNIT = Unit(Resource.COMPUTE, gpu(2))


def believed(looks: Sequence[Signals]) -> list[tuple[str, bool]]:
    watch = watched(list(looks), history(4))
    return [
        (told(one.seen.unit) if hasattr(one.seen, "unit") else one.seen.resource.value, one.failed)
        for one in watch.held(POLICY)
    ]


def test_one_look_is_not_believed() -> None:
    assert believed([GOOD, SLOW]) == []
    assert watched([GOOD, SLOW], history(4)).unsure(POLICY)


def test_two_of_three_are() -> None:
    for looks in ([SLOW, SLOW], [SLOW, GOOD, SLOW], [GOOD, SLOW, SLOW], [SLOW, SLOW, GOOD]):
        assert believed(looks) == [("compute 2", False)]
    for looks in ([SLOW, GOOD, GOOD, SLOW], [SLOW, SLOW, GOOD, GOOD]):
        assert believed(looks) == []


def test_it_is_failed_when_three_looks_saw_it_that_bad() -> None:
    for looks in ([SLOW, BAD], [BAD, BAD], [BAD, SLOW, BAD], [BAD, GOOD, BAD]):
        assert believed(looks) == [("compute 2", False)]
    assert believed([BAD, BAD, BAD]) == [("compute 2", True)]


def test_two_are_enough_where_it_is_as_bad_twice_over() -> None:
    for looks in ([HALF, HALF], [HALF, GOOD, HALF], [HALF, SLOW, HALF]):
        assert believed(looks) == [("compute 2", True)]
    for looks in ([BAD, HALF], [HALF, GOOD, BAD], [SLOW, BAD, HALF]):
        assert believed(looks) == [("compute 2", False)]


def test_an_outlier_half_of_which_lasts_is_not_failed() -> None:
    """Two thirds of its speed lost once, and then the root of what is left: noise that halves each time."""
    looks = [probe(4, {"compute 2": left}) for left in (0.34, 0.583, 0.764, 0.874)]
    for newest in range(2, 5):
        assert believed(looks[:newest]) == [("compute 2", False)]


@each(
    ("looks", "asks"),
    [
        ([SLOW], True), ([BAD], True), ([SLOW, SLOW], False), ([BAD, BAD], True), ([HALF, HALF], False),
        ([BAD, BAD, BAD], False), ([BAD, SLOW, BAD], False), ([BAD, GOOD, BAD], True),
        ([BAD, BAD, GOOD], False),
    ],
)  # fmt: skip
def test_another_probe_is_asked_for_until_it_is_known_how_bad_it_is(looks: list[Signals], asks: bool) -> None:  # noqa: FBT001
    assert watched(looks, history(4)).unsure(POLICY) is asks


def test_since_is_when_it_was_first_seen() -> None:
    (held,) = watched([GOOD, SLOW, SLOW, SLOW], history(4)).held(POLICY)
    assert (held.since, held.times, held.looks) == (600.0, 3, 3)


def test_a_slow_node_is_believed_as_a_whole() -> None:
    all_slow = probe(4, {f"memory {n}": 0.7 for n in range(4)})
    assert believed([all_slow, all_slow]) == [("memory", False)]
    assert believed([all_slow, all_slow, all_slow]) == [("memory", True)]


def test_what_is_slow_never_becomes_history() -> None:
    watch = watched([GOOD] * 12)
    before = watch.references
    for number in range(200):
        watch = fold_stragglers(watch, SLOW, 1e5 + number * APART, POLICY, accepted=True)
    assert watch.references == before
    assert [one.failed for one in watch.held(POLICY)] == [False]


def test_nor_does_a_probe_that_found_something_else() -> None:
    watch = StragglerWatch()
    for number in range(20):
        watch = fold_stragglers(watch, GOOD, 600.0 * number, POLICY, accepted=False)
    assert watch.references == RateHistory()


def test_history_is_short_at_first_and_looks_far_back_later() -> None:
    references, at = RateHistory(), 0.0
    for number in range(LEARNING):
        at = 600.0 * number
        references = learn(references, GOOD, at)
    assert len(references.values[UNIT]) == LEARNING
    references = learn(references, GOOD, at + 600.0)
    assert len(references.values[UNIT]) == LEARNING
    for number in range(1, 100):
        references = learn(references, GOOD, at + number * APART)
    assert len(references.values[UNIT]) == KEPT


def test_a_clock_that_went_back_does_not_end_learning() -> None:
    references = RateHistory()
    for number in range(LEARNING):
        references = learn(references, GOOD, 1e9 + number)
    assert len(learn(references, GOOD, 5.0).values[UNIT]) == LEARNING + 1


def test_another_driver_or_size_begins_again() -> None:
    references = learn(history(4), Signals("another", GOOD.rates, GOOD.alike), 1e6)
    assert references.kind == "another"
    assert references.of(UNIT, "another", 2) is None
    assert references.of(UNIT, "another", 1) is not None
    assert references.of(UNIT, "kind", 1) is None


def test_a_gpu_that_is_gone_is_forgotten_in_the_end() -> None:
    references = learn(history(4), probe(3), FORGOTTEN / 2)
    assert gpu(3) in {unit.uuid for unit in references.values}
    references = learn(references, probe(3), FORGOTTEN * 2)
    assert gpu(3) not in {unit.uuid for unit in references.values}


def test_with_too_few_probes_there_is_no_history() -> None:
    references = history(4, probes=POLICY.learn - 1)
    assert references.of(UNIT, "kind", POLICY.learn) is None
    assert history(4, probes=POLICY.learn).of(UNIT, "kind", POLICY.learn) is not None


LOOKS = st.lists(st.sampled_from([GOOD, SLOW, BAD, HALF]), max_size=12)


@given(LOOKS)
def test_nothing_is_believed_of_fewer_looks_than_it_takes(looks: list[Signals]) -> None:
    newest = looks[-POLICY.among :]
    count = sum(one is not GOOD for one in newest)
    assert bool(believed(looks)) == (count >= POLICY.confirm)
    half = sum(one is HALF for one in newest)
    failed = half >= POLICY.confirm or half + sum(one is BAD for one in newest) == POLICY.among
    assert [held for _, held in believed(looks)] == [failed] * (count >= POLICY.confirm)


@pytest.mark.parametrize("field", ["own", "peers", "failed", "noise_peers"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1])
def test_policies_that_cannot_be_meant_are_named(field: str, value: float) -> None:
    assert field not in POLICY.wrong()
    changed: dict[str, Any] = {field: value}
    assert field in replace(POLICY, **changed).wrong()


def test_more_confirmations_than_looks_cannot_be_meant() -> None:
    assert "among" in type(POLICY)(confirm=4).wrong()
    assert "score" in type(POLICY)(score=0.0).wrong()
    assert "learn" in type(POLICY)(learn=0).wrong()


def noisy(random: Random) -> Signals:
    """A probe of eight GPUs whose every time is up to 5 % off, each by itself."""
    well = probe(8)
    return replace(well, rates={unit: rate / random.uniform(0.95, 1.05) for unit, rate in well.rates.items()})


def test_even_noise_of_five_per_cent_names_nobody() -> None:
    """Before: on most nodes, up to three at a time, by histories of five values that looked quiet."""
    random = Random(7)  # noqa: S311
    for _ in range(12):
        watch = StragglerWatch()
        for number in range(25):
            watch = fold_stragglers(watch, noisy(random), 600.0 * number, POLICY, accepted=True)
            assert watch.held(POLICY) == ()


def test_a_part_of_a_noisy_node_is_named_from_four_deviations_on() -> None:
    random = Random(7)  # noqa: S311
    watch = watched([noisy(random) for _ in range(30)])
    unit = Unit(Resource.COMPUTE, gpu(2))
    for _ in range(2):
        one = noisy(random)
        bad = replace(one, rates={**one.rates, unit: 0.7 * one.rates[unit]})
        watch = fold_stragglers(watch, bad, 1e6, POLICY, accepted=True)
    assert [told(one.seen.unit) for one in watch.held(POLICY) if isinstance(one.seen, SlowPart)] == [
        "compute 2"
    ]
