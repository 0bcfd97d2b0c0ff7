"""The baseline of the topology: all threads read it, a single thread writes it to the state folder."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from wirewatch.core import pci
from wirewatch.core.ports import Clock
from wirewatch.daemon.persistence import AGAIN, LIMIT, StateFile, put_aside, write
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch.verdict.drift.wiring import Graph, identity

log = logging.getLogger(__name__)
VERSION = 1
_PATHS = frozenset({"", *(path.name for path in pci.Path)})


@dataclass(frozen=True, slots=True)
class BaselineFile:
    """The file's content; `at`: when it was written (Unix seconds), `node`: its identity, for people."""

    version: int
    at: float
    node: str | None
    baseline: Baseline


@dataclass(frozen=True, slots=True)
class LoadedBaseline:
    """The baseline that holds, the fault of its file in one line, and where that is kept; "" for none."""

    baseline: Baseline | None
    trouble: str = ""
    kept: str = ""


NOTHING = LoadedBaseline(None)


class BaselineStore:
    """The baseline that holds now.

    Any thread may use it, and only `flush` waits for the disk. `path`: the file, None to keep nothing.
    `loaded`: its content. A file that could not be put aside is not overwritten until it can be.
    """

    def __init__(self, path: Path | None, clock: Clock, loaded: LoadedBaseline = NOTHING) -> None:
        self._path, self._clock = path, clock
        self._held = loaded
        self._turn = threading.Condition()
        """Held for assignments only."""
        self._due = self._busy = False
        self._in_the_way = bool(loaded.trouble)
        self._wrong = ""

    @property
    def baseline(self) -> Baseline | None:
        """The baseline that holds now; None when there is none."""
        return self._held.baseline

    @property
    def trouble(self) -> str:
        """Return why a baseline that existed does not hold any more, in words; empty when that is not so."""
        held = self._held
        return f"{held.trouble}; {held.kept}" if held.kept else held.trouble

    def put(self, baseline: Baseline, over: Baseline | None) -> bool:
        """Replace `over`, if that holds; says whether it did. The file may get only the last of several."""
        with self._turn:
            if self._held.baseline is not over:
                return False
            self._held = LoadedBaseline(baseline)
            self._wake()
        if over is not None and (over.graph, over.said) == (baseline.graph, baseline.said):
            for one in set(over.accepted) - set(baseline.accepted):
                log.info("not accepted any more, since it is as before: %s", one.text)
        return True

    def reject(self, baseline: Baseline | None, trouble: str) -> None:
        """Drop the baseline of another node, and put its file aside, whose name `trouble` then ends with."""
        with self._turn:
            if self._held.baseline is not baseline:
                return
            self._held = LoadedBaseline(None, trouble)
            self._in_the_way = True
            self._wake()

    def submit(self) -> None:
        """Write what is held soon."""
        with self._turn:
            self._wake()

    def flush(self, seconds: float) -> bool:
        """Wait until all is written, for so many seconds at most; returns whether it is."""
        with self._turn:
            return self._turn.wait_for(lambda: not self._busy, seconds)

    def _wake(self) -> None:
        """Let the thread write what is held; the thread lives only while something is to be written."""
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
            wrong = self._store(path)
            if wrong and wrong != self._wrong:
                log.error("%s", wrong)
            if not wrong and self._wrong:
                log.info("%s is written again", path)
            self._wrong = wrong

    def _next(self) -> bool:
        """Return whether something is to be written; after a failure, wait for a change or for AGAIN."""
        with self._turn:
            if self._wrong:
                self._turn.wait_for(lambda: self._due, AGAIN)
            self._busy = self._due or bool(self._wrong)
            self._due = False
            self._turn.notify_all()
            return self._busy

    def _store(self, path: Path) -> str:
        """Write what is held; returns what went wrong in words, empty for nothing."""
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
        wrong = "" if held.baseline is None else save_baseline(path, held.baseline, at)
        return wrong and f"{wrong}: the accepted topology would be lost with a restart"


def foreign(baseline: Baseline, graph: Graph) -> str:
    """Why the baseline belongs to another node, in words: both name GPUs and share none. Empty otherwise."""
    theirs, ours = ({gpu.name for gpu in one.gpus if gpu.name} for one in (baseline.graph, graph))
    if not theirs or not ours or theirs & ours:
        return ""
    return f"its GPUs are none of this node's: {', '.join(f'...{name[-4:]}' for name in sorted(theirs))}"


def read_baseline(path: Path, own_at: float | None = None) -> LoadedBaseline:
    """Return what the file holds; `own_at` as `StateFile.read` has it."""
    kept = FILE.read(path, own_at)
    wrong = kept if isinstance(kept, str) else ""
    return LoadedBaseline(kept.baseline if isinstance(kept, BaselineFile) else None, wrong)


def save_baseline(path: Path, baseline: Baseline, at: float) -> str:
    """Write the file, but no baseline that `read_baseline` would refuse; returns the trouble, "" for none."""
    wrong = _malformed(baseline.graph)
    if wrong:
        return f"{path}: not written: {wrong}"
    name = identity(baseline.graph)
    kept = BaselineFile(VERSION, at, name if isinstance(name, str) else None, baseline)
    text = FILE.encoded(kept)
    again = FILE.parsed(text) if len(text) <= LIMIT else f"larger than {LIMIT >> 20} MiB"
    return f"{path}: not written: {again}" if isinstance(again, str) else write(path, text)


def _numbers(kept: BaselineFile) -> Iterator[float]:
    yield kept.at
    yield kept.baseline.said.at
    yield from (one.said.at for one in kept.baseline.accepted)


def _malformed(graph: Graph) -> str:
    """Say what the comparison of graphs does not allow; empty for a sound graph."""
    grouped = {key for island in graph.islands for key in island.gpus}
    if not grouped.issuperset(gpu.key for gpu in graph.gpus):
        return "a GPU that is in no island"
    if not _PATHS.issuperset(reach.path for nic in graph.nics for reach in nic.paths):
        return "an unknown PCIe path"
    return ""


FILE = StateFile(
    TypeAdapter(BaselineFile), _numbers, lambda one: _malformed(one.baseline.graph), strict=True,
    version=VERSION,
)  # fmt: skip
