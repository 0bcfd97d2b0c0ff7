"""`wirewatch probe`: one probe now, for a person or a script."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.check.answer import EXIT
from wirewatch.cli.options import config_option, replay_options
from wirewatch.cli.options import owner as checked_owner
from wirewatch.cli.output import shown
from wirewatch.core.probe import ENGINES, OPS
from wirewatch.core.types import whole

if TYPE_CHECKING:
    from wirewatch.probe.request import ProbeOverrides, ProbeResult

SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Size(click.ParamType[int]):
    """Bytes, with K, M or G for powers of 1024."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).upper()
        number, suffix = (text[:-1], text[-1]) if text[-1:] in SUFFIXES and text[-1:] else (text, "")
        size = (whole(number) or 0) * SUFFIXES[suffix]
        if size == 0 or size % 4:
            self.fail(f"{value!r} is not a size: a multiple of 4 bytes, such as 256M", param, ctx)
        return size


@click.command()
@config_option
@click.option("--op", "ops", multiple=True, type=click.Choice(OPS), help="Collective to run; repeatable.")
@click.option("--size", "sizes", multiple=True, type=Size(), help="Message size, such as 256M; repeatable.")
@click.option("--engine", type=click.Choice(("auto", *ENGINES)), help="What runs the collectives.")
@click.option(
    "--owner",
    callback=checked_owner,
    help="The job whose GPUs count as idle: slurm:ID or pod:UID.",
)
@click.option("--explain", is_flag=True, help="Show how each expected busbw follows.")
@click.option(
    "--force", is_flag=True, help="Probe busy GPUs too; the result is labelled and gives no verdict."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@replay_options
@click.pass_context
def probe(
    context: click.Context, *, config_file: Path | None, ops: Sequence[str], sizes: Sequence[int],
    engine: str | None, owner: str | None, explain: bool, force: bool, as_json: bool, replay: str | None,
    overlays: Sequence[str],
) -> None:  # fmt: skip
    """Measure busbw between this node's idle GPUs.

    The result is compared with what the wires should give. A fault is measured again to confirm it.

    Exit codes: 0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN. Busy GPUs give UNKNOWN.
    """
    from wirewatch.probe.request import ProbeOverrides

    if overlays and not replay:
        raise click.UsageError("--overlay changes a recording: give --replay too")
    wish = ProbeOverrides(tuple(dict.fromkeys(ops)), tuple(dict.fromkeys(sizes)), engine, owner, force)
    asked = _ask(config_file, wish, replay, overlays)
    _print(asked, explain=explain, as_json=as_json)
    context.exit(EXIT[asked.health])


def _ask(
    config_file: Path | None, wish: "ProbeOverrides", replay: str | None, overlays: Sequence[str]
) -> "ProbeResult":
    from wirewatch.cli.hardware import live, remote_prober, replayed
    from wirewatch.collectors import discover
    from wirewatch.config import expectations, load
    from wirewatch.probe.request import probe_now
    from wirewatch.probe.statefolder import StateError, open_state_for_command, state_directory
    from wirewatch.probe.workfolder import remove_left_folders

    config, _ = load(config_file, discover())
    remove_left_folders()
    with ExitStack() as stack:
        state = None
        # A recording has a state folder only when one is configured: it must not mix with this node's.
        if replay is None or config.state.directory:
            try:
                state = open_state_for_command(state_directory(config.state.directory))
            except StateError as error:
                click.echo(f"wirewatch: {error}; this probe is not kept, and no lock is respected", err=True)
        hardware, nvml = replayed(replay, overlays, at_fault=True) if replay else live(config, state=state)
        stack.callback(nvml.stop)
        return probe_now(
            hardware, config.probe, config.policy.probe, expectations(config), wish, state,
            prober=remote_prober(config, hardware),
        )  # fmt: skip


def _print(asked: "ProbeResult", *, explain: bool, as_json: bool) -> None:
    from wirewatch.cli.tables import probe_tables
    from wirewatch.documents.probes import PROBE, refused
    from wirewatch.documents.probes import probe as document

    if asked.probed is None:
        result = refused(asked.refusal, asked.at)
    else:
        result = document(asked.probed, asked.measured, asked.findings, asked.named)
    if as_json:
        click.echo(PROBE.dump_json(result, indent=1).decode())
    else:
        click.echo(shown(probe_tables(result, explain=explain).split("\n")))
