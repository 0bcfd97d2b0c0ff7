"""`wirewatch explain`: why a running job is as fast as it is, in one page."""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from wirewatch.cli.groups import examples
from wirewatch.cli.options import daemon_options, replay_options
from wirewatch.cli.output import shown, terminal_width
from wirewatch.core.owners import CONTAINER, CONTAINER_DIGITS, state_and_parent
from wirewatch.core.ports import Sysfs
from wirewatch.core.types import Absent, Unanswered, Why, whole
from wirewatch.hw.files import SystemSysfs
from wirewatch.jobs.explain.evidence import JobEvidence, JobSettings
from wirewatch.nccl.settings import settings_of_environ

if TYPE_CHECKING:
    from wirewatch.documents.jobs import ExplainDocument, JobsDocument

LOOK = 1.0
"""Seconds of watching threads."""
ROOT = 0
_MOST_PROCESSES = 64
"""Most processes of a job to look at."""
_USER, _SYSTEM = 11, 12
"""Fields of /proc/PID/stat after the name in parentheses (proc_pid_stat(5)), in ticks."""


def read_processes(evidence: JobEvidence) -> JobEvidence:
    """Return the evidence with this process's view of the job's processes; waits LOOK seconds."""
    from wirewatch.jobs.explain.gather import with_settings, with_threads

    sysfs, pids = SystemSysfs(), evidence.pids[:_MOST_PROCESSES]
    settings = [JobSettings(pid, settings_of(sysfs, pid)) for pid in pids]
    before, began = {pid: thread_times(sysfs, pid) for pid in pids}, time.monotonic()
    time.sleep(LOOK if pids else 0.0)
    seconds = time.monotonic() - began
    after = {pid: thread_times(sysfs, pid) for pid in pids}
    threads = {pid: busiest(before[pid], after[pid], seconds) for pid in pids}
    return with_threads(with_settings(evidence, settings), threads)


def settings_of(sysfs: Sysfs, pid: int) -> Mapping[str, str] | Absent:
    """NCCL's settings in the environment of a process of this user, or of any as root; else DENIED."""
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError as error:
        return Absent(Why.MISSING, f"process {pid}: {error.strerror}", error.errno)
    if os.geteuid() not in {ROOT, owner}:
        return Absent(Why.DENIED, f"process {pid} belongs to user {owner}: ask as that user or as root")
    data = sysfs.data(f"/proc/{pid}/environ")
    if isinstance(data, Absent):
        return data
    # That of a process that ends, or has just begun.
    return settings_of_environ(data) if data else Absent(Why.MISSING, f"process {pid} shows no environment")


def ancestors(pid: int) -> Sequence[int]:
    """Return the ancestors of a process, its parent first, without process 1 and any above it."""
    sysfs, found = SystemSysfs(), [pid]
    while True:
        text = sysfs.read(f"/proc/{found[-1]}/stat")
        known = None if isinstance(text, Absent) else state_and_parent(text)
        if known is None or known[1] <= 1:
            return found[1:]
        found.append(known[1])


def thread_times(sysfs: Sysfs, pid: int) -> Mapping[str, float] | Absent:
    """CPU seconds of each thread of a process, by its id."""
    threads = sysfs.entries(f"/proc/{pid}/task")
    if isinstance(threads, Absent):
        return threads
    found = {}
    for thread in threads:
        text = sysfs.read(f"/proc/{pid}/task/{thread}/stat")
        seconds = None if isinstance(text, Absent) else cpu_seconds(text)
        if seconds is not None:
            found[thread] = seconds
    return found


def cpu_seconds(stat: str) -> float | None:
    """User and system seconds of a /proc/PID/stat; None for any other text."""
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= _SYSTEM:
        return None
    ticks = [whole(fields[_USER]), whole(fields[_SYSTEM])]
    known = [one for one in ticks if one is not None]
    return sum(known) / os.sysconf("SC_CLK_TCK") if len(known) == len(ticks) else None


def busiest(
    before: Mapping[str, float] | Absent, after: Mapping[str, float] | Absent, seconds: float
) -> float | Absent:
    """The share of a core that the busiest thread took between two looks; only threads of both count."""
    if isinstance(before, Absent):
        return before
    if isinstance(after, Absent):
        return after
    shares = [(after[one] - before[one]) / seconds for one in after if one in before]
    return min(1.0, max(shares)) if shares else Absent(Why.MISSING, "no thread of it was seen twice")


