"""The memory of faults: plain values, kept over restarts."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from typing import ClassVar

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import Strict
from wirewatch.core.types import FAIL_ON_NAMES, Finding, Health, OperatorNote, Subject

LOST = "verdict.latches"
"""The rule of the finding that what was remembered is lost."""


def _name_in_file(name: str) -> str:
    return "acked" if name == "repaired" else name


class Stage(Enum):
    """How far a fault has come: seen now, held though not seen, watched, or remembered only."""

    ACTIVE = "active"
    LATCHED = "latched"
    PROBATION = "probation"
    REMEMBERED = "remembered"


@dataclass(frozen=True, slots=True)
class Entry:
    """One fault. Times are Unix seconds; `absent` and `probes` count seconds and clean probes without it.

    `health` is the worst it was. `last`: when it was last there, or was found to be over. `event`: when the
    newest event was that made it FAILED or is over, 0 for measured faults. `times`: how often it came.
    `boot`: in which boot it was last seen. `asked`: the driver has asked for a reset of this GPU since.
    `repaired` covers the events up to its own time; `by_ack`: it was ordered with the `ack` of wirewatch 0.2,
    which meant the same. `mono`: the monotonic second up to which `absent` has been counted, or an event was
    followed; None where that was interrupted, and after a start. `stamp` names the event of `event`, and
    `newest` the newest event, both in seconds since the start of the machine. Within one boot they name an
    event whatever the clock says. None in a file of wirewatch 0.1.
    """

    # The state file has called it so since 0.1, and 0.2 must be able to read the file.
    __pydantic_config__: ClassVar[dict[str, object]] = {"alias_generator": _name_in_file}

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
    repaired: OperatorNote | None = None
    mono: float | None = None
    stamp: float | None = None
    newest: float | None = None
    by_ack: bool = False

    @property
    def key(self) -> "Key":
        return key_of(self.rule, self.subject)


@dataclass(frozen=True, slots=True)
class Suppression:
    """A finding that takes no part until a date (Unix seconds), unless it gets worse than it was.

    `mono`: the monotonic second of `boot` from which its time is counted, when it was given or first known in
    that boot; None where no boot has known it yet. `unbroken`: it was given in that boot, so that
    no clock that is set can end it or make it last.
    """

    rule: str
    subject: Subject
    health: Health
    until: float
    said: OperatorNote
    boot: str = ""
    mono: float | None = None
    unbroken: bool = False

    @property
    def key(self) -> "Key":
        return key_of(self.rule, self.subject)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A finding that a person has seen, at the health that it had: nothing reminds of it until it is worse.

    It ends when the finding is over. It changes no verdict.
    """

    rule: str
    subject: Subject
    collector: str
    health: Health
    said: OperatorNote

    @property
    def key(self) -> "Key":
        return key_of(self.rule, self.subject)


