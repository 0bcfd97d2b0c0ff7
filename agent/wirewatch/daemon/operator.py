"""What an operator says of findings, as it reaches the board."""

import logging
from collections.abc import Callable, Sequence

from wirewatch.core.ports import Clock
from wirewatch.core.types import Health
from wirewatch.daemon.baselines import Desk
from wirewatch.daemon.board import Board
from wirewatch.documents.drift import AcceptOrder, DriftDocument, drift_of
from wirewatch.documents.state import FindingsDocument, findings
from wirewatch.server.control import FindingOrder
from wirewatch.verdict.drift.component import NAME, DriftMemory
from wirewatch.verdict.drift.watch import accept_all, accept_one
from wirewatch.verdict.ledger import Ledger, Now, Statement, VerdictPolicy
from wirewatch.verdict.node import Judged, Standing
from wirewatch.verdict.orders import OrderError, acknowledge, pick, suppress, unsuppress

log = logging.getLogger(__name__)
Change = Callable[[Judged, Standing, FindingOrder, VerdictPolicy, Now], Ledger]


class Orders:
    """Changes the board's ledger on an operator's word; of the event loop alone."""

    def __init__(self, board: Board, clock: Clock) -> None:
        self._board, self._clock = board, clock

    def of_finding(self, name: str, order: FindingOrder) -> FindingsDocument:
        """All findings after the order.

        Raises:
            OrderError: it cannot be followed.
        """

        def change(node: Judged, policy: VerdictPolicy, now: Now) -> Ledger:
            return CHANGES[order.order](node, pick(node.verdict, name), order, policy, now)

        document = findings(self._board.order(change), self._clock.now())
        log.info("%s: %s %s: %s", order.by, order.order, name, order.why)
        return document


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
        if not isinstance(state, DriftMemory):
            raise OrderError("the topology is not compared with anything here: [drift] is switched off")
        if state.foreign and state.read is not None:
            # Its file is put aside before anything takes its place.
            self._desk.reject(state.read, state.foreign)
        word, kept = Statement(order.by, order.why, self._clock.now()), self._desk.baseline
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


def _acknowledge(
    node: Judged, one: Standing, order: FindingOrder, _policy: VerdictPolicy, now: Now
) -> Ledger:
    return acknowledge(node.ledger, one, Statement(order.by, order.why, now.at), now.mono)


def _suppress(node: Judged, one: Standing, order: FindingOrder, policy: VerdictPolicy, now: Now) -> Ledger:
    if order.until is None:
        raise OrderError("until when is not said")
    return suppress(node.ledger, one, order.until, Statement(order.by, order.why, now.at), policy)


def _unsuppress(
    node: Judged, one: Standing, _order: FindingOrder, _policy: VerdictPolicy, _now: Now
) -> Ledger:
    return unsuppress(node.ledger, one)


CHANGES: dict[str, Change] = {"ack": _acknowledge, "suppress": _suppress, "unsuppress": _unsuppress}
