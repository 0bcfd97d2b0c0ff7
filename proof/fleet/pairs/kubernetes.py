"""Rounds of pairs on a real API server, over wires that are slowed: is each fault named, and what survives?

    make pairs-kubernetes

etcd, API server, controllers and scheduler; eight nodes in network namespaces, whose kubelets run pods
as processes (kubelet.py); `wirewatch fleet probe --kubernetes` with engine gloo and the account of the
chart. Root, some twenty minutes on two cores.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from proof.containers import run
from proof.fleet.controller.fleet import STRATEGIC, Fleet
from proof.fleet.pairs.faults import (
    LEAFS,
    NODES,
    RATE,
    WIRES,
    WORK,
    Outcome,
    Slowed,
    judged,
    printed,
    shortened,
    slowed,
    table,
)
from proof.fleet.pairs.kubelet import PORT
from proof.kubernetes.components import programs
from proof.kubernetes.plane import Endpoints, Plane
from proof.kubernetes.programs import Programs
from tests.system.cluster import tool
from tests.system.namespaces import Wires
from tests.waiting import until
from tools.chart.helm import NAME, rendered
from tools.prose import formatted
from wirewatch.core.words import stamp
from wirewatch_fleet.pairs.document import ROUNDS, RoundsDocument
from wirewatch_fleet.rounds.jobs import PAIR

PAGE = Path("proof/fleet/pairs/kubernetes.md")
WIREWATCH = Path(".venv-torch/bin/wirewatch").absolute()
ACCOUNT = f"{NAME}-fleet-probe"
JOBS = f"/apis/batch/v1/namespaces/{NAME}/jobs"
PODS = f"/api/v1/namespaces/{NAME}/pods"
EVENTS = f"/api/v1/namespaces/{NAME}/events"
ENDED = ("Succeeded", "Failed")
TEMPLATE = {
    "spec": {
        "hostNetwork": True,
        "containers": [
            {"name": "pair", "image": "processes", "resources": {"requests": {"cpu": "3"}}},
        ],
    }
}
"""Of a node's four processors a pair asks for three: a pod that asks for as many has to take its place."""
MEASURES = 1 << 20
"""Bytes that a node has sent once its pair measures."""
USER = {
    "metadata": {"name": "train"},
    "spec": {
        "nodeName": "", "restartPolicy": "Never", "nodeSelector": {"kubernetes.io/hostname": "n2"},
        "containers": [{
            "name": "train", "image": "processes", "command": ["sleep", "5"],
            "resources": {"requests": {"cpu": "3"}},
        }],
    },
}  # fmt: skip
_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: e2e, cluster: {{server: "https://{address}", certificate-authority: "{ca}"}}}}]
users: [{{name: probe, user: {{token: "{token}"}}}}]
contexts: [{{name: e2e, context: {{cluster: e2e, user: probe}}}}]
current-context: e2e
"""


class Cluster:
    """A control plane beside the wires, and a kubelet of processes in each node's namespace."""

    def __init__(self, folder: Path, wires: Wires) -> None:
        self.folder, self.wires = folder, wires
        self.running = Programs(folder / "logs")
        where = Endpoints(wires.controller, wires.controller, 16443, (22379, 22380))
        # Nobody renews the heartbeats of these nodes.
        plane = Plane(folder / "plane", programs(), self.running, where, ("--node-monitor-grace-period=24h",))
        self.fleet = Fleet(folder, plane, self.running)
        self.ask = self.fleet.ask

    def up(self) -> None:
        self.fleet.plane.up()
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAME}})
        self._account()
        self._credentials()
        for node in NODES:
            self._node(node)
            self.start(node)
        until("all nodes are in use", lambda: not self.fleet.out(), 240)

    def _account(self) -> None:
        """What the chart has beside its CronJob, whose version is newer than this API server."""
        values = {"fleetProbe": {"enabled": True, "podTemplate": TEMPLATE}}
        made = yaml.safe_load_all(rendered(values)["fleet-probe.yaml"])
        file = self.folder / "account.yaml"
        file.write_text(yaml.safe_dump_all(one for one in made if one["kind"] != "CronJob"), "utf-8")
        run(*self.fleet.plane.kubectl, "apply", "--validate=false", "--filename", str(file))
        given = self.ask("POST", f"/api/v1/namespaces/{NAME}/serviceaccounts/{ACCOUNT}/token", {"spec": {}})
        told = _KUBECONFIG.format(
            address=self.fleet.plane.where.address, ca=self.fleet.plane.ca, token=given["status"]["token"]
        )
        (self.folder / "kubeconfig").write_text(told, "utf-8")
        (self.folder / "pair.json").write_text(json.dumps(TEMPLATE), "utf-8")

    def _credentials(self) -> None:
        folder = self.folder / "kubelets"
        folder.mkdir()
        (folder / "token").write_text(self.fleet.plane.token, "ascii")
        (folder / "ca.crt").write_bytes(self.fleet.plane.ca.read_bytes())
        key, certificate = str(folder / "kubelet.key"), str(folder / "kubelet.crt")
        # The API server does not check it unless it is told to.
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
            "-days", "2", "-subj", "/CN=kubelet")  # fmt: skip

    def _node(self, name: str) -> None:
        labels = {"topology.kubernetes.io/rack": LEAFS[name], "kubernetes.io/hostname": name}
        self.ask("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        now = stamp(time.time())
        ready = {
            "type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now,
            "reason": "Kubelet", "message": "",
        }  # fmt: skip
        room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        status = {
            "conditions": [ready], "capacity": room, "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": self.wires.address(name)}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": PORT}},
        }  # fmt: skip
        self.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC)

    def start(self, node: str) -> None:
        command = (
            *self.wires.within(node), sys.executable, "-m", "proof.fleet.pairs.kubelet", node,
            "--api", f"https://{self.fleet.plane.where.address}",
            "--credentials", str(self.folder / "kubelets"),
            "--logs", str(self.folder / "pods"), "--", str(WIREWATCH),
        )  # fmt: skip
        self.running.start(f"kubelet-{node}", command)

    def jobs(self) -> list[str]:
        """Jobs that have not ended."""
        made = self.ask("GET", JOBS)["items"]
        return [one["metadata"]["name"] for one in made if not one["status"].get("conditions")]

    def pods(self) -> list[dict[str, Any]]:
        found = self.ask("GET", PODS)["items"]
        return [one for one in found if one["status"]["phase"] not in ENDED]

    def begun(self, node: str = "") -> None:
        """Wait until both pods of a pair run: of the pair with this node, or of any."""
        until(
            f"a pair {f'with {node} ' if node else ''}runs",
            lambda: any(len(both) > 1 and (not node or node in both) for both in self._running()), 120,
        )  # fmt: skip

    def measures(self, node: str) -> None:
        """Wait until the pair with this node measures: the node has sent more than its kubelet does."""
        self.begun(node)
        before = self._sent(node)
        until(f"{node} measures", lambda: self._sent(node) > before + MEASURES, 120)

    def _sent(self, node: str) -> int:
        """Bytes that came from a node over its wire."""
        counter = Path(f"/sys/class/net/{self.wires.port(node)}/statistics/rx_bytes")
        return int(counter.read_text("ascii"))

    def preempted(self) -> list[str]:
        """What the scheduler says of the pods whose places it took."""
        found = self.ask("GET", EVENTS)["items"]
        return [one["message"] for one in found if one["reason"] == "Preempted"]

    def _running(self) -> Iterable[set[str]]:
        """The nodes on which pods of each pair run."""
        found: dict[str, set[str]] = defaultdict(set)
        for one in self.pods():
            if one["status"]["phase"] == "Running":
                found[one["metadata"].get("labels", {}).get(PAIR, "")].add(one["spec"]["nodeName"])
        return found.values()

    def quiet(self) -> None:
        until(lambda: f"pods are left: {self.pods()}", lambda: not self.pods(), 60)

    def mend(self) -> None:
        """All wires as at first."""
        for node in NODES:
            self.wires.sends(node, RATE)
            self.wires.receives(node, RATE)

    def requests(self) -> tuple[set[str], set[str]]:
        """What the account has asked for and got, and what it was refused, by the audit log."""
        seen = set(self.fleet.plane.audited(f"system:serviceaccount:{NAME}:{ACCOUNT}", ""))
        good = {f"{verb} {about}" for verb, about, code in seen if code < 400}
        return good, {f"{verb} {about}" for verb, about, code in seen if code == 403}


