"""What a sweep says of settings: more than the spread, where it decides, and slower nowhere that counts."""

from dataclasses import replace
from random import Random

import pytest

from tests.lab.advice.settings import KIB, MIB, swept
from tests.lab.study.drawn import Noise, study
from tests.rows import each
from wirewatch_lab.advice.settings.measured import (
    JobPurpose,
    Judged,
    MeasuredSetting,
    measured_settings,
    winner,
)
from wirewatch_lab.cli.advise.nccl_env import measured_words
from wirewatch_lab.study.curve import Configuration, Study
from wirewatch_lab.study.spread import Regime

FEW = Configuration(4, settings=(("NCCL_MAX_NCHANNELS", "4"),))
MANY = Configuration(4, settings=(("NCCL_MIN_NCHANNELS", "32"),))
TREE, RING = Configuration(4, "Tree"), Configuration(4, "Ring")


def test_a_setting_is_held_against_nccls_own_choice_in_each_regime() -> None:
    found = measured_settings([swept((FEW, {0: 0.0, 64 * MIB: 2.4}))])
    assert [(one.name, one.value, one.regime, one.verdict) for one in found] == [
        ("NCCL_MAX_NCHANNELS", "4", Regime.LATENCY, "same"),
        ("NCCL_MAX_NCHANNELS", "4", Regime.MIDDLE, "same"),
        ("NCCL_MAX_NCHANNELS", "4", Regime.BANDWIDTH, "slower"),
    ]
    assert found[2].speed == pytest.approx(1 / 3.4, rel=0.01)
    assert (found[2].at_bytes, found[0].at_bytes) == (256 * MIB, 8)
    assert found[2].with_seconds == pytest.approx(3.4 * found[2].without_seconds, rel=0.02)


def test_one_repeat_judges_nothing_and_wins_nothing() -> None:
    found = measured_settings([swept((FEW, {0: -0.5}), repeats=1)])
    assert {one.verdict for one in found} == {"not judged"}
    assert winner(found, JobPurpose.INFERENCE) is None


@pytest.mark.parametrize(
    ("purpose", "value"), [(JobPurpose.INFERENCE, "allreduce:Tree"), (JobPurpose.TRAINING, "32")]
)
def test_each_purpose_has_the_winner_of_its_sizes(purpose: JobPurpose, value: str) -> None:
    found = measured_settings([swept((TREE, {0: -0.2, 64 * MIB: 0.4}), (MANY, {0: 0.0, 64 * MIB: -0.1}))])
    best = winner(found, purpose)
    assert best is not None
    assert best.value == value


def test_what_is_slower_at_heeded_sizes_wins_nothing() -> None:
    found = measured_settings([swept((TREE, {0: -0.2, 256 * KIB: 0.1}))])
    assert winner(found, JobPurpose.INFERENCE) is None


def test_a_gain_that_is_no_gain_to_speak_of_wins_nothing() -> None:
    found = measured_settings([swept((MANY, {0: -0.01}), noise=0.0001)])
    assert [one.verdict for one in found] == ["faster"] * 3
    assert winner(found, JobPurpose.TRAINING) is None


def test_lists_of_several_collectives_go_together() -> None:
    studies = [swept((RING, {0: -0.2})), swept((RING, {0: -0.1}), op="all_gather")]
    best = winner(measured_settings(studies), JobPurpose.TRAINING)
    assert best is not None
    assert (best.name, best.value) == ("NCCL_ALGO", "allgather:Ring;allreduce:Ring")


def test_two_settings_at_once_say_nothing_of_one() -> None:
    both = Configuration(4, "Tree", settings=(("NCCL_MAX_NCHANNELS", "4"),))
    assert measured_settings([swept((both, {0: -0.3}), (Configuration(4, "Ring", "LL"), {0: -0.3}))]) == ()


def test_the_most_ranks_count() -> None:
    study = swept(
        (FEW, {0: -0.3}), (Configuration(2), {}), (Configuration(2, settings=FEW.settings), {0: 0.3})
    )
    assert {one.ranks for one in measured_settings([study])} == {4}


def test_settings_around_a_sweep_are_reported() -> None:
    (found, *_) = measured_settings([swept((FEW, {}), settings="NCCL_NVLS_ENABLE=0")])
    assert found.around == "NCCL_NVLS_ENABLE=0"


def test_a_node_beside_itself_has_no_winner() -> None:
    """Settings that do nothing differ by noise alone, which is of no size that counts."""
    variants: list[tuple[Configuration, dict[int, float]]] = [
        (Configuration(4, settings=(("NCCL_BUFFSIZE", str(n)),)), {}) for n in range(8)
    ]
    for seed in range(12):
        found = measured_settings([swept(*variants, noise=0.02, seed=seed)])
        assert {one.verdict for one in found} == {"same"}
        assert winner(found, JobPurpose.INFERENCE) is None
        assert winner(found, JobPurpose.TRAINING) is None


