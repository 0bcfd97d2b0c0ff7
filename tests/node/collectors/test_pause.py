"""Every collector through a pause without a restart: it ends as a fresh start does, and finds what is new."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

import pytest

from tests.node.products.machine import address, draw
from tests.node.products.plays import LOST, asleep, far_ends, lent, nvml
from tests.node.products.rows import ROWS, Row
from tests.support import Node
from wirewatch.core.types import Absent, Health, Why
from wirewatch.hw.overlay import AnswerChange

FAILED, OK = Health.FAILED, Health.OK
UNSUPPORTED = 3
RESTED = 12
"""Polls after which an idle node has been probed again."""
NEVER = "xid_last_event_timestamp_seconds"
DEMO = {6: "0000:d1:00.0", 7: "0000:df:00.0"}
"""Addresses of the last GPUs of demo-dgx-h200."""


def split(gpu: str) -> list[AnswerChange]:
    """GPUs in MIG mode: links read as down, and utilization is not offered (nvml.h)."""
    return [
        nvml(f"gpu{gpu}/MigMode()", "set", [1, 1]),
        nvml(f"gpu{gpu}/Field(165,[0-9])", "set", 0),
        nvml(f"gpu{gpu}/Field(165,1[0-7])", "set", 0),
        nvml(f"gpu{gpu}/UtilizationRates()", "code", UNSUPPORTED),
    ]


def dark(gpu: str) -> list[AnswerChange]:
    """GPUs in MIG mode whose driver offers no link at all, as older ones do."""
    return [
        nvml(f"gpu{gpu}/MigMode()", "set", [1, 1]),
        nvml(f"gpu{gpu}/Field(91)", "set", 0),
        nvml(f"gpu{gpu}/Field(16[45],*)", "code", UNSUPPORTED),
    ]


def lost() -> list[AnswerChange]:
    """The last GPU fell off the bus."""
    return [nvml("Count()", "set", 7), nvml("gpu7/*", "code", LOST)]


@dataclass(frozen=True)
class Pause:
    """What happens to a node and is undone; `session`: the driver is opened again at its end."""

    changes: list[AnswerChange] = field(default_factory=list)
    session: bool = False
    released: bool = False


OLD_SESSION = "lent while the old session lists them"
PAUSES = {
    "one GPU in MIG mode": Pause(split("0")),
    "all GPUs in MIG mode": Pause(split("*")),
    "all GPUs in MIG mode, no link offered": Pause(dark("*")),
    "MIG mode and a new session": Pause(split("*"), session=True),
    "lent": Pause(lent(8, DEMO.values())),
    "lent and given back in a new session": Pause(lent(8, DEMO.values()), session=True),
    OLD_SESSION: Pause(lent(8, DEMO.values(), listed=8)),
    "lost and found": Pause(lost()),
    "lost and found in a new session": Pause(lost(), session=True),
    "released": Pause(session=True, released=True),
}
each_pause = pytest.mark.parametrize("pause", PAUSES.values(), ids=PAUSES)


def begin(node: Node, pause: Pause) -> Callable[[], None]:
    """Begin the pause; returns what ends it."""
    gpus = node.nvml.gpus
    node.changes.extend(pause.changes)
    if pause.released:
        node.nvml.gpus = lambda: Absent(Why.RELEASED, "released")  # type: ignore[method-assign]

    def end() -> None:
        for change in pause.changes:
            node.undo(change)
        node.nvml.gpus = gpus  # type: ignore[method-assign]
        node.nvml.number += pause.session

    return end


def shown(node: Node) -> dict[str, tuple[object, ...]]:
    """By collector: whether it has something to watch, its findings, and its series without their values.

    Collector xid asks who is listed once a session, for times of events that never were.
    """
    return {
        name: (
            one.applicable,
            {(f.rule, str(f.subject), f.health) for f in one.findings},
            {(s.metric.name, s.labels) for s in one.samples if s.metric.name != NEVER},
        )
        for name, one in node.state.components.items()
    }


def fresh(changes: Iterable[AnswerChange] = (), polls: int = 4) -> Node:
    node = Node("demo-dgx-h200", tuple(changes))
    node.poll(times=polls)
    return node


@cache
def rested() -> dict[str, tuple[object, ...]]:
    return shown(fresh(polls=RESTED))


DEAD = nvml("gpu0/Field(165,3)", "set", 0)


@each_pause
@pytest.mark.parametrize("before", [0, 3])
def test_a_pause_ends_as_a_fresh_start(pause: Pause, before: int) -> None:
    """`before`: polls before the pause, none for a start in it, when no old session lists anything."""
    if pause is PAUSES[OLD_SESSION] and not before:
        return
    node = Node("demo-dgx-h200")
    node.poll(times=before)
    end = begin(node, pause)
    node.poll(times=4)
    end()
    node.poll(times=RESTED)
    assert shown(node) == rested()
    node.changes.append(DEAD)
    node.poll(times=4)
    assert ("nvlink.link_down", "0", "3", FAILED) in node.rules()
    assert {one.rule for one in node.findings()} == {"nvlink.link_down", "topology.nvlink_lost"}


@pytest.mark.parametrize("name", [name for name in PAUSES if "lent" in name or "MIG" in name])
def test_what_is_split_or_lent_while_the_agent_runs_is_as_at_a_start(name: str) -> None:
    changes = PAUSES[name].changes
    node = Node("demo-dgx-h200")
    node.poll(times=3)
    begin(node, PAUSES[name])
    node.poll(times=4)
    start = fresh(changes)
    if name == OLD_SESSION:
        assert {f.rule for f in node.shown()} == {"hangs.blind"}
        return
    assert node.findings() == ()
    assert node.health() is OK
    assert shown(node) == shown(start)


def test_a_split_gpu_whose_mode_cannot_be_read_is_split_still() -> None:
    node = Node("demo-dgx-h200", split("0"))
    node.poll(times=3)
    node.change("gpu0/MigMode()", "code", 999)
    node.poll(times=4)
    assert {f.health for f in node.findings()} <= {Health.UNKNOWN}


def test_a_gpu_that_is_lost_is_not_lent_because_its_driver_hides_it() -> None:
    """A driver that is bound has it still: only one that passes it on has handed it on."""
    node = Node("demo-dgx-h200")
    node.poll(times=3)
    begin(node, PAUSES["lost and found"])
    node.poll(times=4)
    assert ("gpu.lost", "7", "", FAILED) in node.rules()


def test_a_link_that_died_while_its_gpu_was_split_or_lent_is_found_by_memory() -> None:
    for pause in (PAUSES["one GPU in MIG mode"], Pause(lent(8, DEMO.values()))):
        gpu = 0 if pause.changes[0].match.startswith("gpu0") else 7
        node = Node("demo-dgx-h200")
        node.poll(times=3)
        end = begin(node, pause)
        node.poll(times=4)
        node.change(f"gpu{gpu}/Field(165,3)", "set", 0)
        end()
        node.poll(times=4)
        assert ("nvlink.link_down", str(gpu), "3", FAILED) in node.rules()


WIRED = [row for row in ROWS if row.links and row.gpus > 1 and not row.recording]


@pytest.mark.parametrize("row", WIRED, ids=lambda row: row.id)
@pytest.mark.parametrize("peers", [False, True])
def test_a_product_whose_last_gpu_is_lent_and_given_back(row: Row, *, peers: bool) -> None:
    """`peers`: the links that lead to it go down with it, where no switch is between."""
    node = Node(draw(row))
    node.poll("nvlink", "pcie", "inventory", "gpu", times=3)
    last = row.gpus - 1
    pause = Pause(lent(row.gpus, [address(last)]))
    if peers:
        pause.changes.extend(far_ends(row, last))
    end = begin(node, pause)
    node.poll("nvlink", "pcie", "inventory", "gpu", times=4)
    assert {f.health for f in node.findings()} <= {Health.UNKNOWN} if peers else node.findings() == ()
    end()
    node.poll("nvlink", "pcie", "inventory", "gpu", times=4)
    assert node.findings() == ()
    assert len(node.series("gpu_info")) == row.gpus


def test_a_node_whose_only_gpu_is_lent_has_nothing_to_watch_as_at_a_start() -> None:
    """Before: OK by collectors that had seen the GPU."""
    row = next(row for row in ROWS if row.id == "gh200")
    changes = lent(1, [address(0)])
    node = Node(draw(row))
    node.poll(times=3)
    end = begin(node, Pause(changes, session=True))
    node.nvml.number += 1
    node.poll(times=2)
    start = Node(draw(row), changes)
    start.poll(times=2)
    assert node.health() is start.health() is Health.UNKNOWN
    assert {name: one.applicable for name, one in node.state.components.items()} == {
        name: one.applicable for name, one in start.state.components.items()
    }
    end()
    node.poll(times=2)
    assert node.health() is OK


MIG = [row for row in WIRED if row.splits and not row.mig]


@pytest.mark.parametrize("row", MIG, ids=lambda row: row.id)
@pytest.mark.parametrize("every", [False, True], ids=["one", "all"])
@pytest.mark.parametrize("before", [0, 3], ids=["at the start", "later"])
def test_a_product_with_mig_on_and_off(row: Row, before: int, *, every: bool) -> None:
    node = Node(draw(row))
    node.poll("nvlink", "pcie", "inventory", "gpu", times=before)
    end = begin(node, Pause(list(asleep(row, range(row.gpus) if every else [0]))))
    node.poll("nvlink", "pcie", "inventory", "gpu", times=4)
    assert {f.health for f in node.findings()} <= ({Health.UNKNOWN} if row.wires != "NVSwitch" else set())
    end()
    node.poll("nvlink", "pcie", "inventory", "gpu", times=4)
    assert node.findings() == ()
    assert node.series("nvlink_links", state="active") == [len(row.active)] * row.gpus
