"""Overlays, and playing a recording with them; their results are never called real.

An overlay is a small TOML file that changes the answers of a recording. Overlays in `wirewatch/overlays` are
faults on the bundled recording demo-dgx-h200, and are found by name.

Each change names a port, a pattern of questions (`gpu2/Field(165,7)`, with *, ? and [0-9]), optionally its
start and end in seconds of play, and one action:

    set       this value instead            add     this much more
    ramp      this much more a second       code    fail with this NVML code
    errno     fail with this errno name     hang    never answer
    slow      answer after so many seconds  crash   die as a library does, by a signal
    raise     break with this text          scale   this many times as much

Set, add and scale may name members of a structured answer: `at = "document/collectives/*/seconds"`.

A bundled fault lists its findings, each in a [[finding]] with rule, health, parts of the evidence and of the
action, and gpu, link, device or port. Tests and the rehearsal check them.
"""

import errno as errnos
import os
import re
import signal
import time
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from wirewatch.core.names import did_you_mean
from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Absent, Health, Json, Subject, Unusable, Why, utf8, whole
from wirewatch.hw.files import absent_errno
from wirewatch.hw.nvml.protocol import GPU_IS_LOST, Source, absent_code
from wirewatch.hw.recording import Key, Recording, load_recording, number

PORTS = frozenset({"nvml", "sysfs", "host", "kmsg", "command", "kubelet", "slurm", "probe", "rings", "ras"})
ACTIONS = frozenset({"set", "add", "scale", "ramp", "code", "errno", "hang", "slow", "crash", "raise"})
_INSIDE = frozenset({"set", "add", "scale"})
"""Actions that can change a member of an answer."""
_OF_VALUES = _INSIDE | {"ramp"}
"""Actions that make another value of an answer, at any time."""
_SELECTORS = frozenset({"port", "match", "at", "from", "until"})
_TEXTS = frozenset({"rule", "health", "evidence", "action"})
_SUBJECT = frozenset({"gpu", "link", "device", "port"})
_FOR_EVER, _HOUR = 1e9, 3600.0
"""Seconds."""
_asked = lru_cache(1 << 16)(lambda prefix, question: ("nvml", f"{prefix}{question}"))
HURRY = 20.0
"""Factor by which an overlay changes faster for a demo."""
BUNDLED = Path(__file__).parent.parent / "overlays"
_Allowed = tuple[Callable[[Any], bool], str]
_TEXT: _Allowed = (lambda v: isinstance(v, str), "a text")
_PORT: _Allowed = (lambda v: v in PORTS, f"one of {sorted(PORTS)}")
_AMOUNT: _Allowed = (lambda v: _number(v) and v >= 0, "a number of 0 or more")
_COUNTER_FIELDS = frozenset(
    {32, 38, 39, 45, 46, 52, 53, 59, *range(74, 82), 83, 94, 95, *range(138, 142), 160, 161, 162, 163, 169}
    | {*range(173, 184), 191, 197, 198, *range(201, 216), 219, 221, 269, 270, 271}
)
_COUNTER_FILES = ("/counters/", "/hw_counters/", "/statistics/", "/carrier_changes", "/carrier_down_count")
_COUNTER_CALLS = frozenset({"PcieReplayCounter", "TotalEnergyConsumption", "NvLinkErrorCounter"})
_FIELD = re.compile(r"gpu\d+/Field\((\d+)")
LATER_PORTS: Mapping[str, Why] = {
    "kmsg": Why.UNSUPPORTED, "command": Why.UNSUPPORTED, "kubelet": Why.MISSING, "slurm": Why.MISSING,
    "probe": Why.MISSING, "rings": Why.MISSING, "ras": Why.MISSING,
}  # fmt: skip
"""Ports that a recording may not have, and the reasons of their absent answers."""
LATER_FILES = re.compile(
    r"/sys/class/dmi/id/|/proc/driver/nvidia/gpus|/proc/\d+/|/var/log/pods$"
    r"|/sys/bus/pci/devices/[^/]+/(physfn|driver_override)$"
)
"""Paths that early recordings did not ask for: no such file was there."""


class OverlayError(Unusable):
    """An overlay that cannot be used; the text is one line for the user."""


