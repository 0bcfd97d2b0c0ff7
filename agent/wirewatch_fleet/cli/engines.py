"""The engines that `wirewatch fleet probe` can run rounds on, by name; each takes options of its own."""

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirewatch.cli.options import ExistingFile
from wirewatch.core.types import NotText, Unusable, utf8

if TYPE_CHECKING:
    from wirewatch_fleet.rounds.engine import RoundEngine

Command = Callable[..., None]
GPU = "nvidia.com/gpu"
CREDENTIALS = "/var/run/secrets/kubernetes.io/serviceaccount"


def slurm_options(command: Command) -> Command:
    """Add what is passed on to Slurm."""
    for name in ("qos", "account", "reservation", "partition"):
        text = f"With --slurm: the {name} of its jobs."
        command = click.option(f"--{name}", default="", metavar="NAME", help=text)(command)
    return click.option(
        "--gres", default="", metavar="GRES", help="With --slurm: what each node of a job holds: gpu:8."
    )(command)


def slurm_engine(nodes: Sequence[str], chosen: Mapping[str, Any]) -> "RoundEngine":
    """Slurm's; inside an allocation, unless a partition or reservation is named, pairs are steps of it."""
    from wirewatch_fleet.rounds.slurm import SlurmOptions, SlurmRounds

    inside = "" if chosen["partition"] or chosen["reservation"] else os.environ.get("SLURM_JOB_ID", "")
    return SlurmRounds(
        SlurmOptions(
            partition=chosen["partition"], reservation=chosen["reservation"], account=chosen["account"],
            qos=chosen["qos"], gres=chosen["gres"], nodes=tuple(nodes), job=inside,
            command=_command(chosen["command"]), port=chosen["port"],
        )
    )  # fmt: skip


def _command(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise click.UsageError(f"--command {text}: {error}") from error
    if not words:
        raise click.UsageError("--command: wirewatch on the nodes is needed")
    return words


def kubernetes_options(command: Command) -> Command:
    """Add what says how pairs are Jobs of Kubernetes."""
    texts = {
        "leaf-label": "a label by which nodes share a leaf; repeatable, the first that a node has.",
        "gpu-resource": "the resource by which pods get GPUs.",
        "priority-class": "the PriorityClass of its pods.",
        "queue": "Kueue's local queue, which admits its Jobs.",
        "selector": "labels of the nodes, as kubectl has them.",
        "namespace": "the namespace of its Jobs; default: that of this pod.",
    }
    for name, text in texts.items():
        many, said = name == "leaf-label", f"With --kubernetes: {text}"
        kind = {"multiple": True} if many else {"default": GPU if name == "gpu-resource" else ""}
        command = click.option(f"--{name}", metavar="NAME", help=said, **kind)(command)
    return click.option(
        "--pod-template", type=ExistingFile(), metavar="FILE.json",
        help="With --kubernetes: the pod of a pair as JSON, metadata and spec; its first container runs it.",
    )(command)  # fmt: skip


def kubernetes_engine(nodes: Sequence[str], chosen: Mapping[str, Any]) -> "RoundEngine":
    """Kubernetes': with the ServiceAccount of the pod that we are in, else by kubectl's configuration.

    Raises:
        UsageError: the template or the namespace is missing, or cannot be used.
        Unusable: a library is not installed.
    """
    try:
        from wirewatch_fleet.kubeclient import client_for
        from wirewatch_fleet.rounds.kubernetes import KubernetesRounds
    except ModuleNotFoundError as error:
        raise Unusable(f"{error.name} is not installed: pip install 'wirewatch[controller]'") from error
    from wirewatch.kubernetes.apiserver import api_server
    from wirewatch_fleet.rounds.jobs import LEAFS, JobsOptions

    folder = CREDENTIALS
    inside = "KUBERNETES_SERVICE_HOST" in os.environ and Path(folder, "token").exists()
    pod = os.environ.get("POD_NAME", ""), os.environ.get("POD_UID", "")
    options = JobsOptions(
        chosen["namespace"] or _namespace(Path(folder)), _template(chosen["pod_template"]),
        queue=chosen["queue"], priority=chosen["priority_class"], nodes=_names(nodes),
        selector=chosen["selector"], leafs=chosen["leaf_label"] or LEAFS, gpu=chosen["gpu_resource"],
        gpus=0 if chosen["engine"] == "gloo" else chosen["gpus"], port=chosen["port"],
        owner=pod if inside and all(pod) else None,
    )  # fmt: skip

    where = api_server("", folder, os.environ, "fleet probe") if inside else None
    return KubernetesRounds(options, partial(client_for, where))


def _template(file: Path | None) -> Mapping[str, Any]:
    from wirewatch_fleet.rounds.jobs import TemplateError, checked

    if file is None:
        raise click.UsageError("--kubernetes takes --pod-template: which image runs the pairs, and how")
    try:
        return checked(json.loads(utf8(file.read_bytes())))
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror or error}") from error
    except NotText as error:
        raise click.UsageError(f"{file}: {error}") from error
    except (ValueError, RecursionError, TemplateError) as error:
        raise click.UsageError(f"{file}: not a pod template: {error}") from error


def _namespace(folder: Path) -> str:
    try:
        return (folder / "namespace").read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise click.UsageError("--namespace: outside of a pod, say where its Jobs go") from error


def _names(nodes: Sequence[str]) -> tuple[str, ...]:
    from wirewatch.core.hostlist import HostlistError, expanded

    try:
        return tuple(dict.fromkeys(name for one in nodes for name in expanded(one)))
    except HostlistError as error:
        raise click.UsageError(f"--nodes: {error}") from error


ENGINES: Mapping[str, Callable[[Sequence[str], Mapping[str, Any]], "RoundEngine"]] = {
    "slurm": slurm_engine,
    "kubernetes": kubernetes_engine,
}
"""Each makes an engine of the nodes that were named, if any, and of all options of the command."""
