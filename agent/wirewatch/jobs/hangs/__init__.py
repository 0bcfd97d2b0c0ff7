"""Jobs that hang: found by what their GPUs show, explained by NCCL's RAS, asked on suspicion alone."""

import logging

from wirewatch.core.collector import Collector, Lasting
from wirewatch.core.types import Expect, Finding, Ok
from wirewatch.jobs.hangs.judge import RULES, facts, judge, watches
from wirewatch.jobs.hangs.model import (
    METRICS,
    HangFacts,
    HangingJob,
    HangKind,
    HangMemory,
    HangOptions,
    HangPolicy,
    HangReading,
    KeptHangs,
    PastHang,
    StandingJob,
    keep,
    recall,
    samples,
)
from wirewatch.jobs.hangs.read import read

__all__ = ["COLLECTOR", "HangFacts", "HangKind", "HangingJob", "PastHang", "StandingJob"]

log = logging.getLogger(__name__)


def judge_and_log(
    memory: HangMemory, ok: Ok[HangReading], policy: HangPolicy, expect: Expect
) -> tuple[HangMemory, tuple[Finding, ...]]:
    """`judge`, with a line in the log for what a look has shown and no finding says."""
    new, findings = judge(memory, ok, policy, expect)
    before = {owner: job.diagnosis for owner, job in memory.jobs.items()}
    for owner, job in new.jobs.items():
        said = job.diagnosis
        if said is not None and said.kind is None and before.get(owner) != said:
            log.info("%s looks stuck, and no hang is found: %s", job.looks[-1].about, said.text)
    return new, findings


COLLECTOR: Collector[HangReading, HangMemory, HangOptions, HangPolicy] = Collector(
    name="hangs",
    about="jobs that hang, by kind and culprit; NCCL's RAS is asked on suspicion alone",
    # Of its own: RAS takes seconds where a rank does not answer, and no NVML poll may wait for that.
    lane="hangs",
    options=HangOptions(),
    policy=HangPolicy(),
    gates=False,
    metrics=METRICS,
    rules=RULES,
    series=12,
    start=HangMemory(),
    read=read,
    samples=samples,
    judge=judge_and_log,
    applicable=watches,
    facts=facts,
    lasting=Lasting(KeptHangs, keep, recall),
)
