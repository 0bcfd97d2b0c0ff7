"""A pair as a Job of Kubernetes: requests to the API server, and the meaning of its answers. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from wirewatch_fleet.rounds.engine import PairNode, PairState, RoundOrder
from wirewatch_fleet.rounds.plan import LONGEST_SECONDS, PairWork, encode_pair_plan, pair_plan

Document = Mapping[str, Any]
CAMPAIGN, PAIR = "wirewatch.io/campaign", "wirewatch.io/pair"
"""Labels of all objects of a campaign, and of a pair."""
QUEUE = "kueue.x-k8s.io/queue-name"
LEAFS = ("network.topology.nvidia.com/leaf", "topology.kubernetes.io/rack", "nvidia.com/gpu.clique")
GPU, PLAN_VARIABLE, PORT = "nvidia.com/gpu", "WIREWATCH_PAIR_PLAN", 28700
TIDY_SECONDS = 600
"""Seconds until Kubernetes deletes an ended Job, in case nobody else does."""
_HOST = "kubernetes.io/hostname"
_TOLERANT = ("Exists", "Equal")


class TemplateError(Exception):
    """The pod template cannot be used; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class PairJobsOptions:
    """Options for pairs as Jobs.

    `template`: a PodTemplateSpec, whose first container is the pair's. `queue`: of Kueue, "" for none.
    `priority`: a PriorityClass, "" for that of the template. `nodes`: names, empty for all that `selector`
    finds. `leafs`: labels by which nodes share a leaf, the first that a node has. `gpu`: the resource of
    which an idle node must have `gpus` to give; None for all that it has, at least one. `owner`: name and
    uid of the campaign's pod, with which all goes.
    """

    namespace: str
    template: Document
    queue: str = ""
    priority: str = ""
    nodes: tuple[str, ...] = ()
    selector: str = ""
    leafs: tuple[str, ...] = LEAFS
    gpu: str = GPU
    gpus: int | None = None
    port: int = PORT
    owner: tuple[str, str] | None = None

    @property
    def container(self) -> str:
        """Return the name of the container that runs the pair."""
        return str(self.template["spec"]["containers"][0].get("name", ""))


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A Job's progress with its reason, and the pods whose output shows the result."""

    state: PairState
    said: str = ""
    pods: tuple[str, ...] = ()


def checked(template: object) -> Document:
    """Return the template, if it can be used.

    Raises:
        TemplateError: it cannot.
    """
    spec = template.get("spec") if isinstance(template, Mapping) else None
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    if not isinstance(containers, Sequence) or not containers or not isinstance(containers[0], Mapping):
        raise TemplateError("a pod template has spec.containers, the first of which runs the pair")
    missing = next((key for key in ("name", "image") if not containers[0].get(key)), None)
    if missing:
        raise TemplateError(f"a pod template has spec.containers[0].{missing}")
    return template  # type: ignore[return-value]  # spec is one, so it is


def nodes_of(
    documents: Sequence[Document], options: PairJobsOptions, used: Mapping[str, int]
) -> list[PairNode]:
    """Return the requested nodes; `used`: GPUs that pods have, by node."""
    wanted = set(options.nodes)
    return [
        _node(one, options, used)
        for one in documents
        if not wanted or one["metadata"]["name"] in wanted
    ]  # fmt: skip


def used_gpus(pods: Sequence[Document], gpu: str, but: str) -> dict[str, int]:
    """Count the GPUs that unfinished pods request on each node, without pods of the campaign `but`."""
    found: dict[str, int] = {}
    for pod in pods:
        node, phase = pod["spec"].get("nodeName"), pod.get("status", {}).get("phase")
        mine = pod["metadata"].get("labels", {}).get(CAMPAIGN) == but
        if node and phase not in {"Succeeded", "Failed"} and not mine:
            found[node] = found.get(node, 0) + sum(_asked(one, gpu) for one in pod["spec"]["containers"])
    return found


def job(
    order: RoundOrder, place: int, campaign: str, nodes: Mapping[str, PairNode], options: PairJobsOptions
) -> Document:
    """Return the Job of a pair in a round."""
    first, second = order.pairs[place]
    name = name_of(campaign, order, place)
    patience = min(order.patience, LONGEST_SECONDS / 2)
    # Who is there first waits for the other's image, and holds its GPUs meanwhile.
    work = replace(order.work, patience=patience, seconds=min(LONGEST_SECONDS, order.work.seconds + patience))
    plan = encode_pair_plan(pair_plan(first, second, _meet(name, nodes[first], options), work))
    labels = {CAMPAIGN: campaign, PAIR: name}
    queue = {QUEUE: options.queue} if options.queue else {}
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {**labels, **queue}, "ownerReferences": _owners(options.owner)},
        "spec": {
            "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 0,
            "activeDeadlineSeconds": int(order.patience + order.seconds) + 30,
            "ttlSecondsAfterFinished": TIDY_SECONDS,
            # Kueue takes it out of suspension once its quota has room for both pods.
            **({"suspend": True} if queue else {}),
            "template": _template(options, labels, (first, second), plan, work),
        },
    }  # fmt: skip


