"""The prober as a real process; and as a program: one over a recording, with real workers that misbehave."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import psutil

from tests.forkserver import FORKS
from tests.node.probe import workers
from tests.patience import HANGS
from tests.processes import Process
from wirewatch import __version__
from wirewatch.__main__ import main as wirewatch
from wirewatch.client import NoAnswer, request
from wirewatch.probe import remote
from wirewatch.probe.runner import ProbeRunner, RunnerPorts

ROOT = Path(__file__).resolve().parents[3]
DEMO = "demo-dgx-h200"
SOON = HANGS
COMMAND = ("wirewatch", "prober")
WORKING = ("tests.node.daemon.proberprocess",)


class ProberProcess:
    """A prober, started and listening; killed at the end of the block.

    Args:
        command: a module and its arguments, or the absolute path of another interpreter with them.
        settings: values to put in the place of constants of the code, by `module.NAME`; of WORKING alone.
    """

    def __init__(
        self, folder: Path, arguments: Sequence[str] = (), command: Sequence[str] = COMMAND, worker: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.socket = str(folder / "prober.sock")
        self.pid_file = folder / "worker.pid"
        self._log = folder / "prober.log"
        environment = {
            **os.environ, workers.WHICH: worker, workers.PID_FILE: str(self.pid_file),
            "OUR_SETTINGS": json.dumps(settings or {}), "PYTHONPATH": str(ROOT),
            FORKS: "1",
        }  # fmt: skip
        with self._log.open("ab") as log:
            words = (*command, "--socket", self.socket, *arguments)
            self.process: Process | subprocess.Popen[bytes] = (
                subprocess.Popen(words, stderr=log, env=environment, cwd=ROOT)
                if Path(words[0]).is_absolute()
                else Process(words, stderr=log, env=environment, cwd=ROOT)
            )
        self._wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A worker that misbehaves outlives it: the real one asks the kernel to die with its parent.
        with suppress(psutil.NoSuchProcess):
            left = psutil.Process(self.process.pid).children(recursive=True)
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            for one in left:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    def _wait(self) -> None:
        end = time.monotonic() + SOON
        while time.monotonic() < end and self.process.poll() is None:
            try:
                # No question of ours: any answer will do.
                request(self.socket, "GET", "/", None, 5.0)
            except NoAnswer:
                time.sleep(0.02)
            else:
                return
        self.process.kill()
        self.process.wait()
        raise AssertionError(f"the prober did not start: {self.log}")

    def ask(
        self, target: str, body: bytes, version: str = __version__, deadline: float = SOON
    ) -> tuple[int, Any]:
        headers = ((remote.VERSION, version),)
        status, answer = request(self.socket, "POST", target, body, deadline, headers=headers)
        return status, json.loads(answer)

    def worker(self) -> int:
        """The process id of the newest worker, once there is one."""
        end = time.monotonic() + SOON
        while not self.pid_file.exists():
            assert time.monotonic() < end, f"no worker: {self.log}"
            time.sleep(0.01)
        return int(self.pid_file.read_text("utf-8"))

    def terminate(self) -> tuple[int, float]:
        """SIGTERM; the exit status and the seconds until it."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(SOON)
        return status, time.monotonic() - began


def working(folder: Path, worker: str, *arguments: str, **settings: Any) -> ProberProcess:
    """A prober of the demo node's GPUs with real workers: one of tests.node.probe.workers, or a module."""
    told = {name.replace("__", "."): value for name, value in settings.items()}
    return ProberProcess(folder, ("--replay", DEMO, *arguments), WORKING, worker, told)


class Real(ProbeRunner):
    """Real workers, for GPUs that are recorded."""

    def engine(self, wanted: str) -> str:
        return "nccl" if wanted == "auto" else wanted


def main() -> None:
    """`wirewatch prober`, whose recorded GPUs are probed by real workers."""
    for name, value in json.loads(os.environ["OUR_SETTINGS"]).items():
        module, _, constant = name.rpartition(".")
        setattr(import_module(f"wirewatch.{module}"), constant, value)
    command_module: Any = import_module("wirewatch.cli.prober")
    made, worker = command_module.replayed, os.environ[workers.WHICH]
    command = ("-m", worker) if "." in worker else workers.COMMAND

    def replayed(*arguments: Any, **options: Any) -> Any:
        node, nvml = made(*arguments, **options)
        around = RunnerPorts(nvml, node.sysfs, node.clock)
        return replace(node, probe=Real(around, None, command=command)), nvml

    command_module.replayed = replayed
    sys.argv = ["wirewatch", "prober", *sys.argv[1:]]
    wirewatch()


if __name__ == "__main__":
    main()
