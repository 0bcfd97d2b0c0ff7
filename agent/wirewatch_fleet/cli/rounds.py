"""The running of `wirewatch fleet probe`: what it says before, what it tells meanwhile, what it keeps."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from wirewatch.cli.output import write_whole
from wirewatch.core.hostlist import compact
from wirewatch.core.words import first
from wirewatch.core.words import size as human
from wirewatch.core.words import utc
from wirewatch.signals import SIGNALS
from wirewatch_fleet.pairs.document import ROUNDS, RoundsDocument
from wirewatch_fleet.pairs.model import MeasuredRound, PairRound
from wirewatch_fleet.rounds.campaign import CampaignOptions, order_of, run_rounds
from wirewatch_fleet.rounds.engine import PairNode, RoundEngine, RoundOrder

LISTED = 8


@dataclass(frozen=True, slots=True)
class Announced:
    """All that is known before anything runs; `planned` None: nothing is left to measure."""

    engine: RoundEngine
    nodes: Sequence[PairNode]
    made: RoundsDocument
    options: CampaignOptions
    planned: PairRound | None
    results: Path


def announce(known: Announced) -> Iterator[str]:
    """What would run where, how long at most, and what it holds."""
    members = [one.name for one in known.made.members]
    leafs = len({one.leaf for one in known.made.members if one.leaf})
    yield f"{len(members)} nodes{f' in {leafs} leafs' if leafs else ''}: {compact(members)}"
    busy = [f"{one.name} ({one.busy})" for one in known.nodes if one.busy]
    if busy:
        yield f"not idle, in no pair: {first(busy, LISTED)}"
    if known.made.rounds:
        count = len(known.made.rounds)
        these = "1 round is" if count == 1 else f"{count} rounds are"
        yield f"{these} in {known.results} already, from {utc(known.made.at)} on; another file begins afresh"
    if known.planned is None:
        yield "nothing is left to measure"
        return
    yield _work(known.options)
    yield from known.engine.describe(order_of(known.planned, known.options))
    planned, pairs = known.planned, [f"{a} with {b}" for a, b in known.planned.pairs]
    yield f"round {planned.number} ({planned.purpose}), {len(pairs)} pairs: {first(pairs, LISTED)}"
    yield _most(known, len(members))
    yield f"results: {known.results}"


def _work(options: CampaignOptions) -> str:
    work = options.work
    rails = ", " if work.ranks == 1 else f" on each of {work.ranks} rails, on all at once, "
    what = "processes" if work.engine == "gloo" else "GPUs"
    return (
        f"each pair sends {human(work.size_bytes)} each way{rails}then an all_reduce, by {work.engine}: "
        f"{work.seconds:g} s at most on 2 x {work.ranks} {what}"
    )


def _most(known: Announced, members: int) -> str:
    options = known.options
    left = max(0, options.limits.most - len(known.made.rounds))
    seconds = left * (options.patience + options.seconds)
    held = left * members * options.work.gpus * options.work.seconds
    gpus = f", {held:,.0f} GPU-seconds" if options.work.gpus else ", no GPU"
    return (
        f"at most {left} rounds, each {options.patience:g} s to be admitted, {options.seconds:g} s to run: "
        f"{math.ceil(seconds / 60)} min{gpus}; mostly {min(left, options.limits.first)} rounds and small ones"
    )


@dataclass
class ShownCampaign:
    """Tells each round on standard error, and keeps it in the file."""

    results: Path
    ended_by: list[str] = field(default_factory=list)
    _since: float = 0.0

    def mono(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def ended(self) -> bool:
        return bool(self.ended_by)

    def keep(self, made: RoundsDocument) -> None:
        write_whole(self.results, ROUNDS.dump_json(made, indent=1).decode() + "\n")

    def began(self, order: RoundOrder) -> None:
        self._since = self.mono()
        click.echo(f"round {order.number}: {len(order.pairs)} pairs", err=True)

    def measured(self, measured: MeasuredRound) -> None:
        answered = sum(run.answered for run in measured.runs)
        seconds = self.mono() - self._since
        click.echo(f"  {answered} of {len(measured.runs)} answered, {seconds:.0f} s", err=True)
        for run in measured.runs:
            if run.failed:
                click.echo(f"  {run.first} with {run.second}: {run.failed}", err=True)


def run_and_keep(
    engine: RoundEngine, made: RoundsDocument, options: CampaignOptions, results: Path
) -> tuple[RoundsDocument, str | None]:
    """Run to the verdict or to a signal; what was measured, and by what it was ended.

    Raises:
        RoundEngineError: the engine does not answer.
        UsageError: the results cannot be kept.
    """
    view = ShownCampaign(results)
    with SIGNALS.taken(stop=view.ended_by.append, reload=lambda: None):
        try:
            view.keep(made)
            made = run_rounds(engine, made, options, view)
        except OSError as error:
            raise click.UsageError(f"{results}: {error.strerror or error}") from error
    return made, f"ended by {view.ended_by[0]}" if view.ended_by else None
