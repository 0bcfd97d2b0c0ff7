"""The guard of the port: refuses requests by Host header, client certificate, password or token."""

import binascii
import hashlib
import hmac
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from wirewatch.server.passwords import REFILL, PasswordResult, Passwords, origin
from wirewatch.server.reload import CurrentSettings, WebCounts
from wirewatch.server.webconfig import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
CERTIFICATE = "wirewatch.certificate"
"""Key in the state of the scope: whether a verified client certificate was given."""
TLS = "wirewatch.tls"
"""Key in the state of the scope: the TLS context with which the connection began; None for plain HTTP."""
_BODY = {
    401: b"authentication required\n",
    421: b"this Host name is not served here\n",
    429: b"too many passwords to check: try again later\n",
}
Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class WebRefusal:
    """A refused request: the reason that is counted, and the status and headers of the answer."""

    reason: str
    status: int
    headers: Headers = ()


_NO_SETTINGS = Settings()
_LOCAL = "localhost"


@dataclass(frozen=True, slots=True)
class Hosts:
    """Host headers that are answered.

    An attacker's page can point its own host name to this machine and read answers in a browser here (DNS
    rebinding). But the browser still sends that name. So a listener on a loopback address answers only to
    `localhost`, addresses and `names`. Other listeners answer to any name, unless `names` are given.
    """

    names: frozenset[str] = frozenset()
    loopback: bool = False

    @classmethod
    def of(cls, names: Sequence[str], address: str) -> "Hosts":
        """Return the hosts of a listener at a numeric address."""
        return cls(frozenset(name.lower() for name in names), is_loopback(address))

    def answers(self, header: bytes | None) -> bool:
        """Tell whether a request with this Host header is answered; None for a request without one."""
        if header is None or not (self.loopback or self.names):
            return True
        name = _name(header.decode("latin-1"))
        return name == _LOCAL or name in self.names or _is_address(name)


@dataclass(frozen=True, slots=True)
class PortGuard:
    """The parts of a port's guard; `current` and `passwords` are None without a web configuration."""

    counts: WebCounts = field(default_factory=WebCounts)
    hosts: Hosts = field(default_factory=Hosts)
    current: CurrentSettings | None = None
    passwords: Passwords | None = None

    def settings(self) -> Settings:
        """The settings that are valid now."""
        return self.current.settings() if self.current is not None else _NO_SETTINGS


def guarded(application: Application, web: PortGuard) -> Application:
    """The application behind the guard: a request that it refuses does not reach the application."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        settings = web.settings()
        # Where its TLS settings have changed, a client might keep an old certificate for ever.
        closing = () if scope["state"].get(TLS) is settings.tls else ((b"connection", b"close"),)
        send = _with_headers(send, (*settings.headers, *closing))
        refusal = await _refusal(scope, settings, web)
        if refusal is None:
            await application(scope, receive, send)
            return
        web.counts.refuse(refusal.reason, _address(scope))
        body = _BODY[refusal.status]
        about = ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body)))
        headers = [*about, *refusal.headers]
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return guard


def is_loopback(address: str) -> bool:
    """Tell whether a numeric address is a loopback address."""
    return ip_address(address.partition("%")[0]).is_loopback


async def _refusal(scope: Scope, settings: Settings, web: PortGuard) -> WebRefusal | None:
    headers = dict(scope["headers"])
    if not web.hosts.answers(headers.get(b"host")):
        return WebRefusal("host", 421)
    if scope["path"] in settings.excluded:
        return None
    if settings.certificate and not scope["state"].get(CERTIFICATE):
        return WebRefusal("certificate_missing", 401)
    if not settings.asks:
        return None
    given = headers.get(b"authorization", b"")
    return await _check_credentials(given, settings, web.passwords, _address(scope))


async def _check_credentials(
    header: bytes, settings: Settings, passwords: Passwords | None, address: str
) -> WebRefusal | None:
    scheme, _, given = header.partition(b" ")
    result = PasswordResult.WRONG
    if not header:
        return WebRefusal("credentials_missing", 401, _challenges(settings))
    if scheme.lower() == b"bearer":
        result = PasswordResult.RIGHT if _token(settings.tokens, given.strip()) else PasswordResult.WRONG
    elif scheme.lower() == b"basic" and settings.users:
        assert passwords is not None  # noqa: S101 - a web configuration has them
        user, password = _basic(given)
        if user is not None:
            result = await passwords.check(settings.users, user, password, origin(address))
    if result is PasswordResult.BUSY:
        return WebRefusal("throttled", 429, ((b"retry-after", b"%d" % REFILL),))
    wrong = WebRefusal("credentials_wrong", 401, _challenges(settings))
    return None if result is PasswordResult.RIGHT else wrong


def _token(tokens: Mapping[str, bytes], given: bytes) -> bool:
    """Tell whether a token matches; compares all tokens, so that the time gives nothing away."""
    digest = hashlib.sha256(given).digest()
    return sum(hmac.compare_digest(digest, known) for known in tokens.values()) > 0


def _basic(given: bytes) -> tuple[str | None, bytes]:
    """User and password; None for what is neither."""
    try:
        user, colon, password = b64decode(given.strip(), validate=True).partition(b":")
        return (user.decode() if colon else None), password
    except (binascii.Error, UnicodeDecodeError):
        return None, b""


def _challenges(settings: Settings) -> Headers:
    known = (
        (settings.users, b'Basic realm="wirewatch", charset="UTF-8"'),
        (settings.tokens, b'Bearer realm="wirewatch"'),
    )
    return tuple((b"www-authenticate", challenge) for have, challenge in known if have)


def _address(scope: Scope) -> str:
    return str(scope["client"][0]) if scope["client"] else ""


def _with_headers(send: Send, wanted: Headers) -> Send:
    """Send with the configured headers, which replace the application's headers."""
    names = {name for name, _ in wanted}

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [pair for pair in message.get("headers", ()) if pair[0].lower() not in names]
            message["headers"] = [*others, *wanted]
        await send(message)

    return sending


def _name(header: str) -> str:
    """The name in `NAME`, `NAME:PORT`, `[V6]` and `[V6]:PORT`."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
