"""As much of an API server as a node condition needs: HTTPS, tokens, strategic merge; and its bad days."""

import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NODE = "gpu-017"
PATCH = "application/strategic-merge-patch+json"
Day = Callable[["Handler"], bool]
"""A bad day: whether it has dealt with the request."""


def certify(folder: Path, *, days: int = 1, host: str = "127.0.0.1", of: str = "ours") -> Path:
    """A CA in `ca.crt` as old clusters have it; returns a server's certificate with its key."""
    now = datetime.now(UTC)

    def build(name: str, key: ec.EllipticCurvePrivateKey, until: datetime) -> x509.CertificateBuilder:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"ca {of}")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=30))
            .not_valid_after(until)
        )

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    basic = x509.BasicConstraints(ca=True, path_length=None)
    ca = build(f"ca {of}", ca_key, now + timedelta(days=9)).add_extension(basic, critical=True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(host)), x509.DNSName("localhost")])
    leaf = build("kube-apiserver", key, now + timedelta(days=days)).add_extension(names, critical=False)
    (folder / "ca.crt").write_bytes(_pem(ca.sign(ca_key, hashes.SHA256())))
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + _pem(leaf.sign(ca_key, hashes.SHA256()))
    )
    return file


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@dataclass
class Request:
    """What came, when, and how it was answered."""

    at: float
    path: str
    body: Any
    status: int
    token: str


@dataclass
class ApiServer:
    """Listens on 127.0.0.1 while its block runs. `days` are bad ones, each for one request, then `always`."""

    folder: Path
    token: str = "first"  # noqa: S105
    nodes: dict[str, list[dict[str, str]]] = field(default_factory=lambda: {NODE: [{"type": "Ready"}]})
    days: list[Day] = field(default_factory=list)
    always: Day | None = None
    requests: list[Request] = field(default_factory=list)
    writes: int = 0
    port: int = 0

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        certificate = self.folder / "server.pem"
        if not certificate.exists():
            certify(self.folder)
        self.give()
        handler = type("Ours", (Handler,), {"api": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        self._http.socket = tls.wrap_socket(
            self._http.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = self._http.server_port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def give(self, token: str = "") -> None:
        """Put the token where the kubelet puts it."""
        self.token = token or self.token
        (self.folder / "token").write_text(f"{self.token}\n", "utf-8")

    def sleep(self, seconds: float) -> None:
        """For as long, or until the server ends."""
        self._over.wait(seconds)

    def condition(self, node: str = NODE) -> dict[str, str]:
        (found,) = [one for one in self.nodes[node] if one["type"] == "InterconnectHealthy"] or [{}]
        return found

    def patched(self) -> list[Any]:
        """Bodies of those requests that were more than a question."""
        return [one.body for one in self.requests if one.body]

    def merge(self, node: str, patch: dict[str, Any]) -> None:
        """A strategic merge: by type, field by field."""
        for change in patch.get("status", {}).get("conditions", []):
            mine = next((one for one in self.nodes[node] if one["type"] == change["type"]), None)
            if mine is None:
                self.nodes[node].append(mine := {})
            mine.update(change)
            self.writes += 1


class Handler(BaseHTTPRequestHandler):
    """One request."""

    api: ApiServer
    protocol_version = "HTTP/1.1"
    timeout = 10.0

    def do_PATCH(self) -> None:
        api = self.api
        length = int(self.headers["content-length"])
        body = json.loads(self.rfile.read(length))
        token = self.headers["authorization"].removeprefix("Bearer ")
        self.made = Request(time.monotonic(), self.path, body, 0, token)
        api.requests.append(self.made)
        day = api.days.pop(0) if api.days else api.always
        if day is not None and day(self):
            return
        self.properly(body, token)

    def properly(self, body: dict[str, Any], token: str) -> None:
        """As an API server answers on a good day."""
        api = self.api
        path, _, query = self.path.partition("?")
        node = path.removeprefix("/api/v1/nodes/").removesuffix("/status")
        if token != api.token:
            self.refuse(401, "Unauthorized")
        elif self.headers["content-type"] != PATCH or query != "fieldManager=wirewatch":
            self.refuse(415, "the body of the request was in an unknown format")
        elif node not in api.nodes:
            self.refuse(404, f'nodes "{node}" not found')
        else:
            api.merge(node, body)
            status = {"conditions": api.nodes[node]}
            self.answer(200, {"kind": "Node", "metadata": {"name": node}, "status": status})

    def refuse(self, status: int, message: str, **headers: str) -> None:
        self.answer(status, {"kind": "Status", "code": status, "message": message}, **headers)

    def answer(self, status: int, document: object, **headers: str) -> None:
        text = json.dumps(document).encode()
        self.made.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Not to standard error."""


def refusing(status: int, message: str = "no", **headers: str) -> Day:
    def day(handler: Handler) -> bool:
        handler.refuse(status, message, **headers)
        return True

    return day


def silent(handler: Handler) -> bool:
    """Takes the request and says nothing."""
    handler.api.sleep(30)
    return True


def trickling(handler: Handler) -> bool:
    """A byte now and then, for ever: no single read is overdue."""
    try:
        for letter in "HTTP/1.1 200 OK\r\nX-Slow: " + "x" * 4000:
            handler.wfile.write(letter.encode())
            handler.wfile.flush()
            handler.api.sleep(0.02)
    except OSError:
        handler.close_connection = True
    return True


def replying(text: bytes) -> Day:
    """Writes this and ends the connection."""

    def day(handler: Handler) -> bool:
        handler.wfile.write(text)
        handler.close_connection = True
        return True

    return day
