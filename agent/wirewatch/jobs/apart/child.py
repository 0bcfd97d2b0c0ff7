"""The process that watches jobs: it runs collectors of users' data, and keeps their memories.

Each lane of the agent has a connection and a thread here. The process ends when a connection does, or when a
run takes more memory or CPU time than allowed. Then only memories are lost.
"""

import json
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from wirewatch.core.collector import AnyCollector
from wirewatch.core.fold import Step, fold
from wirewatch.core.ports import Hardware, NoRas, NoRings, Nvml, Ras, Rings, Sysfs
from wirewatch.core.types import Absent, Expect, Failed, Ok, Why
from wirewatch.hw.files import SystemSysfs
from wirewatch.hw.host import SystemClock
from wirewatch.jobs import bursts, hangs, ledger, lockstep, running
from wirewatch.jobs.apart.messages import (
    OUT_OF_MEMORY,
    JobPlaces,
    Logged,
    PortAnswer,
    PortQuestion,
    Ran,
    RunOrder,
)
from wirewatch.jobs.ras.client import SocketRas, split_address
from wirewatch.jobs.tap.here import RecordedSysfs, RingsHere
from wirewatch.jobs.tap.rings import FileRings

COLLECTORS: Mapping[str, AnyCollector] = {
    part.COLLECTOR.name: part.COLLECTOR for part in (bursts, hangs, ledger, lockstep, running)
}
MEMORY = 96 << 20
"""Bytes of data that the process may have."""
CPU = 20
"""Seconds of CPU time that all threads together may take from the start of a run."""
BADNESS = "500"
"""Out of 1000, in /proc/self/oom_score_adj: where a group runs out of memory, this process ends first."""
LINES = 100
"""Lines of the log that are kept of a run."""


class Remote:
    """A port of the agent: each method asks it over the connection."""

    def __init__(self, connection: Connection, port: str) -> None:
        self._connection, self._port = connection, port

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def ask(*args: Any) -> Any:
            self._connection.send(PortQuestion(self._port, method, args))
            answer = cast("PortAnswer", self._connection.recv())
            if answer.error:
                raise RuntimeError(answer.error)
            return answer.value

        return ask


class RemoteNvml(Remote):
    """NVML of the agent; which session it is in is asked once a run, and not once a GPU."""

    asked: int | None = None

    def session(self) -> int:
        """Return the number of the session at the first question of this run."""
        if self.asked is None:
            self.asked = cast("int", self.__getattr__("session")())
        return self.asked


class RunLog(logging.Handler):
    """Keeps what the thread of a run logs."""

    def __init__(self) -> None:
        super().__init__()
        self._of_thread = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        lines: list[Logged] = self._of_thread.__dict__.setdefault("lines", [])
        if len(lines) < LINES:
            lines.append(Logged(record.name, record.levelno, self.format(record)))

    def taken(self) -> tuple[Logged, ...]:
        """Return the lines of this thread since the last call."""
        return tuple(self._of_thread.__dict__.pop("lines", ()))


