"""The daemon that is besieged: `wirewatch serve` of any checkout, in a folder of its own; a link is down."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from proof.hardware import processes
from proof.siege.watch import Local, Verdict, ask, connection

ROOT = Path(__file__).resolve().parents[2]
RECORDING = "demo-dgx-h200"
SOON = 60.0
EVERY_SECOND = ("agent", "gpu", "inventory", "nvlink", "pcie", "infiniband", "xid")
OVERLAY = '[[change]]\nport = "nvml"\nmatch = "gpu2/Field(165,7)"\nset = 0\n'
_URL = re.compile(r"(https?://\S+)/metrics")


class SiegeError(Exception):
    """An attack cannot go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a daemon has: processes below it, threads, descriptors, bytes of memory and of its log, files."""

    children: int
    threads: int
    opened: Mapping[int, str]
    pss: int
    log: int
    files: frozenset[str]

    @property
    def descriptors(self) -> int:
        return len(self.opened)


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a daemon is started: the tree whose code runs, and the folder for all that it writes.

    `overlay`: what is changed of the recording.
    """

    tree: Path
    folder: Path
    overlay: str = OVERLAY

    @property
    def socket(self) -> Path:
        return self.folder / "run" / "wirewatch.sock"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Of every command: this tree's code, and no folder of the machine's."""
        places = {
            "PYTHONPATH": f"{self.tree / 'agent'}:{ROOT}", "TMPDIR": str(self.folder / "tmp"),
            "RUNTIME_DIRECTORY": str(self.folder / "run"), "STATE_DIRECTORY": str(self.state),
        }  # fmt: skip
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, **places, **(more or {})}

    def prepare(self, config: str = "", state: Path | None = None) -> Path:
        """The configuration, with every folder that it names."""
        for name in ("run", "tmp", "state"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "overlay.toml").write_text(self.overlay, "utf-8")
        intervals = "".join(f"[collectors.{name}]\ninterval = 1.0\n" for name in EVERY_SECOND)
        file = self.folder / "wirewatch.toml"
        own = f'[listen]\nsocket = "{self.socket}"\n[state]\ndirectory = "{state or self.state}"\n'
        file.write_text(f"{own}{intervals}{config}", "utf-8")
        return file

    def run(self, *words: str, user: int | None = None, **given: Any) -> "subprocess.CompletedProcess[str]":
        """A command of wirewatch, to its end."""
        command = [sys.executable, "-P", "-m", "wirewatch", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=SOON, check=False, user=user,
            env=self.environment(), **given,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Start:
    """How a daemon is started; `user` is a number, None for ours.

    `files`: how many files it may have open, as prlimit(1) takes it: by default what every process gets at
    first. `under`: a program that becomes the daemon, with its arguments.
    """

    config: str = ""
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    files: str = "1024:"
    user: int | None = None
    state: Path | None = None
    program: Sequence[str] = ("-P", "-m", "wirewatch")
    under: Sequence[str] = ()
    cwd: Path | None = None


USUAL = Start()


class Besieged:
    """A daemon with a broken link, which has found it; killed at the end of the block."""

    def __init__(self, ground: Ground, start: Start = USUAL) -> None:
        self.ground = ground
        self._log = ground.folder / "daemon.log"
        file = ground.prepare(start.config, start.state)
        words = ["serve", "--config", str(file), "--listen", "127.0.0.1:0", "--replay", RECORDING, "--loop"]
        words += ["--overlay", str(ground.folder / "overlay.toml"), *start.arguments]
        if start.user is not None:
            for place in (ground.folder, *ground.folder.rglob("*")):
                if not place.is_symlink() and place.name not in _KEPT:
                    os.chown(place, start.user, start.user)
        limited = ("prlimit", f"--nofile={start.files}", *start.under)
        if start.user is not None:
            # Read and search: where a checkout lies is not always open to every user.
            cap = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
            who = (f"--reuid={start.user}", f"--regid={start.user}", "--clear-groups")
            limited += ("setpriv", *who, *cap)
        self.began = time.monotonic()
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*limited, sys.executable, *start.program, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=ground.environment(start.environment), cwd=start.cwd or ground.folder,
            )  # fmt: skip
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        left = processes.children(self.process.pid)
        self.process.kill()
        self.process.wait()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.partition("://")[2].rpartition(":")
        return host, int(port)

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def health(self, seconds: float = 3.0) -> dict[str, Any]:
        """The verdict over the local socket.

        Raises:
            OSError, ValueError: there is none.
        """
        document: dict[str, Any] = json.loads(ask(Local(str(self.ground.socket), seconds), "/health", {})[1])
        return document

    def right(self) -> str:
        """ "" where the verdict is FAILED by the broken link's name, else what it is."""
        verdict = Verdict()
        try:
            verdict.see(self.health())
        except (OSError, ValueError) as error:
            return f"no answer: {error!r}"
        return verdict.first

    def wait(self, seconds: float = SOON) -> float:
        """Until the verdict is right; returns the seconds since the start.

        Raises:
            SiegeError: it ended, or was not right in time.
        """
        end, wrong = time.monotonic() + seconds, "it has not begun"
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise SiegeError(f"it ended with {self.process.returncode}: {self.log[-600:]}")
            told = _URL.search(self.log)
            if told and not (wrong := self.right()):
                self.url = told[1]
                return time.monotonic() - self.began
            time.sleep(0.03)
        raise SiegeError(f"no right verdict in {seconds:g} s: {wrong}: {self.log[-600:]}")

    def get(self, path: str, seconds: float = 10.0) -> tuple[int, bytes]:
        """An answer of the port, over a connection of its own; OSError for none."""
        return ask(connection(self.url, "127.0.0.7", seconds), path, {})

    def size(self) -> Size:
        places = (self.ground.folder / "tmp", self.ground.folder / "run", self.ground.state)
        files = {str(one.relative_to(self.ground.folder)) for place in places for one in place.rglob("*")}
        proc = Path(f"/proc/{self.pid}")
        return Size(
            len(processes.children(self.pid)), len([*proc.glob("task/*")]), _opened(proc / "fd"),
            processes.memory(self.pid)["pss"], self._log.stat().st_size, frozenset(files),
        )  # fmt: skip

    def stop(self, number: int = signal.SIGTERM, seconds: float = 120.0) -> tuple[int | None, float]:
        """Send a signal; the exit status, None where it had to be killed, and the seconds that it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        try:
            status: int | None = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = None
        return status, time.monotonic() - began


def _opened(folder: Path) -> dict[int, str]:
    """Return the target of each open descriptor in a process's `fd` folder."""
    found = {}
    for one in folder.iterdir():
        with suppress(OSError):
            found[int(one.name)] = str(one.readlink())
    return found


_KEPT = frozenset({"foreign", "agent.lock", "probe.lock"})
"""Files whose owner is part of an attack."""
