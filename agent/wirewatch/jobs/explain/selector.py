"""Which running job a person means: `slurm:ID`, `pod:UID`, `container:ID`, or a process."""

from collections.abc import Callable, Collection, Sequence

from wirewatch.core.owners import CONTAINER, CONTAINER_DIGITS
from wirewatch.core.types import Absent, whole
from wirewatch.jobs.explain.evidence import JobEvidence


class NoOneJob(Exception):
    """No job, or more than one, is meant; the text is one line for the user."""


def nobody(_pid: int) -> Collection[int]:
    """Of a process elsewhere it is not known who started it."""
    return ()


def selected(
    jobs: Sequence[JobEvidence], given: str | None, ancestors: Callable[[int], Collection[int]] = nobody
) -> JobEvidence:
    """The job that is meant; without a selector the only one there is.

    `ancestors`: the processes that started one, its parent first. A process that is on no GPU, such as
    torchrun, means the job that it started.

    Raises:
        NoOneJob: none is, or several are, or the selector is not one.
    """
    if given is None:
        return _only(jobs, "no job runs on this node's GPUs", f"{len(jobs)} jobs run here: name one of them")
    kind, colon, value = given.partition(":")
    pid = whole(value if kind == "pid" and colon else given)
    if pid is not None:
        found = [one for one in jobs if pid in one.pids]
        found = found or [one for one in jobs if any(pid in ancestors(own) for own in one.pids)]
        none = f"process {pid} belongs to no job on this node's GPUs{_known(jobs)}"
        return _only(found, none, f"process {pid} belongs to several jobs")
    if kind not in {"slurm", "pod", "container"} or not value.strip():
        raise NoOneJob(f"{given!r} names no job: slurm:ID, pod:UID, container:ID or a process id")
    name = given.lower()
    if name.startswith(CONTAINER):
        name = name[: len(CONTAINER) + CONTAINER_DIGITS]
    found = [one for one in jobs if name in _names(one)]
    none = f"no job {given} runs on this node's GPUs{_known(jobs)}"
    return _only(found, none, f"{given} is part of several jobs")


def _names(one: JobEvidence) -> set[str]:
    owners = () if isinstance(one.job, Absent) else one.job.owners
    return {name.lower() for name in (one.name, *owners)}


def _only(found: Sequence[JobEvidence], none: str, several: str) -> JobEvidence:
    if not found:
        raise NoOneJob(none)
    if len(found) > 1:
        raise NoOneJob(f"{several}: {', '.join(one.name for one in found)}")
    return found[0]


def _known(jobs: Sequence[JobEvidence]) -> str:
    """The jobs that there are; those without the tap have no owner that is known."""
    return f"; known are {', '.join(one.name for one in jobs)}" if jobs else ""
