"""The API server: address, credentials, requests, their results, and when the next is due.

The files rotate, so each request reads them. Random numbers are passed in.
"""

import ipaddress
import json
import math
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from pathlib import Path
from typing import Any, Self

from wirewatch import __version__
from wirewatch.client import HttpReply, NotHttp, exchange, left
from wirewatch.core.types import Sample, Tier, Unusable, family, whole
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
    """The needs of one request; `addresses` are numeric, in the order in which they are tried."""

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
    """Return the API server by configuration, else a container's environment; raises EndpointError.

    `server` is HOST:PORT, "" for KUBERNETES_SERVICE_HOST and _PORT; `node` our node's name, "" for NODE_NAME.
    """
    name = node or environ.get("NODE_NAME", "")
    if not name:
        said = "which node this is must be told: NODE_NAME, or `node`"
        raise EndpointError(f"kubernetes.node_condition: {said}")
    if not _NAME.fullmatch(name):
        raise EndpointError(f"kubernetes.node_condition: not the name of a node: {name!r}")
    return api_server(server, folder, environ, "kubernetes.node_condition", name)


def api_server(server: str, folder: str, environ: Mapping[str, str], who: str, node: str = "") -> ApiEndpoint:
    """Return the API server without a node; raises EndpointError, which names `who` needs it."""
    host, _, port = server.rpartition(":")
    if not server:
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not (server or host):
        said = "KUBERNETES_SERVICE_HOST is not set; outside a pod give `api_server` and `credentials`"
        raise EndpointError(f"{who}: no API server: {said}")
    host = host.strip("[]")
    number = whole(port) or 0
    if not 0 < number <= 65535 or not _HOST.fullmatch(host):  # noqa: PLR2004
        raise EndpointError(f"{who}: not HOST:PORT of an API server: {server or f'{host}:{port}'!r}")
    return ApiEndpoint(host, number, Path(folder), node)


def credentials(where: ApiEndpoint) -> ApiAccess:
    """Read token and CA, and look the name up; for a thread that may hang.

    Raises OSError for a file or a name that is wrong or not there, ValueError for a host that is no name.
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
    """Return our condition in that node's document, or None; else UnexpectedReply. `at`: for a bad time."""
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

    Raises OSError where no address answers (TimeoutError: in time) or TLS fails, else UnexpectedReply.
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


class RequestResult(Enum):
    """The result of a request: the label `result` of a metric, and its `meaning`."""

    meaning: str

    def __new__(cls, label: str, meaning: str) -> Self:
        made = object.__new__(cls)
        made._value_, made.meaning = label, meaning
        return made

    OK = "ok", "written, or read after a start"
    NO_CREDENTIALS = (
        "no_credentials", "token or CA cannot be read, or the name of the API server is not known",
    )  # fmt: skip
    UNREACHABLE = "unreachable", "no answer in time, the connection broke, or TLS failed"
    UNAUTHORIZED = "unauthorized", "401: the token is not valid, or no longer; each request reads it again"
    FORBIDDEN = "forbidden", "403: the ServiceAccount may not `patch` `nodes/status`, or a policy forbids it"
    NOT_FOUND = "not_found", "404: there is no node of that name"
    CONFLICT = "conflict", "409: the node changed meanwhile, again and again"
    THROTTLED = "throttled", "429: the API server asks to wait, and the agent waits"
    REJECTED = "rejected", "another 4xx: the request is not accepted"
    SERVER_ERROR = "server_error", "5xx: the API server has a fault"
    STRANGE = "strange", "a redirect, or an answer that no API server gives"


_BY_STATUS = {
    401: RequestResult.UNAUTHORIZED,
    403: RequestResult.FORBIDDEN,
    404: RequestResult.NOT_FOUND,
    409: RequestResult.CONFLICT,
    429: RequestResult.THROTTLED,
}
_FOR_PEOPLE = frozenset(
    {RequestResult.FORBIDDEN, RequestResult.NOT_FOUND, RequestResult.REJECTED, RequestResult.STRANGE}
)
"""Only people can repair these, so the next try is later."""
FIRST, LONGEST, LONGEST_FOR_PEOPLE = 2.0, 60.0, 300.0
"""Seconds until a request is tried again: after the first failure, and at most."""
LONGEST_WAIT = 3600.0
"""Seconds; the longest wait that a server can ask for."""
SPREAD = 10.0
"""Seconds over which nodes that learn of the same thing at once spread their requests."""
MESSAGE_INTERVAL = 60.0
"""Seconds between two writes that change only reason and message."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`retry_after` in seconds, None when the server does not say; `detail` for people."""

    result: RequestResult
    detail: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """When the next request may be made, and is made at the latest (monotonic seconds); failures in a row."""

    earliest: float
    latest: float
    failures: int = 0
    wrote: float = -math.inf


