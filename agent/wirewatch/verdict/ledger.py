"""What is remembered of faults: plain values, kept over restarts."""

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import Enum

from wirewatch.core.types import Finding, Health, Subject

LOST = "verdict.latches"
"""The rule that says that what was remembered cannot be known any more."""


class Stage(Enum):
    """Where a fault is on its way: seen now, held though not seen, watched, or remembered only."""

    ACTIVE = "active"
    LATCHED = "latched"
    PROBATION = "probation"
    REMEMBERED = "remembered"


@dataclass(frozen=True, slots=True)
class Word:
    """What an operator said: who, why, when (Unix seconds)."""

    by: str
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One fault. Times are Unix seconds; `absent` and `probes` count seconds and clean probes without it.

    `health` is the worst it was. `last`: when it was last there, or was found to be over. `event`: when the
    newest event is told to have been that made it FAILED or is over, 0 for what is measured. `times`: how
    often it came. `boot`: in which boot it was last seen. `asked`: the driver has asked for a reset of this
    GPU since. `acked` covers the events up to its own time. `mono`: the monotonic second up to which
    `absent` has been counted, or an event was followed; None where that was interrupted, and after a start.
    """

    rule: str
    subject: Subject
    collector: str
    health: Health
    stage: Stage
    evidence: str
    action: str
    since: float
    last: float
    event: float = 0.0
    times: int = 1
    boot: str = ""
    absent: float = 0.0
    probes: int = 0
    asked: bool = False
    acked: Word | None = None
    mono: float | None = None

    @property
    def key(self) -> "Key":
        return key_of(self.rule, self.subject)


@dataclass(frozen=True, slots=True)
class Suppression:
    """A finding that takes no part until a date (Unix seconds), unless it gets worse than it was."""

    rule: str
    subject: Subject
    health: Health
    until: float
    said: Word

    @property
    def key(self) -> "Key":
        return key_of(self.rule, self.subject)


Key = tuple[str, Subject]
"""Rule and part, the part by its lasting name: a GPU's index may be another after a boot."""


def key_of(rule: str, subject: Subject) -> Key:
    return (rule, replace(subject, gpu="") if subject.uuid else subject)


def key_of_finding(finding: Finding) -> Key:
    return key_of(finding.rule, finding.subject)


def name_of(key: Key) -> str:
    """Eight hexadecimal digits by which a person names a finding."""
    rule, part = key
    text = "|".join(repr(word) for word in (rule, *astuple(part)))
    return hashlib.blake2s(text.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True, slots=True)
class Ledger:
    """`boot` is this boot's id; `gpus` the most that ever were here; `complete` the probes counted so far.

    `cards`: the GPU last seen at each PCI address; the kernel's log is read before NVML tells who is where.
    Of this run alone: `comings`, when (monotonic seconds) faults came that may flap; `told`, what was there
    at the last look.
    """

    boot: str = ""
    gpus: int = 0
    entries: Mapping[Key, Entry] = field(default_factory=dict)
    suppressions: Mapping[Key, Suppression] = field(default_factory=dict)
    complete: int = 0
    cards: Mapping[str, Subject] = field(default_factory=dict)
    comings: Mapping[Key, tuple[float, ...]] = field(default_factory=dict)
    told: frozenset[Key] = frozenset()

    def with_entry(self, entry: Entry) -> "Ledger":
        return replace(self, entries={**self.entries, entry.key: entry})

    def without_entry(self, key: Key) -> "Ledger":
        return replace(self, entries={k: e for k, e in self.entries.items() if k != key})


@dataclass(frozen=True, slots=True)
class Probes:
    """Complete probes since start, whether the newest found nothing, whether any can run here."""

    complete: int = 0
    clean: bool = False
    watched: bool = False


@dataclass(frozen=True, slots=True)
class Now:
    """Unix and monotonic seconds, and what is told of probes."""

    at: float
    mono: float
    probes: Probes = Probes()
