"""A lane: one daemon thread that runs the collectors of one port, one after the other.

A thread of our own, because an executor's threads are waited for at exit, and one may hang in the kernel.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_Job = Callable[[], None]


class Lane:
    """Runs jobs in order in a thread that never keeps the process alive."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"lane-{name}", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """A future of the running loop for what `work` returns; `work` must not raise."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(result: T) -> None:
            if not future.done():
                future.set_result(result)

        def job() -> None:
            result = work()
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, result)

        self._jobs.put(job)
        return future

    def _run(self) -> None:
        while True:
            self._jobs.get()()
