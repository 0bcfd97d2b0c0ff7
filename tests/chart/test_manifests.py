"""deploy/kubernetes, as it lies there: what holds of it can be seen without helm."""

import re
from pathlib import Path

import click
import pytest
import yaml

from tests.chart.documents import (
    KUBERNETES,
    MANIFESTS,
    ROOT,
    configuration,
    container,
    of_kind,
    pod_of,
    read,
    the,
)
from tests.chart.restricted import refused
from tests.chart.rules import broken
from wirewatch.catalogue import discover
from wirewatch.cli.prober import prober
from wirewatch.cli.serve import serve
from wirewatch.config import load

COMMANDS: dict[str, click.Command] = {"agent": serve, "prober": prober}


each = pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)


def test_there_is_one_for_each_set_of_values_and_one_for_none() -> None:
    sets = {path.name for path in (KUBERNETES / "values").glob("*.yaml")}
    assert {path.name for path in MANIFESTS} == sets | {"default.yaml"}


@each
def test_no_rule_is_broken(path: Path) -> None:
    assert broken(read(path)) == []


@each
def test_the_configuration_is_one_that_the_agent_takes(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(configuration(read(path)), "utf-8")
    config, _ = load(file, discover())
    probing = any(one["name"] == "prober" for one in pod_of(read(path))["containers"])
    assert config.listen.address == "0.0.0.0:9410"
    assert (config.probe.enabled, bool(config.probe.prober)) == (probing, probing)
    assert config.kubernetes.node_condition is (path.stem != "demo")


@each
def test_the_command_line_takes_the_arguments(path: Path) -> None:
    for one in pod_of(read(path))["containers"]:
        name, *rest = one["args"]
        assert name == COMMANDS[one["name"]].name
        COMMANDS[one["name"]].make_context(name, rest)


@each
def test_the_prober_listens_where_the_agent_asks(path: Path) -> None:
    pod = pod_of(read(path))
    for one in pod["containers"]:
        if one["name"] == "prober":
            socket = "/run/wirewatch/prober.sock"
            assert f"--socket={socket}" in one["args"]
            assert f'connect("{socket}")' in one["livenessProbe"]["exec"]["command"][-1]
            shared = [
                m for m in container(pod, "agent")["volumeMounts"] if m["mountPath"] == "/run/wirewatch"
            ]
            assert shared == [m for m in one["volumeMounts"] if m["mountPath"] == "/run/wirewatch"]


def test_a_namespace_of_the_level_restricted_takes_that_set() -> None:
    assert list(refused(pod_of(read(KUBERNETES / "restricted.yaml")))) == []


def test_what_the_port_serves_is_asked_by_its_scheme() -> None:
    given = read(KUBERNETES / "operators.yaml")
    agent = container(pod_of(given), "agent")
    assert {agent[probe]["httpGet"]["scheme"] for probe in ("livenessProbe", "readinessProbe")} == {"HTTPS"}
    (endpoint,) = the(given, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"


def test_targets_have_the_labels_that_the_rules_go_by() -> None:
    """What the example for pods relabels by hand."""
    job, _ = yaml.safe_load((ROOT / "deploy/prometheus/prometheus-kubernetes.yml").read_text("utf-8"))[
        "scrape_configs"
    ]
    wanted = {
        (one["target_label"], *one.get("source_labels", []))
        for one in job["relabel_configs"]
        if "target_label" in one
    }
    (endpoint,) = the(read(KUBERNETES / "operators.yaml"), "PodMonitor")["spec"]["podMetricsEndpoints"]
    made = {(one["targetLabel"], *one.get("sourceLabels", [])) for one in endpoint["relabelings"]}
    assert made == wanted | {("job",)}
    fixed = {
        one["targetLabel"]: one["replacement"] for one in endpoint["relabelings"] if "replacement" in one
    }
    assert fixed == {"job": job["job_name"], "cluster": "lab"}


def test_the_rules_are_those_of_deploy_prometheus() -> None:
    made = of_kind(read(KUBERNETES / "operators.yaml"), "PrometheusRule")
    for rule, part in zip(made, ("recording", "alerts"), strict=True):
        assert rule["metadata"]["name"] == f"wirewatch-{part}"
        given = yaml.safe_load((ROOT / f"deploy/prometheus/wirewatch-{part}.yml").read_text("utf-8"))
        # Agents in the network of pods: the runbook by a port-forward.
        for one in (one for group in given["groups"] for one in group["rules"] if "alert" in one):
            _, answers, page = one["annotations"]["runbook_url"].rpartition("{{ end }}")
            assert answers
            one["annotations"] |= {
                "runbook_url": f"https://localhost:9410/{page}",
                "runbook_command": "kubectl -n wirewatch port-forward daemonset/wirewatch 9410",
            }
        assert rule["spec"] == given


@each
def test_they_say_where_they_come_from(path: Path) -> None:
    first = path.read_text("utf-8").splitlines()[0]
    assert re.fullmatch(r"# Rendered by `make generated` from helm/wirewatch with .*: do not edit\.", first)
