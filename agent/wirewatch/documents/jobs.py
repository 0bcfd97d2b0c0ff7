"""The documents of running jobs: all of them with what is known and what it means, and the answer for one."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch.core.collector import NodeState
from wirewatch.jobs.explain.evidence import JobAnswer, JobEvidence
from wirewatch.jobs.explain.gather import jobs_of
from wirewatch.jobs.explain.walls import decide


@dataclass(frozen=True, slots=True)
class ExplainedJob:
    """A running job: which wall it hits, and all that is known of it."""

    answer: JobAnswer
    evidence: JobEvidence


@dataclass(frozen=True, slots=True)
class JobsDocument:
    """The running jobs of this node; `source` is live, replay or synthetic, `at` Unix seconds."""

    schema: Literal["wirewatch.jobs/1"]
    at: float
    source: str
    jobs: list[ExplainedJob]


@dataclass(frozen=True, slots=True)
class ExplainDocument:
    """The wall that one job hits: `sentence` is the first line of the page; the rest as in JobsDocument."""

    schema: Literal["wirewatch.explain/1"]
    at: float
    source: str
    name: str
    sentence: str
    answer: JobAnswer
    evidence: JobEvidence


JOBS = TypeAdapter(JobsDocument)
EXPLAIN = TypeAdapter(ExplainDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.jobs.1": JOBS, "wirewatch.explain.1": EXPLAIN}


def jobs(state: NodeState, at: float, source: str) -> JobsDocument:
    """The document of all running jobs at `at` (Unix seconds); `source` is live, replay or synthetic."""
    found = [ExplainedJob(decide(one), one) for one in jobs_of(state, at)]
    return JobsDocument("wirewatch.jobs/1", at, source, found)


def explain(evidence: JobEvidence, at: float, source: str) -> ExplainDocument:
    """The document of one job, decided again on this evidence."""
    answer = decide(evidence)
    return ExplainDocument(
        "wirewatch.explain/1", at, source, evidence.name, answer.sentence, answer, evidence
    )
