"""A look of our own at the node, as the daemon would have it after its first polls."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from queue import SimpleQueue
from threading import Thread

from wirewatch.cli.checking.values import Grounds, found
from wirewatch.core.collector import AnyCollector, Component, NodeState, Step, after, blind_rule
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Failed, Finding, Health, Subject, Why
from wirewatch.daemon.board import Board
from wirewatch.daemon.schedule import Job
from wirewatch.documents.health import Probe
from wirewatch.documents.state import STAGES
from wirewatch.probe.component import PROBE_NAME
from wirewatch.probe.component import probe_summary as told_of_probes
from wirewatch.probe.model import Memory
from wirewatch.verdict.ledger import Ledger, VerdictPolicy
from wirewatch.verdict.node import judge_node
from wirewatch.verdict.observation import answering

log = logging.getLogger(__name__)

PAUSE = 0.4
"""Seconds between two looks at what was found: long enough for a moment's hitch to be over."""


class Look:
    """The collectors over some hardware, each in a thread of its own, so that one that hangs hides no other.

    NVML's own lock keeps it asked one thing at a time.

    Args:
        ledger: what is remembered of faults.
        recall: the component of the probe, None where probing is switched off.
    """

    def __init__(
        self, collectors: Sequence[AnyCollector], hardware: Hardware, expect: Expect, policy: VerdictPolicy,
        ledger: Ledger, recall: Callable[[], Component] | None,
    ) -> None:  # fmt: skip
        self._collectors, self._hardware, self._expect = collectors, hardware, expect
        self._policy = policy
        self._recall = recall
        self._began = time.monotonic()
        self._board = Board(collectors, hardware.clock, policy=policy, ledger=ledger)
        if recall is not None:
            self._board.publish(Component(PROBE_NAME, Memory()))

    def run(self, end: float) -> None:
        """Poll everything; what is wrong as often as it takes to believe it, until `end` (monotonic)."""
        wanted: Sequence[AnyCollector] = self._collectors
        work = [] if self._recall is None else [self._recalled]
        for number in count(1):
            began = time.monotonic()
            self._round([*work, *(partial(self._poll, collector) for collector in wanted)])
            found = self._board.state.components
            wanted, work = [c for c in wanted if number < looks(c) and found[c.name].findings], []
            now = time.monotonic()
            if not wanted or now + PAUSE + (now - began) > end:
                return
            time.sleep(PAUSE)

    def _round(self, work: Sequence[Callable[[], Component]]) -> None:
        """All of it once, and what comes of it published as it comes."""
        done: SimpleQueue[Component] = SimpleQueue()
        for one in work:
            Thread(target=lambda one=one: done.put(one()), daemon=True).start()
        for _ in work:
            self._board.publish(done.get())

    def _poll(self, collector: AnyCollector) -> Component:
        component = self._board.state.components[collector.name]
        return after(component, Job(collector, self._hardware, self._expect).run(component.memory))

    def _recalled(self) -> Component:
        """The probe's component; what raises is not known, and sinks nothing else."""
        clock = self._hardware.clock
        try:
            return self._recall() if self._recall else Component(PROBE_NAME, Memory())
        except Exception as error:
            log.exception("the history of probes")
            absent = Absent(Why.MALFORMED, f"the history of probes: {error!r}")
            failed = Failed(absent, clock.now(), clock.mono())
            return after(Component(PROBE_NAME, Memory()), Step(failed, 0.0, Memory(), (), (), None))

    def grounds(self, why: str) -> Grounds:
        """What is known by now; may be asked at any time. Who has not ended is not known."""
        node, clock = self._board.node, self._hardware.clock
        state, waited = node.state, time.monotonic() - self._began
        for component in node.state.components.values():
            if component.outcome is None:
                state = state.with_component(_unread(component, clock.now(), waited))
        verdict = judge_node(state, node.ledger)
        probe = _probe(state, clock.mono(), required=self._policy.require_fresh_probe)
        findings = tuple(found(s.finding, s.id, STAGES[s.stage]) for s in verdict.standings if s.takes_part)
        return Grounds(
            health=verdict.health, source="own", why=why, verdict_at=clock.now(), probe=probe,
            findings=findings, required=probe is not None and probe.required,
        )  # fmt: skip


def looks(collector: AnyCollector) -> int:
    """How often something must be seen to be believed."""
    confirm = getattr(collector.policy, "confirm", 1)
    return confirm if isinstance(confirm, int) else 1


def _unread(component: Component, at: float, waited: float) -> Component:
    """A component that has not told in time; that alone does not say that the driver hangs."""
    finding = Finding(
        blind_rule(component.name), Health.UNKNOWN, Subject(),
        f"no result within {waited:.1f} s, when the answer was due",
        "ask the daemon, which waits longer, or give more time with --deadline", at,
    )  # fmt: skip
    return replace(component, findings=(*component.findings, finding))


def _probe(state: NodeState, mono: float, *, required: bool) -> Probe | None:
    """None where probing is off, or a single GPU has nobody to send to."""
    probe = told_of_probes(state.components.get(PROBE_NAME), mono)
    alone = state.components["inventory"].succeeding and len(answering(state)) == 1
    if probe is None or not probe.watched or alone:
        return None
    return Probe(probe.at, probe.age_seconds, probe.fresh, required)
