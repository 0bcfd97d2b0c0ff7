"""A hint makes a probe due, and nothing but that."""

import pytest

from tests.node.probe.idle import Idle
from tests.support import EPOCH
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.bursts import BurstFacts, BurstHint
from wirewatch.jobs.lockstep import Hint, HintTime, LockstepFacts
from wirewatch.jobs.surroundings import newest_hint
from wirewatch.jobs.times import JobHint, JobsFacts
from wirewatch.probe.collector import due_after_hint

NOTHING = LockstepFacts(None, None)


class Jobs:
    """The published state, as far as the collectors of jobs have something in it."""

    def __init__(self) -> None:
        self.state = NodeState({})

    def show(self, facts: object) -> None:
        """One of the collectors has read, and knows this."""
        self.state = self.state.with_component(Component(type(facts).__name__, None, facts=facts))

    def hinted(self) -> float | None:
        return newest_hint(self.state)


def lockstep(mono: float) -> LockstepFacts:
    none = Absent(Why.MISSING, "too few windows before")
    moment = HintTime(EPOCH + mono, mono)
    return LockstepFacts(
        None, Hint("1", "GPU-1", EPOCH, moment, "GPU 1 never waits", 0.93, 0.85, 0.09, none, 3)
    )


def bursts(mono: float) -> BurstFacts:
    hint = BurstHint("1", "GPU-1", EPOCH, EPOCH + mono, mono, 2e11, 3e11, "GPU 1: NVLink carries 200 GB/s")
    return BurstFacts((), (), hint)


def times(mono: float) -> JobsFacts:
    hint = JobHint("wire", "slurm:4711", "", EPOCH, EPOCH + mono, mono, "all_reduce gives 25 GB/s")
    return JobsFacts(EPOCH, mono, last_hint=hint)


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


def probed_node(jobs: Jobs) -> Idle:
    """A node that was probed once, just now."""
    node = Idle(2)
    node.collector = due_after_hint(node.collector, jobs.hinted)
    node.probe()
    return node


def probes(node: Idle, seconds: float) -> int:
    """Probes so far, after so many seconds more."""
    node.poll(int(seconds / 30.0), every=30.0)
    return len(node.probes.ordered)


def test_without_a_hint_the_clock_decides(jobs: Jobs) -> None:
    node = probed_node(jobs)
    jobs.show(NOTHING)
    assert probes(node, 300.0) == 1
    assert probes(node, 360.0) == 2


def test_a_hint_brings_the_next_probe_forward_once(jobs: Jobs) -> None:
    node = probed_node(jobs)
    assert probes(node, 60.0) == 1
    jobs.show(lockstep(node.clock.mono() - 10.0))
    assert probes(node, 60.0) == 2
    assert probes(node, 300.0) == 2


def test_a_hint_from_before_the_last_probe_is_old(jobs: Jobs) -> None:
    node = probed_node(jobs)
    jobs.show(lockstep(node.clock.mono() - 600.0))
    assert probes(node, 300.0) == 1


def test_a_plateau_that_fell_or_a_late_gpu_of_a_job_with_the_tap_brings_it_forward_too(jobs: Jobs) -> None:
    node = probed_node(jobs)
    for count, facts in enumerate((bursts, times), 1):
        assert probes(node, 60.0) == count
        jobs.show(facts(node.clock.mono() - 10.0))
        assert probes(node, 60.0) == count + 1


def test_the_newest_hint_of_all_collectors_counts(jobs: Jobs) -> None:
    assert jobs.hinted() is None
    for facts in (NOTHING, BurstFacts((), (), None), JobsFacts(EPOCH, 1.0)):
        jobs.show(facts)
        assert jobs.hinted() is None
    jobs.show(times(20.0))
    jobs.show(lockstep(30.0))
    jobs.show(bursts(10.0))
    assert jobs.hinted() == 30.0
    jobs.show(bursts(40.0))
    assert jobs.hinted() == 40.0


def test_it_waits_until_the_job_is_over_and_the_gpus_are_left_alone(jobs: Jobs) -> None:
    node = probed_node(jobs)
    node.busy(0, 4711)
    node.busy(1, 4712)
    assert probes(node, 60.0) == 1
    jobs.show(lockstep(node.clock.mono() - 10.0))
    assert probes(node, 60.0) == 1
    assert node.reason() == "busy"
    node.busy(0)
    node.busy(1)
    assert probes(node, 90.0) == 1
    assert node.reason() == "settling"
    assert probes(node, 90.0) == 2
