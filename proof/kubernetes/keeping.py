"""What a rollout and an uninstall leave where it was."""

import json
import sqlite3
import time
from pathlib import Path

from proof.kubernetes.cluster import CONDITION, Cluster, Pod, settled
from proof.kubernetes.condition import is_now
from proof.kubernetes.gating import SPACE
from proof.kubernetes.installing import OURS
from proof.kubernetes.node import NAME as NODE
from proof.kubernetes.refusing import Asking
from tests.waiting import until
from tools.chart.helm import NAME

STATE = Path("/var/lib/wirewatch")
"""On the node, which is here."""


def rolled_back(cluster: Cluster) -> str:
    before, old = cluster.condition(), settled(cluster)
    assert before is not None
    began = time.monotonic()
    with cluster.helm() as helm:
        helm.rollback(NAME, version=1, wait="watcher", timeout=120)
        history = [(one["revision"], one["status"]) for one in helm.history(NAME)]
    took = time.monotonic() - began
    cluster.values = dict(OURS)
    assert history == [(1, "superseded"), (2, "superseded"), (3, "deployed")], history
    pod = settled(cluster)
    assert pod.name != old.name, "the checksum of the configuration and the environment roll the pod"
    (found,) = until("the fault is known", lambda: pod.findings() or None, 60)
    assert (found["rule"], found["since"]) == ("nvlink.link_down", cluster.kept["since"]), found
    _kept(cluster, pod)
    now = cluster.condition()
    assert now is not None
    assert (now["status"], now["lastTransitionTime"]) == (before["status"], before["lastTransitionTime"]), now
    told = until("the condition is True again", lambda: is_now(cluster, "True"), 180)
    assert told["reason"] == "Degraded", told
    assert "on probation" in told["message"], told
    return (
        f"`helm rollback --wait` in {took:.0f} s, another pod: the fault is known with its first `since`, "
        f"the probe's history and the "
        "topology's baseline are those from before, the condition stays False with its lastTransitionTime, "
        "then True, Degraded, "
        "while the fault is on probation"
    )


def _kept(cluster: Cluster, pod: Pod) -> None:
    """What was there before two rollouts."""
    metrics = pod.metrics()
    assert metrics["wirewatch_topology_baseline_timestamp_seconds"] == cluster.kept["baseline"]
    document = json.loads(pod.ask("/api/v1/probes")[1])
    times = {one["at"] for one in (document["last"], *document["past"]) if one}
    assert cluster.kept["probe"] in times, document
    with sqlite3.connect(f"file:{STATE}/probes.sqlite?mode=ro", uri=True) as history:
        assert history.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    history.close()


def repaired(cluster: Cluster) -> str:
    """An operator's word, which is kept over another rollout."""
    pod = settled(cluster)
    (found,) = pod.findings()
    pod.do("agent", "wirewatch", "findings", "repaired", found["id"], "--yes", "--why", "link reseated")
    until("nothing is wrong", lambda: pod.health()["health"] == "ok" or None, 30)
    took = cluster.upgrade(config={"page": {"runbook": "https://docs.example.org/"}})
    after = settled(cluster)
    assert after.name != pod.name, "the configuration's checksum rolls the pod"
    until("healthy", lambda: after.health()["health"] == "ok" or None, 60)
    told = until("the condition says so", lambda: _healthy(cluster), 120)
    _kept(cluster, after)
    return (
        f"`wirewatch findings repaired` ends the probation; a new configuration rolls the pod ({took:.0f} s) "
        f"and the word "
        f"holds: True, {told['reason']}"
    )


def _healthy(cluster: Cluster) -> dict[str, object] | None:
    told = cluster.condition()
    return told if told is not None and told["reason"] == "Healthy" else None


def uninstalled(cluster: Cluster) -> str:
    condition = cluster.condition()
    assert condition is not None
    with cluster.helm() as helm:
        helm.uninstall(NAME, wait="watcher", timeout=90)
    until("no pod is left", lambda: not cluster.get("pods", "--namespace", NAME)["items"] or None, 60)
    left = cluster.kubectl(
        "get", "daemonsets,services,configmaps,secrets,serviceaccounts,clusterroles,clusterrolebindings,"
        "servicemonitors,prometheusrules", "--all-namespaces", "--selector",
        "app.kubernetes.io/instance=wirewatch",
        "--output", "name",
    )  # fmt: skip
    assert left.split() == [], left
    assert "sh.helm.release" not in cluster.kubectl("get", "secrets", "--namespace", NAME, "--output", "name")
    files = sorted(path.name for path in STATE.iterdir())
    assert {"latches.json", "probes.sqlite", "baseline.json"} <= set(files), files
    ours = {"e2e.toml", "late.toml"}
    sockets = sorted({path.name for path in Path("/run/wirewatch").iterdir()} - ours)
    stays = cluster.condition()
    assert stays is not None
    assert stays["status"] == condition["status"], stays
    # As docs/kubernetes.md has it; Debian's own kubectl is older than its option --subresource.
    gone = {"status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}}
    admin = Asking(cluster, cluster.plane.token)
    assert admin.status("PATCH", f"/api/v1/nodes/{NODE}/status", gone) == 200
    assert cluster.condition() is None
    cluster.kubectl("delete", "namespace", SPACE, "--wait=false")
    return (
        f"`helm uninstall` leaves no object; on the node {STATE} with {', '.join(files)}; /run/wirewatch "
        f"holds "
        f"{', '.join(sockets) or 'nothing'}; the condition stays until the documented patch deletes it"
    )
