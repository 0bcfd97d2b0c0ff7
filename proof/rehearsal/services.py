"""Prometheus and Alertmanager as real processes on ports of their own; nothing outlives the block."""

import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import psutil
import yaml
from prometheus_client.parser import text_string_to_metric_families

from proof.rehearsal.rules import shorter

START, STOP = 60.0, 20.0
TRIES = 3
WAITS = ("group_wait", "group_interval")
CLUSTER = "rehearsal"
LOST = frozenset(
    {
        "prometheus_rule_evaluation_failures_total", "prometheus_notifications_dropped_total",
        "prometheus_notifications_errors_total",
    }
)  # fmt: skip
"""What Prometheus counts of its own failures."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Service(ABC):
    """A program that listens, with its log in a file; started by `start`, ended with the block."""

    def __init__(self, program: str, folder: Path) -> None:
        found = shutil.which(program)
        assert found, f"{program} is missing: tests/system/packages installs it"
        self.program = found
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def arguments(self) -> Sequence[str]:
        """What the program is started with."""

    def start(self) -> None:
        """Start it, and wait until it answers; a port that another process took meanwhile is changed."""
        for _ in range(TRIES):
            self._spawn()
            if self._answers():
                return
            self.stop()
            self.port = free_port()
        raise AssertionError(f"{self.program} does not start: {self.log()}")

    def _spawn(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([self.program, *self.arguments()], stdout=log, stderr=log)

    def _answers(self) -> bool:
        """Whether it is ready in time; False as soon as it has ended."""
        assert self._process is not None
        end = time.monotonic() + START
        while time.monotonic() < end and self._process.poll() is None:
            # Whoever else has this port may say that he is ready, too.
            if self._listens(self._process.pid) and self._ready():
                return True
            time.sleep(0.05)
        return False

    def _listens(self, pid: int) -> bool:
        with suppress(psutil.Error):
            sockets = psutil.Process(pid).net_connections("tcp")
            return any(s.status == psutil.CONN_LISTEN and s.laddr.port == self.port for s in sockets)
        return False

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to whoever does not heed it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")[-2000:]

    def get(self, path: str, **query: str) -> Any:
        """The JSON that the service answers."""
        with urlopen(f"{self.url}{path}?{urlencode(query)}", timeout=STOP) as reply:
            return json.load(reply)

    def _ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready", timeout=1) as reply:
                return bool(reply.status == 200)
        except (URLError, OSError):
            return False

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self.stop()


class Alertmanager(Service):
    """With the routes and inhibitions that are shipped, but each alert by itself and at once.

    With `grouped` it groups and waits as shipped, squeezed.
    """

    def __init__(self, folder: Path, hook: str, shipped: Path, *, grouped: bool = False) -> None:
        super().__init__("prometheus-alertmanager", folder)
        settings = yaml.safe_load(shipped.read_text("utf-8"))
        at_once = {"group_by": ["..."], "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1d"}
        for route in (settings["route"], *settings["route"]["routes"]):
            waits = {key: shorter(route[key]) for key in WAITS if key in route}
            route.update(waits if grouped else at_once)
        for receiver in settings["receivers"]:
            # A receiver that gets nothing in service gets it here, so that it is seen.
            receiver["webhook_configs"] = [{"url": hook, "send_resolved": True}]
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(settings), "utf-8")

    def arguments(self) -> Sequence[str]:
        return (
            f"--config.file={self.folder}/alertmanager.yml", f"--storage.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}", "--cluster.listen-address=", "--log.level=warn",
        )  # fmt: skip


class Prometheus(Service):
    """Scrapes the nodes of a list that may change, and evaluates rules, every `every` seconds.

    With `apart` each node is a cluster of its own: faults of others beside it are no fault of a fleet.
    """

    def __init__(
        self, folder: Path, rules: Sequence[Path], alertmanager: Alertmanager, every: float, *,
        apart: bool = False,
    ) -> None:  # fmt: skip
        super().__init__("prometheus", folder)
        self._apart = apart
        self._targets = folder / "nodes.json"
        self._nodes: dict[str, str] = {}
        self._lock = threading.Lock()
        self._write()
        seconds = f"{round(every * 1000)}ms"
        settings = {
            "global": {
                "scrape_interval": seconds, "scrape_timeout": seconds, "evaluation_interval": seconds,
            },
            "rule_files": [str(rule) for rule in rules],
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager.port}"]}]}]
            },
            "scrape_configs": [
                {"job_name": "wirewatch", "file_sd_configs": [{"files": [str(self._targets)]}]}
            ],
        }  # fmt: skip
        (folder / "prometheus.yml").write_text(json.dumps(settings), "utf-8")

    def arguments(self) -> Sequence[str]:
        return (
            f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn",
        )  # fmt: skip

    def add(self, node: str, url: str) -> None:
        with self._lock:
            self._nodes[node] = url.removeprefix("http://")
            self._write()

    def remove(self, node: str) -> None:
        with self._lock:
            self._nodes.pop(node, None)
            self._write()

    def listed(self) -> Sequence[Mapping[str, object]]:
        """Targets with their labels, as file_sd has them."""
        return [
            {"targets": [address], "labels": {"node": node, "cluster": node if self._apart else CLUSTER}}
            for node, address in self._nodes.items()
        ]

    def _write(self) -> None:
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(self.listed()), "utf-8")
        # At once, so that a half written list is never read.
        new.replace(self._targets)

    def query(self, promql: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Labels and values of an instant vector."""
        told = self.get("/api/v1/query", query=promql)
        assert told["data"]["resultType"] == "vector", told
        return [(one["metric"], float(one["value"][1])) for one in told["data"]["result"]]

    def troubles(self) -> list[str]:
        """Why silence may mean that nothing was read: rules that failed, notices that were lost."""
        groups = self.get("/api/v1/rules")["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        bad = [f"{r['name']}: {r.get('lastError', r['health'])}" for r in rules if r["health"] != "ok"]
        with urlopen(f"{self.url}/metrics", timeout=STOP) as reply:
            families = text_string_to_metric_families(reply.read().decode())
        counted = [sample for family in families for sample in family.samples if sample.name in LOST]
        assert rules, "Prometheus has no rules"
        assert {sample.name for sample in counted} == LOST, counted
        return [*bad, *(f"{one.name}{one.labels}: {one.value:g}" for one in counted if one.value)]