def service(made: Document, port: int) -> Document:
    """Return the headless Service of a Job, by which its two pods find each other.

    It lists the addresses of both, also before they are ready. A connecting pod tries both addresses, since
    nobody listens at its own, so the placement need not be known. It is deleted with the Job.
    """
    name = made["metadata"]["name"]
    return {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "labels": dict(made["metadata"]["labels"]),
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"],
            }],
        },
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": True, "selector": {PAIR: name},
            "ports": [{"name": "meet", "port": port}],
        },
    }  # fmt: skip


def on_hosts(options: PairJobsOptions) -> bool:
    """Return whether pods use the network of their nodes, whose addresses are known beforehand."""
    return bool(options.template["spec"].get("hostNetwork"))


def name_of(campaign: str, order: RoundOrder, place: int) -> str:
    """Return the name of a pair's Job and Service."""
    return f"{campaign}-r{order.number}-p{place}"


def job_progress(made: Document | None, pods: Sequence[Document]) -> JobProgress:
    """Return a Job's progress by its own status and its pods'."""
    if made is None:
        return JobProgress(PairState.FAILED, "its Job is gone")
    names = tuple(sorted(pod["metadata"]["name"] for pod in pods if _started(pod)))
    ended = {one["type"]: one for one in _conditions(made) if one["status"] == "True"}
    if "Complete" in ended:
        return JobProgress(PairState.DONE, "", names)
    if "Failed" in ended:
        why = "; ".join(dict.fromkeys(filter(None, map(_failure, pods))))
        told = _words(ended["Failed"].get("reason") or "failed", ended["Failed"].get("message"))
        return JobProgress(PairState.FAILED, why or told, names)
    if made["spec"].get("suspend"):
        queue = made["metadata"].get("labels", {}).get(QUEUE)
        return JobProgress(
            PairState.WAITING, f"queue {queue} has not admitted it" if queue else "it is suspended"
        )
    running = [
        pod for pod in pods if pod.get("status", {}).get("phase") in {"Running", "Succeeded", "Failed"}
    ]
    if len(running) == 2:  # noqa: PLR2004
        return JobProgress(PairState.RUNNING, "", names)
    why = "; ".join(dict.fromkeys(filter(None, map(_waiting, pods))))
    return JobProgress(PairState.WAITING, why or _without(pods))


def disrupted(pods: Sequence[Document]) -> str:
    """Return why the cluster ends pods of a pair, such as for a higher priority; "" while it does not."""
    return "; ".join(dict.fromkeys(filter(None, map(_disruption, pods))))


def deleted(pods: Sequence[Document], pair: Sequence[str]) -> str:
    """Return the node whose pod is missing while the other's exists; "" where both or neither exist.

    After the Job's deadline its controller deletes both.
    """
    there = {pod["spec"].get("nodeName") for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    gone = [node for node in pair if node not in there]
    return f"the pod of {gone[0]} was deleted" if len(gone) == 1 else ""


def _node(one: Document, options: PairJobsOptions, used: Mapping[str, int]) -> PairNode:
    labels, status = one["metadata"].get("labels", {}), one.get("status", {})
    name = one["metadata"]["name"]
    count = str(status.get("allocatable", {}).get(options.gpu, "0"))
    gpus = int(count) if count.isdigit() else 0
    leaf = next((labels[label] for label in options.leafs if labels.get(label)), "")
    addresses = {a["type"]: a["address"] for a in reversed(status.get("addresses", []))}
    busy = "; ".join(_in_the_way(one, options, gpus, used.get(name, 0)))
    return PairNode(name, leaf, gpus, busy, addresses.get("InternalIP", name))


def _in_the_way(one: Document, options: PairJobsOptions, gpus: int, used: int) -> Iterator[str]:
    """Yield reasons why a node is not idle."""
    if one["spec"].get("unschedulable"):
        yield "cordoned"
    ready = [c for c in _conditions(one) if c["type"] == "Ready"]
    if not ready or ready[0]["status"] != "True":
        yield "not ready"
    tolerations = options.template["spec"].get("tolerations") or ()
    for taint in one["spec"].get("taints") or ():
        if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(t, taint) for t in tolerations):
            yield f"taint {taint['key']}"
    wanted = max(gpus, 1) if options.gpus is None else options.gpus
    if gpus < wanted:
        yield f"it has {gpus} {options.gpu}"
    elif gpus - used < wanted:
        yield f"pods have {used} of its {gpus} {options.gpu}"


