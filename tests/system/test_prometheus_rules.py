"""Rules, scraping and routes in Debian's Prometheus and Alertmanager; a missing tool is a failure."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.declared import also_declared
from tools import alerting
from tools.alerting import ALERTS, PROMETHEUS, RECORDING, alerts, records
from wirewatch.core.collector import CONFIRMED, Rule

pytestmark = pytest.mark.system

FILES = sorted((PROMETHEUS / "tests").glob("*.yml"))
ROUTES = PROMETHEUS / "alertmanager.yml"
POD = {
    "__meta_kubernetes_pod_container_name": "agent",
    "__meta_kubernetes_pod_container_port_name": "metrics",
    "__meta_kubernetes_pod_phase": "Running",
    "__meta_kubernetes_pod_node_name": "gpu-017",
}


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)


def test_promtool_takes_the_rules() -> None:
    done = run("promtool", "check", "rules", "--lint=all", "--lint-fatal", RECORDING, ALERTS)
    assert done.returncode == 0, done.stdout + done.stderr
    for count in (len(records()), len(alerts())):
        assert f"SUCCESS: {count} rules found" in done.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_rules_do_what_their_tests_say(path: Path) -> None:
    done = run("promtool", "test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_reports_a_rule_that_does_something_else(tmp_path: Path) -> None:
    """Else the tests above would prove nothing. Here the rule that holds what a dead agent said is lost."""
    lost = RECORDING.read_text("utf-8").replace(
        "last_over_time(wirewatch:finding_severity:held[1h])", "vector(0) > 1"
    )
    (tmp_path / RECORDING.name).write_text(lost, "utf-8")
    (tmp_path / ALERTS.name).write_text(ALERTS.read_text("utf-8"), "utf-8")
    (tmp_path / "tests").mkdir()
    case = tmp_path / "tests" / "outage.yml"
    case.write_text((PROMETHEUS / "tests" / "outage.yml").read_text("utf-8"), "utf-8")
    done = run("promtool", "test", "rules", case)
    assert done.returncode == 1
    assert "WirewatchXidReboot" in done.stdout + done.stderr


def test_a_declared_rule_that_can_be_failed_becomes_a_page(tmp_path: Path) -> None:
    with also_declared(Rule("fans.slow", CONFIRMED, means="slow", do="clean it")):
        (tmp_path / RECORDING.name).write_text(RECORDING.read_text("utf-8"), "utf-8")
        (tmp_path / ALERTS.name).write_text(alerting.alerts_text(), "utf-8")
        (tmp_path / "tests").mkdir()
        case = tmp_path / "tests" / alerting.CASES.name
        case.write_text(alerting.cases(), "utf-8")
    names = [one["name"] for one in yaml.safe_load(case.read_text("utf-8"))["tests"]]
    assert {"WirewatchFansSlow, critical", "WirewatchFansSlow, ticket"} <= set(names)
    checked = run("promtool", "check", "rules", "--lint=all", "--lint-fatal", tmp_path / ALERTS.name)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    done = run("promtool", "test", "rules", case)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_example_for_listed_nodes() -> None:
    done = run("promtool", "check", "config", PROMETHEUS / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    targets = discovered(PROMETHEUS / "prometheus.yml")
    assert [(one["job"], one["cluster"], one["node"]) for one in targets] == [
        ("wirewatch", "lab", "gpu-001"),
        ("wirewatch", "lab", "gpu-002"),
    ]


@pytest.mark.parametrize(
    ("different", "kept"),
    [
        ({}, 1),
        ({"__meta_kubernetes_pod_container_port_name": "health"}, 0),
        ({"__meta_kubernetes_pod_container_name": "sidecar"}, 0),
        ({"__meta_kubernetes_pod_phase": "Failed"}, 0),
        ({"__meta_kubernetes_pod_phase": "Pending"}, 1),
    ],
)
def test_the_example_for_kubernetes_labels_what_the_api_gives(
    different: dict[str, str], kept: int, tmp_path: Path
) -> None:
    """Debian's Prometheus knows no Kubernetes: targets are listed here, as its API would tell of them."""
    document = yaml.safe_load((PROMETHEUS / "prometheus-kubernetes.yml").read_text("utf-8"))
    job, nodes = document["scrape_configs"]
    assert (nodes["job_name"], nodes["honor_labels"]) == ("kube-state-metrics", True)
    (asked,) = job.pop("kubernetes_sd_configs")
    assert asked["role"] == "pod"
    job["static_configs"] = [{"targets": ["10.1.2.3:9410"], "labels": {**POD, **different}}]
    document["rule_files"] = [str(PROMETHEUS / name) for name in document["rule_files"]]
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    done = run("promtool", "check", "config", path)
    assert done.returncode == 0, done.stdout + done.stderr
    targets = [(one["job"], one["cluster"], one["node"]) for one in discovered(path) if one]
    assert targets == [("wirewatch", "lab", "gpu-017")] * kept


def discovered(path: Path) -> list[dict[str, Any]]:
    """Labels of the targets of this configuration, without those that begin with two underscores."""
    done = run("promtool", "check", "service-discovery", "--timeout=2s", path, "wirewatch")
    assert done.returncode == 0, done.stderr
    return [
        {key: value for key, value in one["labels"].items() if not key.startswith("__")}
        for one in json.loads(done.stdout)
    ]


def test_alertmanager_takes_the_example() -> None:
    done = run("amtool", "check-config", ROUTES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("alertname=WirewatchGPULost", "severity=critical", "node=gpu-17"), "page"),
        (("alertname=WirewatchCapacityLow", "severity=critical"), "page"),
        (("alertname=WirewatchCapacityLow", "severity=ticket"), "ticket"),
        (("alertname=WirewatchGPULost", "severity=ticket", "node=gpu-17"), "ticket"),
        (("alertname=WirewatchReleaseLong", "severity=info"), "nobody"),
        (("alertname=SomebodyElses",), "ticket"),
    ],
)
def test_alerts_go_where_their_severity_says(labels: tuple[str, ...], receiver: str) -> None:
    done = run("amtool", "config", "routes", "test", f"--config.file={ROUTES}", *labels)
    assert done.stdout.split() == [receiver]
