"""The command line. Heavy imports stay inside the commands."""

import logging
import sys
import traceback
from collections.abc import Sequence

import click

from wirewatch import __version__
from wirewatch.cli.probe import probe
from wirewatch.cli.record import record
from wirewatch.cli.serve import serve
from wirewatch.config import ConfigError
from wirewatch.daemon.sockets import ListenError
from wirewatch.hw.overlay import OverlayError
from wirewatch.hw.recording import RecordingError
from wirewatch.probes.state import StateError

USAGE, INTERNAL, CONFIG = 64, 70, 78


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="wirewatch")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def cli(*, verbose: bool) -> None:
    """Watch the wires between this node's GPUs.

    Exit codes: 0 to 3 only from a verdict (OK, DEGRADED, FAILED, UNKNOWN); 64 wrong usage, 70 internal
    error, 78 wrong configuration.
    """
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )


cli.add_command(serve)
cli.add_command(record)
cli.add_command(probe)


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    try:
        return cli.main(list(arguments), prog_name="wirewatch", standalone_mode=False) or 0
    except (ConfigError, ListenError, RecordingError, OverlayError, StateError) as error:
        click.echo(f"wirewatch: {error}", err=True)
        return CONFIG
    except click.ClickException as error:
        click.echo(f"wirewatch: {error.format_message()}", err=True)
        return USAGE
    except click.Abort:
        return INTERNAL
    except Exception:  # noqa: BLE001 - Python's own exit status 1 would read as the verdict DEGRADED
        traceback.print_exc()
        return INTERNAL
