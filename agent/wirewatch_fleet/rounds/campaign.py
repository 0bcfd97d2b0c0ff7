"""Repeats rounds until a verdict: asks the planner, runs on an engine, keeps the measurements."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from wirewatch_fleet.pairs.document import QUEUE_PAIRS, RoundsDocument, fleet_of, measured_of, rounds_document
from wirewatch_fleet.pairs.model import DEFAULT_LIMITS, MeasuredRound, PairLimits, PairRound, PairRun
from wirewatch_fleet.pairs.plan import PairsVerdict, next_step
from wirewatch_fleet.rounds.answer import failed_run, run_of
from wirewatch_fleet.rounds.engine import PairProgress, PairState, RoundEngine, RoundOrder
from wirewatch_fleet.rounds.plan import PairWork

POLL_SECONDS = 0.2
_FINAL = frozenset({PairState.DONE, PairState.FAILED})
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CampaignOptions:
    """Options of rounds. `seconds` and `patience` as in a `RoundOrder`."""

    work: PairWork
    seconds: float
    patience: float
    limits: PairLimits = DEFAULT_LIMITS


class CampaignView(Protocol):
    """A campaign's link to its caller: reports, time and stop requests."""

    def mono(self) -> float:
        """Return seconds of the monotonic clock."""
        ...

    def wait(self, seconds: float) -> None: ...

    def ended(self) -> bool:
        """Return whether to stop now, by Ctrl-C or SIGTERM."""
        ...

    def keep(self, made: RoundsDocument) -> None:
        """Keep the measurements after each round, replacing the earlier state atomically."""
        ...

    def began(self, order: RoundOrder) -> None: ...

    def measured(self, measured: MeasuredRound) -> None: ...


def order_of(planned: PairRound, options: CampaignOptions) -> RoundOrder:
    """Return the order for a planned round."""
    work = options.work
    if planned.queue_pairs:
        work = replace(work, environment={**work.environment, QUEUE_PAIRS: f"{planned.queue_pairs}"})
    return RoundOrder(planned.number, planned.pairs, work, options.seconds, options.patience, planned.purpose)


def planned_next(engine: RoundEngine, made: RoundsDocument, options: CampaignOptions) -> PairRound | None:
    """Return the next round, of members that are idle now; None for a verdict.

    Raises:
        RoundEngineError: it is not known who is idle.
    """
    idle = {one.name for one in engine.members() if not one.busy}
    step = next_step(fleet_of(made), measured_of(made), idle, options.limits, made.seed)
    return None if isinstance(step, PairsVerdict) else step.round


def run_rounds(
    engine: RoundEngine, made: RoundsDocument, options: CampaignOptions, view: CampaignView
) -> RoundsDocument:
    """Run rounds after `made` until nothing remains to be measured, and return all of them.

    An interrupted round is not kept: its jobs are cancelled, and it comes next again. After a round without
    any answer no round follows, since its cause would recur.

    Raises:
        RoundEngineError: the engine cannot be asked; nothing of it runs any more.
        OSError: what was measured cannot be kept.
    """
    while not view.ended() and (planned := planned_next(engine, made, options)) is not None:
        order = order_of(planned, options)
        view.began(order)
        try:
            engine.start(order)
            final = _await(engine, order, view)
            if final is None:
                break
            measured = MeasuredRound(planned, [_run_of(final[pair]) for pair in order.pairs])
            rounds = [*measured_of(made), measured]
            made = rounds_document(made.at, fleet_of(made), rounds, made.seed, made.work)
            # What was measured is kept before anything can go wrong with what is left of the round.
            view.keep(made)
        finally:
            engine.cancel()
        view.measured(measured)
        if not any(run.answered for run in measured.runs):
            break
    return made


def _await(engine: RoundEngine, order: RoundOrder, view: CampaignView) -> Mapping[Pair, PairProgress] | None:
    """Wait for the end of each pair, at the latest for its time limit; None when the campaign was ended."""
    began, running = view.mono(), dict[Pair, float]()
    final: dict[Pair, PairProgress] = {}
    while len(final) < len(order.pairs):
        if view.ended():
            return None
        told = {(one.first, one.second): one for one in engine.poll()}
        now = view.mono()
        for pair in order.pairs:
            one = told.get(pair, PairProgress(*pair, PairState.FAILED, "the engine does not know it"))
            if one.state is PairState.RUNNING:
                running.setdefault(pair, now)
            since = now - running.get(pair, began)
            late = _overdue(one, since, order)
            if pair not in final and (one.state in _FINAL or late):
                final[pair] = replace(one, state=PairState.FAILED, said=late) if late else one
        if len(final) < len(order.pairs):
            view.wait(POLL_SECONDS)
    return final


def _overdue(one: PairProgress, since: float, order: RoundOrder) -> str:
    """Return why a pair is given up, "" while it has time; `since`: seconds in its present state."""
    if one.state is PairState.WAITING and since > order.patience:
        return f"not admitted within {order.patience:g} s: {one.said or 'no reason given'}"
    if one.state is PairState.RUNNING and since > order.seconds:
        return f"no answer within {order.seconds:g} s"
    return ""


def _run_of(one: PairProgress) -> PairRun:
    if one.state is PairState.DONE:
        return run_of(one.first, one.second, one.said)
    return failed_run(one.first, one.second, one.said)
