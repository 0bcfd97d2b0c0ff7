"""The agent's side of the process that watches jobs: start it, give it runs, answer its questions, kill it.

A run that is overdue, or that ends the process, costs memories of jobs. The next run starts the process
again, after a while that grows with each failure.
"""

import json
import logging
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from os import environ
from typing import Any

from wirewatch.core.collector import AnyCollector
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Failed, Finding, Ok, Sample, Why
from wirewatch.hw.interpreter import FOLDER, module_places, python
from wirewatch.hw.nvml.process import Delay, Quarantine
from wirewatch.jobs.apart.messages import (
    ASKED,
    OUT_OF_MEMORY,
    JobPlaces,
    PortAnswer,
    PortQuestion,
    Ran,
    RunOrder,
)

log = logging.getLogger(__name__)

OVERDUE, OVERDUE_SHARED = 30.0, 5.0
"""Seconds of a run after which the process is killed: in a lane of its own, and in that of NVML."""
SHARED = "nvml"
"""The lane in which collectors that gate wait behind these."""
AGAIN = Delay(1.0, 60.0)
"""How long the process stays ended after failures."""
LIMIT = struct.pack("ll", int(OVERDUE_SHARED), 0)
"""Longest wait for each part of a message, as struct timeval."""
DIES = 1.0
"""Seconds that the process may take to die."""
CALM = 300.0
"""Seconds that the process must have run, so that its failures are forgotten."""
WHO = "`wirewatch jobs status` lists the rings, and whose they are"
_IT = "the process that watches jobs"
Start = Callable[[JobPlaces, Iterable[int]], "subprocess.Popen[bytes]"]


@dataclass
class _Started:
    """A process and its connections, which close when the last thread that uses them lets go of this."""

    process: "subprocess.Popen[bytes]"
    lanes: Mapping[str, Connection]
    at: float


def start(places: JobPlaces, descriptors: Iterable[int]) -> "subprocess.Popen[bytes]":
    """Start the process with these descriptors of connections."""
    handed = tuple(descriptors)
    words = python("-m", "wirewatch.jobs.apart.child", json.dumps(asdict(places)), *map(str, handed))
    return subprocess.Popen(  # noqa: S603 - our own module
        words, stdin=subprocess.DEVNULL, pass_fds=handed, cwd=FOLDER, env=module_places(environ)
    )


