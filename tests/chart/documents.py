"""Rendered manifests as documents."""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tools.yamlfile import load_all_yaml

Document = dict[str, Any]
TOML = "wirewatch.toml"
ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
MANIFESTS = sorted(KUBERNETES.glob("*.yaml"))
EXAMPLES = sorted((KUBERNETES / "examples").glob("*.yaml"))


def documents(text: str) -> tuple[Document, ...]:
    """The documents of a text, empty ones left out; raises ValueError where a key is there twice."""
    for node in yaml.compose_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        _keys_once(node)
    return tuple(document for document in load_all_yaml(text) if document)


def _keys_once(node: Any) -> None:
    """PyYAML takes the last of two; Kubernetes' own reader refuses both."""
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise ValueError(f"twice: {twice}, line {node.start_mark.line + 1}")
        for _, value in node.value:
            _keys_once(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _keys_once(value)


def read(path: Path) -> tuple[Document, ...]:
    return documents(path.read_text("utf-8"))


def of_kind(given: Sequence[Document], kind: str) -> list[Document]:
    return [document for document in given if document["kind"] == kind]


def the(given: Sequence[Document], kind: str) -> Document:
    """The only one of its kind."""
    (found,) = of_kind(given, kind)
    return found


POOL = "wirewatch.io/pool"
EACH_HAS = ("DaemonSet", "ConfigMap", "Service")


def by_pool(given: Sequence[Document]) -> Iterator[list[Document]]:
    """The documents as each DaemonSet has them: its own, and what there is once."""
    for daemonset in of_kind(given, "DaemonSet"):
        pool = daemonset["metadata"]["labels"].get(POOL)
        yield [
            one for one in given if one["kind"] not in EACH_HAS or one["metadata"]["labels"].get(POOL) == pool
        ]


APART = ("-controller", "-fleet-probe")
"""How names end of what there is once in a cluster, and is no agent's."""


def ours(given: Sequence[Document]) -> list[Document]:
    """Without what there is once in a cluster, and what somebody added to the pods."""
    made = copy.deepcopy([one for one in given if not one["metadata"]["name"].endswith(APART)])
    for daemonset in of_kind(made, "DaemonSet"):
        pod = daemonset["spec"]["template"]["spec"]
        for kind in ("initContainers", "containers"):
            pod[kind] = [one for one in pod.get(kind, []) if one["name"] in CONTAINERS]
        pod["volumes"] = [one for one in pod["volumes"] if one["name"] in VOLUMES]
        for one in containers(pod):
            one["volumeMounts"] = [mount for mount in one["volumeMounts"] if mount["name"] in VOLUMES]
    return made


CONTAINERS = {"agent", "prober", "folders", "mount", "tap"}
VOLUMES = {
    "config", "run", "state", "jobs", "tap", "sys-bus", "sys-class", "sys-devices", "web", "token", "tmp",
    "shm", "pod-resources", "pod-logs", "cgroups", "nccl-conf", "all-gpus", "driver",
}  # fmt: skip


def pod_of(given: Sequence[Document]) -> Document:
    """The pod's specification in the DaemonSet."""
    spec: Document = the(given, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def containers(pod: Document) -> Iterator[Document]:
    """All, those before it starts too."""
    yield from pod.get("initContainers", [])
    yield from pod["containers"]


def container(pod: Document, name: str) -> Document:
    (found,) = (one for one in containers(pod) if one["name"] == name)
    return found


def configuration(given: Sequence[Document]) -> str:
    """The agents' wirewatch.toml."""
    (found,) = (
        one["data"][TOML]
        for one in of_kind(given, "ConfigMap")
        if TOML in one["data"] and not one["metadata"]["name"].endswith(APART)
    )
    return str(found)
