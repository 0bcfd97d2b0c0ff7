"""Tokens under tensor parallelism: source 004's floors, the sources' worked examples, and what must hold."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.support import EPOCH
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.cost.tokens import (
    FREE,
    PassCost,
    Served,
    decode,
    degrees,
    fits_from,
    held_bytes,
    prefill,
    stops_gaining,
    tokens_of,
)
from wirewatch_lab.advice.described import described
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.shapes import SHAPES, ModelShape, plain_shape
from wirewatch_lab.advice.times.estimate import CollectiveTimes
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study

KIB, MIB = 1 << 10, 1 << 20
BF16 = 2
UNKNOWN = Absent(Why.MISSING, "not measured")
FLOORS = {"eager": 23.1e-6, "graph": 13.7e-6}
"""Source 004's all-reduces of 16 KiB on 4 H100, of its quiet machine."""


def shape(name: str) -> ModelShape:
    (found,) = (one for one in SHAPES if one.name == name)
    return found


LARGE = shape("llama-3-70b")


def flat(ranks: int, floors: Mapping[str, float]) -> list[Curve]:
    """Curves that take their floor up to 1 MiB, and 300 GB/s of algbw beyond."""
    sizes = (8, KIB, 16 * KIB, 64 * KIB, MIB, 64 * MIB, 1024 * MIB)
    return [
        Curve(
            "all_reduce", Configuration(ranks, launch=launch),
            tuple(CurvePoint(size, (floor + max(0, size - MIB) / 300e9,)) for size in sizes),
        )
        for launch, floor in floors.items()
    ]  # fmt: skip


def measured(text: str, floors: Mapping[int, Mapping[str, float]]) -> AdvisedMachine:
    curves = [curve for ranks, each in floors.items() for curve in flat(ranks, each)]
    return replace(described(text), measured=(Study(EPOCH, "floors", {}, curves),))


def cost(machine: AdvisedMachine, served: Served, tp: int) -> PassCost:
    return decode(machine, CollectiveTimes(machine), served, tp)


def seconds(value: float | Absent) -> float:
    assert not isinstance(value, Absent)
    return value


def test_160_all_reduces_a_token_of_16_kib_each() -> None:
    machine = measured("4xH100", {4: FLOORS})
    one = cost(machine, Served(LARGE, BF16, 1, 2048), 4)
    assert (one.reductions, one.message) == (160, 16 * KIB)
    assert seconds(one.communication("eager")) == pytest.approx(3.70e-3, rel=2e-3)
    assert seconds(one.communication("graph")) == pytest.approx(2.19e-3, rel=2e-3)
    assert seconds(one.communication("eager")) * 30 == pytest.approx(
        0.11, abs=0.003
    )  # Of source 002's 33 ms.


def test_100_mb_are_6104_tokens_of_it() -> None:
    assert tokens_of(Served(LARGE, BF16, 1, 0), 100e6) == 6104
    assert tokens_of(Served(LARGE, BF16, 1, 0), 16 * KIB) == 1
    assert tokens_of(Served(LARGE, BF16, 1, 0), 16 * KIB + 1) == 2


def test_a_step_of_2048_tokens_saves_51_ms() -> None:
    """Source 002 saves 683 - 362 us of each all-reduce, and calls the 321 us of one of them 321 ms."""
    machine = measured("4xH100", {4: {"eager": 683e-6}})
    slow = seconds(cost(machine, Served(LARGE, BF16, 1, 0), 4).communication("eager"))
    fast = seconds(
        cost(measured("4xH100", {4: {"eager": 362e-6}}), Served(LARGE, BF16, 1, 0), 4).communication("eager")
    )
    assert slow - fast == pytest.approx(51.4e-3, rel=1e-3)


def test_a_70b_model_in_16_bits_is_140_gb_and_fits_two_gpus_of_80_by_a_hair() -> None:
    served = Served(plain_shape(80, 8192, 70e9, 8, 0, 0), BF16, 1, 0)
    assert held_bytes(served, 1) == 140e9
    machine = measured("8xH100", {2: FLOORS, 4: FLOORS, 8: FLOORS})
    assert [cost(machine, served, tp).fits for tp in (1, 2, 4)] == [False, True, True]
    assert held_bytes(served, 2) < FREE * 80e9


def test_keys_and_values_are_split_over_their_heads_alone() -> None:
    """320 KiB a token for a 70B model with 8 heads of keys: beyond TP 8 each GPU keeps as much."""
    assert LARGE.cached(BF16) == 320 * KIB
    few, many = (held_bytes(Served(LARGE, BF16, 1, context), 16) for context in (0, 1000))
    assert many - few == 1000 * 320 * KIB / 8


def test_decode_stops_gaining_where_the_floor_outgrows_the_reading() -> None:
    floors = {2: 10e-6, 4: 14e-6, 8: 45e-6}
    machine = measured("8xH100", {n: {"eager": 2 * t, "graph": t} for n, t in floors.items()})
    served = Served(LARGE, BF16, 1, 2048)
    costs = {tp: cost(machine, served, tp) for tp in degrees(machine, LARGE, 64)}
    assert sorted(costs) == [1, 2, 4, 8]
    assert costs[1].fits is False
    assert stops_gaining(costs, "graph") == (4, 8)  # 14.2 and 13.2 ms: 7 % less
    assert stops_gaining(costs, "eager") == (4, 4)
    assert seconds(costs[4].step("graph", 1.0)) == pytest.approx(seconds(costs[4].work))


