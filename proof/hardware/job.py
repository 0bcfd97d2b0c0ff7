"""GPU work in a process of its own, so that the kit needs no torch and a crash costs one part."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from proof.hardware.kit import KitError, tail

NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
"""Nothing is proven here about NVLink multicast, so it is off unless the caller has turned it on."""


class Job:
    """A module of `proof.hardware.jobs`: prints READY, works, and ends when its standard input closes.

    It prints to a file: a pipe that nobody empties would stop it in the middle of a measurement.
    `user`: number of the user and group that it runs as, which takes root; None for ours. `settings` are
    variables of its environment besides ours.
    """

    def __init__(
        self, module: str, *arguments: str, user: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._name = module
        self._user = user
        self._settings = dict(settings or {})
        self._command = [sys.executable, "-m", f"proof.hardware.jobs.{module}", *arguments]
        self._folder = tempfile.TemporaryDirectory(prefix="wirewatch-kit-")
        self._out = Path(self._folder.name) / "out"
        self._err = Path(self._folder.name) / "err"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=out, stderr=err,
                env=NO_MULTICAST | os.environ | self._settings,
                user=self._user, group=self._user, extra_groups=None if self._user is None else (),
            )  # fmt: skip
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def lines(self) -> list[str]:
        """Whole lines printed so far."""
        text = self._out.read_text("utf-8", "replace")
        return text[: text.rfind("\n") + 1].splitlines()

    def wait(self, word: str, within: float) -> str:
        """What stands after `word` in the line that begins with it.

        Raises:
            KitError: the job ended or did not print it in time.
        """
        end = time.monotonic() + within
        while True:
            ended = not self.running()
            for line in self.lines():
                if line.split(" ")[0] == word:
                    return line.removeprefix(word).strip()
            if ended or time.monotonic() > end:
                why = "ended" if ended else f"did not say {word} within {within:g} s"
                raise KitError(f"job {self._name} {why}: {self.errors()}")
            time.sleep(0.05)

    def errors(self) -> str:
        return tail(self._err.read_text("utf-8", "replace"))

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def must_run(self) -> None:
        """Raises KitError when the job has ended."""
        if not self.running():
            raise KitError(f"job {self._name} ended in the middle: {self.errors()}")

    def send(self, word: str) -> None:
        self.must_run()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()
        except OSError as error:
            raise KitError(f"job {self._name} does not listen: {self.errors()}") from error

    def stop(self, within: float = 30.0) -> int | None:
        """Close its input and wait; the exit status, None when it had to be killed."""
        process = self._process
        if process is None:
            return None
        if process.stdin is not None and not process.stdin.closed:
            with suppress(OSError):
                process.stdin.close()
        try:
            return process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None