_UNDRAWN = "Kubernetes only, where kube-state-metrics shows node conditions"
STATUS = family("node_condition_status", ("status",),
    "1 for the status of the node condition that the agent reports; all 0 while there is none.",
    undrawn=_UNDRAWN,
)  # fmt: skip
TRANSITION = family("node_condition_last_transition_timestamp_seconds", (),
    "Since when the node condition has this status; 0 while there is none.", undrawn=_UNDRAWN,
)  # fmt: skip
UPDATED = family("node_condition_last_update_timestamp_seconds", (),
    "When the API server last accepted the node condition; 0 for never.", undrawn=_UNDRAWN, tier=Tier.CORE,
)  # fmt: skip
UPDATES = family("node_condition_updates_total", ("result",), "Requests to the API server, by result.",
    undrawn=_UNDRAWN,
)  # fmt: skip
METRICS = (STATUS, TRANSITION, UPDATED, UPDATES)


@dataclass(frozen=True, slots=True)
class ConditionReport:
    """The condition, when it was last accepted (Unix seconds, 0 for never), and requests by result."""

    condition: Condition | None = None
    updated_at: float = 0.0
    updates: Mapping[RequestResult, int] = field(default_factory=lambda: dict.fromkeys(RequestResult, 0))


def outcome_of(reply: HttpReply, now: float) -> Outcome:
    """The meaning of a reply that came at `now`, Unix seconds."""
    if 200 <= reply.status < 300:  # noqa: PLR2004
        return Outcome(RequestResult.OK)
    result = _BY_STATUS.get(reply.status)
    if result is None:
        by_class = {4: RequestResult.REJECTED, 5: RequestResult.SERVER_ERROR}
        result = by_class.get(reply.status // 100, RequestResult.STRANGE)
    text = message_of(reply.body)
    wait = retry_after(reply.headers.get("retry-after", ""), now)
    return Outcome(result, f"{reply.status}{f': {text}' if text else ''}", wait)


def retry_after(text: str, now: float) -> float | None:
    """Seconds that the server wants us to wait, given as such or as a date; None when it does not say."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), LONGEST_WAIT) if math.isfinite(seconds) else None


def begin(now: float, chance: float) -> Pace:
    """The pace of an agent that has just started; `chance` in [0, 1), here and below."""
    at = now + SPREAD * chance
    return Pace(at, at)


def succeeded(pace: Pace, now: float, heartbeat: float, chance: float) -> Pace:
    """After a write; `heartbeat`: seconds to the next one when nothing changes, give or take a tenth."""
    return replace(pace, earliest=now, latest=now + heartbeat * (0.9 + 0.2 * chance), failures=0, wrote=now)


def failed(pace: Pace, now: float, outcome: Outcome, chance: float) -> Pace:
    """After a failure: twice as long each time, half of it chance; never sooner than the server says."""
    longest = LONGEST_FOR_PEOPLE if outcome.result in _FOR_PEOPLE else LONGEST
    wait = min(longest, FIRST * 2.0 ** min(pace.failures, 16)) * (0.5 + 0.5 * chance)
    if outcome.retry_after is not None:
        wait = max(wait, outcome.retry_after + SPREAD * chance)
    return replace(pace, earliest=now + wait, latest=now + wait, failures=pace.failures + 1)


def changed(pace: Pace, now: float, chance: float, *, status: bool) -> Pace:
    """After a change: `status` for a new status, else only reason or message. Earlier waits are kept."""
    soonest = now + SPREAD * chance
    if not status:
        soonest = max(soonest, pace.wrote + MESSAGE_INTERVAL)
    return replace(pace, latest=min(pace.latest, max(pace.earliest, soonest)))


def samples(report: ConditionReport) -> Iterator[Sample]:
    """The series of the report."""
    mine = report.condition
    for status in ConditionStatus:
        yield STATUS.sample(mine is not None and mine.status is status, status.value.lower())
    yield TRANSITION.sample(mine.transition if mine else 0.0)
    yield UPDATED.sample(report.updated_at)
    for result, count in report.updates.items():
        yield UPDATES.sample(count, result.value)
