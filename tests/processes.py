"""Commands of wirewatch as processes, forked from one that has imported everything (see forkserver.py)."""

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple, Self

from tests.forkserver import FORKS
from tests.patience import HANGS

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = HANGS
Output = IO[bytes] | int | None
_place: list[str] = []
started: list[int] = []
"""The process that forks servers, where it is this one that has started it."""


class Process:
    """A module in a process of its own, as `python -m` runs it; the end of the block waits for its end.

    The part of `subprocess.Popen` that tests need. Output without a place is lost.
    """

    def __init__(
        self, words: Sequence[str], stdout: Output = None, stderr: Output = None,
        env: Mapping[str, str] | None = None, cwd: Path | None = None,
    ) -> None:  # fmt: skip
        ends, status = os.pipe()
        self._status = os.fdopen(ends, "rb", 0)
        self.returncode: int | None = None
        self.stdout, out = _output(stdout)
        self.stderr, err = _output(stderr)
        nothing = os.open(os.devnull, os.O_RDONLY)
        request = {"words": words, "environment": dict(env or os.environ), "folder": str(cwd or Path.cwd())}
        try:
            descriptors = array("i", [nothing, out, err, status])
            attached = (socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)
            server().requests.sendmsg([json.dumps(request).encode()], [attached])
        finally:
            for descriptor in (nothing, out, err, status):
                os.close(descriptor)
        self.pid = int(self._status.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.stdout, self.stderr):
            if end is not None:
                end.close()
        self.wait()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Output and errors, read until no process holds them any more; then its end is waited for.

        Raises:
            subprocess.TimeoutExpired: that takes longer.
        """
        stop, read = time.monotonic() + timeout, {self.stdout: b"", self.stderr: b""}
        with selectors.DefaultSelector() as selector:
            for end in read:
                if end is not None:
                    selector.register(end, selectors.EVENT_READ)
            while selector.get_map():
                found = selector.select(max(stop - time.monotonic(), 0))
                if not found:
                    self.kill()
                    raise subprocess.TimeoutExpired(str(read), timeout)
                for key, _ in found:
                    data = os.read(key.fd, 1 << 16)
                    read[key.fileobj] += data  # type: ignore[index]
                    if not data:
                        selector.unregister(key.fileobj)
        self.wait(max(stop - time.monotonic(), 1.0))
        return read[self.stdout].decode(), read[self.stderr].decode()


def run_wirewatch(
    *arguments: str, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, as `subprocess.run(capture_output=True, text=True)` does."""
    words = ("wirewatch", *arguments)
    forking = {**os.environ, FORKS: "1"}
    with Process(words, subprocess.PIPE, subprocess.PIPE, env or forking) as process:
        out, err = process.communicate(TIMEOUT)
    return subprocess.CompletedProcess(words, process.wait(), out, err)


def _output(wanted: Output) -> tuple[IO[bytes] | None, int]:
    """This side of it, where it is a pipe, and a descriptor for the other."""
    if wanted == subprocess.PIPE:
        mine, theirs = os.pipe()
        return os.fdopen(mine, "rb", 0), theirs
    if isinstance(wanted, int) or wanted is None:
        return None, os.open(os.devnull, os.O_WRONLY)
    return None, os.dup(wanted.fileno())


class Server(NamedTuple):
    """The process that forks this one's commands, and the way to it; it ends when this one does."""

    requests: socket.socket
    pid: int


@cache
def server() -> Server:
    """Call the process that has imported everything, and return the server that it forks."""
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    requests.connect(shared())
    return Server(requests, int(requests.recv(16)))


def call(place: str) -> None:
    """From now on call the process there, which another process of this run has started."""
    _place.append(place)


def shared() -> str:
    """Return the place of the process that forks servers; it is started where nobody has named one."""
    if not _place:
        call(_started())
    return _place[0]


def _started() -> str:
    folder = tempfile.TemporaryDirectory(prefix="wirewatch-forks-")
    place = str(Path(folder.name, "callers"))
    mine, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as callers:
        callers.bind(place)
        callers.listen()
        ends = [callers.fileno(), theirs.fileno()]
        command = [sys.executable, "-m", "tests.forkserver", *map(str, ends)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=ends, cwd=ROOT)
    started.append(process.pid)

    def end() -> None:
        if server.cache_info().currsize:
            server().requests.close()
        mine.close()
        process.wait(TIMEOUT)
        folder.cleanup()

    atexit.register(end)
    return place
