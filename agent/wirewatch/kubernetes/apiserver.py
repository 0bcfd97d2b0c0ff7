"""The API server: its address, the credentials, and requests. The files rotate: each request reads them."""

import ipaddress
import json
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from wirewatch import __version__
from wirewatch.client import HttpReply, NotHttp, exchange, left
from wirewatch.core.types import Unusable, whole
from wirewatch.core.words import stamp
from wirewatch.kubernetes.condition import TYPE, Condition, ConditionStatus, shortened

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*|[0-9A-Fa-f:.]+")
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")


class EndpointError(Unusable):
    """The API server or the node is not configured; one line for the user."""


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """The API server, the folder with `token` and `ca.crt`, and the name of our node."""

    host: str
    port: int
    folder: Path
    node: str


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """What one request needs; `addresses` are numeric, in the order in which they are tried."""

    token: str
    tls: ssl.SSLContext
    addresses: tuple[str, ...]

    def __repr__(self) -> str:
        return "ApiAccess(...)"


NOTHING = b"{}"
"""An empty patch: the answer is the node as it is."""
_MESSAGE_BYTES = 300
"""Bytes of a message of the server that are repeated in ours."""


class UnexpectedReply(Exception):
    """An answer that no API server gives; the text is one line."""


LIMIT = 8 << 20
"""Bytes of an answer; etcd has no object of that size."""
PATCH_TYPE = "application/strategic-merge-patch+json"


def endpoint(server: str, folder: str, node: str, environ: Mapping[str, str]) -> ApiEndpoint:
    """Return the API server by configuration, else by a container's environment.

    `server` is HOST:PORT, "" for KUBERNETES_SERVICE_HOST and _PORT; `node` our node's name, "" for NODE_NAME.
    Raises EndpointError: a value is missing, or not a name.
    """
    name = node or environ.get("NODE_NAME", "")
    if not name:
        raise EndpointError(
            "kubernetes.node_condition: which node this is must be told: NODE_NAME, or `node`"
        )
    if not _NAME.fullmatch(name):
        raise EndpointError(f"kubernetes.node_condition: not the name of a node: {name!r}")
    return api_server(server, folder, environ, "kubernetes.node_condition", name)


def api_server(server: str, folder: str, environ: Mapping[str, str], who: str, node: str = "") -> ApiEndpoint:
    """Return the API server without a node; raises EndpointError, which names `who` needs it."""
    host, _, port = server.rpartition(":")
    if not server:
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not (server or host):
        raise EndpointError(
            f"{who}: no API server: KUBERNETES_SERVICE_HOST is not set; outside a pod "
            "give `api_server` and `credentials`"
        )
    host = host.strip("[]")
    number = whole(port) or 0
    if not 0 < number <= 65535 or not _HOST.fullmatch(host):  # noqa: PLR2004
        raise EndpointError(f"{who}: not HOST:PORT of an API server: {server or f'{host}:{port}'!r}")
    return ApiEndpoint(host, number, Path(folder), node)


def credentials(where: ApiEndpoint) -> ApiAccess:
    """Read token and CA, and look the name up.

    Blocks; for a thread that may hang. Raises OSError for a file or a name that is not there or wrong,
    ValueError for a host that cannot be a name.
    """
    token = (where.folder / "token").read_text("ascii", errors="replace").strip()
    if not _TOKEN.fullmatch(token):
        raise OSError(f"{where.folder / 'token'} holds no token")
    tls = ssl.create_default_context(cafile=where.folder / "ca.crt")
    # Since Python 3.13 on by default, and CAs of many clusters have no Authority Key Identifier.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return ApiAccess(token, tls, _addresses(where))


def patch(condition: Condition, at: float) -> bytes:
    """A strategic merge patch of the node's status: conditions merge by their type, so only ours changes."""
    fields = {
        "type": TYPE,
        "status": condition.status.value,
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": stamp(at),
        "lastTransitionTime": stamp(condition.transition),
    }
    return json.dumps({"status": {"conditions": [fields]}}).encode()


def condition_in(text: bytes, node: str, at: float) -> Condition | None:
    """Return our condition in a node's document, None for none; `at` replaces an unreadable time.

    Raises UnexpectedReply: it is not the document of that node.
    """
    try:
        document = json.loads(text)
        name, found = document["metadata"]["name"], document["status"].get("conditions") or []
        (mine,) = [one for one in found if one["type"] == TYPE] or [None]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnexpectedReply("the answer is no node") from error
    if document.get("kind") != "Node" or name != node:
        raise UnexpectedReply(f"the answer is not about node {node}")
    return None if mine is None else _condition(mine, at)


def message_of(text: bytes) -> str:
    """The message of a refusal, in one line; "" when there is none."""
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return shortened(message, _MESSAGE_BYTES) if isinstance(message, str) else ""


def patch_status(where: ApiEndpoint, who: ApiAccess, body: bytes, end: float) -> HttpReply:
    """PATCH the status of our node; blocks until `end` (monotonic seconds) at most.

    Raises OSError where no address answers (TimeoutError: in time) or TLS fails, UnexpectedReply for no whole
    HTTP answer.
    """
    host = f"[{where.host}]" if ":" in where.host else where.host
    headers = (
        ("Host", f"{host}:{where.port}"),
        ("Authorization", f"Bearer {who.token}"),
        ("User-Agent", f"wirewatch/{__version__}"),
        ("Accept", "application/json"),
        ("Content-Type", PATCH_TYPE),
    )
    target = f"/api/v1/nodes/{where.node}/status?fieldManager=wirewatch"
    with _connect(where, who, end) as server:
        try:
            return exchange(server, "PATCH", target, headers, body, end, LIMIT)
        except EOFError as error:
            raise ConnectionResetError("the connection ended before the answer") from error
        except NotHttp as error:
            raise UnexpectedReply(f"not what an API server answers: {error}") from error


def _addresses(where: ApiEndpoint) -> tuple[str, ...]:
    try:
        return (str(ipaddress.ip_address(where.host)),)
    except ValueError:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(str(one[4][0]) for one in found))


def _condition(fields: dict[str, Any], at: float) -> Condition | None:
    status = next((one for one in ConditionStatus if one.value == fields.get("status")), None)
    if status is None:
        return None
    reason, message = (str(fields.get(key) or "") for key in ("reason", "message"))
    return Condition(status, reason, shortened(message), _moment(fields.get("lastTransitionTime"), at))


def _moment(text: object, at: float) -> float:
    """Unix seconds, never in the future."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return at
    return min(moment.timestamp(), at) if moment.tzinfo else at


def _connect(where: ApiEndpoint, who: ApiAccess, end: float) -> ssl.SSLSocket:
    failure = OSError(f"{where.host} has no address")
    for address in who.addresses:
        try:
            with socket.create_connection((address, where.port), left(end)) as server:
                server.settimeout(left(end))
                return who.tls.wrap_socket(server, server_hostname=where.host)  # takes it over
        except OSError as error:
            failure = error
    raise failure
