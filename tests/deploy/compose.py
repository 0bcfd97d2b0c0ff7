"""deploy/compose read as docker compose reads it: services, what they mount and what they run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"
FILE = FOLDER / "compose.yml"


@dataclass(frozen=True)
class Mount:
    """A file or folder of the repository as a container sees it; volumes of docker are none."""

    service: str
    source: Path
    target: str
    read_only: bool


@cache
def services() -> Mapping[str, Mapping[str, Any]]:
    """By name, with what they have from anchors."""
    told: Mapping[str, Mapping[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))["services"]
    return told


def mounts() -> Iterator[Mount]:
    for name, service in services().items():
        for volume in service.get("volumes", []):
            source, target, *how = volume.split(":")
            if source.startswith("."):
                yield Mount(name, (FOLDER / source).resolve(), target, how == ["ro"])


def source_of(service: str, target: str) -> Path:
    """Where in the repository a path of a container is from.

    Raises:
        LookupError: nothing of the repository is mounted there.
    """
    for mount in mounts():
        if mount.service == service and (target == mount.target or target.startswith(mount.target + "/")):
            return mount.source / target.removeprefix(mount.target).lstrip("/")
    raise LookupError(f"{service} has no {target}")


def agents() -> list[str]:
    return [name for name, service in services().items() if "build" in service]


def arguments(agent: str, listen: str) -> list[str]:
    """What `wirewatch` is started with there, listening elsewhere; files by their place in the repository."""
    command: list[str] = services()[agent]["command"]
    words = [word for one in command for word in one.split("=", 1)]
    words[words.index("--listen") + 1] = listen
    words[words.index("--config") + 1] = str(source_of(agent, words[words.index("--config") + 1]))
    return words
