"""What a sweep says of settings: more than the spread, where it decides, and slower nowhere that counts."""

from dataclasses import replace
from random import Random

import pytest

from tests.lab.advice.settings import KIB, MIB, swept
from tests.lab.study.drawn import Noise, study
from wirewatch_lab.advice.settings.measured import JobPurpose, measured_settings, winner
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
