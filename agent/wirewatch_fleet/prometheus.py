"""Prometheus over HTTP: instant queries, with the credentials and certificates of users."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import urlencode, urlsplit

from wirewatch import __version__
from wirewatch.core.types import NotText, Unusable, utf8
from wirewatch_fleet.worst import SeriesValue

LIMIT = 64 << 20
"""Most bytes of an answer."""
_SHOWN = 1 << 16
"""Bytes read of a refusal."""
_SAID = 300
"""Characters of a refusal that are shown."""


class NoPrometheus(Exception):
    """Prometheus did not answer, or refused; one line for the user."""


class AccessError(Unusable):
    """The address, a credential or a certificate cannot be used; one line for the user."""


@dataclass(frozen=True, slots=True)
class Access:
    """The place of a Prometheus, and access to it; `timeout` in seconds for each query.

    `url` may have a path, as behind a proxy or of Mimir. Credentials go to this host alone, not to where it
    redirects.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    timeout: float = 10.0

    def __repr__(self) -> str:
        return f"Access({self.url!r})"


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Points of an instant query.

    `warnings`: the answer is incomplete, such as when a store of Thanos is away.
    """

    points: tuple[SeriesValue, ...]
    warnings: tuple[str, ...] = ()


def address(url: str) -> str:
    """Return the base address, without a slash at its end.

    Raises:
        AccessError: it is no http or https address, or has a user, a query or a fragment.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        raise AccessError(f"not the address of a Prometheus, such as http://prometheus:9090: {url!r}")
    if parts.username is not None or parts.query or parts.fragment:
        raise AccessError(
            "the address of Prometheus has a user, a query or a fragment: use --user for a user"
        )
    return url.rstrip("/")


def secret(path: Path) -> str:
    """Return the single line of a file with a token or a password.

    Raises:
        AccessError: it cannot be read, or is not one line of visible characters.
    """
    try:
        text = utf8(path.read_bytes()).strip()
    except NotText as error:
        raise AccessError(f"{path}: {error}") from error
    except OSError as error:
        raise AccessError(f"{path} cannot be read: {error}") from error
    if not text or not text.isprintable():
        raise AccessError(f"{path} is not one line with a token or a password")
    return text


def bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(user: str, password: str) -> Mapping[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def tls(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return the TLS context: trusted CAs (None: the system's), and our certificate.

    Raises:
        AccessError: a file cannot be read, or is no certificate or key.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        # Since Python 3.13 on by default, and CAs of many clusters have no Authority Key Identifier.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if certificate is not None:
            context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise AccessError(f"{ca or certificate}: no certificate or key that can be used: {error}") from error
    return context


def instant(access: Access, query: str, at: float) -> QueryResult:
    """Return the answer to a query at `at`, Unix seconds.

    Raises:
        NoPrometheus: see there.
    """
    target = f"{access.url}/api/v1/query?{urlencode({'query': query, 'time': f'{at:.3f}'})}"
    try:
        status, body = _get(access, target)
    except (OSError, HTTPException, ValueError) as error:
        raise NoPrometheus(f"{access.url}: {_why(error, access.timeout)}") from error
    return result_of(access.url, status, body)


def _get(access: Access, target: str) -> tuple[int, bytes]:
    """Return status and body by the deadline, even with unknown names or answers byte by byte.

    urllib's timeout restarts with each byte, so another thread asks, and is abandoned after the deadline.
    """
    answers: SimpleQueue[tuple[int, bytes] | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(_asked(access, target))
        except (OSError, HTTPException, ValueError) as error:
            answers.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=access.timeout)
    except Empty:
        raise TimeoutError from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _asked(access: Access, target: str) -> tuple[int, bytes]:
    asked = urllib.request.Request(target, headers={"User-Agent": f"wirewatch/{__version__}"})  # noqa: S310 - `address`
    for name, value in access.headers.items():
        asked.add_unredirected_header(name, value)
    try:
        reply: HTTPResponse = _opener(access).open(asked, timeout=access.timeout)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_SHOWN)
    with reply:
        body = reply.read(LIMIT + 1)
    if len(body) > LIMIT:
        raise ValueError(f"its answer is longer than {LIMIT >> 20} MiB")
    return reply.status, body


def _opener(access: Access) -> urllib.request.OpenerDirector:
    """Return an opener for only HTTP and HTTPS, with the environment's proxies, also for redirects."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(), urllib.request.UnknownHandler(), urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=access.tls), urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(), urllib.request.HTTPErrorProcessor(),
    ):  # fmt: skip
        opener.add_handler(handler)
    return opener


def _why(error: Exception, timeout: float) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return f"no answer within {timeout:g} s"
    if isinstance(reason, ssl.SSLError):
        return f"TLS: {reason.verify_message if isinstance(reason, ssl.SSLCertVerificationError) else reason}"
    text = str(reason) or type(reason).__name__
    return text.partition("] ")[2] or text


def result_of(url: str, status: int, body: bytes) -> QueryResult:
    """Return the result in a reply to an instant query; raises NoPrometheus where there is none."""
    if status != HTTPStatus.OK:
        advice = {
            HTTPStatus.UNAUTHORIZED: "; give --token-file or --user, or a tenant by --header",
            HTTPStatus.FORBIDDEN: "; the credentials do not suffice",
        }.get(HTTPStatus(status) if status in set(HTTPStatus) else HTTPStatus.OK, "")
        raise NoPrometheus(f"{url}: HTTP {status}{_refusal(body)}{advice}")
    try:
        made: Any = json.loads(body)
        data = made["data"] if made["status"] == "success" and made["data"]["resultType"] == "vector" else {}
        points = tuple(_point(one) for one in data["result"])
        return QueryResult(points, tuple(str(one) for one in made.get("warnings") or ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NoPrometheus(f"{url}: the answer is not from a Prometheus") from error


def _refusal(body: bytes) -> str:
    """Return the text of Prometheus' refusal, or of Mimir's line of plain text; "" without any."""
    try:
        text = str(json.loads(body)["error"])
    except (KeyError, TypeError, RecursionError):
        return ""
    except ValueError:
        text = body.decode("utf-8", "replace").strip()
        if not text.isprintable() or len(text) > _SAID or "<" in text:
            return ""
    text = "".join(one if one.isprintable() else " " for one in text)
    return f": {text[:_SAID]}" if text else ""


def _point(one: Mapping[str, Any]) -> SeriesValue:
    labels: Mapping[str, Any] = one["metric"]
    value: Sequence[Any] = one["value"]
    return SeriesValue({str(name): str(text) for name, text in labels.items()}, float(value[1]))