def test_what_is_not_told_from_noise_has_less_than_noise_may_be() -> None:
    """One was `-13.4%: no more than the spread (8.5%)`."""
    random = Random(7)  # noqa: S311 - noise
    drawn = study(random, Noise(0.05), 1).curves[0]
    other = study(random, Noise(0.05), 1, shift=lambda _curve, _size: 0.02).curves[0]
    own = replace(drawn, configuration=Configuration(4))
    ring = replace(other, configuration=Configuration(4, "Ring"))
    found = measured_settings([Study(0.0, "drawn", {}, [own, ring])])
    same = [one for one in found if one.verdict == "same"]
    assert same
    for one in same:
        assert one.noise is not None
        assert abs(1 / one.speed - 1) < one.noise
        assert measured_words(one).endswith(f": may be noise, of which there may be {one.noise:.1%}")


def one(
    regime: Regime, verdict: Judged, speed: float, name: str = "NCCL_X", value: str = "1"
) -> MeasuredSetting:
    return MeasuredSetting(
        name, value, "all_reduce", 4, "eager", registered=False, regime=regime, first_bytes=8, last_bytes=8,
        speed=speed, spread=(0.01, 0.01), verdict=verdict, at_bytes=8, without_seconds=1.0, with_seconds=1.0,
        source="a sweep",
    )  # fmt: skip


SMALL, MIDDLE, LARGE = Regime.LATENCY, Regime.MIDDLE, Regime.BANDWIDTH


@each(
    ("found", "wins"),
    [
        ((one(SMALL, "faster", 1.05),), True),
        ((one(SMALL, "faster", 1.05), one(MIDDLE, "same", 0.99)), True),
        ((one(SMALL, "faster", 1.05), one(MIDDLE, "slower", 0.9)), False),
        ((one(SMALL, "faster", 1.05), one(MIDDLE, "not judged", 1.0)), False),
        ((one(SMALL, "faster", 1.05), one(LARGE, "slower", 0.5)), True),
        ((one(SMALL, "same", 1.05), one(MIDDLE, "faster", 1.5)), False),
        ((one(MIDDLE, "faster", 1.5),), False),
        ((one(SMALL, "faster", 1.019),), False),
        ((one(SMALL, "faster", 1.021),), True),
        ((one(SMALL, "faster", 1.2), one(SMALL, "same", 0.9)), True),
        ((one(SMALL, "faster", 1.1), one(SMALL, "same", 0.9)), False),
        ((), False),
    ],
)
def test_what_wins_is_faster_where_it_counts_and_slower_nowhere_that_is_heeded(
    found: tuple[MeasuredSetting, ...],
    wins: bool,  # noqa: FBT001
) -> None:
    best = winner(found, JobPurpose.INFERENCE)
    assert (best is not None) is wins
    if best is not None:
        assert (best.name, best.value) == ("NCCL_X", "1")
        assert best.measured == tuple(x for x in found if x.regime is not LARGE)


def test_of_several_the_one_that_saves_most_wins_and_of_lists_the_best_of_each_collective() -> None:
    found = [
        one(SMALL, "faster", 1.1), one(SMALL, "faster", 1.2, "NCCL_ALGO", "allreduce:Tree"),
        one(SMALL, "faster", 1.15, "NCCL_ALGO", "allreduce:Ring"),
        one(SMALL, "faster", 1.05, "NCCL_ALGO", "allgather:Ring"), one(SMALL, "same", 1.3, "NCCL_Y"),
    ]  # fmt: skip
    best = winner(found, JobPurpose.INFERENCE)
    assert best is not None
    assert (best.name, best.value) == ("NCCL_ALGO", "allgather:Ring;allreduce:Tree")
    assert [x.speed for x in best.measured] == [1.05, 1.2]
    plain = winner(found[:1] + found[2:4], JobPurpose.INFERENCE)
    assert plain is not None
    assert plain.value == "allgather:Ring;allreduce:Ring"


@each(
    ("other", "name"),
    [
        (Configuration(4, "Tree"), "NCCL_ALGO=allreduce:Tree"),
        (Configuration(4, protocol="LL"), "NCCL_PROTO=allreduce:LL"),
        (FEW, "NCCL_MAX_NCHANNELS=4"),
        (Configuration(4, "Tree", "LL"), ""),
        (Configuration(4, launch="graph", settings=FEW.settings), ""),
        (Configuration(4, registered=True, settings=FEW.settings), ""),
        (Configuration(2, settings=FEW.settings), ""),
        (Configuration(4, settings=(*FEW.settings, *MANY.settings)), ""),
    ],
)
def test_only_what_differs_in_one_setting_is_held_against_nccls_own_choice(
    other: Configuration, name: str
) -> None:
    found = measured_settings([swept((other, {}))])
    assert {f"{x.name}={x.value}" for x in found} == ({name} if name else set())


def test_what_has_no_name_in_lists_is_measured_by_its_other_settings_alone() -> None:
    assert measured_settings([swept((TREE, {}), op="alltoall")]) == ()
    assert {x.name for x in measured_settings([swept((FEW, {}), op="alltoall")])} == {"NCCL_MAX_NCHANNELS"}
