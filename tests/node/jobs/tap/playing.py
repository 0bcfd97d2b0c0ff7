"""A process that plays NCCL to the tap (harness.c), one command and answer a line; the rings it leaves."""

import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.node.jobs.tap.ringbytes import RingBytes, read
from tests.patience import HANGS

ROOT = Path(__file__).parents[4]
BUILT = ROOT / "build" / "tap"
MS = 10**6
PATIENCE = HANGS
"""Seconds after which a process that plays is ended: its test fails by what it did not answer."""
BASE = 0x57 << 24 | 2 | 4 | 512
TIMED = BASE | 64
"""The masks: without and with timed channels."""
SANITIZERS = {
    "ASAN_OPTIONS": "halt_on_error=1:exitcode=66:detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
}


def built(kind: str = "ADDRESS") -> Path:
    """The folder with a build of tap, harness and storm: PLAIN, ADDRESS (with undefined) or THREAD."""
    if shutil.which("cc") is None or shutil.which("make") is None:
        pytest.fail("the tap is written in C: its tests need cc and make")
    _make()
    return BUILT / kind


@cache
def _make() -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(
            ["make", "-s", "tap-tests"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr


def environment(folder: Path | str, **more: str) -> dict[str, str]:
    ours = ("WIREWATCH_", "NCCL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, **SANITIZERS, "WIREWATCH_TAP_DIR": str(folder), **more}


class Player:
    """One such process, with the tap loaded and a clock that stands at 5 s."""

    def __init__(self, folder: Path | str, kind: str = "ADDRESS", **more: str) -> None:
        build = built(kind)
        self._process = subprocess.Popen(
            [build / "harness"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, bufsize=1, umask=0o077, env=environment(folder, **more),
        )  # fmt: skip
        self._patience = threading.Timer(PATIENCE, self._process.kill)
        self._patience.daemon = True
        self._patience.start()
        self.folder = Path(folder)
        self.do(f"load {build / 'tap.so'}")
        self.do(f"clock {5_000 * MS}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, command: str) -> str:
        """The answer to a command."""
        self.send(command)
        return self.answer()

    def all(self, commands: str) -> list[str]:
        """The answers to commands, one a line; sent at once."""
        lines = [line.strip() for line in commands.splitlines() if line.strip()]
        self.send("\n".join(lines))
        return [self.answer() for _ in lines]

    def send(self, command: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the harness ended: {self._process.communicate()[1]}")
        return line.rstrip("\n")

    def ring(self, index: int = 0) -> RingBytes:
        return read(self.rings()[index])

    def rings(self) -> list[Path]:
        return sorted(self.folder.glob("*.ring"), key=lambda path: path.stat().st_mtime_ns)

    def end(self) -> int:
        """Its exit status; sanitizers must have said nothing."""
        self._patience.cancel()
        if self._process.poll() is None and self._process.stdin:
            self._process.stdin.close()
        code = self._process.wait(timeout=HANGS)
        assert self._process.stderr
        assert self._process.stdout
        complaints = self._process.stderr.read()
        self._process.stderr.close()
        self._process.stdout.close()
        assert not complaints, complaints
        return code

    def kill(self) -> None:
        self._patience.cancel()
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()
        self._process.wait(timeout=HANGS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            assert self.end() == 0
        else:
            self.kill()


def collective(
    version: int = 5,
    number: int = 1,
    *,
    context: int = 0,
    handle: int = 2,
    parent: int = 1,
    of: str = "AllReduce 1000 0 ncclFloat32",
    channels: int = 2,
    by: str = "RING SIMPLE",
) -> str:
    return f"coll {version} {context} {handle} {parent} {number} {of} {channels} {by}"


def channel(
    number: int, started: int, stopped: int, parent: int = 2, version: int = 5, base: int = 10
) -> str:
    """Three commands: a channel's start, its stop time, its stop; its handle is `base` + its number."""
    handle = base + number
    return f"""channel {version} 0 {handle} {parent} {number} {started}
    record {version} {handle} 22 {stopped}
    stop {version} {handle}
    """


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder on tmpfs, as the tap wants it."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("no /dev/shm here")
    with tempfile.TemporaryDirectory(prefix="tap-", dir=shared) as name:
        yield Path(name)
