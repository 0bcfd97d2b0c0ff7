"""The fleet: Prometheus and Alertmanager with the shipped rules, squeezed, and nodes that come and go."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proof.rehearsal.node import Node
from proof.rehearsal.pace import SCRAPE
from proof.rehearsal.receiver import Receiver
from proof.rehearsal.rules import Rules, recorded_ages
from proof.rehearsal.services import Alertmanager, Prometheus
from proof.rehearsal.squeeze import squeezed

SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus"
PROBES = 5
"""Healthy probes of the node whose past all others share: as many as make a history."""
STARTING = 2
"""Daemons that start at the same time: as many as there are processors, or their clocks begin late."""
PAST = 240.0
"""Seconds in which a node has a past, at most."""


def shipped_rules() -> list[Rules]:
    """The recording and alerting rules, as they are."""
    files = sorted(SHIPPED.glob("wirewatch-*.yml"))
    assert len(files) >= 2, files
    return [Rules.read(file.read_text("utf-8")) for file in files]


@dataclass(frozen=True)
class Fleet:
    """What a node needs to be watched; `past` is the state folder of a node that has been in service."""

    folder: Path
    receiver: Receiver
    prometheus: Prometheus
    past: Path | None
    starting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(STARTING))

    def node(self, name: str, *, remembers: bool = True) -> Node:
        """A node with that past; `remembers`: which parts it had, too."""
        node = Node(name, self.folder / "nodes" / name, self.past)
        if not remembers:
            (node.state / "machine.json").unlink(missing_ok=True)
        return node


@contextmanager
def fleet(
    folder: Path, past: Path | None, starting: threading.Semaphore, *, apart: bool = False
) -> Iterator[Fleet]:
    """A web hook, Alertmanager and Prometheus, ended with the block; with `apart` no node has neighbours."""
    rules = shipped_rules()
    ages = recorded_ages(rules)
    (folder / "rules").mkdir(parents=True)
    files = []
    for number, file in enumerate(rules):
        files.append(folder / "rules" / f"{number}.yml")
        files[-1].write_text(file.squeezed(ages), "utf-8")
    with Receiver() as receiver:
        alertmanager = Alertmanager(folder / "alertmanager", receiver.url, SHIPPED / "alertmanager.yml")
        with (
            alertmanager,
            # Made only when it is sure which port Alertmanager has.
            Prometheus(
                folder / "prometheus", files, alertmanager, squeezed(SCRAPE), apart=apart
            ) as prometheus,
        ):
            yield Fleet(folder, receiver, prometheus, past, starting)


def make_past(folder: Path) -> Path:
    """The state folder of a healthy node: a learned baseline and a history of probes, made by its daemon."""
    node = Node("past", folder)
    soon = {"drift": {"interval": 1.0}, "probe": {"interval": 0.5, "probe_interval": 1.0, "settle": 0.5}}
    with node:
        node.start(own=soon)
        end = time.monotonic() + PAST
        while not _has_past(node):
            assert time.monotonic() < end, f"no past after {PAST:g} s: {node.daemon.log[-2000:]}"
            time.sleep(0.5)
        node.stop()
    return node.state


def _has_past(node: Node) -> bool:
    told = {
        (name, *sorted(labels)): value
        for (name, labels), value in node.daemon.get("/metrics").series().items()
    }
    probes = told.get(("wirewatch_probe_runs_total", ("result", "ok")), 0)
    return bool(told.get(("wirewatch_topology_baseline_timestamp_seconds",))) and probes >= PROBES
