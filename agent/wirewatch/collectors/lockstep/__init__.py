"""The GPU of a job in lockstep that never waits: a hint without a word to the job. Off by default."""

import logging

from wirewatch.collectors.lockstep.judge import judge, watches
from wirewatch.collectors.lockstep.policy import LockstepPolicy
from wirewatch.collectors.lockstep.reading import read
from wirewatch.collectors.lockstep.samples import METRICS, samples
from wirewatch.collectors.lockstep.values import (
    Hint,
    LockstepOptions,
    Memory,
    Moment,
    Reading,
    Reason,
    hint_of,
    last_hint_of,
)
from wirewatch.core.collector import Collector
from wirewatch.core.types import Expect, Finding, Ok

__all__ = ["COLLECTOR", "NAME", "Hint", "Moment", "hint_of", "last_hint_of"]

log = logging.getLogger(__name__)

NAME = "lockstep"


def judge_and_tell(
    memory: Memory, ok: Ok[Reading], policy: LockstepPolicy, expect: Expect
) -> tuple[Memory, tuple[Finding, ...]]:
    """`judge`, and a line in the log when a hint begins or ends: it has no finding that would be told."""
    new, findings = judge(memory, ok, policy, expect)
    log.debug("%s", new.why)
    before, now = memory.hint, new.hint
    if before is not None and (now is None or now.uuid != before.uuid):
        log.info("straggler hint over after %d windows (%s): %s", before.windows, new.why, before.text)
    if now is not None and (before is None or now.uuid != before.uuid):
        log.info("straggler hint, no verdict: %s", now.text)
    if new.reason is Reason.NOT_HERE and memory.why != new.why:
        log.info("%s has nothing to watch: %s", NAME, new.why)
    return new, findings


COLLECTOR: Collector[Reading, Memory, LockstepOptions, LockstepPolicy] = Collector(
    name=NAME,
    about="the GPU of a job in lockstep that never waits; a hint without a finding, off by default",
    lane="nvml",
    options=LockstepOptions(),
    policy=LockstepPolicy(),
    metrics=METRICS,
    start=Memory(),
    read=read,
    samples=samples,
    judge=judge_and_tell,
    applicable=watches,
    apart=("nvlink", "probe"),
)