class Campaign:
    """`wirewatch fleet probe` on a cluster, with a file of results of its own."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.results = cluster, cluster.folder / f"rounds-{name}.json"

    def start(self, *options: str) -> "subprocess.Popen[str]":
        command = (
            sys.executable, "-m", "wirewatch", "fleet", "probe", "--kubernetes", *WORK, "--json",
            "--namespace", NAME, "--pod-template", str(self.cluster.folder / "pair.json"),
            "--priority-class", ACCOUNT, "--results", str(self.results), *options,
        )  # fmt: skip
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.folder / "kubeconfig")}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, text=True, stdout=pipe, stderr=pipe)

    def rounds(self) -> RoundsDocument:
        return ROUNDS.validate_json(self.results.read_bytes())

    def failures(self) -> set[str]:
        return {run.failed for one in self.rounds().rounds for run in one.runs if run.failed}


def _faulty(cluster: Cluster, one: Slowed) -> tuple[bool, str]:
    one.slow(cluster.wires)
    process = Campaign(cluster, "".join(filter(str.isalnum, one.title))).start()
    out, errors = process.communicate(timeout=1500)
    assert process.returncode in {0, 1, 2, 3}, errors
    good, words = judged(one, json.loads(out))
    left = cluster.jobs()
    return good and not left, f"{words}{f'; Jobs left: {left}' if left else ''}"


def _dry(cluster: Cluster) -> tuple[bool, str]:
    """Says what it would do, and makes nothing."""
    before = len(cluster.ask("GET", JOBS)["items"])
    process = Campaign(cluster, "dry").start("--dry-run")
    _, errors = process.communicate(timeout=60)
    made = len(cluster.ask("GET", JOBS)["items"]) - before
    line = next((line for line in errors.splitlines() if "each pair is a Job" in line), "")
    return process.returncode == 0 and not made and bool(line), f"'{line.strip()}'; {made} Jobs made"


def _dies(cluster: Cluster) -> tuple[bool, str]:
    """A node dies in a round: its kubelet and all that it started, and its wire."""
    campaign = Campaign(cluster, "dies")
    process = campaign.start("--limit", "40s", "--rounds", "3")
    cluster.measures("n5")
    kubelet = cluster.running.pid("kubelet-n5")
    for child in Path(f"/proc/{kubelet}/task/{kubelet}/children").read_text("ascii").split():
        with suppress(ProcessLookupError):
            os.killpg(int(child), signal.SIGKILL)
    cluster.running.stop("kubelet-n5", signal.SIGKILL)
    subprocess.run([tool("ip"), "link", "set", cluster.wires.port("n5"), "down"], check=True)
    process.communicate(timeout=900)
    subprocess.run([tool("ip"), "link", "set", cluster.wires.port("n5"), "up"], check=True)
    cluster.start("n5")
    runs = [run for one in campaign.rounds().rounds for run in one.runs]
    own = {run.failed for run in runs if "n5" in {run.first, run.second}}
    others = [run for run in runs if "n5" not in {run.first, run.second}]
    answered = sum(not run.failed for run in others)
    good = bool(own) and "" not in own and answered == len(others)
    why = "; ".join(map(shortened, sorted(own)))
    return good, f"the runs of n5: {why}; {answered} of {len(others)} other runs answered"


def _never(cluster: Cluster) -> tuple[bool, str]:
    """Pods that fit on no node."""
    large = json.loads(json.dumps(TEMPLATE))
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    file = cluster.folder / "large.json"
    file.write_text(json.dumps(large), "utf-8")
    campaign = Campaign(cluster, "never")
    process = campaign.start("--wait", "5s", "--pod-template", str(file))
    process.communicate(timeout=200)
    failed, left = campaign.failures(), cluster.jobs()
    good = bool(failed) and all("not admitted within 5 s" in one for one in failed) and not left
    return good and process.returncode == 3, f"{min(failed, key=len)}; Jobs left: {left or 'none'}"


def _interrupted(cluster: Cluster) -> tuple[bool, str]:
    """Ctrl-C in the second round, then the same command again."""
    campaign = Campaign(cluster, "interrupted")
    process = campaign.start()
    kept = lambda: campaign.results.exists() and len(campaign.rounds().rounds) == 1  # noqa: E731
    until("a round is kept", kept, 300)
    cluster.begun()
    at = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    took, left = time.monotonic() - at, cluster.jobs()
    if left:
        return False, f"ended after {took:.1f} s, and left {', '.join(left)}: {errors}"
    first = campaign.rounds().rounds
    again = campaign.start()
    again.communicate(timeout=900)
    made = campaign.rounds().rounds
    good = len(first) == 1 and made[:1] == first and len(made) >= 3
    words = (
        f"ended after {took:.1f} s, no Job left, 1 round kept; the same command made it {len(made)} rounds"
    )
    return good and process.returncode == 3, words


def _preempted(cluster: Cluster) -> tuple[bool, str]:
    """A user's pod without any class comes to n2 while its pair measures: the scheduler makes room for it.

    Before the two have met it would show less: the Job controller of this version makes another pod in place
    of one that was deleted, where later ones let the Job fail, and the pair is measured late.
    """
    campaign = Campaign(cluster, "preempted")
    process = campaign.start("--rounds", "3")
    cluster.measures("n2")
    began = time.monotonic()
    cluster.ask("POST", PODS, USER)
    train = f"{PODS}/train"
    until("the user's pod runs", lambda: cluster.ask("GET", train)["status"]["phase"] != "Pending", 60)
    took = time.monotonic() - began
    process.communicate(timeout=900)
    cluster.ask("DELETE", train)
    runs = [run for one in campaign.rounds().rounds for run in one.runs]
    failed = [run for run in runs if run.failed]
    own = len(failed) == 1 and "n2" in {failed[0].first, failed[0].second}
    scheduler = cluster.preempted()
    words = (
        f"the pod runs after {took:.1f} s; the scheduler: {'; '.join(scheduler) or 'nothing was preempted'}; "
        f"the run of n2: {'; '.join(shortened(run.failed) for run in failed)}; "
        f"{len(runs) - len(failed)} of {len(runs) - 1} other runs answered"
    )
    return own and len(scheduler) == 1, words


def _rights(cluster: Cluster) -> tuple[bool, str]:
    """All that the chart's account was used for."""
    good, refused = cluster.requests()
    return bool(
        good
    ) and not refused, f"{', '.join(sorted(good))}; refused: {', '.join(sorted(refused)) or 'nothing'}"