def _tolerates(toleration: Document, taint: Document) -> bool:
    key, operator = toleration.get("key", ""), toleration.get("operator", "Equal")
    if toleration.get("effect") not in {None, "", taint["effect"]} or operator not in _TOLERANT:
        return False
    if operator == "Exists":
        return key in {"", taint["key"]}
    return bool(key == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def _template(
    options: PairJobsOptions, labels: Mapping[str, str], pair: Collection[str], plan: str, work: PairWork
) -> Document:
    """Return the user's template with the settings of a pair's pod."""
    made: dict[str, Any] = deepcopy(dict(options.template))
    meta, spec = made.setdefault("metadata", {}), made["spec"]
    meta["labels"] = {**(meta.get("labels") or {}), **labels}
    spec["restartPolicy"] = "Never"
    spec.setdefault("terminationGracePeriodSeconds", 5)
    if options.priority:
        spec["priorityClassName"] = options.priority
    spec["affinity"] = _affinity(labels[PAIR], pair)
    container = spec["containers"][0]
    if not container.get("command") and not container.get("args"):
        container["args"] = ["fleet", "peer", "--as=$(NODE_NAME)", "--owner=pod:$(POD_UID)"]
    ours = [
        {"name": PLAN_VARIABLE, "value": plan}, _downward("NODE_NAME", "spec.nodeName"),
        _downward("POD_UID", "metadata.uid"),
    ]  # fmt: skip
    names = {one["name"] for one in ours}
    container["env"] = [*ours, *(one for one in container.get("env") or () if one["name"] not in names)]
    if work.gpus:
        resources = container.setdefault("resources", {})
        for kind in ("requests", "limits"):
            resources[kind] = {**(resources.get(kind) or {}), options.gpu: str(work.gpus)}
    return made


def _affinity(name: str, pair: Collection[str]) -> Document:
    """Return rules for one pod of the pair on each of its nodes; the scheduler chooses and checks room."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in pair]
    apart = {"labelSelector": {"matchLabels": {PAIR: name}}, "topologyKey": _HOST}
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
    }


def _downward(name: str, path: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _meet(name: str, first: PairNode, options: PairJobsOptions) -> str:
    """Return HOST:PORT where the first node of a pair listens."""
    if not on_hosts(options):
        return f"{name}.{options.namespace}.svc:{options.port}"
    host = first.address
    return f"[{host}]:{options.port}" if ":" in host else f"{host}:{options.port}"


def _owners(owner: tuple[str, str] | None) -> list[Document]:
    return [] if owner is None else [{"apiVersion": "v1", "kind": "Pod", "name": owner[0], "uid": owner[1]}]


def _asked(container: Document, gpu: str) -> int:
    count = str((container.get("resources") or {}).get("limits", {}).get(gpu, "0"))
    return int(count) if count.isdigit() else 0


def _conditions(one: Document) -> Sequence[Document]:
    return one.get("status", {}).get("conditions") or ()


def _states(pod: Document) -> Sequence[Document]:
    """Return the state of its containers, by the kubelet."""
    return [one.get("state", {}) for one in pod.get("status", {}).get("containerStatuses") or ()]


def _started(pod: Document) -> bool:
    """Return whether it can have printed anything."""
    return any("running" in one or "terminated" in one for one in _states(pod))


def _failure(pod: Document) -> str:
    """Return why a pod failed, by the API server."""
    if why := _disruption(pod):
        return why
    for state in _states(pod):
        ended = state.get("terminated", {})
        if ended.get("exitCode"):
            return _words(_place(pod), ended.get("reason"), f"exit code {ended['exitCode']}")
    return ""


def _disruption(pod: Document) -> str:
    """Return why the cluster ends a pod; "" while it does not."""
    status = pod.get("status", {})
    disrupted = next((c for c in _conditions(pod) if c["type"] == "DisruptionTarget"), None)
    if disrupted is not None:
        return _words(_place(pod), disrupted.get("reason"), disrupted.get("message"))
    return _words(_place(pod), status["reason"], status.get("message")) if status.get("reason") else ""


def _place(pod: Document) -> str:
    return str(pod["spec"].get("nodeName") or pod["metadata"]["name"])


def _words(*some: str | None) -> str:
    return ": ".join(filter(None, some))


def _waiting(pod: Document) -> str:
    """Return why a pod waits, by the API server."""
    for one in _conditions(pod):
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return str(one.get("message") or one.get("reason") or "not scheduled")
    for state in _states(pod):
        if waits := state.get("waiting"):
            place = pod["spec"].get("nodeName", "")
            return f"{place}: {waits.get('reason', '')} {waits.get('message', '')}".strip()
    return ""


def _without(pods: Sequence[Document]) -> str:
    return (
        "its pods start" if pods else "it has no pods yet: a quota, or an admission policy, may refuse them"
    )
