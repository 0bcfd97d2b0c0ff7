"""The ledger in the state folder, and how each file there is read, written and put aside."""

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from wirewatch.core.ports import Clock
from wirewatch.core.types import Health, Subject
from wirewatch.daemon.schedule import Lane
from wirewatch.statefolder import HeldFolder, as_owner, note_written
from wirewatch.verdict.ledger import LOST, Acknowledgement, Entry, Ledger, Stage, Suppression, key_of

if TYPE_CHECKING:
    from asyncio import Future

log = logging.getLogger(__name__)
T = TypeVar("T")
VERSION = 1
VERBS = 1
LIMIT = 16 << 20
"""Bytes; a larger file cannot be ours."""
AGAIN = 2.0
"""Seconds after which a failed write is tried again."""
LOOK = 10.0
"""Seconds between two looks at the state folder."""
EVERY = 600.0
"""Seconds after which times alone are written; a crash may lose so much of a probation."""
_AT_ONCE = os.O_NONBLOCK | os.O_NOCTTY
_NAMES = 1000
"""How many names are tried for a file that is put aside."""


@dataclass(frozen=True, slots=True)
class Aside:
    """The new name of a file that was put aside, or why it could not be; neither when there was no file."""

    kept: Path | None = None
    wrong: str = ""

    def __str__(self) -> str:
        if self.wrong:
            return f"it cannot be moved out of the way: {self.wrong}"
        return f"kept as {self.kept}" if self.kept else ""


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """The file's content; `at`: when it was written (Unix seconds), `boot`: in which boot.

    `verbs`: what `ack` meant to who wrote it, VERBS for seen; 0, in a file of 0.2, for repaired.
    """

    version: int
    boot: str
    at: float
    gpus: int
    entries: tuple[Entry, ...]
    suppressions: tuple[Suppression, ...]
    cards: Mapping[str, Subject] = field(default_factory=dict)
    ended: tuple[Suppression, ...] = ()
    seen: tuple[Acknowledgement, ...] = ()
    verbs: int = 0


@dataclass(frozen=True, slots=True)
class _Version:
    """The beginning of every version of a file of the state folder."""

    version: Annotated[int, Field(ge=0, lt=1 << 31)]


_VERSION = TypeAdapter(_Version)


class StateWriter:
    """Writes one file of the state folder in a lane of its own; only the event loop submits.

    `save` writes it and returns the trouble, "" for none; `loss` follows from it. `path`: None for no file.
    """

    def __init__(self, path: Path | None, save: Callable[[Path], str], loss: str, clock: Clock) -> None:
        self._path, self._save, self._loss, self._clock = path, save, loss, clock
        self._lane = Lane("state") if path else None
        self._wrong = ""
        self._failed = math.inf

    def submit(self) -> None:
        """Write the file soon."""
        self._failed = math.inf
        if self._lane is not None:
            self._lane.submit(self._run)

    async def flush(self) -> None:
        """Wait until what was submitted is written, or could not be."""
        if self._lane is not None:
            await self._lane.submit(lambda: None)

    def try_again(self) -> None:
        """Write the file soon if the last attempt failed AGAIN seconds ago or earlier."""
        if self._clock.mono() - self._failed >= AGAIN:
            self.submit()

    def _run(self) -> None:
        if self._path is None:
            return
        try:
            wrong = self._save(self._path)
        except Exception as error:
            wrong = f"{self._path}: {error!r}"
            if wrong != self._wrong:
                log.exception("%s cannot be made", self._path)
        if wrong:
            self._failed = self._clock.mono()
        if wrong and wrong != self._wrong:
            log.error("%s: %s", wrong, self._loss)
        if not wrong and self._wrong:
            log.info("%s is written again", self._path)
        self._wrong = wrong


class FolderWatch:
    """Looks after the state folder in a lane of its own; only the event loop calls it.

    `again`: called when the folder is new, to write all remembered state again.
    """

    def __init__(self, folder: HeldFolder, again: Iterable[Callable[[], None]], clock: Clock) -> None:
        self._folder, self._again, self._clock = folder, tuple(again), clock
        self._lane = Lane("state-folder")
        self._asked = -math.inf
        self._answer: Future[bool] | None = None

    def look(self) -> None:
        """Have the folder checked, LOOK seconds after the last time; a disk that hangs is asked once."""
        mono = self._clock.mono()
        if self._answer is not None and self._answer.done():
            new = self._answer.result()
            self._answer = None
            for write_again in self._again if new else ():
                write_again()
        if mono - self._asked < LOOK:
            return
        if self._answer is not None:
            self._folder.note(
                "", f"the disk of the state folder has not answered for {mono - self._asked:.0f} s"
            )
            return
        self._asked, self._answer = mono, self._lane.submit(self._folder.check)


