"""What the chart's account may do and what not, with the very token that the agent's container holds."""

import json
import ssl
import urllib.error
import urllib.request

from proof.kubernetes.cluster import Cluster, settled
from proof.kubernetes.enclosure import API_ADDRESS
from proof.kubernetes.node import NAME as NODE
from tools.chart.helm import NAME

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path
OTHER = "gpu-node-1"
_NODE, _OWN = "/api/v1/nodes", f"/api/v1/namespaces/{NAME}"
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x"},
    "spec": {"containers": [{"name": "x", "image": "x"}]},
}
_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "x"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAME}],
}
_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
Question = tuple[str, str, str, object]
ALLOWED: tuple[Question, ...] = (
    ("patch its own node's status", "PATCH", f"{_NODE}/{NODE}/status", {}),
    ("patch another node's status", "PATCH", f"{_NODE}/{OTHER}/status", {}),
)
REFUSED: tuple[Question, ...] = (
    ("read its node", "GET", f"{_NODE}/{NODE}", None),
    ("list nodes", "GET", _NODE, None),
    ("cordon its node", "PATCH", f"{_NODE}/{NODE}", {"spec": {"unschedulable": True}}),
    ("cordon another node", "PATCH", f"{_NODE}/{OTHER}", {"spec": {"unschedulable": True}}),
    (
        "taint its node",
        "PATCH",
        f"{_NODE}/{NODE}",
        {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
    ),
    ("replace its node's status", "PUT", f"{_NODE}/{NODE}/status", {}),
    ("delete its node", "DELETE", f"{_NODE}/{NODE}", None),
    ("create a node", "POST", _NODE, {"metadata": {"name": "x"}}),
    ("list pods", "GET", "/api/v1/pods", None),
    ("list pods of its namespace", "GET", f"{_OWN}/pods", None),
    ("create a pod", "POST", f"{_OWN}/pods", _POD),
    ("delete its own pod", "DELETE", f"{_OWN}/pods/{{pod}}", None),
    ("evict its own pod", "POST", f"{_OWN}/pods/{{pod}}/eviction", {}),
    ("exec in its own pod", "POST", f"{_OWN}/pods/{{pod}}/exec?command=id", None),
    ("list secrets", "GET", "/api/v1/secrets", None),
    ("read secrets of its namespace", "GET", f"{_OWN}/secrets", None),
    ("read its own ConfigMap", "GET", f"{_OWN}/configmaps/{NAME}", None),
    ("make a token", "POST", f"{_OWN}/serviceaccounts/{NAME}/token", _REVIEW),
    ("impersonate", "GET", _NODE, "system:admin"),
    (
        "bind itself to cluster-admin",
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        _BINDING,
    ),
    ("change its DaemonSet", "PATCH", f"/apis/apps/v1/namespaces/{NAME}/daemonsets/{NAME}", {"spec": {}}),
    ("write events", "POST", f"{_OWN}/events", {}),
)


def refused(cluster: Cluster) -> str:
    cluster.apply("other", json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}}))
    pod = settled(cluster)
    asking = Asking(cluster, pod.do("agent", "cat", TOKEN), pod.name)
    got = {told: asking.status(method, path, body) for told, method, path, body in REFUSED}
    assert set(got.values()) == {403}, got
    given = {told: asking.status(method, path, body) for told, method, path, body in ALLOWED}
    assert set(given.values()) == {200}, given
    assert asking.status("GET", f"{_NODE}/{NODE}", None, bearer="x") == 401
    cluster.kubectl("delete", "node", OTHER)
    assert cluster.get("node", NODE)["spec"].get("unschedulable") is None
    return (
        f"allowed (200): {', '.join(given)}; refused (403): {', '.join(got)}. "
        "The second is RBAC's limit; the admission policy that confines it needs Kubernetes 1.30: not run "
        "here"
    )


class Asking:
    """The API server as who holds a token meets it."""

    def __init__(self, cluster: Cluster, token: str, pod: str = "") -> None:
        self._token, self._pod = token, pod
        self._tls = ssl.create_default_context(cafile=cluster.plane.ca)

    def status(self, method: str, path: str, body: object, bearer: str = "") -> int:
        """Of the answer; a body that is a name is who is impersonated."""
        headers = {"Authorization": f"Bearer {bearer or self._token}", "Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = "application/strategic-merge-patch+json"
        if isinstance(body, str):
            headers["Impersonate-User"], body = body, None
        data = None if body is None else json.dumps(body).encode()
        url = f"https://{API_ADDRESS}{path.format(pod=self._pod)}"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, context=self._tls) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
