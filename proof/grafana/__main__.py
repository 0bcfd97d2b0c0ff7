"""Draws the dashboards with Grafana's own components from a real Prometheus: `make screenshots`.

Ends with 1 when a panel did not become what it should; writes the pictures into docs/dashboards, and with
`--pictures` no more than these.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
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
from tests.dashboards.rig import CALM, STORM, running
from tests.dashboards.tiers import node_of, pages, scraped
from wirewatch.core.types import Tier

OUT = Path(__file__).parents[2] / "docs" / "dashboards"
WARM, WITHIN = 180.0, 60.0
"""Seconds that the nodes run before they are drawn, for faults to be confirmed and lines to be long; and for
which one has been dead and one out of service discovery by then, under rules as they are shipped."""
BACK, STEP = 200.0, 2.0
KEPT_BACK = 60.0
COLOURS = 64
LARGEST = 200_000


@dataclass(frozen=True)
class Scene:
    """A dashboard of one node in one theme, all rows open where `opened`."""

    cluster: str
    node: str
    mode: str
    opened: bool = True

    @property
    def name(self) -> str:
        return f"{self.node}-{self.mode}"


PICTURES = tuple(
    Scene(mood, node_of(mood, tier), mode, opened=False)
    for mood, mode in (("storm", "dark"), ("calm", "light"))
    for tier in Tier
)
"""Kept in docs/dashboards by the node's name: replays under a real Prometheus, on both tiers."""
_BOTH = Scene(STORM, "storm-1", "dark"), Scene(CALM, "calm-1", "light")
SCENES: Mapping[str, tuple[Scene, ...]] = {
    board.uid: (*_BOTH, Scene(STORM, "storm-2", "light")) if board.uid == "wirewatch-node" else _BOTH
    for board in BOARDS
}
"""Drawn from daemons, so that every panel is judged."""
BROKEN: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("stat", "wirewatch_no_such_metric", {}, "nodata"),
    ("stat", "sum(wirewatch_health", {}, "error"),
    ("gauge", "sum(wirewatch_health)", {}, "unsupported"),
    ("timeseries", "sum(wirewatch_health)", {"custom": {"lineWdith": 1}}, "error"),
)
"""What drawing must notice: type, query, field configuration, and what becomes of it."""


def main() -> int:
    wrong = list(_pictures())
    if "--pictures" not in sys.argv:
        wrong += _drawn_from_daemons()
    print("\n".join(wrong) or "nothing is wrong")
    return 1 if wrong else 0


def _pictures() -> Iterator[str]:
    """Draw what is kept, from replays; returns what is wrong with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        moods = {scene.cluster for scene in PICTURES}
        with scraped(folder, pages(folder, moods)) as prometheus:
            time.sleep(KEPT_BACK)
            # On a busy machine a scrape is late now and then, and its node silent for as long.
            prometheus.wait(f"count(wirewatch_job_ready) == {len(PICTURES)}", KEPT_BACK)
            now = time.time()
            drawn = draw([
                _job(prometheus.url, _file(board.uid, scene), board, scene, (now - KEPT_BACK, now), folder)
                for board in BOARDS
                for scene in PICTURES
            ])  # fmt: skip
        for picture, page in drawn.items():
            bad = {one.state for one in page.panels.values()} - {"ok", "nodata"}
            yield from (f"{picture}: {one}" for one in (*page.complaints, *bad))
        yield from _kept(folder)


def _drawn_from_daemons() -> list[str]:
    """Draw every panel, in all states of the rig; returns what did not become what it should."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), rules=None) as rig:
        time.sleep(WARM - WITHIN)
        rig.strike()
        time.sleep(WITHIN)

        def since() -> tuple[float, float]:
            return time.time() - BACK, time.time()

        jobs = [
            _job(rig.prometheus.url, f"{board.uid} {scene.name}", board, scene, since())
            for board in BOARDS
            for scene in SCENES[board.uid]
        ]
        asked = {"from": time.time() - BACK, "to": time.time(), "step": STEP}
        broken = Job("broken", _broken_board(), rig.prometheus.url, "dark", {}, asked)
        drawn = draw([*jobs, broken])
    wrong = _broken(drawn["broken"])
    for board in BOARDS:
        for scene in SCENES[board.uid]:
            page = drawn[f"{board.uid} {scene.name}"]
            wrong += [f"{board.uid}, {scene.name}: {one}" for one in _judged(board, page)]
    states = Counter(
        one.state for name, page in drawn.items() if name != "broken" for one in page.panels.values()
    )
    print(", ".join(f"{count} {state}" for state, count in sorted(states.items())))
    return wrong


def _job(
    prometheus: str, name: str, board: Dashboard, scene: Scene, time_shown: tuple[float, float],
    folder: Path | None = None,
) -> Job:  # fmt: skip
    """A page to draw; where there is a folder, its picture goes there by its name."""
    nodes = chosen(board, scene.cluster, scene.node)
    one = {**nodes, "node": [scene.node]} if folder else nodes
    made, (start, end) = _put_in(document(_opened(board) if scene.opened else board), one), time_shown
    return Job(
        name, made, prometheus, scene.mode, {"cluster": scene.cluster, "node": scene.node},
        {"from": start, "to": end, "step": STEP}, folder and folder / name,
    )  # fmt: skip


def _opened(board: Dashboard) -> Dashboard:
    """With all rows open, so that every panel is drawn."""
    return replace(board, rows=tuple(replace(row, collapsed=False) for row in board.rows))


def _file(uid: str, scene: Scene) -> str:
    return f"{uid.removeprefix('wirewatch-')}-{scene.node}.png"


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
    for board, scene in product(BOARDS, PICTURES):
        name = _file(board.uid, scene)
        with Image.open(folder / name) as picture:
            few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            few.save(OUT / name, optimize=True)
        if (OUT / name).stat().st_size > LARGEST:
            wrong.append(f"{name} is larger than {LARGEST} bytes")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
