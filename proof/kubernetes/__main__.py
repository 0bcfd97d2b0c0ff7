"""`make e2e-kubernetes`: the chart on a real kubelet; writes proof/kubernetes/kubernetes.md.

As root. Programs are built and images made first; the rest runs in namespaces of its own (enclosure.py).
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import helm_python

from proof.containers import run
from proof.kubernetes.cluster import Cluster
from proof.kubernetes.components import cache, programs
from proof.kubernetes.condition import healthy, turns_false
from proof.kubernetes.devices import gpus_given
from proof.kubernetes.enclosure import enclosed, home, settle_in
from proof.kubernetes.gating import gate_opens, gate_shuts
from proof.kubernetes.image import archives
from proof.kubernetes.installing import answers, installed, node_ready, probed, unprivileged
from proof.kubernetes.keeping import repaired, rolled_back, uninstalled
from proof.kubernetes.losing import api_server_away
from proof.kubernetes.refusing import refused
from proof.kubernetes.scraping import scraped
from tools.prose import formatted

PAGE = Path(__file__).with_name("kubernetes.md")
NEEDED = (
    "etcd", "containerd", "ctr", "runc", "kubectl", "prometheus", "buildah", "mmdebstrap", "unshare", "ip",
    "openssl", "iptables",
)  # fmt: skip
STEPS: tuple[Callable[[Cluster], str], ...] = (
    node_ready, installed, unprivileged, gpus_given, answers, scraped, probed, healthy, refused,
    gate_opens, turns_false, gate_shuts, rolled_back, repaired, api_server_away, uninstalled,
)  # fmt: skip


def main(words: Sequence[str]) -> int:
    # What is cleaned up at the end is cleaned up then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if "--inside" in words:
        return inside()
    if "--images" in words:
        archives(images())
        return 0
    if problem := wrong():
        print(f"e2e-kubernetes: {problem}", file=sys.stderr)
        return 78
    began = time.monotonic()
    programs()
    built = time.monotonic()
    print(f"programs: {built - began:.0f} s", flush=True)
    # What buildah mounts ends with it.
    subprocess.run(["unshare", "--mount", sys.executable, "-m", "proof.kubernetes", "--images"], check=True)
    print(f"images: {time.monotonic() - built:.0f} s", flush=True)
    return enclosed("proof.kubernetes")


def wrong() -> str:
    """What is missing, in one line; empty for nothing."""
    if os.geteuid() != 0:
        return "needs root, for namespaces, mounts and control groups"
    missing = [program for program in NEEDED if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)} (proof/kubernetes/packages)" if missing else ""


def images() -> Path:
    return cache().parent / "images"


def inside() -> int:
    """The first process of the namespaces: whatever it leaves ends with it."""
    settle_in()
    cluster = Cluster(home() / "cluster", programs())
    began = time.monotonic()
    try:
        cluster.plane.up()
        plane = time.monotonic() - began
        print(f"control plane: {plane:.1f} s", flush=True)
        cluster.node.up(cluster.plane.kubeconfig, *sorted(images().glob("*.tar")))
        rows = [f"| control plane | ready after {plane:.1f} s |", *(_row(step, cluster) for step in STEPS)]
        about = versions(cluster)
    except BaseException:
        print_state(cluster)
        raise
    finally:
        cluster.ending.close()
        cluster.programs.stop_all()
    PAGE.write_text(formatted(page(rows, about, time.monotonic() - began)), "utf-8")
    return 0


def _row(step: Callable[[Cluster], str], cluster: Cluster) -> str:
    began = time.monotonic()
    told = step(cluster)
    print(f"{step.__name__} ({time.monotonic() - began:.0f} s): {told}", flush=True)
    return f"| {step.__name__.replace('_', ' ')} | {told.replace('|', '/')} |"


def print_state(cluster: Cluster) -> None:
    """Print what a person needs to find out why it failed."""
    for log in cluster.programs.logs():
        print(f"--- {log.stem}\n{cluster.programs.tail(log.stem)}", file=sys.stderr)
    for words in (
        ("get", "pods,events", "--all-namespaces"),
        ("describe", "pods", "--namespace", "wirewatch"),
        ("logs", "--namespace", "wirewatch", "daemonset/wirewatch", "--container", "agent", "--tail=40"),
        ("logs", "--namespace", "wirewatch", "daemonset/wirewatch", "--container", "prober", "--tail=40"),
    ):
        done = cluster.try_kubectl(*words)
        print(f"--- kubectl {' '.join(words)}\n{done.stdout}{done.stderr}", file=sys.stderr)


def versions(cluster: Cluster) -> str:
    info = cluster.get("node", "gpu-node-0")["status"]["nodeInfo"]
    return ", ".join(
        (
            f"Kubernetes {info['kubeletVersion']} built from Debian's source package",
            run("etcd", "--version").splitlines()[0],
            info["containerRuntimeVersion"],
            run("runc", "--version").splitlines()[0],
            f"Helm's engine {helm_python.helm_sdk_version()}",
            f"Linux {platform.release().partition('-')[0]}",
        )
    )


def page(rows: Sequence[str], about: str, seconds: float) -> str:
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"""# The chart on a real kubelet

Last result of `make e2e-kubernetes`, {day}: all steps passed. {about}.

This run: {seconds:.0f} s.

{ABOUT}
| step | what was seen |
|---|---|
{chr(10).join(rows)}
"""


ABOUT = """\
API server, controllers, scheduler and kubelet are Debian's source package, built here; etcd, containerd,
runc, the bridge of the pods and Prometheus are Debian's. The image is the Dockerfile's target `agent`; in the
place of the driver, which is not there, its entry point adds the recording demo-dgx-h200 for agent and prober
and the name of the socket. The chart's values are its defaults except for the image's name, `gpu.via=none`,
`gate.hostPath`, `cluster`, the ServiceMonitor, the PrometheusRule, and shorter waits in `config`;
`condition_failed_after` is the default until the API server goes away.

Not shown here: GPUs and NCCL ([hardware](../hardware/README.md)), several nodes, Kubernetes above 1.20,
so neither Pod Security levels nor the ValidatingAdmissionPolicy, which tests hold against its schema and
evaluate with an implementation of CEL; Prometheus' operator and its discovery, whose parts (from a
ServiceMonitor to configuration, from Endpoints to labelled targets) are done by the test; `wirewatch check
--owner`, for which GPUs of a real driver must be held.
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