class Watcher:
    """Runs collectors in the process that watches jobs; a run a lane at a time, lanes beside each other."""

    def __init__(
        self, places: JobPlaces, lanes: Iterable[str], start: Start = start,
        mono: Callable[[], float] = time.monotonic, overdue: float = OVERDUE,
    ) -> None:  # fmt: skip
        self._places, self._names, self._start, self._mono = places, tuple(sorted(set(lanes))), start, mono
        self._overdue = overdue
        self._lock = threading.Lock()
        self._waits = Quarantine(AGAIN, mono)
        self._started: _Started | None = None
        self._stuck: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process, None while there is none. For any thread."""
        started = self._started
        return None if started is None or started.process.poll() is not None else started.process.pid

    def close(self) -> None:
        """End the process for good."""
        with self._lock:
            self._closed = True
            self._end()

    def run(self, lane: str, order: RunOrder, hardware: Hardware) -> Ran | Absent:
        """Run a collector and answer the questions that it has; Absent where the process cannot."""
        started = self._ready()
        if isinstance(started, Absent):
            return started
        try:
            ran = self._exchange(started.lanes[lane], lane, order, hardware)
        except TimeoutError:
            return self._failed(started, Absent(Why.TIMEOUT, f"{_IT} did not answer and was killed"))
        except (EOFError, OSError) as error:
            return self._failed(started, self._how(started, error))
        except Exception as error:
            # The next message on this connection would belong to another run.
            self._failed(started, Absent(Why.MALFORMED, f"{_IT} sent what is no answer: {error!r}"))
            raise
        if self._mono() - started.at > CALM:
            self._waits.release(_IT)
        return ran

    def _exchange(self, connection: Connection, lane: str, order: RunOrder, hardware: Hardware) -> Ran:
        """Only the time that is waited for the process counts, not that of our answers."""
        left = min(self._overdue, OVERDUE_SHARED) if lane == SHARED else self._overdue
        connection.send(order)
        while True:
            began = self._mono()
            if not connection.poll(max(left, 0.0)):
                raise TimeoutError
            message = connection.recv()
            left -= self._mono() - began
            if isinstance(message, Ran):
                return message
            connection.send(answer(hardware, message))

    def _ready(self) -> _Started | Absent:
        with self._lock:
            if self._closed:
                return Absent(Why.MISSING, f"{_IT} is ended")
            if self._started is not None:
                return self._started
            if self._stuck is not None and self._stuck.poll() is None:
                return Absent(Why.TIMEOUT, f"{_IT} was killed and does not die; no other is started")
            return self._waits.holds(_IT) or self._begin()

    def _begin(self) -> _Started | Absent:
        with ExitStack() as stack:
            pairs: dict[str, tuple[socket.socket, ...]] = {}
            try:
                for lane in self._names:
                    pairs[lane] = tuple(map(stack.enter_context, socket.socketpair()))
                process = self._start(self._places, [there.fileno() for _, there in pairs.values()])
            except OSError as error:
                absent = Absent(Why.EXHAUSTED, f"{_IT} cannot be started: {error.strerror}")
                self._waits.add(_IT, absent)
                return absent
            for here, _ in pairs.values():
                # A message whose end does not come is an error, and hangs nobody.
                here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, LIMIT)
                here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, LIMIT)
            # The stack does not close a detached socket.
            ours = {lane: Connection(here.detach()) for lane, (here, _) in pairs.items()}
        self._started = _Started(process, ours, self._mono())
        return self._started

    def _failed(self, started: _Started, why: Absent) -> Absent:
        """End the process, once for all lanes that wait for it."""
        with self._lock:
            if self._started is started:
                log.warning("%s; jobs are watched from their beginning again", why.detail)
                self._waits.add(_IT, why)
                self._end()
        return why

    def _how(self, started: _Started, error: Exception) -> Absent:
        """Return why the process has ended, by its exit status."""
        with suppress(subprocess.TimeoutExpired):
            code = started.process.wait(1.0)
            if code == OUT_OF_MEMORY:
                return Absent(Why.EXHAUSTED, f"{_IT} needed more memory than it may have; {WHO}")
            if code == -signal.SIGXCPU:
                return Absent(Why.EXHAUSTED, f"{_IT} needed more CPU time than it may have; {WHO}")
            return Absent(Why.LOST, f"{_IT} ended ({signal.Signals(-code).name if code < 0 else code})")
        return Absent(Why.LOST, f"{_IT} broke off: {error!r}")

    def _end(self) -> None:
        started, self._started = self._started, None
        if started is None:
            return
        started.process.kill()
        with suppress(subprocess.TimeoutExpired):
            started.process.wait(DIES)
            return
        log.error("%s (%d) was killed and does not die; it is left behind", _IT, started.process.pid)
        self._stuck = started.process


def answer(hardware: Hardware, asked: PortQuestion) -> PortAnswer:
    """Return the answer of a port to a question that may be asked."""
    if asked.method not in ASKED.get(asked.port, ()):
        return PortAnswer(error=f"{asked.port}.{asked.method} is nothing to ask from here")
    try:
        return PortAnswer(getattr(getattr(hardware, asked.port), asked.method)(*asked.args))
    except Exception as error:  # noqa: BLE001 - raised again where it was asked
        return PortAnswer(error=repr(error))


def apart(
    collector: AnyCollector, watcher: Watcher, around: Callable[[], Any] = lambda: None
) -> AnyCollector:  # fmt: skip
    """Return a collector that runs in the watcher's process; its memory here is the lasting part alone.

    `around` returns the surroundings in which its reading is judged, None for none.
    """
    lasting = collector.lasting

    def read(hardware: Hardware, memory: Any, options: Any) -> Ran | Absent:
        kept = lasting.keep(memory) if lasting is not None else None
        order = RunOrder(collector.name, options, collector.policy, around(), kept)
        ran = watcher.run(collector.lane, order, hardware)
        if isinstance(ran, Absent):
            return ran
        for line in ran.logged:
            logging.getLogger(line.name).log(line.level, "%s", line.text)
        return ran.step.outcome.absent if isinstance(ran.step.outcome, Failed) else ran

    def judge(memory: Any, ok: Ok[Ran], _policy: Any, _expect: Expect) -> tuple[Any, tuple[Finding, ...]]:
        new = lasting.recall(ok.value.kept) if lasting is not None else memory
        return new, ok.value.step.findings

    def samples(ran: Ran, _memory: Any) -> Iterable[Sample]:
        return ran.step.samples

    made = replace(collector, read=read, judge=judge, samples=samples)
    return replace(
        made, applicable=lambda ran: bool(ran.step.applicable),
        facts=lambda ran, _memory: ran.step.facts, observed=lambda ran, _memory: ran.step.observed,
    )  # fmt: skip
