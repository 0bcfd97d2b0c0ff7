"""Nodes as `wirewatch top` gets them, drawn: eight GPUs, jobs and findings."""

from collections.abc import Sequence
from dataclasses import replace

from tests.node.jobs.explain.drawn import NOW, PIDS, gpu_uuid
from wirewatch.cli.jobs.topprocesses import HostProcess, HostProcesses
from wirewatch.core.words import GIB
from wirewatch.documents.health import Health, NodeFinding
from wirewatch.documents.jobs import ExplainedJob, JobsDocument
from wirewatch.documents.state import CollectorState, FindingsDocument, Series, StateDocument
from wirewatch.documents.status import NodeSnapshot
from wirewatch.jobs.explain.evidence import JobEvidence
from wirewatch.jobs.explain.walls import decide


def collector(name: str, at: float, *samples: Series, success: bool = True) -> CollectorState:
    return CollectorState(
        name, "ok", applicable=True, success=success, error=None, overdue_since=None, last_success=at,
        duration_seconds=0.1, failures=0, findings=[], samples=list(samples),
    )  # fmt: skip


def series(name: str, number: int, value: float, **labels: str) -> Series:
    return Series(f"wirewatch_{name}", {"gpu": str(number), "uuid": gpu_uuid(number), **labels}, value)


def finding(number: int, health: Health = "failed", text: str = "inactive; 17 of 18 links up") -> NodeFinding:
    subject = {"gpu": str(number), "uuid": gpu_uuid(number), "link": "7"}
    return NodeFinding(
        "nvlink.link_down", health, subject, text, "reseat it", NOW, "0123abcd", "live", 1, 0.0, None, None,
        0.0,
    )  # fmt: skip


def snapshot(
    *jobs: JobEvidence,
    at: float = NOW,
    sent: float = 0.0,
    gpus: int = 8,
    findings: Sequence[NodeFinding] = (),
) -> NodeSnapshot:
    """A node; `sent`: bytes that NVLink of GPU n has sent, times n."""
    numbers = range(gpus)
    state = [
        collector("gpu", at, *(s for n in numbers for s in (
            series("gpu_utilization_ratio", n, 1 - n / 100), series("gpu_power_watts", n, 600 + n),
            series("gpu_temperature_celsius", n, 40, sensor="core"),
            series("gpu_temperature_celsius", n, 80, sensor="memory"),
        ))),
        collector("nvlink", at, *(s for n in numbers for s in (
            series("nvlink_transmit_bytes_total", n, sent * n),
            series("nvlink_receive_bytes_total", n, sent * n),
            series("nvlink_links", n, 17, state="active"), series("nvlink_links", n, 1, state="sleep"),
            series("nvlink_links_expected", n, 18),
        ))),
    ]  # fmt: skip
    health = findings[0].health if findings else "ok"
    return NodeSnapshot(
        StateDocument("wirewatch.state/1", at, health, health == "ok", "live", state),
        FindingsDocument("wirewatch.findings/1", at, health, health == "ok", list(findings)),
        JobsDocument("wirewatch.jobs/1", at, "live", [ExplainedJob(decide(one), one) for one in jobs]),
    )


def held(one: JobEvidence) -> JobEvidence:
    """The job, each of whose processes holds 10 GiB more than the one on the GPU before."""
    return replace(one, gpus=tuple(
        replace(gpu, memory=dict.fromkeys(gpu.pids, n * 10 * GIB)) for n, gpu in enumerate(one.gpus)
    ))  # fmt: skip


def people(*numbers: int) -> HostProcesses:
    """What this machine says of processes of the drawn job: of alice, but the second of bob."""
    return HostProcesses({
        PIDS + n: HostProcess(user, f"python train.py --rank {n}", 0.1 * n, 1, 0.0, 0.0)
        for n, user in enumerate(("alice", "bob", "alice", "alice")) if n in numbers
    })  # fmt: skip
