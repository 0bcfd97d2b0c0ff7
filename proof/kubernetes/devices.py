"""The kubelet's word on who was given which GPUs, as the prober's container reads it."""

import json
from collections.abc import Mapping

import yaml

from proof.kubernetes.cluster import Cluster, settled
from proof.kubernetes.image import REPOSITORY, TAG
from proof.kubernetes.node import NAME as NODE
from proof.kubernetes.plugin import GPUS, RESOURCE, Plugin
from tests.waiting import until

ASK = """
import json
from wirewatch.hw.kubelet import SystemKubelet
pods = SystemKubelet().pods()
assert isinstance(pods, tuple), pods
print(json.dumps([(pod.namespace, pod.name, [name for _, name in pod.devices]) for pod in pods]))
"""
HOLDER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "holder", "namespace": "default"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "holder",
                "image": f"{REPOSITORY}:{TAG}",
                "imagePullPolicy": "Never",
                "command": ["sleep", "3600"],
                "resources": {"limits": {RESOURCE: len(GPUS)}},
            }
        ],
    },
}


ABSENT = f"{REPOSITORY}:no-such-image"


def _waiting(holder: Mapping[str, object]) -> str:
    """A pod that was given its GPUs and never begins: its image is nowhere."""
    text: str = yaml.safe_dump(dict(holder))
    return text.replace("name: holder", "name: waiting").replace(f"{REPOSITORY}:{TAG}", ABSENT)


def gpus_given(cluster: Cluster) -> str:
    """The prober itself plays a recording; this is its port to the kubelet, in its container, as it is."""
    plugin = Plugin()
    cluster.ending.callback(plugin.stop)
    plugin.start()

    def offered() -> bool | None:
        return cluster.get("node", NODE)["status"]["allocatable"].get(RESOURCE) == str(len(GPUS)) or None

    until("the node has GPUs to give", offered, 60)
    pod = settled(cluster)
    assert json.loads(pod.do("prober", "python3", "-c", ASK)) == []
    cluster.apply("waiting", _waiting(HOLDER))
    given = until(
        "the kubelet says who waits", lambda: json.loads(pod.do("prober", "python3", "-c", ASK)), 60
    )
    begun = cluster.get("pod", "waiting")["status"].get("containerStatuses", [])
    assert [name for _, name, _ in given] == ["waiting"], given
    assert all("waiting" in one["state"] for one in begun), begun
    cluster.kubectl("delete", "pod", "waiting", "--grace-period=0", "--force")
    until("nobody holds GPUs", lambda: pod.do("prober", "python3", "-c", ASK).strip() == "[]" or None, 60)
    cluster.apply("holder", yaml.safe_dump(HOLDER))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/holder", "--timeout=60s")
    ((space, name, devices),) = json.loads(pod.do("prober", "python3", "-c", ASK))
    assert (space, name, sorted(devices)) == ("default", "holder", sorted(GPUS)), (space, name, devices)
    refused = pod.attempt("agent", "test", "-e", "/var/lib/kubelet/pod-resources")
    assert refused.returncode == 1
    cluster.kubectl("delete", "pod", "holder")
    until("nobody holds GPUs", lambda: pod.do("prober", "python3", "-c", ASK).strip() == "[]" or None, 60)
    return (
        f"a device plugin gives a pod {len(GPUS)} GPUs: the prober's container reads pod and UUIDs at the "
        "kubelet's pod-resources socket, already of a pod that has no process yet, and that they are free "
        "again when it is gone; the agent has none"
    )
