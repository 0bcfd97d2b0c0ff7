"""A recording in play with a fault on it, on a clock that jumps: the ports of a node."""

import asyncio
import selectors
from collections.abc import Callable
from dataclasses import dataclass, field

from wirewatch.core.ports import Answer, Hardware
from wirewatch.daemon.schedule import Lane, T
from wirewatch.hw.nvml import protocol
from wirewatch.hw.nvml.client import NvmlClient
from wirewatch.hw.nvml.process import Child, ChildDied, ChildHung
from wirewatch.hw.overlay import AnswerChange, Overlay, Player, ReplayNvml
from wirewatch.hw.recording import Key, Recording
from wirewatch.hw.replay import (
    ReplayCommand,
    ReplayHost,
    ReplayKmsg,
    ReplayKubelet,
    ReplayProbe,
    ReplaySlurm,
    ReplaySysfs,
)
from wirewatch.jobs.ras.recorded import ReplayRas

EPOCH = 1_795_223_090.0
"""Unix seconds at which a play begins."""
BOOTED = 1000.0
"""Monotonic seconds at which it does."""
WAITING = frozenset({"hang", "slow", "crash"})
"""Actions that a process of its own would wait for, or die of."""


class JumpingClock:
    """`seconds` since the play began; whoever waits moves them on."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        """Unix seconds."""
        return EPOCH + self.seconds

    def mono(self) -> float:
        """Monotonic seconds."""
        return BOOTED + self.seconds


class _Jumps(selectors.SelectSelector):
    def __init__(self, clock: JumpingClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout:
            self._clock.seconds += timeout
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop that moves the clock on where another would sleep."""

    def __init__(self, clock: JumpingClock) -> None:
        super().__init__(_Jumps(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.mono()


class DirectLane(Lane):
    """A lane without a thread: a job is done when it is submitted."""

    def __init__(self, _name: str) -> None:
        """Nothing is started."""

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised where the future is awaited
            future.set_exception(error)
        return future


class StuckError(Exception):
    """An answer that a process would wait for, `seconds` long, or die of: then it is 0."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


@dataclass(frozen=True)
class FaultPlayer(Player):
    """A player that keeps what no change touches, and never waits; `fault` may be replaced while it plays."""

    fault: list[AnswerChange] = field(default_factory=list)
    kept: dict[tuple[float, Key], Answer] = field(default_factory=dict)
    known: list[AnswerChange] = field(default_factory=list)
    """The fault as it was at the last question."""

    def answer(self, key: Key) -> Answer:
        seconds = self.seconds()
        if self.known != self.fault:
            self.known[:] = self.fault
            vars(self).pop("changes_of", None)
        applied = [one for one in self.changes_of(key) if one.start <= seconds < one.until]
        for one in applied:
            if one.action in WAITING:
                raise StuckError({"hang": 1e9, "slow": one.argument, "crash": 0.0}[one.action])
        if applied:
            return super().answer(key)
        place = (min(seconds, self.length), key)
        if place not in self.kept:
            self.kept[place] = super().answer(key)
        return self.kept[place]


class DirectChild(Child):
    """The process that answers for NVML, without a process: what it would wait for moves the clock on."""

    def __init__(self, answers: ReplayNvml, clock: JumpingClock) -> None:
        self._answers, self._clock, self._alive = answers, clock, True

    @property
    def pid(self) -> int:
        return 1

    def hello(self, _deadline: float) -> protocol.Hello:
        return protocol.Hello()

    def ask(self, job: bytes, deadline: float) -> protocol.Reply:
        scope, questions = protocol.decode_job(job)
        try:
            return protocol.Reply(tuple(self._answers.answer(scope, questions)), 0.0)
        except RuntimeError as error:
            return protocol.Reply((), 0.0, str(error))
        except StuckError as stuck:
            self._clock.seconds += min(stuck.seconds, deadline)
            if stuck.seconds == 0:
                raise ChildDied("the NVML process died (SIGSEGV)") from stuck
            raise ChildHung from stuck

    def close(self, _patience: float = 0.0) -> bool:
        return self.kill()

    def kill(self) -> bool:
        self._alive = False
        return True

    def shoot(self) -> None:
        self._alive = False

    def alive(self) -> bool:
        return self._alive

    def gone(self) -> bool:
        return not self._alive


@dataclass
class Machine:
    """The ports over a recording; `fault` holds the changes that are on it, which may be replaced."""

    recording: Recording
    clock: JumpingClock
    fault: list[AnswerChange]
    kept: dict[tuple[float, Key], Answer]

    def hardware(self) -> Hardware:
        """Every port again, as a daemon that starts has them."""
        clock, fault = self.clock, self.fault
        # The overlay holds the very list, so that a change of the fault is one of the play.
        overlay = Overlay("fault", "", fault)  # type: ignore[arg-type]
        player = FaultPlayer(self.recording, lambda: clock.seconds, (overlay,), fault=fault, kept=self.kept)
        answers = ReplayNvml(player)
        nvml = NvmlClient(start=lambda _source: DirectChild(answers, clock), mono=clock.mono)
        return Hardware(
            nvml, ReplaySysfs(player), ReplayHost(player, EPOCH), ReplayKmsg(player), ReplayCommand(player),
            ReplayKubelet(player), ReplaySlurm(player), clock, ReplayProbe(player, clock),
            source="synthetic", about=f"recording {self.recording.name}", ras=ReplayRas(player),
        )  # fmt: skip
