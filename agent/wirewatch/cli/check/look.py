"""A look of our own at the node, as the daemon would have it after its first polls."""

import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from wirewatch.cli.check.answer import Grounds, found
from wirewatch.cli.hardware import elsewhere, live, replayed
from wirewatch.cli.topologies import given_graph
from wirewatch.collectors import discover
from wirewatch.config import Config, expectations, load
from wirewatch.core.collector import AnyCollector, Component, NodeState, Step, after, blind_rule
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Failed, Finding, Health, Subject, Why
from wirewatch.daemon.baselines import Loaded, foreign
from wirewatch.daemon.baselines import read as read_baseline
from wirewatch.daemon.board import Board
from wirewatch.daemon.persistence import read
from wirewatch.daemon.schedule import Job
from wirewatch.documents.health import ProbeStatus
from wirewatch.documents.state import STAGES
from wirewatch.probe.component import PROBE_NAME, ProbeSummary, probe_summary
from wirewatch.probe.component import probe_summary as told_of_probes
from wirewatch.probe.model import Memory
from wirewatch.probe.persistence import boot_id, recall
from wirewatch.probe.request import Asked, Wish, ask
from wirewatch.probe.statefolder import State, StateError, open_state, state_directory
from wirewatch.verdict.drift.component import Around, Unkept, drift_component
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


@dataclass(frozen=True, slots=True)
class Which:
    """Which node: this one, configured as its daemon is, or a recording."""

    config: Path | None = None
    replay: str | None = None
    overlays: Sequence[str] = ()


class Node:
    """A node that can be looked at; its NVML process is started with the first question."""

    def __init__(self, which: Which, *, keep: bool) -> None:
        """With `keep` the state folder is made where there is none, since a probe is kept there.

        Raises:
            Unusable: the configuration, the recording or an overlay.
        """
        self._config, self._collectors = load(which.config, discover())
        self._state = (
            None if which.replay and not self._config.state.directory else _state(self._config, keep=keep)
        )
        if which.replay:
            self._hardware, self._nvml = replayed(which.replay, which.overlays, loop=False)
        else:
            self._hardware, self._nvml = live(self._config, state=self._state)
        self._expect = expectations(self._config)
        self._prober = elsewhere(self._config, self._hardware)

    def look(self) -> Look:
        """A look that can begin. What the daemon remembered is read only: it may still run."""
        config, clock = self._config, self._hardware.clock
        boot = boot_id(self._hardware)
        ledger = read(self._state.latches, boot, clock.now()).ledger if self._state else Ledger(boot)
        recalls = self._recall if config.probe.enabled else None
        policy = config.policy.verdict
        collectors = (*self._collectors, *self._drift())
        return Look(collectors, self._hardware, self._expect, policy, ledger, recalls)

    def _drift(self) -> Sequence[AnyCollector]:
        """The topology against its baseline, where there is one; it is neither learned nor written here."""
        options = self._config.drift
        loaded = read_baseline(self._state.baseline) if self._state else Loaded(None)
        if not options.enabled or (loaded == Loaded(None) and not options.baseline):
            return ()
        given = given_graph(options.baseline) if options.baseline else None
        around = Around(Unkept(loaded.baseline, loaded.trouble), given, foreign=foreign)
        return (drift_component(options, self._config.policy.drift, around),)

    def _recall(self) -> Component:
        config, history = self._config, self._state.history if self._state else None
        return recall(history, self._hardware, config.probe, config.policy.probe, self._expect, self._prober)

    def probed(self) -> tuple[ProbeSummary | None, tuple[Finding, ...]]:
        """The newest complete probe of the history, None where probing is off, and what it found."""
        if not self._config.probe.enabled:
            return None, ()
        component = self._recall()
        return probe_summary(component, self._hardware.clock.mono()), component.findings

    def probe(self, owner: str, end: float) -> Asked:
        """One probe for who holds the GPUs, over by `end` (monotonic), and again to confirm what it finds."""
        config, wish = self._config, Wish(owner=owner)
        return ask(
            self._hardware, config.probe, config.policy.probe, self._expect, wish, self._state, end,
            self._prober,
        )  # fmt: skip

    def stop(self) -> None:
        self._nvml.stop()

    def shoot(self) -> None:
        """Kill what may hang, and wait for nothing."""
        pid = self._nvml.cost().pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


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


def _probe(state: NodeState, mono: float, *, required: bool) -> ProbeStatus | None:
    """None where probing is off, or a single GPU has nobody to send to."""
    probe = told_of_probes(state.components.get(PROBE_NAME), mono)
    alone = state.components["inventory"].succeeding and len(answering(state)) == 1
    if probe is None or not probe.watched or alone:
        return None
    return ProbeStatus(probe.at, probe.age_seconds, probe.fresh, required)


def _state(config: Config, *, keep: bool) -> State | None:
    """The state folder, None where there is none that can be used: a verdict can be had without."""
    try:
        folder = state_directory(config.state.directory)
        if keep:
            return open_state(folder)
    except StateError as error:
        log.warning("%s: no probe is kept, and no lock is looked at", error)
        return None
    return State(folder) if folder.is_dir() else None
