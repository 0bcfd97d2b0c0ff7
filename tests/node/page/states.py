"""Nodes in all kinds of states, by name, as a page is made of them. Each is made once."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.node.collectors.test_overlays import DEMO, watch
from tests.node.jobs.hungjobs import WORK, HungJob
from tests.node.jobs.ringjobs import LATE, TRAINING, TREE, DrawnNode
from tests.node.page.pages import content_of
from tests.node.verdict.recordednode import RecordedNode
from tests.support import EPOCH, Node
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.fold import Step, after, overdue
from wirewatch.core.types import Absent, Failed, Finding, Health, Ok, OperatorNote, Subject, Why
from wirewatch.hw.overlay import load_overlay
from wirewatch.jobs.bursts import BurstFacts, BurstHint
from wirewatch.jobs.hangs import HangFacts
from wirewatch.jobs.lockstep import HintTime, LockstepFacts, UnevenWork
from wirewatch.page.content import PageContent, PageContext
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.node import Judged, Standing, judge_state
from wirewatch.verdict.orders import repaired, suppress

PLACE = PageContext("gpu-017", "this machine", "https://docs.example.org/runbook.html")
MANY = 100
DRAWN = ("drift", "gpu", "gpudirect", "infiniband", "inventory", "nvlink", "pcie", "probe", "topology", "xid")
"""Collectors that the page has a place for: what another adds changes none of these states."""
OF_THE_LOG = frozenset({"latched", "repaired"})


def of(node: Node, *, source: str = "live", released_until: float = 0.0, turning: bool = True) -> PageContent:
    return content_of(
        judge_state(node.state),
        node,
        source=source,
        place=PLACE,
        released_until=released_until,
        turning=turning,
    )


def faulty(name: str, recording: str = DEMO, rounds: int = 20) -> Node:
    node = Node(recording, load_overlay(name).changes if name else (), only=DRAWN)
    watch(node, rounds)
    return node


def no_gpus() -> PageContent:
    node = Node("h200x1-idle", only=DRAWN)
    node.change("Count()", "set", 0)
    node.poll(times=3)
    return of(node)


def hinted() -> PageContent:
    """A job in which a GPU has more work than the others, and one that became slower."""
    node = faulty("")
    few = Absent(Why.MISSING, "too few windows before")
    now = node.clock.now()
    uneven = UnevenWork(
        "3", "GPU-3", now - 30, HintTime(now, 60.0), "GPU 3 has 11% more work", 0.11, 0.1, 0.07, {}, few, 3
    )
    fell = BurstHint("", "", now - 90, now, 60.0, 2e11, 3e11, "NVLink carries <b>200</b> GB/s")
    for name, facts in (
        ("lockstep", LockstepFacts(None, None, uneven=uneven)),
        ("bursts", BurstFacts((), (fell,), fell)),
    ):
        node.state = node.state.with_component(
            Component(name, None, Ok((), now, 60.0), applicable=True, last_success=now, facts=facts)
        )
    return of(node)


def jobs() -> PageContent:
    """Three running jobs with the tap: a late GPU, Tree where Ring is due, one whose tap times nothing."""
    node = faulty("")
    drawn = DrawnNode(
        replace(LATE, owner="slurm:4711", nccl="<b>2</b>"),
        replace(TREE, gpus=(4, 5), communicator=2, pid=9000, settings={"NCCL_ALGO": "Tree"}),
        replace(TRAINING, gpus=(6, 7), communicator=3, pid=9100, lost=1.0),
    )  # fmt: skip
    facts, now = drawn.poll(7), node.clock.now()
    node.state = node.state.with_component(
        Component("jobs", None, Ok((), now, 60.0), applicable=True, last_success=now, facts=facts,
                  findings=drawn.found)
    )  # fmt: skip
    return of(node)


def hung() -> PageContent:
    """A job that waits for its third rank, and an earlier hang of it, which is over."""
    node, job = faulty(""), HungJob()
    for late in (1, 2):
        job.work()
        job.wait(late)
        job.poll(12)
        if late == 1:
            for rank in job.ranks:
                rank.load = WORK
    facts, now = job.watched.component.facts, node.clock.now()
    assert isinstance(facts, HangFacts)
    moved = now - job.watched.clock.now()
    facts = replace(
        facts,
        past=tuple(replace(one, begin=one.begin + moved, end=one.end + moved) for one in facts.past),
        now=tuple(replace(one, found=one.found + moved) for one in facts.now),
    )
    node.state = node.state.with_component(
        Component("hangs", None, Ok((), now, 60.0), applicable=True, last_success=now, facts=facts)
    )
    return of(node)


def stale(fault: str, *names: str) -> PageContent:
    """The driver hangs: collectors are overdue, and what they found stays."""
    node = faulty(fault)
    for name in names:
        node.state = node.state.with_component(
            overdue(node.state.components[name], node.clock.now() - 70, 10.0)
        )
    return of(node)


def unread(why: Why, detail: str) -> Callable[[Component, float], Component]:
    def fail(one: Component, at: float) -> Component:
        failed = Failed(Absent(why, detail), at, 0.0)
        return after(one, Step(failed, 0.001, one.memory, (), (), None))

    return fail


def released() -> PageContent:
    node = faulty("")
    fail = unread(Why.RELEASED, "released until 01:20:00Z")
    for name in ("inventory", "nvlink", "gpu", "pcie", "topology"):
        node.state = node.state.with_component(fail(node.state.components[name], node.clock.now()))
    return of(node, released_until=node.clock.now() + 400)


def denied() -> PageContent:
    node = faulty("")
    fail = unread(Why.DENIED, "/sys/class/infiniband: Permission denied")
    for name in ("infiniband", "gpudirect", "xid"):
        node.state = node.state.with_component(fail(node.state.components[name], node.clock.now()))
    return of(node)


def drifted() -> PageContent:
    node = faulty("")
    for link in (6, 7):
        node.change(f"gpu2/Field(165,{link})", "set", 0)
    node.poll("topology", "drift", times=2)
    return of(node)


def many() -> PageContent:
    """So many findings that nobody reads them all."""
    node = faulty("")
    one = node.state.components["xid"]
    made = tuple(
        Finding(
            f"xid.{n}", Health(1 + 2 * (n % 2)), Subject(str(n % 8), f"GPU-{n % 8}"), f"event {n}",
            f"do `this {n}`", EPOCH + n, EPOCH + n,
        )
        for n in range(MANY)
    )  # fmt: skip
    node.state = node.state.with_component(replace(one, findings=made))
    return of(node)


def remembered(step: str) -> PageContent:
    """A link that was down: unseen, on probation, suppressed, or said to be repaired."""
    with tempfile.TemporaryDirectory() as folder:
        overlay = "xid-79" if step in OF_THE_LOG else "nvlink-link-down"
        here = RecordedNode(Path(folder), overlay, only=DRAWN)
        here.poll(times=6)
        if step == "suppressed":
            until, said = EPOCH + 86400.0, OperatorNote("night-shift", "part is ordered", EPOCH + 50)
            here.board.order(
                lambda node, policy, _now: suppress(node.ledger, first(node), until, said, policy)
            )
        elif step == "repaired":
            said = OperatorNote("night-shift", "card replaced", EPOCH + 95)
            for _ in range(2):
                here.board.order(
                    lambda node, _policy, now: repaired(node.ledger, first(node), said, now.mono)
                )
        else:
            here.repair()
            if step == "latched":
                here.restart()
            here.poll(times={"unseen": 2, "latched": 4}.get(step, 8))
        return content_of(here.board.node, here.node, place=PLACE, policy=VerdictPolicy())


def first(node: Judged) -> Standing:
    return node.verdict.standings[0]


def nothing_watched() -> PageContent:
    node = Node(DEMO, only=DRAWN)
    node.state = NodeState({})
    return of(node)


STATES: Mapping[str, Callable[[], PageContent]] = {
    "healthy": lambda: of(faulty("")),
    "first-seconds": lambda: of(Node(DEMO, only=DRAWN)),
    "nothing-watched": nothing_watched,
    "link-down": lambda: of(faulty("nvlink-link-down")),
    "gpu-lost": lambda: of(faulty("gpu-lost")),
    "degraded": lambda: of(faulty("straggler-memory"), source="synthetic"),
    "hinted": hinted,
    "jobs": jobs,
    "hung": hung,
    "straggler": lambda: of(faulty("straggler-source"), source="replay"),
    "unknown-product": lambda: of(faulty("probe-unknown-product")),
    "mig": lambda: of(faulty("gpu-mig")),
    "one-gpu": lambda: of(faulty("", "h200x1-idle", 4)),
    "four-gpus": lambda: of(faulty("", "h200x4-idle", 4)),
    "virtual": lambda: of(faulty("", "h200x8", 4)),
    "no-gpus": no_gpus,
    "port-down": lambda: of(faulty("ib-port-down")),
    "port-unreadable": lambda: of(faulty("ib-unreadable")),
    "denied": denied,
    "stale": lambda: stale("nvlink-link-down", "nvlink", "gpu", "topology"),
    "silent": lambda: stale("", "inventory", "nvlink", "gpu", "pcie", "topology", "drift"),
    "released": released,
    "drifted": drifted,
    "many": many,
    "stopped": lambda: of(faulty("", rounds=4), turning=False),
    "unseen": lambda: remembered("unseen"),
    "probation": lambda: remembered("probation"),
    "latched": lambda: remembered("latched"),
    "suppressed": lambda: remembered("suppressed"),
    "repaired": lambda: remembered("repaired"),
}


@cache
def state(name: str) -> PageContent:
    return STATES[name]()
