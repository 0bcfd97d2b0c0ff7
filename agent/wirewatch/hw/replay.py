"""The ports of a recording in play: asked as those of a machine are, answered from a file."""

from collections.abc import Sequence

from wirewatch.core.kernellog import parse_record
from wirewatch.core.nvml import as_int, as_ints, as_str, member
from wirewatch.core.ports import Answer, KernelLog, Output, Pod, ProcessUse, Question, SlurmJob
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.host import SystemHost
from wirewatch.hw.nvml.codes import GPU_IS_LOST, absent_code
from wirewatch.hw.nvml.wire import Source
from wirewatch.hw.playing import Player, open_player
from wirewatch.hw.recording import Recording


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


class ReplayKubelet:
    """The kubelet port from a recording."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def pods(self) -> Sequence[Pod] | Absent:
        value = self._player.answer(("kubelet", "Pods()")).value
        if isinstance(value, Absent):
            return value
        try:
            return tuple(_pod(told) for told in _several(value))
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
            return tuple(_job(told) for told in _several(value))
        except ValueError as error:
            return Absent(Why.MALFORMED, f"not a list of jobs: {error}")


def _pod(told: Json) -> Pod:
    devices = [_words(one, 2) for one in _several(_of(told, "devices"))]
    claims = [_words(one, 3) for one in _several(_of(told, "claims"))]
    return Pod(
        _word(_of(told, "namespace")),
        _word(_of(told, "name")),
        tuple((resource, device) for resource, device in devices),
        tuple((driver, pool, device) for driver, pool, device in claims),
    )


def _job(told: Json) -> SlurmJob:
    gpus = _of(told, "gpus")
    numbers = None if gpus is None else as_ints(gpus, len(_several(gpus)))
    if isinstance(numbers, Absent):
        raise ValueError(numbers.detail)  # noqa: TRY004 - an answer of the wrong shape, not a wrong call
    held = None if numbers is None else tuple(numbers)
    return SlurmJob(_word(_of(told, "id")), _word(_of(told, "state")), held)


def _of(told: Json, name: str) -> Json:
    value = member(told, name)
    if isinstance(value, Absent):
        raise ValueError(value.detail)  # noqa: TRY004
    return value


def _word(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a text: {value!r}")  # noqa: TRY004
    return value


def _several(value: Json) -> Sequence[Json]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"not a list: {value!r}")  # noqa: TRY004
    return value


def _words(value: Json, count: int) -> Sequence[str]:
    words = [_word(one) for one in _several(value)]
    if len(words) != count:
        raise ValueError(f"not {count} texts: {value!r}")
    return words
