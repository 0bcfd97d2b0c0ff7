"""Who is slow by one probe: the part, and not what merely follows from it."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.node.verdict.straggler.nodes import POLICY, gpu, history, probe, told
from wirewatch.verdict.straggler.naming import NamedStragglers, name_stragglers
from wirewatch.verdict.straggler.signals import RateHistory, Resource, Signals, Unit, learn

COUNTS = (2, 3, 4, 8)
INNER = ("compute", "memory")
ENDS = ("source", "destination")


def named(signals: Signals, count: int, *, cold: bool = False) -> NamedStragglers:
    return name_stragglers(signals, RateHistory() if cold else history(count), POLICY)


def slow(signals: Signals, count: int, *, cold: bool = False) -> list[str]:
    return sorted(told(one.unit) for one in named(signals, count, cold=cold).slow)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("count", [1, *COUNTS])
def test_a_healthy_node_names_no_part(count: int, *, cold: bool) -> None:
    found = named(probe(count), count, cold=cold)
    assert (found.slow, found.uniform) == ((), ())


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("what", INNER)
def test_one_slow_gpu_is_named_with_its_resource(what: str, count: int, *, cold: bool) -> None:
    for n in range(count):
        part = f"{what} {n}"
        assert slow(probe(count, {part: 0.85}), count, cold=cold) == [part]


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("count", [n for n in COUNTS if n > 2])
@pytest.mark.parametrize("what", ENDS)
def test_one_slow_direction_is_named_and_its_pairs_are_not(what: str, count: int, *, cold: bool) -> None:
    for n in range(count):
        part = f"{what} {n}"
        assert slow(probe(count, {part: 0.8}), count, cold=cold) == [part]


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("count", COUNTS)
def test_one_slow_pair_is_named_in_its_direction(count: int, *, cold: bool) -> None:
    for n in range(count):
        part = f"pair {n}>{(n + 1) % count}"
        assert slow(probe(count, {part: 0.8}), count, cold=cold) == [part]


def test_of_two_gpus_a_direction_is_a_pair() -> None:
    assert slow(probe(2, {"source 0": 0.8}), 2) == ["pair 0>1"]
    assert slow(probe(2, {"destination 0": 0.8}), 2) == ["pair 1>0"]


@pytest.mark.parametrize("what", INNER)
def test_two_slow_gpus_are_both_named(what: str) -> None:
    for count in (4, 8):
        for n, m in combinations(range(count), 2):
            parts = [f"{what} {n}", f"{what} {m}"]
            for cold in (False, True):
                assert slow(probe(count, dict.fromkeys(parts, 0.8)), count, cold=cold) == parts


def test_a_slow_direction_and_a_slow_pair_elsewhere_are_both_named() -> None:
    faults = {"source 2": 0.7, "pair 5>6": 0.5, "pair 2>3": 0.4}
    assert slow(probe(8, faults), 8) == ["pair 2>3", "pair 5>6", "source 2"]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("what", INNER)
def test_a_uniformly_slow_node_names_no_gpu(what: str, count: int) -> None:
    found = named(probe(count, {f"{what} {n}": 0.8 for n in range(count)}), count)
    assert found.slow == ()
    assert [(one.resource.value, one.units) for one in found.uniform] == [(what, count)]
    assert found.uniform[0].lost == pytest.approx(0.2)


@pytest.mark.parametrize("count", COUNTS)
def test_all_pairs_slow_name_no_gpu(count: int) -> None:
    pairs = {f"source {n}": 0.8 for n in range(count)}
    found = named(probe(count, pairs), count)
    assert found.slow == ()
    assert [one.resource for one in found.uniform] == [Resource.PAIR]


@pytest.mark.parametrize("count", [3, 4, 8])
def test_one_that_is_slower_than_a_slow_node_is_named(count: int) -> None:
    faults = {f"compute {n}": 0.85 for n in range(count)} | {"compute 1": 0.5}
    found = named(probe(count, faults), count)
    assert [told(one.unit) for one in found.slow] == ["compute 1"]
    assert found.slow[0].lost == pytest.approx(1 - 0.5 / 0.85)
    assert [one.resource.value for one in found.uniform] == ["compute"]


def test_without_a_history_a_uniformly_slow_node_cannot_be_reported() -> None:
    assert slow(probe(8, {f"compute {n}": 0.5 for n in range(8)}), 8, cold=True) == []


def test_a_gpu_that_was_always_a_few_per_cent_slower_is_not_slow() -> None:
    assert slow(probe(8, {"compute 4": 0.96}), 8, cold=True) == []


@pytest.mark.parametrize("noise", [0.98, 0.995, 1.0, 1.01])
def test_near_the_limit_of_peers_no_noise_decides(noise: float) -> None:
    """A GPU that has always been 9.5 % slower than its peers stays what it is."""
    references = RateHistory()
    for number in range(12):
        references = learn(references, probe(8, {"compute 0": 0.905}), 600.0 * number)
    found = name_stragglers(probe(8, {"compute 0": 0.905 * noise}), references, POLICY)
    assert found.slow == ()
    worse = name_stragglers(probe(8, {"compute 0": 0.905 * 0.93}), references, POLICY)
    assert [told(one.unit) for one in worse.slow] == ["compute 0"]


def test_a_gpu_that_was_slow_from_the_start_is_named_by_its_peers() -> None:
    signals = probe(8, {"memory 3": 0.8})
    (one,) = name_stragglers(signals, RateHistory(), POLICY).slow
    assert (told(one.unit), one.own, one.usual) == ("memory 3", False, None)
    assert one.lost == pytest.approx(0.2, abs=0.01)


MEASURED = {
    # 8 H200, another process on GPU 3 (medians; the rest of the node as drawn): products, memory, directions.
    "compute 3": {"compute 3": 0.43, "memory 3": 0.5, "destination 3": 0.38},
    "memory 3": {"compute 3": 0.57, "memory 3": 0.5, "destination 3": 0.37, "source 3": 0.98},
    "destination 4,source 3": {
        "source 3": 0.5, "destination 4": 0.69, "compute 3": 0.95, "memory 3": 0.93, "memory 4": 0.83,
    },
}  # fmt: skip


@pytest.mark.parametrize("case", [case for case in MEASURED if case != "memory 3"])
def test_what_was_measured_under_load_on_eight_gpus(case: str) -> None:
    assert ",".join(slow(probe(8, MEASURED[case]), 8)) == case


def test_a_gpu_whose_time_is_shared_is_named_once_and_by_its_compute() -> None:
    """Time slices halve everything alike: that memory is at fault cannot be told from them."""
    (one,) = named(probe(8, MEASURED["memory 3"]), 8).slow
    assert told(one.unit) == "compute 3"
    assert {told(unit) for unit in one.follows} == {"memory 3", "destination 3"}


TWO = {
    # Two H200, load of the worker's own: what is left of products, memory, the pair.
    "compute 0": {"compute 0": 0.504, "memory 0": 0.134},
    "memory 0": {"compute 0": 0.821, "memory 0": 0.344, "source 0": 0.967},
    "pair 0>1": {
        "pair 0>1": 0.817, "memory 0": 0.898, "memory 1": 0.904, "compute 1": 0.948, "compute 0": 0.987,
    },
}  # fmt: skip


@pytest.mark.parametrize("case", TWO)
@pytest.mark.parametrize("cold", [False, True])
def test_what_was_measured_under_load_on_two_gpus(case: str, *, cold: bool) -> None:
    found = named(probe(2, TWO[case]), 2, cold=cold)
    assert [told(one.unit) for one in found.slow] == [case]
    assert found.uniform == ()


COPYING = {"pair 0>1": 0.815, "memory 0": 0.937, "memory 1": 0.8, "compute 1": 0.843, "compute 0": 0.984}
"""Two H200, means, while another process copies from 0 to 1: GPU 1 waits for that, too."""


@pytest.mark.parametrize(("used", "expected"), [("0", "pair 0>1"), ("1", "compute 1"), ("01", "compute 1")])
@pytest.mark.parametrize("cold", [False, True])
def test_a_gpu_that_no_other_process_uses_is_not_why_a_wire_is_slow(
    used: str, expected: str, *, cold: bool
) -> None:
    signals = replace(probe(2, COPYING), used=frozenset(gpu(int(one)) for one in used))
    assert expected in slow(signals, 2, cold=cold)
    assert (slow(signals, 2, cold=cold) == ["pair 0>1"]) == (expected == "pair 0>1")


def test_another_process_elsewhere_hides_no_cause() -> None:
    faults = {"compute 1": 0.6, "memory 1": 0.6, "pair 0>1": 0.6}
    signals = replace(probe(4, faults), used=frozenset({gpu(3)}))
    (one,) = named(signals, 4).slow
    assert told(one.unit) == "compute 1"
    assert {told(unit) for unit in one.follows} == {"memory 1", "pair 0>1"}


def test_a_direction_is_slow_by_who_uses_the_others_and_not_by_its_idle_gpu() -> None:
    faults = {"source 3": 0.5, "destination 4": 0.69, "memory 4": 0.7, "compute 4": 0.77}
    signals = probe(8, faults)
    assert slow(replace(signals, used=frozenset({gpu(3)})), 8) == ["destination 4", "source 3"]
    assert slow(signals, 8) == ["compute 4", "source 3"]


@pytest.mark.parametrize("cold", [False, True])
@given(
    scale=st.floats(1e-3, 1e3),
    count=st.sampled_from(COUNTS),
    n=st.integers(0, 7),
    what=st.sampled_from(INNER),
)
def test_a_faster_product_is_judged_the_same(
    scale: float, count: int, n: int, what: str, *, cold: bool
) -> None:
    part = f"{what} {n % count}"
    past = history(count)
    scaled = {unit: tuple(scale * value for value in values) for unit, values in past.values.items()}
    references = RateHistory() if cold else RateHistory(past.kind, scaled, past.taken)
    found = name_stragglers(probe(count, {part: 0.8}, scale), references, POLICY)
    assert [told(one.unit) for one in found.slow] == [part]


PARTS = [f"{what} {n}" for what in (*INNER, *ENDS) for n in range(4)] + [
    f"pair {n}>{m}" for n in range(4) for m in range(4) if n != m
]
FAULTS = st.dictionaries(st.sampled_from(PARTS), st.floats(0.2, 1.0), max_size=6)


def worst(found: NamedStragglers) -> float:
    return max([*(one.worst for one in found.slow), *(one.worst for one in found.uniform)], default=0.0)


@given(FAULTS, st.sampled_from(PARTS), st.floats(0.2, 1.0))
@example({"compute 1": 0.625, "memory 1": 0.21875}, "destination 1", 0.25)
def test_one_more_fault_never_hides_how_bad_it_is(faults: dict[str, float], part: str, left: float) -> None:
    """Whatever is named as the cause: what comes of it is not less than before."""
    more = faults | {part: min(left, faults.get(part, 1.0))}
    assert worst(named(probe(4, more), 4)) >= worst(named(probe(4, faults), 4)) - 1e-9


@given(FAULTS)
def test_whatever_is_named_is_slow_and_named_once(faults: dict[str, float]) -> None:
    found = named(probe(4, faults), 4)
    units = [one.unit for one in found.slow]
    assert len(set(units)) == len(units)
    assert all(one.lost >= POLICY.own for one in found.slow)
    if not any(left < 1 - POLICY.own for left in faults.values()):
        assert (found.slow, found.uniform) == ((), ())


@given(FAULTS, st.permutations(range(4)))
def test_the_order_of_gpus_means_nothing(faults: dict[str, float], order: list[int]) -> None:
    def moved(unit: Unit) -> Unit:
        ends = [gpu(order[int(u.removeprefix("GPU-"))]) if u else "" for u in (unit.uuid, unit.peer)]
        return Unit(unit.resource, *ends)

    signals, past = probe(4, faults), history(4)
    turned = Signals(
        "kind",
        {moved(u): r for u, r in signals.rates.items()},
        {moved(u): w for u, w in signals.alike.items()},
    )
    values = {moved(u): v for u, v in past.values.items()}
    before = {moved(one.unit) for one in name_stragglers(signals, past, POLICY).slow}
    after = {one.unit for one in name_stragglers(turned, RateHistory("kind", values), POLICY).slow}
    assert before == after