def selected(
    jobs: Sequence[JobEvidence], given: str | None, started_by: Callable[[int], Collection[int]] | None = None
) -> JobEvidence:
    """Return the selected job; without a selector the only job there is.

    `started_by`: the ancestors of a process, None where they are not known. A process that is on no GPU, such
    as torchrun, means the job that it started.

    Raises:
    UsageError: no job or several are meant, or the selector is invalid.
    """
    if given is None:
        return _only(jobs, "no job runs on this node's GPUs", f"{len(jobs)} jobs run here: name one of them")
    kind, colon, value = given.partition(":")
    pid = whole(value if kind == "pid" and colon else given)
    if pid is not None:
        found = [one for one in jobs if pid in one.pids]
        if not found and started_by:
            found = [one for one in jobs if any(pid in started_by(own) for own in one.pids)]
        none = f"process {pid} belongs to no job on this node's GPUs{_known(jobs)}"
        return _only(found, none, f"process {pid} belongs to several jobs")
    if kind not in {"slurm", "pod", "container"} or not value.strip():
        raise click.UsageError(f"{given!r} names no job: slurm:ID, pod:UID, container:ID or a process id")
    name = given.lower()
    # By its cgroup a container has so many digits, by its folder the name that somebody gave it.
    meant = {name, name[: len(CONTAINER) + CONTAINER_DIGITS] if name.startswith(CONTAINER) else name}
    owners = [(one, (one.name, *(() if isinstance(one.job, Absent) else one.job.owners))) for one in jobs]
    found = [one for one, names in owners if meant & {each.lower() for each in names}]
    none = f"no job {given} runs on this node's GPUs{_known(jobs)}"
    return _only(found, none, f"{given} is part of several jobs")


def _only(found: Sequence[JobEvidence], none: str, several: str) -> JobEvidence:
    if not found:
        raise click.UsageError(none)
    if len(found) > 1:
        raise click.UsageError(f"{several}: {', '.join(one.name for one in found)}")
    return found[0]


def _known(jobs: Sequence[JobEvidence]) -> str:
    """Return the known jobs in words; jobs without the tap have no known owner."""
    return f"; known are {', '.join(one.name for one in jobs)}" if jobs else ""


@click.command(
    epilog=examples(
        "wirewatch explain slurm:4711", "wirewatch explain --replay demo-dgx-h200 --overlay gpu-busy"
    )
)
@click.argument("job", required=False)
@daemon_options
@replay_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.pass_context
def explain(
    context: click.Context, *, job: str | None, socket: str | None, config: Path | None, replay: str | None,
    overlays: Sequence[str], as_json: bool,
) -> None:  # fmt: skip
    """Explain why a running job is as fast as it is.

    JOB is slurm:ID, pod:UID, container:ID, or the id of a process of the job or of one that started it;
    without it, the only job on this node. The first line is the answer: the wall that the job hits, or that
    it is not known. The page goes on with what shows it, what is not watched, and what to do.

    The running daemon is asked. What only the job's user or root may read (NCCL's settings, how busy its
    threads are) is read by this command.

    Exit codes: 0 printed; 69 no daemon answers; 64 no such job, or several.
    """
    from wirewatch.cli.check.polling import NodeSource, played
    from wirewatch.cli.jobs.explained import page
    from wirewatch.documents.jobs import EXPLAIN

    if replay:
        if context.get_parameter_source("socket") is not ParameterSource.DEFAULT:
            raise click.UsageError("give either --replay or --socket")
        document = played(NodeSource(config, replay, overlays)).snapshot().jobs
    else:
        document = asked_jobs(socket, config)
    explained = _explained(document, job)
    if as_json:
        click.echo(EXPLAIN.dump_json(explained, indent=1).decode())
        return
    click.echo(shown(page(explained, terminal_width())))


def asked_jobs(socket: str | None, config: Path | None) -> "JobsDocument":
    """The running jobs by the daemon.

    Raises:
        Unanswered: no daemon answers with them.
        Unusable: the configuration cannot be read.
    """
    from wirewatch.cli.check.daemon import asked_socket
    from wirewatch.cli.orders import document_or_reason
    from wirewatch.documents.jobs import JOBS

    found = document_or_reason(asked_socket(socket, config), "/api/v1/jobs", JOBS)
    if isinstance(found, str):
        raise Unanswered(f"{found}; only the daemon knows which jobs run")
    return found


def _explained(document: "JobsDocument", job: str | None) -> "ExplainDocument":
    """Return the answer for the selected job, with this command's own view of its processes."""
    from wirewatch.documents.jobs import explain as explained
    from wirewatch.jobs.explain.held import HeldAnswer

    live = document.source == "live"
    known = selected([one.evidence for one in document.jobs], job, ancestors if live else None)
    shown = next(HeldAnswer(o.answer, o.since) for o in document.jobs if o.evidence is known)
    evidence = read_processes(known) if live else known
    return explained(evidence, document.at, document.source, shown, document.host)
