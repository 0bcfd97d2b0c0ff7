"""A play in counted time: a recording is polled for minutes of its own time, without waiting.

A question that hangs takes as long as its caller waits, and a crash ends no process, since there is none.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from wirewatch.hw.nvml import protocol
from wirewatch.hw.nvml.process import ChildDied, ChildHung
from wirewatch.hw.overlay import Effects, Player, ReplayNvml

_EVER = float("inf")


class PlayOverdue(BaseException):
    """The asker does not wait any longer; no `except Exception` on the way takes it for an answer."""


class PlayClock:
    """A clock that moves on order, and by itself after `let_go`; from `before` seconds ago, never ahead."""

    def __init__(self, before: float) -> None:
        self._unix, self._mono = time.time() - before, time.monotonic() - before
        self._played = 0.0
        self._let_go: float | None = None
        self._end: tuple[float, type[BaseException]] = (_EVER, PlayOverdue)

    def now(self) -> float:
        here = time.time()
        return min(self._unix + self.seconds(), here) if self._let_go is None else here

    def mono(self) -> float:
        return self._mono + self.seconds()

    def mono_at(self, seconds: float) -> float:
        """Return the monotonic seconds at which the recording has played for this time."""
        return self._mono + seconds

    def seconds(self) -> float:
        """Return the seconds that the recording has played."""
        return self._played if self._let_go is None else self._played + time.monotonic() - self._let_go

    def move_to(self, seconds: float) -> None:
        """Move the play to this second; nothing happens if it is past it."""
        self._played = max(self._played, seconds)

    def let_go(self) -> None:
        """Let the time pass by itself from now on, as that of the machine."""
        self._let_go = self._let_go or time.monotonic()

    def wait(self, seconds: float) -> None:
        """Let seconds pass; raises the error of a `within` whose time is over first."""
        if self._let_go is not None:
            time.sleep(seconds)
            return
        end, error = self._end
        self._played = min(self._played + seconds, max(end, self._played))
        if self._played >= end:
            raise error

    @contextmanager
    def within(self, seconds: float, error: type[BaseException] = PlayOverdue) -> Iterator[None]:
        """Raise `error` in a wait inside of the block once this number of seconds has passed."""
        outer = self._end
        self._end = min(outer, (self._played + seconds, error), key=lambda end: end[0])
        try:
            yield
        finally:
            self._end = outer


class PlayedChild:
    """Stands for the NVML child: answers from a player, in this process and at once."""

    pid = 0

    def __init__(self, player: Player, clock: PlayClock) -> None:
        self._nvml, self._clock = ReplayNvml(player), clock
        self._lives = True

    def hello(self, _deadline: float) -> protocol.Hello:
        return protocol.Hello()

    def ask(self, job: bytes, deadline: float) -> protocol.Reply:
        """Return the reply to a job, `deadline` in seconds of play; raises ChildHung, ChildDied."""
        scope, questions = protocol.decode_job(job)
        before = self._nvml.seconds
        try:
            with self._clock.within(deadline, ChildHung):
                answers = tuple(self._nvml.answer(scope, questions))
        except RuntimeError as error:
            return protocol.Reply((), self._nvml.seconds - before, str(error))
        except ChildDied:
            self._lives = False
            raise
        return protocol.Reply(answers, self._nvml.seconds - before)

    def close(self, _patience: float = 0.0) -> bool:
        return self.kill()

    def kill(self) -> bool:
        self._lives = False
        return True

    def shoot(self) -> None:
        self._lives = False

    def alive(self) -> bool:
        return self._lives

    def gone(self) -> bool:
        return not self._lives


def effects(clock: PlayClock) -> Effects:
    """Effects of `hang`, `slow` and `crash` of an overlay on a play."""

    def die() -> None:
        raise ChildDied("the NVML process died (SIGSEGV)")

    return Effects(clock.wait, die)
