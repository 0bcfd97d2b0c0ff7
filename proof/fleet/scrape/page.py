"""fleet.md and its plots: the words of page.in.md, with what was measured (results.json)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from proof.fleet.scrape.measuring import EVALUATIONS, EVERY, Measured, RuleGroupTimes
from proof.fleet.scrape.services import SCRAPE
from tools.alerting import groups
from tools.prose import formatted

HERE = Path(__file__).parent
TEXT, RESULTS = HERE / "page.in.md", HERE / "results.json"
PAGE, PLOT = HERE / "fleet.md", HERE / "fleet.svg"
LIMIT = 1.0
"""Seconds for an evaluation of a group."""
GB = 1e9
MANY = 2000


def load() -> list[Measured]:
    """What was measured last, by tier and number of nodes."""
    kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    return [
        Measured(
            **{**one, "groups": {name: RuleGroupTimes(**times) for name, times in one["groups"].items()}}
        )
        for one in kept
    ]


def keep(new: Sequence[Measured]) -> list[Measured]:
    """Replace what was measured before of the same sizes and tiers."""
    known = {(one.tier, one.nodes): one for one in (*load(), *new)}
    every = [known[key] for key in sorted(known)]
    RESULTS.write_text(json.dumps([one.document() for one in every], indent=1) + "\n", "utf-8")
    return every


def page(measured: Sequence[Measured]) -> str:
    core = [one for one in measured if one.tier == "core"]
    most = core[-1]
    worst = max(most.groups.values(), key=lambda times: times.p95)
    return formatted(
        TEXT.read_text("utf-8").format(
            evaluations=EVALUATIONS, every=EVERY, scrape=SCRAPE, nodes=f"{most.nodes:,}",
            cpus=most.cpus, costs=_costs(measured), groups=_groups(core),
            worst=f"{worst.p95:.2f}", held=sum(times.p95 <= LIMIT for times in most.groups.values()),
            count=len(most.groups), past=f"{most.past_samples / 1e6:.1f}",
            load=f"{most.load:.0f}", each=f"{most.node_series:,}",
            missing=_missing(most),
        )
    )  # fmt: skip


def _missing(most: Measured) -> str:
    """What is said of groups that there are today and were not when it was measured."""
    names = [f"`{name}`" for name in groups() if name not in most.groups]
    return f"Not measured yet, since the rules have changed (ADR 0069): {', '.join(names)}." if names else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def _costs(measured: Sequence[Measured]) -> str:
    rows = (
        (
            one.tier, f"{one.nodes:,}", f"{one.series:,}", f"{one.samples_per_second:,.0f}",
            f"{one.memory_bytes / GB:.2f} GB", f"{one.cores:.2f}", f"{one.simulator_cores:.2f}",
            f"{one.load:.0f}",
        )
        for one in measured
    )  # fmt: skip
    head = (
        "tier",
        "nodes",
        "series",
        "samples/s",
        "memory",
        "cores of Prometheus",
        "of the simulator",
        "load",
    )
    return _table(head, rows)


def _groups(core: Sequence[Measured]) -> str:
    head = ("group", *(f"{one.nodes:,} nodes" for one in core), "longest", "its slowest rule")
    return _table(head, (_group(name, core) for name in core[-1].groups))


def _group(name: str, core: Sequence[Measured]) -> Sequence[str]:
    last = core[-1].groups[name]
    p95 = (_seconds(one.groups[name].p95) if name in one.groups else "" for one in core)
    return (name, *p95, _seconds(last.longest), f"`{last.slowest}`, {_seconds(last.slowest_seconds)}")


def _seconds(value: float) -> str:
    return f"{value:.3f} s"


def draw(measured: Sequence[Measured], path: Path) -> None:
    """Memory, samples and the groups' p95 against the number of nodes; the same bytes each time."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "wirewatch", "font.size": 10})
    figure, (memory, samples, groups) = pyplot.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    for tier, marker in (("core", "o"), ("full", "s")):
        mine = [one for one in measured if one.tier == tier]
        if mine:
            nodes = [one.nodes for one in mine]
            memory.plot(nodes, [one.memory_bytes / GB for one in mine], marker=marker, label=tier)
            samples.plot(nodes, [one.samples_per_second / 1e3 for one in mine], marker=marker, label=tier)
    _p95(groups, [one for one in measured if one.tier == "core"])
    for panel, title in ((memory, "memory, GB"), (samples, "thousand samples a second")):
        panel.set_title(title)
        panel.legend()
    for panel in (memory, samples, groups):
        panel.set_xlabel("nodes")
        panel.set_xlim(left=0)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None}, dpi=110)
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text("utf-8").splitlines()))


def _p95(panel: Any, core: Sequence[Measured]) -> None:
    """The slowest groups by name."""
    last: Mapping[str, RuleGroupTimes] = core[-1].groups
    slowest = sorted(last, key=lambda name: -last[name].p95)[:5]
    for name, marker in zip(slowest, "osD^v", strict=False):
        mine = [one for one in core if name in one.groups]
        label = name.removeprefix("wirewatch-")
        panel.plot(
            [one.nodes for one in mine], [one.groups[name].p95 for one in mine], marker=marker, label=label
        )
    panel.axhline(LIMIT, color="gray", linewidth=0.8)
    panel.set_title("p95 of a group's evaluation, seconds")
    panel.legend(title="the slowest groups")


def write(measured: Sequence[Measured]) -> None:
    """The page and its plots."""
    PAGE.write_text(page(measured), "utf-8")
    draw(measured, PLOT)
