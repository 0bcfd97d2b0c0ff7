"""The waiting ledger: on what each GPU of a job spends its time, without a gap and without a guess."""

from wirewatch.core.collector import Collector
from wirewatch.jobs.ledger.fold import computes, facts, judge
from wirewatch.jobs.ledger.metrics import METRICS, SERIES, samples
from wirewatch.jobs.ledger.model import (
    CountedCommunicator,
    GpuActivity,
    LedgerMemory,
    LedgerOptions,
    LedgerPolicy,
    LedgerReading,
    LedgerSurroundings,
    TimedJob,
)
from wirewatch.jobs.ledger.read import read
from wirewatch.jobs.ledger.spent import GpuLedger, JobLedger, LedgerFacts, RankBehind, Spent

__all__ = [
    "COLLECTOR", "NAME", "CountedCommunicator", "GpuActivity", "GpuLedger", "JobLedger", "LedgerFacts",
    "LedgerSurroundings", "RankBehind", "Spent", "TimedJob",
]  # fmt: skip

NAME = "ledger"
COLLECTOR: Collector[LedgerReading, LedgerMemory, LedgerOptions, LedgerPolicy] = Collector(
    name=NAME,
    about="on what each GPU of a job spends its time: computing, waiting and for whom, the wire, idle",
    # Behind the rings, and beside collectors that gate: no verdict waits for a process of a job.
    lane="jobs",
    options=LedgerOptions(),
    policy=LedgerPolicy(),
    gates=False,
    metrics=METRICS,
    start=LedgerMemory(),
    read=read,
    samples=samples,
    judge=judge,
    series=SERIES,
    applicable=computes,
    facts=facts,
)
