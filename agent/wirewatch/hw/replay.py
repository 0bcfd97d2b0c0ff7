"""The ports of a recording in play: the same questions as to a machine, answered from a file."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.kernellog import parse_record
from wirewatch.core.ports import (
    Answer,
    Clock,
    Hold,
    KernelLog,
    Order,
    Output,
    Pod,
    ProcessUse,
    Question,
    SlurmJob,
)
from wirewatch.core.probe import PROBED_SCHEMA, Outcome, Probed, ProbedGpu, wrong_in_probed
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.host import SystemHost
from wirewatch.hw.overlay import Player

RUN = ("probe", "Run()")
_OUTPUT, _PROBED = TypeAdapter(Output), TypeAdapter(Probed)
_PODS, _JOBS = TypeAdapter(tuple[Pod, ...]), TypeAdapter(tuple[SlurmJob, ...])
T = TypeVar("T")
_POLL = 0.02
"""Seconds between two checks whether a played probe is still wanted."""


class _Replay:
    def __init__(self, player: Player) -> None:
        self._player = player

    def _recorded(self, port: str, question: str) -> Json | Absent:
        return self._player.answer((port, question)).value


class ReplaySysfs(_Replay):
    """The sysfs port from a recording."""

    def read(self, path: str) -> str | Absent:
        return self._text("read", path)

    def data(self, path: str) -> bytes | Absent:
        value = self._text("data", path)
        try:
            return value if isinstance(value, Absent) else bytes.fromhex(value)
        except ValueError:
            return Absent(Why.MALFORMED, f"{path}: not hexadecimal in the recording")

    def entries(self, path: str) -> Sequence[str] | Absent:
        value = self._recorded("sysfs", f"list {path}")
        if isinstance(value, list | tuple):
            return [str(v) for v in value]
        return value if isinstance(value, Absent) else Absent(Why.MALFORMED, path)

    def link(self, path: str) -> str | Absent:
        return self._text("link", path)

    def _text(self, how: str, path: str) -> str | Absent:
        value = self._recorded("sysfs", f"{how} {path}")
        return value if isinstance(value, str | Absent) else Absent(Why.MALFORMED, path)


class ReplayHost(_Replay):
    """The host port from a recording; our own processes' use is real.

    `began`: Unix seconds of the start of play. The machine booted as long before it as before the recording,
    so that the events of its kernel log happen now.
    """

    def __init__(self, player: Player, began: float) -> None:
        super().__init__(player)
        self._own = SystemHost()
        self._later = began - player.recording.at_unix

    def ask(self, question: Question) -> Answer:
        answer = self._player.answer(("host", str(question)))
        if question.call == "BootTime" and isinstance(answer.value, int | float):
            return Answer(answer.value + self._later, answer.us)
        return answer

    def process(self, pid: int | None) -> ProcessUse | Absent:
        return self._own.process(pid)


class ReplayKmsg(_Replay):
    """The kmsg port from a recording: at each moment the whole log, as far as it was kept."""

    def records(self, after: int) -> KernelLog | Absent:
        value = self._recorded("kmsg", "Records()")
        if isinstance(value, Absent):
            return value
        if not isinstance(value, list | tuple):
            return Absent(Why.MALFORMED, f"not a list of records: {value!r}")
        parsed = [(str(raw), parse_record(str(raw))) for raw in value]
        return KernelLog(tuple(raw for raw, r in parsed if r is None or r.sequence > after))


class ReplayCommand(_Replay):
    """The command port from a recording."""

    def run(self, name: str) -> Output | Absent:
        return _decode(_OUTPUT, self._recorded("command", f"{name}()"), "what a program printed", "err")


class ReplayKubelet(_Replay):
    """The kubelet port from a recording."""

    def pods(self) -> Sequence[Pod] | Absent:
        return _decode(_PODS, self._recorded("kubelet", "Pods()"), "a list of pods", "devices", "claims")


class ReplaySlurm(_Replay):
    """The slurm port from a recording."""

    def jobs(self) -> Sequence[SlurmJob] | Absent:
        return _decode(_JOBS, self._recorded("slurm", "Jobs()"), "a list of jobs")


class ReplayProbe(_Replay):
    """The recorded probe; if `wait` is given, it lets the probe's recorded seconds pass first."""

    def __init__(self, player: Player, clock: Clock, wait: Callable[[float], None] | None = None) -> None:
        super().__init__(player)
        self._clock, self._wait = clock, wait

    def engine(self, wanted: str) -> str | Absent:
        """Return the engine of the recorded probe, whatever is wanted."""
        probed = self.recorded()
        if isinstance(probed, Absent):
            return probed
        other = Absent(Why.UNSUPPORTED, f"the recorded probe is not of engine {wanted}")
        return probed.plan.engine if wanted in {"auto", probed.plan.engine} else other

    def recorded(self) -> Probed | Absent:
        """Return the recorded probe itself."""
        probed = _decode(_PROBED, self._player.answer(RUN).value, "a recorded probe")
        wrong = "" if isinstance(probed, Absent) else wrong_in_probed(probed)
        return Absent(Why.MALFORMED, f"not a recorded probe: {wrong}") if wrong else probed

    def settings(self) -> Mapping[str, str]:
        probed = self.recorded()
        return {} if isinstance(probed, Absent) else probed.settings

    @contextmanager
    def lock(self) -> Iterator[str | None]:
        """Nothing to lock: any number of processes may play a recording."""
        yield None

    def holds(self) -> Sequence[Hold]:
        """None: a recording gives way to nobody."""
        return ()

    def run(self, order: Order) -> Probed:
        probed = self.recorded()
        if isinstance(probed, Absent):
            return self._nothing(order, "failed", str(probed))
        if self._wait is not None and (why := self._last(probed.seconds, order, self._wait)) is not None:
            return self._nothing(order, "preempted", why)
        return replace(probed, at=self._clock.now(), by="recording", forced=order.forced)

    def _last(self, seconds: float, order: Order, wait: Callable[[float], None]) -> str | None:
        """Last as long as the recorded probe; return the reason if it is withdrawn before, else None."""
        end = self._clock.mono() + seconds
        while (left := end - self._clock.mono()) > 0:
            if (why := order.withdrawn()) is not None:
                return why
            wait(min(_POLL, left))
        return None

    def _nothing(self, order: Order, outcome: Outcome, why: str) -> Probed:
        return Probed(
            schema=PROBED_SCHEMA, at=self._clock.now(), by="recording", forced=order.forced, outcome=outcome,
            why=why, plan=order.plan, gpus=tuple(ProbedGpu(g.index, g.uuid) for g in order.gpus),
            conditions=order.conditions, settings=dict(order.settings), seconds=0.0, held_seconds=0.0,
        )  # fmt: skip


def _decode(kind: TypeAdapter[T], value: Json | Absent, what: str, *members: str) -> T | Absent:
    """Return a recorded value; `members` must be in each object, also where the type has a default."""
    if isinstance(value, Absent):
        return value
    for one in value if isinstance(value, list | tuple) else (value,):
        if missing := set(members).difference(one) if isinstance(one, Mapping) else ():
            return Absent(Why.MALFORMED, f"not {what}: it has no {', '.join(sorted(missing))}")
    try:
        # Through JSON, since strict models take a list for a tuple only there.
        return kind.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        return Absent(Why.MALFORMED, f"not {what}: {error.errors()[0]['msg']}")
