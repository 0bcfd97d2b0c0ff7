"""One request to the API server: HTTP by h11 over asyncio's TLS, all of it within one deadline.

No connection is kept: there is one request in minutes, and one that idles so long is mostly dead on the way.
Redirects are not followed, since the token would go with them; proxies of the environment are not asked.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import h11

from wirewatch import __version__
from wirewatch.export.kubernetes.credentials import Credentials, Place
from wirewatch.export.kubernetes.documents import Strange

LIMIT = 8 << 20
"""Bytes of an answer; etcd has no object of that size."""
PATCH_TYPE = "application/strategic-merge-patch+json"
LONGEST = 3600.0
"""Seconds; the most that a server can make us wait."""
_PIECE = 1 << 16
_EARLY = "the connection ended before the answer"


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body; `retry_after` in seconds, None when the server does not say."""

    status: int
    body: bytes
    retry_after: float | None = None


async def patch_status(where: Place, who: Credentials, body: bytes) -> Answer:
    """PATCH the status of our node. The deadline is the caller's: cancel it.

    Raises:
        OSError: nobody answers, TLS fails (ssl.SSLError), or the connection ends too early.
        Strange: the answer is no HTTP, or too long.
    """
    reader, writer = await _connect(where, who)
    client = h11.Connection(h11.CLIENT)
    try:
        writer.write(_question(client, where, who.token, body))
        await writer.drain()
        return await _answer(client, reader)
    except h11.RemoteProtocolError as error:
        raise Strange(f"the answer is no HTTP: {error}") from error
    finally:
        # Not closed with the other end's consent, which may never come.
        writer.transport.abort()


async def _connect(where: Place, who: Credentials) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first address that answers."""
    failure = OSError(f"{where.host} has no address")
    for address in who.addresses:
        try:
            return await asyncio.open_connection(address, where.port, ssl=who.tls, server_hostname=where.host)
        except OSError as error:
            failure = error
    raise failure


def _question(client: h11.Connection, where: Place, token: str, body: bytes) -> bytes:
    host = f"[{where.host}]" if ":" in where.host else where.host
    headers = [
        ("Host", f"{host}:{where.port}"),
        ("Authorization", f"Bearer {token}"),
        ("User-Agent", f"wirewatch/{__version__}"),
        ("Accept", "application/json"),
        ("Content-Type", PATCH_TYPE),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    ]
    target = f"/api/v1/nodes/{where.node}/status?fieldManager=wirewatch"
    request = h11.Request(method="PATCH", target=target, headers=headers)
    parts = [client.send(event) for event in (request, h11.Data(data=body), h11.EndOfMessage())]
    return b"".join(part for part in parts if part)


async def _answer(client: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    status, wait, whole = 0, None, bytearray()
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(_PIECE)
            if not data and not status:
                raise ConnectionResetError(_EARLY)
            client.receive_data(data)
        elif isinstance(event, h11.Response):
            status, wait = event.status_code, retry_after(event.headers.raw_items(), time.time())
        elif isinstance(event, h11.Data):
            whole += event.data
            if len(whole) > LIMIT:
                raise Strange(f"the answer is larger than {LIMIT >> 20} MiB")
        elif isinstance(event, h11.EndOfMessage):
            return Answer(status, bytes(whole), wait)
        elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
            raise ConnectionResetError(_EARLY)


def retry_after(headers: Sequence[tuple[bytes, bytes]], now: float) -> float | None:
    """Seconds that the server wants us to wait, given as such or as a date; None when it does not say."""
    for name, value in headers:
        if name.lower() == b"retry-after":
            return _seconds(value.decode("ascii", errors="replace").strip(), now)
    return None


def _seconds(text: str, now: float) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), LONGEST) if math.isfinite(seconds) else None
