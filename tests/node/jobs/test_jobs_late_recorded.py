"""A transformer trained with DDP, then with FSDP, on two H200: healthy, then its rank 1 is held up each step.

What the rings held every 3 s on 2026-11-27, by `python -m proof.hardware jobrecording --shapes ddp fsdp`.
Rank 1 waits at the end of each step for a tenth of what a step took before. Of DDP the others then wait in
most buckets; of FSDP in the first all_gather of a step, while rank 0 is a little late in most others. By the
number of calls a second DDP then loses 5.4 % of its time and FSDP 6.4 %.
"""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from tests.node.jobs.ringjobs import AROUND
from tests.support import EPOCH
from wirewatch.core.jobs import RingsReading
from wirewatch.core.types import Expect, Ok
from wirewatch.jobs.running import COLLECTOR, judge
from wirewatch.jobs.running.model import JobsReading
from wirewatch.jobs.times import CommunicatorWindow, RunningJob

FILE = Path(__file__).parent / "late-h200x2.jsonl.gz"
EVERY = 3.0
READING = TypeAdapter(RingsReading)
SLOWED = "rank 1 10 % slower"
FSDP_FROM = 25
"""The moment from which on the second job runs."""


@cache
def polls() -> tuple[tuple[int, str, tuple[RunningJob, ...]], ...]:
    """Moment, what went on, and the running jobs, of every poll."""
    return tuple(_polls())


def _polls() -> Iterator[tuple[int, str, tuple[RunningJob, ...]]]:
    memory = COLLECTOR.start
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            mono = 1000.0 + EVERY * line["moment"]
            reading = JobsReading(READING.validate_python(line["answer"]), {}, around=AROUND)
            memory, _ = judge(memory, Ok(reading, EPOCH + mono, mono), COLLECTOR.policy, Expect())
            jobs = memory.facts.jobs if memory.facts else ()
            yield line["moment"], line["note"], jobs


def newest(moment: int) -> tuple[CommunicatorWindow, ...]:
    jobs = next(jobs for at, _, jobs in polls() if at == moment)
    return jobs[0].communicators[0].windows


def test_nobody_is_late_in_either_job_while_it_is_healthy() -> None:
    healthy = [jobs for _, note, jobs in polls() if note == "healthy"]
    assert len(healthy) > 8
    assert all(job.late is None for jobs in healthy for job in jobs)
    assert all(window.late is None for moment in (13, 34) for window in newest(moment))


def test_the_late_rank_of_ddp_is_named_within_half_a_minute_with_about_what_it_costs() -> None:
    late = [(at, job.late) for at, _, jobs in polls() for job in jobs if job.late and at < FSDP_FROM]
    first = next(at for at, note, _ in polls() if note == SLOWED)
    assert {found.rank for _, found in late} == {1}
    assert EVERY * (late[0][0] - first) <= 30
    assert all(0.07 < found.cost < 0.12 for _, found in late)


def test_every_window_of_fsdp_but_one_names_the_rank_that_is_held_up_and_none_the_other() -> None:
    windows = newest(polls()[-1][0])[-5:]
    assert [window.late for window in windows].count(1) == 4
    assert all(window.late in {1, None} for window in windows)
    assert all(0.05 < window.cost < 0.1 for window in windows if window.late == 1)
