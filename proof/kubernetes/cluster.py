"""The cluster as its users have it: kubectl, Helm's engine, and the pods of the release."""

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import helm_python
from prometheus_client.parser import text_string_to_metric_families

from proof.containers import attempt, run
from proof.kubernetes.node import NAME as NODE
from proof.kubernetes.node import Node
from proof.kubernetes.plane import Plane
from proof.kubernetes.programs import Programs
from tests.waiting import until
from tools.chart.helm import NAME
from tools.chart.made import CHART

Document = dict[str, Any]
PORT = 9410
CONDITION = "InterconnectHealthy"
SELECTOR = "app.kubernetes.io/name=wirewatch"


class Cluster:
    """A control plane with one node."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self.programs = folder, Programs(folder / "logs")
        self.plane = Plane(folder / "plane", binaries, self.programs)
        self.node = Node(folder / "node", binaries / "kubelet", self.programs)
        self.values: Document = {}
        self.kept: dict[str, float] = {}
        self.ending = ExitStack()

    def kubectl(self, *words: str, seconds: float = 90) -> str:
        """Standard output; it must succeed."""
        return run(*self.plane.kubectl, *words, seconds=seconds)

    def try_kubectl(self, *words: str) -> "CompletedProcess[str]":
        return attempt(*self.plane.kubectl, *words, seconds=90)

    def apply(self, name: str, text: str) -> None:
        """Documents as YAML. Not checked by kubectl, whose schemas are this API server's."""
        file = self.folder / f"{name}.yaml"
        file.write_text(text, "utf-8")
        self.kubectl("apply", "--validate=false", "--filename", str(file))

    def get(self, *words: str) -> Document:
        document = json.loads(self.kubectl("get", *words, "--output", "json"))
        assert isinstance(document, dict)
        return document

    def condition(self) -> Document | None:
        """Of the node, as the API server has it."""
        found = [one for one in self.get("node", NODE)["status"]["conditions"] if one["type"] == CONDITION]
        return found[0] if found else None

    @contextmanager
    def helm(self) -> Iterator[Any]:
        with helm_python.Config(kubeconfig_path=str(self.plane.kubeconfig), namespace=NAME) as config:
            yield config

    def upgrade(self, **more: Any) -> float:
        """`helm upgrade --wait` with more values than before; its seconds."""
        began = time.monotonic()
        self.values = merged(self.values, more)
        with self.helm() as helm:
            told = helm.upgrade(str(CHART), NAME, self.values, wait="watcher", timeout=120)
        assert told["status"] == "deployed", told
        return time.monotonic() - began

    def pod(self) -> "Pod":
        """The one that runs and is not on its way out."""
        found = [
            one
            for one in self.get("pods", "--namespace", NAME, "--selector", SELECTOR)["items"]
            if "deletionTimestamp" not in one["metadata"]
        ]
        assert len(found) == 1, [one["metadata"]["name"] for one in found]
        return Pod(self, found[0])


class Pod:
    """The release's, as it was when asked for."""

    def __init__(self, cluster: Cluster, document: Document) -> None:
        self._cluster, self.document = cluster, document
        self.name: str = document["metadata"]["name"]
        self.ip: str = document["status"].get("podIP", "")

    def ready(self) -> bool:
        conditions = self.document["status"].get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def started(self, container: str) -> str:
        (one,) = (each for each in self.document["status"]["containerStatuses"] if each["name"] == container)
        text = one["state"]["running"]["startedAt"]
        assert isinstance(text, str)
        return text

    def restarts(self) -> int:
        return sum(one["restartCount"] for one in self.document["status"]["containerStatuses"])

    def do(self, container: str, *command: str) -> str:
        return self._cluster.kubectl(
            "exec", "--namespace", NAME, self.name, "--container", container, "--", *command
        )

    def attempt(self, container: str, *command: str) -> "CompletedProcess[str]":
        words = ("exec", "--namespace", NAME, self.name, "--container", container, "--", *command)
        return self._cluster.try_kubectl(*words)

    def log(self, container: str) -> str:
        return self._cluster.kubectl("logs", "--namespace", NAME, self.name, "--container", container)

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of an answer at the pod's address."""
        try:
            with urllib.request.urlopen(f"http://{self.ip}:{PORT}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def health(self) -> Document:
        document = json.loads(self.ask("/health")[1])
        assert isinstance(document, dict)
        return document

    def findings(self) -> list[Document]:
        found = json.loads(self.ask("/api/v1/findings")[1])["findings"]
        assert isinstance(found, list)
        return found

    def metrics(self) -> Mapping[str, float]:
        """Values by name and labels, as they are written."""
        status, text = self.ask("/metrics")
        assert status == 200, text
        return {
            _series(sample.name, sample.labels): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def processes(self, container: str) -> Mapping[int, Mapping[str, str]]:
        """/proc/PID/status of each process of a container, by process id."""
        return {
            int(place.name): dict(line.split(":\t", 1) for line in _lines(place / "status") if ":\t" in line)
            for place in Path("/proc").glob("[0-9]*")
            if any(self._id(container) in line for line in _lines(place / "cgroup"))
        }

    def cpu_seconds(self, container: str) -> float:
        """What its processes have used until now, those that have ended too."""
        pid = next(iter(self.processes(container)))
        for line in _lines(Path(f"/proc/{pid}/cgroup")):
            _, controllers, path = line.split(":", 2)
            for name in ("cpuacct", "cpu,cpuacct"):
                file = Path(f"/sys/fs/cgroup/{name}{path}/cpuacct.usage")
                if "cpuacct" in controllers and file.exists():
                    return int(file.read_text("ascii")) / 1e9
            file = Path(f"/sys/fs/cgroup{path}/cpu.stat")
            told = re.search(r"^usage_usec (\d+)$", "\n".join(_lines(file)), re.MULTILINE)
            if told:
                return int(told[1]) / 1e6
        raise AssertionError(f"no account of the processor's time of {container}")

    def _id(self, container: str) -> str:
        (one,) = (each for each in self.document["status"]["containerStatuses"] if each["name"] == container)
        text = one["containerID"]
        assert isinstance(text, str)
        return text.partition("://")[2]


def merged(values: Document, more: Mapping[str, Any]) -> Document:
    """Values with others over them, as helm merges them."""
    new = dict(values)
    for key, value in more.items():
        mine = new.get(key)
        new[key] = merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return new


def _series(name: str, labels: Mapping[str, str]) -> str:
    told = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{told}}}" if told else name


def _lines(file: Path) -> list[str]:
    """None of a process that has just ended."""
    try:
        return file.read_text("utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []


def settled(cluster: Cluster) -> Pod:
    """The pod, once it is Ready."""

    def ready() -> Pod | None:
        pod = cluster.pod()
        return pod if pod.ready() else None

    return until("the pod is Ready", ready, 90)
