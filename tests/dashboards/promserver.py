"""Debian's Prometheus as a process that scrapes daemons as a cluster would: labels `cluster` and `node`."""

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tools.alerting import ALERTS, RECORDING

SOON = 60.0
_INTERVAL = re.compile(r"^(    interval: ).+$", re.MULTILINE)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


class PromError(Exception):
    """Prometheus' own words on a query that it refuses."""


class Prometheus:
    """A server that answers; `url` without a slash at its end."""

    def __init__(self, url: str) -> None:
        self.url = url

    def instant(self, query: str, at: float | None = None) -> list[dict[str, Any]]:
        """Series with their newest `value`.

        Raises:
            PromError: the query is refused.
        """
        moment = {} if at is None else {"time": at}
        return self._ask("query", {"query": query, **moment})

    def between(self, query: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """Series with their `values` over time; raises PromError as `instant` does."""
        return self._ask("query_range", {"query": query, "start": start, "end": end, "step": step})

    def wait(self, query: str, seconds: float) -> None:
        """Until the query gives a series."""
        end = time.monotonic() + seconds
        while not self.instant(query):
            assert time.monotonic() < end, f"nothing in {seconds:g} s: {query}"
            time.sleep(0.5)

    def reload(self) -> None:
        """Read the configuration again."""
        with urlopen(Request(f"{self.url}/-/reload", method="POST"), timeout=SOON):
            pass

    def _ask(self, path: str, parameters: Mapping[str, object]) -> list[dict[str, Any]]:
        told = self.get(f"/api/v1/{path}?{urlencode(parameters)}")
        if told["status"] != "success":
            raise PromError(f"{told['error']}: {parameters['query']}")
        found: list[dict[str, Any]] = told["data"]["result"]
        return found

    def get(self, path: str) -> dict[str, Any]:
        """A document of its API, also one that reports a failure."""
        try:
            with urlopen(self.url + path, timeout=SOON) as reply:
                text = reply.read()
        except HTTPError as error:
            with error:
                text = error.read()
        told: dict[str, Any] = json.loads(text)
        return told


@contextmanager
def serving(folder: Path, config: Path, hosts: Path | None = None) -> Iterator[Prometheus]:
    """Prometheus with this configuration file, its data in `folder`; ends with the block.

    `hosts` takes the place of /etc/hosts for it.
    """
    tool = shutil.which("prometheus")
    assert tool, "prometheus is missing: tests/system/packages installs it"
    port = free_port()
    command = [
        tool, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn", "--web.enable-lifecycle",
    ]  # fmt: skip
    if hosts is not None:
        script = 'mount --bind "$0" /etc/hosts && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, str(hosts), *command]
    log = folder / "prometheus.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stderr=errors)
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        _wait_until_ready(server, process, log)
        yield server
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + SOON
    while time.monotonic() < end and process.poll() is None:
        try:
            with urlopen(server.url + "/-/ready", timeout=5):
                return
        except (HTTPError, URLError, ConnectionError):
            time.sleep(0.05)
    raise AssertionError(f"Prometheus did not start: {log.read_text('utf-8')}")


def rules_every(folder: Path, seconds: float | None = None) -> list[str]:
    """The files of our rules in `folder`, each group evaluated so often; as they are shipped for None."""
    made = []
    for path in (RECORDING, ALERTS):
        text = path.read_text("utf-8")
        file = folder / path.name
        often = text if seconds is None else _INTERVAL.sub(rf"\g<1>{seconds:g}s", text)
        file.write_text(often, "utf-8")
        made.append(str(file))
    return made


def scraping(
    targets: Sequence[tuple[str, Mapping[str, str]]], interval: float = 1.0, rules: Sequence[str] = ()
) -> str:
    """A configuration that scrapes these addresses, each with its labels. JSON is YAML."""
    static = [{"targets": [address], "labels": dict(labels)} for address, labels in targets]
    return json.dumps(
        {
            "global": {"scrape_interval": f"{interval:g}s", "evaluation_interval": f"{interval:g}s"},
            "rule_files": list(rules),
            "scrape_configs": [{"job_name": "wirewatch", "static_configs": static}],
        }
    )