class NotRecorded(Exception):
    """A question that the recording holds no answer to."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@dataclass(frozen=True, slots=True)
class Effects:
    """The acts of `hang`, `slow` and `crash`: `wait` lets a number of seconds pass, `die` ends the asker."""

    wait: Callable[[float], None] = time.sleep
    die: Callable[[], None] = _die


REAL = Effects()


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """One change; `start` and `until` in seconds of play."""

    port: str
    match: str
    action: str
    argument: Any
    start: float = 0.0
    until: float = _FOR_EVER
    at: str = ""

    def of(self, key: Key) -> bool:
        return key[0] == self.port and fnmatchcase(key[1], self.match)


@dataclass(frozen=True, slots=True)
class Expected:
    """A finding that a fault makes; `evidence` and `action` are parts of its texts.

    `stage`: "aside" for a finding of a running job, on which no verdict depends.
    """

    rule: str
    health: Health
    subject: Subject
    evidence: str
    action: str
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Changes, and the findings that they make on demo-dgx-h200 within five minutes, if the file says so."""

    name: str
    about: str
    changes: tuple[AnswerChange, ...]
    findings: tuple[Expected, ...] = ()

    @property
    def begun(self) -> float:
        """Seconds of play after which every change has begun."""
        return max((one.start for one in self.changes), default=0.0)

    def hurried(self, lead: float) -> "Overlay":
        """Return the overlay with its first changes after `lead` seconds, later changes HURRY times as fast.

        Changes from the start stay, and growth by the second keeps its rate.
        """
        first = min((one.start for one in self.changes if one.start), default=0.0)

        def soon(seconds: float) -> float:
            return seconds if seconds in {0.0, _FOR_EVER} else max(lead + (seconds - first) / HURRY, 0.0)

        changes = (replace(one, start=soon(one.start), until=soon(one.until)) for one in self.changes)
        return replace(self, changes=tuple(changes))


@dataclass(frozen=True, slots=True)
class Came:
    """An answer of a moment, its cycle of the loop, and whether an overlay changed it then."""

    cycle: int
    moment: int
    answer: Answer
    changed: bool


