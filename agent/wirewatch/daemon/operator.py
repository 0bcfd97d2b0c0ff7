"""Orders of an operator, carried out: findings seen, repaired or suppressed, and topologies accepted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

from wirewatch.core.collector import Component
from wirewatch.core.ports import Clock
from wirewatch.core.types import Failed, Health, OperatorNote
from wirewatch.core.words import utc
from wirewatch.daemon.baselines import BaselineStore
from wirewatch.daemon.board import Board
from wirewatch.documents.drift import AcceptOrder, DriftDocument, drift_of
from wirewatch.documents.judged import findings
from wirewatch.documents.state import FindingsDocument
from wirewatch.server.control import FindingOrder
from wirewatch.verdict.drift.baseline import NOT_POLLED, Baseline, findings_hold
from wirewatch.verdict.drift.change import severity
from wirewatch.verdict.drift.component import NAME, DriftMemory, keep
from wirewatch.verdict.drift.watch import accept_all, accept_one, counting, take_back
from wirewatch.verdict.ledger import Ledger, Now, VerdictPolicy
from wirewatch.verdict.node import LIVE, Judged, Standing, judge_node, troubles
from wirewatch.verdict.orders import (
    GateGuard,
    OrderError,
    acknowledge,
    broken,
    end_of_repair,
    forget,
    gate,
    pick,
    repaired,
    seen_words,
    suppress,
    unsuppress,
)

log = logging.getLogger(__name__)
WITHIN = 8.0
"""Seconds for the reading that an order is carried out on; `wirewatch topology accept` waits 10 s."""
_FAULTY = frozenset({Health.DEGRADED, Health.FAILED})
_OFF = "the topology is not compared with anything here: [drift] is switched off"


class FindingOrders:
    """Changes the board's ledger as an operator orders; `repaired` gets each finding ordered as repaired."""

    def __init__(
        self, board: Board, clock: Clock, repaired: Callable[[Standing], None] = lambda _: None
    ) -> None:
        self._board, self._clock, self._repaired = board, clock, repaired

    def carry_out(self, name: str, order: FindingOrder) -> FindingsDocument:
        """Carry out an order about a finding; returns all findings afterwards, or raises OrderError."""
        mended = pick(self._board.node.verdict, name) if order.order == "repaired" else None
        done: list[str] = []

        def changed(node: Judged, policy: VerdictPolicy, now: Now) -> Ledger:
            ledger, said = _ordered(name, order, node, policy, now)
            done.append(said)
            return ledger

        node = self._board.order(changed)
        if mended is not None:
            self._repaired(mended)
        log.info("%s: %s %s: %s", order.by, order.order, name, order.why)
        return findings(node, self._clock.now(), *done)


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

        `poll` runs all collectors, `reading` waits for a given run, `forget` drops lost parts first.
        """
        self._board, self._poll, self._reading, self._forget = board, poll, reading, forget

    def troubles(self) -> Sequence[str]:
        """Return the rules of all findings except drift's own; safe from any thread."""
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
        lost = () if kept is None else tuple(
            one.text for one in counting(state.watch, kept, made) if severity(one).health is Health.FAILED
        )  # fmt: skip
        if not order.change and not order.undo:
            made = replace(made, without=lost, before=None if kept is None else replace(kept, before=None))
        said = GateGuard(lost, *_effect(order, kept), tuple(self._doubts(order, state))).guard(yes=order.yes)
        if not self._store.put(made, kept):
            raise OrderError("the baseline changed at this very moment: read it again")
        verb = "took back" if order.undo else "accepted"
        log.info("%s %s %s: %s", order.by, verb, order.change or "the topology as a whole", order.why)
        if not order.change and not order.undo:
            self._forget()
        self._poll()
        return replace(drift_of(state.watch, made, self._clock.now()), said=said)

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
        if self._board is None or order.change or order.undo:
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
    if not order.change and not order.undo:
        return accept_all(state.watch, word)
    if kept is None:
        return f"there is no baseline yet: {state.watch.learning}"
    if order.undo:
        return take_back(kept, order.change)
    return accept_one(kept, state.watch, order.change, word)


def _effect(order: AcceptOrder, kept: Baseline | None) -> tuple[str, str]:
    """Say in words what the order does, and how to take it back."""
    what = f"change {order.change}" if order.change else "the baseline before this one"
    if order.undo:
        return f"{what} {'counts again' if order.change else 'holds again'}", "accept it again to undo that"
    undo = (
        f"wirewatch topology accept {order.change} --undo"
        if order.change
        else "wirewatch topology accept --undo"
    )
    taken = f"`{undo}` takes this back" if order.change or kept else "it is the first baseline"
    kept_away = "keeps no job away any more"
    return f"{what if order.change else 'what the node lacks now'} {kept_away}", taken


def _ordered(
    name: str, order: FindingOrder, node: Judged, policy: VerdictPolicy, now: Now
) -> tuple[Ledger, str]:  # fmt: skip
    """The ledger with the order, and what that does, in words; OrderError where it cannot be."""
    if order.order == "unrepaired":
        return broken(node.ledger, name), "it counts as it did before it was said to be repaired"
    one, said = pick(node.verdict, name), OperatorNote(order.by, order.why, now.at)
    match order.order:
        case "ack":
            return acknowledge(node.ledger, one, said), seen_words(one, node.verdict)
        case "unack":
            return forget(node.ledger, one), f"{one.id} is not acknowledged any more: reminders go on"
        case "unsuppress":
            return unsuppress(node.ledger, one), f"{one.id} counts again"
        case "repaired":
            ledger = repaired(node.ledger, one, said, now.mono)
            end = end_of_repair(ledger, one, policy)
        case "suppress":
            if order.until is None:
                raise OrderError("the order says not until when")
            ledger = suppress(node.ledger, one, order.until, said, policy, now.mono)
            end = f"until {utc(order.until)}, or `wirewatch findings unsuppress {one.id}`, or it gets worse"
    after = judge_node(node.state, ledger, policy.failing())
    return ledger, gate(one, node.verdict, after, end).guard(yes=order.yes)
