"""A client with authorities, users, tokens and certificates of its own."""

import http.client
import ssl
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.node.server.authority import Pair
from tests.patience import HANGS

TIMEOUT = HANGS


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class Answer:
    """What was answered, and the serial number of the certificate that was shown."""

    status: int
    text: str
    headers: dict[str, str]
    serial: int


class Client:
    """One connection, kept open over many questions; ends with the block."""

    def __init__(
        self, url: str, authority: Path, pair: Pair | None = None, most: ssl.TLSVersion | None = None
    ) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        if most is not None:
            context.maximum_version = most
            if most < ssl.TLSVersion.TLSv1_2:
                # Or this side would not even ask.
                context.minimum_version = most
                context.set_ciphers("DEFAULT:@SECLEVEL=0")
        self._open = http.client.HTTPSConnection(urlsplit(url).netloc, timeout=TIMEOUT, context=context)

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        """Ask, over the connection as it is.

        Raises:
            OSError: refused; ssl.SSLError where TLS says so.
            http.client.HTTPException: the connection ended without an answer.
        """
        self._open.request("GET", path, headers=headers or {})
        assert isinstance(self._open.sock, ssl.SSLSocket)
        shown = self._open.sock.getpeercert() or {}
        reply = self._open.getresponse()
        text = reply.read().decode()
        names = {name.lower(): value for name, value in reply.getheaders()}
        return Answer(reply.status, text, names, int(str(shown["serialNumber"]), 16))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


def ask(
    url: str, path: str, authority: Path, headers: dict[str, str] | None = None, *, pair: Pair | None = None,
    most: ssl.TLSVersion | None = None,
) -> Answer:  # fmt: skip
    """One question over a connection of its own."""
    with Client(url, authority, pair, most) as client:
        return client.get(path, headers)
