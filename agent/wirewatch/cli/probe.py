"""`wirewatch probe`: one probe now, or several side by side, for a person or a script."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import Size, WholeNumber, config_option, replay_options
from wirewatch.cli.options import owner as checked_owner
from wirewatch.cli.output import shown
from wirewatch.core.exits import exit_of
from wirewatch.core.probe import ALLTOALL, DTYPES, ENGINES, PRIMITIVES, SENDRECV

if TYPE_CHECKING:
    from wirewatch.probe.model import ProbeOptions
    from wirewatch.probe.request import ProbeOverrides, ProbeResult

SPELLINGS = {"all_to_all": ALLTOALL, "send_recv": SENDRECV}
SWITCHES = {"on": True, "off": False}


class Primitive(click.Choice[str]):
    """A collective by nccl-tests' name, or as MPI and NCCL write it."""

    def __init__(self) -> None:
        super().__init__(PRIMITIVES)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(SPELLINGS.get(value, value), param, ctx)


class Switches(click.ParamType[tuple[bool, ...]]):
    """`on`, `off`, or both with a comma."""

    name = "on,off"

    def convert(
        self, value: str | tuple[bool, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[bool, ...]:
        words = value.split(",") if isinstance(value, str) else []
        if not set(words) <= SWITCHES.keys() or len(set(words)) < len(words):
            self.fail(f"{value!r} is not on, off, or on,off", param, ctx)
        return value if isinstance(value, tuple) else tuple(SWITCHES[word] for word in words)


@click.command(
    epilog=examples(
        "wirewatch probe --explain", "wirewatch probe --replay demo-dgx-h200 --op all_reduce --size 256MiB"
    )
)
@config_option
@click.option("--op", "ops", multiple=True, type=Primitive(), help="Collective to run; repeatable.")
@click.option("--size", "sizes", multiple=True, type=Size(4), help="Message, such as 256MiB; repeatable.")
@click.option("--dtype", type=click.Choice(tuple(DTYPES)), help="Type of the elements; default float32.")
@click.option("--iterations", type=WholeNumber(1, 10_000), help="Timed runs of each size.")
@click.option("--in-place/--out-of-place", default=None, help="Whether results take the place of the data.")
@click.option(
    "--engine", "engines", multiple=True, type=click.Choice(("auto", *ENGINES)),
    help="What runs the collectives; several stand side by side.",
)  # fmt: skip
@click.option("--transport", type=click.Choice(("net",)), help="net: over the node's NICs alone.")
@click.option("--gdr", "gpudirect", type=Switches(), help="With GPUDirect RDMA, without it, or both: on,off.")
@click.option(
    "--owner", callback=checked_owner, help="The job whose GPUs count as idle: slurm:ID or pod:UID."
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
    dtype: str | None, iterations: int | None, in_place: bool | None, engines: Sequence[str],
    transport: str | None, gpudirect: tuple[bool, ...] | None, owner: str | None, explain: bool, force: bool,
    as_json: bool, replay: str | None, overlays: Sequence[str],
) -> None:  # fmt: skip
    """Measure busbw between this node's idle GPUs.

    The result is compared with what the wires should give. A fault is measured again to confirm it.

    A probe that a daemon would not run is a study: one of other collectives than all_reduce, all_gather and
    reduce_scatter, of another dtype, out of place, with --iterations, --transport, --gdr or several engines.
    It is not kept, and changes no verdict of the daemon.

    Exit codes: 0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN. Busy GPUs give UNKNOWN.
    """
    from wirewatch.cli.tables import probe_tables
    from wirewatch.documents.probed import on_request
    from wirewatch.documents.probes import PROBE
    from wirewatch.probe.request import ProbeOverrides
    from wirewatch.probe.setup import Variation

    names = tuple(dict.fromkeys(engines))
    _check(sizes, dtype, names, transport, gpudirect, replay)
    several = names if len(names) > 1 else ()
    wish = ProbeOverrides(
        tuple(dict.fromkeys(ops)), tuple(dict.fromkeys(sizes)), names[0] if len(names) == 1 else None, owner,
        force, Variation(dtype, in_place, iterations, network=transport == "net"), several, gpudirect or (),
    )  # fmt: skip
    asked = _ask(config_file, wish, replay, overlays)
    result = on_request(asked)
    if as_json:
        click.echo(PROBE.dump_json(result, indent=1).decode())
    else:
        click.echo(shown(probe_tables(result, explain=explain).split("\n")))
    context.exit(exit_of(asked.health))


def _check(
    sizes: Sequence[int], dtype: str | None, engines: Sequence[str], transport: str | None,
    gpudirect: tuple[bool, ...] | None, replay: str | None,
) -> None:  # fmt: skip
    """Refuse with a UsageError what cannot be meant together."""
    element = DTYPES[dtype or "float32"]
    odd = next((size for size in sizes if size % element), None)
    several = len(engines) > 1
    wrong = (
        (odd is not None, f"--size {odd} is not a multiple of {element} bytes, an element of {dtype}"),
        (several and "auto" in engines, "--engine auto is one engine: name those to stand side by side"),
        (several and replay, "several --engine cannot be played: a recording holds a probe of one"),
        (several and gpudirect, "--gdr compares runs of one engine: give --engine once"),
        (gpudirect and transport is None, "--gdr is about the NICs: give --transport net too"),
        (gpudirect and replay, "--gdr cannot be played: a recording holds a probe of one setting"),
        (transport and "gloo" in engines, "--transport is about NCCL, and the engine gloo does not use it"),
    )  # fmt: skip
    for applies, why in wrong:
        if applies:
            raise click.UsageError(why)


def _check_configured(wish: "ProbeOverrides", options: "ProbeOptions") -> None:
    """Refuse with a UsageError what cannot be meant together with the configuration."""
    dtype = wish.variation.dtype or "float32"
    sizes = (*options.latency_sizes, *(size for size, _ in options.bandwidth))
    odd = next((size for size in sizes if not wish.sizes and size % DTYPES[dtype]), None)
    if odd is not None:
        raise click.UsageError(f"the configured size {odd} is no multiple of {dtype}'s bytes: give --size")
    if wish.variation.network and options.engine == "gloo" and not (wish.engine or wish.engines):
        raise click.UsageError("--transport is about NCCL, and the configured engine gloo does not use it")


def _ask(
    config_file: Path | None, wish: "ProbeOverrides", replay: str | None, overlays: Sequence[str]
) -> "ProbeResult":
    from wirewatch.catalogue import discover
    from wirewatch.cli.hardware import live, own_state, remote_prober, replayed
    from wirewatch.cli.progress import under_way
    from wirewatch.config import expectations, load
    from wirewatch.probe.request import probe_now
    from wirewatch.probe.workfolder import remove_left_folders

    config, _ = load(config_file, discover())
    _check_configured(wish, config.probe)
    remove_left_folders()
    with ExitStack() as stack:
        state = None
        # A recording has a state folder only when one is configured: it must not mix with this node's.
        if replay is None or config.state.directory:
            state = own_state(config, "this probe is not kept, and no lock is respected")
        hardware, nvml = replayed(replay, overlays, at_fault=True) if replay else live(config, state=state)
        stack.callback(nvml.stop)
        with under_way("probing"):
            return probe_now(
                hardware, config.probe, config.policy.probe, expectations(config), wish, state,
                prober=remote_prober(config, hardware),
            )  # fmt: skip
