"""Playing a recording: the same ports, answered from a file.

The recording's own clock decides which moment is now. Past the last moment it holds; looped, it begins
again with every counter continued by what it grew over the whole recording, which is synthetic.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wirewatch.core.asking import as_int, as_str, member
from wirewatch.core.kernel import parse_record
from wirewatch.core.ports import Answer, KernelLog, Output, ProcessUse, Question
from wirewatch.core.types import Absent, Why
from wirewatch.hw.host import SystemHost
from wirewatch.hw.nvml.codes import GPU_IS_LOST, absent_code
from wirewatch.hw.nvml.wire import Source
from wirewatch.hw.overlay import Overlay, change, load_overlay
from wirewatch.hw.recording import Key, Recording, load_recording, number

_COUNTER_FIELDS = frozenset(
    {32, 38, 39, 45, 46, 52, 53, 59, *range(74, 82), 83, 94, 95, *range(138, 142), 160, 161, 162, 163, 169}
    | {*range(173, 184), 191, 197, 198, *range(201, 216), 219, 221, 269, 270, 271}
)
_COUNTER_FILES = ("/counters/", "/hw_counters/", "/statistics/", "/carrier_changes", "/carrier_down_count")
_COUNTER_CALLS = frozenset({"PcieReplayCounter", "TotalEnergyConsumption", "NvLinkErrorCounter"})
_FIELD = re.compile(r"gpu\d+/Field\((\d+)")


def is_counter(key: Key) -> bool:
    """Whether a question's answer only ever grows."""
    port, question = key
    if port == "sysfs":
        return any(part in question for part in _COUNTER_FILES)
    field = _FIELD.match(question)
    if field:
        return int(field[1]) in _COUNTER_FIELDS
    return question.partition("/")[2].partition("(")[0] in _COUNTER_CALLS


LATER_PORTS = frozenset({"kmsg", "command"})
"""Ports that recordings of before have nothing of: there is nothing to watch on them then."""


class NotRecorded(Exception):
    """A question that the recording holds no answer to."""


