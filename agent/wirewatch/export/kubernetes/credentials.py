"""Where the API server is and who we are there: files that rotate, so they are read for each request."""

import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wirewatch.core.types import Unusable

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*|[0-9A-Fa-f:.]+")
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")


class PlaceError(Unusable):
    """It cannot be told where to tell it; one line for the user."""


@dataclass(frozen=True, slots=True)
class Place:
    """The API server, the folder with `token` and `ca.crt`, and the node that we are on."""

    host: str
    port: int
    folder: Path
    node: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """All that one request needs; `addresses` are numbers, in the order in which they are tried."""

    token: str
    tls: ssl.SSLContext
    addresses: tuple[str, ...]

    def __repr__(self) -> str:
        return "Credentials(...)"


def place(server: str, folder: str, node: str, environ: Mapping[str, str]) -> Place:
    """The place by configuration, else by what Kubernetes tells each container.

    `server` is HOST:PORT of the API server, "" for KUBERNETES_SERVICE_HOST and _PORT; `node` our node's name,
    "" for NODE_NAME.

    Raises:
        PlaceError: something is not told, or no name.
    """
    name = node or environ.get("NODE_NAME", "")
    if not name:
        raise PlaceError("kubernetes.node_condition: which node this is must be told: NODE_NAME, or `node`")
    if not _NAME.fullmatch(name):
        raise PlaceError(f"kubernetes.node_condition: not the name of a node: {name!r}")
    host, _, port = server.rpartition(":")
    if not server:
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not (server or host):
        raise PlaceError(
            "kubernetes.node_condition: no API server: KUBERNETES_SERVICE_HOST is not set; outside a pod "
            "give `api_server` and `credentials`"
        )
    host = host.strip("[]")
    right = port.isascii() and port.isdigit() and 0 < int(port) <= 65535  # noqa: PLR2004
    if not right or not _HOST.fullmatch(host):
        raise PlaceError(
            f"kubernetes.node_condition: not HOST:PORT of an API server: {server or f'{host}:{port}'!r}"
        )
    return Place(host, int(port), Path(folder), name)


def read(where: Place) -> Credentials:
    """Read token and CA, and look the name up. Blocks; for a thread that may hang.

    Raises:
        OSError: a file cannot be read, is no token or CA; or the name is not known.
        ValueError: what stands for a name can be none.
    """
    token = (where.folder / "token").read_text("ascii", errors="replace").strip()
    if not _TOKEN.fullmatch(token):
        raise OSError(f"{where.folder / 'token'} holds no token")
    tls = ssl.create_default_context(cafile=where.folder / "ca.crt")
    # Since Python 3.13 on by default, and CAs of many clusters have no Authority Key Identifier.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return Credentials(token, tls, _addresses(where))


def _addresses(where: Place) -> tuple[str, ...]:
    try:
        return (str(ipaddress.ip_address(where.host)),)
    except ValueError:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(str(one[4][0]) for one in found))
