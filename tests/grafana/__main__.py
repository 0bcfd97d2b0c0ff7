"""Draws the dashboards with Grafana's own components from a real Prometheus: `make screenshots`.

Asserts what became of each panel, writes the pictures and the result into docs/dashboards.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from dashboards.boards import BOARDS
from dashboards.build import document
from dashboards.parts import Dashboard, Label, Table
from tests.dashboards.grafana import Variables, put_in
from tests.dashboards.rig import CALM, STORM, Rig, running
from tests.dashboards.watching import chosen, panels_of

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "docs" / "dashboards"
WARM = 240.0
"""Seconds that the nodes run before they are drawn: probes, confirmed faults, and lines that are long enough."""
BACK, STEP = 200.0, 2.0
COLOURS = 128
LARGEST = 300_000


@dataclass(frozen=True)
class Scene:
    """What is drawn of a dashboard: which node, in which theme; a `picture` is kept for docs/dashboards.md."""

    cluster: str
    node: str
    mode: str
    picture: bool = False

    @property
    def name(self) -> str:
        return f"{self.node}-{self.mode}"


SCENES: Mapping[str, tuple[Scene, ...]] = {
    "wirewatch-fleet": (Scene(STORM, "storm-1", "dark", picture=True), Scene(CALM, "calm-1", "light")),
    "wirewatch-node": (
        Scene(STORM, "storm-1", "dark", picture=True),
        Scene(STORM, "storm-2", "light", picture=True),
        Scene(CALM, "calm-1", "light", picture=True),
    ),
    "wirewatch-links": (Scene(STORM, "storm-1", "light", picture=True), Scene(CALM, "calm-1", "dark")),
    "wirewatch-agent": (Scene(STORM, "storm-1", "dark", picture=True), Scene(CALM, "calm-1", "light")),
}
BROKEN = (
    ("stat", "wirewatch_no_such_metric", {}, "nodata"),
    ("stat", "sum(wirewatch_health", {}, "error"),
    ("gauge", "sum(wirewatch_health)", {}, "unsupported"),
    ("timeseries", "sum(wirewatch_health)", {"custom": {"lineWdith": 1}}, "error"),
)
"""What drawing must notice: type, query, field configuration, and what becomes of it."""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as rig:
        time.sleep(WARM / 2)
        rig.daemons["storm-3"].terminate()
        time.sleep(WARM / 2)
        drawn = _draw(_jobs(rig, Path(folder)), Path(folder))
        wrong = _broken(drawn.pop("broken"))
        result: dict[str, dict[str, dict[str, str]]] = {}
        for board in BOARDS:
            for scene in SCENES[board.uid]:
                told = drawn[f"{board.uid} {scene.name}"]
                wrong += [f"{board.uid}, {scene.name}: {one}" for one in _judged(board, scene, told)]
                titles = {panel["id"]: panel["title"] for panel in document(board)["panels"]}
                states = {titles[panel["id"]]: panel["state"] for panel in told["panels"]}
                result.setdefault(board.uid, {})[scene.name] = states
        wrong += _kept(Path(folder))
    (OUT / "result.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print("\n".join(wrong) or f"{sum(len(s) for b in result.values() for s in b.values())} panels drawn as they should")
    return 1 if wrong else 0


def _jobs(rig: Rig, folder: Path) -> list[dict[str, Any]]:
    jobs = [
        _job(rig, f"{board.uid} {scene.name}", _put_in(document(board), chosen(board, scene.cluster, scene.node)),
             scene, folder / _file(board.uid, scene) if scene.picture else None)
        for board in BOARDS
        for scene in SCENES[board.uid]
    ]  # fmt: skip
    return [*jobs, _job(rig, "broken", _broken_board(), Scene(CALM, "calm-1", "dark"), None)]


def _file(uid: str, scene: Scene) -> str:
    return f"{uid.removeprefix('wirewatch-')}-{scene.name}.png"


def _job(rig: Rig, name: str, board: Mapping[str, Any], scene: Scene, picture: Path | None) -> dict[str, Any]:
    now = time.time()
    page = {
        "board": board, "prometheus": rig.prometheus.url, "mode": scene.mode,
        "chosen": {"cluster": scene.cluster, "node": scene.node},
        "time": {"from": now - BACK, "to": now, "step": STEP},
    }  # fmt: skip
    return {"name": name, "picture": None if picture is None else str(picture), "page": page}


def _put_in(board: dict[str, Any], variables: Variables) -> dict[str, Any]:
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            target["expr"] = put_in(target["expr"], variables)
    return board


def _draw(jobs: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    file = folder / "jobs.json"
    file.write_text(json.dumps(jobs), "utf-8")
    done = subprocess.run(
        ["node", "draw.mjs", str(file)], cwd=HERE, capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    return {one["name"]: one for one in json.loads(done.stdout)}


def _judged(board: Dashboard, scene: Scene, told: Mapping[str, Any]) -> list[str]:
    """What is not as it should be: pages that complain, panels that are not drawn, columns that are others."""
    wrong: list[str] = list(told["complaints"])
    drawn = {panel["id"]: panel for panel in told["panels"]}
    panels = {panel.title: panel for panel in panels_of(board)}
    for made in document(board)["panels"]:
        if made["type"] == "row":
            continue
        state = drawn[made["id"]]["state"]
        panel = panels.get(made["title"])
        # A busy node has no fresh probe, and what only a probe tells.
        may_be_empty = panel is not None and (panel.blank is not None or scene.node == "storm-2")
        if state != "ok" and not (state == "nodata" and may_be_empty):
            wrong.append(f"{made['title']}: {state} {drawn[made['id']]['told']}")
        if state == "ok" and isinstance(panel, Table):
            wanted = [c.shown for c in panel.columns if c.shown]
            shown = drawn[made["id"]]["columns"]
            empty = {c.name for c in panel.columns if isinstance(c, Label)} - set(shown)
            if [name for name in wanted if name not in empty] != shown:
                wrong.append(f"{made['title']}: columns {shown} for {wanted}")
    return wrong


def _broken_board() -> dict[str, Any]:
    return {
        "title": "Broken", "links": [],
        "panels": [
            {
                "id": number, "title": wanted, "type": kind, "gridPos": {"x": 6 * number, "y": 0, "w": 6, "h": 8},
                "options": {}, "fieldConfig": {"defaults": defaults, "overrides": []},
                "targets": [{"refId": "A", "expr": expr, "instant": kind != "timeseries"}],
            }
            for number, (kind, expr, defaults, wanted) in enumerate(BROKEN)
        ],
    }  # fmt: skip


def _broken(told: Mapping[str, Any]) -> list[str]:
    states = [panel["state"] for panel in sorted(told["panels"], key=lambda panel: panel["id"])]
    wanted = [state for *_, state in BROKEN]
    return [] if states == wanted else [f"a broken dashboard: {states} for {wanted}"]


def _kept(folder: Path) -> list[str]:
    """The pictures into docs, in few colours; those that are too large for a repository."""
    OUT.mkdir(exist_ok=True)
    for old in OUT.glob("*.png"):
        old.unlink()
    wrong = []
    for uid, scenes in SCENES.items():
        for scene in scenes:
            if scene.picture:
                name = _file(uid, scene)
                with Image.open(folder / name) as picture:
                    picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(OUT / name, optimize=True)
                if (OUT / name).stat().st_size > LARGEST:
                    wrong.append(f"{name} is larger than {LARGEST} bytes")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
