"""Orders of an operator, carried out: findings acknowledged or suppressed, and topologies accepted."""

import logging
from collections.abc import Callable, Sequence

from wirewatch.core.ports import Clock
from wirewatch.core.types import Health
from wirewatch.daemon.baselines import BaselineStore
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
EARLY = ("the daemon has just begun",)
Change = Callable[[Judged, Standing, FindingOrder, VerdictPolicy, Now], Ledger]


class FindingOrders:
    """Changes the ledger of the board as an operator orders; only the event loop uses it."""

    def __init__(self, board: Board, clock: Clock) -> None:
        self._board, self._clock = board, clock

    def carry_out(self, name: str, order: FindingOrder) -> FindingsDocument:
        """Carry out an order about the finding with the id `name`; returns all findings afterwards.

        Raises:
            OrderError: the order cannot be carried out.
        """

        def change(node: Judged, policy: VerdictPolicy, now: Now) -> Ledger:
            return CHANGES[order.order](node, pick(node.verdict, name), order, policy, now)

        document = findings(self._board.order(change), self._clock.now())
        log.info("%s: %s %s: %s", order.by, order.order, name, order.why)
        return document


class TopologyOrders:
    """Changes the baseline as an operator orders, and says when it may be learned."""

    def __init__(self, store: BaselineStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._board: Board | None = None
        self._poll: Callable[[], None] = lambda: None

    def attach(self, board: Board, poll: Callable[[], None]) -> None:
        """Set the board, and `poll`, which lets all collectors run."""
        self._board, self._poll = board, poll

    def troubles(self) -> Sequence[str]:
        """The rules of all findings but those of drift itself; safe from any thread."""
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
        """Accept the present topology, or one change of it, as the baseline; event loop only.

        Raises:
            OrderError: the order cannot be carried out.
        """
        component = None if self._board is None else self._board.state.components.get(NAME)
        state = component.memory if component is not None else None
        if not isinstance(state, DriftMemory):
            raise OrderError("the topology is not compared with anything here: [drift] is switched off")
        if state.foreign and state.read is not None:
            # The file of the other node is put aside before a new one takes its place.
            self._store.reject(state.read, state.foreign)
        word, kept = Statement(order.by, order.why, self._clock.now()), self._store.baseline
        if not order.change:
            made = accept_all(state.watch, word)
        elif kept is None:
            made = f"there is no baseline yet: {state.watch.learning}"
        else:
            made = accept_one(kept, state.watch, order.change, word)
        if isinstance(made, str):
            raise OrderError(made)
        if not self._store.put(made, kept):
            raise OrderError("the baseline changed at this very moment: read it again")
        log.info("%s accepted %s: %s", order.by, order.change or "the topology as it is", order.why)
        self._poll()
        return drift_of(state.watch, made, self._clock.now())


def _acknowledge(
    node: Judged, one: Standing, order: FindingOrder, _policy: VerdictPolicy, now: Now
) -> Ledger:
    return acknowledge(node.ledger, one, Statement(order.by, order.why, now.at), now.mono)


def _suppress(node: Judged, one: Standing, order: FindingOrder, policy: VerdictPolicy, now: Now) -> Ledger:
    if order.until is None:
        raise OrderError("the order says not until when")
    return suppress(node.ledger, one, order.until, Statement(order.by, order.why, now.at), policy)


def _unsuppress(
    node: Judged, one: Standing, _order: FindingOrder, _policy: VerdictPolicy, _now: Now
) -> Ledger:
    return unsuppress(node.ledger, one)


CHANGES: dict[str, Change] = {"ack": _acknowledge, "suppress": _suppress, "unsuppress": _unsuppress}
