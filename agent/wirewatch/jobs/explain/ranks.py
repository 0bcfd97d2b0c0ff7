"""Names of ranks and GPUs of a job as its owner knows them. Pure."""

from collections.abc import Sequence

from wirewatch.core.types import Absent, value_or
from wirewatch.jobs.explain.evidence import JobEvidence
from wirewatch.jobs.explain.words import gpu_name
from wirewatch.jobs.times import CommunicatorTimes, JobRank, LateRank, RunningJob


def communicators(evidence: JobEvidence) -> tuple[CommunicatorTimes, ...]:
    """Return the job's communicators; none without the tap."""
    return () if isinstance(evidence.job, Absent) else evidence.job.communicators


def job_ranks(job: RunningJob | Absent) -> Sequence[JobRank]:
    """Return the ranks here of the communicator that spans the job; none where that is not known.

    It has most ranks and nodes, and all processes of the job on this node. Where several do and number the
    ranks in different ways, none is the job's.
    """
    if isinstance(job, Absent):
        return ()
    every = job.communicators
    ranks, nodes = (max((getattr(one, of) for one in every), default=0) for of in ("ranks", "nodes"))
    processes = {_process(one) for comm in every for one in comm.here}
    widest = [one.here for one in every if (one.ranks, one.nodes) == (ranks, nodes)]
    spanning = [{_process(one): one.rank for one in here} for here in widest]
    whole = [(here, found) for here, found in zip(widest, spanning, strict=True) if found.keys() >= processes]
    return whole[0][0] if whole and all(found == whole[0][1] for _, found in whole) else ()


def ranks_on(evidence: JobEvidence, uuid: str) -> str:
    """Return the job's ranks on a GPU, `0` or `0, 1`; empty where they are not known."""
    return ", ".join(str(one.rank) for one in job_ranks(evidence.job) if one.gpu == uuid)


def _process(rank: JobRank) -> tuple[int, str]:
    """Return what tells the processes of a job apart."""
    return (rank.own_pid, value_or(rank.gpu, "")) if isinstance(rank.pid, Absent) else (rank.pid, "")


def rank_name(evidence: JobEvidence, rank: int, comm: str, pid: int | Absent | None) -> str:
    """Return `rank 3`, the job's; else the rank of the communicator (by id) with the communicator's name."""
    ranks = job_ranks(evidence.job)
    found = next((one for one in communicators(evidence) if one.id == comm), None)
    if ranks and found is not None and found.here == ranks:
        return f"rank {rank}"
    known = [one.rank for one in ranks if isinstance(pid, int) and one.pid == pid]
    if len(known) == 1:
        return f"rank {known[0]}"
    return f"rank {rank} of communicator {found.name or found.id if found else comm}"


def late_name(evidence: JobEvidence, late: LateRank) -> str:
    """Return the rank for which others wait, with its GPU and host."""
    comm = next((one.id for one in communicators(evidence) if one.late == late), "")
    rank = rank_name(evidence, late.rank, comm, late.pid)
    return f"{rank} on {gpu_name(late.index, late.gpu, evidence.host)}"


def gpu_rank_name(evidence: JobEvidence, uuid: str) -> str:
    """Return a GPU with its host, and with the job's rank on it where a single rank is known."""
    gpu = next((one for one in evidence.gpus if one.uuid == uuid), None)
    name = gpu_name(gpu.index if gpu else "", uuid, evidence.host)
    ranks = ranks_on(evidence, uuid)
    return f"rank {ranks} on {name}" if ranks.isdigit() else name
