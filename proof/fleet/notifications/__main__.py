"""`make notifications`: how many messages a fault makes, on one node, a rack, a leaf and a whole fleet.

The shipped rules in a real Prometheus, the shipped routes and inhibitions in a real Alertmanager, grouped and
waiting as shipped; all times squeezed as in the rehearsal. Exit status 1 if a scene makes other messages than
it may.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from proof.fleet.notifications.nodes import DARK, LOOP, WELL, Nodes, Text
from proof.fleet.notifications.page import PAGE, Counted, counted, page
from proof.fleet.notifications.scenes import OVER, SCENES, Scene
from proof.rehearsal.fleet import SHIPPED, shipped_rules
from proof.rehearsal.receiver import Receiver
from proof.rehearsal.rules import recorded_ages
from proof.rehearsal.services import Alertmanager, Prometheus
from proof.rehearsal.squeeze import FACTOR, KNEE, squeezed

SCRAPE = 60.0
"""Not 15 s, since one machine is asked in the name of hundreds: what comes together comes less so."""
QUIET = 300.0
"""Seconds of service in which all is well, before and after."""
SCRAPED = 0.9


class Fleet(Prometheus):
    """Scrapes all nodes of all scenes, with the labels that people give to targets."""

    def __init__(
        self, folder: Path, rules: Sequence[Path], alertmanager: Alertmanager, address: str,
        scenes: Sequence[Scene],
    ) -> None:  # fmt: skip
        self._address, self._scenes = address, scenes
        super().__init__(folder, rules, alertmanager, squeezed(SCRAPE))

    def listed(self) -> list[Mapping[str, object]]:
        return [
            {
                "targets": [self._address],
                "labels": {
                    "cluster": scene.cluster, **scene.place(number),
                    "__metrics_path__": f"/{scene.cluster}/{number}",
                },
            }
            for scene in self._scenes
            for number in range(1, scene.nodes + 1)
        ]  # fmt: skip

    def fired(self, cluster: str) -> int:
        """Alerts that were firing at any time."""
        asked = f'count(count_over_time(ALERTS{{alertstate="firing",cluster="{cluster}"}}[1h]))'
        found = self.query(asked)
        return round(found[0][1]) if found else 0

    def scraped(self) -> float:
        """The part of the scrapes that came, of nodes that nothing happens to."""
        return self.query("max(avg by (cluster) (avg_over_time(up[10m])))")[0][1]


class Play:
    """Which fault a node has at this moment."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self.began = float("inf")
        self._scenes = {scene.cluster: scene for scene in scenes}

    def fault_of(self, cluster: str, node: str) -> str:
        here = time.monotonic() - self.began
        scene = self._scenes[cluster]
        return scene.fault_of(int(node), here if scene.here else in_service(here)) if here > 0 else WELL


def in_service(here: float) -> float:
    """Seconds of service for seconds of this proof: the other way than `squeezed`."""
    low, high = 0.0, 100 * OVER
    if here <= KNEE / FACTOR:
        return here * FACTOR
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (middle, high) if squeezed(middle) < here else (low, middle)
    return high


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"{PAGE.name}, if nothing failed")
    parser.add_argument("names", nargs="*", help="some scenes alone")
    wanted = parser.parse_args()
    scenes = [one for one in SCENES if one.cluster in (wanted.names or [one.cluster])]
    folder = Path(tempfile.mkdtemp(prefix="notifications-"))
    faults = {event.fault for scene in scenes for event in scene.events}
    texts = {name: Text(name) for name in {WELL, *faults} - {DARK, LOOP}}
    began = time.monotonic()
    results, part = _run(folder, texts, scenes)
    troubles = [trouble for one in results for trouble in one.troubles()]
    if part < SCRAPED:
        troubles.append(f"{part:.0%} of the scrapes came: this machine is too slow")
    for one in results:
        print(f"{one.scene.cluster:8} {one.fired:4} alerts, pages {one.pages}, tickets {one.tickets}")
    for trouble in troubles:
        print(f"FAILED {trouble}")
    if wanted.write and not (troubles or wanted.names):
        PAGE.write_text(page(results, time.monotonic() - began), "utf-8")
    print(f"{len(troubles)} troubles; {folder}")
    return 1 if troubles else 0


def _run(folder: Path, texts: Mapping[str, Text], scenes: Sequence[Scene]) -> tuple[list[Counted], float]:
    rules = shipped_rules()
    ages = recorded_ages(rules)
    files = []
    for number, file in enumerate(rules):
        files.append(folder / f"{number}.yml")
        files[-1].write_text(file.squeezed(ages), "utf-8")
    play = Play(scenes)
    with (
        Receiver() as receiver,
        Nodes(texts, play.fault_of) as nodes,
        Alertmanager(folder / "alertmanager", receiver.url, SHIPPED / "alertmanager.yml", grouped=True) as am,
        Fleet(folder / "prometheus", files, am, nodes.address, scenes) as fleet,
    ):
        time.sleep(squeezed(QUIET))
        play.began, start = time.monotonic(), time.time()
        time.sleep(max(one.over if one.here else squeezed(one.over) for one in scenes))
        time.sleep(squeezed(3 * QUIET))
        troubles = [*fleet.troubles(), *receiver.troubles]
        assert not troubles, troubles
        calls = receiver.calls()
        (folder / "calls.json").write_text(
            json.dumps([
                [one.at - start, one.receiver, dict(one.group),
                 [[n.firing, dict(n.labels), dict(n.annotations)] for n in one.notices]] for one in calls
            ]), "utf-8"
        )  # fmt: skip
        return [counted(scene, fleet.fired(scene.cluster), calls, start) for scene in scenes], fleet.scraped()


if __name__ == "__main__":
    sys.exit(main())
