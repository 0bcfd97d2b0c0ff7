"""Each limit of the straggler policy from both sides, closely: a limit that moves by a tenth is noticed."""

from collections.abc import Callable

import pytest

from tests.node.verdict.straggler.nodes import POLICY, history, probe, watched
from wirewatch.verdict.straggler.signals import Deviation, Loss, Resource, Unit, deviations

UNIT = Unit(Resource.COMPUTE, "GPU-0")
BELOW, ABOVE = 0.98, 1.02
SURE = 1e-3
"""A noise that hides nothing."""


def own(part: float, noise: float = SURE) -> Deviation:
    return Deviation(UNIT, 1.0, own=Loss(part, noise, 1.0))


def peers(part: float, noise: float = SURE) -> Deviation:
    return Deviation(UNIT, 1.0, peers=Loss(part, noise, 1.0))


def test_six_per_cent_of_its_own_history_and_ten_of_its_peers_are_slow() -> None:
    assert own(0.06 * ABOVE).slow(POLICY)
    assert not own(0.06 * BELOW).slow(POLICY)
    assert peers(0.1 * ABOVE).slow(POLICY)
    assert not peers(0.1 * BELOW).slow(POLICY)


@pytest.mark.parametrize("made", [own, peers])
def test_it_must_be_four_standard_deviations_as_well(made: Callable[[float, float], Deviation]) -> None:
    assert made(0.5, 0.5 / (4 * ABOVE)).slow(POLICY)
    assert not made(0.5, 0.5 / (4 * BELOW)).slow(POLICY)


@pytest.mark.parametrize(("limit", "probes"), [(0.25, 3), (0.4375, 2)])
def test_a_quarter_of_its_speed_keeps_jobs_away_and_that_twice_over_sooner(limit: float, probes: int) -> None:
    for part, failed in ((limit * ABOVE, True), (limit * BELOW, False)):
        slow = probe(4, {"compute 2": 1 - part})
        (held,) = watched([slow] * probes, history(4)).held(POLICY)
        assert held.failed is failed


def test_noise_is_never_taken_to_be_less_than_what_healthy_parts_have() -> None:
    least = {
        Resource.COMPUTE: 0.005, Resource.MEMORY: 0.005, Resource.PAIR: 0.005, Resource.SOURCE: 0.005,
        Resource.DESTINATION: 0.005,
    }  # fmt: skip
    assert {resource: POLICY.noise(resource) for resource in least} == least
    assert (POLICY.noise_peers, POLICY.noise_link) == (0.015, 0.01)


def test_two_of_three_probes_believe_and_five_make_a_history() -> None:
    assert (POLICY.confirm, POLICY.among, POLICY.learn) == (2, 3, 5)
    assert history(4, probes=4).of(UNIT, "kind", POLICY.learn) is None
    assert history(4, probes=5).of(UNIT, "kind", POLICY.learn) is not None


def test_a_history_without_noise_makes_no_thousandth_a_hundred_deviations() -> None:
    unit = Unit(Resource.COMPUTE, "GPU-2")
    own = deviations(probe(4, {"compute 2": 0.999}), history(4), POLICY)[unit].own
    assert own is not None
    assert own.score == pytest.approx(0.001 / 0.005)
