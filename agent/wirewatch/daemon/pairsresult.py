"""The result of pairs of nodes about this node: taken by order, kept in the state folder."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from wirewatch.core.ports import Clock
from wirewatch.daemon.board import Board
from wirewatch.daemon.persistence import StateFile, StateWriter, write
from wirewatch.documents.judged import findings
from wirewatch.documents.pairsorder import PairsOrder
from wirewatch.documents.state import FindingsDocument
from wirewatch.verdict import pairs
from wirewatch.verdict.node import Standing
from wirewatch.verdict.orders import OrderError
from wirewatch.verdict.pairs import NAME, HeldResult, PairsMemory, PairsResult

log = logging.getLogger(__name__)
VERSION = 1
WITHIN = 8.0
"""Seconds until the finding must be there; `wirewatch fleet tell` waits 10 s."""


@dataclass(frozen=True, slots=True)
class PairsResultFile:
    """The file's content; `at`: when it was written (Unix seconds)."""

    version: int
    at: float
    result: PairsResult


FILE = StateFile(
    TypeAdapter(PairsResultFile), lambda one: (one.at, *(part.at for part in one.result.parts)),
    lambda one: pairs.unfit(one.result), limit=1 << 20, version=VERSION,
)  # fmt: skip


class PairsResultStore:
    """The result that holds now, kept in `path` if given; lanes read it, the event loop changes it."""

    def __init__(self, path: Path | None, clock: Clock, loaded: HeldResult = pairs.NOTHING_HELD) -> None:
        self._clock = clock
        self._held = loaded
        loss = "what pairs of nodes found out about this node would be lost with a restart"
        self._writer = StateWriter(path, self._save, loss, clock)
        self.flush, self.submit = self._writer.flush, self._writer.submit

    @property
    def result(self) -> PairsResult | None:
        """The result that holds; None where none was reported."""
        return self._held.result

    @property
    def trouble(self) -> str:
        """Return why what was kept cannot be used; empty where it can."""
        return self._held.trouble

    def put(self, result: PairsResult) -> None:
        """Have this hold from now on."""
        self._held = HeldResult(result)
        self._writer.submit()

    def _save(self, path: Path) -> str:
        result = self._held.result
        if result is None:
            return ""
        return write(path, FILE.encoded(PairsResultFile(VERSION, self._clock.now(), result)))


class PairsOrders:
    """Takes results and drops repaired parts; `reading` runs collectors and waits for the named."""

    def __init__(
        self, store: PairsResultStore, board: Board, clock: Clock, reading: Callable[[str], Awaitable[None]]
    ) -> None:
        self._store, self._board, self._clock, self._reading = store, board, clock, reading

    async def tell(self, order: PairsOrder) -> FindingsDocument:
        """Take a result; returns all findings afterwards. The same result again changes nothing.

        Raises OrderError: it cannot be meant, is older than another, or of the future.
        """
        component = self._board.state.components.get(NAME)
        if component is None or not isinstance(component.memory, PairsMemory):
            raise OrderError("this node takes no results of pairs of nodes: [pairs] is switched off")
        known, new = self._store.result, order.result
        if wrong := pairs.unfit(new) or self._untimely(known, new, component.memory.lasts):
            raise OrderError(wrong)
        if known is None or new.at > known.at:
            self._store.put(pairs.after(known, new))
            slow = f"{len(new.parts)} parts are slow" if new.parts else "nothing is slow"
            log.info("%s: pairs of nodes: as %s, %s", order.by, new.member, slow)
            try:
                async with asyncio.timeout(WITHIN):
                    await self._reading(NAME)
            except TimeoutError as error:
                raise OrderError(f"it is kept, but was not judged within {WITHIN:g} s") from error
        return findings(self._board.node, self._clock.now())

    def repaired(self, standing: Standing) -> None:
        """Forget what an operator says is over: it would be found again for as long as it is kept."""
        known = self._store.result
        if known is not None and standing.collector == NAME:
            self._store.put(pairs.without(known, standing.key))

    def _untimely(self, known: PairsResult | None, new: PairsResult, lasts: float) -> str:
        now = self._clock.now()
        if new.at > now + pairs.LATER:
            return f"it was measured {new.at - now:.0f} s in the future: look at the clocks"
        if now - new.at >= lasts:
            return f"it is older than {lasts / 3600:g} hours ([policy.pairs] lasts)"
        if known is not None and new.at < known.at:
            return f"a newer result is known here, which was measured {known.at - new.at:.0f} s later"
        return ""


def read_result(path: Path, own_at: float | None = None) -> HeldResult:
    """Return what the file holds; `own_at` as `StateFile.read` has it."""
    kept = FILE.read(path, own_at)
    return HeldResult(None, kept) if isinstance(kept, str) else HeldResult(kept.result if kept else None)
