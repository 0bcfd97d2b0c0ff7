"""A hint makes a probe due, and nothing but that."""

from dataclasses import replace

import pytest

from tests.probe.idle import Idle
from tests.support import EPOCH
from wirewatch.collectors.bursts import COLLECTOR as BURSTS
from wirewatch.collectors.bursts import BurstFacts, BurstHint
from wirewatch.collectors.jobs import COLLECTOR as JOBS
from wirewatch.collectors.lockstep import COLLECTOR, Hint, HintTime, LockstepFacts
from wirewatch.core.jobtimes import JobHint, JobsFacts
from wirewatch.core.types import Absent, Why
from wirewatch.probe.component import Hints

NOTHING = LockstepFacts(None, None)


def hinted(mono: float) -> LockstepFacts:
    none = Absent(Why.MISSING, "too few windows before")
    moment = HintTime(EPOCH + mono, mono)
    hint = Hint("1", "GPU-1", EPOCH, moment, "GPU 1 never waits", 0.93, 0.85, 0.09, none, 3)
    return LockstepFacts(None, hint)


def report_facts(hints: Hints, facts: LockstepFacts) -> None:
    """The collector has read, and knows this."""
    quiet = replace(COLLECTOR, facts=lambda _reading, _memory: facts)
    offered = hints.listen_to(quiet).facts
    assert offered is not None
    offered((), COLLECTOR.start)


@pytest.fixture
def hints() -> Hints:
    return Hints()


def probed_node(hints: Hints) -> Idle:
    """A node that was probed once, just now."""
    node = Idle(2)
    node.collector = hints.due_after_hint(node.collector)
    node.probe()
    return node


def probes(node: Idle, seconds: float) -> int:
    """Probes so far, after so many seconds more."""
    node.poll(int(seconds / 30.0), every=30.0)
    return len(node.probes.ordered)


def test_without_a_hint_the_clock_decides(hints: Hints) -> None:
    node = probed_node(hints)
    report_facts(hints, NOTHING)
    assert probes(node, 300.0) == 1
    assert probes(node, 360.0) == 2


def test_a_hint_brings_the_next_probe_forward_once(hints: Hints) -> None:
    node = probed_node(hints)
    assert probes(node, 60.0) == 1
    report_facts(hints, hinted(node.clock.mono() - 10.0))
    assert probes(node, 60.0) == 2
    assert probes(node, 300.0) == 2


def test_a_hint_from_before_the_last_probe_is_old(hints: Hints) -> None:
    node = probed_node(hints)
    report_facts(hints, hinted(node.clock.mono() - 600.0))
    assert probes(node, 300.0) == 1


def test_a_plateau_that_fell_brings_it_forward_too_and_the_newest_hint_of_both_counts(hints: Hints) -> None:
    node = probed_node(hints)
    assert probes(node, 60.0) == 1
    mono = node.clock.mono() - 10.0
    hint = BurstHint("1", "GPU-1", EPOCH, EPOCH + mono, mono, 2e11, 3e11, "GPU 1: NVLink carries 200 GB/s")
    quiet = replace(BURSTS, facts=lambda _reading, _memory: BurstFacts((), (), hint))
    offered = hints.listen_to(quiet).facts
    assert offered is not None
    offered((), BURSTS.start)
    report_facts(hints, hinted(mono - 600.0))
    assert probes(node, 60.0) == 2


def test_a_late_gpu_or_a_slow_wire_of_a_job_with_the_tap_brings_it_forward(hints: Hints) -> None:
    node = probed_node(hints)
    assert probes(node, 60.0) == 1
    mono = node.clock.mono() - 10.0
    hint = JobHint("wire", "slurm:4711", "", EPOCH, EPOCH + mono, mono, "all_reduce gives 25 GB/s")
    quiet = replace(JOBS, facts=lambda _reading, _memory: JobsFacts(EPOCH, mono, last_hint=hint))
    offered = hints.listen_to(quiet).facts
    assert offered is not None
    offered((), JOBS.start)
    assert probes(node, 60.0) == 2
    assert probes(node, 300.0) == 2


def test_it_waits_until_the_job_is_over_and_the_gpus_are_left_alone(hints: Hints) -> None:
    node = probed_node(hints)
    node.busy(0, 4711)
    node.busy(1, 4712)
    assert probes(node, 60.0) == 1
    report_facts(hints, hinted(node.clock.mono() - 10.0))
    assert probes(node, 60.0) == 1
    assert node.reason() == "busy"
    node.busy(0)
    node.busy(1)
    assert probes(node, 90.0) == 1
    assert node.reason() == "settling"
    assert probes(node, 90.0) == 2


def test_other_collectors_are_left_as_they_are(hints: Hints) -> None:
    node = Idle(2)
    assert hints.listen_to(node.collector) is node.collector
