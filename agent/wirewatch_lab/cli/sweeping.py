"""The measuring of `wirewatch sweep`: its GPUs by the gate, its signals, and how far it has got."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

import click

from wirewatch import __version__
from wirewatch.cli.hardware import live
from wirewatch.cli.output import shown
from wirewatch.cli.tables import probe_tables
from wirewatch.config import Config, expectations
from wirewatch.core.ports import Hardware, Order
from wirewatch.core.probe import NOT_KNOWN, Probed
from wirewatch.core.types import Absent
from wirewatch.documents.probes import refused
from wirewatch.probe.gate import GateFacts, Refusal, SkipReason, Stillness
from wirewatch.probe.setup import ProbeRequest, prepare, read_scene
from wirewatch.probe.workfolder import remove_left_folders
from wirewatch.signals import SIGNALS
from wirewatch.statefolder import StateError, StateFolder, open_state_for_command, state_directory
from wirewatch_lab.study.curve import AUTO, Configuration, KnownRates, known_rates
from wirewatch_lab.study.environment import capabilities, differences, environment, scout
from wirewatch_lab.study.grid import Capabilities, GridCurve, SweepOptions, make_grid
from wirewatch_lab.study.records import SCHEMA, Records, SweepFile, SweepHeader
from wirewatch_lab.study.sweep import (
    Batch,
    SweepEnd,
    SweepRun,
    SweepView,
    batches,
    start_seconds,
    usual_seconds,
)

STEPS = 1000
"""Of the bar, a second."""


class Wish(NamedTuple):
    """What a new sweep shall measure, and the seed of its order."""

    options: SweepOptions
    seed: int


class Allowed(NamedTuple):
    """What the gate gave."""

    hardware: Hardware
    order: Order
    facts: GateFacts


def measure(config: Config, file: SweepFile, wish: Wish | None, owner: str | None) -> SweepEnd | None:
    """Begin the sweep of a wish, or go on with that of the file.

    None, and the reason printed as of a probe, where the GPUs may not be had.

    Raises:
        UsageError: there is nothing to measure, or this is not the machine of the sweep.
        OSError: the file cannot be written.
    """
    options = wish.options if wish else file.records.header.options
    with _permitted(config, options, owner) as allowed:
        return None if allowed is None else _run(config, allowed, file, wish)


@contextmanager
def _permitted(config: Config, options: SweepOptions, owner: str | None) -> Iterator[Allowed | None]:
    """The GPUs while the lock of probes is held."""
    remove_left_folders()
    engine = options.engine or config.probe.engine
    ranks = max(options.ranks, default=config.probe.ranks)
    probing = replace(config.probe, engine=engine, ranks=ranks, settle=0.0)  # type: ignore[arg-type]
    with ExitStack() as stack:
        hardware, nvml = live(config, state=_state(config))
        stack.callback(nvml.stop)
        other = stack.enter_context(hardware.probe.lock())
        wanted = ProbeRequest(probing, "command", expectations(config).nvlink_links, owner)
        prepared = prepare(hardware, wanted, Stillness())
        order = prepared.order if other is None else Refusal(SkipReason.LOCKED, other)
        if isinstance(order, Refusal):
            text = probe_tables(refused(order, hardware.clock.now()), explain=False)
            click.echo(shown(text.split("\n")))
            yield None
        else:
            yield Allowed(hardware, order, prepared.facts)


def _state(config: Config) -> StateFolder | None:
    """The state folder, for the lock alone."""
    try:
        return open_state_for_command(state_directory(config.state.directory))
    except StateError as error:
        click.echo(f"wirewatch: {error}; no lock is respected", err=True)
        return None


def _run(config: Config, allowed: Allowed, file: SweepFile, wish: Wish | None) -> SweepEnd:
    """From a first worker, which shows what is here, to the end of the last one."""
    ended: list[str] = []

    def stop() -> str | None:
        return ended[0] if ended else None

    with SIGNALS.taken(stop=lambda name: ended.append(f"ended by {name}"), reload=lambda: None):
        options = wish.options if wish else file.records.header.options
        scouted = scout(allowed.hardware, replace(allowed.order, withdrawn=stop), options)
        if scouted.outcome != "ok":
            gave_way = scouted.outcome == "preempted"
            return SweepEnd("stopped" if ended else "gave_way" if gave_way else "failed", scouted.why)
        here = environment(allowed.hardware, allowed.order, scouted)
        if wish is not None:
            file.begin(_header(config, allowed, scouted, here, wish))
        elif other := differences(file.records.header.environment, here):
            raise click.UsageError(f"what was measured there would mix with what is here: {other}")
        with _shown_progress(file.records) as progress:
            view = SweepView(progress.began, progress.measured, stop)
            return SweepRun(allowed.hardware, allowed.order, file, view).run()


def _header(
    config: Config, allowed: Allowed, scouted: Probed, here: dict[str, str], wish: Wish
) -> SweepHeader:
    """Raises UsageError when nothing of what was asked for exists here."""
    options = replace(wish.options, engine=allowed.order.plan.engine)
    reserve = config.probe.free_bytes
    can = capabilities(allowed.hardware, allowed.order, allowed.facts, scouted, options, reserve)
    grid = make_grid(options, can)
    if not grid.curves:
        raise click.UsageError(f"nothing of that exists here: {'; '.join(grid.not_offered)}")
    at = allowed.hardware.clock.now()
    known = tuple(_known(config, allowed, can, grid.curves))
    return SweepHeader(
        SCHEMA, __version__, at, wish.seed, options, here, grid.curves, grid.not_offered, known
    )


def _known(
    config: Config, allowed: Allowed, can: Capabilities, curves: Sequence[GridCurve]
) -> Iterator[KnownRates]:
    """What the wires of the first GPUs should give, for each operation and number of them."""
    order, sizes = allowed.order, {size for curve in curves for size in curve.sizes}
    if not order.gpus:
        return
    for op, ranks in dict.fromkeys((curve.op, curve.configuration.ranks) for curve in curves):
        scene = read_scene(
            allowed.hardware, order.gpus[:ranks], order.settings, expectations(config), config.probe.pins
        )
        if not isinstance(scene, Absent) and len(scene.conditions) == 1:
            multicast = NOT_KNOWN if can.multicast is None else can.multicast
            yield known_rates(replace(scene.conditions[0], multicast=multicast), op, sizes)


class Progress:
    """How far a sweep has got, in the seconds that its launches, bytes and starts of workers usually take."""

    def __init__(self, records: Records) -> None:
        header = records.header
        left = batches(header, records.left())
        self._start = start_seconds(header.options.engine)
        self._workers = len(left)
        self.total = usual_seconds(header, records.left()) + self._start * self._workers
        self._done, self._begun, self._starting = 0.0, 0, 0.0
        self._since = time.monotonic()
        self.text = ""

    def began(self, batch: Batch) -> None:
        """A worker starts."""
        self._begun += 1
        self._starting += self._start
        repeat = f"repeat {batch.repeat + 1}"
        self.text = f"{repeat}, {describe(batch.configuration)}, worker {self._begun} of {self._workers}"
        self.show(0.0)

    def measured(self, seconds: float) -> None:
        """What usually takes so many seconds is done."""
        step, self._starting = seconds + self._starting, 0.0
        self._done += step
        self.show(step)

    def show(self, step: float) -> None:
        """A line for each worker; `step`: usual seconds that are done."""
        if not step:
            click.echo(f"{self.text}{self._time_left()}", err=True)

    def _time_left(self) -> str:
        """The time of what is left, at the pace so far."""
        if not self._done:
            return ""
        left = (time.monotonic() - self._since) * (self.total / self._done - 1)
        return f", {left / 60:.0f} min left" if left >= 60 else f", {max(0.0, left):.0f} s left"  # noqa: PLR2004


class Bar(Progress):
    """The same as a bar, on a terminal."""

    def __init__(self, records: Records) -> None:
        super().__init__(records)
        length = max(1, round(self.total * STEPS))
        self.bar = click.progressbar(
            length=length, file=sys.stderr, item_show_func=lambda text: text, update_min_steps=1
        )

    def show(self, step: float) -> None:
        self.bar.update(round(step * STEPS), self.text)


@contextmanager
def _shown_progress(records: Records) -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield Progress(records)
        return
    bar = Bar(records)
    with bar.bar:
        yield bar


def describe(configuration: Configuration) -> str:
    """A configuration in a few words."""
    words = [configuration.algorithm, configuration.protocol]
    chosen = [word for word in words if word != AUTO] or [AUTO]
    chosen += ["registered"] if configuration.registered else []
    chosen += ["=".join(pair) for pair in configuration.settings]
    return f"{configuration.ranks} ranks {' '.join(chosen)}"
