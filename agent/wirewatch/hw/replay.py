"""The ports of a recording in play: the same questions as to a machine, answered from a file."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.kernellog import parse_record
from wirewatch.core.nvml import as_int, as_ints, as_str, member
from wirewatch.core.ports import Answer, Clock, KernelLog, Order, Output, Pod, ProcessUse, Question, SlurmJob
from wirewatch.core.probe import PROBED_SCHEMA, Outcome, Probed, ProbedGpu, wrong_in_probed
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.host import SystemHost
from wirewatch.hw.overlay import Player

RUN = ("probe", "Run()")
_PROBED = TypeAdapter(Probed)
_POLL = 0.02
"""Seconds between two questions whether a played probe is still wanted."""


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
    """The host port from a recording; what our own processes use is real.

    `began` is when the play did, in Unix seconds: the machine was started as long before that as before the
    recording, so that the events of its kernel log happen now.
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


class ReplayKubelet:
    """The kubelet port from a recording."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def pods(self) -> Sequence[Pod] | Absent:
        value = self._player.answer(("kubelet", "Pods()")).value
        if isinstance(value, Absent):
            return value
        try:
            return tuple(_pod(one) for one in _several(value))
        except ValueError as error:
            return Absent(Why.MALFORMED, f"not a list of pods: {error}")


class ReplaySlurm:
    """The slurm port from a recording."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def jobs(self) -> Sequence[SlurmJob] | Absent:
        value = self._player.answer(("slurm", "Jobs()")).value
        if isinstance(value, Absent):
            return value
        try:
            return tuple(_job(one) for one in _several(value))
        except ValueError as error:
            return Absent(Why.MALFORMED, f"not a list of jobs: {error}")


class ReplayProbe:
    """The probe port from a recording: the recorded probe, after as long as it took if there is a `wait`.

    `wait` lets so many seconds pass.
    """

    def __init__(self, player: Player, clock: Clock, wait: Callable[[float], None] | None = None) -> None:
        self._player = player
        self._clock = clock
        self._wait = wait

    def engine(self, wanted: str) -> str | Absent:
        """The engine of the recorded probe, whatever is wanted."""
        value = self._player.answer(RUN).value
        probed = _decode(value)
        if isinstance(probed, Absent):
            return probed
        return probed.plan.engine if wanted in {"auto", probed.plan.engine} else _other(wanted)

    def recorded(self) -> Probed | Absent:
        """The recorded probe itself."""
        return _decode(self._player.answer(RUN).value)

    def settings(self) -> Mapping[str, str]:
        probed = self.recorded()
        return {} if isinstance(probed, Absent) else probed.settings

    @contextmanager
    def lock(self) -> Iterator[str | None]:
        """Nothing to lock: any number of processes may play a recording."""
        yield None

    def run(self, order: Order) -> Probed:
        probed = _decode(self._player.answer(RUN).value)
        if isinstance(probed, Absent):
            return self._nothing(order, "failed", str(probed))
        if self._wait is not None and (why := self._last(probed.seconds, order, self._wait)) is not None:
            return self._nothing(order, "preempted", why)
        return replace(probed, at=self._clock.now(), by="recording", forced=order.forced)

    def _last(self, seconds: float, order: Order, wait: Callable[[float], None]) -> str | None:
        """Last as long as the recorded probe did; the reason if it is withdrawn before, else None."""
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


def _pod(value: Json) -> Pod:
    devices = [_texts(one, 2) for one in _several(_of(value, "devices"))]
    claims = [_texts(one, 3) for one in _several(_of(value, "claims"))]
    return Pod(
        _text(_of(value, "namespace")),
        _text(_of(value, "name")),
        tuple((resource, device) for resource, device in devices),
        tuple((driver, pool, device) for driver, pool, device in claims),
    )


def _job(value: Json) -> SlurmJob:
    gpus = _of(value, "gpus")
    numbers = None if gpus is None else as_ints(gpus, len(_several(gpus)))
    if isinstance(numbers, Absent):
        raise ValueError(numbers.detail)  # noqa: TRY004 - an answer of the wrong shape, not a wrong call
    held = None if numbers is None else tuple(numbers)
    return SlurmJob(_text(_of(value, "id")), _text(_of(value, "state")), held)


def _of(value: Json, name: str) -> Json:
    found = member(value, name)
    if isinstance(found, Absent):
        raise ValueError(found.detail)  # noqa: TRY004
    return found


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a text: {value!r}")  # noqa: TRY004
    return value


def _several(value: Json) -> Sequence[Json]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"not a list: {value!r}")  # noqa: TRY004
    return value


def _texts(value: Json, count: int) -> Sequence[str]:
    words = [_text(one) for one in _several(value)]
    if len(words) != count:
        raise ValueError(f"not {count} texts: {value!r}")
    return words


def _other(wanted: str) -> Absent:
    return Absent(Why.UNSUPPORTED, f"the recorded probe is not of engine {wanted}")


def _decode(value: Json | Absent) -> Probed | Absent:
    if isinstance(value, Absent):
        return value
    try:
        # Through JSON, since strict models take a list for a tuple only there.
        probed = _PROBED.validate_json(json.dumps(value))
    except ValidationError as error:
        return Absent(Why.MALFORMED, f"not a recorded probe: {error.errors()[0]['msg']}")
    wrong = wrong_in_probed(probed)
    return Absent(Why.MALFORMED, f"not a recorded probe: {wrong}") if wrong else probed
