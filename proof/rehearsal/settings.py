"""The daemon's configuration with all its times squeezed, made from the defaults in the code."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from proof.rehearsal.squeeze import squeezed
from wirewatch.catalogue import discover
from wirewatch.collectors.infiniband.model import ERRORS, LINK_DOWNED
from wirewatch.collectors.nvlink.model import DEFAULT_LIMITS
from wirewatch.core.types import ErrorLimit
from wirewatch.probe.model import ProbeOptions
from wirewatch.verdict.drift.component import DriftOptions
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import VerdictPolicy

SQUEEZED = frozenset(
    {
        "interval", "identity_interval", "ibstat_interval", "refused_seconds", "acs_interval",
        "link_detail_interval", "uncorrected_window", "aer_window", "serious_seconds", "flap_seconds",
        "flap_window", "replaced_for", "every", "settle", "fresh", "probation", "recurrence",
        "fabric_grace", "port_grace", "after", "again", "seldom", "unasked",
        "window", "longest", "stale",
    }
)  # fmt: skip
"""Seconds of the configuration that pass faster in a rehearsal."""
REAL = frozenset({"deadline", "kill_after", "longest_suppression", "ask", "resolution"})
"""Seconds that do not: how long a process that hangs is waited for, and what a person may ask at most."""
Section = dict[str, Any]


def configuration(socket: str, state: str, own: Mapping[str, Section] | None = None) -> str:
    """The file of one node; `socket` and `state` are its own, and so is what `own` says of sections."""
    sections: dict[str, Section] = {
        "listen": {"socket": socket},
        "state": {"directory": state},
        **{f"collectors.{c.name}": _times(c.options) for c in discover()},
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
    return {f.name: squeezed(getattr(values, f.name)) for f in fields(values) if f.name in SQUEEZED}


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
