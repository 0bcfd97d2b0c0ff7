"""Leave to hold GPUs, which a probe needs and may lose at any moment: somebody wants every handle closed."""

import threading
import time
from collections.abc import Callable

from wirewatch.probes.launch import Worker

_LOOK = 0.01


class Withdrawn(Exception):
    """No worker may be started now; the text says why."""


class Leave:
    """Taken by the thread that probes, withdrawn by any other.

    `broken`: why the newest worker was killed from here, empty when it was not.
    """

    def __init__(self) -> None:
        self.broken = ""
        self._lock = threading.Lock()
        self._withdrawn = ""
        self._worker: Worker | None = None

    def take(self, start: Callable[[], Worker]) -> Worker:
        """Start a worker that is killed when leave is withdrawn.

        Raises:
            Withdrawn: it is withdrawn already.
        """
        with self._lock:
            if self._withdrawn:
                raise Withdrawn(self._withdrawn)
            self.broken = ""
            self._worker = start()
            return self._worker

    def withdraw(self, why: str) -> None:
        """Kill the worker, and let none be started until `grant`. Waits for nothing."""
        with self._lock:
            self._withdrawn = self.broken = why
            if self._worker is not None:
                self._worker.kill()

    def grant(self) -> None:
        with self._lock:
            self._withdrawn = ""

    def left(self, within: float) -> int | None:
        """Wait up to so many seconds until the worker is dead; its process id when it is not."""
        end = time.monotonic() + within
        worker = self._worker
        while worker is not None and not worker.exited():
            if time.monotonic() > end:
                return worker.pid
            time.sleep(_LOOK)
        return None
