"""A real hang on two H100, replayed with the default policy: when it is said to stand still, and found.

Moments of the recording are 3 s apart. The last of the healthy job is at most 3 s before the hang began.
"""

from collections.abc import Mapping
from functools import cache

from tests.support import Node
from wirewatch.hw.recording import load_recording
from wirewatch.jobs.hangs.model import HangFacts

RECORDING = load_recording("h100x2-jobs")
STOPPED = "the same job, rank 1 stopped by a signal"
MOMENTS = RECORDING.manifest["moments"]
BEGAN = min(one["seconds"] for one in MOMENTS if one["note"] == STOPPED)
"""Seconds of the recording: by then it hangs."""


@cache
def said(offset: float) -> Mapping[float, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Standing jobs and findings at each poll, the first of which comes so late."""
    node, found = Node(RECORDING, only=("hangs",)), {}
    node.clock.seconds += offset
    while node.clock.seconds <= RECORDING.times[-1]:
        node.poll(every=0.0)
        one = node.state.components["hangs"]
        assert isinstance(one.facts, HangFacts)
        texts = tuple(job.text for job in one.facts.standing)
        found[node.clock.seconds] = (texts, tuple(finding.evidence for finding in one.findings))
        node.clock.seconds += 2.0
    return found


def test_before_it_hangs_nothing_is_said() -> None:
    assert all(texts == findings == () for at, (texts, findings) in said(0.0).items() if at < BEGAN)


def test_it_is_found_within_thirty_seconds_whenever_the_agent_polls() -> None:
    for offset in (0.0, 0.5, 1.0, 1.5):
        first = min(at for at, (_, findings) in said(offset).items() if findings)
        assert first - BEGAN + 3.0 <= 30.0
        assert first - BEGAN >= 15.0
        assert "rank 1 (GPU 1, process 943) is stopped by a signal" in said(offset)[first][1][0]


def test_it_is_said_to_stand_still_before_it_is_found() -> None:
    standing = {at: texts for at, (texts, _) in said(0.0).items() if texts}
    assert 10.0 <= min(standing) - BEGAN <= 14.0
    (text,) = standing[min(standing)]
    assert text == (
        "GPU 0 runs at 100 % with 140 W, as kernels do that wait; GPU 1 runs nothing; "
        "no byte over NVLink for 8 s"
    )
    assert all(not findings for at, (_, findings) in said(0.0).items() if at in standing)


def test_bytes_are_read_seldom_while_the_job_works_and_often_only_once_it_looks_stuck() -> None:
    """Of the polls in 145 s before the hang, and in the 33 s after it."""
    node, read = Node(RECORDING, only=("hangs",)), list[float]()
    while node.clock.seconds <= RECORDING.times[-1]:
        node.asked.clear()
        node.poll(every=0.0)
        if ("nvml", "gpu0/Field(138,all)") in node.asked:
            read.append(node.clock.seconds)
        node.clock.seconds += 2.0
    assert 3 <= sum(at < BEGAN for at in read) <= 8
    assert 4 <= sum(at >= BEGAN for at in read) <= 8
