"""The controller's manifests: restricted, with few rights, and held to its own taint by a policy."""

import copy
from typing import Any

import cel

from tests.chart.documents import KUBERNETES, TOML, Document, of_kind, read, the
from tests.chart.policies import Pod, admits
from tests.chart.restricted import refused
from tests.fleet.controller.drawn import GPU, NOW, OTHERS, OURS, apply, mark, raw, settings
from tests.rows import each
from wirewatch.catalogue import discover
from wirewatch.config import load
from wirewatch_fleet.cli.controller import controller
from wirewatch_fleet.controller.decide import decide, patch_of
from wirewatch_fleet.controller.node import MARK, node_of

GIVEN = read(KUBERNETES / "controller" / "controller.yaml")
NAME = "wirewatch-controller"
TEMPLATE: Document = the(GIVEN, "Deployment")["spec"]["template"]
POD: Document = TEMPLATE["spec"]


def refusals(after: Document, before: Document, **request: Any) -> list[str]:
    """What the policy says to a change by the controller; by a CEL of its own, not the API server's."""
    spec = the(GIVEN, "ValidatingAdmissionPolicy")["spec"]
    who = {"username": f"system:serviceaccount:wirewatch:{NAME}"}
    about: dict[str, Any] = {
        "object": after, "oldObject": before,
        "request": {"operation": "UPDATE", "subResource": "", "userInfo": who, **request},
    }  # fmt: skip
    (match,) = spec["matchConditions"]
    assert cel.evaluate(match["expression"], about) is True
    about["variables"] = {}
    for one in spec["variables"]:
        about["variables"][one["name"]] = cel.evaluate(one["expression"], about)
    return [
        one["message"] for one in spec["validations"] if cel.evaluate(one["expression"], about) is not True
    ]


BARE = raw()
TAINTED = raw(taints=[GPU, OURS], marked=mark())


def changed(before: Document, **more: Any) -> Document:
    return apply(before, more)


def test_a_namespace_of_the_level_restricted_takes_the_pod() -> None:
    assert list(refused(POD)) == []
    (one,) = POD["containers"]
    assert one["securityContext"]["readOnlyRootFilesystem"]
    assert "memory" in one["resources"]["limits"]
    assert "cpu" not in one["resources"]["limits"]