class LaneWorker:
    """One lane: runs collectors with its own ports, one after the other."""

    def __init__(self, hardware: Hardware, lines: RunLog) -> None:
        self._hardware, self._lines = hardware, lines
        self._memories: dict[str, Any] = {}

    def run(self, order: RunOrder) -> Ran:
        """Run a collector once; MemoryError is the caller's."""
        if isinstance(self._hardware.nvml, RemoteNvml):
            self._hardware.nvml.asked = None
        collector = replace(COLLECTORS[order.name], policy=order.policy)
        lasting = collector.lasting
        memory = self._memories.get(order.name, collector.start)
        if order.name not in self._memories and lasting is not None and order.kept is not None:
            memory = lasting.recall(order.kept)
        step = self._step(collector, memory, order)
        self._memories[order.name] = step.memory
        kept = None if lasting is None else lasting.keep(step.memory)
        slim = replace(step, memory=None)
        if isinstance(step.outcome, Ok):
            slim = replace(slim, outcome=replace(step.outcome, value=None))
        return Ran(slim, kept, self._lines.taken())

    def _step(self, collector: AnyCollector, memory: object, order: RunOrder) -> Step:
        clock = self._hardware.clock
        began = clock.mono()
        try:
            value = collector.read(self._hardware, memory, order.options)
            if order.around is not None and not isinstance(value, Absent):
                value = replace(value, around=order.around)
            now, mono = clock.now(), clock.mono()
            outcome = Failed(value, now, mono) if isinstance(value, Absent) else Ok(value, now, mono)
            return fold(collector, memory, outcome, mono - began, Expect())
        except MemoryError:
            raise
        except Exception as error:
            logging.getLogger(__name__).exception("collector %s raised", order.name)
            absent = Absent(Why.MALFORMED, f"collector {order.name} raised {error!r}")
            failed = Failed(absent, clock.now(), clock.mono())
            return Step(failed, clock.mono() - began, memory, (), (), None)


def limit() -> None:
    """Bound the memory of this process, leave no core file, and be the first to end where memory is short."""
    for what, most in ((resource.RLIMIT_DATA, MEMORY), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(what)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (allowed, allowed))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(BADNESS, encoding="ascii")


def limit_cpu() -> None:
    """Have the kernel end this process once it has taken CPU more seconds of CPU time."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    end = int(time.process_time()) + 1 + CPU
    resource.setrlimit(resource.RLIMIT_CPU, (end if hard == resource.RLIM_INFINITY else min(end, hard), hard))


def ports(places: JobPlaces, connection: Connection, rings: Rings) -> Hardware:
    """Return the ports of a lane: NVML by the agent, and what jobs leave as this machine has it."""
    nvml, sysfs, ras = RemoteNvml(connection, "nvml"), Remote(connection, "sysfs"), Remote(connection, "ras")
    asked: Ras = cast("Ras", ras)
    here: Sysfs = SystemSysfs()
    if places.live:
        asked = SocketRas([split_address(one) for one in places.ras]) if places.ras else NoRas()
    else:
        assert isinstance(rings, RingsHere)  # noqa: S101
        here = RecordedSysfs(cast("Sysfs", sysfs), here, rings)
    none = cast("Any", None)
    return Hardware(
        cast("Nvml", nvml), here, none, none, none, none, none, SystemClock(), none, rings=rings, ras=asked
    )


def rings_of(places: JobPlaces) -> Rings:
    """Return the rings port, which all lanes share; parsers that take memory are loaded where needed."""
    found: Rings = FileRings(places.rings) if places.rings else NoRings()
    if places.inspector:
        from wirewatch.jobs.inspector.files import job_rings

        found = job_rings(places.rings, places.inspector)
    return found if places.live else RingsHere(found)


def serve(connection: Connection, worker: LaneWorker) -> None:
    """Run what comes over a connection until it ends."""
    while True:
        order = cast("RunOrder", connection.recv())
        limit_cpu()
        connection.send(worker.run(order))


def _until_over(connection: Connection, worker: LaneWorker) -> None:
    """Serve, and end the whole process with the connection, or without memory."""
    try:
        serve(connection, worker)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except (EOFError, OSError):
        os._exit(0)


def main(words: list[str]) -> None:
    """Watch jobs; the words are `JobPlaces` as JSON and the descriptors of connections."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit()
    given = json.loads(words[0])
    places = JobPlaces(**{**given, "ras": tuple(given["ras"])})
    lines, rings = RunLog(), rings_of(places)
    logging.basicConfig(level=logging.INFO, handlers=[lines], format="%(message)s")
    threads = []
    for word in words[1:]:
        connection = Connection(int(word))
        worker = LaneWorker(ports(places, connection, rings), lines)
        threads.append(threading.Thread(target=_until_over, args=(connection, worker), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1:])
