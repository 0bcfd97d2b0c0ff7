"""As much of Prometheus' HTTP API as a table of nodes needs, over HTTP or TLS; and its bad days."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = Callable[[BaseHTTPRequestHandler], None]
NOW = 1_795_000_000.0


def row(value: float, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [NOW, str(value)]}


def vector(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "vector", "result": rows}, **more}


@dataclass
class PromApi:
    """`rows` by the metric that a query begins with, whatever it selects; `asked` are queries and headers."""

    rows: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    answer: Answer | None = None
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    url: str = ""

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        asked = urlsplit(handler.path)
        query = parse_qs(asked.query).get("query", [""])[0]
        self.asked.append((query, dict(handler.headers.items())))
        if self.answer is not None:
            self.answer(handler)
            return
        rows = next((rows for name, rows in self.rows.items() if name in query), [])
        reply(handler, 200, json.dumps(vector(rows, **self.more)).encode())


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def served(api: PromApi, certificate: Path | None = None) -> Iterator[PromApi]:
    """The API at `api.url`, over TLS where there is a certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            api.take(self)

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None: ...  # A client that does not believe us hangs up.

    with Server(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        api.url = f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield api
        finally:
            server.shutdown()


STATE, SINCE = "node:wirewatch_worst:state", "node:wirewatch_worst:since_timestamp_seconds"
FINDINGS, HEARD = "count by (cluster,node)", "node:wirewatch_heard:timestamp_seconds"
LINK = {"rule": "nvlink.link_down", "gpu": "2", "uuid": "GPU-2", "link": "7"}


def fleet() -> dict[str, list[dict[str, Any]]]:
    """A node FAILED and dead, one whose GPU 3 hangs, one silent, one DEGRADED, and two that are well."""
    places = {
        "n1": {"cluster": "a", "node": "n1", **LINK},
        "n2": {"cluster": "a", "node": "n2", "rule": "inventory.blind", "gpu": "3", "uuid": "GPU-3"},
        "n3": {"cluster": "a", "node": "n3", "rule": "silent"},
        "n4": {"cluster": "b", "node": "n4", "rule": "gpu.throttle", "gpu": "0", "uuid": "GPU-0"},
    }
    states = {"n4": 1, "n3": 2, "n1": 4, "n2": 3}
    heard = {"n1": 700.0, "n2": 5.0, "n3": 90.0, "n4": 5.0, "n5": 5.0, "n6": 5.0}
    return {
        STATE: [row(state, **places[name]) for name, state in states.items()],
        SINCE: [row(NOW - 1000, **place) for place in places.values()],
        FINDINGS: [row(3, cluster="a", node="n1"), row(1, cluster="a", node="n2")],
        HEARD: [
            row(NOW - ago, cluster="b" if name == "n4" else "a", node=name) for name, ago in heard.items()
        ],
    }
