"""Names of ranks and GPUs of a job as its owner knows them. Pure."""

from collections.abc import Mapping

from wirewatch.core.types import Absent
from wirewatch.jobs.explain.evidence import JobEvidence
from wirewatch.jobs.explain.words import gpu_name
from wirewatch.jobs.times import CommunicatorTimes, LateRank, RunningJob


def communicators(evidence: JobEvidence) -> tuple[CommunicatorTimes, ...]:
    """Return the job's communicators; none without the tap."""
    return () if isinstance(evidence.job, Absent) else evidence.job.communicators


def job_ranks(job: RunningJob | Absent) -> Mapping[int, int]:
    """Return the job's rank of each process (by pid) here; empty where no communicator spans the job.

    A communicator spans it that has most ranks and nodes, and all processes of the job on this node. Where
    several do and number the ranks in different ways, none is the job's.
    """
    if isinstance(job, Absent):
        return {}
    every, pids = job.communicators, set(job.pids)
    ranks, nodes = (max((getattr(one, of) for one in every), default=0) for of in ("ranks", "nodes"))
    widest = [_by_pid(one) for one in every if (one.ranks, one.nodes) == (ranks, nodes)]
    spanning = [one for one in widest if one.keys() >= pids]
    return spanning[0] if spanning and all(one == spanning[0] for one in spanning) else {}


def _by_pid(comm: CommunicatorTimes) -> dict[int, int]:
    return {one.pid: one.rank for one in comm.here if not isinstance(one.pid, Absent)}


def rank_name(evidence: JobEvidence, rank: int, comm: str, pid: int | Absent | None) -> str:
    """Return `rank 3`, the job's; else the rank of the communicator (by id) with the communicator's name."""
    ranks = job_ranks(evidence.job)
    known = ranks.get(pid) if isinstance(pid, int) else None
    if known is not None:
        return f"rank {known}"
    found = next((one for one in communicators(evidence) if one.id == comm), None)
    return f"rank {rank} of communicator {found.name or found.id if found else comm}"


def late_name(evidence: JobEvidence, late: LateRank) -> str:
    """Return the rank for which others wait, with its GPU and host."""
    comm = next((one.id for one in communicators(evidence) if one.late == late), "")
    rank = rank_name(evidence, late.rank, comm, late.pid)
    return f"{rank} on {gpu_name(late.index, late.gpu, evidence.host)}"


def gpu_rank_name(evidence: JobEvidence, uuid: str) -> str:
    """Return a GPU with its host, and with the job's rank on it where that is known and one."""
    gpu = next((one for one in evidence.gpus if one.uuid == uuid), None)
    name = gpu_name(gpu.index if gpu else "", uuid, evidence.host)
    ranks = job_ranks(evidence.job)
    here = {ranks[pid] for pid in (gpu.pids if gpu else ()) if pid in ranks}
    return f"rank {here.pop()} on {name}" if len(here) == 1 else name