def test_what_is_not_known_is_said_and_not_guessed() -> None:
    machine = measured("4xH100", {4: {"eager": 20e-6}})
    costs = {tp: cost(machine, Served(LARGE, BF16, 1, 0), tp) for tp in (2, 4)}
    unknown = {
        tp: replace(one, collective=dict.fromkeys(("eager", "graph"), UNKNOWN)) for tp, one in costs.items()
    }
    assert stops_gaining(unknown, "eager") is UNKNOWN
    assert unknown[2].communication("eager") is UNKNOWN
    assert unknown[2].step("eager", 0.0) is UNKNOWN
    assert stops_gaining({2: costs[2], 4: unknown[4]}, "eager") == (2, 2)
    none = {tp: replace(one, fits=False) for tp, one in costs.items()}
    assert isinstance(stops_gaining(none, "eager"), Absent)


def test_a_prefill_multiplies_and_sends_the_hidden_states_of_all_its_tokens() -> None:
    machine = measured("8xH100", {8: FLOORS})
    one = prefill(machine, CollectiveTimes(machine), Served(LARGE, BF16, 2, 0), 8, 1024)
    assert (one.tokens, one.message) == (2048, 32 * MIB)
    operations = (2 * LARGE.worked() * 2048 + 2 * 80 * 8192 * 1024 * 2048) / 8
    assert seconds(one.work) == pytest.approx(operations / (0.5 * 989e12))


def test_experts_that_no_token_takes_are_not_read() -> None:
    machine = measured("8xH100", {8: FLOORS})
    mixed = shape("mixtral-8x7b")
    one, many = (cost(machine, Served(mixed, BF16, batch, 0), 8) for batch in (1, 64))
    assert seconds(one.work) == pytest.approx(seconds(many.work) * 12.75e9 / 46.57e9, rel=0.01)


WORK = st.floats(1e-6, 1.0)


@settings(max_examples=examples(60))
@given(WORK, WORK, st.floats(0, 1))
def test_overlap_never_costs_and_never_hides_more_than_there_is(
    work: float, each: float, share: float
) -> None:
    machine = measured("4xH100", {4: {"eager": each}})
    one = replace(cost(machine, Served(LARGE, BF16, 1, 0), 4), work=work)
    sent, step = seconds(one.communication("eager")), seconds(one.step("eager", share))
    assert max(work, sent) * (1 - 1e-9) <= step <= (work + sent) * (1 + 1e-9)
    assert seconds(one.step("eager", 0.0)) == pytest.approx(work + sent)


def test_a_step_whose_work_or_times_are_not_known_is_not_known() -> None:
    one = cost(measured("4xH100", {4: FLOORS}), Served(LARGE, BF16, 1, 0), 4)
    blind = replace(one, work=UNKNOWN)
    assert blind.step("eager", 0.0) is UNKNOWN
    lone = replace(one, tp=1, collective={})
    assert lone.communication("eager") == 0.0
    assert lone.step("eager", 0.0) == lone.work


def test_a_model_fits_from_the_smallest_tp_that_divides_its_heads() -> None:
    """405.9e9 x 2 bytes in nine tenths of 80 GB take twelve GPUs, and sixteen divide 128 heads."""
    machine = described("8xH100")
    assert fits_from(machine, Served(shape("llama-3.1-405b"), BF16, 1, 0)) == 16
    assert fits_from(machine, Served(LARGE, BF16, 1, 0)) == 2
    assert fits_from(machine, Served(replace(LARGE, parameters=1e15), BF16, 1, 0)) is None
    (conditions,) = machine.conditions
    nameless = tuple(replace(gpu, name="") for gpu in conditions.group.gpus)
    blind = replace(conditions, group=replace(conditions.group, gpus=nameless))
    assert fits_from(replace(machine, conditions=(blind,)), Served(LARGE, BF16, 1, 0)) is None


@pytest.mark.parametrize(
    ("heads", "most", "wanted", "found"),
    [(64, 64, 1, (1, 2, 4, 8)), (6, 64, 1, (1, 2)), (64, 4, 1, (1, 2, 4)), (64, 64, 16, (1, 2, 4, 8, 16))],
)
def test_degrees_are_powers_of_two_that_divide_the_heads(
    heads: int, most: int, wanted: int, found: tuple[int, ...]
) -> None:
    assert degrees(described("8xH100"), replace(LARGE, heads=heads), most, wanted) == found


def test_a_doubling_gains_by_a_tenth_or_more() -> None:
    one = cost(measured("8xH100", {2: FLOORS}), Served(LARGE, BF16, 1, 0), 2)

    def steps(**times: float) -> dict[int, PassCost]:
        return {int(tp[1:]): replace(one, tp=1, work=work, fits=True) for tp, work in times.items()}

    assert stops_gaining(steps(_1=1.0, _2=0.9, _4=0.82), "eager") == (2, 4)
    assert stops_gaining(steps(_1=1.0, _2=0.91, _4=0.5), "eager") == (1, 4)
    assert stops_gaining(steps(_2=1.0, _4=0.8, _12=0.1), "eager") == (4, 12)
