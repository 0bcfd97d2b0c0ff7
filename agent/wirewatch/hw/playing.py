"""Playing a recording: which answer it gives at each moment, overlays applied.

The recording's own clock decides which moment is now. Past the last moment it holds; looped, it begins
again with every counter continued by what it grew over the whole recording, which is synthetic.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.ports import Answer
from wirewatch.core.types import Absent, Why
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


LATER_PORTS: Mapping[str, Why] = {
    "kmsg": Why.UNSUPPORTED, "command": Why.UNSUPPORTED, "kubelet": Why.MISSING, "slurm": Why.MISSING,
    "probe": Why.MISSING,
}  # fmt: skip
"""Ports that recordings may have nothing of: nothing to watch, no kubelet, no Slurm, no probe."""


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
        if key[0] in LATER_PORTS and key[0] not in self.recording.ports:
            absent = Absent(LATER_PORTS[key[0]], f"recording {self.recording.name} has nothing of {key[0]}")
            return Answer(absent)
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