@dataclass(frozen=True)
class Player:
    """A recording in play; `seconds` tells for how long. `strict` makes an unrecorded question an error."""

    recording: Recording
    seconds: Callable[[], float]
    overlays: Sequence[Overlay] = ()
    loop: bool = False
    strict: bool = False

    def answer(self, key: Key) -> Answer:
        """The answer of this moment, overlays applied.

        Raises:
            NotRecorded: strict, and neither the recording nor an overlay has an answer.
            RuntimeError: an overlay says `raise`.
        """
        seconds = self.seconds()
        moment, cycle = self._moment(seconds)
        found = self.recording.at(key, moment)
        if cycle and found is not None and is_counter(key):
            found = _grown(found, cycle * self.recording.growth(key))
        found = change(self.overlays, key, seconds, found)
        if found is not None:
            return found
        if key[0] in LATER_PORTS - self.recording.ports:
            return Answer(Absent(Why.UNSUPPORTED, f"recording {self.recording.name} has nothing of {key[0]}"))
        if self.strict:
            raise NotRecorded(f"{key[0]}: {key[1]}")
        return Answer(Absent(Why.MISSING, f"not in recording {self.recording.name}: {key[1]}"))

    def _moment(self, seconds: float) -> tuple[int, int]:
        times = self.recording.times
        length = times[-1] - times[0]
        cycle = int(seconds // length) if self.loop and length > 0 else 0
        now = times[0] + seconds - cycle * length
        return max(i for i, t in enumerate(times) if t <= now or i == 0), cycle


def _grown(answer: Answer, amount: int) -> Answer:
    value = number(answer.value)
    if value is None:
        return answer
    return Answer(str(value + amount) if isinstance(answer.value, str) else value + amount, answer.us)


def open_player(source: Source) -> Player:
    """A player for a recording by name or path.

    Raises:
        RecordingError, OverlayError: see there.
    """
    loaded = tuple(load_overlay(path) for path in source.overlays)
    recording = load_recording(source.replay)
    return Player(recording, lambda: time.monotonic() - source.epoch, loaded, source.loop)


def _names(recording: Recording) -> dict[str, str]:
    """UUIDs to the prefix of their GPU's questions."""
    told = {k[1]: v for k, v in recording.answers.items() if k[0] == "nvml" and k[1].endswith("/UUID()")}
    return {str(a.value): q.removesuffix("UUID()") for q, answers in told.items() for _, a in answers}


class ReplayNvml:
    """Answers NVML questions of the child from a recording; GPUs are told by index, as recorded."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._named = _names(player.recording)
        self.seconds = 0.0

    def answer(self, scope: str | None, questions: Sequence[Question]) -> list[Answer]:
        prefix = "" if scope is None else self._prefix(scope)
        if prefix is None:
            return [Answer(absent_code(GPU_IS_LOST))] * len(questions)
        answers = [self._player.answer(("nvml", f"{prefix}{q}")) for q in questions]
        self.seconds += sum(a.us for a in answers) * 1e-6
        return answers

    def _prefix(self, scope: str) -> str | None:
        index = scope.removeprefix("index:")
        return f"gpu{index}/" if index != scope else self._named.get(scope)


def open_nvml(source: Source) -> ReplayNvml:
    return ReplayNvml(open_player(source))


class ReplaySysfs:
    """The sysfs port from a recording."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def read(self, path: str) -> str | Absent:
        value = self._player.answer(("sysfs", f"read {path}")).value
        return value if isinstance(value, str | Absent) else Absent(Why.MALFORMED, path)

    def data(self, path: str) -> bytes | Absent:
        value = self._player.answer(("sysfs", f"data {path}")).value
        if isinstance(value, Absent):
            return value
        try:
            return bytes.fromhex(value if isinstance(value, str) else "?")
        except ValueError:
            return Absent(Why.MALFORMED, f"{path}: not hexadecimal in the recording")

    def entries(self, path: str) -> Sequence[str] | Absent:
        value = self._player.answer(("sysfs", f"list {path}")).value
        if isinstance(value, Absent):
            return value
        return [str(v) for v in value] if isinstance(value, list | tuple) else Absent(Why.MALFORMED, path)

    def link(self, path: str) -> str | Absent:
        value = self._player.answer(("sysfs", f"link {path}")).value
        return value if isinstance(value, str | Absent) else Absent(Why.MALFORMED, path)


class ReplayHost:
    """The host port from a recording; our own processes are still our own.

    `began` is when the play did, in Unix seconds: the machine was started as long before that as before the
    recording, so that what its kernel log tells happens now.
    """

    def __init__(self, player: Player, began: float) -> None:
        self._player = player
        self._own = SystemHost()
        self._later = began - player.recording.at_unix

    def ask(self, question: Question) -> Answer:
        answer = self._player.answer(("host", str(question)))
        if question.call == "BootTime" and isinstance(answer.value, int | float):
            return Answer(answer.value + self._later, answer.us)
        return answer

    def process(self, pid: int | None) -> ProcessUse | Absent:
        return self._own.process(pid)


class ReplayKmsg:
    """The kmsg port from a recording: at each moment the whole log, as far as it was kept."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def records(self, after: int) -> KernelLog | Absent:
        value = self._player.answer(("kmsg", "Records()")).value
        if isinstance(value, Absent):
            return value
        if not isinstance(value, list | tuple):
            return Absent(Why.MALFORMED, f"not a list of records: {value!r}")
        parsed = [(str(raw), parse_record(str(raw))) for raw in value]
        return KernelLog(tuple(raw for raw, r in parsed if r is None or r.sequence > after))


class ReplayCommand:
    """The command port from a recording."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def run(self, name: str) -> Output | Absent:
        value = self._player.answer(("command", f"{name}()")).value
        if isinstance(value, Absent):
            return value
        status, out = as_int(member(value, "status")), as_str(member(value, "out"))
        err = as_str(member(value, "err"))
        if isinstance(status, Absent) or isinstance(out, Absent) or isinstance(err, Absent):
            return Absent(Why.MALFORMED, f"not what a program printed: {value!r}")
        return Output(status, out, err)
