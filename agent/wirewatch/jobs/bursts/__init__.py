"""How fast a running job's collectives are, from short looks at one GPU's NVLink counters. Off by default."""

import logging

from wirewatch.core.collector import Collector
from wirewatch.core.types import Expect, Finding, Ok
from wirewatch.jobs.bursts.estimate import LONG_ENOUGH, BurstFigures
from wirewatch.jobs.bursts.judge import judge, watches
from wirewatch.jobs.bursts.model import (
    METRICS,
    BurstFacts,
    BurstHint,
    BurstLook,
    BurstMemory,
    BurstOptions,
    BurstPolicy,
    BurstReading,
    facts,
    samples,
)
from wirewatch.jobs.bursts.read import read

__all__ = ["COLLECTOR", "LONG_ENOUGH", "NAME", "BurstFacts", "BurstFigures", "BurstHint", "BurstLook"]

log = logging.getLogger(__name__)

NAME = "bursts"


def judge_and_log(
    memory: BurstMemory, ok: Ok[BurstReading], policy: BurstPolicy, expect: Expect
) -> tuple[BurstMemory, tuple[Finding, ...]]:
    """`judge`, with a line in the log when a hint begins or ends: no finding would be logged for it."""
    new, findings = judge(memory, ok, policy, expect)
    log.debug("%s", new.why)
    before, now = ({hint.since: hint for job in one.jobs if (hint := job.hint)} for one in (memory, new))
    for hint in [one for since, one in before.items() if since not in now]:
        log.info("burst hint over: %s", hint.text)
    for hint in [one for since, one in now.items() if since not in before]:
        log.info("burst hint, no verdict: %s", hint.text)
    return new, findings


COLLECTOR: Collector[BurstReading, BurstMemory, BurstOptions, BurstPolicy] = Collector(
    name=NAME,
    about="how fast a running job's collectives are, by one GPU's NVLink counters; off by default",
    lane="nvml",
    options=BurstOptions(),
    policy=BurstPolicy(),
    gates=False,
    metrics=METRICS,
    start=BurstMemory(),
    read=read,
    samples=samples,
    judge=judge_and_log,
    series=48,
    applicable=watches,
    # GPM's samples make NVLink counters stand still (ADR 0013).
    apart=("lockstep",),
    facts=facts,
)
