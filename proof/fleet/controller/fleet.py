"""A fleet on a real API server: Node objects with conditions as agents write them, and controllers."""

import json
import os
import re
import signal
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from proof.containers import run
from proof.kubernetes.plane import Plane
from proof.kubernetes.programs import Programs
from tests.waiting import until
from tools.chart.helm import NAME, rendered
from wirewatch.core.words import stamp
from wirewatch.kubernetes.condition import TYPE
from wirewatch_fleet.controller.node import MARK, TAINT_KEY

Document = dict[str, Any]
ACCOUNT = f"{NAME}-controller"
POOL, RACK = "karpenter.sh/nodepool", "topology.kubernetes.io/rack"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
LEASE = 15
"""Seconds, the default."""


class Fleet:
    """Nodes n00, n01 and so on; four racks of a pool, two pools. An administrator's requests."""

    def __init__(self, folder: Path, plane: Plane, programs: Programs) -> None:
        self.folder, self.plane, self.programs = folder, plane, programs
        self._tls: ssl.SSLContext | None = None
        self.running: dict[str, Running] = {}

    def ask(
        self, method: str, path: str, body: object = None, kind: str = "application/json", token: str = ""
    ) -> Any:
        """JSON of the answer.

        Raises:
            HTTPError: it is a refusal.
        """
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=self.plane.ca)
        headers = {"Authorization": f"Bearer {token or self.plane.token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"https://{self.plane.where.address}{path}", data, headers, method=method
        )
        with urllib.request.urlopen(asked, timeout=20, context=self._tls) as reply:
            return json.loads(reply.read())

    def status_of(self, method: str, path: str, body: object, kind: str, token: str) -> int:
        try:
            self.ask(method, path, body, kind, token)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        return 200

    def make(self, count: int) -> None:
        for number in range(count):
            labels = {POOL: "AB"[number % 2], RACK: f"{'AB'[number % 2]}{number // 2 % 4}"}
            self.ask("POST", "/api/v1/nodes", {"metadata": {"name": f"n{number:02}", "labels": labels}})
            self.ready(f"n{number:02}", "True")
            self.says(f"n{number:02}", "True")
        # The admission plugin adds a taint to new nodes, the node controller removes it from ready ones.
        until("all nodes are in use", lambda: not self.out(), 240)

    def ready(self, name: str, status: str) -> None:
        now = stamp(time.time())
        one = {
            "type": "Ready", "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now,
            "reason": "Kubelet", "message": "",
        }  # fmt: skip
        room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        self._status(name, {"conditions": [one], "capacity": room, "allocatable": room})

    def says(self, name: str, status: str, since: float = 600.0, heard: float = 1.0) -> None:
        """What the node's agent writes; times are seconds ago."""
        now = time.time()
        message = (
            "nvlink.link_down GPU 2 link 7: inactive; 17 of 18 links up" if status == "False" else "fine"
        )
        one = {
            "type": TYPE, "status": status, "reason": "NvlinkLinkDown" if status == "False" else "Healthy",
            "message": message, "lastTransitionTime": stamp(now - since),
            "lastHeartbeatTime": stamp(now - heard),
        }  # fmt: skip
        self._status(name, {"conditions": [one]})

    def _status(self, name: str, status: object) -> None:
        self.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC)

    def patch(self, name: str, patch: object) -> None:
        self.ask("PATCH", f"/api/v1/nodes/{name}", patch, MERGE)

    def node(self, name: str) -> Document:
        found: Document = self.ask("GET", f"/api/v1/nodes/{name}")
        return found

    def nodes(self) -> list[Document]:
        found: list[Document] = self.ask("GET", "/api/v1/nodes")["items"]
        return found

    def out(self) -> dict[str, str]:
        """Nodes that are out of use, and by what."""
        found = {}
        for one in self.nodes():
            taints = [taint["key"] for taint in one["spec"].get("taints", ())]
            cordoned = ["cordon"] if one["spec"].get("unschedulable") else []
            if taints or cordoned:
                found[one["metadata"]["name"]] = ", ".join(sorted({*taints, *cordoned}))
        return found

    def ours(self) -> list[str]:
        """Nodes with the controller's taint and annotation; a node with only one of them is an error."""
        found = []
        for one in self.nodes():
            marked = MARK in one["metadata"].get("annotations", {})
            tainted = any(taint["key"] == TAINT_KEY for taint in one["spec"].get("taints", ()))
            assert marked == tainted, one
            found += [one["metadata"]["name"]] if marked else []
        return sorted(found)

    def becomes(self, *names: str, seconds: float = 240) -> None:
        """Wait until just these have the controller's taint."""
        until(
            lambda: f"tainted are {self.ours()}, not {sorted(names)}",
            lambda: self.ours() == sorted(names),
            seconds,
        )

    def events(self) -> list[Document]:
        found = self.ask("GET", "/api/v1/namespaces/default/events?limit=500")["items"]
        return [one for one in found if one["source"].get("component") == "wirewatch-controller"]

    def patches(self) -> int:
        """Patches of nodes that the API server took from the controller's account, by the audit log."""
        user = f"system:serviceaccount:{NAME}:{ACCOUNT}"
        asked = self.plane.audited(user, "wirewatch-controller")
        return sum(1 for verb, about, status in asked if (verb, about, status) == ("patch", "nodes", 200))

    @contextmanager
    def counted(self) -> Iterator[list[int]]:
        """How many nodes are out of use, looked at all the time while the block runs."""
        seen: list[int] = []
        ended = threading.Event()

        def look() -> None:
            while not ended.is_set():
                seen.append(len(self.out()))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield seen
        finally:
            ended.set()
            thread.join()

    def install(self) -> None:
        """The rights of the chart, as it renders them; the policy needs a newer API server."""
        given = {"controller": {"enabled": True, "admissionPolicy": "never"}}
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAME}})
        file = self.folder / "rbac.yaml"
        file.write_text(rendered(given)["controller-rbac.yaml"], "utf-8")
        run(*self.plane.kubectl, "apply", "--validate=false", "--filename", str(file))

    def token(self) -> str:
        made = self.ask("POST", f"/api/v1/namespaces/{NAME}/serviceaccounts/{ACCOUNT}/token", {"spec": {}})
        return str(made["status"]["token"])

    def controller(self, name: str, **settings: object) -> "Running":
        """Start one."""
        self.running[name] = Running(self, name, settings)
        return self.running[name]


