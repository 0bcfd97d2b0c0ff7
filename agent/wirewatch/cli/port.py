"""The port of `wirewatch serve`, and who may ask there."""

import logging
import socket
from contextlib import ExitStack
from pathlib import Path

from wirewatch.config import Listen, address
from wirewatch.core.ports import Hardware
from wirewatch.server.guard import Hosts, Web
from wirewatch.server.reload import Counts
from wirewatch.server.sockets import tcp

log = logging.getLogger(__name__)

Port = tuple[socket.socket, Web]


def guard(listen: Listen, instead: str | None, web_config: str | None, stack: ExitStack) -> Port:
    """The listening port and what guards it; `instead` and `web_config` are the command line's, if given.

    Raises:
        ListenError: it cannot be listened on.
        WebConfigError: the web configuration cannot be used.
    """
    # Before the port is there: whoever comes first shall not find it unguarded.
    counts, file = Counts(), listen.web_config if web_config is None else web_config
    web = _configured(Path(file), counts) if file else Web(counts)
    port = stack.enter_context(tcp(*address(instead or listen.address)))
    hosts = Hosts.of(listen.hosts, port.getsockname()[0])
    return port, Web(counts, hosts, web.current, web.passwords)


def _configured(file: Path, counts: Counts) -> Web:
    from wirewatch.server.passwords import Passwords
    from wirewatch.server.reload import Current

    return Web(counts, current=Current(file, counts), passwords=Passwords())


def announce(hardware: Hardware, port: socket.socket, web: Web) -> None:
    """Where to ask, and one line of warning where more may read it than may be meant."""
    host, number = port.getsockname()[:2]
    settings = web.look()
    scheme = "https" if settings.tls else "http"
    base = f"{scheme}://[{host}]:{number}" if ":" in host else f"{scheme}://{host}:{number}"
    log.info("%s: reading %s", hardware.source, hardware.about)
    for path in ("/", "/metrics", "/health", "/api/v1/state"):
        log.info("%s%s", base, path)
    if web.hosts.loopback:
        return
    if web.current is None:
        log.warning(
            "%s: whoever reaches it may read it, there is no web configuration (docs/security.md)", base
        )
    elif settings.asks and not settings.tls:
        log.warning("%s: passwords and tokens go there unencrypted, the web configuration has no TLS", base)
