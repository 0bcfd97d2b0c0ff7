"""Five jobs as `wirewatch explain` prints them: healthy, late, stalling, standing still, not attributed."""

from collections.abc import Mapping
from dataclasses import replace

from tests.node.jobs.explain.drawn import (
    NOW,
    PIDS,
    RANKS,
    evidence,
    gpu,
    gpu_uuid,
    gpus,
    job,
    late,
    ledger,
    spent,
    waiting,
)
from wirewatch.cli.jobs.explained import page
from wirewatch.cli.output import shown
from wirewatch.core.types import Absent, Why
from wirewatch.documents.jobs import explain
from wirewatch.jobs.explain.evidence import EvidenceSource, JobEvidence
from wirewatch.jobs.hangs import StandingJob
from wirewatch.jobs.ledger.spent import GpuLedger, RankBehind

WIDTH = 80
DEFAULT = (EvidenceSource.BURSTS, EvidenceSource.THREADS)
"""Sources that a daemon does not watch by default."""
SENDING = [replace(one, sent=62e9) for one in gpus()]
"""GPUs whose NVLinks carry what the collectives put on a wire."""


def healthy() -> JobEvidence:
    book = ledger(*(spent(n, {0: 0.011} if n else {}, wire=0.02, not_attributed=0.002) for n in range(RANKS)))
    return evidence(job(waiting=0.01), SENDING, DEFAULT, book=book)


def late_rank() -> JobEvidence:
    long = [spent(n, {} if n == 2 else {2: 0.118}, wire=0.03) for n in range(RANKS)]
    short = [spent(n, {} if n == 2 else {2: 0.124}, wire=0.03) for n in range(RANKS)]
    running = job(late=late(cost=0.12), share=0.3, waiting=0.12)
    return evidence(running, SENDING, DEFAULT, book=ledger(*long, short=short))


def stalling() -> JobEvidence:
    """A rank that stops for 4 s every 25 steps, which its timed windows miss."""

    def window(share: float) -> list[GpuLedger]:
        stops = spent(1, idle=share - 0.02, does="sleeps")
        return [stops if n == 1 else spent(n, {1: share}, wire=0.04) for n in range(RANKS)]

    book = ledger(*window(0.55), short=window(0.4))
    return evidence(job(waiting=0.01), SENDING, DEFAULT, book=book)


def standing() -> JobEvidence:
    behind = RankBehind(3, "0xabc", gpu_uuid(3), "3", PIDS + 3, 1, 14.0, "one thread burns a core")
    still = StandingJob(
        {gpu_uuid(n): frozenset({PIDS + n}) for n in range(RANKS)}, NOW - 14,
        "busy for 14 s: rank 3 (GPU 3, process 4714) is late; it computes (100 % of a core): a compile, "
        "a checkpoint?; GPUs 0, 1 and 2 run at 100 % with 126 W, as kernels do that wait; no byte over "
        "NVLink for 14 s", busy=True,
    )  # fmt: skip
    book = replace(waiting(3, 0.05), short=waiting(3, 1.0, idle=1.0).short, behind=(behind,))
    found = [replace(gpu(n), power=126.0, utilisation=0.0 if n == 3 else 1.0) for n in range(RANKS)]
    return replace(evidence(job(windows=(), fresh=False), found, DEFAULT, book=book), standing=still)


def not_attributed() -> JobEvidence:
    """A hang that began before the agent, in a job without the tap: no byte shows that it is one job."""
    book = ledger(spent(0, idle=1.0, does="sleeps"), spent(1, not_attributed=1.0), one_job=False)
    found = [replace(one, utilisation=float(n), power=130.0 - 3 * n) for n, one in enumerate(gpus()[:2])]
    none = Absent(Why.MISSING, "its processes do not carry the tap")
    return evidence(none, found, (*DEFAULT, EvidenceSource.TAP, EvidenceSource.SETTINGS), book=book)


CASES = {
    "healthy": healthy, "late-rank": late_rank, "stalling": stalling, "standing": standing,
    "not-attributed": not_attributed,
}  # fmt: skip


def printed() -> Mapping[str, str]:
    """Return the page of each case in a terminal of 80 columns."""
    made = {name: replace(case(), host="gpu-017") for name, case in CASES.items()}
    return {
        name: shown(line.rstrip() for line in page(explain(one, NOW, "live"), WIDTH)) + "\n"
        for name, one in made.items()
    }