class LedgerWriter:
    """Writes each ledger that says something new, in a lane; only the event loop calls it."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._clock = clock
        loss = "what is remembered of faults would be lost with a restart"
        self._writer = StateWriter(path, self._save, loss, clock)
        self.flush, self.submit = self._writer.flush, self._writer.submit
        self._newest = Ledger()
        self._written: object = None
        self._at = clock.mono()

    def changed(self, ledger: Ledger) -> None:
        """Take a new ledger, and write it if it is worth it."""
        self._newest = ledger
        essence, mono = _essence(ledger), self._clock.mono()
        counting = bool(ledger.entries) and mono - self._at >= EVERY
        if essence != self._written or counting:
            # An empty ledger at the start is not worth a file.
            first, self._written, self._at = self._written is None, essence, mono
            if not first or ledger.entries or ledger.seen:
                self._writer.submit()
                return
        self._writer.try_again()

    def _save(self, path: Path) -> str:
        return save_ledger(path, self._newest, self._clock.now())


def content(path: Path, limit: int) -> bytes | str | None:
    """A file's content of at most `limit` bytes, None without a file, or why it cannot be read, in words."""
    try:
        with as_owner(path.parent, reading=True):
            mode = path.stat().st_mode
            # A read of a pipe or a device may never return.
            if not S_ISREG(mode) and not S_ISDIR(mode):
                return "not a file"
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
                text = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror or str(error)
    return text if len(text) <= limit else f"larger than {limit >> 20} MiB"


