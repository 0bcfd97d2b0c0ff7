"""Programs that run beside the tests, each with its log."""

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path


class Programs:
    """By name; all end with the block, the last started first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Iterable[str], environment: Mapping[str, str] | None = None) -> None:
        """Its output is appended to NAME.log."""
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*command], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
            )  # fmt: skip

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def logs(self) -> tuple[Path, ...]:
        return tuple(sorted(self._folder.glob("*.log")))

    def alive(self, name: str) -> None:
        """Raises AssertionError with the end of its log if it has ended."""
        process = self._running[name]
        assert process.poll() is None, f"{name} ended with {process.returncode}:\n{self.tail(name)}"

    def tail(self, name: str, lines: int = 15) -> str:
        return "\n".join(self.log(name).read_text("utf-8", errors="replace").splitlines()[-lines:])

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def send(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM, seconds: float = 10) -> None:
        """Until it has ended."""
        process = self._running.pop(name)
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(seconds)

    def stop_all(self) -> None:
        for name in reversed(tuple(self._running)):
            self.stop(name)
