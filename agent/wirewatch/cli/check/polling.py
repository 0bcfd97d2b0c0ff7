"""A poll of the node without the daemon: the verdict that a daemon would have after its first polls."""

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
from wirewatch.cli.hardware import live, remote_prober, replayed
from wirewatch.cli.topologies import given_graph
from wirewatch.collectors import discover
from wirewatch.config import Config, expectations, load
from wirewatch.core.collector import AnyCollector, Component, NodeState, Step, after, blind_rule
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Failed, Finding, Health, Subject, Why
from wirewatch.daemon.baselines import LoadedBaseline, foreign, read_baseline
from wirewatch.daemon.board import Board
from wirewatch.daemon.persistence import read_ledger
from wirewatch.daemon.schedule import Job
from wirewatch.documents.health import ProbeStatus
from wirewatch.documents.state import STAGES
from wirewatch.probe.component import PROBE_NAME, ProbeSummary, probe_summary
from wirewatch.probe.model import ProbeMemory
from wirewatch.probe.request import ProbeOverrides, ProbeResult, probe_now
from wirewatch.probe.restore import boot_id, recall
from wirewatch.probe.statefolder import StateError, StateFolder, open_state, state_directory
from wirewatch.verdict.drift.component import BaselineInMemory, DriftContext, drift_component
from wirewatch.verdict.ledger import Ledger, VerdictPolicy
from wirewatch.verdict.node import judge_node
from wirewatch.verdict.observation import answering_gpus

log = logging.getLogger(__name__)
PAUSE = 0.4
"""Seconds until a collector with a finding polls again: long enough for a short hitch to pass."""


