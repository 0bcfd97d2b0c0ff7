"""A kubelet without containers, for one node of a real API server, in the node's network namespace.

It does what a kubelet does for the pods that the scheduler binds to the node: runs the first
container's command as a process of this machine, says how that goes in the pod's status, ends it when
the pod is deleted, and serves its log to the API server. No image, no cgroup, no probe, no volume.
"""

import argparse
import json
import os
import re
import signal
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from wirewatch.core.words import stamp

PORT = 10250
EVERY = 0.3
"""Seconds between two questions."""
STRATEGIC = "application/strategic-merge-patch+json"
Document = dict[str, Any]


@dataclass
class Running:
    """A pod's process, since when it runs in seconds, and whether the API server knows of its end."""

    process: "subprocess.Popen[bytes]"
    since: float
    said: bool = False


class Kubelet:
    """`entry`: what the image would run before its arguments."""

    def __init__(self, node: str, api: str, credentials: Path, folder: Path, entry: Sequence[str]) -> None:
        self._node, self._api, self._folder, self._entry = node, api, folder, entry
        self._token = (credentials / "token").read_text("ascii").strip()
        self._tls = ssl.create_default_context(cafile=str(credentials / "ca.crt"))
        self._running: dict[str, Running] = {}

    def turn(self) -> None:
        """Look at all pods of the node once."""
        pods = self._ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={self._node}")["items"]
        for pod in pods:
            uid = pod["metadata"]["uid"]
            mine = self._running.get(uid)
            if "deletionTimestamp" in pod["metadata"]:
                self._end(pod, mine)
            elif mine is None and pod["status"]["phase"] == "Pending":
                self._running[uid] = self._start(pod)
            elif mine is not None and not mine.said and mine.process.poll() is not None:
                self._say(pod, *_ended(mine))
                mine.said = True

    def log(self, path: str) -> Path:
        """Of `/containerLogs/NAMESPACE/POD/CONTAINER`."""
        _, _, namespace, pod, _ = path.partition("?")[0].split("/")
        return self._log(namespace, pod)

    def _start(self, pod: Document) -> Running:
        container = pod["spec"]["containers"][0]
        # All nodes have one file system here, but each has a lock of its own.
        state = self._folder.parent / f"state-{self._node}"
        state.mkdir(exist_ok=True)
        variables = {"STATE_DIRECTORY": str(state)}
        for one in container.get("env", ()):
            value = (
                _field(pod, one["valueFrom"]["fieldRef"]["fieldPath"]) if "valueFrom" in one else one["value"]
            )
            variables[one["name"]] = _expanded(value, variables)
        words = [*(container.get("command") or self._entry), *container.get("args", ())]
        with self._log(pod["metadata"]["namespace"], pod["metadata"]["name"]).open("wb") as log:
            process = subprocess.Popen(
                [_expanded(word, variables) for word in words], env={**os.environ, **variables},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        began = Running(process, time.time())
        self._say(pod, "Running", {"running": {"startedAt": stamp(began.since)}})
        return began

    def _end(self, pod: Document, mine: Running | None) -> None:
        """Ask it to end, kill it after the pod's grace, say how it ended, and let the pod go."""
        if mine is not None and mine.process.poll() is None:
            os.killpg(mine.process.pid, signal.SIGTERM)
            try:
                mine.process.wait(pod["metadata"].get("deletionGracePeriodSeconds", 30))
            except subprocess.TimeoutExpired:
                os.killpg(mine.process.pid, signal.SIGKILL)
                mine.process.wait()
        meta = pod["metadata"]
        try:
            if mine is not None and not mine.said:
                self._say(pod, *_ended(mine))
                mine.said = True
            self._ask(
                "DELETE",
                f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}",
                {"gracePeriodSeconds": 0},
            )
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def _say(self, pod: Document, phase: str, state: Document) -> None:
        meta, container = pod["metadata"], pod["spec"]["containers"][0]
        ready = phase == "Running"
        of_container = {
            "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
            "ready": ready, "state": state,
        }  # fmt: skip
        conditions = [{"type": kind, "status": str(ready)} for kind in ("Ready", "ContainersReady")]
        status = {"phase": phase, "containerStatuses": [of_container], "conditions": conditions}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        self._ask("PATCH", path, {"status": status}, STRATEGIC)

    def _log(self, namespace: str, pod: str) -> Path:
        return self._folder / f"{namespace}_{pod}.log"

    def _ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self._api}{path}", data, headers, method=method)
        with urllib.request.urlopen(asked, timeout=20, context=self._tls) as reply:
            return json.loads(reply.read())


def _field(pod: Document, path: str) -> str:
    value: Any = pod
    for key in path.split("."):
        value = value[key]
    return str(value)


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """With $(NAME) as Kubernetes has it: what is not known stays."""
    return re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), text)


def _ended(mine: Running) -> tuple[str, Document]:
    code = mine.process.returncode
    code = 128 - code if code < 0 else code
    times = {"startedAt": stamp(mine.since), "finishedAt": stamp(time.time())}
    reason = "Error" if code else "Completed"
    return "Failed" if code else "Succeeded", {"terminated": {"exitCode": code, "reason": reason, **times}}


def served(kubelet: Kubelet, certificate: Path, key: Path) -> None:
    """Serve logs to the API server, from a thread."""

    class Logs(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                text = kubelet.log(self.path).read_bytes()
            except (OSError, ValueError):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("", PORT), Logs)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description="A kubelet of processes.")
    parser.add_argument("node")
    parser.add_argument("--api", required=True, help="https://HOST:PORT")
    parser.add_argument(
        "--credentials", type=Path, required=True, help="token, ca.crt, kubelet.crt, kubelet.key"
    )
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("entry", nargs="+")
    given = parser.parse_args()
    given.logs.mkdir(parents=True, exist_ok=True)
    kubelet = Kubelet(given.node, given.api, given.credentials, given.logs, given.entry)
    served(kubelet, given.credentials / "kubelet.crt", given.credentials / "kubelet.key")
    while True:
        try:
            kubelet.turn()
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        time.sleep(EVERY)


if __name__ == "__main__":
    main()
