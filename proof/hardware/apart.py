"""`wirewatch prober` as root, and whoever asks it without any privileges."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from proof.hardware import processes
from proof.hardware.holders import replayed
from proof.hardware.job import NO_MULTICAST
from proof.hardware.kit import KitError, end_of
from proof.hardware.probing import MODULE, command
from wirewatch.client import NoAnswer, request

AGENT, SOMEBODY = 65534, 65533
"""Users and groups by number: of the agent, and of whoever else comes to a GPU. Neither needs a name."""
LISTENS_WITHIN = 60.0
STOPPED_WITHIN = 10.0
LOOK = 0.02
GLOO = 'engine = "gloo"\nranks = 2\nlatency_sizes = [8]\nbandwidth = [[1048576, 2]]\n'
"""A plan for processors alone."""
LASTING = "bandwidth = [[536870912, 960]]\n"
"""A plan of some seconds on two H200s."""


class ProberProcess:
    """One run after the other of `wirewatch prober`, as ourselves; all gone when left."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "prober.sock"
        self._log = folder / "prober.log"
        self._config = folder / "prober.toml"
        self._config.write_text(f"[probe]\n{plan()}", "utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return end_of(self._log)

    def start(self) -> float:
        """Seconds until it answers; raises KitError when it does not."""
        line = [sys.executable, "-m", "wirewatch", "prober", "--config", str(self._config)]
        line += ["--socket", str(self.socket), "--group", str(AGENT)]
        began = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=NO_MULTICAST | os.environ
            )
        while time.monotonic() < began + LISTENS_WITHIN and self._process.poll() is None:
            with suppress(NoAnswer):
                # No question of ours: any answer will do.
                request(str(self.socket), "GET", "/", None, 5.0)
                return time.monotonic() - began
            time.sleep(LOOK)
        raise KitError(f"the prober does not listen: {self.log()}")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int | None:
        """SIGTERM, and SIGKILL if that does not end it; the exit status, None when it was killed."""
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


def plan() -> str:
    """What differs from the default plan, as lines of [probe]."""
    return GLOO if replayed() else ""


def probe_settings(prober: ProberProcess, probe: str) -> str:
    """The lines of [probe] of an agent that asks that prober."""
    return f'prober = "{prober.socket}"\n{plan()}{probe}'


@dataclass(frozen=True)
class Asking:
    """The command: by itself as root, or of a user without privileges through the prober.

    `lasting`: through the prober with a plan that takes seconds.
    """

    direct: Path
    through: Path
    lasting: Path

    @classmethod
    def of(cls, folder: Path, prober: ProberProcess) -> "Asking":
        texts = {
            "direct": plan(),
            "through": probe_settings(prober, ""),
            "lasting": probe_settings(prober, LASTING),
        }
        made = {name: folder / f"{name}.toml" for name in texts}
        for name, text in texts.items():
            made[name].write_text(f'[listen]\nsocket = ""\n[probe]\n{text}', "utf-8")
        return cls(**made)

    def ask(self, config: Path) -> tuple[int, dict[str, Any], float]:
        """Exit status, document, seconds from start to exit; raises KitError."""
        user = None if config == self.direct else AGENT
        return command("--config", str(config), changes=NO_MULTICAST | os.environ, user=user)


@dataclass
class Seen:
    """What was seen of probes meanwhile: each worker's standing, and the most bytes resident by role."""

    workers: dict[int, processes.Standing] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)


class Witness:
    """Looks at the prober and at every worker, whoever started it, until left."""

    def __init__(self, prober: int) -> None:
        self.seen = Seen()
        self._prober = prober
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Seen:
        self._thread.start()
        return self.seen

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK):
            workers = set(processes.with_argument(MODULE))
            others = set(processes.children(self._prober)) - workers
            roles = {self._prober: "prober", **dict.fromkeys(others, "its NVML process")}
            for pid, role in {**roles, **dict.fromkeys(workers, "worker")}.items():
                with suppress(OSError, KeyError):
                    self._take(pid, role)

    def _take(self, pid: int, role: str) -> None:
        standing = processes.standing(pid)
        self.seen.most[role] = max(self.seen.most.get(role, 0), standing.resident)
        if role == "worker":
            # Between its fork and its own program it is still a copy of its parent.
            self.seen.workers.setdefault(pid, standing)
