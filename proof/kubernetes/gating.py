"""The example's gate before a job, as kubectl applies it, on this node."""

import copy
import json
from typing import Any

import yaml

from proof.kubernetes.cluster import Cluster, Document
from proof.kubernetes.image import REPOSITORY, TAG
from tests.chart.documents import KUBERNETES, of_kind, read
from tests.waiting import until

SPACE = "research"
WORK = "echo the job ran"


def gate_opens(cluster: Cluster) -> str:
    cluster.kubectl("create", "namespace", SPACE)
    job = _job("opens")
    cluster.apply("opens", yaml.safe_dump(job))
    pod = until("the job's pod has ended", lambda: _ended(cluster, "opens"), 90)
    assert pod["status"]["phase"] == "Succeeded", pod["status"]
    assert _init(pod)["exitCode"] == 0, pod["status"]
    name = pod["metadata"]["name"]
    assert cluster.kubectl("logs", "--namespace", SPACE, name, "--container", "training").strip() == WORK[5:]
    said = cluster.kubectl("logs", "--namespace", SPACE, name, "--container", "wires").strip()
    assert said.startswith("OK"), said
    return (
        f'gate-init-container.yaml on the healthy node: the init container says "{said[:60]}", the job runs'
    )


def gate_shuts(cluster: Cluster) -> str:
    cluster.apply("shuts", yaml.safe_dump(_job("shuts")))
    pod = until("the job's pod has ended", lambda: _ended(cluster, "shuts"), 90)
    assert pod["status"]["phase"] == "Failed", pod["status"]
    assert _init(pod)["exitCode"] == 2, pod["status"]
    (work,) = pod["status"]["containerStatuses"]
    assert set(work["state"]) == {"waiting"}, work
    assert not work.get("containerID"), work
    name = pod["metadata"]["name"]
    said = cluster.kubectl("logs", "--namespace", SPACE, name, "--container", "wires").strip()
    assert said.startswith("FAILED"), said
    return f'on the faulty node: exit status 2, "{said[:70]}...", the job\'s own container never started'


def _job(name: str) -> Document:
    """The example's first Job with images that are here, tried once."""
    job = copy.deepcopy(of_kind(read(KUBERNETES / "examples" / "gate-init-container.yaml"), "Job")[0])
    job["metadata"]["name"] = name
    # Of Kubernetes 1.26: this API server does not know it, and what it would count is not tried.
    del job["spec"]["podFailurePolicy"]
    job["spec"]["backoffLimit"] = 0
    spec: Any = job["spec"]["template"]["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        container["image"], container["imagePullPolicy"] = f"{REPOSITORY}:{TAG}", "Never"
    spec["containers"][0]["command"] = ["sh", "-c", WORK]
    return job


def _ended(cluster: Cluster, job: str) -> Document | None:
    """Its first pod, once it has."""
    told = cluster.try_kubectl(
        "get", "pods", "--namespace", SPACE, "--selector", f"job-name={job}", "--output", "json"
    )
    pods = json.loads(told.stdout)["items"] if told.returncode == 0 else []
    ended = [pod for pod in pods if pod["status"]["phase"] in {"Succeeded", "Failed"}]
    return ended[0] if ended else None


def _init(pod: Document) -> Document:
    (gate,) = pod["status"]["initContainerStatuses"]
    ended = gate["state"]["terminated"]
    assert isinstance(ended, dict)
    return ended
