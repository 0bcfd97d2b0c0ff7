"""Writes docs/METRICS.md and docs/recordings.md from the code: `make generated`.

The text around the tables is in docs/METRICS.in.md and docs/recordings.in.md.
"""

from collections.abc import Iterator
from pathlib import Path

from tools.prose import formatted
from wirewatch.catalogue import components
from wirewatch.collectors.infiniband.model import CONGESTION, ERRORS, LINK_DOWNED
from wirewatch.core import xids
from wirewatch.core.types import Metric
from wirewatch.core.xids import XIDS
from wirewatch.documents import process, series
from wirewatch.hw.overlay import bundled_overlays, load_overlay
from wirewatch.kubernetes import apiserver as condition
from wirewatch.kubernetes.apiserver import RequestResult
from wirewatch.probe.gate import SkipReason
from wirewatch.server import reload

DOCS = Path(__file__).parents[1] / "docs"
MARK = "<!-- tables -->"
CORE_SERIES = 600
"""A node has at most so many in the tier `core`, with 8 GPUs, 10 ports and every collector."""
OF_THE_DAEMON, OF_EACH_COLLECTOR = 30, 6
"""Series that no collector makes, and those that say how a collector fares."""


def page() -> str:
    """The whole page."""
    text = (DOCS / "METRICS.in.md").read_text("utf-8")
    for mark, rows in (
        (MARK, _tables()),
        ("{series}", (f"{_series():,}",)),
        ("{core}", (f"{CORE_SERIES:,}",)),
        ("<!-- rdma -->", _rdma()),
        ("<!-- xids -->", _xids()),
        ("<!-- sxids -->", _sxids()),
        ("<!-- reasons -->", _reasons()),
        ("<!-- refusals -->", _refusals()),
        ("<!-- results -->", _results()),
    ):
        head, _, tail = text.partition(mark)
        text = head + "\n".join(rows) + tail
    return formatted(text)


def _series() -> int:
    """What a node has at most as it is configured by default, with what is said of each collector."""
    enabled = [one for one in components() if one.options.enabled]
    return sum(one.series for one in enabled) + OF_THE_DAEMON + OF_EACH_COLLECTOR * len(enabled)


def _rdma() -> Iterator[str]:
    yield "| kind | file below the port | stops at | judged |"
    yield "|---|---|---|---|"
    for kind, counter in {"link_downed": LINK_DOWNED, **ERRORS}.items():
        ceiling = f"{(1 << counter.bits) - 1:,}" if counter.bits else ""
        limit = counter.limit
        judged = f"{limit.events:,} in {limit.seconds:g} s" if limit else "no"
        yield f"| `{kind}` | {counter.path} | {ceiling} | {judged} |"
    for kind, path in CONGESTION.items():
        yield f"| `{kind}` (congestion) | {path} | | no |"


def _xids() -> Iterator[str]:
    yield "| XID | meaning | severity | what to do |"
    yield "|---|---|---|---|"
    for number, xid in XIDS.items():
        severity = "by its own text" if xid.by_word else xid.severity.value
        action = f"{xid.action}; not fatal: {xid.nonfatal}" if xid.by_word else xid.action
        yield f"| {number} | {xid.meaning} | {severity} | {action} |"


def _sxids() -> Iterator[str]:
    yield "| SXid | severity | what to do |"
    yield "|---|---|---|"
    rows = [
        *((n, "fatal", action) for n, action in xids.SWITCH_FATAL.items()),
        *((n, one.severity.value, one.action) for n, one in xids.SWITCH_NONFATAL.items()),
    ]
    for severity, action in dict.fromkeys(row[1:] for row in rows):
        numbers = ", ".join(str(row[0]) for row in sorted(rows) if row[1:] == (severity, action))
        yield f"| {numbers} | {severity} | {action} |"
    yield f"| others, by their own word | fatal | {xids.SWITCH_DRAIN} |"
    yield f"| others, by their own word | serious | {xids.SWITCH_WATCH} |"


def _reasons() -> Iterator[str]:
    yield "| `reason` of a skip | because |"
    yield "|---|---|"
    for reason in SkipReason:
        yield f"| `{reason.value}` | {reason.meaning} |"
    yield ""


def _refusals() -> Iterator[str]:
    yield "| `reason` | because |"
    yield "|---|---|"
    for reason, meaning in reload.REASONS.items():
        yield f"| `{reason}` | {meaning} |"
    yield ""


def _results() -> Iterator[str]:
    yield "| `result` | because |"
    yield "|---|---|"
    for result in RequestResult:
        yield f"| `{result.value}` | {result.meaning} |"
    yield ""


def _grounds() -> Iterator[str]:
    # The node's tests use this module in a tree that has no fleet.
    from wirewatch_fleet.controller.decide import MEANING as GROUNDS  # noqa: PLC0415

    yield "| `reason` of what the controller leaves | because |"
    yield "|---|---|"
    for ground, meaning in GROUNDS.items():
        yield f"| `{ground.value}` | {meaning} |"
    yield ""


def _tables() -> Iterator[str]:
    from wirewatch_fleet.controller import report as controller  # noqa: PLC0415

    yield from _table(
        "The daemon itself", "verdict, findings, and the state of the collectors", series.METRICS
    )
    about = (
        "the condition that the agent reports to Kubernetes; only with `[kubernetes] node_condition = true`"
    )
    yield from _table("The node condition", about, condition.METRICS)
    yield from _table("The process", "its log, and whether its configuration was read again", process.METRICS)
    yield from _table("The HTTP port", "what was refused, and the web configuration", reload.METRICS)
    about = "`wirewatch fleet controller` has a port of its own: no agent exports these"
    yield from _table("The controller", about, controller.METRICS)
    yield from _grounds()
    for collector in components():
        options = collector.options
        about = f"{collector.about}; every {options.interval:g} s, overdue after {options.deadline:g} s"
        about = f"{about}; at most {collector.series:,} series"
        yield from _table(f"Collector `{collector.name}`", about, collector.metrics)


def _table(title: str, about: str, metrics: tuple[Metric, ...]) -> Iterator[str]:
    yield f"## {title}\n\n{about[0].upper()}{about[1:]}.\n"
    yield "| metric | type | tier | labels | meaning | unproven on hardware |"
    yield "|---|---|---|---|---|---|"
    for metric in metrics:
        labels, name = ", ".join(f"`{label}`" for label in metric.labels), f"`{metric.exposed}`"
        tier = ": ".join(filter(None, (metric.tier.value, ", ".join(metric.core))))
        cells = (name, metric.kind.value, tier, labels, metric.help, metric.unproven)
        yield f"| {' | '.join(cells)} |"
    yield ""


def recordings() -> str:
    """The page on recordings, with a table of the bundled faults."""
    text = (DOCS / "recordings.in.md").read_text("utf-8")
    rows = [f"| `{name}` | {load_overlay(name).about} |" for name in bundled_overlays()]
    head, _, tail = text.partition("<!-- overlays -->")
    return formatted(head + "\n".join(["| name | what happens |", "|---|---|", *rows]) + tail)
