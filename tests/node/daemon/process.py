"""The daemon as a real process."""

import json
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.forkserver import FORKS
from tests.patience import HANGS
from tests.processes import Process

FAST = """
[listen]
socket = ""
[collectors.agent]
interval = 0.3
[collectors.gpu]
interval = 0.3
[collectors.inventory]
interval = 0.3
[collectors.nvlink]
interval = 0.3
[collectors.pcie]
interval = 0.3
"""
SOON = HANGS
"""Seconds in which anything that shall happen has happened, also on a machine with much else to do."""
_URL = re.compile(r"(https?://\S+)/metrics")


@dataclass(frozen=True)
class Reply:
    """An answer, with the seconds that it took."""

    status: int
    text: str
    seconds: float
    content_type: str

    def json(self) -> dict[str, Any]:
        document = json.loads(self.text)
        assert isinstance(document, dict)
        return document

    def series(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in found, f"series twice: {key}"
                found[key] = sample.value
        return found


def every_finding(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The findings of a document, each followed by those of the same cause."""
    return [one for head in document["findings"] for one in (head, *head["same_cause"])]


class Daemon:
    """`wirewatch serve`, started and listening; ends with the block.

    Args:
        program: the module that runs it.
        forks: whether its process that talks to NVML is forked, instead of an interpreter of its own.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, config: str = FAST, program: str = "wirewatch",
        *, forks: bool = True,
    ) -> None:  # fmt: skip
        file = folder / "wirewatch.toml"
        file.write_text(config, "utf-8")
        self._log = folder / "daemon.log"
        words = (program, "serve", "--listen", "127.0.0.1:0", "--config", str(file), *arguments)
        state = {"STATE_DIRECTORY": str(file.parent / "state"), **({FORKS: "1"} if forks else {})}
        with self._log.open("wb") as log:
            self.process = Process(words, stderr=log, env={**os.environ, **state})
        self.url = self._wait_for_url()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    def _wait_for_url(self) -> str:
        end = time.monotonic() + SOON
        while time.monotonic() < end and self.process.poll() is None:
            told = _URL.search(self.log)
            if told:
                return told[1]
            time.sleep(0.02)
        self.process.kill()
        self.process.wait()
        raise AssertionError(f"the daemon did not start: {self.log}")

    def get(self, path: str, accept: str = "") -> Reply:
        began = time.monotonic()
        try:
            with urlopen(Request(self.url + path, headers={"Accept": accept}), timeout=SOON) as reply:
                text, status, kind = reply.read().decode(), reply.status, reply.headers["content-type"]
        except HTTPError as error:
            with error:
                text, status, kind = error.read().decode(), error.code, error.headers["content-type"]
        return Reply(status, text, time.monotonic() - began, kind)

    def gpus(self) -> list[str]:
        """UUIDs of the GPUs, by index, once it has looked at the hardware."""
        self.ready()
        found = dict(re.findall(r'gpu="(\d+)",uuid="([^"]+)"', self.get("/metrics").text))
        return [found[index] for index in sorted(found, key=int)]

    def wait(self, path: str, wanted: str, seconds: float = SOON) -> Reply:
        """Ask until the answer holds a text."""
        end = time.monotonic() + seconds
        while True:
            reply = self.get(path)
            if wanted in reply.text:
                return reply
            assert time.monotonic() < end, f"no {wanted!r} in {path}: {reply.text[:2000]}\n{self.log[-2000:]}"
            time.sleep(0.05)

    def ready(self) -> None:
        self.wait("/readyz", '"ready"')

    def terminate(self) -> tuple[int, float]:
        """SIGTERM; the exit status and the seconds until it."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(SOON)
        return status, time.monotonic() - began
