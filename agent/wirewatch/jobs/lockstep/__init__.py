"""The GPU of a job in lockstep that never waits: a hint, found without asking the job."""

import logging

from wirewatch.core.collector import Collector
from wirewatch.core.types import Expect, Finding, Ok
from wirewatch.jobs.lockstep.judge import judge, watches
from wirewatch.jobs.lockstep.model import (
    METRICS,
    GpuWindow,
    Hint,
    HintTime,
    LockstepFacts,
    LockstepMemory,
    LockstepOptions,
    LockstepPolicy,
    LockstepReading,
    UnevenWork,
    WindowReason,
    facts,
    samples,
)
from wirewatch.jobs.lockstep.read import read

__all__ = ["COLLECTOR", "NAME", "GpuWindow", "Hint", "HintTime", "LockstepFacts", "UnevenWork"]

log = logging.getLogger(__name__)

NAME = "lockstep"


def judge_and_log(
    memory: LockstepMemory, ok: Ok[LockstepReading], policy: LockstepPolicy, expect: Expect
) -> tuple[LockstepMemory, tuple[Finding, ...]]:
    """`judge`, with a line in the log when a hint begins or ends: no finding would be logged for it."""
    new, findings = judge(memory, ok, policy, expect)
    log.debug("%s", new.why)
    for what, was, now in (
        ("straggler hint", memory.hint, new.hint),
        ("uneven work", memory.uneven, new.uneven),
    ):
        if was and now and was.uuid == now.uuid:
            continue
        if was:
            log.info("%s over after %d windows (%s): %s", what, was.windows, new.why, was.text)
        if now:
            log.info("%s, no verdict: %s", what, now.text)
    if new.reason is WindowReason.NOT_HERE and memory.why != new.why:
        log.info("%s has nothing to watch: %s", NAME, new.why)
    return new, findings


COLLECTOR: Collector[LockstepReading, LockstepMemory, LockstepOptions, LockstepPolicy] = Collector(
    name=NAME,
    about="the GPU of a job in lockstep that never waits; a hint without a finding",
    lane="nvml",
    options=LockstepOptions(),
    policy=LockstepPolicy(),
    gates=False,
    metrics=METRICS,
    start=LockstepMemory(),
    read=read,
    samples=samples,
    judge=judge_and_log,
    series=24,
    applicable=watches,
    apart=("nvlink", "probe"),
    facts=facts,
)
