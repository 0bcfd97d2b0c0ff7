"""The daemon's configuration with all its times squeezed, made from the defaults in the code."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from proof.rehearsal.squeeze import squeezed
from tools.options import unit_of
from wirewatch.catalogue import discover
from wirewatch.collectors.infiniband.model import ERRORS, LINK_DOWNED
from wirewatch.collectors.nvlink.model import DEFAULT_LIMITS
from wirewatch.core.types import ErrorLimit
from wirewatch.probe.model import ProbeOptions
from wirewatch.verdict.drift.component import DriftOptions
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import VerdictPolicy

REAL = frozenset({"deadline", "kill_after", "longest_suppression", "ask", "resolution"})
"""Seconds that pass as ever: the wait for a process that hangs, and the most that a person may ask for."""
Section = dict[str, Any]


def configuration(socket: str, state: str, own: Mapping[str, Section] | None = None) -> str:
    """The file of one node; `socket` and `state` are its own, and so is what `own` says of sections."""
    sections: dict[str, Section] = {
        "listen": {"socket": socket},
        "state": {"directory": state},
        # What keeps a distance of real seconds from others finds no gap between them, and gives way.
        **{f"collectors.{c.name}": _times(c.options) for c in discover() if not c.apart},
        **{f"policy.{c.name}": _times(c.policy) for c in discover()},
        # What a probe may hold is counted by the hour of the clock, which is not squeezed.
        "probe": {**_times(ProbeOptions()), "budget": 1.0},
        "drift": _times(DriftOptions()),
        "policy.drift": _times(DriftPolicy()),
        "policy.verdict": _times(VerdictPolicy()),
        **_limits(),
    }
    for name, section in (own or {}).items():
        sections[name] = {**sections.get(name, {}), **section}
    return "\n".join(line for name, section in sections.items() for line in _section(name, section))


def _times(values: Any) -> Section:
    names = {one.name for one in fields(values) if unit_of(type(values), one.name) == "seconds"}
    return {name: squeezed(getattr(values, name)) for name in sorted(names - REAL)}


def _limits() -> dict[str, Section]:
    judged: dict[str, ErrorLimit] = {
        f"nvlink.error_limits.{kind}": limit for kind, limit in DEFAULT_LIMITS.items()
    }
    for kind, counter in {"link_downed": LINK_DOWNED, **ERRORS}.items():
        if counter.limit is not None:
            judged[f"infiniband.error_limits.{kind}"] = counter.limit
    return {
        f"policy.{name}": {"events": limit.events, "seconds": squeezed(limit.seconds)}
        for name, limit in judged.items()
    }


def _section(name: str, section: Section) -> Iterator[str]:
    if section:
        yield f"[{name}]"
        yield from (f"{key} = {json.dumps(value)}" for key, value in section.items())
