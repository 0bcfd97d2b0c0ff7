"""The command line. Nothing heavy is imported here, because each `check` would wait for it."""

import gc
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from wirewatch import __version__
from wirewatch.core.types import Unusable

USAGE, INTERNAL, CONFIG = 64, 70, 78
COMMANDS = {
    "advise": "wirewatch.cli.advise:advise",
    "check": "wirewatch.cli.check.command:check",
    "explain": "wirewatch.cli.explain:explain",
    "findings": "wirewatch.cli.findings:findings",
    "fleet": "wirewatch.cli.fleet:fleet",
    "jobs": "wirewatch.cli.jobs:jobs",
    "parse": "wirewatch.cli.parse:parse",
    "probe": "wirewatch.cli.probe:probe",
    "prober": "wirewatch.cli.prober:prober",
    "record": "wirewatch.cli.record:record",
    "release": "wirewatch.cli.orders:release",
    "serve": "wirewatch.cli.serve:serve",
    "sweep": "wirewatch.cli.sweep:sweep",
    "top": "wirewatch.cli.top:top",
    "topology": "wirewatch.cli.topology:topology",
}
QUIET = frozenset({"check"})
"""Commands that set up logging and garbage collection themselves, if at all: most end before it pays."""


class LazyGroup(click.Group):
    """A group of commands that are imported when called; `table` has `module:attribute` for each name."""

    def __init__(self, *, table: Mapping[str, str], **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="wirewatch")
@click.option("-v", "--verbose", is_flag=True, help="Log debug messages too.")
@click.pass_context
def cli(context: click.Context, *, verbose: bool) -> None:
    """Watch the NVLink, PCIe and InfiniBand connections of this node's GPUs.

    Exit codes: 0 OK, 1 DEGRADED, 2 FAILED and 3 UNKNOWN are verdicts and nothing else. 64 means wrong usage,
    69 no answer (of Prometheus), 70 an internal error and 78 a wrong configuration.
    """
    if context.invoked_subcommand not in QUIET:
        from wirewatch.cli.log import log_to_stderr

        gc.enable()
        log_to_stderr(verbose=verbose)


def run(arguments: Sequence[str], began: float | None = None) -> int:
    """Run a command line; returns the exit code. `began`: when the process began, monotonic seconds.

    Raises:
        SystemExit: a signal ended the command.
    """
    try:
        return cli.main(list(arguments), prog_name="wirewatch", standalone_mode=False, obj=began) or 0
    except Unusable as error:
        click.echo(f"wirewatch: {error}", err=True)
        return CONFIG
    except click.ClickException as error:
        click.echo(f"wirewatch: {error.format_message()}", err=True)
        return USAGE
    except click.Abort:
        return INTERNAL
    except SystemExit as error:
        # click ends so when the reader of our output is gone; 1 would read as the verdict DEGRADED.
        if error.code != 1:
            raise
        return INTERNAL
    except Exception:
        # Python's own exit status 1 would read as the verdict DEGRADED.
        import logging

        # Where no log was set up, this writes to standard error all the same.
        logging.getLogger(__name__).exception("this is a bug of wirewatch")
        return INTERNAL
