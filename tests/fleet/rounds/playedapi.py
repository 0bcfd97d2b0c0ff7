"""An API server of Kubernetes in this process, over HTTP: it keeps Jobs, Services, pods and nodes.

It admits and runs nothing: a test says what becomes of each Job, as controllers and kubelets would.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from kubernetes_asyncio.client import ApiClient, Configuration

Document = dict[str, Any]
_KIND = re.compile(
    r"/(?:api/v1|apis/batch/v1)(?:/namespaces/[^/]+)?/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?(?P<log>/log)?"
)
JSON = "application/json"


class PlayedApi:
    """`refuse`: the status and message with which a verb of a kind is answered, such as ("POST", "jobs")."""

    def __init__(self) -> None:
        kinds = ("jobs", "services", "pods", "nodes")
        self.kept: dict[str, dict[str, Document]] = {kind: {} for kind in kinds}
        self.logs: dict[str, str] = {}
        self.refuse: dict[tuple[str, str], tuple[int, str]] = {}
        self.asked: list[tuple[str, str]] = []
        self.queries: list[dict[str, list[str]]] = []
        self.not_made: set[str] = set()
        """Names of Jobs that are refused."""
        self.late: list[Document] = []
        """Jobs whose creation is under way: one is made after each deletion."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"null")
                status, text, kind = api.answer(self.command, self.path, body)
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    async def connect(self) -> ApiClient:
        return ApiClient(Configuration(host=f"http://127.0.0.1:{self._server.server_port}"))

    def answer(self, method: str, url: str, body: Any) -> tuple[int, str, str]:
        """Status, text and its type."""
        parts = urlsplit(url)
        found = _KIND.fullmatch(parts.path)
        assert found, url
        kind, name, asked = found["kind"], found["name"], parse_qs(parts.query)
        what = f"{kind}/log" if found["log"] else kind
        self.asked.append((method, what))
        self.queries.append(asked)
        refusal = self.refuse.get((method, what))
        if method == "POST" and body["metadata"]["name"] in self.not_made:
            refusal = 422, "not this one"
        if refusal:
            status, message = refusal
            return (
                status,
                json.dumps({"kind": "Status", "message": message, "code": status}),
                "application/json",
            )
        if found["log"]:
            return 200, self.logs.get(name, ""), "text/plain"
        if method == "POST":
            body["metadata"]["uid"] = f"u-{len(self.kept[kind])}"
            self.kept[kind][body["metadata"]["name"]] = body
            return 201, json.dumps(body), JSON
        matching = self._matching(kind, asked.get("labelSelector", [""])[0])
        if method == "DELETE":
            for one in matching:
                self._delete(kind, one["metadata"]["name"])
            if kind == "jobs" and self.late:
                made = self.late.pop()
                self.kept["jobs"][made["metadata"]["name"]] = made
        return 200, json.dumps({"kind": "List", "metadata": {}, "items": matching}), JSON

    def _matching(self, kind: str, selector: str) -> list[Document]:
        wanted = dict(part.split("=") for part in selector.split(",") if part).items()
        return [
            one for one in self.kept[kind].values() if wanted <= one["metadata"].get("labels", {}).items()
        ]

    def _delete(self, kind: str, name: str) -> None:
        """With what it owns, as the garbage collector does."""
        uid = self.kept[kind].pop(name)["metadata"].get("uid")
        for other in ("services", "pods"):
            for one in list(self.kept[other].values()):
                if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", ())):
                    del self.kept[other][one["metadata"]["name"]]

    def node(self, name: str, gpus: int = 8) -> None:
        self.kept["nodes"][name] = {
            "metadata": {"name": name, "labels": {}}, "spec": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"nvidia.com/gpu": str(gpus)}, "addresses": [],
            },
        }  # fmt: skip

    def pods_of(self, job: str, phase: str, *printed: str, nodes: tuple[str, ...] = ("n1", "n2")) -> None:
        """The two pods of a Job, as its controller and two kubelets have them."""
        made = self.kept["jobs"][job]
        owner = [{"uid": made["metadata"]["uid"]}]
        for place, node in enumerate(nodes):
            name = f"{job}-{place}"
            state = "terminated" if phase in {"Succeeded", "Failed"} else "running"
            self.kept["pods"][name] = {
                "metadata": {
                    "name": name, "labels": made["spec"]["template"]["metadata"]["labels"],
                    "ownerReferences": owner,
                },
                "spec": {**made["spec"]["template"]["spec"], "nodeName": node},
                "status": {"phase": phase, "containerStatuses": [{"state": {state: {"exitCode": 0}}}]},
            }  # fmt: skip
            self.logs[name] = printed[place] if place < len(printed) else ""

    def ends(self, job: str, kind: str = "Complete", reason: str = "") -> None:
        condition = {"type": kind, "status": "True", "reason": reason, "message": ""}
        self.kept["jobs"][job]["status"] = {"conditions": [condition]}
