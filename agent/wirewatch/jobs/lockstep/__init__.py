"""The GPU of a job in lockstep that never waits: a hint, found without asking the job. Off by default."""

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
    before, now = memory.hint, new.hint
    if before is not None and (now is None or now.uuid != before.uuid):
        log.info("straggler hint over after %d windows (%s): %s", before.windows, new.why, before.text)
    if now is not None and (before is None or now.uuid != before.uuid):
        log.info("straggler hint, no verdict: %s", now.text)
    was, is_ = memory.uneven, new.uneven
    if was is not None and (is_ is None or is_.uuid != was.uuid):
        log.info("uneven work over after %d windows (%s): %s", was.windows, new.why, was.text)
    if is_ is not None and (was is None or is_.uuid != was.uuid):
        log.info("uneven work, no verdict: %s", is_.text)
    if new.reason is WindowReason.NOT_HERE and memory.why != new.why:
        log.info("%s has nothing to watch: %s", NAME, new.why)
    return new, findings


COLLECTOR: Collector[LockstepReading, LockstepMemory, LockstepOptions, LockstepPolicy] = Collector(
    name=NAME,
    about="the GPU of a job in lockstep that never waits; a hint without a finding, off by default",
    lane="nvml",
    options=LockstepOptions(),
    policy=LockstepPolicy(),
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
