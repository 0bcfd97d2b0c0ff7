"""The baseline of the topology between its component, its file, and the operator who accepts changes."""

import logging
from collections.abc import Callable, Sequence

from wirewatch.core.ports import Clock
from wirewatch.core.types import Health
from wirewatch.daemon.baselines import Desk
from wirewatch.daemon.board import Board
from wirewatch.documents.drift import AcceptOrder, DriftDocument, drift_of
from wirewatch.verdict.drift.component import NAME, State
from wirewatch.verdict.drift.watch import accept_all, accept_one
from wirewatch.verdict.ledger import Word
from wirewatch.verdict.orders import OrderError

log = logging.getLogger(__name__)

EARLY = ("the daemon has just begun",)


class Topologies:
    """What the component asks of the daemon, and what an operator tells it (of the event loop alone)."""

    def __init__(self, desk: Desk, clock: Clock) -> None:
        self._desk, self._clock = desk, clock
        self._board: Board | None = None
        self._look: Callable[[], None] = lambda: None

    def attach(self, board: Board, look_again: Callable[[], None]) -> None:
        """From now on the board is known; `look_again` lets all collectors run."""
        self._board, self._look = board, look_again

    def troubles(self) -> Sequence[str]:
        """Rules of all that is wrong on the node but for drift itself; safe from any thread."""
        board = self._board
        if board is None or not board.first_polls_done():
            return EARLY
        standings = board.node.verdict.standings
        return tuple(
            one.finding.rule
            for one in standings
            if one.takes_part and one.collector != NAME and one.finding.health != Health.OK
        )

    def accept(self, order: AcceptOrder) -> DriftDocument:
        """What is there now, or one change of it, is right from now on.

        Raises:
            OrderError: it cannot be followed.
        """
        component = None if self._board is None else self._board.state.components.get(NAME)
        state = component.memory if component is not None else None
        if not isinstance(state, State):
            raise OrderError("the topology is not compared with anything here: [drift] is switched off")
        if state.foreign and state.read is not None:
            # Its file is put aside before anything takes its place.
            self._desk.reject(state.read, state.foreign)
        word, kept = Word(order.by, order.why, self._clock.now()), self._desk.baseline
        if not order.change:
            made = accept_all(state.watch, word)
        elif kept is None:
            made = f"there is no baseline yet: {state.watch.learning}"
        else:
            made = accept_one(kept, state.watch, order.change, word)
        if isinstance(made, str):
            raise OrderError(made)
        if not self._desk.put(made, kept):
            raise OrderError("the baseline changed at this very moment: look at it again")
        log.info("%s accepted %s: %s", order.by, order.change or "the topology as it is", order.why)
        self._look()
        return drift_of(state.watch, made, self._clock.now())