def test_its_rights_are_nodes_a_lease_and_events() -> None:
    rules = {
        (one["kind"], one["metadata"].get("namespace", "")): one["rules"]
        for one in GIVEN
        if one["kind"] in {"ClusterRole", "Role"}
    }
    core, lease = {"apiGroups": [""]}, {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert rules == {
        ("ClusterRole", ""): [{**core, "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]}],
        ("Role", "wirewatch"): [
            {**lease, "verbs": ["create"]},
            {**lease, "resourceNames": [NAME], "verbs": ["get", "update"]},
        ],
        ("Role", "default"): [{**core, "resources": ["events"], "verbs": ["create"]}],
    }
    for binding in (*of_kind(GIVEN, "ClusterRoleBinding"), *of_kind(GIVEN, "RoleBinding")):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "wirewatch"}]
    assert POD["serviceAccountName"] == the(GIVEN, "ServiceAccount")["metadata"]["name"] == NAME
    assert POD["automountServiceAccountToken"] is False


def test_no_agents_service_or_policy_selects_it() -> None:
    labels, agents = TEMPLATE["metadata"]["labels"], read(KUBERNETES / "default.yaml")
    for selector in (
        the(agents, "DaemonSet")["spec"]["selector"]["matchLabels"],
        the(agents, "Service")["spec"]["selector"],
        the(agents, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert not selector.items() <= labels.items()
    policy = the(GIVEN, "NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert not admits(policy, Pod({"app": "train"}))


def test_the_controller_takes_its_configuration_and_arguments(tmp_path: Any) -> None:
    file = tmp_path / TOML
    file.write_text(the(GIVEN, "ConfigMap")["data"][TOML], "utf-8")
    config, _ = load(file, discover())
    ours = config.controller
    assert (ours.dry_run, ours.act, ours.listen, ours.name) == (True, "taint", "0.0.0.0:9411", NAME)
    assert (ours.budget.cluster, ours.budget.rack) == ("5%", 1)
    (one,) = POD["containers"]
    assert one["args"][:2] == ["fleet", controller.name]
    controller.make_context("controller", one["args"][2:])


@each(
    ("before", "act"),
    [
        (BARE, "taint"),
        (raw(taints=[GPU]), "taint"),
        (raw(health="ok", taints=[GPU, OURS, OTHERS], marked=mark()), "taint"),
        (raw(health="ok", taints=[OURS], marked=mark()), "undo"),
        (raw(health="ok", marked=mark()), "taint"),
        (raw(health="ok", cordoned=True, marked=mark("cordon")), "taint"),
    ],
)
def test_the_policy_lets_the_controllers_own_patches_pass(before: Document, act: str) -> None:
    (decision,) = decide([node_of(before)], settings(act=act), NOW).decisions
    assert decision.step is not None
    assert refusals(apply(before, patch_of(decision, settings(act="taint"), NOW)), before) == []


NO_EXECUTE = {**OURS, "effect": "NoExecute"}


@each(
    ("after", "before", "request_", "told"),
    [
        (changed(BARE, spec={"taints": [NO_EXECUTE]}), BARE, {}, "NoSchedule alone"),
        (changed(BARE, spec={"taints": [{**OURS, "value": "x"}]}), BARE, {}, "NoSchedule alone"),
        (changed(BARE, spec={"taints": [OTHERS]}), BARE, {}, "NoSchedule alone"),
        (changed(TAINTED, spec={"taints": [OURS]}), TAINTED, {}, "NoSchedule alone"),
        (changed(BARE, spec={"taints": [OURS]}), BARE, {}, "come and go together"),
        (changed(TAINTED, spec={"taints": [GPU]}), TAINTED, {}, "come and go together"),
        (changed(BARE, spec={"unschedulable": True}), BARE, {}, "its own, and makes none"),
        (
            changed(raw(cordoned=True), spec={"unschedulable": None}), raw(cordoned=True), {},
            "takes back no cordon but its own",
        ),
        (changed(BARE, metadata={"annotations": {"other": None}}), BARE, {}, "the annotation"),
        (changed(BARE, metadata={"annotations": {"more": "x"}}), BARE, {}, "the annotation"),
        (changed(BARE, metadata={"annotations": {"other": "x"}}), BARE, {}, "the annotation"),
        (changed(BARE, metadata={"labels": {"x": "y"}}), BARE, {}, "no label"),
        (changed(BARE, metadata={"finalizers": ["x"]}), BARE, {}, "no label"),
        (changed(BARE, spec={"providerID": "x"}), BARE, {}, "nothing else"),
        (changed(BARE, spec={"podCIDR": "10.0.0.0/8"}), BARE, {}, "nothing else"),
        (BARE, BARE, {"operation": "CREATE"}, "neither makes nor deletes"),
        (BARE, BARE, {"operation": "DELETE"}, "neither makes nor deletes"),
        (BARE, BARE, {"subResource": "status"}, "neither makes nor deletes"),
    ],
)  # fmt: skip
def test_the_policy_refuses_whatever_else(
    after: Document, before: Document, request_: dict[str, Any], told: str
) -> None:
    assert [message for message in refusals(after, before, **request_) if told in message]


def test_a_mark_alone_may_come_for_nvsentinel_and_go() -> None:
    marked = raw(marked=mark("nvsentinel"))
    assert refusals(marked, BARE) == []
    gone = copy.deepcopy(marked)
    del gone["metadata"]["annotations"][MARK]
    assert refusals(gone, marked) == []


def test_the_policy_denies() -> None:
    binding = the(GIVEN, "ValidatingAdmissionPolicyBinding")["spec"]
    assert binding == {"policyName": NAME, "validationActions": ["Deny"]}
    assert the(GIVEN, "ValidatingAdmissionPolicy")["metadata"]["name"] == NAME
