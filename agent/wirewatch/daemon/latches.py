"""latches.json: what the ledger remembers, kept over restarts; written whole, or not at all."""

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.types import Health, Subject
from wirewatch.daemon import statefile
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
    text = statefile.content(path, LIMIT)
    if text is None:
        return Loaded(Ledger(boot))
    kept = _understood(text) if isinstance(text, bytes) else text
    if isinstance(kept, str):
        return _lost(boot, at, f"{path}: {kept}")
    entries = {entry.key: replace(entry, mono=None) for entry in kept.entries}
    suppressions = {one.key: one for one in kept.suppressions}
    return Loaded(Ledger(boot, kept.gpus, entries, suppressions, cards=kept.cards))


def _understood(text: bytes) -> File | str:
    """The file's content, or in words why it is none of ours."""
    try:
        kept = _FILE.validate_json(text)
    except ValidationError as error:
        return statefile.reason(error)
    if kept.version != VERSION:
        return f"version {kept.version}, this agent knows {VERSION}"
    return kept if all(map(math.isfinite, _numbers(kept))) else "a number without end"


def load(path: Path, boot: str, at: float) -> Ledger:
    """What the file holds, for the agent that owns it: what cannot be understood is put aside and named."""
    loaded = read(path, boot, at)
    if not loaded.wrong:
        return loaded.ledger
    wrong = f"{loaded.wrong}; {statefile.put_aside(path, at)}"
    log.error("%s", wrong)
    return _lost(boot, at, wrong).ledger


def save(path: Path, ledger: Ledger, at: float) -> str:
    """Write the file; returns what went wrong in words, empty for nothing."""
    entries = tuple(replace(entry, mono=None) for entry in ledger.entries.values())
    kept = File(
        VERSION, ledger.boot, at, ledger.gpus, entries, tuple(ledger.suppressions.values()), ledger.cards
    )
    return statefile.write(path, statefile.encoded(_FILE.dump_python(kept, mode="json")))


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
