"""The chart comes up on the kubelet, and its containers have what they need and no more."""

import json
import time

from proof.kubernetes.cluster import Cluster, Pod, settled
from proof.kubernetes.image import REPOSITORY, TAG
from proof.kubernetes.node import NAME as NODE
from tests.system.matrix import Values
from tests.waiting import until
from tools.chart.helm import NAME
from tools.chart.made import CHART, ROOT

OURS: Values = {
    "image": {"repository": REPOSITORY, "tag": TAG, "pullPolicy": "Never"},
    "gpu": {"via": "none"},
    "cluster": "lab",
    "gate": {"hostPath": "/run/wirewatch"},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "config": {
        # Sooner than by default, all but what is shown to be the default.
        "probe": {"settle": 10, "interval": 5},
        "collectors": {"nvlink": {"interval": 5}},
        "drift": {"interval": 5},
        "policy": {"verdict": {"settle": 10}},
        "kubernetes": {"condition_recovered_after": 30, "condition_heartbeat": 60},
    },
}
OPERATORS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.monitoring.coreos.com}}
spec:
  group: monitoring.coreos.com
  names: {{kind: {kind}, plural: {plural}, singular: {singular}}}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
"""
"""Names of the Prometheus operator without its schemas, which tests/system holds the documents to."""


def node_ready(cluster: Cluster) -> str:
    def ready() -> bool:
        cluster.programs.alive("kubelet")
        told = cluster.try_kubectl("get", "node", NODE, "--output", "json")
        conditions = json.loads(told.stdout)["status"]["conditions"] if told.returncode == 0 else ()
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    began = time.monotonic()
    until("the node is Ready", lambda: ready() or None, 90)
    took = time.monotonic() - began
    versions = cluster.get("node", NODE)["status"]["nodeInfo"]
    assert versions["kubeletVersion"].startswith("v1."), versions
    return (
        f"kubelet {versions['kubeletVersion']} on {versions['containerRuntimeVersion']}, Ready {took:.0f} "
        f"s after its start"
    )


def installed(cluster: Cluster) -> str:
    kinds = ("ServiceMonitor", "PrometheusRule")
    texts = [OPERATORS.format(kind=kind, plural=f"{kind.lower()}s", singular=kind.lower()) for kind in kinds]
    cluster.apply("operators", "".join(texts))
    for kind in kinds:
        crd = f"customresourcedefinition/{kind.lower()}s.monitoring.coreos.com"
        cluster.kubectl("wait", "--for=condition=Established", crd, "--timeout=30s")
    cluster.kubectl("apply", "--filename", str(ROOT / "deploy/kubernetes/examples/namespace.yaml"))
    cluster.values = dict(OURS)
    began = time.monotonic()
    with cluster.helm() as helm:
        told = helm.install(str(CHART), NAME, cluster.values, wait="watcher", timeout=120)
    took = time.monotonic() - began
    assert (told["status"], told["revision"]) == ("deployed", 1), told
    daemons = cluster.get("daemonset", NAME, "--namespace", NAME)["status"]
    assert (daemons["desiredNumberScheduled"], daemons["numberReady"]) == (1, 1), daemons
    pod = settled(cluster)
    names = [one["name"] for one in pod.document["spec"]["containers"]]
    assert names == ["agent", "prober"], names
    return (
        f"`helm install --wait` returned after {took:.1f} s; DaemonSet 1 of 1 Ready, containers "
        f"{' and '.join(names)}"
    )


def unprivileged(cluster: Cluster) -> str:
    pod = settled(cluster)
    for container, user in (("agent", "65532"), ("prober", "0")):
        processes = pod.processes(container)
        assert processes, container
        for pid, told in processes.items():
            capabilities = {told[one] for one in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
            assert capabilities == {"0" * 16}, (container, pid, told)
            assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2"), (container, pid, told)
            assert set(told["Uid"].split()) == {user}, (container, pid, told)
        assert "Read-only file system" in pod.attempt(container, "touch", "/usr/x").stderr
    _mounted(pod)
    return (
        "/proc of the node: agent uid 65532, prober uid 0, every capability set of every process empty, no "
        "new "
        "privileges, seccomp filter; roots read-only; the token is the agent's alone"
    )


def _mounted(pod: Pod) -> None:
    """Of the node, state and sockets can be written to, and nothing else; the prober has no token."""
    for place in ("/sys/class", "/sys/bus", "/sys/devices"):
        assert "Read-only file system" in pod.attempt("agent", "touch", f"{place}/x").stderr, place
    for place in ("/var/lib/wirewatch", "/run/wirewatch"):
        pod.do("agent", "sh", "-c", f"touch {place}/x && rm {place}/x")
    credentials = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert pod.attempt("agent", "test", "-s", credentials).returncode == 0
    assert pod.attempt("prober", "test", "-e", "/var/run/secrets").returncode == 1
    assert pod.attempt("prober", "test", "-w", "/var/log/pods").returncode == 1


def answers(cluster: Cluster) -> str:
    pod = settled(cluster)
    assert pod.ask("/livez")[0] == pod.ask("/readyz")[0] == 200
    health = until("healthy", lambda: _ok(pod), 60)
    told = pod.do("agent", "wirewatch", "check").strip()
    assert health["job_ready"] is True
    return (
        f"/livez, /readyz and /health answer 200 at the pod's address; `kubectl exec ... wirewatch check`: "
        f"{told[:60]!r}"
    )


def probed(cluster: Cluster) -> str:
    """What is kept: a probe in the history, and the topology that was learned."""
    pod = settled(cluster)

    def last() -> dict[str, object] | None:
        found = json.loads(pod.ask("/api/v1/probes")[1])["last"]
        return found if isinstance(found, dict) else None

    def baseline() -> float | None:
        return pod.metrics()["wirewatch_topology_baseline_timestamp_seconds"] or None

    probe = until("a probe has run", last, 120)
    assert probe["outcome"] == "ok", probe
    assert isinstance(probe["at"], float)
    cluster.kept = {"probe": probe["at"], "baseline": until("a topology is learned", baseline, 60)}
    return (
        "agent and prober over their socket: a probe is done and kept, and the topology's baseline is learned"
    )


def _ok(pod: Pod) -> dict[str, object] | None:
    health = pod.health()
    return health if health["health"] == "ok" else None
