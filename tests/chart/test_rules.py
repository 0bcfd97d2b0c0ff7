"""The rules themselves: each finds what it is for."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.chart.documents import KUBERNETES, Document, container, of_kind, pod_of, read, the
from tests.chart.restricted import refused
from tests.chart.rules import RULES, broken

Break = Callable[[list[Document]], Any]


def context(name: str, **values: object) -> Break:
    return lambda given: container(pod_of(given), name)["securityContext"].update(values)


def added(place: Callable[[list[Document]], list[Any]], value: object) -> Break:
    return lambda given: place(given).append(value)


def volumes(given: list[Document]) -> list[Any]:
    found: list[Any] = pod_of(given)["volumes"]
    return found


def mounts(name: str) -> Callable[[list[Document]], list[Any]]:
    return lambda given: container(pod_of(given), name)["volumeMounts"]


TOKEN = {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
MOUNTS = {"name": "mount", "image": "wirewatch:latest"}
BREAKS: dict[str, Break] = {
    "no_privileges: prober: privileged": context("prober", privileged=True),
    "no_privileges: agent: may gain privileges": context("agent", allowPrivilegeEscalation=True),
    "no_privileges: prober: has capabilities": context(
        "prober", capabilities={"drop": ["ALL"], "add": ["KILL"]}
    ),
    "agent_is_not_root: agent: may be root": context("agent", runAsUser=0),
    "roots_are_read_only: folders: writable root": context("folders", readOnlyRootFilesystem=False),
    "what_jobs_load_is_roots: agent: could change what jobs load": added(
        mounts("agent"), {"name": "tap", "mountPath": "/x"}
    ),
    "what_mounts_sees_rings_alone: mount: gets at run": added(
        lambda given: pod_of(given)["initContainers"],
        {**MOUNTS, "volumeMounts": [{"name": "run", "mountPath": "/x"}]},
    ),
    "what_mounts_sees_rings_alone: agent: mounts for the node": added(
        mounts("agent"), {"name": "jobs", "mountPath": "/x", "mountPropagation": "Bidirectional"}
    ),
    "what_mounts_sees_rings_alone: mount: goes on": added(lambda given: pod_of(given)["containers"], MOUNTS),
    "mounts_are_read_only: agent: writes to sys-bus": lambda given: [
        mount.pop("readOnly") for mount in mounts("agent")(given) if mount["name"] == "sys-bus"
    ],
    "mounts_are_read_only: prober: no volume x": added(
        mounts("prober"), {"name": "x", "mountPath": "/x", "readOnly": True}
    ),
    "mounts_are_read_only: volume y is not mounted": added(volumes, {"name": "y", "emptyDir": {}}),
    "little_of_the_host: z: the host's /": added(volumes, {"name": "z", "hostPath": {"path": "/"}}),
    "little_of_the_host: hostPID without need, or a prober without it": lambda given: pod_of(given).pop(
        "hostPID"
    ),
    "little_of_the_host: hostNetwork": lambda given: pod_of(given).update(hostNetwork=True),
    "no_gpu_is_taken: agent: nvidia.com/gpu": lambda given: container(pod_of(given), "agent")["resources"][
        "limits"
    ].update({"nvidia.com/gpu": 1}),
    "no_gpu_is_taken: prober: no memory limit": lambda given: container(pod_of(given), "prober").pop(
        "resources"
    ),
    "ports_name_their_protocol: agent: metrics": lambda given: container(pod_of(given), "agent")["ports"][
        0
    ].pop("protocol"),
    "ports_name_their_protocol: Service: metrics": lambda given: the(given, "Service")["spec"]["ports"][
        0
    ].pop("protocol"),
    "images_are_fixed: wirewatch:latest: moves": lambda given: [
        one.update(image="wirewatch:latest")
        for one in (*pod_of(given)["initContainers"], *pod_of(given)["containers"])
    ],
    "selectors_match: Service: selects no pod": lambda given: the(given, "Service")["spec"].update(
        selector={"a": "b"}
    ),
    "selectors_match: ServiceMonitor: selects no Service": lambda given: the(given, "PodMonitor").update(
        kind="ServiceMonitor", spec={"selector": {"matchLabels": {"a": "b"}}}
    ),
    "selectors_match: PodMonitor: selects no pod": lambda given: the(given, "PodMonitor")["spec"][
        "selector"
    ].update(matchLabels={"a": "b"}),
    "agents_are_scraped_once: PodMonitor: looks elsewhere": (
        lambda given: the(given, "PodMonitor")["metadata"].update(namespace="monitoring")
    ),
    "agents_are_scraped_once: two monitors": lambda given: given.append(
        copy.deepcopy(the(given, "PodMonitor"))
    ),
    "port_is_for_scrapers: no NetworkPolicy: every pod may connect": lambda given: given.remove(
        the(given, "NetworkPolicy")
    ),
    "port_is_for_scrapers: every pod may connect": lambda given: the(given, "NetworkPolicy")["spec"][
        "ingress"
    ][0].pop("from"),
    "port_is_for_scrapers: a direction without a policy": lambda given: the(given, "NetworkPolicy")["spec"][
        "policyTypes"
    ].remove("Egress"),
    "port_is_for_scrapers: every port": lambda given: the(given, "NetworkPolicy")["spec"]["egress"][0].pop(
        "ports"
    ),
    "least_rights: wirewatch-node-condition: too much": lambda given: the(given, "ClusterRole")["rules"][0][
        "verbs"
    ].append("list"),
    "least_rights: token: ['agent', 'prober']": added(mounts("prober"), TOKEN),
    "least_rights: a token for every container": lambda given: pod_of(given).pop(
        "automountServiceAccountToken"
    ),
    "least_rights: binding: another account": lambda given: pod_of(given).update(serviceAccountName="x"),
    "probes_ask_no_verdict: agent: livenessProbe asks /health": (
        lambda given: container(pod_of(given), "agent")["livenessProbe"]["httpGet"].update(path="/health")
    ),
    "probes_ask_no_verdict: prober: nobody asks whether it lives": lambda given: container(
        pod_of(given), "prober"
    ).pop("livenessProbe"),
}


@pytest.mark.parametrize("told", BREAKS)
def test_what_is_broken_is_reported(told: str) -> None:
    given = list(copy.deepcopy(read(KUBERNETES / "operators.yaml")))
    BREAKS[told](given)
    assert told in broken(given)


def test_every_rule_is_broken_by_one_of_them() -> None:
    assert {told.partition(":")[0] for told in BREAKS} == {rule.__name__ for rule in RULES}


def test_a_namespace_of_the_level_restricted_would_not_take_the_default() -> None:
    told = set(refused(pod_of(read(KUBERNETES / "default.yaml"))))
    assert {"hostPID", "volume hostPath", "prober: root", "folders: root"} <= told
    assert of_kind(read(KUBERNETES / "default.yaml"), "Namespace") == []
