"""Orders of an operator, carried out: findings acknowledged or suppressed, and topologies accepted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from wirewatch.core.collector import Component
from wirewatch.core.ports import Clock
from wirewatch.core.types import Failed, Health, OperatorNote
from wirewatch.daemon.baselines import BaselineStore
from wirewatch.daemon.board import Board
from wirewatch.documents.drift import AcceptOrder, DriftDocument, drift_of
from wirewatch.documents.judged import findings
from wirewatch.documents.state import FindingsDocument
from wirewatch.server.control import FindingOrder
from wirewatch.verdict.drift.baseline import NOT_POLLED, Baseline, findings_hold
from wirewatch.verdict.drift.change import severity
from wirewatch.verdict.drift.component import NAME, DriftMemory, keep
from wirewatch.verdict.drift.watch import accept_all, accept_one, name_of, standing
from wirewatch.verdict.ledger import Ledger, Now, VerdictPolicy
from wirewatch.verdict.node import LIVE, Judged, Standing, troubles
from wirewatch.verdict.orders import OrderError, acknowledge, pick, suppress, unsuppress

log = logging.getLogger(__name__)
WITHIN = 8.0
"""Seconds for the reading that an order is carried out on; `wirewatch topology accept` waits 10 s."""
_SHOWN = 3
"""How many doubts a refusal names."""
_FAULTY = frozenset({Health.DEGRADED, Health.FAILED})
_OFF = "the topology is not compared with anything here: [drift] is switched off"


class FindingOrders:
    """Changes the board's ledger as an operator orders; `acknowledged` gets each acknowledged finding."""

    def __init__(
        self, board: Board, clock: Clock, acknowledged: Callable[[Standing], None] = lambda _: None
    ) -> None:
        self._board, self._clock, self._acknowledged = board, clock, acknowledged

    def carry_out(self, name: str, order: FindingOrder) -> FindingsDocument:
        """Carry out an order about a finding; returns all findings afterwards, or raises OrderError."""
        acknowledged = pick(self._board.node.verdict, name) if order.order == "ack" else None
        document = findings(self._board.order(partial(_ordered, name, order)), self._clock.now())
        if acknowledged is not None:
            self._acknowledged(acknowledged)
        log.info("%s: %s %s: %s", order.by, order.order, name, order.why)
        return document


class TopologyOrders:
    """Changes the baseline as an operator orders, and says when it may be learned."""

    def __init__(self, store: BaselineStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._board: Board | None = None
        self._poll: Callable[[], None] = lambda: None
        self._reading: Callable[[str], Awaitable[None]] | None = None
        self._forget: Callable[[], None] = lambda: None

    def attach(
        self, board: Board, poll: Callable[[], None], reading: Callable[[str], Awaitable[None]],
        forget: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Set the board and the orders to collectors.

        `poll` runs them all, `reading` waits for one to end, `forget` has them forget lost parts first.
        """
        self._board, self._poll, self._reading, self._forget = board, poll, reading, forget

    def troubles(self) -> Sequence[str]:
        """The rules of all findings but those of drift itself; safe from any thread."""
        board = self._board
        if board is None or not board.first_polls_done():
            return (NOT_POLLED,)
        return troubles(board.node.verdict, NAME)

    def node(self) -> Judged | None:
        """The state and its verdict as published now; None before there is one. Safe from any thread."""
        return None if self._board is None else self._board.node

    async def accept(self, order: AcceptOrder) -> DriftDocument:
        """Accept the topology, or one change of it, as the baseline; event loop only.

        The topology is that of a reading which begins after the order. With it as a whole, collectors forget
        what was taken out. Raises OrderError where it cannot be carried out, or not without `yes`.
        """
        state = await self._state_now()
        keep(self._store, state)
        word, kept = OperatorNote(order.by, order.why, self._clock.now()), self._store.baseline
        made = _accepted(order, state, kept, word)
        if isinstance(made, str):
            raise OrderError(made)
        doubts = [] if order.yes else [*_losses(order, state, kept), *self._doubts(order, state)]
        if doubts:
            more = f"; and {len(doubts) - _SHOWN} more" if len(doubts) > _SHOWN else ""
            raise OrderError(f"{'; '.join(doubts[:_SHOWN])}{more}: if it was meant, order it with --yes")
        if not self._store.put(made, kept):
            raise OrderError("the baseline changed at this very moment: read it again")
        log.info("%s accepted %s: %s", order.by, order.change or "the topology as it is", order.why)
        if not order.change:
            self._forget()
        self._poll()
        return drift_of(state.watch, made, self._clock.now())

    async def _state_now(self) -> DriftMemory:
        if self._reading is None or not isinstance(self._memory(), DriftMemory):
            raise OrderError(_OFF)
        try:
            async with asyncio.timeout(WITHIN):
                await self._reading(NAME)
        except TimeoutError as error:
            raise OrderError(f"the topology could not be read within {WITHIN:g} s") from error
        component, state = self._component(), self._memory()
        if component is not None and isinstance(component.outcome, Failed):
            raise OrderError(f"the topology cannot be read now: {component.outcome.absent}")
        if not isinstance(state, DriftMemory):
            raise OrderError(_OFF)
        return state

    def _doubts(self, order: AcceptOrder, state: DriftMemory) -> Iterator[str]:
        """The doubts about accepting all that is here; one change is what the order names."""
        if self._board is None or order.change:
            return
        yield from findings_hold(
            one.finding.rule
            for one in self._board.node.verdict.standings
            if one.stage == LIVE and one.collector != NAME and one.finding.health in _FAULTY
        )
        yield from state.doubts

    def _component(self) -> Component | None:
        return None if self._board is None else self._board.state.components.get(NAME)

    def _memory(self) -> object:
        component = self._component()
        return None if component is None else component.memory


def _accepted(
    order: AcceptOrder, state: DriftMemory, kept: Baseline | None, word: OperatorNote
) -> Baseline | str:
    if not order.change:
        return accept_all(state.watch, word)
    if kept is None:
        return f"there is no baseline yet: {state.watch.learning}"
    return accept_one(kept, state.watch, order.change, word)


def _losses(order: AcceptOrder, state: DriftMemory, kept: Baseline | None) -> Iterator[str]:
    """Changes to be accepted by which the node has less than it had, so that no job may start."""
    for one in () if kept is None else standing(state.watch, kept):
        is_meant = not order.change or name_of(one.change) == order.change
        if is_meant and severity(one.change).health is Health.FAILED:
            yield one.change.text


def _ordered(name: str, order: FindingOrder, node: Judged, policy: VerdictPolicy, now: Now) -> Ledger:
    one, said = pick(node.verdict, name), OperatorNote(order.by, order.why, now.at)
    match order.order:
        case "ack":
            return acknowledge(node.ledger, one, said, now.mono)
        case "unsuppress":
            return unsuppress(node.ledger, one)
        case "suppress":
            if order.until is None:
                raise OrderError("the order says not until when")
            return suppress(node.ledger, one, order.until, said, policy, now.mono, although_failed=order.yes)
