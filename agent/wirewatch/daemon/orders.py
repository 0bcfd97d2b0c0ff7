"""What an operator says of findings, as it reaches the board."""

import logging
from collections.abc import Callable

from wirewatch.core.ports import Clock
from wirewatch.daemon.board import Board
from wirewatch.documents.state import FindingsDocument, findings
from wirewatch.server.control import FindingOrder
from wirewatch.verdict.ledger import Ledger, Now, VerdictPolicy, Word
from wirewatch.verdict.node import Judged, Standing
from wirewatch.verdict.orders import OrderError, acknowledge, pick, suppress, unsuppress

log = logging.getLogger(__name__)

Change = Callable[[Judged, Standing, FindingOrder, VerdictPolicy, Now], Ledger]


def _acknowledge(
    node: Judged, one: Standing, order: FindingOrder, _policy: VerdictPolicy, now: Now
) -> Ledger:
    return acknowledge(node.ledger, one, Word(order.by, order.why, now.at), now.mono)


def _suppress(node: Judged, one: Standing, order: FindingOrder, policy: VerdictPolicy, now: Now) -> Ledger:
    if order.until is None:
        raise OrderError("until when is not said")
    return suppress(node.ledger, one, order.until, Word(order.by, order.why, now.at), policy)


def _unsuppress(
    node: Judged, one: Standing, _order: FindingOrder, _policy: VerdictPolicy, _now: Now
) -> Ledger:
    return unsuppress(node.ledger, one)


CHANGES: dict[str, Change] = {"ack": _acknowledge, "suppress": _suppress, "unsuppress": _unsuppress}


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
