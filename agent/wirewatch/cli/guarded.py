"""The port of the daemon or the controller, with the guard of its web configuration."""

import socket
from contextlib import ExitStack
from pathlib import Path

from wirewatch.config import Listen, address
from wirewatch.server.guard import Hosts, PortGuard
from wirewatch.server.passwords import Passwords
from wirewatch.server.reload import CurrentSettings, WebCounts
from wirewatch.server.sockets import tcp

Port = tuple[socket.socket, PortGuard]


def guard(listen: Listen, instead: str | None, web_config: str | None, stack: ExitStack) -> Port:
    """Return the listening port and its guard; `instead` and `web_config` override the configuration.

    Raises ListenError: the address cannot be listened on. Raises WebConfigError: the web configuration cannot
    be used.
    """
    # Before the port opens, so that no first request finds it unguarded.
    counts, file = WebCounts(), listen.web_config if web_config is None else web_config
    web = PortGuard(counts)
    if file:
        web = PortGuard(counts, current=CurrentSettings(Path(file), counts), passwords=Passwords())
    port = stack.enter_context(tcp(*address(instead or listen.address)))
    hosts = Hosts.of(listen.hosts, port.getsockname()[0])
    return port, PortGuard(counts, hosts, web.current, web.passwords)