SURVIVALS: dict[str, Callable[[Cluster], tuple[bool, str]]] = {
    "dry run": _dry,
    "a node dies in a round": _dies,
    "pods fit on no node": _never,
    "Ctrl-C in a round": _interrupted,
    "a pod of higher priority comes": _preempted,
    "what the account asked for": _rights,
}


@contextmanager
def _cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="wirewatch-pairs-") as name, Wires(NODES, RATE) as wires:
        cluster = Cluster(Path(name), wires)
        try:
            cluster.up()
            yield cluster
        except BaseException:
            for log in cluster.running.logs():
                if not log.stem.startswith(("kube-", "etcd")):
                    print(f"--- {log.stem}\n{cluster.running.tail(log.stem, 30)}", file=sys.stderr)
            raise
        finally:
            cluster.running.stop_all()


def main() -> int:
    parser = argparse.ArgumentParser(description="Rounds of pairs on a real API server.")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    parser.add_argument("names", nargs="*", help="titles that begin so, alone")
    options = parser.parse_args()
    # It is ignored by what a script starts in its background, and by what that starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = tuple(options.names) or ("",)
    steps = [(one.title, lambda cluster, one=one: _faulty(cluster, one)) for one in slowed()]
    outcomes = []
    with _cluster() as cluster:
        for title, step in [*steps, *SURVIVALS.items()]:
            if not title.startswith(wanted):
                continue
            began = time.monotonic()
            good, words = step(cluster)
            outcomes.append(printed(Outcome(title, good, words, time.monotonic() - began)))
            cluster.mend()
            cluster.quiet()
    if options.write:
        PAGE.write_text(formatted(_page(outcomes)), "utf-8")
    return 0 if all(one.good for one in outcomes) else 1


