"""The worker: its start, marks, document and end. It has its own session, killed as a whole."""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.probe import REPORT, Document, Outcome, Plan, Timed, encode_plan, wrong_in_document
from wirewatch.hw.interpreter import FOLDER, module_places, python

DEBUG = "INFO"
SUBSYSTEMS = "INIT,GRAPH,ENV,TUNING,NET,P2P,SHM,NVLS"
KILL_SECONDS = 5.0
"""Seconds that a killed worker may take to be gone; the driver takes its memory back meanwhile."""
REAP_SECONDS = 1.0
"""Seconds that killed processes of its group may take to be gone, where they are ours to wait for."""
LIMIT = 8 << 20
"""Most bytes of a document; a worker of ours sends no more."""
MARKS, MARK_LIMIT = 1000, 4096
"""Most marks of a worker, and most bytes of a mark; a worker of ours sends no more."""
QUIET = 2.0
"""Seconds of silence after the beginning of its document, after which a worker has written all of it."""
TAIL = 1 << 16
"""Bytes read of the end of what a worker printed."""
WORKER = ("-m", "wirewatch.worker")
"""The arguments with which Python becomes a worker."""
_POLL_SECONDS = 0.005


class StartError(Exception):
    """The worker could not be started at all."""


class Worker:
    """A running worker; `document` is its output so far, `reports` the reports that were not taken yet.

    `nonsense` says why it was killed for its output; `hung` is whether it did not end by itself.
    """

    def __init__(
        self, plan: Plan, folder: Path, inherited: Mapping[str, str], command: Sequence[str] = WORKER,
        keeps: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Start it with descriptors that it keeps open for us; StartError where that is not possible."""
        self.document = b""
        self.reports: list[Timed] = []
        self.nonsense = ""
        self.hung = False
        self.began = self._wrote_at = time.monotonic()
        self._errors = folder / "worker.log"
        self._unsent = b""
        self._line = b""
        self._marks: list[str] = []
        self._marked, self._most = 0, MARKS + len(plan.cases)
        self._ends: set[int] = set()
        self._lock = threading.Lock()
        self._waited = False
        self._process = self._start(command, environment(inherited, plan), keeps)
        assert self._process.stdin is not None  # noqa: S101
        self._stdin = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self._send_line(encode_plan(plan))

    def _start(
        self, command: Sequence[str], variables: Mapping[str, str], keeps: Sequence[int]
    ) -> "subprocess.Popen[bytes]":
        """The process, with a pipe for its document and one for its marks; raises StartError."""
        fds: list[int] = []
        try:
            for _ in range(2):
                fds += os.pipe()
            self._document, write_document, self._mark, write_marks = fds
            with self._errors.open("wb") as errors:
                process = subprocess.Popen(  # noqa: S603 - our own module
                    python(*command, *map(str, (write_document, write_marks, os.getpid()))), cwd=FOLDER,
                    stdin=subprocess.PIPE, stdout=errors, stderr=errors, bufsize=0,
                    env=variables, start_new_session=True, pass_fds=(write_document, write_marks, *keeps),
                )  # fmt: skip
        except OSError as error:
            self._close(*fds)
            raise StartError(f"the worker cannot be started: {error.strerror}") from error
        self._close(write_document, write_marks)
        return process

    @property
    def pid(self) -> int:
        """Its process id, which is that of its group, too."""
        return self._process.pid

    def _send_line(self, line: str) -> None:
        self._unsent += f"{line}\n".encode()
        self._send()

    def _send(self) -> None:
        """Send as much as it takes now: a worker that does not read must not keep us from ending it."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The end of its document shows that it is gone.
            self._unsent = b""

    def go(self) -> None:
        """Let it go on from a mark."""
        self._send_line("")

    def read_mark(self, seconds: float) -> str | None:
        """Wait for a mark for at most this time; None when none came."""
        if not self._marks:
            self._read(seconds)
        return self._marks.pop(0) if self._marks else None

    @property
    def ended(self) -> bool:
        """Return whether nothing more will come: all its output is in `document`."""
        return len(self._ends) == 2 and not self._marks  # noqa: PLR2004

    def _read(self, seconds: float) -> None:
        self._send()
        exited, poll = self.exited(), select.poll()
        for fd in {self._document, self._mark} - self._ends:
            poll.register(fd, select.POLLIN)
        ready = poll.poll(seconds * 1000)
        for fd, _ in ready:
            self._take(fd, os.read(fd, 1 << 16))
        silent = bool(self.document) and time.monotonic() - self._wrote_at > QUIET
        if not ready and (exited or silent):
            # What it started may hold the pipes open; or it hangs after it has written all.
            self._stop()

    def _take(self, fd: int, data: bytes) -> None:
        if not data:
            self._ends.add(fd)
        elif fd == self._document:
            self._wrote_at = time.monotonic()
            self.document += data
            if len(self.document) > LIMIT:
                self._refuse(f"its document is longer than {LIMIT} bytes")
        else:
            *whole, self._line = (self._line + data).split(b"\n")
            self._marked += len(whole)
            for line in whole:
                self._take_line(line)
            if self._marked > self._most or max(map(len, (self._line, *whole))) > MARK_LIMIT:
                self._refuse(f"it writes more than {self._most} lines, or one of {MARK_LIMIT} bytes and more")

    def _take_line(self, line: bytes) -> None:
        """Take a mark, or a measurement that is reported among them."""
        if not line.startswith(_REPORT):
            self._marks.append(line.decode("utf-8", "replace"))
            return
        try:
            self.reports.append(_TIMED.validate_json(line.removeprefix(_REPORT)))
        except ValidationError as error:
            self._refuse(f"not a measurement: {error.errors(include_url=False)[0]['msg']}")

    def _refuse(self, why: str) -> None:
        self.nonsense = why
        self._marks = []
        self._stop()

    def _stop(self) -> None:
        """Stop reading; later output does not matter."""
        self.kill()
        self._ends = {self._document, self._mark}

    def kill(self) -> None:
        """Send SIGKILL to it and to all that it started; from any thread, at any time."""
        with self._lock, suppress(ProcessLookupError):
            # Once it is waited for, the number of its group may be that of another one.
            if not self._waited:
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int | None:
        """Kill the rest of its session and wait; return its exit status, None when it does not die."""
        late = time.monotonic() + (KILL_SECONDS if self.ended else 0)
        while not (left := self.exited()) and time.monotonic() < late:
            time.sleep(_POLL_SECONDS)
        self.hung = not left
        self.kill()
        with self._lock:
            self._waited = True
        try:
            self._process.wait(timeout=KILL_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # What it wrote among its marks and was not read yet; nothing more is waited for.
            os.set_blocking(self._mark, False)
            with suppress(BlockingIOError):
                while data := os.read(self._mark, 1 << 16):
                    self._take(self._mark, data)
            self._stdin.close()
            self._close(self._document, self._mark)
        self._reap()
        return self._process.returncode

    def _reap(self) -> None:
        """Wait for its children: process 1 of a container inherits them, and would collect their remains."""
        late = time.monotonic() + REAP_SECONDS
        with suppress(ChildProcessError):
            while time.monotonic() < late:
                if os.waitid(os.P_PGID, self.pid, os.WEXITED | os.WNOHANG) is None:
                    time.sleep(_POLL_SECONDS)

    def exited(self) -> bool:
        """Return whether it has ended; it is left there to be waited for. From any thread."""
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def gone(self) -> bool:
        """Return whether it has died, also after `end` gave up on it."""
        return self._process.poll() is not None

    def last_line(self) -> str:
        """The end of what it and its libraries printed."""
        try:
            with self._errors.open("rb") as file:
                file.seek(max(0, self._errors.stat().st_size - TAIL))
                text = file.read(TAIL).decode("utf-8", "replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return "".join(c for c in lines[-1][:300] if c.isprintable()) if lines else ""

    @staticmethod
    def _close(*fds: int) -> None:
        for fd in fds:
            os.close(fd)


DOCUMENT = TypeAdapter(Document)
_TIMED = TypeAdapter(Timed)
_REPORT = REPORT.encode()


def environment(inherited: Mapping[str, str], plan: Plan) -> dict[str, str]:
    """Return the worker's environment: the node's NCCL settings, the plan's, and ours for NCCL's log.

    It loads no profiler, which would cost time and leave traces. Without the variable, NCCL takes a
    libnccl-profiler.so that it finds, or the plugin in nccl.conf; the environment wins over both. The thread
    pools of numerical libraries do not start: they cost seconds of CPU at import.
    """
    return {
        **module_places(inherited),
        **dict(plan.environment),
        "NCCL_DEBUG": DEBUG,
        "NCCL_DEBUG_FILE": plan.log,
        "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
        "NCCL_RAS_ENABLE": "0",
        "NCCL_PROFILER_PLUGIN": "none",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def interpret(
    worker: Worker, status: int | None, outcome: Outcome, why: str, plan: Plan
) -> tuple[Document | None, Outcome, str]:
    """Return the document, and the outcome that follows from it and from the end of the worker."""
    if outcome == "timeout":
        return None, outcome, _with_output(why, worker)
    if outcome not in {"ok", "stuck"}:
        return None, outcome, why
    document = _document(worker, status, plan)
    if outcome == "stuck":
        return (document if isinstance(document, Document) else None), outcome, why
    if not isinstance(document, Document):
        return None, *document
    if document.error is None:
        return document, outcome, why
    kinds: dict[str, Outcome] = {"no_engine": "no_engine", "out_of_memory": "out_of_memory"}
    return document, kinds.get(document.error.kind, "failed"), document.error.text


def _document(worker: Worker, status: int | None, plan: Plan) -> Document | tuple[Outcome, str]:
    """Return the worker's document, or why it cannot be used."""
    if worker.nonsense:
        return "garbage", _with_output(f"not what a worker writes: {worker.nonsense}", worker)
    if not worker.document:
        return "failed", _with_output(f"the worker {_end(worker, status)} and wrote nothing", worker)
    try:
        document = DOCUMENT.validate_json(worker.document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = f"{'.'.join(map(str, first['loc']))}: " if first["loc"] else ""
        return "garbage", _with_output(f"not a document of the worker: {where}{first['msg']}", worker)
    odd = wrong_in_document(document, plan)
    return ("garbage", f"not a document of this plan: {odd}") if odd else document


def _end(worker: Worker, status: int | None) -> str:
    if worker.hung or status is None:
        return "hung at its end"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return f"was ended by signal {-status}"


def _with_output(why: str, worker: Worker) -> str:
    said = worker.last_line()
    return f"{why}: {said}" if said else why
