"""Keeps latches.json up to date, off the event loop: a disk that hangs holds up nobody."""

import logging
from dataclasses import replace
from pathlib import Path

from wirewatch.core.ports import Clock
from wirewatch.daemon.lane import Lane
from wirewatch.daemon.latches import save
from wirewatch.verdict.ledger import Ledger

log = logging.getLogger(__name__)

EVERY = 600.0
"""Seconds after which what only counts on is written; a crash may lose so much of a probation."""


class Keeper:
    """Writes each ledger that says something new; of the event loop alone.

    Args:
        path: the file, None to keep nothing.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._lane = Lane("state") if path else None
        self._newest = Ledger()
        self._written: object = None
        self._at = clock.mono()
        self._wrong = ""

    def changed(self, ledger: Ledger) -> None:
        """A new ledger is there."""
        self._newest = ledger
        told, mono = _essence(ledger), self._clock.mono()
        counting = bool(ledger.entries) and mono - self._at >= EVERY
        if self._lane is not None and (told != self._written or counting):
            # Before the first one there is nothing to write, unless something is remembered.
            first, self._written, self._at = self._written is None, told, mono
            if not first or ledger.entries:
                self._lane.submit(self._save)

    def _save(self) -> None:
        if self._path is None:
            return
        wrong = save(self._path, self._newest, self._clock.now())
        if wrong and wrong != self._wrong:
            log.error("%s: what is remembered of faults would be lost with a restart", wrong)
        if not wrong and self._wrong:
            log.info("%s is written again", self._path)
        self._wrong = wrong


def _essence(ledger: Ledger) -> object:
    """All but what merely counts on."""
    entries = tuple(replace(e, absent=0.0, mono=None, last=0.0, evidence="") for e in ledger.entries.values())
    return (ledger.boot, ledger.gpus, entries, tuple(ledger.suppressions.values()))