class Running:
    """One `wirewatch fleet controller`, with the account's own token."""

    def __init__(self, fleet: Fleet, name: str, settings: Mapping[str, object]) -> None:
        self.fleet, self.name = fleet, name
        folder = fleet.folder / name
        account = folder / "account"
        account.mkdir(parents=True, exist_ok=True)
        (account / "token").write_text(fleet.token(), "ascii")
        (account / "ca.crt").write_bytes(fleet.plane.ca.read_bytes())
        (account / "namespace").write_text(NAME, "ascii")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        given = {
            "listen": f"127.0.0.1:{self._port}", "lease": LEASE, "period": 2.0, **settings,
        }  # fmt: skip
        lines = [
            f"{key} = {json.dumps(value)}" for key, value in given.items() if not isinstance(value, dict)
        ]
        tables = {key: value for key, value in given.items() if isinstance(value, dict)}
        for key, table in tables.items():
            lines += [f"[controller.{key}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
        kubernetes = [
            "[kubernetes]", f'api_server = "{fleet.plane.where.address}"', f'credentials = "{account}"'
        ]  # fmt: skip
        self._config = folder / "wirewatch.toml"
        self._config.write_text("\n".join([*kubernetes, "[controller]", *lines, ""]), "utf-8")
        self.start()

    def start(self) -> None:
        command = (sys.executable, "-m", "wirewatch", "fleet", "controller", "--config", str(self._config))
        self.fleet.programs.start(self.name, command, {"POD_NAME": self.name})

    def send(self, number: signal.Signals) -> None:
        self.fleet.programs.send(self.name, number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.fleet.programs.stop(self.name, number)

    def get(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as reply:
                reply.read()
                return int(reply.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def metrics(self) -> dict[str, float]:
        """By name and labels, as they are written."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        found = {}
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                labels = ",".join(f'{key}="{value}"' for key, value in sorted(one.labels.items()))
                found[
                    one.name.removeprefix("wirewatch_controller_") + (f"{{{labels}}}" if labels else "")
                ] = one.value
        return found

    def metric(self, name: str) -> float | None:
        """None while it is not there."""
        try:
            return self.metrics().get(name)
        except OSError:
            return None

    def leads(self, *, leader: bool = True, seconds: float = 240) -> None:
        until(self.log, lambda: self.metric("leader") == leader or None, seconds)

    def synced(self) -> None:
        """Wait until it leads, and has looked at all nodes after now."""
        now = time.time()
        until(self.log, lambda: (self.metric("last_sync_timestamp_seconds") or 0) > now or None, 240)

    def log(self) -> str:
        return self.fleet.programs.tail(self.name, 60)

    def whole_log(self) -> str:
        return self.fleet.programs.log(self.name).read_text("utf-8")

    def memory(self) -> int:
        """Bytes of its resident memory."""
        pid = self.fleet.programs.pid(self.name)
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("ascii"))
        assert found
        return int(found[1]) * 1024

    def seconds(self) -> float:
        """Of processor time so far."""
        words = Path(f"/proc/{self.fleet.programs.pid(self.name)}/stat").read_text("ascii").split()
        return (int(words[13]) + int(words[14])) / os.sysconf("SC_CLK_TCK")
