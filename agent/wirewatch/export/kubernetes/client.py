"""One request to the API server: HTTP over TLS, with one deadline for all of it.

No connection is kept: there is one request in minutes, and one that idles so long is mostly dead on the way.
Redirects are not followed, since the token would go with them; proxies of the environment are not asked.
"""

import socket
import ssl

from wirewatch import __version__
from wirewatch.export.kubernetes.credentials import Credentials, Place
from wirewatch.export.kubernetes.documents import Strange
from wirewatch.hw.httpclient import HttpReply, NotHttp, exchange, left

LIMIT = 8 << 20
"""Bytes of an answer; etcd has no object of that size."""
PATCH_TYPE = "application/strategic-merge-patch+json"


def patch_status(where: Place, who: Credentials, body: bytes, end: float) -> HttpReply:
    """PATCH the status of our node; blocks until `end` (monotonic seconds) at most.

    Raises:
        OSError: nobody answers (TimeoutError: in time), or TLS fails (ssl.SSLError).
        Strange: the answer is no HTTP, no whole one, or too long.
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
            raise Strange(f"not what an API server answers: {error}") from error


def _connect(where: Place, who: Credentials, end: float) -> ssl.SSLSocket:
    """To the first address that answers."""
    failure = OSError(f"{where.host} has no address")
    for address in who.addresses:
        try:
            with socket.create_connection((address, where.port), left(end)) as server:
                server.settimeout(left(end))
                return who.tls.wrap_socket(server, server_hostname=where.host)  # takes it over
        except OSError as error:
            failure = error
    raise failure
