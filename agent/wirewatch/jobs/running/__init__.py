"""Running jobs, as the tap in them times them: the wire, waiting apart from it, and who is waited for."""

import logging
from dataclasses import replace

from wirewatch.core.collector import Collector, Observed
from wirewatch.core.types import Absent, Expect, Finding, Ok
from wirewatch.jobs.running.expected import algorithm_words
from wirewatch.jobs.running.facts import facts_of
from wirewatch.jobs.running.judge import RULES, findings, judge_rings
from wirewatch.jobs.running.metrics import METRICS, samples
from wirewatch.jobs.running.model import (
    JobsMemory,
    JobsOptions,
    JobsPolicy,
    JobsReading,
    JobSurroundings,
    NvlinkSent,
    Witness,
)
from wirewatch.jobs.running.read import computing, read

__all__ = ["COLLECTOR", "NAME", "JobSurroundings", "NvlinkSent", "Witness", "algorithm_words", "computing"]

log = logging.getLogger(__name__)

NAME = "jobs"


def judge(
    memory: JobsMemory, ok: Ok[JobsReading], policy: JobsPolicy, _expect: Expect
) -> tuple[JobsMemory, tuple[Finding, ...]]:
    """Judge a reading of the rings; pure but for a line in the log when a hint begins or ends."""
    judged = judge_rings(memory, ok, policy)
    facts = facts_of(judged, ok, policy)
    known, now = (
        {(hint.kind, hint.job, hint.gpu): hint for hint in some} for some in (memory.hints, facts.hints)
    )
    for hint in [one for key, one in now.items() if key not in known]:
        log.info("hint of job %s, no verdict: %s", hint.job, hint.text)
    for hint in [one for key, one in known.items() if key not in now]:
        log.info("hint of job %s is over: %s", hint.job, hint.text)
    new = replace(judged.memory, facts=facts, hints=facts.hints, last_hint=facts.last_hint)
    return new, findings(judged)


COLLECTOR: Collector[JobsReading, JobsMemory, JobsOptions, JobsPolicy] = Collector(
    name=NAME,
    about="collectives of running jobs that carry the tap: wire, waiting, late ranks",
    lane="jobs",
    options=JobsOptions(),
    policy=JobsPolicy(),
    gates=False,
    metrics=METRICS,
    start=JobsMemory(),
    read=read,
    samples=samples,
    judge=judge,
    rules=RULES,
    series=264,
    applicable=lambda reading: not isinstance(reading.rings, Absent) and bool(reading.rings.rings),
    facts=lambda _reading, memory: memory.facts,
    observed=lambda _reading, _memory: Observed(frozenset(), frozenset()),
)
