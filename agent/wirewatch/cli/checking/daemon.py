"""Where the daemon listens, and what it says."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirewatch.cli.checking.document import NotUnderstood, Stale, read_health
from wirewatch.cli.checking.values import Grounds
from wirewatch.core.types import Unusable
from wirewatch.hw.httpclient import NoAnswer, request
from wirewatch.server.sockets import default_path

SYSTEM = "/run/wirewatch/wirewatch.sock"
"""The system's daemon, which answers everybody; a caller who is not root has another default."""
VERDICTS = (200, 503)


@dataclass(frozen=True, slots=True)
class Place:
    """The daemon's socket, "" for none, and whether the policy of the configuration wants a fresh probe."""

    socket: str
    required: bool = False


def place(given: str | None, config: Path | None) -> Place:
    """Where to ask: as given, as configured, or where daemons listen by default.

    Raises:
        Unusable: the configuration cannot be read, or has nonsense in these two places.
    """
    if config is None:
        return Place(_usual() if given is None else given)
    told = _toml(config)
    socket = _in(told, "listen").get("socket")
    required = _in(_in(told, "policy"), "verdict").get("require_fresh_probe", False)
    if not isinstance(socket, str | None):
        raise Unusable(f"{config}: listen.socket: not a text: {socket!r}")
    if not isinstance(required, bool):
        raise Unusable(f"{config}: policy.verdict.require_fresh_probe: not true or false: {required!r}")
    path = given if given is not None else socket
    return Place(_usual() if path is None else path, required)


def _toml(config: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(config.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"{config}: {getattr(error, 'strerror', None) or error}") from error


def _in(told: dict[str, Any], name: str) -> dict[str, Any]:
    """A section; what is none is told by who reads the whole configuration."""
    value = told.get(name)
    return value if isinstance(value, dict) else {}


def _usual() -> str:
    places = [path for path in (default_path(), SYSTEM) if path]
    return next((path for path in places if os.path.exists(path)), places[0])  # noqa: PTH110 - a socket's name


def ask_daemon(path: str, deadline: float) -> Grounds | str:
    """What the daemon knows, `deadline` in seconds; or why it has not told."""
    if not path:
        return "no socket is configured to ask a daemon at"
    try:
        status, body = request(path, "GET", "/health", None, deadline)
        if status not in VERDICTS:
            return f"{path}: HTTP status {status} instead of a verdict"
        return read_health(body, time.time())
    except NoAnswer as error:
        return str(error)
    except (NotUnderstood, Stale) as error:
        return f"{path}: {error}"