@dataclass(frozen=True)
class Player:
    """A recording in play; `seconds` gives its time. `strict` makes an unrecorded question an error."""

    recording: Recording
    seconds: Callable[[], float]
    overlays: Sequence[Overlay] = ()
    loop: bool = False
    strict: bool = False
    effects: Effects = REAL

    @property
    def steady(self) -> float:
        """Seconds of play after which nothing new begins or ends, apart from growing counters."""
        ends = (one.until for each in self.overlays for one in each.changes if one.until < _FOR_EVER)
        return max(self.length, *(each.begun for each in self.overlays), *ends, 0.0)

    def answer(self, key: Key) -> Answer:
        """Return the answer of this moment, overlays applied.

        Raises NotRecorded where `strict` and there is no answer, RuntimeError where an overlay says `raise`.
        """
        seconds = self.seconds()
        moment, cycle = self._moment(seconds)
        found = self.recording.at(key, moment)
        if cycle and found is not None and is_counter(key):
            found = _grown(found, cycle * self.recording.growth(key))
        for one in self.changes_of(key):
            if one.start <= seconds < one.until:
                found = _act(one, key, seconds, found, self.effects)
        if found is not None:
            return found
        if key[0] in LATER_PORTS and key[0] not in self.recording.ports:
            detail = f"recording {self.recording.name} has nothing of {key[0]}"
            return Answer(Absent(LATER_PORTS[key[0]], detail))
        later = key[0] == "sysfs" and LATER_FILES.match(key[1].partition(" ")[2])
        if self.strict and not later:
            raise NotRecorded(f"{key[0]}: {key[1]}")
        return Answer(Absent(Why.MISSING, f"not in recording {self.recording.name}: {key[1]}"))

    @cached_property
    def changes_of(self) -> Callable[[Key], tuple[AnswerChange, ...]]:
        """The changes of a question in order, looked up once for each question."""
        every = [one for overlay in self.overlays for one in overlay.changes]
        return lru_cache(1 << 16)(lambda key: tuple(one for one in every if one.of(key)))

    @cached_property
    def length(self) -> float:
        """Seconds from the first moment to the last."""
        return self.recording.times[-1] - self.recording.times[0]

    def came(self, key: Key) -> tuple[Came, ...]:
        """Return all answers until now, oldest first, of a question whose answers hold only new events.

        Overlays change each by the time it came. A loop gives this play and the play before it.
        """
        last, now = self._moment(self.seconds())
        return tuple(
            self._as_it_came(key, cycle, moment, answer)
            for cycle in range(max(now - 1, 0), now + 1)
            for moment, answer in self.recording.answers.get(key, ())
            if cycle < now or moment <= last
        )

    def _as_it_came(self, key: Key, cycle: int, moment: int, answer: Answer) -> Came:
        times = self.recording.times
        seconds, value = cycle * self.length + times[moment] - times[0], answer.value
        for one in self.changes_of(key):
            if one.action in _OF_VALUES and one.start <= seconds < one.until:
                value = _changed(one, seconds, value)
        return Came(cycle, moment, answer._replace(value=value), value is not answer.value)

    def _moment(self, seconds: float) -> tuple[int, int]:
        times = self.recording.times
        cycle = int(seconds // self.length) if self.loop and self.length > 0 else 0
        now = times[0] + seconds - cycle * self.length
        return max(bisect_right(times, now) - 1, 0), cycle


class ReplayNvml:
    """Answers the NVML child's questions from a recording, in which GPUs go by index."""

    def __init__(self, player: Player) -> None:
        self._player, self.seconds = player, 0.0
        self._named = {
            str(answer.value): question.removesuffix("UUID()")
            for (port, question), answers in player.recording.answers.items()
            if port == "nvml" and question.endswith("/UUID()")
            for _, answer in answers
        }

    def answer(self, scope: str | None, questions: Sequence[Question]) -> list[Answer]:
        """Return the answers in order; `scope` is None for the system, `index:N` or a UUID for a GPU."""
        prefix = "" if scope is None else self._prefix(scope)
        if prefix is None:
            return [Answer(absent_code(GPU_IS_LOST))] * len(questions)
        answers = [self._player.answer(_asked(prefix, q)) for q in questions]
        self.seconds += sum(a.us for a in answers) * 1e-6
        return answers

    def _prefix(self, scope: str) -> str | None:
        index = scope.removeprefix("index:")
        return f"gpu{index}/" if index != scope else self._named.get(scope)


def bundled_overlays() -> list[str]:
    """Names of the overlays that come with wirewatch."""
    return sorted(p.stem for p in BUNDLED.glob("*.toml"))


def find_overlay(path: str) -> Path:
    """Return a file, or a bundled overlay by its name; raises OverlayError where neither exists."""
    for file in (Path(path), BUNDLED / f"{path}.toml"):
        if file.is_file():
            return file
    meant = did_you_mean(path, bundled_overlays(), "`wirewatch demo overlays` lists the bundled ones")
    raise OverlayError(f"no overlay {path!r}, neither a file nor a bundled one: {meant}")


def load_overlay(path: str) -> Overlay:
    """Read an overlay, from a file or by a bundled name; raises OverlayError where it is missing or wrong."""
    try:
        data = tomllib.loads(utf8(find_overlay(path).read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise OverlayError(f"overlay {path}: {error}") from error
    unknown = set(data) - {"about", "change", "finding"}
    if unknown or not all(isinstance(data.get(key, []), list) for key in ("change", "finding")):
        raise OverlayError(f"overlay {path}: takes `about`, [[change]] and [[finding]], got {sorted(data)}")
    if "change" not in data:
        raise OverlayError(f"overlay {path}: it has no [[change]], so it changes nothing")
    changes = tuple(_change(path, entry) for entry in data["change"])
    findings = tuple(_finding(path, entry) for entry in data.get("finding", ()))
    return Overlay(Path(path).stem, str(data.get("about", "")), changes, findings)


def within(value: Any, path: Sequence[str], change: Callable[[Any], Json | Absent]) -> Any:
    """Return the value with all members at a path changed; `*` and `?` match names and positions."""
    if not path:
        return change(value)
    name, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        return {k: within(v, rest, change) if fnmatchcase(k, name) else v for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [within(v, rest, change) if fnmatchcase(str(n), name) else v for n, v in enumerate(value)]
    return value


def is_counter(key: Key) -> bool:
    """Return whether a question's answer only ever grows."""
    port, question = key
    if port == "sysfs":
        return any(part in question for part in _COUNTER_FILES)
    if field := _FIELD.match(question):
        return int(field[1]) in _COUNTER_FIELDS
    return question.partition("/")[2].partition("(")[0] in _COUNTER_CALLS


def open_player(source: Source) -> Player:
    """Return a player for a recording by name or path; raises RecordingError, OverlayError."""
    lead = source.lead
    loaded = tuple(one if lead is None else one.hurried(lead) for one in map(load_overlay, source.overlays))
    return Player(load_recording(source.replay), lambda: time.monotonic() - source.epoch, loaded, source.loop)


def _finding(path: str, entry: Any) -> Expected:
    texts = isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values())
    named = texts and _TEXTS <= set(entry) <= _TEXTS | _SUBJECT | {"stage"}
    if not named or entry["health"] not in Health.__members__:
        wanted = f"{sorted(_TEXTS)} and any of {sorted(_SUBJECT)} as texts, with a health in capitals"
        raise OverlayError(f"overlay {path}: a finding has {wanted}; got {entry!r}")
    subject = Subject(**{key: value for key, value in entry.items() if key in _SUBJECT})
    health, stage = Health[entry["health"]], entry.get("stage", "")
    return Expected(entry["rule"], health, subject, entry["evidence"], entry["action"], stage)


def _change(path: str, entry: Any) -> AnswerChange:
    if not isinstance(entry, dict):
        raise OverlayError(f"overlay {path}: a change is a table, got {entry!r}")
    actions = [a for a in entry if a in ACTIONS]
    unknown = set(entry) - ACTIONS - _SELECTORS
    if unknown or len(actions) != 1 or not {"port", "match"} <= set(entry):
        words = sorted(ACTIONS)
        raise OverlayError(f"overlay {path}: a change has port, match and one of {words}; got {entry}")
    action = actions[0]
    if "at" in entry and action not in _INSIDE:
        raise OverlayError(f"overlay {path}: `at` goes with one of {sorted(_INSIDE)}, not with {action}")
    wanted = {"port": _PORT, "match": _TEXT, "at": _TEXT, "from": _AMOUNT, "until": _AMOUNT}
    wanted[action] = _ARGUMENTS[action]
    for key, (allowed, expected) in wanted.items():
        if key in entry and not allowed(entry[key]):
            raise OverlayError(f"overlay {path}: {key} is {expected}, got {entry[key]!r}")
    start, until = float(entry.get("from", 0)), float(entry.get("until", _FOR_EVER))
    place = entry["port"], entry["match"]
    return AnswerChange(*place, action, entry[action], start, until, entry.get("at", ""))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_ARGUMENTS: dict[str, _Allowed] = {
    "set": (lambda _: True, "a value"),
    **dict.fromkeys(("add", "scale", "ramp"), (_number, "a number")),
    "code": (lambda v: _number(v) and isinstance(v, int), "a number of NVML"),
    "errno": (lambda v: v in errnos.errorcode.values(), "the name of an errno"),
    "slow": _AMOUNT,
    "raise": _TEXT,
    **dict.fromkeys(("hang", "crash"), (lambda v: v is True, "true")),
}


def _act(
    one: AnswerChange, key: Key, seconds: float, answer: Answer | None, effects: Effects
) -> Answer | None:
    if one.action == "set" and not one.at:
        return Answer(one.argument)
    if one.action in _OF_VALUES:
        return answer and answer._replace(value=_changed(one, seconds, answer.value))
    match one.action:
        case "code":
            return Answer(absent_code(int(one.argument)))
        case "errno":
            return Answer(absent_errno(getattr(errnos, one.argument), key[1]))
        case "slow":
            effects.wait(float(one.argument))
            return answer
        case "raise":
            raise RuntimeError(str(one.argument))
        case "crash":
            effects.die()
    while True:
        effects.wait(_HOUR)


def _changed(one: AnswerChange, seconds: float, value: Json | Absent) -> Json | Absent:
    """Return the changed value; an absence can only be set, since it has no members."""
    path = one.at.split("/") if one.at else ()
    found: Json | Absent = within(value, path, lambda inner: _new(one, seconds, inner))
    return found


def _new(one: AnswerChange, seconds: float, value: Json | Absent) -> Json | Absent:
    argument: Json = one.argument
    if one.action == "set":
        return argument
    if one.action == "scale":
        return _more(value, 0, one.argument)
    return _more(value, one.argument if one.action == "add" else int(one.argument * (seconds - one.start)))


def _more(value: Json | Absent, amount: float, times: float = 1) -> Json | Absent:
    """Return a number times a factor plus an amount; whole numbers stay whole when they are multiplied."""
    counted = whole(value.strip()) if isinstance(value, str) else None
    if counted is not None:
        return str(int(counted * times) + int(amount))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (int(value * times) if isinstance(value, int) else value * times) + amount
    return value


def _grown(answer: Answer, amount: int) -> Answer:
    value = number(answer.value)
    if value is None:
        return answer
    return Answer(str(value + amount) if isinstance(answer.value, str) else value + amount, answer.us)
