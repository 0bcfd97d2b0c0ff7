"""A worker as a real process, with its pipes."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from tests.groups import living
from tests.patience import HANGS
from wirewatch.core.probe import Document, Plan, encode_plan

ROOT = Path(__file__).resolve().parents[3]
WORKER = (sys.executable, "-m", "wirewatch.worker")
MEMORY = (sys.executable, "-m", "tests.node.worker.memory")
"""A worker that has one engine more, without hardware."""
TORCH = ROOT / ".venv-torch/bin/python"
_DOCUMENT = TypeAdapter(Document)


def torch_python() -> str:
    assert TORCH.exists(), f"{TORCH} is missing: tests/system/packages makes it"
    return str(TORCH)


def document_of(data: bytes) -> Document:
    return _DOCUMENT.validate_json(data)


class WorkerProcess:
    """A started worker in a session of its own; killed as a whole at the end of the block."""

    def __init__(
        self, plan: Plan | str, command: Sequence[str] = WORKER, environment: Mapping[str, str] | None = None
    ) -> None:
        read_document, write_document = os.pipe()
        read_marks, write_marks = os.pipe()
        self._ends = (read_document, read_marks)
        self._heard = b""
        self.process = subprocess.Popen(
            [*command, str(write_document), str(write_marks)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            pass_fds=(write_document, write_marks), start_new_session=True,
        )  # fmt: skip
        os.close(write_document)
        os.close(write_marks)
        assert self.process.stdin is not None
        self.stdin = self.process.stdin
        self.say(plan if isinstance(plan, str) else encode_plan(plan))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        with suppress(BrokenPipeError):
            self.stdin.close()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        for end in self._ends:
            os.close(end)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(HANGS)

    def say(self, line: str = "") -> None:
        self.stdin.write(f"{line}\n".encode())
        self.stdin.flush()

    def mark(self, seconds: float = HANGS) -> str | None:
        """The next mark, None when the worker is gone or nothing came in time."""
        end = time.monotonic() + seconds
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._ends[1]], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._ends[1], 1 << 16) if ready else b""
            if not data:
                return None
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def until(self, wanted: str) -> None:
        """Let it go on from mark to mark until this one."""
        while (mark := self.mark()) != wanted:
            assert mark is not None, f"no mark {wanted}: {self.errors()}"
            self.say()

    def data(self, seconds: float = HANGS) -> bytes:
        """Everything that it writes as its document; it has ended then."""
        end, found = time.monotonic() + seconds, b""
        while True:
            ready, _, _ = select.select([self._ends[0]], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the worker does not end: {self._killed_errors()}"
            data = os.read(self._ends[0], 1 << 16)
            if not data:
                break
            found += data
        self.process.wait(HANGS)
        return found

    def document(self) -> Document:
        data = self.data()
        assert data, f"no document: {self.errors()}"
        return document_of(data)

    def _killed_errors(self) -> str:
        self.kill()
        return self.errors()

    def errors(self) -> str:
        """What it wrote as errors; waits for its end."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode("utf-8", "replace")[-2000:]

    def output(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def living(self) -> set[int]:
        """Processes of its group that live."""
        return living(self.process.pid)