def _page(outcomes: Sequence[Outcome]) -> str:
    return f"""# Rounds of pairs on a real API server

`make pairs-kubernetes` made this page on {time.strftime("%Y-%m-%d")}. It ran `wirewatch fleet probe
--kubernetes` with a real API server, controllers and scheduler, Kubernetes v1.20.2, built from Debian's
source package.

{WIRES}

There are no containers and no images. In place of each node's kubelet a small program
(proof/fleet/pairs/kubelet.py) runs a pod's command as a process in the node's namespace, reports its state,
ends it when the pod is deleted, and serves its log. `fleet probe` has the account, the rights and the
PriorityClass that the chart renders; pods have the network of their nodes.

{table(outcomes)}

What is done in rows without a slow wire:

- *a node dies in a round*: while the pair with n5 measures, n5's kubelet and its part of the pair are
  killed and its wire is cut.
- *Ctrl-C in a round*: it comes in the second round. Then the same command is run again.
- *a pod of higher priority comes*: a user's pod that needs n2 is made while the pair with n2 measures.

Kubernetes 1.20 makes another pod when one of a pair is deleted before the two have met; that pair is then
measured late. Later versions let its Job fail.

Not shown by this: containers and real kubelets for several nodes
([proof/kubernetes/kubernetes.md](../kubernetes/kubernetes.md) has one), the cluster's DNS, Kueue, GPUs,
the completion index and the suspension of Jobs, which Kubernetes 1.20 does not have.
"""


if __name__ == "__main__":
    sys.exit(main())
