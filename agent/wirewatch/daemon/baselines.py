"""The baseline that holds now, for all threads; written off them: a disk that hangs holds up nobody."""

import logging
import math
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from wirewatch.core import pci
from wirewatch.core.ports import Clock
from wirewatch.daemon import persistence
from wirewatch.daemon.persistence import put_aside
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch.verdict.drift.graph import Graph, identity

log = logging.getLogger(__name__)
AGAIN = 60.0
"""Seconds after which what could not be written is tried again."""


@dataclass(frozen=True, slots=True)
class _Held:
    """`kept`: what became of the file that was rejected."""

    baseline: Baseline | None
    trouble: str
    kept: str = ""


VERSION = 1
LIMIT = 16 << 20
"""Bytes; a file that is larger is not ours."""
_PATHS = frozenset({"", *(path.name for path in pci.Path)})


@dataclass(frozen=True, slots=True)
class Head:
    """What every version of the file begins with."""

    version: Annotated[int, Field(ge=0, lt=1 << 31)]


@dataclass(frozen=True, slots=True)
class File:
    """The file's content; `at`: when it was written (Unix seconds), `node`: the identity, for people."""

    version: int
    at: float
    node: str | None
    baseline: Baseline


@dataclass(frozen=True, slots=True)
class Loaded:
    """The baseline to begin with, and what was wrong with the file in one line; empty for nothing."""

    baseline: Baseline | None
    trouble: str = ""


NOTHING = Loaded(None)


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


_HEAD, _FILE = TypeAdapter(Head), TypeAdapter(File)


def foreign(baseline: Baseline, graph: Graph) -> str:
    """In words why the baseline is another node's: both name GPUs, none is the same. Else empty."""
    theirs, ours = ({gpu.name for gpu in one.gpus if gpu.name} for one in (baseline.graph, graph))
    if not theirs or not ours or theirs & ours:
        return ""
    return f"its GPUs are none of this node's: {', '.join(f'...{name[-4:]}' for name in sorted(theirs))}"


def read(path: Path) -> Loaded:
    """What the file holds; one that cannot be understood is left where it is."""
    text = persistence.content(path, LIMIT)
    if text is None:
        return Loaded(None)
    kept = _understood(text) if isinstance(text, bytes) else text
    return Loaded(None, f"{path}: {kept}") if isinstance(kept, str) else Loaded(kept.baseline)


def load(path: Path, at: float) -> Loaded:
    """What the file holds, for the agent that owns it: what cannot be understood is put aside and named."""
    loaded = read(path)
    if not loaded.trouble:
        return loaded
    trouble = f"{loaded.trouble}; {persistence.put_aside(path, at)}"
    log.error("%s", trouble)
    return Loaded(None, trouble)


def save(path: Path, baseline: Baseline, at: float) -> str:
    """Write the file; returns what went wrong in words, empty for nothing.

    What `load` would not take is not written, so that what was accepted before stays.
    """
    wrong = _unsound(baseline.graph)
    if wrong:
        return f"{path}: not written: {wrong}"
    name = identity(baseline.graph)
    kept = File(VERSION, at, name if isinstance(name, str) else None, baseline)
    text = persistence.encoded(_FILE.dump_python(kept, mode="json"))
    again = _understood(text) if len(text) <= LIMIT else f"larger than {LIMIT >> 20} MiB"
    return f"{path}: not written: {again}" if isinstance(again, str) else persistence.write(path, text)


def _understood(text: bytes) -> File | str:
    """The file's content, or in words why it is none of ours."""
    try:
        version = _HEAD.validate_json(text, strict=True).version
        if version != VERSION:
            return f"version {version}, this agent knows {VERSION}"
        kept = _FILE.validate_json(text, strict=True)
    except ValidationError as error:
        return persistence.reason(error)
    said = (kept.baseline.said, *(one.said for one in kept.baseline.accepted))
    if not all(map(math.isfinite, (kept.at, *(word.at for word in said)))):
        return "a number without end"
    return _unsound(kept.baseline.graph) or kept


def _unsound(graph: Graph) -> str:
    """In words what no graph of a node has, and who compares graphs does not expect."""
    grouped = {key for island in graph.islands for key in island.gpus}
    if not grouped.issuperset(gpu.key for gpu in graph.gpus):
        return "a GPU that is in no island"
    if not _PATHS.issuperset(reach.path for nic in graph.nics for reach in nic.paths):
        return "a PCIe path that is none"
    return ""
