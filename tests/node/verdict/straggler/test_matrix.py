"""Which ends of copies are at fault: any of them slow as sources and destinations, and no innocent one."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain, combinations, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.verdict.straggler.nodes import POLICY, gpu, history, probe, told, watched
from wirewatch.verdict.straggler.naming import NamedStragglers, SlowPart, least_parts, name_stragglers
from wirewatch.verdict.straggler.signals import RateHistory, Resource, Signals, Unit, learn

NOISE = 0.003
"""Three times the spread of pairs of real healthy GPUs (proof/simulation/simulation.md)."""
FARTHEST = 3.0
"""Spreads of the noise that is drawn here; single values farther out are in the simulation."""
Left = Mapping[str, float]
"""What is left of the speed of parts such as `source 1`."""


def named(signals: Signals, references: RateHistory) -> NamedStragglers:
    return name_stragglers(signals, references, POLICY)


def slow(signals: Signals, references: RateHistory | None = None) -> list[str]:
    return sorted(told(one.unit) for one in named(signals, references or RateHistory()).slow)


def noisy(signals: Signals, seed: int) -> Signals:
    draw = Random(seed)  # noqa: S311 - the same each time
    noise = (max(-FARTHEST, min(FARTHEST, draw.gauss(0.0, 1.0))) * NOISE for _ in signals.rates)
    rates = {unit: rate * (1 + part) for (unit, rate), part in zip(signals.rates.items(), noise, strict=True)}
    return replace(signals, rates=rates)


def past(count: int) -> RateHistory:
    """The history of a node that was well, with noise."""
    references = RateHistory()
    for number in range(12):
        references = learn(references, noisy(probe(count), number), 600.0 * number)
    return references


PAST = {count: past(count) for count in range(2, 9)}


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("role", ["source", "destination"])
@pytest.mark.parametrize("count", [4, 6, 8])
def test_half_of_the_gpus_slow_in_one_role_are_named_and_none_in_the_other(
    count: int, role: str, *, cold: bool
) -> None:
    """The other half was FAILED as destinations: most of what each receives comes from slow sources."""
    for half in list(combinations(range(count), count // 2))[:: max(1, count - 3)]:
        parts = [f"{role} {n}" for n in half]
        found = slow(probe(count, dict.fromkeys(parts, 0.6)), None if cold else history(count))
        assert found == parts


@pytest.mark.parametrize("role", ["source", "destination"])
@pytest.mark.parametrize("count", range(3, 9))
def test_all_but_one_slow_are_named_and_not_the_one(count: int, role: str) -> None:
    for spared in range(count):
        parts = [f"{role} {n}" for n in range(count) if n != spared]
        assert slow(probe(count, dict.fromkeys(parts, 0.5)), PAST[count]) == parts


def test_half_and_half_of_four_cannot_be_reported_and_pairs_are_named() -> None:
    """Two sources and the two others as destinations: as many parts as two sources and two pairs."""
    found = named(probe(4, dict.fromkeys(["source 0", "source 1", "destination 2", "destination 3"], 0.6)),
                  PAST[4])  # fmt: skip
    assert {one.unit.resource for one in found.slow} == {Resource.PAIR}
    assert len(found.slow) == 8
    (one,) = (one for one in found.slow if told(one.unit) == "pair 0>2")
    assert [told(unit) for unit in one.undecided] == ["source 0", "destination 2"]
    (certain,) = (one for one in found.slow if told(one.unit) == "pair 2>3")
    assert [told(unit) for unit in certain.undecided] == ["destination 3"]


def test_a_source_beside_worse_destinations_has_lost_what_its_other_pairs_have() -> None:
    parts = {"source 0": 0.85} | {f"destination {n}": 0.5 for n in range(1, 6)}
    found = named(probe(8, parts), PAST[8])
    assert {told(one.unit): round(one.lost, 2) for one in found.slow} == {
        part: round(1 - left, 2) for part, left in parts.items()
    }


def test_a_load_that_is_not_the_same_at_each_moment_is_one_part() -> None:
    left = {f"pair 3>{n}": 0.74 - 0.016 * n for n in range(8) if n != 3}
    for references in (PAST[8], RateHistory()):
        assert slow(probe(8, left), references) == ["source 3"]


# --- any parts


def lost(count: int, left: Left) -> dict[tuple[int, int], float]:
    """The loss of each pair by the slower of its ends."""
    return {
        (a, b): 1 - min(left.get(f"source {a}", 1.0), left.get(f"destination {b}", 1.0))
        for a, b in permutations(range(count), 2)
    }


def shortest(count: int, losses: Mapping[tuple[int, int], float]) -> list[frozenset[str]]:
    """The ends of every shortest explanation, by trying all."""
    bad = {pair for pair, loss in losses.items() if loss > 0}
    levels = {f"source {n}": min(losses[n, m] for m in range(count) if m != n) for n in range(count)}
    levels |= {f"destination {n}": min(losses[m, n] for m in range(count) if m != n) for n in range(count)}
    able = [end for end, level in levels.items() if level > 0]

    def parts(ends: Collection[str]) -> int:
        covered = {
            pair for pair in bad for end in (f"source {pair[0]}", f"destination {pair[1]}")
            if end in ends and losses[pair] <= 1.5 * levels[end]
        }  # fmt: skip
        return len(ends) + len(bad - covered)

    every = [
        frozenset(ends) for ends in chain.from_iterable(combinations(able, n) for n in range(len(able) + 1))
    ]
    least = min(map(parts, every))
    return [ends for ends in every if parts(ends) == least]


def faults(count: int) -> st.SearchStrategy[dict[str, float]]:
    """Any ends with what is left of them; no loss can be taken for another that is less steady."""
    ends = [f"{role} {n}" for role in ("source", "destination") for n in range(count)]
    return st.dictionaries(st.sampled_from(ends), st.sampled_from([0.88, 0.7, 0.3]), max_size=2 * count)


SMALL = st.integers(2, 4).flatmap(lambda count: st.tuples(st.just(count), faults(count)))
ANY = st.integers(2, 8).flatmap(lambda count: st.tuples(st.just(count), faults(count)))
SEEDS = st.integers(100, 10_000)


def ends_of(found: NamedStragglers) -> set[str]:
    return {told(one.unit) for one in found.slow if one.unit.resource is not Resource.PAIR}


@given(SMALL, SEEDS)
def test_named_ends_are_those_of_every_shortest_explanation(drawn: tuple[int, Left], seed: int) -> None:
    count, left = drawn
    losses = lost(count, left)
    if min(losses.values()) > 0:
        return
    every = shortest(count, losses) if count > 2 else [frozenset[str]()]
    found = named(noisy(probe(count, left), seed), PAST[count])
    assert ends_of(found) == frozenset.intersection(*every)
    assert (ends_of(found) == set(left)) == (every == [frozenset(left)])


@given(ANY, SEEDS)
def test_no_healthy_end_is_named_and_all_that_is_slow_is_reported(drawn: tuple[int, Left], seed: int) -> None:
    """Each name is of a part that is, and every slow pair has a reason."""
    count, left = drawn
    losses = lost(count, left)
    found = named(noisy(probe(count, left), seed), PAST[count])
    assert ends_of(found) <= set(left)
    pairs = {(one.unit.uuid, one.unit.peer) for one in found.slow if one.unit.resource is Resource.PAIR}
    assert pairs <= {(gpu(a), gpu(b)) for (a, b), loss in losses.items() if loss > 0}
    assert bool(found.uniform) == (min(losses.values()) > 0)
    for (a, b), loss in losses.items():
        reasons = {f"source {a}", f"destination {b}"} & ends_of(found)
        assert loss == 0 or reasons or (gpu(a), gpu(b)) in pairs or found.uniform


@given(st.integers(5, 8), st.data())
def test_an_end_with_two_pairs_to_itself_is_named_exactly(count: int, data: st.DataObject) -> None:
    most = count - 3
    sets = st.sets(st.integers(0, count - 1), max_size=most)
    sources, destinations = data.draw(sets), data.draw(sets)
    parts = [*(f"source {n}" for n in sources), *(f"destination {n}" for n in destinations)]
    left = {part: data.draw(st.floats(0.3, 0.88)) for part in parts}
    found = named(noisy(probe(count, left), data.draw(SEEDS)), PAST[count])
    assert ends_of(found) == set(parts)


@given(ANY, SEEDS)
def test_without_a_history_the_same_while_most_pairs_are_well(drawn: tuple[int, Left], seed: int) -> None:
    count, left = drawn
    losses = lost(count, left)
    if 2 * sum(loss > 0 for loss in losses.values()) > len(losses):
        return
    cold, warm = (
        named(noisy(probe(count, left), seed), references) for references in (RateHistory(), PAST[count])
    )
    assert ends_of(cold) == ends_of(warm) <= set(left)


@given(ANY, SEEDS)
def test_failed_is_only_what_has_lost_a_quarter(drawn: tuple[int, Left], seed: int) -> None:
    count, left = drawn
    watch = watched([noisy(probe(count, left), seed + number) for number in range(3)], PAST[count])
    failed = {
        told(one.seen.unit)
        for one in watch.held(POLICY)
        if one.failed and isinstance(one.seen, SlowPart) and one.seen.unit.resource is not Resource.PAIR
    }
    assert failed <= {part for part, rest in left.items() if rest <= 0.75}


def test_a_slow_pair_makes_its_slow_source_no_worse() -> None:
    """The source has lost a tenth, the pair more than half: only the pair keeps jobs away."""
    signals = probe(8, {"source 2": 0.88, "pair 2>3": 0.4})
    held = watched([signals] * 3, PAST[8]).held(POLICY)
    assert {told(one.seen.unit): one.failed for one in held if isinstance(one.seen, SlowPart)} == {
        "source 2": False,
        "pair 2>3": True,
    }


@given(st.integers(4, 8), st.data())
def test_slow_pairs_beside_slow_sources_are_named(count: int, data: st.DataObject) -> None:
    sources = data.draw(st.sets(st.integers(2, count - 1), max_size=count // 2))
    left = {f"source {n}": data.draw(st.floats(0.6, 0.88)) for n in sources} | {"pair 0>1": 0.4}
    found = slow(noisy(probe(count, left), data.draw(SEEDS)), PAST[count])
    assert found == sorted(left)


@given(st.integers(4, 8), st.data())
def test_a_load_that_is_not_steady_is_one_part(count: int, data: st.DataObject) -> None:
    """Copies at other moments lose half as much again: 26 to 39 % between two GPUs that were measured."""
    role = data.draw(st.sampled_from(["source", "destination"]))
    n = data.draw(st.integers(0, count - 1))
    left = {f"{role} {n}": 0.74}
    for m in range(count):
        a, b = (n, m) if role == "source" else (m, n)
        left |= {f"pair {a}>{b}": data.draw(st.floats(0.62, 0.74))} if m != n else {}
    for references in (PAST[count], RateHistory()):
        assert slow(noisy(probe(count, left), data.draw(SEEDS)), references) == [f"{role} {n}"]


# --- unlike wires and products


def unlike(limit: float | None = None, part: float = 1.0) -> Signals:
    """Four GPUs of one product and four of a slower one; GPU 0 sends at most `limit`, or a part of all."""
    signals = probe(8)
    rates, alike = dict(signals.rates), dict(signals.alike)
    for unit in signals.rates:
        if unit.resource is Resource.PAIR:
            old = sum(int(end.removeprefix("GPU-")) >= 4 for end in (unit.uuid, unit.peer))
            rate = 390e9 if not old else 200e9
            rates[unit] = min(rate * part, limit or rate) if unit.uuid == gpu(0) else rate
            alike[unit] = f"{old} of the slower"
    return replace(signals, rates=rates, alike=alike)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(("limit", "part"), [(150e9, 1.0), (210e9, 1.0), (195e9, 1.0), (None, 0.6)])
def test_a_source_that_sends_to_two_products_is_one_part(
    limit: float | None, part: float, *, cold: bool
) -> None:
    references = RateHistory()
    for number in range(0 if cold else 12):
        references = learn(references, unlike(), 600.0 * number)
    (one,) = named(unlike(limit, part), references).slow
    assert told(one.unit) == "source 0"


def islands(within: float = 1.0, between: float = 1.0) -> Signals:
    """Four and four GPUs, NVLink within and PCIe between; GPU 0 receives slowly by one of both."""
    signals = probe(8)
    rates, alike, wires = dict(signals.rates), dict(signals.alike), {}
    for unit in signals.rates:
        if unit.resource is Resource.PAIR:
            sides = [int(end.removeprefix("GPU-")) // 4 for end in (unit.uuid, unit.peer)]
            near = sides[0] == sides[1]
            wires[unit] = f"switch {sides[0]}" if near else "through the host"
            alike[unit] = wires[unit] if near else ""
            left = 1.0 if unit.peer != gpu(0) else within if near else between
            rates[unit] = left * (390e9 if near else 25e9)
    return replace(signals, rates=rates, alike=alike, wires=wires)


def test_a_destination_is_slow_by_one_kind_of_wire_alone() -> None:
    references = RateHistory()
    for number in range(12):
        references = learn(references, islands(), 600.0 * number)
    assert slow(islands(within=0.5)) == ["destination 0"]
    for signals in (islands(within=0.5), islands(between=0.5), islands(0.8, 0.5)):
        assert slow(signals, references) == ["destination 0"]


def test_a_new_gpu_takes_no_history_from_the_others() -> None:
    """GPU 7 was exchanged: of each GPU one pair has no history."""
    known = {unit: values for unit, values in PAST[8].values.items() if gpu(7) not in {unit.uuid, unit.peer}}
    references = replace(PAST[8], values=known)
    assert slow(probe(8, {"source 2": 0.92}), references) == ["source 2"]


# --- the count of parts


def test_the_fewest_parts_are_the_most_pairs_that_share_none() -> None:
    def pair(a: int, b: int) -> Unit:
        return Unit(Resource.PAIR, gpu(a), gpu(b))

    source, destination = Unit(Resource.SOURCE, gpu(0)), Unit(Resource.DESTINATION, gpu(3))
    row = {pair(0, n): [source] for n in (1, 2)}
    column = {pair(n, 3): [destination] for n in (1, 2)}
    assert least_parts({}) == 0
    assert least_parts(row) == 1
    assert least_parts({one: [] for one in row}) == 2
    assert least_parts(row | column | {pair(0, 3): [source, destination]}) == 2
    assert (
        least_parts({pair(0, 3): [source, destination], pair(0, 1): [source], pair(1, 3): [destination]}) == 2
    )
