"""Starting the daemon as an operator would, and stopping it."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from proof.hardware import processes
from proof.hardware.kit import KitError, end_of
from proof.hardware.scrape import Answer, Scrape, get

SERVE = "WIREWATCH_KIT_SERVE"
"""Environment variable: more arguments for `serve`, such as `--replay h200x8`: the kit without GPUs."""

READY_WITHIN = 90.0
WIRES = ("gpu", "inventory", "nvlink", "pcie")

_BASE = '[listen]\nsocket = ""\n'
NO_PROBE = "[probe]\nenabled = false\n"
"""Probes have parts of their own: the others look at the watching alone."""
DEFAULTS = f"{_BASE}{NO_PROBE}[collectors.nvlink]\nlink_detail = true\n"
"""Default intervals, single links on."""


def every(seconds: float, *, link_detail: bool, probe: str = NO_PROBE) -> str:
    """Configuration in which each collector polls every so many seconds, single links included if wanted."""
    sections = "".join(f"[collectors.{name}]\ninterval = {seconds:.1f}\n" for name in ("agent", *WIRES))
    detail = "link_detail = true\nlink_detail_interval = 0.1\n" if link_detail else ""
    return _BASE + probe + sections.replace("[collectors.nvlink]\n", f"[collectors.nvlink]\n{detail}")


class Daemon:
    """One run of `wirewatch serve`; ready when entered, gone when left.

    `user`: number of the user and group that it runs as, which takes root; None for ours.
    """

    def __init__(self, config: str, *, verbose: bool = False, user: int | None = None) -> None:
        self._config = config
        self._verbose = verbose
        self._user = user
        self._folder = tempfile.TemporaryDirectory(prefix="wirewatch-kit-")
        self._log = Path(self._folder.name) / "log"
        self.port = 0
        self.started = 0.0
        self.ready_after = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        file = Path(self._folder.name) / "wirewatch.toml"
        file.write_text(self._config, "utf-8")
        self.port = _free_port()
        loud = ["-v"] if self._verbose else []
        command = [sys.executable, "-m", "wirewatch", *loud, "serve", "--config", str(file)]
        command += ["--listen", f"127.0.0.1:{self.port}", *shlex.split(os.environ.get(SERVE, ""))]
        if self._user is not None:
            os.chown(self._folder.name, self._user, self._user)
        self.started = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=self._user, group=self._user,
                extra_groups=None if self._user is None else (),
                env={**os.environ, "STATE_DIRECTORY": f"{self._folder.name}/state"},
            )  # fmt: skip
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._wait_ready()
            undo.pop_all()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """The end of what the daemon wrote."""
        return end_of(self._log)

    def lines(self, word: str) -> list[str]:
        """All lines with a word that the daemon wrote."""
        return [line for line in self._log.read_text("utf-8", "replace").splitlines() if word in line]

    def child(self) -> int | None:
        """The process that talks to NVML."""
        found = processes.children(self.pid)
        return found[-1] if found else None

    def get(self, path: str, timeout: float = 10.0) -> Answer:
        return get(self.port, path, timeout)

    def scrape(self) -> Scrape:
        """Raises KitError when there is no answer."""
        try:
            answer = self.get("/metrics")
        except OSError as error:
            raise KitError(f"/metrics does not answer: {error!r}; the daemon wrote: {self.log()}") from error
        return Scrape(answer.body.decode("utf-8"), answer.seconds)

    def fresh(self, after: float, names: Sequence[str] = WIRES, within: float = 40.0) -> Scrape:
        """A scrape in which each of the collectors shows a poll that began after `after` (Unix time).

        Raises:
            KitError: there is none in time.
        """
        end = time.monotonic() + within
        while True:
            scrape = self.scrape()
            late = [name for name in names if scrape.polled(name) <= after]
            if not late:
                return scrape
            if time.monotonic() > end:
                raise KitError(f"no fresh poll of {', '.join(late)} in {within:g} s; log: {self.log()}")
            time.sleep(0.1)

    def stop(self, within: float = 10.0) -> tuple[int | None, float]:
        """SIGTERM, and SIGKILL if that does not end it; exit status and seconds, None when it was killed."""
        process = self._process
        if process is None:
            return None, 0.0
        began = time.monotonic()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            status: int | None = process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = None
        return status, time.monotonic() - began

    def _wait_ready(self) -> None:
        assert self._process is not None
        end = self.started + READY_WITHIN
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise KitError(f"the daemon ended with status {self._process.returncode}: {self.log()}")
            try:
                if self.get("/readyz", 2.0).status == 200:
                    self.ready_after = time.monotonic() - self.started
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise KitError(f"the daemon was not ready after {READY_WITHIN:g} s: {self.log()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
