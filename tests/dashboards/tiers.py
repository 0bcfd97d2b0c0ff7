"""Demo nodes without daemons on both tiers: pages of replays, moved on with time, under a real Prometheus.

`calm`: nothing is wrong. `storm`: eight ports and all links of a GPU are down, and more. `busy`: a job holds
the GPUs, so there is no probe. `bare`: a machine without RDMA ports. `blind`: its ports cannot be read.
"""

import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dashboards.boards import BOARDS
from dashboards.build import document
from dashboards.parts import Dashboard, Panel, Stat
from dashboards.sdk import WHY as REF
from dashboards.why import SHORT, WHY
from tests.dashboards.fleet import answering
from tests.dashboards.grafana import Variables, asked, put_in
from tests.dashboards.panels import panels_of
from tests.dashboards.promserver import Prometheus, rules_every, scraping, serving
from tests.dashboards.rig import PORTS_DOWN
from wirewatch.core.types import Tier
from wirewatch_fleet.cli.simulate import PageTemplate, page_of

SECONDS = 300.0
_HELD = """
[[change]]
port = "nvml"
match = "gpu*/ComputeRunningProcesses()"
set = [{ pid = 4711 }]
"""
DEMO = "demo-dgx-h200"
MOODS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "calm": (DEMO, ()),
    "storm": (
        DEMO,
        (PORTS_DOWN, "nvlink-all-down", "pcie-x8", "xid-94", "acs-on", "gpu-throttle-thermal", "probe-slow",
         "straggler-pair"),
    ),
    "busy": (DEMO, (_HELD,)),
    "bare": ("h200x8", ()),
    "blind": (DEMO, ("ib-unreadable",)),
}  # fmt: skip
"""Recordings and overlays, those by name or as TOML."""


@dataclass(frozen=True)
class Shown:
    """What a panel shows: how many series or rows, the reason that it says, and a single number."""

    rows: int
    why: str
    value: float | None = None

    @property
    def silent(self) -> bool:
        return not self.rows and not self.why


def node_of(mood: str, tier: Tier) -> str:
    """The name of the node; its cluster is the mood."""
    return f"{mood}-{tier.value}"


def pages(folder: Path, moods: Collection[str] = MOODS) -> Mapping[str, tuple[str, PageTemplate]]:
    """By node, its cluster and its page."""
    made = {}
    for mood in moods:
        recording, overlays = MOODS[mood]
        names = [_file(folder, f"{mood}-{place}", one) for place, one in enumerate(overlays)]
        for tier in Tier:
            made[node_of(mood, tier)] = (mood, page_of(recording, names, tier))
    return made


def _file(folder: Path, name: str, overlay: str) -> str:
    if "\n" not in overlay:
        return overlay
    file = folder / f"{name}.toml"
    file.write_text(overlay, "utf-8")
    return str(file)


@contextmanager
def scraped(folder: Path, found: Mapping[str, tuple[str, PageTemplate]]) -> Iterator[Prometheus]:
    """A real Prometheus with our rules scrapes these pages each three seconds; ends with the block."""

    with ExitStack() as stack:
        address = stack.enter_context(answering(lambda node: found[node][1].render(0, time.time())))
        targets = [
            (address, {"cluster": cluster, "node": node, "__metrics_path__": f"/{node}"})
            for node, (cluster, _) in found.items()
        ]
        config = folder / "tiers.yml"
        config.write_text(scraping(targets, 3, rules_every(folder, 2)), "utf-8")
        prometheus = stack.enter_context(serving(folder, config))
        # Rules lean on each other over several rounds, and a rate takes two scrapes.
        prometheus.wait(
            f"count(count_over_time(node:wirewatch_gpu_version:info[10m]) > 5) >= {len(found)}", SECONDS
        )
        yield prometheus


def shown(prometheus: Prometheus, board: Dashboard, cluster: str, *nodes: str) -> Mapping[str, Shown]:
    """By title, what each panel of a dashboard shows of these nodes, as Grafana would ask."""
    variables: Variables = {"cluster": [cluster], "node": nodes, "gpu": ".*"}
    found: dict[str, tuple[list[Mapping[str, str]], list[float], list[str]]] = {}
    now = time.time()
    for one in asked(document(board)):
        expr = put_in(one.expr, variables)
        series = prometheus.instant(expr, now) if one.instant else prometheus.between(expr, now - 20, now, 2)
        rows, values, why = found.setdefault(one.panel, ([], [], []))
        own = [each for each in series if one.ref != REF and WHY not in each["metric"]]
        rows += [each["metric"] for each in own]
        values += [float(each["value"][1]) for each in own if "value" in each]
        why += [each["metric"][WHY] for each in series if WHY in each["metric"]]
    return {panel.title: _shown(panel, *found[panel.title]) for panel in panels_of(board)}


def _shown(panel: Panel, rows: list[Mapping[str, str]], values: list[float], why: list[str]) -> Shown:
    if isinstance(panel, Stat):
        code = f"{values[0]:g}" if values else ""
        return (
            Shown(0, SHORT[code][0]) if code in SHORT else Shown(len(rows), "", values[0] if values else None)
        )
    return Shown(len(rows), why[0] if why else "")


def main() -> None:
    """Print what each panel shows on each node."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = pages(folder)
        with scraped(folder, found) as prometheus:
            for board in BOARDS:
                by_node = {n: shown(prometheus, board, cluster, n) for n, (cluster, _) in found.items()}
                for panel in panels_of(board):
                    cells = (by_node[n][panel.title] for n in found)
                    texts = (
                        f"{c.value:g}" if c.value is not None else c.why or c.rows or "EMPTY" for c in cells
                    )
                    print(board.title, "|", panel.title, "|", " | ".join(map(str, texts)))


if __name__ == "__main__":
    main()
