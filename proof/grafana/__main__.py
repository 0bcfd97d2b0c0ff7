"""Draws the dashboards with Grafana's own components from a real Prometheus: `make screenshots`.

Ends with 1 when a panel did not become what it should; writes the pictures into docs/dashboards.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from dashboards.boards import BOARDS
from dashboards.build import document
from dashboards.parts import Dashboard, Label, Table
from dashboards.why import WHY
from proof.grafana.drawing import Job, Page, draw
from tests.dashboards.grafana import Variables, put_in
from tests.dashboards.grafana import panels as panels_in
from tests.dashboards.panels import chosen, panels_of
from tests.dashboards.rig import CALM, OF_CORE, STORM, Rig, running

OUT = Path(__file__).parents[2] / "docs" / "dashboards"
WARM, WITHIN = 180.0, 60.0
"""Seconds that the nodes run before they are drawn, for faults to be confirmed and lines to be long; and for
which one has been dead and one out of service discovery by then, under rules as they are shipped."""
BACK, STEP = 200.0, 2.0
COLOURS = 64
LARGEST = 200_000


@dataclass(frozen=True)
class Scene:
    """A dashboard of one node in one theme, perhaps with all rows open; by the name of its picture."""

    name: str
    cluster: str
    node: str
    mode: str
    opened: bool = False


TIERS = (
    Scene("storm-full", STORM, "storm-1", "dark"),
    Scene("storm-core", STORM + OF_CORE, "storm-1", "dark"),
    Scene("calm-full", CALM, "calm-1", "light"),
    Scene("calm-core", CALM + OF_CORE, "calm-1", "light"),
)
BUSY = Scene("busy-full", STORM, "storm-2", "light", opened=True)
SCENES: Mapping[str, tuple[Scene, ...]] = {
    board.uid: (*TIERS, BUSY) if board.uid == "wirewatch-node" else TIERS for board in BOARDS
}
BROKEN: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("stat", "wirewatch_no_such_metric", {}, "nodata"),
    ("stat", "sum(wirewatch_health", {}, "error"),
    ("gauge", "sum(wirewatch_health)", {}, "unsupported"),
    ("timeseries", "sum(wirewatch_health)", {"custom": {"lineWdith": 1}}, "error"),
)
"""What drawing must notice: type, query, field configuration, and what becomes of it."""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), rules=None, core=True) as rig:
        time.sleep(WARM - WITHIN)
        rig.strike()
        time.sleep(WITHIN)
        broken = _job(rig, "broken", _broken_board(), Scene("broken", CALM, "calm-1", "dark"))
        drawn = draw([*_jobs(rig, Path(folder)), broken])
        wrong = _broken(drawn["broken"])
        for board in BOARDS:
            for scene in SCENES[board.uid]:
                page = drawn[f"{board.uid} {scene.name}"]
                wrong += [f"{board.uid}, {scene.name}: {one}" for one in _judged(board, page)]
        wrong += _kept(Path(folder))
    states = Counter(
        one.state for name, page in drawn.items() if name != "broken" for one in page.panels.values()
    )
    print("\n".join([*wrong, ", ".join(f"{count} {state}" for state, count in sorted(states.items()))]))
    return 1 if wrong else 0


def _jobs(rig: Rig, folder: Path) -> Iterator[Job]:
    for board in BOARDS:
        for scene in SCENES[board.uid]:
            variables = chosen(board, scene.cluster, scene.node)
            name, picture = f"{board.uid} {scene.name}", folder / _file(board.uid, scene)
            opened = _put_in(document(_opened(board)), variables)
            if scene.opened or _opened(board) == board:
                yield _job(rig, name, opened, scene, picture)
            else:
                yield _job(rig, f"{name} picture", _put_in(document(board), variables), scene, picture)
                yield _job(rig, name, opened, scene)


def _opened(board: Dashboard) -> Dashboard:
    """With all rows open, so that every panel is drawn."""
    return replace(board, rows=tuple(replace(row, collapsed=False) for row in board.rows))


def _job(rig: Rig, name: str, board: Mapping[str, Any], scene: Scene, picture: Path | None = None) -> Job:
    now = time.time()
    return Job(
        name, board, rig.prometheus.url, scene.mode, {"cluster": scene.cluster, "node": scene.node},
        {"from": now - BACK, "to": now, "step": STEP}, picture,
    )  # fmt: skip


def _file(uid: str, scene: Scene) -> str:
    return f"{uid.removeprefix('wirewatch-')}-{scene.name}.png"


def _put_in(board: dict[str, Any], variables: Variables) -> dict[str, Any]:
    for panel in panels_in(board):
        for target in panel.get("targets", []):
            target["expr"] = put_in(target["expr"], variables)
    return board


def _judged(board: Dashboard, page: Page) -> Iterator[str]:
    """What is not as it should be: complaints of the page, panels not drawn, other columns."""
    yield from page.complaints
    panels = {panel.title: panel for panel in panels_of(board)}
    for made in panels_in(document(board)):
        title, panel, drawn = made["title"], panels.get(made["title"]), page.panels[made["id"]]
        may_be_empty = panel is not None and panel.blank is not None
        if drawn.state != "ok" and not (drawn.state == "nodata" and may_be_empty):
            yield f"{title}: {drawn.state} {drawn.told}"
        # Where a reason stands in the place of the rows, there are other columns.
        if drawn.state == "ok" and isinstance(panel, Table) and WHY not in drawn.columns:
            # A label that is empty in every row is not there at all.
            wanted = [
                c.shown
                for c in panel.columns
                if c.shown and (c.shown in drawn.columns or not isinstance(c, Label))
            ]
            if wanted != list(drawn.columns):
                yield f"{title}: columns {drawn.columns} for {wanted}"


def _broken_board() -> dict[str, Any]:
    panels = []
    for number, (kind, expr, defaults, wanted) in enumerate(BROKEN):
        place = {"x": 6 * number, "y": 0, "w": 6, "h": 8}
        target = {"refId": "A", "expr": expr, "instant": kind != "timeseries"}
        panels.append({
            "id": number, "title": wanted, "type": kind, "gridPos": place, "options": {}, "targets": [target],
            "fieldConfig": {"defaults": defaults, "overrides": []},
        })  # fmt: skip
    return {"title": "Broken", "links": [], "panels": panels}


def _broken(page: Page) -> list[str]:
    states = [drawn.state for _, drawn in sorted(page.panels.items())]
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
            name = _file(uid, scene)
            with Image.open(folder / name) as picture:
                few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
                few.save(OUT / name, optimize=True)
            if (OUT / name).stat().st_size > LARGEST:
                wrong.append(f"{name} is larger than {LARGEST} bytes")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
