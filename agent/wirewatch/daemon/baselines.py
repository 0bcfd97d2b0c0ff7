"""The baseline that holds now, for all threads; written off them: a disk that hangs holds up nobody."""

import logging
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from wirewatch.core.ports import Clock
from wirewatch.daemon.baselinefile import Loaded, load, save
from wirewatch.daemon.statefile import put_aside
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch.verdict.drift.graph import Graph

__all__ = ["Desk", "Loaded", "foreign", "load", "save"]

log = logging.getLogger(__name__)

AGAIN = 60.0
"""Seconds after which what could not be written is tried again."""
NOTHING = Loaded(None)


def foreign(baseline: Baseline, graph: Graph) -> str:
    """In words why the baseline is another node's: both name GPUs, none is the same. Else empty."""
    theirs, ours = ({gpu.name for gpu in one.gpus if gpu.name} for one in (baseline.graph, graph))
    if not theirs or not ours or theirs & ours:
        return ""
    return f"its GPUs are none of this node's: {', '.join(f'...{name[-4:]}' for name in sorted(theirs))}"


@dataclass(frozen=True, slots=True)
class _Held:
    """`kept`: what became of the file that was rejected."""

    baseline: Baseline | None
    trouble: str
    kept: str = ""


class Desk:
    """Holds the baseline; for any thread, and nothing waits for the disk but `flush`.

    Args:
        path: the file, None to keep nothing.
        loaded: what was in it. What `load` could not move away is not overwritten until it can be.
    """

    def __init__(self, path: Path | None, clock: Clock, loaded: Loaded = NOTHING) -> None:
        self._path, self._clock = path, clock
        self._held = _Held(loaded.baseline, loaded.trouble)
        self._turn = threading.Condition()
        """Held for assignments only."""
        self._due = self._busy = False
        self._in_the_way = bool(loaded.trouble)
        self._wrong = ""

    @property
    def baseline(self) -> Baseline | None:
        return self._held.baseline

    @property
    def trouble(self) -> str:
        """In words why there is no baseline though there was one; empty if that is not so."""
        held = self._held
        return f"{held.trouble}; {held.kept}" if held.kept else held.trouble

    def put(self, baseline: Baseline, over: Baseline | None) -> bool:
        """This holds from now on, if `over` is what holds; whether it is.

        Of several in a row the file may get the last alone.
        """
        with self._turn:
            if self._held.baseline is not over:
                return False
            self._held = _Held(baseline, "")
            self._wake()
        if over is not None and (over.graph, over.said) == (baseline.graph, baseline.said):
            for one in set(over.accepted) - set(baseline.accepted):
                log.info("not accepted any more, since it is as before: %s", one.text)
        return True

    def reject(self, baseline: Baseline, trouble: str) -> None:
        """This one is another node's: if it holds, there is none from now on, and the file is put aside.

        Once it is, `trouble` ends with the name that it is kept under.
        """
        with self._turn:
            if self._held.baseline is not baseline:
                return
            self._held = _Held(None, trouble)
            self._in_the_way = True
            self._wake()

    def flush(self, seconds: float) -> bool:
        """Wait until all is written, so long at most; whether it is."""
        with self._turn:
            return self._turn.wait_for(lambda: not self._busy, seconds)

    def _wake(self) -> None:
        """Let the thread write what is held; it is there only while there is something to write."""
        if self._path is None:
            return
        self._due = True
        self._turn.notify_all()
        if not self._busy:
            self._busy = True
            thread = threading.Thread(target=self._run, args=(self._path,), name="baseline", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self._busy = False
                log.error("%s: %s: it is not written", self._path, error)  # noqa: TRY400 (no bug of ours)

    def _run(self, path: Path) -> None:
        while self._next():
            wrong = self._stored(path)
            if wrong and wrong != self._wrong:
                log.error("%s", wrong)
            if not wrong and self._wrong:
                log.info("%s is written again", path)
            self._wrong = wrong

    def _next(self) -> bool:
        """Whether there is something to write; after a failure at once if it is new, else after a while."""
        with self._turn:
            if self._wrong:
                self._turn.wait_for(lambda: self._due, AGAIN)
            self._busy = self._due or bool(self._wrong)
            self._due = False
            self._turn.notify_all()
            return self._busy

    def _stored(self, path: Path) -> str:
        """What went wrong in words, empty for nothing."""
        at = self._clock.now()
        with self._turn:
            held, in_the_way = self._held, self._in_the_way
            self._in_the_way = False
        if in_the_way:
            aside = put_aside(path, at)
            with self._turn:
                self._in_the_way = self._in_the_way or bool(aside.wrong)
                if self._held.baseline is None and self._held.trouble == held.trouble:
                    self._held = replace(self._held, kept=str(aside))
            if aside.wrong:
                return f"{path}: {aside}; nothing is written there"
            if aside.kept:
                log.warning("%s: %s", path, "; ".join(filter(None, (held.trouble, str(aside)))))
        wrong = "" if held.baseline is None else save(path, held.baseline, at)
        return wrong and f"{wrong}: the accepted topology would be lost with a restart"
