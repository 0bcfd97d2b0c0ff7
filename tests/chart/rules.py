"""What must hold of whatever the chart renders, as rules that give what is wrong; each takes the documents.

`PRIVILEGED` is what `agent.privileged` breaks, `OPEN` what `networkPolicy` may break, and nothing else does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tests.chart.documents import CONTAINERS, Document, configuration, containers, of_kind, pod_of, the
from tests.chart.policies import selects

Rule = Callable[[Sequence[Document]], Iterator[str]]
WRITABLE = {"run", "state", "tmp", "shm", "jobs", "tap"}
"""Volumes that a container writes to."""
HOST = {
    "/sys/bus", "/sys/class", "/sys/devices", "/sys/fs/cgroup", "/var/log/pods", "/dev/null",
    "/var/lib/kubelet/pod-resources", "/var/lib/wirewatch", "/run/wirewatch", "/etc/nccl.conf",
    "/run/wirewatch-jobs", "/opt/wirewatch/lib", "/home/kubernetes/bin/nvidia",
}  # fmt: skip
"""Paths of the host that may be mounted."""
MOUNTING = "mount"
"""The container that gives the folder of rings its size, and has all privileges for that."""
LEAST = [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]


def no_privileges(given: Sequence[Document]) -> Iterator[str]:
    for one in containers(pod_of(given)):
        context = one.get("securityContext", {})
        if one["name"] == MOUNTING:
            continue  # which what_mounts_sees_rings_alone holds
        if context.get("privileged"):
            yield f"{one['name']}: privileged"
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{one['name']}: may gain privileges"
        if context.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{one['name']}: has capabilities"


def agent_is_not_root(given: Sequence[Document]) -> Iterator[str]:
    pod = pod_of(given)
    for one in containers(pod):
        context = one.get("securityContext", {})
        if one["name"] == "agent" and not (context.get("runAsNonRoot") and context.get("runAsUser")):
            yield "agent: may be root"
        if one["name"] not in CONTAINERS:
            yield f"{one['name']}: unknown"


def roots_are_read_only(given: Sequence[Document]) -> Iterator[str]:
    for one in containers(pod_of(given)):
        if not one.get("securityContext", {}).get("readOnlyRootFilesystem"):
            yield f"{one['name']}: writable root"


def what_jobs_load_is_roots(given: Sequence[Document]) -> Iterator[str]:
    """The agent, which everybody's rings reach, never gets at the library that every job runs."""
    for one in containers(pod_of(given)):
        if any(mount["name"] == "tap" for mount in one.get("volumeMounts", [])) and one["name"] != "tap":
            yield f"{one['name']}: could change what jobs load"


def what_mounts_sees_rings_alone(given: Sequence[Document]) -> Iterator[str]:
    """Mounts reach the node from one container alone, which ends before the others start."""
    pod = pod_of(given)
    for one in containers(pod):
        for mount in one.get("volumeMounts", []):
            if one["name"] == MOUNTING and mount["name"] != "jobs":
                yield f"{one['name']}: gets at {mount['name']}"
            if one["name"] != MOUNTING and "mountPropagation" in mount:
                yield f"{one['name']}: mounts for the node"
    if any(one["name"] == MOUNTING for one in pod["containers"]):
        yield f"{MOUNTING}: goes on"


def mounts_are_read_only(given: Sequence[Document]) -> Iterator[str]:
    pod = pod_of(given)
    volumes = [volume["name"] for volume in pod["volumes"]]
    mounted = set()
    for one in containers(pod):
        for mount in one.get("volumeMounts", []):
            mounted.add(mount["name"])
            if mount["name"] not in volumes:
                yield f"{one['name']}: no volume {mount['name']}"
            if not mount.get("readOnly") and mount["name"] not in WRITABLE:
                yield f"{one['name']}: writes to {mount['name']}"
    yield from (f"volume {name} is not mounted" for name in volumes if name not in mounted)
    yield from (f"volume {name} twice" for name in set(volumes) if volumes.count(name) > 1)


def little_of_the_host(given: Sequence[Document]) -> Iterator[str]:
    pod = pod_of(given)
    for volume in pod["volumes"]:
        path = volume.get("hostPath", {}).get("path")
        if path is not None and path not in HOST:
            yield f"{volume['name']}: the host's {path}"
    probes = any(one["name"] == "prober" for one in pod["containers"])
    if pod.get("hostPID", False) is not probes:
        yield "hostPID without need, or a prober without it"
    yield from (key for key in ("hostNetwork", "hostIPC", "shareProcessNamespace") if pod.get(key))


def no_gpu_is_taken(given: Sequence[Document]) -> Iterator[str]:
    for one in containers(pod_of(given)):
        resources = one.get("resources", {})
        for amounts in (resources.get("requests", {}), resources.get("limits", {})):
            yield from (
                f"{one['name']}: {name}"
                for name in amounts
                if name not in {"cpu", "memory", "ephemeral-storage"}
            )
        if "memory" not in resources.get("limits", {}):
            yield f"{one['name']}: no memory limit"
        if "cpu" in resources.get("limits", {}):
            yield f"{one['name']}: throttled"


