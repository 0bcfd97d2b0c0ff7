"""Who may connect to the agent, in each set of manifests."""

from pathlib import Path

import pytest

from tests.chart.documents import KUBERNETES, MANIFESTS, read, the
from tests.chart.policies import Pod, admits

NAME = "app.kubernetes.io/name"
# As the operators and charts of these label the pods that they make.
SCRAPERS = {
    "the Prometheus operator": {NAME: "prometheus", "app.kubernetes.io/managed-by": "prometheus-operator"},
    "its agent mode": {NAME: "prometheus-agent", "app.kubernetes.io/managed-by": "prometheus-operator"},
    "Prometheus' own chart": {NAME: "prometheus", "app.kubernetes.io/component": "server"},
    "VictoriaMetrics' operator": {NAME: "vmagent", "managed-by": "vm-operator"},
    "Grafana Alloy": {NAME: "alloy"},
    "OpenTelemetry's chart": {NAME: "opentelemetry-collector"},
}
JOBS = {
    "a job": {"app": "train"},
    "a web server": {NAME: "nginx"},
    "another agent": {NAME: "wirewatch"},
    "no label": {},
}
POLICY = the(read(KUBERNETES / "default.yaml"), "NetworkPolicy")
each = pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)


@pytest.mark.parametrize("labels", SCRAPERS.values(), ids=SCRAPERS)
def test_by_default_whoever_scrapes_is_let_in_from_any_namespace(labels: dict[str, str]) -> None:
    assert admits(POLICY, Pod(labels, "monitoring"))
    assert admits(POLICY, Pod(labels, "elsewhere"))
    assert not admits(POLICY, Pod(labels, "monitoring"), port="another")


@each
@pytest.mark.parametrize("labels", JOBS.values(), ids=JOBS)
def test_no_set_lets_a_job_in(path: Path, labels: dict[str, str]) -> None:
    assert not admits(the(read(path), "NetworkPolicy"), Pod(labels))


def test_a_policy_for_a_namespace_lets_in_that_one_alone() -> None:
    policy = the(read(KUBERNETES / "operators.yaml"), "NetworkPolicy")
    assert admits(policy, Pod({}, "monitoring"))
    assert not admits(policy, Pod(SCRAPERS["the Prometheus operator"], "elsewhere"))


@each
def test_nothing_is_let_out_but_to_api_servers(path: Path) -> None:
    given = read(path)
    spec = the(given, "NetworkPolicy")["spec"]
    assert set(spec["policyTypes"]) == {"Ingress", "Egress"}
    ports = {one["port"] for rule in spec["egress"] for one in rule["ports"]}
    assert ports == (set() if path.stem == "demo" else {443, 6443, 8443, 16443})
