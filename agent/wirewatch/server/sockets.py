"""The sockets that the daemon listens on; a failure is one line for the user."""

import errno
import grp
import os
import socket
from pathlib import Path

from wirewatch.client import listens, unfit
from wirewatch.core.types import Unusable

CONTROL = "control.sock"
HIGHEST = 65535
DEMO = "wirewatch-demo"
"""Folder of a demo's sockets."""


class ListenError(Unusable):
    """An address that cannot be listened on; the text is one line for the user."""


def tcp(host: str, port: int) -> socket.socket:
    """A listening TCP socket; ListenError for an unknown host, an address in use or not ours.

    IPPROTO_TCP is named because asyncio sets TCP_NODELAY only on sockets that say so; without it replies
    wait 44 ms for a delayed acknowledgement.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((host, port))
        server.listen(128)
    except OSError as error:
        server.close()
        raise ListenError(f"cannot listen on {host}:{port}: {_why(error, port)}") from error
    return server


def local(path: str, mode: int = 0o666, group: str | None = None) -> socket.socket:
    """A listening unix socket; by default every user of this machine may connect, to ask.

    `group`, by name or number, becomes the group of the socket. Raises ListenError: the folder cannot be made
    or written, something else is there, or another agent answers there; no such group.
    """
    place = Path(path)
    wrong = unfit(path)
    if wrong:
        raise ListenError(f"cannot listen on {path}: {wrong}")
    try:
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _remove_stale(place)
        return _listening(path, mode, group)
    except OSError as error:
        raise ListenError(f"cannot listen on {path}: {error.strerror or error}") from error
    except LookupError as error:
        raise ListenError(f"cannot listen on {path}: {error.args[0]}") from error


def control(path: str) -> socket.socket:
    """Open the socket for orders beside the socket at `path`, for the daemon's own user alone.

    Raises ListenError: see `local`; or `path` itself has its name.
    """
    place = control_path(path)
    if place == path:
        raise ListenError(f"cannot listen on {path}: this is the name of the socket for orders beside it")
    return local(place, 0o600)


def control_path(path: str) -> str:
    """Return the path of the socket for orders beside the socket at `path`; "" for ""."""
    return str(Path(path).with_name(CONTROL)) if path else ""


def default_path() -> str:
    """The default path: in the folder of the service manager, the system (as root) or the user, or ""."""
    for folder in (os.environ.get("RUNTIME_DIRECTORY", ""), "/run/wirewatch" if os.geteuid() == 0 else ""):
        if folder:
            return f"{folder.partition(':')[0]}/wirewatch.sock"
    user = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{user}/wirewatch/wirewatch.sock" if user else ""


def demo_path() -> str:
    """Where the demo of this user listens: the same place for all of the user's shells."""
    user = os.environ.get("XDG_RUNTIME_DIR", "")
    if not user and os.geteuid():
        # Anybody may make this folder: the demo refuses one that is not this user's, and so do those who ask.
        return f"/tmp/{DEMO}-{os.geteuid()}/wirewatch.sock"  # noqa: S108
    return f"{user or '/run'}/{DEMO}/wirewatch.sock"


def _why(error: OSError, port: int) -> str:
    """Say what is wrong, and for a busy port what to do."""
    if error.errno != errno.EADDRINUSE:
        return error.strerror or str(error)
    other = port + 1 if port < HIGHEST else port - 1
    return f"another program uses that port; choose one, such as --listen 127.0.0.1:{other}"


def _listening(path: str, mode: int, group: str | None) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(path)
        # Before listen(): no client can connect yet.
        os.chmod(path, mode)  # noqa: PTH101 - a socket's name
        if group is not None:
            os.chown(path, -1, _group(group))
        server.listen(128)
    except BaseException:
        server.close()
        raise
    return server


def _group(group: str) -> int:
    """The number of a group. Not shutil.chown: it imports compression, and `check` imports this module."""
    try:
        return int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise LookupError(f"no such group: {group!r}") from None


def _remove_stale(place: Path) -> None:
    """Remove the socket of an agent that has ended; never another file, never that of a running agent."""
    if listens(str(place)):
        raise ListenError(f"cannot listen on {place}: another agent answers there")
    if place.exists():
        place.unlink()