def images_are_fixed(given: Sequence[Document]) -> Iterator[str]:
    images = {one["image"] for one in containers(pod_of(given))}
    if len(images) != 1:
        yield f"not one image: {images}"
    for image in images:
        _, _, tag = image.rpartition("/")[2].partition(":")
        if not tag or tag == "latest":
            yield f"{image}: moves"


def selectors_match(given: Sequence[Document]) -> Iterator[str]:
    daemonset = the(given, "DaemonSet")
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    selectors: dict[str, Mapping[str, Any]] = {"DaemonSet": daemonset["spec"]["selector"]}
    for service in of_kind(given, "Service"):
        selectors["Service"] = {"matchLabels": service["spec"]["selector"]}
    for kind, key in (("PodMonitor", "selector"), ("NetworkPolicy", "podSelector")):
        for one in of_kind(given, kind):
            selectors[kind] = one["spec"][key]
    for name, selector in selectors.items():
        if not selector.get("matchLabels") or not selects(selector, labels):
            yield f"{name}: selects no pod"
    for monitor in of_kind(given, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        if not wanted or not wanted.items() <= the(given, "Service")["metadata"]["labels"].items():
            yield "ServiceMonitor: selects no Service"


def agents_are_scraped_once(given: Sequence[Document]) -> Iterator[str]:
    here = the(given, "DaemonSet")["metadata"]["namespace"]
    monitors = [one for kind in ("PodMonitor", "ServiceMonitor") for one in of_kind(given, kind)]
    if len(monitors) > 1:
        yield "two monitors"
    for one in monitors:
        searched = one["spec"].get("namespaceSelector", {"matchNames": [one["metadata"]["namespace"]]})
        if searched != {"matchNames": [here]}:
            yield f"{one['kind']}: looks elsewhere"


def least_rights(given: Sequence[Document]) -> Iterator[str]:
    pod, roles = pod_of(given), of_kind(given, "ClusterRole")
    yield from (f"{role['metadata']['name']}: too much" for role in roles if role["rules"] != LEAST)
    told = "node_condition" in configuration(given)
    if bool(roles) is not told or len(roles) != len(of_kind(given, "ClusterRoleBinding")):
        yield "rights without need, or none where they are needed"
    for binding in of_kind(given, "ClusterRoleBinding"):
        if binding["roleRef"]["name"] not in {role["metadata"]["name"] for role in roles}:
            yield "binding: another role"
        if binding["subjects"][0]["name"] != pod["serviceAccountName"]:
            yield "binding: another account"
    if pod.get("automountServiceAccountToken") is not False:
        yield "a token for every container"
    holders = [one["name"] for one in containers(pod) if _has_token(one)]
    if holders != (["agent"] if told else []):
        yield f"token: {holders}"


def probes_ask_no_verdict(given: Sequence[Document]) -> Iterator[str]:
    """A sick GPU restarts no pod."""
    for one in pod_of(given)["containers"]:
        for kind, path in _PROBES.items():
            asked = one.get(kind, {}).get("httpGet", {}).get("path")
            if asked != (path if one["name"] == "agent" else None):
                yield f"{one['name']}: {kind} asks {asked}"
        if "livenessProbe" not in one:
            yield f"{one['name']}: nobody asks whether it lives"


_PROBES = {"livenessProbe": "/livez", "readinessProbe": "/readyz", "startupProbe": None}


def _has_token(one: Mapping[str, Any]) -> bool:
    return any("serviceaccount" in mount["mountPath"] for mount in one.get("volumeMounts", []))


def port_is_for_scrapers(given: Sequence[Document]) -> Iterator[str]:
    policies = of_kind(given, "NetworkPolicy")
    if not policies:
        yield "no NetworkPolicy: every pod may connect"
    for policy in policies:
        spec = policy["spec"]
        if set(spec["policyTypes"]) != {"Ingress", "Egress"}:
            yield "a direction without a policy"
        if any(not rule.get("from") for rule in spec["ingress"]):
            yield "every pod may connect"
        if any(not rule.get("ports") for rule in (*spec["ingress"], *spec["egress"])):
            yield "every port"


PRIVILEGED: tuple[Rule, ...] = (no_privileges, agent_is_not_root)
OPEN: tuple[Rule, ...] = (port_is_for_scrapers,)


def ports_name_their_protocol(given: Sequence[Document]) -> Iterator[str]:
    """Ports are merged by it: API servers up to 1.20 refuse a server-side apply, Helm 4's way, without."""
    for one in containers(pod_of(given)):
        yield from (
            f"{one['name']}: {port['name']}" for port in one.get("ports", ()) if "protocol" not in port
        )
    for service in of_kind(given, "Service"):
        yield from (f"Service: {port['name']}" for port in service["spec"]["ports"] if "protocol" not in port)


RULES: tuple[Rule, ...] = (
    *PRIVILEGED, *OPEN, roots_are_read_only, what_jobs_load_is_roots, what_mounts_sees_rings_alone,
    mounts_are_read_only,
    little_of_the_host, no_gpu_is_taken, images_are_fixed, selectors_match,
    agents_are_scraped_once, least_rights,
    probes_ask_no_verdict, ports_name_their_protocol,
)  # fmt: skip


def broken(given: Sequence[Document], rules: Sequence[Rule] = RULES) -> list[str]:
    """All that is wrong."""
    return [f"{rule.__name__}: {told}" for rule in rules for told in rule(given)]
