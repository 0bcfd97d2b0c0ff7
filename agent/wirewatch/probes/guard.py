"""Seeing that GPUs stay ours while a probe runs: a process of somebody else, or a new allocation."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from wirewatch.core.nvml import compute_processes
from wirewatch.core.ports import Gpu, Nvml
from wirewatch.core.types import Absent

Pids = frozenset[int | None]
SLOW = 1.0
"""Seconds between looks at allocations, which are asked of other daemons."""


@dataclass
class Guard:
    """Whom to give way to; `before` are the processes on each GPU, by its key, when the probe began.

    What cannot be read counts as somebody: a probe runs only beside nobody.
    """

    nvml: Nvml
    gpus: Sequence[Gpu]
    before: Mapping[str, Pids]
    own: Callable[[], Pids]
    allocations: Callable[[], str | None]
    withdrawn: Callable[[], str | None] = lambda: None
    _stop: threading.Event = field(default_factory=threading.Event)
    _allocated: str | None = None

    def look(self) -> str | None:
        """Why to end, mostly who has come, or None; costs a fraction of a millisecond a GPU."""
        given_up = self.withdrawn()
        if given_up is not None:
            return given_up
        mine = self.own()
        for gpu in self.gpus:
            now = compute_processes(self.nvml, gpu)
            if isinstance(now, Absent):
                return f"the processes on GPU {gpu.index} cannot be read: {now}"
            others = now - self.before.get(gpu.key, frozenset()) - mine
            if others:
                names = ", ".join("unknown" if pid is None else str(pid) for pid in sorted(others, key=str))
                return f"a process that is not the probe's came to GPU {gpu.index}: {names}"
        return self._allocated

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="allocations", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _watch(self) -> None:
        """Allocations are asked in a thread of their own: an answer may take seconds."""
        while not self._stop.wait(SLOW):
            try:
                told = self.allocations()
            except Exception as error:  # noqa: BLE001 - the thread must not end without a word
                told = f"who is given GPUs cannot be told: {error!r}"
            if told is not None:
                self._allocated = told
                return
