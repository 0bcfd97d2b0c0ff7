"""Plugins between NCCL and a network: what each sets, asks for, or checks (plugins.toml)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from wirewatch.busbw.profiles import NetworkKind, NetworkProfile
from wirewatch_lab.advice.rows import rows


@dataclass(frozen=True, slots=True)
class NetworkPlugin:
    """A plugin, or an image with its own settings. plugins.toml explains each field."""

    name: str
    kinds: Sequence[str]
    profiles: Sequence[str]
    signs: Sequence[str]
    how: Literal["sets", "checks", "asks"]
    file: str
    reads_ib: bool
    interfaces: str
    needed: Sequence[str]
    source: str
    wants: Mapping[str, Sequence[str]]

    def takes(self, name: str, value: str) -> bool | None:
        """Return whether a value is right; None for an unknown name."""
        if name not in self.wants:
            return None
        mine = _plain(value)
        return any(fnmatchcase(mine, _plain(one)) for one in self.wants[name])

    def signed(self, settings: Mapping[str, str]) -> bool:
        """Return whether settings show that a job is made for it."""
        made = [f"{name}={value}".lower() for name, value in settings.items()]
        patterns = [f"{one}*".lower() for one in self.signs]
        return any(fnmatchcase(one, pattern) for one in made for pattern in patterns)


@cache
def plugins() -> tuple[NetworkPlugin, ...]:
    """Return all known plugins."""
    return tuple(
        NetworkPlugin(name=name, **fields) for name, fields in rows(__package__, "plugins.toml").items()
    )


def plugin_by_kind(kind: NetworkKind) -> NetworkPlugin | None:
    """Return the plugin that every network of a kind uses; None where there is none."""
    return next((one for one in plugins() if kind.value in one.kinds), None)


def plugin_of(profile: NetworkProfile) -> NetworkPlugin | None:
    """Return the plugin of a network, by the profile's name or kind; None where NCCL needs none."""
    named = next((one for one in plugins() if profile.name in one.profiles), None)
    return named or plugin_by_kind(profile.kind)


def wanted(profile: NetworkProfile, settings: Mapping[str, str]) -> frozenset[str]:
    """Return names of settings with the value that a network's plugin sets or asks for."""
    plugin = plugin_of(profile)
    return frozenset(name for name, value in settings.items() if plugin and plugin.takes(name, value))


def _plain(value: str) -> str:
    """Return a value in comparable form: a list in any order, in lower case."""
    return ",".join(sorted(value.lower().split(",")))
