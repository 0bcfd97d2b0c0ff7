"""`wirewatch explain`: why a running job is as fast as it is, in one page."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

from wirewatch.cli.groups import examples
from wirewatch.cli.options import daemon_options, replay_options
from wirewatch.cli.output import shown, terminal_width

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from wirewatch.documents.jobs import ExplainDocument, JobsDocument

T = TypeVar("T")
UNKNOWN = 3
DEADLINE = 10.0
"""Seconds for the daemon's answer."""
SECONDS = 120.0
"""For a play of a recording."""


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

    Exit codes: 0 printed; 3 no daemon answers; 64 no such job, or several.
    """
    from wirewatch.cli.jobs.explained import page
    from wirewatch.documents.jobs import EXPLAIN

    if overlays and not replay:
        raise click.UsageError("--overlay changes a recording: give --replay too")
    if replay:
        if context.get_parameter_source("socket") is not ParameterSource.DEFAULT:
            raise click.UsageError("give either --replay or --socket")
        document = played_jobs(config, replay, overlays)
    else:
        document = asked_jobs(context, socket, config)
    explained = _explained(document, job)
    if as_json:
        click.echo(EXPLAIN.dump_json(explained, indent=1).decode())
        return
    click.echo(shown(page(explained, terminal_width())))


def asked_jobs(context: click.Context, socket: str | None, config: Path | None) -> "JobsDocument":
    """The running jobs by the daemon.

    Raises:
        Exit: no daemon answers with them; the reason has been printed.
        Unusable: the configuration cannot be read.
    """
    from wirewatch.cli.check.daemon import asked_socket
    from wirewatch.documents.jobs import JOBS

    found = document_or_reason(asked_socket(socket, config), "/api/v1/jobs", JOBS)
    if isinstance(found, str):
        click.echo(f"wirewatch: {found}; only the daemon knows which jobs run", err=True)
        context.exit(UNKNOWN)
    return found


def document_or_reason(path: str, target: str, adapter: "TypeAdapter[T]") -> "T | str":
    """A document of the daemon at this socket, or why it gives none."""
    from pydantic import ValidationError

    from wirewatch.hw.httpclient import NoAnswer, request

    if not path:
        return "the configuration names no socket of a daemon"
    try:
        status, body = request(path, "GET", target, None, DEADLINE, known=True)
        if status != 200:  # noqa: PLR2004
            return f"{path}: HTTP status {status} to {target}: a daemon that is busy, or of an older version"
        return adapter.validate_json(body)
    except NoAnswer as error:
        return str(error)
    except (ValidationError, RecursionError):
        return f"{path}: the answer is not from this version of wirewatch"


def played_jobs(config: Path | None, replay: str, overlays: Sequence[str]) -> "JobsDocument":
    """The running jobs of a recording, played to its end without a daemon.

    Raises:
        Unusable: the configuration, the recording or an overlay cannot be used.
    """
    from wirewatch.cli.check.polling import played_to_end
    from wirewatch.documents.jobs import jobs

    with played_to_end(config, replay, overlays, SECONDS) as poll:
        return jobs(poll.state, time.time(), "synthetic" if overlays else "replay")


def _explained(document: "JobsDocument", job: str | None) -> "ExplainDocument":
    """The answer for the job that is meant, with what this command can read of its processes itself.

    Raises:
        UsageError: no job is meant, or several.
    """
    from wirewatch.cli.jobs.processes import ancestors, read_processes
    from wirewatch.documents.jobs import explain as explained
    from wirewatch.jobs.explain.selector import NoOneJob, nobody, selected

    live = document.source == "live"
    try:
        evidence = selected([one.evidence for one in document.jobs], job, ancestors if live else nobody)
    except NoOneJob as error:
        raise click.UsageError(str(error)) from error
    if live:
        evidence = read_processes(evidence)
    return explained(evidence, document.at, document.source)
