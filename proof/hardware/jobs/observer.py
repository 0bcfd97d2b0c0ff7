"""A witness of preemptions that knows nothing of wirewatch: NVML and /proc, on the monotonic clock.

python -m proof.hardware.jobs.observer    READY gpus; a line {"trial": N, "worker": PID, "foreign": PID}:
    UPN once the worker has a context on every GPU, SEENN {...} when all is over; until the input ends
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import pynvml

from proof.hardware import processes
from proof.hardware.jobs.listening import say

AFTER = 0.8
"""Seconds for which memory is looked at once the worker is dead and the other has come."""
ALONE = 3.0
"""Seconds to wait for the other, once the worker is dead."""
LIMIT = 30.0
PAUSE = 0.0005

Look = tuple[Sequence[set[int]], Sequence[int]]
"""GPU by GPU: processes that compute, bytes in use."""


@dataclass
class Seen:
    """Moments in seconds of the monotonic clock, None for never.

    `visible`: when NVML's first answer that named the foreign process had come; `unseen`: when the last one
    before that was asked. `killed`: SIGKILL waited for the worker or was taken, `dead`: it was a zombie or
    gone. `used`: moments at which bytes in use had changed, with those of each GPU.
    """

    trial: int
    up: float | None = None
    unseen: float | None = None
    visible: float | None = None
    killed: float | None = None
    dead: float | None = None
    looks: int = 0
    slowest_look: float = 0.0
    used: list[tuple[float, Sequence[int]]] = field(default_factory=list)

    def over(self, now: float) -> bool:
        if self.dead is None:
            return False
        if self.visible is None:
            return now - self.dead > ALONE
        return now - max(self.dead, self.visible) > AFTER


def watch(trial: int, worker: int, foreign: int, look: Callable[[], Look], up: Callable[[], None]) -> Seen:
    """Look until all is over; `up` is called once the worker computes on every GPU."""
    seen = Seen(trial)
    threading.Thread(target=_watch_death, args=(worker, seen), daemon=True).start()
    end = time.monotonic() + LIMIT
    while True:
        asked = time.monotonic()
        pids, used = look()
        told = time.monotonic()
        seen.looks += 1
        seen.slowest_look = max(seen.slowest_look, told - asked)
        if seen.up is None and all(worker in one for one in pids):
            seen.up = told
            up()
        if seen.visible is None:
            if any(foreign in one for one in pids):
                seen.visible = told
            else:
                seen.unseen = asked
        if not seen.used or seen.used[-1][1] != used:
            seen.used.append((told, used))
        if seen.over(told) or told > end:
            return seen
        time.sleep(PAUSE)


def _watch_death(pid: int, seen: Seen) -> None:
    """In a thread of its own: NVML's answers are slow while contexts come and go."""
    while seen.dead is None:
        state = processes.dying(pid)
        now = time.monotonic()
        if state and seen.killed is None:
            seen.killed = now
        if state == "dead":
            seen.dead = now
        time.sleep(PAUSE)


def _look(gpus: Sequence[Any]) -> Look:
    pids = [{int(one.pid) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)} for gpu in gpus]
    return pids, [int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used) for gpu in gpus]


def main() -> None:
    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
    _look(gpus)
    say("READY", len(gpus))
    while line := sys.stdin.readline():
        order = json.loads(line)
        trial = int(order["trial"])
        up = partial(say, f"UP{trial}")
        seen = watch(trial, order["worker"], order["foreign"], partial(_look, gpus), up)
        say(f"SEEN{trial}", json.dumps(asdict(seen)))


if __name__ == "__main__":
    main()
