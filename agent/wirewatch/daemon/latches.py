"""latches.json: what the ledger remembers, kept over restarts; written whole, or not at all."""

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.types import Health, Subject
from wirewatch.verdict.ledger import LOST, Entry, Ledger, Stage, Suppression

log = logging.getLogger(__name__)

VERSION = 1
LIMIT = 16 << 20
"""Bytes; a file that is larger is not ours."""


@dataclass(frozen=True, slots=True)
class File:
    """The file's content; `at`: when it was written (Unix seconds), `boot`: in which boot."""

    version: int
    boot: str
    at: float
    gpus: int
    entries: tuple[Entry, ...]
    suppressions: tuple[Suppression, ...]
    cards: Mapping[str, Subject] = field(default_factory=dict)


_FILE = TypeAdapter(File)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The ledger to begin with, and what was wrong with the file in words; empty for nothing."""

    ledger: Ledger
    wrong: str = ""


def read(path: Path, boot: str, at: float) -> Loaded:
    """What the file holds; one that cannot be understood is left where it is.

    A file that is there and tells nothing may have told of a fault: that is a finding, not a clean start.
    """
    try:
        with path.open("rb") as file:
            text = file.read(LIMIT + 1)
    except FileNotFoundError:
        return Loaded(Ledger(boot))
    except OSError as error:
        return _lost(boot, at, f"{path}: {error.strerror or error}")
    kept = _understood(text)
    if isinstance(kept, str):
        return _lost(boot, at, f"{path}: {kept}")
    entries = {entry.key: replace(entry, mono=None) for entry in kept.entries}
    suppressions = {one.key: one for one in kept.suppressions}
    return Loaded(Ledger(boot, kept.gpus, entries, suppressions, cards=kept.cards))


def _understood(text: bytes) -> File | str:
    """The file's content, or in words why it is none of ours."""
    if len(text) > LIMIT:
        return f"larger than {LIMIT >> 20} MiB"
    try:
        kept = _FILE.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place + ': ' if place else ''}{first['msg']}"
    if kept.version != VERSION:
        return f"version {kept.version}, this agent knows {VERSION}"
    return kept if all(map(math.isfinite, _numbers(kept))) else "a number without end"


def load(path: Path, boot: str, at: float) -> Ledger:
    """What the file holds, for the agent that owns it: what cannot be understood is put aside and named."""
    loaded = read(path, boot, at)
    if not loaded.wrong:
        return loaded.ledger
    moved = _put_aside(path, at)
    log.error("%s; %s", loaded.wrong, f"kept as {moved}" if moved else "it cannot be moved out of the way")
    return _lost(boot, at, f"{loaded.wrong}; kept as {moved}" if moved else loaded.wrong).ledger


def save(path: Path, ledger: Ledger, at: float) -> str:
    """Write the file; returns what went wrong in words, empty for nothing."""
    entries = tuple(replace(entry, mono=None) for entry in ledger.entries.values())
    kept = File(
        VERSION, ledger.boot, at, ledger.gpus, entries, tuple(ledger.suppressions.values()), ledger.cards
    )
    # What is no Unicode in somebody's words must not keep everything from being written.
    text = json.dumps(_FILE.dump_python(kept, mode="json"), ensure_ascii=False, indent=1).encode(
        errors="replace"
    )
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        return f"{path}: {error.strerror or error}"
    return ""


def _numbers(kept: File) -> Iterator[float]:
    yield kept.at
    for entry in kept.entries:
        yield from (entry.since, entry.last, entry.event, entry.absent)
        yield from () if entry.acked is None else (entry.acked.at,)
    for one in kept.suppressions:
        yield from (one.until, one.said.at)


def _lost(boot: str, at: float, wrong: str) -> Loaded:
    entry = Entry(
        LOST, Subject(), "", Health.UNKNOWN, Stage.LATCHED, f"what was remembered of faults is lost: {wrong}",
        "look at the node, its kernel log and the file named here", at, at,
    )  # fmt: skip
    return Loaded(Ledger(boot).with_entry(entry), wrong)


def _put_aside(path: Path, at: float) -> Path | None:
    """The name it has now; one that is taken is never overwritten."""
    with suppress(OSError):
        for number in range(int(at), int(at) + 1000):
            name = path.with_name(f"{path.name}.corrupt-{number}")
            if not name.exists():
                path.rename(name)
                return name
    return None
