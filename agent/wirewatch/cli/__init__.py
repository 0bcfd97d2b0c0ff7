"""The command line. Nothing heavy is imported here, because each `check` would wait for it."""

import errno
import gc
from collections.abc import Mapping, Sequence

import click

from wirewatch import __version__
from wirewatch.cli.groups import LazyGroup, Listed, examples
from wirewatch.core.exits import Exit
from wirewatch.core.types import Unanswered, Unusable
from wirewatch.signals import SIGNALS

COMMANDS: Mapping[str, Listed] = {
    "check": Listed("wirewatch.cli.check.command:check", "Say whether a job may start on this node."),
    "completion": Listed(
        "wirewatch.cli.completion:completion",
        "Print what makes a shell complete commands, options and names.",
    ),
    "config": Listed(
        "wirewatch.cli.configuration:config", "Check a configuration, and show what holds with it."
    ),
    "demo": Listed("wirewatch.cli.demo:demo", "Show wirewatch at work on a recorded node with a FAULT."),
    "explain": Listed("wirewatch.cli.jobs.explain:explain", "Explain why a running job is as fast as it is."),
    "findings": Listed(
        "wirewatch.cli.findings:findings",
        "List findings, show one, give orders about one.",
    ),
    "hold": Listed("wirewatch.cli.hold:hold", "Keep probes off GPUs while a job starts."),
    "jobs": Listed("wirewatch.cli.jobs.tap:jobs", "Time the collectives of running jobs."),
    "overlays": Listed(
        "wirewatch.cli.bundled:old_overlays",
        "List the faults that can be laid over a recording.",
        hidden=True,
    ),
    "probe": Listed("wirewatch.cli.probe:probe", "Measure busbw between this node's idle GPUs."),
    "prober": Listed(
        "wirewatch.cli.prober:prober", "Run probes for an agent in another container.", hidden=True
    ),
    "record": Listed("wirewatch.cli.record:record", "Record everything that can be read of this node."),
    "recordings": Listed(
        "wirewatch.cli.bundled:old_recordings",
        "List the recordings that come with wirewatch.",
        hidden=True,
    ),
    "release": Listed("wirewatch.cli.orders:release", "Close the daemon's GPU handles for a while."),
    "serve": Listed("wirewatch.cli.serve:serve", "Run the daemon: metrics, health and state over HTTP."),
    "status": Listed("wirewatch.cli.status:status", "Show how this node is, on a dozen lines."),
    "top": Listed(
        "wirewatch.cli.jobs.top:top", "Show GPUs, running jobs, their processes and findings live."
    ),
    "topology": Listed("wirewatch.cli.topology:topology", "Show, compare and accept this node's topology."),
}
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a disk with no room left."""
PACKAGES = "wirewatch.commands"
"""The group of entry points by which other packages add commands: each names a table like `COMMANDS`."""
QUIET = frozenset({"check"})
"""Commands that set up logging and garbage collection themselves, if at all: most end too soon to need it."""


def added() -> Mapping[str, Listed]:
    """Return the commands of the lab, the fleet and other packages that are installed here."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    there = (one for one in entry_points(group=PACKAGES) if find_spec(one.module.partition(".")[0]))
    return {name: listed for one in there for name, listed in one.load().items()}


@click.group(
    cls=LazyGroup, table=COMMANDS, more=added, context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples("wirewatch demo nvlink-link-down", "wirewatch status", "wirewatch check --help"),
)  # fmt: skip
@click.version_option(__version__, prog_name="wirewatch")
@click.option("-v", "--verbose", is_flag=True, help="Log debug messages too.")
@click.pass_context
def cli(context: click.Context, *, verbose: bool) -> None:
    """Watch the NVLink, PCIe and InfiniBand connections of this node's GPUs.

    Exit codes: 0 OK, 1 DEGRADED, 2 FAILED and 3 UNKNOWN are verdicts and nothing else. 64 means wrong usage,
    69 no answer (of the daemon, the driver, Prometheus), 70 an internal error and 78 a wrong configuration.
    """
    if context.invoked_subcommand not in QUIET:
        from wirewatch.daemon.log import log_to_stderr

        gc.enable()
        log_to_stderr(verbose=verbose)


def run(arguments: Sequence[str], began: float | None = None) -> int:
    """Run a command line; returns the exit code, or raises SystemExit where a signal ended the command.

    `began`: when the process began, monotonic seconds.
    """
    try:
        return cli.main(list(arguments), prog_name="wirewatch", standalone_mode=False, obj=began) or 0
    except Unusable as error:
        click.echo(f"wirewatch: {error}", err=True)
        return Exit.NO_ANSWER if isinstance(error, Unanswered) else Exit.CONFIG
    except click.ClickException as error:
        # One line: click lists choices one below the other.
        click.echo(f"wirewatch: {' '.join(_words(error).split())}", err=True)
        return Exit.USAGE
    except click.Abort:
        return Exit.INTERNAL
    except SystemExit as error:
        # click ends so when the reader of our output is gone; 1 would read as the verdict DEGRADED.
        if error.code != 1:
            raise
        return Exit.INTERNAL
    except Exception as error:  # noqa: BLE001 - the end of the command line, which reports it
        # Python's own exit status 1 would read as the verdict DEGRADED.
        if not SIGNALS.raised:
            _report(error)
        return Exit.INTERNAL


def _words(error: click.ClickException) -> str:
    """Return a refusal; for a wrong value it begins with the option, not `Invalid value for '--size'`."""
    given = getattr(error, "param", None)
    if given is None or isinstance(error, click.MissingParameter):
        return error.format_message()
    name = given.opts[0] if isinstance(given, click.Option) else given.name.upper()
    message = error.message if error.message.endswith("..") else error.message.removesuffix(".")
    return f"{name}: {message}"


def _report(error: Exception) -> None:
    """Say on standard error what ended the command: a full disk in one line, anything else is a bug."""
    if isinstance(error, OSError) and error.errno in FULL:
        click.echo(
            f"wirewatch: {error.filename or 'the output'} cannot be written: {error.strerror}", err=True
        )
        return
    import logging

    # Where no log was set up, this writes to standard error all the same.
    logging.getLogger(__name__).error("this is a bug of wirewatch", exc_info=error)
