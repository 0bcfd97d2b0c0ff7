"""Real jobs on two H100, recorded: what is said of each phase, as the daemon said when it ran there.

The recording has a job with P2P off, a healthy one, the same with a late rank, healthy again, and with a
rank that is stopped. The daemon that ran beside it is in proof/hardware/2026-11-25-h100-jobs.md.
"""

from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from tests.support import Node
from wirewatch.core.types import Finding
from wirewatch.hw.recording import load_recording
from wirewatch.jobs.explain.evidence import JobAnswer, Wall
from wirewatch.jobs.explain.gather import jobs_of
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.surroundings import with_surroundings
from wirewatch.verdict.node import judge_state

RECORDING = load_recording("h100x2-jobs")
EVERY = 5.0
WATCHED = ("gpu", "hangs", "jobs", "nvlink", "pcie", "topology")
ACCUSED = frozenset(Wall) - {Wall.NOTHING, Wall.NOT_KNOWN}
P2P, HEALTHY, LATE, STOPPED = (
    "a job with NCCL_P2P_DISABLE=1", "a healthy data-parallel job", "the same job, rank 1 10 % slower",
    "the same job, rank 1 stopped by a signal",
)  # fmt: skip


def phase(seconds: float) -> str:
    moments = RECORDING.manifest["moments"]
    return str([one["note"] for one in moments if one["seconds"] <= seconds][-1])


@cache
def said() -> Mapping[str, tuple[list[JobAnswer], list[Finding]]]:
    """Of each phase the answers that accuse something, and the findings, in order."""
    found: dict[str, tuple[list[JobAnswer], list[Finding]]] = {}
    for node in playing():
        answers, findings = found.setdefault(phase(node.clock.seconds), ([], []))
        findings.extend(one.finding for one in judge_state(node.state).verdict.standings)
        decided = (decide(one) for one in jobs_of(node.state, node.clock.now()))
        answers.extend(one for one in decided if one.wall in ACCUSED)
    return found


def playing() -> Iterator[Node]:
    node = Node(RECORDING, only=WATCHED)
    # As the daemon beside the recording had it.
    node.policy("hangs", after=10.0, again=4.0)
    node.collectors["jobs"] = with_surroundings(
        node.collectors["jobs"], lambda: judge_state(node.state), None, {}
    )
    while node.clock.seconds <= RECORDING.times[-1]:
        node.poll(every=0.0)
        yield node
        node.clock.seconds += EVERY


def test_a_healthy_job_and_an_idle_node_are_accused_of_nothing() -> None:
    for quiet in ("no job", HEALTHY):
        assert said()[quiet] == ([], []), quiet


def test_a_slow_wire_is_named_with_what_it_gets() -> None:
    answers, _ = said()[P2P]
    assert {one.wall for one in answers} == {Wall.SLOW_WIRE}
    assert "all_reduce of 256 MiB gets 27.6 GB/s of 304 GB/s (9.0 %)" in answers[-1].sentence


def test_a_setting_that_lowers_what_is_expected_too_is_no_cause() -> None:
    """NCCL_NVLS_ENABLE=0 stands in its nccl.conf; a ring of two GPUs is expected with it as without."""
    answers, _ = said()[P2P]
    assert all("NVLS" not in one.sentence for one in answers)


def test_the_late_rank_is_named() -> None:
    answers, findings = said()[LATE]
    assert {one.wall for one in answers} == {Wall.LATE_RANK}
    assert "rank 1 on GPU 1" in answers[-1].sentence
    assert findings == []


def test_the_stopped_rank_is_named_with_its_process() -> None:
    answers, findings = said()[STOPPED]
    assert answers[-1].wall is Wall.HANG
    assert {one.rule for one in findings} == {"hangs.stopped"}
    assert findings[-1].subject.gpu == "1"
    assert "process 943) is stopped by a signal" in findings[-1].evidence


@pytest.mark.parametrize("note", [P2P, HEALTHY, LATE, STOPPED])
def test_each_phase_is_in_the_recording(note: str) -> None:
    assert note in said()