Key = tuple[str, Subject]
"""Rule and part, the part by its lasting name: a GPU's index may be another after a boot."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """`boot` is this boot's id; `gpus` the most that ever were here; `complete` the probes counted so far.

    `cards`: the GPU last seen at each PCI address; the kernel's log is read before NVML has answered.
    `ended`: suppressions that are over by a clock that may be wrong; they come back when it is set back.
    Of this run alone: `occurrences`, when (monotonic seconds) faults came that may flap; `present`, the
    faults of the last step.
    """

    boot: str = ""
    gpus: int = 0
    entries: Mapping[Key, Entry] = field(default_factory=dict)
    suppressions: Mapping[Key, Suppression] = field(default_factory=dict)
    ended: Mapping[Key, Suppression] = field(default_factory=dict)
    seen: Mapping[Key, Acknowledgement] = field(default_factory=dict)
    complete: int = 0
    cards: Mapping[str, Subject] = field(default_factory=dict)
    occurrences: Mapping[Key, tuple[float, ...]] = field(default_factory=dict)
    present: frozenset[Key] = frozenset()

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
    """Unix and monotonic seconds, and what is known of probes."""

    at: float
    mono: float
    probes: Probes = Probes()


DAY = 86400.0


@dataclass(frozen=True, slots=True)
class VerdictPolicy(Strict):
    """The fate of a fault that is not seen any more. All times are times in which the daemon watched."""

    latch: tuple[str, ...] = ("xid.*", "sxid.*", "kernel.*", "*.wrong_data")
    """Rules whose FAILED stays until a reboot, a reset, another GPU or `findings repaired`.

    Patterns such as `xid.*`.
    """
    plain: tuple[str, ...] = ("gpudirect.*", "agent.*", "topology.*")
    """Rules that are over as soon as they are not seen, because a person put them right.

    Patterns. All other rules are on probation.
    """
    flapping: tuple[str, ...] = (
        "nvlink.*down", "nvlink.*slow", "c2c.link_down", "pcie.width",
        "infiniband.port_down", "infiniband.port_slow", "infiniband.pcie",
    )  # fmt: skip
    """Rules that are also FAILED when they come and go `flaps` times. Patterns."""
    settle: Seconds = 60.0
    """Time without the fault before it counts as gone. [seconds]"""
    probation: Seconds = DAY
    """Time for which it stays DEGRADED after that. [seconds]"""
    clean_probes: int = 3
    """Probes without a finding that the end of probation needs too, where probes run."""
    recurrence: Seconds = 7 * DAY
    """Time within which a fault that comes back is FAILED at once. [seconds]"""
    latch_after: int = 3
    """How often a fault may come back before it stays like one of `latch`."""
    flaps: int = 5
    """How often a fault of `flapping` must come within `flap_window` to be FAILED."""
    flap_window: Seconds = 3600.0
    """The time in which they are counted. [seconds]"""
    fail_on: tuple[str, ...] = ("failed", "unknown")
    """Healths with which no job starts: `failed` always, and `unknown` and `degraded` if named."""
    require_fresh_probe: bool = False
    """Whether `check` fails a node whose last probe is old."""
    longest_suppression: Seconds = 90 * DAY
    """The longest time for which a finding can be suppressed. [seconds]"""

    def wrong(self) -> str:
        """Say what cannot be meant; empty when all can."""
        seconds = ("settle", "probation", "recurrence", "longest_suppression", "flap_window")
        bad = [name for name in seconds if not 0 <= getattr(self, name) < math.inf]
        if bad:
            return f"must not be below 0: {bad[0]!r}"
        odd = [name for name in self.fail_on if name not in FAIL_ON_NAMES]
        if odd or "failed" not in self.fail_on:
            return f"fail_on must name failed, and besides unknown and degraded at most: {list(self.fail_on)}"
        if self.recurrence < self.probation:
            return "must not be shorter than probation: 'recurrence'"
        least = {"clean_probes": 0, "latch_after": 2, "flaps": 2}
        few = (f"{name} must be at least {low}" for name, low in least.items() if getattr(self, name) < low)
        return "; ".join(few)

    def failing(self) -> frozenset[Health]:
        """The healths with which no job may start."""
        return frozenset(FAIL_ON_NAMES[name] for name in self.fail_on)

    def latches(self, rule: str) -> bool:
        """Return whether FAILED lasts until a reboot, a reset or the order `repaired`."""
        return any(fnmatchcase(rule, pattern) for pattern in self.latch)

    def flaps_count(self, rule: str) -> bool:
        """Tell whether a finding of the rule is also FAILED when it comes and goes often."""
        return any(fnmatchcase(rule, pattern) for pattern in self.flapping)

    def forgets(self, rule: str) -> bool:
        """Tell whether a finding of the rule is over as soon as it is not found any more."""
        return any(fnmatchcase(rule, pattern) for pattern in self.plain)


def key_of(rule: str, subject: Subject) -> Key:
    """The key of a fault; without the index of a GPU whose UUID is known, since indexes change."""
    return (rule, replace(subject, gpu="") if subject.uuid else subject)


def key_of_finding(finding: Finding) -> Key:
    return key_of(finding.rule, finding.subject)


def name_of(key: Key) -> str:
    """Eight hexadecimal digits by which a person names a finding."""
    rule, part = key
    text = "|".join(repr(word) for word in (rule, *astuple(part)))
    return hashlib.blake2s(text.encode(), digest_size=4).hexdigest()
