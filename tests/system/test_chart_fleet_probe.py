"""The CronJob of the chart: the words, the template and the rights of its rounds."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chart.documents import documents, the
from tests.chart.restricted import refused
from tests.system.matrix import MATRIX
from tools.chart.helm import manifest
from wirewatch_fleet.cli.probe import kubernetes_engine, probe

pytestmark = pytest.mark.system
SETS = [name for name in MATRIX if name.startswith("rounds of pairs")]


def made(name: str) -> Any:
    return [
        one
        for one in documents(manifest(MATRIX[name]))
        if one["metadata"]["labels"].get("app.kubernetes.io/component") == "fleet-probe"
    ]


@pytest.mark.parametrize("name", SETS)
def test_the_command_takes_its_words_and_the_engine_its_template(name: str, tmp_path: Path) -> None:
    given = made(name)
    pod = the(given, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (one,) = pod["containers"]
    assert one["args"][:2] == ["fleet", "probe"]
    template = tmp_path / "pair.json"
    template.write_text(the(given, "ConfigMap")["data"]["pair.json"], "utf-8")
    assert json.loads(template.read_bytes()) == MATRIX[name]["fleetProbe"]["podTemplate"]
    words = [word.replace("/etc/wirewatch/pair.json", str(template)) for word in one["args"][2:]]
    chosen = probe.make_context("probe", words).params
    assert chosen["runs_on"] == "kubernetes"
    options = kubernetes_engine((), {**chosen, "namespace": "wirewatch"}).options  # type: ignore[attr-defined]
    asked = MATRIX[name]["fleetProbe"]
    assert (options.queue, options.selector) == (asked.get("queue", ""), asked.get("selector", ""))
    wanted = asked.get("priorityClass", {}).get("name") or the(given, "PriorityClass")["metadata"]["name"]
    assert options.priority == wanted
    assert list(refused(pod)) == []


def test_its_rights_are_what_the_engine_asks() -> None:
    """The requests are in tests/fleet/rounds/test_kubernetes.py."""
    rules = {one["kind"]: one["rules"] for one in made(SETS[0]) if one["kind"] in {"Role", "ClusterRole"}}
    flat = {
        (kind, resource, verb)
        for kind, own in rules.items()
        for rule in own
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert flat == {
        ("ClusterRole", "nodes", "list"),
        ("ClusterRole", "pods", "list"),
        ("Role", "jobs", "create"),
        ("Role", "jobs", "list"),
        ("Role", "jobs", "deletecollection"),
        ("Role", "services", "create"),
        ("Role", "pods/log", "get"),
    }


def test_a_pair_preempts_no_pod() -> None:
    one = the(made(SETS[0]), "PriorityClass")
    assert one["preemptionPolicy"] == "Never"
    assert one["value"] < 0
