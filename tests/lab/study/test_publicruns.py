"""Healthy and faulty public runs between nodes: what is expected of them, and what is said."""

from tests.lab.study.publicruns import RUNS, PublicRun
from tests.rows import each
from wirewatch.core.types import Health

HEALTHY = [run for run in RUNS if not run.fault]
FAULTY = [run for run in RUNS if run.fault]


def test_what_is_expected_is_within_its_bound_nine_times_of_ten() -> None:
    """A run of a network that is not known counts as a miss; no other run may be one."""
    assert len(HEALTHY) > 20
    assert sum(run.within for run in HEALTHY) >= 0.9 * len(HEALTHY)
    assert {run.answer.health for run in HEALTHY if not run.within} <= {Health.UNKNOWN}


@each("run", HEALTHY, ids=[run.name for run in HEALTHY])
def test_no_healthy_run_is_slow_and_half_of_it_is_never_well(run: PublicRun) -> None:
    assert run.answer.health in {Health.OK, Health.UNKNOWN}
    assert not run.answer.low
    assert run.at(0.49).health is not Health.OK


@each("run", FAULTY, ids=[run.name for run in FAULTY])
def test_a_run_with_a_fault_has_failed(run: PublicRun) -> None:
    assert run.answer.health is Health.FAILED


def test_each_run_has_a_name_and_a_source_of_its_own() -> None:
    assert len({run.name for run in RUNS}) == len(RUNS)
    assert all(run.source.startswith("https://") for run in RUNS)
