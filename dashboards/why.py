"""Why a panel is empty, asked of Prometheus: no agent, not in this tier, nothing of the kind here.

Each panel asks beside its own queries for the first reason that holds; ADR 0114 has the order.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from dashboards.parts import Panel, Words, queries, selected
from wirewatch.catalogue import components
from wirewatch.core.types import Metric, Tier
from wirewatch.documents import process, series
from wirewatch.kubernetes import apiserver
from wirewatch.probe.collector import FRESH, HOST_LINK, PEER, PROBE_NAME, SCORE, STRAGGLER
from wirewatch.server import reload

WHY = "why"
"""The label that has the reason."""
MARK = f"wirewatch_{process.LEFT_OUT.name}{{HERE}}"
"""What every agent exports in tier `full` alone."""
_HEARD = "wirewatch_job_ready{HERE}"
_KNOWN = "node:wirewatch_heard:timestamp_seconds{HERE}"
_NAMES = re.compile(r"\bwirewatch_\w+")
_RECORDED = re.compile(r"\b\w+:wirewatch_\w+:\w+|\bwirewatch:[\w:]+")
NO_NODE, NO_AGENT, NOT_CORE, FAILS, NOTHING, OFF, NO_PROBE = range(-1, -8, -1)
SHORT: Words = {
    str(code): (text, "purple" if code == FAILS else "text")
    for code, text in (
        (NO_NODE, "no node"), (NO_AGENT, "not heard"), (NOT_CORE, "not in core"), (FAILS, "cannot read"),
        (NOTHING, "none here"), (OFF, "off"), (NO_PROBE, "no probe"),
    )
}  # fmt: skip
"""In the place of one number."""
_WATCHED = {
    "infiniband": "no RDMA port here",
    "nvlink": "no NVLink here",
    "gpudirect": "no GPUDirect here",
    "probe": "no probe here",
    "xid": "no kernel log here",
    "jobs": "no job with the tap runs here",
    "ledger": "no job runs here",
    "lockstep": "no job in lockstep runs here",
    "bursts": "no job to look at here",
}
"""What it means that a collector has nothing to watch."""
_OF_A_PROBE = {PEER, HOST_LINK, SCORE, STRAGGLER}


@dataclass(frozen=True, slots=True)
class Why:
    """One reason: a query that has a series without labels while it holds."""

    code: int
    text: str
    expr: str


@cache
def _metrics() -> Mapping[str, tuple[str, Metric]]:
    """The agent's metrics by name, with their collector, "" for the daemon's own."""
    own = (*series.METRICS, *process.METRICS, *reload.METRICS, *apiserver.METRICS)
    return {
        **{f"wirewatch_{metric.name}": ("", metric) for metric in own},
        **{f"wirewatch_{metric.name}": (one.name, metric) for one in components() for metric in one.metrics},
    }


def asked(panel: Panel) -> tuple[tuple[str, Metric], ...]:
    """The metrics of the agent that a panel asks for, in their order, each with its collector."""
    named = (name for query in queries(panel) for name in _NAMES.findall(_RECORDED.sub("", query)))
    return tuple(_metrics()[name] for name in dict.fromkeys(named))


def left_out(panel: Panel) -> bool:
    """Whether tier `core` lacks what the panel asks for."""
    return any(metric.tier is not Tier.CORE for _, metric in asked(panel))


def reasons(panel: Panel) -> Iterator[Why]:
    """The reasons for which a panel may be empty, the first that holds is the one."""
    found = asked(panel)
    if not found:
        yield Why(NO_NODE, "no node is known: are the recording rules loaded?", f"absent({_KNOWN})")
        return
    yield Why(NO_AGENT, "no agent is heard here", f"absent({_HEARD})")
    if left_out(panel):
        some = f"count({_HEARD} unless on (cluster,node) {MARK})"
        yield Why(NOT_CORE, "not exported at tier core", some)
    name, first = found[0]
    if name:
        yield from _of_collector(name, first)


def _of_collector(name: str, first: Metric) -> Iterator[Why]:
    """The reasons of a collector, while its metric is not there."""
    of, missing = f'{{HERE,collector="{name}"}}', f"unless on () wirewatch_{first.name}{{HERE}}"
    fails = f"max(wirewatch_collector_success{of}) == 0 {missing}"
    yield Why(FAILS, f"cannot be read: collector {name} fails", fails)
    nothing = f"max(wirewatch_collector_applicable{of}) == 0 {missing}"
    yield Why(NOTHING, _WATCHED.get(name, f"nothing here for collector {name}"), nothing)
    yield Why(OFF, f"collector {name} is off", f"absent(wirewatch_collector_success{of})")
    if name == PROBE_NAME and (first in _OF_A_PROBE or "op" in first.labels):
        stale = f"max(wirewatch_{FRESH.name}{{HERE}}) == 0 {missing}"
        yield Why(NO_PROBE, "no fresh probe: a busy node is not probed", stale)


def worded(panel: Panel) -> str:
    """A query for the reason, as the label `why` of one series; it has none while no reason holds."""
    parts = (f'label_replace({one.expr}, "{WHY}", "{one.text}", "", "")' for one in reasons(panel))
    return selected(" or on () ".join(parts))


def coded(panel: Panel) -> str:
    """The same as a number below zero, for what shows one number."""
    return selected(" or on () ".join(f"({one.expr}) * 0 - {-one.code}" for one in reasons(panel)))