def reason(error: ValidationError) -> str:
    """The first thing that is wrong with a file's content, and where, without the content itself."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place + ': ' if place else ''}{first['msg']}"


def other_version(text: bytes, known: int) -> str:
    """Return why a file of another version is not read, "" for version `known`; ValidationError for none.

    It comes before all else in the file, which another version may say in another way.
    """
    version = _VERSION.validate_json(text, strict=True).version
    if version == known:
        return ""
    newer = "written by a newer wirewatch, " if version > known else ""
    return f"{newer}version {version}, this agent knows {known}"


@dataclass(frozen=True, slots=True)
class StateFile(Generic[T]):
    """A kind of file in the state folder: its type, the numbers in it that must be finite, and its version.

    `unfit` returns what else is wrong with its content, "" for nothing; `limit` in bytes.
    """

    kind: TypeAdapter[T]
    numbers: Callable[[T], Iterable[float]] = lambda _: ()
    unfit: Callable[[T], str] = lambda _: ""
    strict: bool | None = None
    limit: int = LIMIT
    version: int = VERSION

    def read(self, path: Path, own_at: float | None = None) -> T | str | None:
        """Return the content, None without a file, or why it cannot be used.

        A file that cannot be used is put aside at `own_at` by the agent that owns it, and left by others.
        """
        text = content(path, self.limit)
        kept = self.parsed(text) if isinstance(text, bytes) else text
        if not isinstance(kept, str):
            return kept
        if own_at is None:
            return f"{path}: {kept}"
        kept = f"{path}: {kept}; {put_aside(path, own_at)}"
        log.error("%s", kept)
        return kept

    def parsed(self, text: bytes) -> T | str:
        """Return what the text says, or why it cannot be used."""
        try:
            other = other_version(text, self.version)
            if other:
                return other
            kept = self.kind.validate_json(text, strict=self.strict)
        except ValidationError as error:
            return reason(error)
        if not all(map(math.isfinite, self.numbers(kept))):
            return "a number that is not finite"
        return self.unfit(kept) or kept

    def encoded(self, kept: T) -> bytes:
        """Return the content as indented JSON."""
        # A surrogate in a text that a person gave must not keep all the rest from being written.
        document = self.kind.dump_python(kept, mode="json", by_alias=True)
        return json.dumps(document, ensure_ascii=False, indent=1).encode(errors="replace")


def write(path: Path, text: bytes, mode: int | None = None) -> str:
    """Replace the file, whole or not at all, with this mode; returns the trouble, "" for none."""
    wrong = ""
    try:
        with as_owner(path.parent):
            _replace(path, text, mode)
    except OSError as error:
        wrong = f"{path}: {error.strerror or error}"
    note_written(path, wrong)
    return wrong


def _replace(path: Path, text: bytes, mode: int | None) -> None:
    new = path.with_name(f"{path.name}.new")
    # Whatever lies there, a link too, is not what is written.
    new.unlink(missing_ok=True)
    try:
        with new.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def put_aside(path: Path, at: float) -> Aside:
    """Rename the file to a free name with the Unix seconds `at`."""
    try:
        with as_owner(path.parent):
            if not os.path.lexists(path):
                return Aside()
            for number in range(int(at), int(at) + _NAMES):
                name = path.with_name(f"{path.name}.corrupt-{number}")
                if not os.path.lexists(name):
                    path.rename(name)
                    return Aside(name)
    except OSError as error:
        return Aside(None, error.strerror or str(error))
    return Aside(None, f"{_NAMES} names are taken")


def read_ledger(path: Path, boot: str, at: float, *, own: bool = False) -> Ledger:
    """Return what the file holds; an unparsable file is a finding, since it may have held a fault.

    `own`: for the agent that owns the file; it then puts the unparsable file aside.
    """
    kept = FILE.read(path, at if own else None)
    if kept is None:
        return Ledger(boot)
    if isinstance(kept, str):
        return lost(Ledger(boot), "faults", kept, at)
    named = (entry if kept.verbs else _by_ack(entry) for entry in kept.entries)
    entries = {entry.key: _begun(entry, boot) for entry in named}
    suppressions, ended = (
        {one.key: one if boot else replace(one, mono=None) for one in some}
        for some in (kept.suppressions, kept.ended)
    )
    seen = {one.key: one for one in kept.seen}
    return Ledger(boot, kept.gpus, entries, suppressions, ended, seen, cards=kept.cards)


def save_ledger(path: Path, ledger: Ledger, at: float) -> str:
    """Write the file; returns what went wrong in words, empty for nothing."""
    entries = tuple(replace(entry, mono=None) for entry in ledger.entries.values())
    kept = LedgerFile(
        VERSION, ledger.boot, at, ledger.gpus, entries, tuple(ledger.suppressions.values()), ledger.cards,
        tuple(ledger.ended.values()), tuple(ledger.seen.values()), VERBS,
    )  # fmt: skip
    return write(path, FILE.encoded(kept))


def _by_ack(entry: Entry) -> Entry:
    """An entry of a file of 0.2: who said `ack` there has said that it is repaired."""
    return replace(entry, by_ack=entry.repaired is not None)


def _begun(entry: Entry, boot: str) -> Entry:
    """Return the entry at a start; drops stamps where its boot or this boot is not known."""
    if boot and entry.boot:
        return replace(entry, mono=None)
    return replace(entry, mono=None, stamp=None, newest=None)


def _numbers(kept: LedgerFile) -> Iterator[float]:
    yield kept.at
    for entry in kept.entries:
        yield from (entry.since, entry.last, entry.event, entry.absent)
        yield from (entry.stamp or 0.0, entry.newest or 0.0, entry.repaired.at if entry.repaired else 0.0)
    for one in (*kept.suppressions, *kept.ended):
        yield from (one.until, one.said.at, one.mono or 0.0)
    yield from (one.said.at for one in kept.seen)


FILE = StateFile(TypeAdapter(LedgerFile), _numbers)


def lost(ledger: Ledger, what: str, wrong: str, at: float) -> Ledger:
    """The ledger with a finding that what was remembered of something is lost, and why, in words."""
    known = ledger.entries.get(key_of(LOST, Subject()))
    before = f"{known.evidence}; " if known else ""
    evidence = f"{before}what was remembered of {what} is lost: {wrong}"
    entry = Entry(
        LOST, Subject(), "", Health.UNKNOWN, Stage.LATCHED, evidence,
        "look at the node, its kernel log and the file named here", at, at,
    )  # fmt: skip
    return ledger.with_entry(entry)


def _essence(ledger: Ledger) -> object:
    """Everything but the times and numbers that change with each poll."""
    entries = tuple(replace(e, absent=0.0, mono=None, last=0.0, evidence="") for e in ledger.entries.values())
    said = tuple(tuple(one.values()) for one in (ledger.suppressions, ledger.ended, ledger.seen))
    return (ledger.boot, ledger.gpus, entries, said)
