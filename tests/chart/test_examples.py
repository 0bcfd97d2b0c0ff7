"""deploy/kubernetes/examples: documents that mean what they say."""

import copy
from typing import Any

import cel
import click
import pytest
import yaml

from tests.chart.documents import EXAMPLES, KUBERNETES, Document, of_kind, pod_of, read, the
from tests.rows import each
from wirewatch.catalogue import discover
from wirewatch.cli.check.command import check
from wirewatch.config import load

CONDITION = "InterconnectHealthy"
POLICY = read(KUBERNETES / "examples" / "admission-policy.yaml")
NODE: Document = {
    "metadata": {"name": "gpu-1", "labels": {"pool": "a"}, "annotations": {"x": "y"}},
    "status": {
        "capacity": {"nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}, {"type": CONDITION, "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.34.0"},
    },
}
OWN = {"type": CONDITION, "status": "False"}


def example(name: str) -> tuple[Document, ...]:
    return read(KUBERNETES / "examples" / f"{name}.yaml")


def refusals(
    after: Document, before: Document = NODE, *, of_node: str | None = "gpu-1", operation: str = "UPDATE",
    part: str = "status",
) -> list[str]:  # fmt: skip
    """What the policy says to a change by the agent; evaluated by a CEL of its own, not the API server's."""
    spec = the(POLICY, "ValidatingAdmissionPolicy")["spec"]
    extra = {} if of_node is None else {"authentication.kubernetes.io/node-name": [of_node]}
    request = {
        "name": before["metadata"]["name"], "operation": operation, "subResource": part,
        "userInfo": {"username": "system:serviceaccount:wirewatch:wirewatch", "extra": extra},
    }  # fmt: skip
    about: dict[str, Any] = {"object": after, "oldObject": before, "request": request}
    (match,) = spec["matchConditions"]
    assert cel.evaluate(match["expression"], about) is True
    about["variables"] = {one["name"]: cel.evaluate(one["expression"], about) for one in spec["variables"]}
    return [
        one["message"] for one in spec["validations"] if cel.evaluate(one["expression"], about) is not True
    ]


def changed(*path: str | int, to: object) -> Document:
    node = copy.deepcopy(NODE)
    place: Any = node
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return node


def test_the_agent_may_write_its_condition_and_add_it_where_there_is_none() -> None:
    assert refusals(changed("status", "conditions", 1, to=OWN)) == []
    bare = changed("status", to={})
    assert refusals(changed("status", to={"conditions": [OWN]}), bare) == []
    assert refusals(NODE) == []  # a patch that changes nothing is how it reads


@each(
    ("after", "how", "told"),
    [
        (NODE, {"of_node": "gpu-2"}, "its own node alone"),
        (NODE, {"of_node": None}, "its own node alone"),
        (NODE, {"part": ""}, "nothing of a node but its status"),
        (NODE, {"operation": "DELETE"}, "nothing of a node but its status"),
        (changed("status", "conditions", 0, "status", to="False"), {}, f"the condition {CONDITION} alone"),
        (changed("status", "conditions", to=[OWN]), {}, f"the condition {CONDITION} alone"),
        (changed("metadata", "labels", "pool", to="b"), {}, "no label"),
        (changed("metadata", "annotations", to={}), {}, "no label"),
        (changed("metadata", "finalizers", to=["x"]), {}, "no label"),
        (changed("status", "capacity", "nvidia.com/gpu", to="0"), {}, "nothing else of a node's status"),
        (changed("status", "allocatable", to={"cpu": "1"}), {}, "nothing else of a node's status"),
        (
            changed("status", "addresses", to=[{"type": "Hostname", "address": "x"}]),
            {},
            "nothing else of a node's",
        ),
        (changed("status", "nodeInfo", "kubeletVersion", to="v9"), {}, "nothing else of a node's status"),
    ],
)
def test_whatever_else_it_would_change_is_refused(after: Document, how: dict[str, Any], told: str) -> None:
    assert [message for message in refusals(after, **how) if told in message] != []


def test_the_policy_denies_and_is_about_the_account_of_the_manifests() -> None:
    binding = the(POLICY, "ValidatingAdmissionPolicyBinding")["spec"]
    policy = the(POLICY, "ValidatingAdmissionPolicy")
    assert binding == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    account = the(read(KUBERNETES / "default.yaml"), "ServiceAccount")["metadata"]
    name = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert name in policy["spec"]["matchConditions"][0]["expression"]


@pytest.mark.parametrize(
    "job", of_kind(example("gate-init-container"), "Job"), ids=lambda job: job["metadata"]["name"]
)
def test_the_gate_asks_where_the_agent_listens(job: Document) -> None:
    pod = job["spec"]["template"]["spec"]
    (gate,) = pod["initContainers"]
    name, *rest = gate["args"]
    told = check.make_context(name, list(rest)).params
    host = next(
        v["hostPath"]["path"]
        for v in pod_of(read(KUBERNETES / "operators.yaml"))["volumes"]
        if v["name"] == "run"
    )
    assert pod["volumes"][0]["hostPath"] == {"path": host}
    assert told["socket"] == "/run/wirewatch/wirewatch.sock"
    assert gate["volumeMounts"][0] == {"name": "wirewatch", "mountPath": "/run/wirewatch", "readOnly": True}
    assert gate["securityContext"]["runAsNonRoot"]


def test_the_gate_that_probes_is_in_the_group_that_may_ask() -> None:
    given = example("gate-init-container")
    (probed,) = (job for job in of_kind(given, "Job") if job["metadata"]["name"] == "training-probed")
    (gate,) = probed["spec"]["template"]["spec"]["initContainers"]
    pod = pod_of(read(KUBERNETES / "operators.yaml"))
    (group,) = {arg.partition("=")[2] for one in pod["containers"] for arg in one["args"] if "--group" in arg}
    assert str(gate["securityContext"]["runAsGroup"]) == group
    assert gate["resources"]["limits"]["nvidia.com/gpu"] == 8


def test_the_gates_configuration_names_the_prober(tmp_path: Any) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(the(example("gate-init-container"), "ConfigMap")["data"]["wirewatch.toml"], "utf-8")
    assert load(file, discover())[0].probe.prober == "/run/wirewatch/prober.sock"


def test_an_owner_that_is_none_would_be_refused() -> None:
    with pytest.raises(click.UsageError):
        check.make_context("check", ["--owner=POD_UID"])


def test_each_engine_goes_by_the_condition() -> None:
    health = the(example("medik8s-node-health-check"), "NodeHealthCheck")["spec"]
    assert [(one["type"], one["status"]) for one in health["unhealthyConditions"]] == [(CONDITION, "False")]
    assert health["minHealthy"] == "90%"
    rule = the(example("kueue-taint"), "NodeReadinessRule")["spec"]
    assert [(one["type"], one["requiredStatus"]) for one in rule["conditions"]] == [(CONDITION, "True")]
    assert rule["dryRun"] is True
    flavor = the(example("kueue-taint"), "ResourceFlavor")["spec"]
    assert rule["taint"]["key"] not in {one["key"] for one in flavor["tolerations"]}
    assert flavor["topologyName"] == the(example("kueue-taint"), "Topology")["metadata"]["name"]


def test_the_event_of_nvsentinel_is_for_nodes_that_are_failed() -> None:
    values = yaml.safe_load((KUBERNETES / "examples" / "nvsentinel-values.yaml").read_text("utf-8"))
    (policy,) = values["kubernetes-object-monitor"]["policies"]
    expression = policy["predicate"]["expression"]
    for status, fires in (("True", False), ("Unknown", False), ("False", True)):
        node = changed("status", "conditions", 1, "status", to=status)
        assert cel.evaluate(expression, {"resource": node}) is fires


def test_all_examples_are_looked_at() -> None:
    names = {path.stem for path in EXAMPLES}
    assert names == {
        "admission-policy", "gate-init-container", "kueue-taint", "medik8s-node-health-check", "namespace",
        "nvsentinel-values", "timed-job",
    }  # fmt: skip
