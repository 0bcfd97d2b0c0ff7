"""A simulated fleet and Debian's Prometheus over it, as processes; both end with the block."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import psutil
import yaml

from tests.dashboards.promserver import Prometheus, free_port
from tools.alerting import ALERTS, RECORDING
from tools.yamlfile import load_yaml

SCRAPE = 15
"""Seconds, as deploy/prometheus has it."""
STARTING = 120.0
FIRST = ("nice", "-n", "-10")
"""Before other work of the machine, where this user may ask for that; nice says so where not."""


@dataclass(frozen=True)
class Watched:
    """A Prometheus that watches a simulated fleet; `folder` has its data."""

    prometheus: Prometheus
    process: psutil.Process
    simulator: psutil.Process
    data: Path

    def metrics(self) -> str:
        """What Prometheus says of itself."""
        with urlopen(f"{self.prometheus.url}/metrics", timeout=STARTING) as reply:
            text: bytes = reply.read()
        return text.decode()


@contextmanager
def watched(folder: Path, nodes: int, tier: str, faults: Sequence[str], every: int) -> Iterator[Watched]:
    """Rules as shipped, each group evaluated every so many seconds."""
    with _simulator(nodes, tier, faults) as (simulator, targets):
        config = folder / "prometheus.yml"
        config.write_text(json.dumps(_config(folder, targets, every)), "utf-8")
        data, port = folder / "data", free_port()
        tool = shutil.which("prometheus")
        assert tool, "prometheus is missing: tests/system/packages installs it"
        command = [
            *FIRST, tool, f"--config.file={config}", f"--storage.tsdb.path={data}", "--log.level=warn",
            f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=40d",
        ]  # fmt: skip
        with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
            try:
                server = Prometheus(f"http://127.0.0.1:{port}")
                _answers(f"{server.url}/-/ready", process)
                yield Watched(server, psutil.Process(process.pid), psutil.Process(simulator.pid), data)
            finally:
                process.terminate()


@contextmanager
def _simulator(nodes: int, tier: str, faults: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = [
        *FIRST,
        sys.executable,
        "-m",
        "wirewatch",
        "fleet",
        "simulate",
        "--nodes",
        str(nodes),
        "--tier",
        tier,
    ]
    words += ["--listen", "127.0.0.1:0", *(word for fault in faults for word in ("--fault", fault))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, line
            yield process, found[0]
        finally:
            process.terminate()


def _config(folder: Path, targets: str, every: int) -> dict[str, object]:
    rules = []
    for path in (RECORDING, ALERTS):
        text = load_yaml(path.read_text("utf-8"))
        for group in text["groups"]:
            group["interval"] = f"{every}s"
        rules.append(folder / path.name)
        rules[-1].write_text(yaml.safe_dump(text, sort_keys=False), "utf-8")
    scrape = {"job_name": "wirewatch", "http_sd_configs": [{"url": targets}]}
    return {
        "global": {"scrape_interval": f"{SCRAPE}s", "evaluation_interval": f"{every}s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [scrape],
    }


def _answers(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + STARTING
    while process.poll() is None and time.monotonic() < end:
        try:
            with urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no answer from {url}")
