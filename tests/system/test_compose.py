"""The local stack's files in Debian's Prometheus and Alertmanager, with agents as compose starts them."""

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.promserver import Prometheus, serving
from tests.deploy.compose import agents, arguments, mounts, services, source_of
from tests.node.daemon.process import Daemon
from tests.system.test_inhibition import wait_for

pytestmark = pytest.mark.system

SOON = 240.0
HOSTS = "127.86.0"
"""Addresses of the loopback network that nobody else listens on: names and ports are those of the stack."""


@dataclass(frozen=True)
class Stack:
    prometheus: Prometheus
    alerts: str

    def told(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(self.alerts, timeout=5) as reply:
            found: list[dict[str, Any]] = json.load(reply)
        return found


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    names = {name: f"{HOSTS}.{place}" for place, name in enumerate([*agents(), "alertmanager"], 1)}
    (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in names.items()), "utf-8")
    with ExitStack() as running:
        for agent in agents():
            home = folder / agent
            home.mkdir()
            words = arguments(agent, f"{names[agent]}:9410")
            # In its container it listens everywhere and answers to any name; here it must be told its own.
            place = words.index("--config")
            _, file = words[place : place + 2]
            del words[place : place + 2]
            config = Path(file).read_text("utf-8") + f'[listen]\nhosts = ["{agent}"]\n'
            running.enter_context(Daemon(words[1:], home, config))
        running.enter_context(_alertmanager(folder, names["alertmanager"]))
        prometheus = running.enter_context(_prometheus(folder))
        yield Stack(prometheus, f"http://{names['alertmanager']}:9093/api/v2/alerts")


@contextmanager
def _alertmanager(folder: Path, address: str) -> Iterator[None]:
    config = source_of("alertmanager", "/etc/alertmanager/alertmanager.yml")
    words = [
        "prometheus-alertmanager", f"--config.file={config}", f"--storage.path={folder / 'alerts'}",
        f"--web.listen-address={address}:9093", "--cluster.listen-address=", "--log.level=error",
    ]  # fmt: skip
    with subprocess.Popen(words) as process:
        try:
            wait_for(f"http://{address}:9093/-/ready")
            yield
        finally:
            process.terminate()


def _prometheus(folder: Path) -> AbstractContextManager[Prometheus]:
    """With its files where the container has them, below `folder`."""
    for mount in mounts():
        if mount.service == "prometheus":
            place = folder / mount.target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(mount.source)
    _linked(folder)
    return serving(folder, folder / "etc/prometheus/prometheus.yml", folder / "hosts")


def _linked(root: Path) -> None:
    """What the container's command does before it becomes Prometheus, with its files below `root`."""
    (command,) = services()["prometheus"]["command"]
    before, _, _ = command.partition("&&")
    (root / "prometheus").mkdir(exist_ok=True)
    line = re.sub(r"(?<= )/", f"{root}/", before)
    subprocess.run(["sh", "-c", line], check=True)


def test_the_configurations_are_understood(tmp_path: Path) -> None:
    for mount in mounts():
        place = tmp_path / mount.service / mount.target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(mount.source)
    _linked(tmp_path / "prometheus")
    for words in (
        ("promtool", "check", "config", tmp_path / "prometheus/etc/prometheus/prometheus.yml"),
        ("amtool", "check-config", tmp_path / "alertmanager/etc/alertmanager/alertmanager.yml"),
    ):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout


def test_all_agents_are_scraped_under_their_names(stack: Stack) -> None:
    stack.prometheus.wait(f"count(up == 1) == {len(agents())}", SOON)
    found = {(one["metric"]["cluster"], one["metric"]["node"]) for one in stack.prometheus.instant("up")}
    assert found == {("demo", agent) for agent in agents()}


def test_all_rules_are_loaded_and_run(stack: Stack) -> None:
    stack.prometheus.wait('count({__name__=~"node:wirewatch_.+|wirewatch:.+"}) > 3', SOON)
    groups = stack.prometheus.get("/api/v1/rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["type"] for rule in rules} == {"recording", "alerting"}
    assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []


def test_the_slow_nodes_alert_comes_to_alertmanager(stack: Stack) -> None:
    end = time.monotonic() + SOON
    while True:
        told = {(one["labels"]["alertname"], one["labels"].get("node")): one for one in stack.told()}
        found = set(told)
        if ("WirewatchBusbwLow", "gpu-003") in found:
            break
        assert time.monotonic() < end, found
        time.sleep(2)
    assert "gpu-001" not in {node for _, node in found}, "nothing is wrong there"
    links = told["WirewatchBusbwLow", "gpu-003"]["annotations"]
    assert (
        links["dashboard_url"] == "http://localhost:3000/d/wirewatch-node?var-cluster=demo&var-node=gpu-003"
    )
    page = links["runbook_url"].removeprefix("http://localhost:9410")
    with urllib.request.urlopen(f"http://{HOSTS}.1:9410{page}", timeout=5) as reply:
        assert "<h1" in reply.read().decode()