class Poll:
    """The collectors, each in a thread of its own, so that a hanging one hides no other.

    A lock keeps NVML at one question at a time.

    Args:
        ledger: what is remembered of faults.
        recall: makes the component of the probe; None when probing is switched off.
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
            self._board.publish(Component(PROBE_NAME, ProbeMemory()))

    def run(self, end: float) -> None:
        """Poll all, then what has findings until these are confirmed or `end` (monotonic) is near."""
        wanted: Sequence[AnyCollector] = self._collectors
        work = [] if self._recall is None else [self._recalled]
        for number in count(1):
            began = time.monotonic()
            self._round([*work, *(partial(self._poll, collector) for collector in wanted)])
            found = self._board.state.components
            wanted, work = [c for c in wanted if number < polls_needed(c) and found[c.name].findings], []
            now = time.monotonic()
            if not wanted or now + PAUSE + (now - began) > end:
                return
            time.sleep(PAUSE)

    def _round(self, work: Sequence[Callable[[], Component]]) -> None:
        """Do all the work at once, and publish each component as it comes."""
        done: SimpleQueue[Component] = SimpleQueue()
        for one in work:
            Thread(target=lambda one=one: done.put(one()), daemon=True).start()
        for _ in work:
            self._board.publish(done.get())

    def _poll(self, collector: AnyCollector) -> Component:
        component = self._board.state.components[collector.name]
        return after(component, Job(collector, self._hardware, self._expect).run(component.memory))

    def _recalled(self) -> Component:
        """The component of the probe; an error makes it unknown and spoils nothing else."""
        clock = self._hardware.clock
        try:
            return self._recall() if self._recall else Component(PROBE_NAME, ProbeMemory())
        except Exception as error:
            log.exception("the history of probes")
            absent = Absent(Why.MALFORMED, f"the history of probes: {error!r}")
            failed = Failed(absent, clock.now(), clock.mono())
            return after(Component(PROBE_NAME, ProbeMemory()), Step(failed, 0.0, ProbeMemory(), (), (), None))

    def grounds(self, why: str) -> Grounds:
        """What is known by now, at any time; a collector that has not ended is unknown."""
        node, clock = self._board.node, self._hardware.clock
        state, waited = node.state, time.monotonic() - self._began
        for component in node.state.components.values():
            if component.outcome is None:
                state = state.with_component(_unread(component, clock.now(), waited))
        verdict = judge_node(state, node.ledger, self._policy.failing())
        probe = _probe(state, clock.mono(), required=self._policy.require_fresh_probe)
        findings = tuple(found(s.finding, s.id, STAGES[s.stage]) for s in verdict.standings if s.takes_part)
        return Grounds(
            health=verdict.health, source="own", why=why, verdict_at=clock.now(), probe=probe,
            findings=findings, required=probe is not None and probe.required, fail_on=verdict.fail_on,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeSource:
    """Where the node is read: this machine, configured as its daemon is, or a recording."""

    config: Path | None = None
    replay: str | None = None
    overlays: Sequence[str] = ()


class CheckedNode:
    """A node that can be polled and probed; its NVML process starts with the first question.

    Args:
        keep: make the state folder if it is missing, since a probe is kept there.

    Raises:
        Unusable: the configuration, the recording or an overlay cannot be used.
    """

    def __init__(self, source: NodeSource, *, keep: bool) -> None:
        self._config, self._collectors = load(source.config, discover())
        self._state = (
            None if source.replay and not self._config.state.directory else _state(self._config, keep=keep)
        )
        if source.replay:
            self._hardware, self._nvml = replayed(source.replay, source.overlays, loop=False)
        else:
            self._hardware, self._nvml = live(self._config, state=self._state)
        self._expect = expectations(self._config)
        self._prober = remote_prober(self._config, self._hardware)

    def poll(self) -> Poll:
        """A poll that can begin. The daemon's files are only read, since it may still run."""
        config, clock = self._config, self._hardware.clock
        boot = boot_id(self._hardware)
        ledger = read_ledger(self._state.latches, boot, clock.now()).ledger if self._state else Ledger(boot)
        recalls = self._recall if config.probe.enabled else None
        policy = config.policy.verdict
        collectors = (*self._collectors, *self._drift())
        return Poll(collectors, self._hardware, self._expect, policy, ledger, recalls)

    def _drift(self) -> Sequence[AnyCollector]:
        """The comparison with the baseline, if there is one; no baseline is learned or written here."""
        options = self._config.drift
        loaded = read_baseline(self._state.baseline) if self._state else LoadedBaseline(None)
        if not options.enabled or (loaded == LoadedBaseline(None) and not options.baseline):
            return ()
        given = given_graph(options.baseline) if options.baseline else None
        around = DriftContext(BaselineInMemory(loaded.baseline, loaded.trouble), given, foreign=foreign)
        return (drift_component(options, self._config.policy.drift, around),)

    def _recall(self) -> Component:
        config, history = self._config, self._state.history if self._state else None
        return recall(history, self._hardware, config.probe, config.policy.probe, self._expect, self._prober)

    def last_probe(self) -> tuple[ProbeSummary | None, tuple[Finding, ...]]:
        """The newest complete probe of the history and its findings; None when probing is off."""
        if not self._config.probe.enabled:
            return None, ()
        component = self._recall()
        return probe_summary(component, self._hardware.clock.mono()), component.findings

    def probe(self, owner: str, end: float) -> ProbeResult:
        """Probe for the owner of the GPUs until `end` (monotonic), and again to confirm what is found."""
        config, wish = self._config, ProbeOverrides(owner=owner)
        return probe_now(
            self._hardware, config.probe, config.policy.probe, self._expect, wish, self._state, end,
            self._prober,
        )  # fmt: skip

    def stop(self) -> None:
        """End the NVML process."""
        self._nvml.stop()

    def kill(self) -> None:
        """Kill what may hang, and wait for nothing."""
        pid = self._nvml.cost().pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def polls_needed(collector: AnyCollector) -> int:
    """How many polls must show a fault to confirm it."""
    confirm = getattr(collector.policy, "confirm", 1)
    return confirm if isinstance(confirm, int) else 1


def _unread(component: Component, at: float, waited: float) -> Component:
    """A component without a result in time; that alone does not mean that the driver hangs."""
    finding = Finding(
        blind_rule(component.name), Health.UNKNOWN, Subject(),
        f"no result within {waited:.1f} s, when the answer was due",
        "ask the daemon, which waits longer, or give more time with --deadline", at,
    )  # fmt: skip
    return replace(component, findings=(*component.findings, finding))


def _probe(state: NodeState, mono: float, *, required: bool) -> ProbeStatus | None:
    """The last probe; None when probing is off, or for a single GPU, which has no peer."""
    probe = probe_summary(state.components.get(PROBE_NAME), mono)
    alone = state.components["inventory"].succeeding and len(answering_gpus(state)) == 1
    if probe is None or not probe.watched or alone:
        return None
    return ProbeStatus(probe.at, probe.age_seconds, probe.fresh, required)


def _state(config: Config, *, keep: bool) -> StateFolder | None:
    """The state folder; None when it cannot be used, since a verdict does not need it."""
    try:
        folder = state_directory(config.state.directory)
        if keep:
            return open_state(folder)
    except StateError as error:
        log.warning("%s: no probe is kept, and no lock is respected", error)
        return None
    return StateFolder(folder) if folder.is_dir() else None
