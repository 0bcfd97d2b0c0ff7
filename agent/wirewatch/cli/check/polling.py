"""A poll of the node, or a play of a recording, without the daemon: the verdict that a daemon would have."""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import click

from wirewatch.catalogue import discover
from wirewatch.cli.check.answer import Grounds, reported
from wirewatch.cli.check.daemon import node_name
from wirewatch.cli.hardware import PlayedPorts, live, play, remote_prober, replayed
from wirewatch.cli.progress import under_way
from wirewatch.cli.topologies import given_graph
from wirewatch.config import Config, expectations, load
from wirewatch.core.collector import AnyCollector, Component, NodeState, blind_rule
from wirewatch.core.fold import Step, after, overdue
from wirewatch.core.machine import Machine, read_machine
from wirewatch.core.ports import Hardware, Sysfs
from wirewatch.core.types import Absent, Expect, Failed, Finding, Health, Subject, Why
from wirewatch.core.words import short_span
from wirewatch.daemon.baselines import LoadedBaseline, foreign, read_baseline
from wirewatch.daemon.board import Board
from wirewatch.daemon.machine import PATIENCE, KeptMachine, identify_machine, read_kept, recalled
from wirewatch.daemon.pairsresult import read_result
from wirewatch.daemon.persistence import lost, read_ledger
from wirewatch.daemon.schedule import RETRY, Job
from wirewatch.documents import judged as documents
from wirewatch.documents.judged import gate_orders, is_exempt, jobs, probe_status, standing, suppressed
from wirewatch.documents.status import NodeSnapshot
from wirewatch.hw.play import PlayOverdue
from wirewatch.probe.collector import PROBE_NAME, ProbeSummary, probe_collector, probe_summary
from wirewatch.probe.gate import SkipReason, nothing_to_probe
from wirewatch.probe.history import History, HistoryLimits
from wirewatch.probe.judge import confirming
from wirewatch.probe.model import ProbeMemory
from wirewatch.probe.nics import recalled_nics
from wirewatch.probe.request import ProbeOverrides, ProbeResult, probe_now
from wirewatch.probe.restore import BUSY_SECONDS, boot_id, recall
from wirewatch.statefolder import StateError, StateFolder, open_state_for_command, state_directory
from wirewatch.verdict.drift.component import NAME as DRIFT
from wirewatch.verdict.drift.component import BaselineInMemory, DriftContext, drift_component
from wirewatch.verdict.ledger import Ledger, VerdictPolicy
from wirewatch.verdict.node import Judged, judge_node, troubles
from wirewatch.verdict.pairs import NOTHING_HELD, pairs_component

log = logging.getLogger(__name__)
NVLINK = "nvlink"
PLAY = 120.0
"""Seconds for a play."""
PAUSE = 0.4
"""Seconds until a collector with a finding polls again: long enough for a short hitch to pass."""


class Poll:
    """The collectors, each in a thread of its own, so that a hanging collector hides no other.

    A lock keeps NVML at one question at a time. `ledger` remembers faults; `recall` makes the component of
    the probe, and is None when probing is switched off.
    """

    def __init__(
        self, collectors: Sequence[AnyCollector], hardware: Hardware, expect: Expect, policy: VerdictPolicy,
        ledger: Ledger, recall: Callable[[], Component] | None,
    ) -> None:  # fmt: skip
        self._collectors, self._hardware, self._expect = collectors, hardware, expect
        self._policy, self._recall = policy, recall
        self._host = node_name() if hardware.source == "live" else ""
        self._began = time.monotonic()
        self._board = Board(collectors, hardware.clock, policy=policy, ledger=ledger)
        if recall is not None:
            self._board.publish(Component(PROBE_NAME, ProbeMemory()))

    @property
    def state(self) -> NodeState:
        """The components as they are now."""
        return self._board.state

    @property
    def judged(self) -> Judged:
        """The state with its verdict, as it is now."""
        return self._board.node

    def snapshot(self) -> NodeSnapshot:
        """The documents of the node as it is now, at a time of the play where a recording plays."""
        judged, at, source = self.judged, self._hardware.clock.now(), self._hardware.source
        known, running = documents.state(judged, at, source), jobs(judged.state, at, source, host=self._host)
        return NodeSnapshot(known, documents.findings(judged, at, host=self._host), running)

    def run(self, end: float) -> None:
        """Poll all, then collectors with findings until these are confirmed or `end` (monotonic) is near."""
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
        """Return the component of the probe; an error makes it unknown and spoils nothing else."""
        clock = self._hardware.clock
        try:
            return self._recall() if self._recall else Component(PROBE_NAME, ProbeMemory())
        except Exception as error:
            log.exception("the history of probes")
            absent = Absent(Why.MALFORMED, f"the history of probes: {error!r}")
            failed = Failed(absent, clock.now(), clock.mono())
            return after(Component(PROBE_NAME, ProbeMemory()), Step(failed, 0.0, ProbeMemory(), (), (), None))

    def grounds(self, why: str) -> Grounds:
        """Return the present knowledge, at any time; a collector that has not ended is unknown."""
        node, clock = self._board.node, self._hardware.clock
        state, waited = node.state, time.monotonic() - self._began
        for component in node.state.components.values():
            if component.outcome is None:
                state = state.with_component(_unread(component, clock.now(), waited))
        verdict = judge_node(state, node.ledger, self._policy.failing())
        required, mono = self._policy.require_fresh_probe, clock.mono()
        findings = tuple(reported(standing(s)) for s in verdict.standings if s.takes_part)
        known = documents.gpus(state)
        return Grounds(
            health=verdict.health, source="own", why=why, verdict_at=clock.now(),
            probe=probe_status(state, mono, required=required), findings=findings, required=required,
            exempt=is_exempt(state, mono), suppressed=tuple(suppressed(verdict)), fail_on=verdict.fail_on,
            base=verdict.base, gpus=None if known is None else tuple(known),
            orders=tuple(gate_orders(Judged(state, verdict, node.ledger))), host=self._host,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeSource:
    """The source of the node: this machine, configured as its daemon is, or a recording.

    `film`: the recording runs over and over in real time, and is not played to its end at once.
    """

    config: Path | None = None
    replay: str | None = None
    overlays: Sequence[str] = ()
    film: bool = False


def played(source: NodeSource, seen: Callable[[Poll], None] = lambda _: None) -> Poll:
    """Play a recording to its end without a daemon, for at most PLAY seconds; raises as `CheckedNode`.

    `seen` is called each time that the counters of NVLink have been read.
    """
    node = CheckedNode(source, keep=False)
    try:
        poll = node.poll(seen)
        with under_way(f"playing recording {source.replay}"):
            poll.run(time.monotonic() + PLAY)
    finally:
        node.stop()
    return poll


class CheckedNode:
    """A node that can be polled and probed; its NVML process starts with the first question.

    `keep` makes the state folder if it is missing, since a probe is kept there.

    Raises:
        Unusable: the configuration, the recording or an overlay cannot be used.
    """

    def __init__(self, source: NodeSource, *, keep: bool) -> None:
        self._config, self._collectors = load(source.config, discover())
        self._state = (
            None if source.replay and not self._config.state.directory else _state(self._config, keep=keep)
        )
        self._played: PlayedPorts | None = None
        if source.replay and source.film:
            self._hardware, self._nvml = replayed(source.replay, source.overlays, loop=True, at_fault=True)
        elif source.replay:
            longest = max((lasting(collector) for collector in self._collectors), default=0.0)
            self._played = play(source.replay, source.overlays, longest)
            self._hardware, self._nvml = self._played.hardware, self._played.nvml
        else:
            self._hardware, self._nvml = live(self._config, state=self._state)
        self._expect = expectations(self._config)
        self._prober = remote_prober(self._config, self._hardware)

    def poll(self, seen: Callable[[Poll], None] = lambda _: None) -> Poll:
        """Return a poll that can begin. The daemon's files are only read, since it may still run."""
        config, clock = self._config, self._hardware.clock
        boot, state = boot_id(self._hardware), self._state
        kept = (
            read_kept(state.machine, self._collectors, self._hardware, self._identified)
            if state
            else KeptMachine()
        )
        if kept.foreign:
            click.echo(f"wirewatch: {kept.foreign}: nothing of it counts here", err=True)
            state = self._state = None
        ledger = read_ledger(state.latches, boot, clock.now()) if state else Ledger(boot)
        if kept.wrong:
            ledger = lost(ledger, "the machine", kept.wrong, clock.now())
        recalls = self._recall if config.probe.enabled else None
        policy = config.policy.verdict
        collectors = (*recalled(self._collectors, kept), *self._told())
        if self._played is not None:
            return self._play(self._played, collectors, ledger, recalls if state else None, seen)
        collectors = (*collectors, *self._drift(), *self._nics())
        return Poll(collectors, self._hardware, self._expect, policy, ledger, recalls)

    def _identified(self, sysfs: Sysfs) -> Machine:
        """Return the machine by its files; a play does not wait for files that hang."""
        if self._played is None:
            return identify_machine(sysfs)
        try:
            with self._played.clock.within(PATIENCE):
                return read_machine(sysfs)
        except PlayOverdue:
            return Machine()

    def _play(
        self, ports: PlayedPorts, watching: Sequence[AnyCollector], ledger: Ledger,
        recalls: Callable[[], Component] | None, seen: Callable[[Poll], None],
    ) -> Poll:  # fmt: skip
        """Return all that a daemon would run, over a recording that is played at once."""
        config, expect = self._config, self._expect
        probing = (
            [probe_collector(config.probe, config.policy.probe, expect, prober=self._prober)]
            if config.probe.enabled
            else []
        )
        polls: list[PlayedPoll] = []
        drift = self._drift(lambda: [one for poll in polls for one in poll.troubles()])
        collectors = (*watching, *probing, *drift)
        polls.append(PlayedPoll(collectors, ports, expect, config.policy.verdict, ledger, recalls, seen))
        return polls[0]

    def _drift(self, troubles: Callable[[], Sequence[str]] = tuple) -> Sequence[AnyCollector]:
        """Return the comparison with the baseline, if any; only a play learns a baseline, and writes none."""
        options = self._config.drift
        loaded = read_baseline(self._state.baseline) if self._state else LoadedBaseline(None)
        none = loaded == LoadedBaseline(None) and not options.baseline and self._played is None
        if not options.enabled or none:
            return ()
        given = given_graph(options.baseline) if options.baseline else None
        keeps = BaselineInMemory(loaded.baseline, loaded.trouble)
        policy = self._config.policy.drift
        if loaded.trouble:
            # What a play learns does not replace a file that cannot be used.
            policy = replace(policy, learn=sys.maxsize)
        return (drift_component(options, policy, DriftContext(keeps, given, troubles, foreign)),)

    def _told(self) -> Sequence[AnyCollector]:
        """Return the result of pairs of nodes about this node, if there is any."""
        told = read_result(self._state.pairs) if self._state and self._config.pairs.enabled else NOTHING_HELD
        if told == NOTHING_HELD:
            return ()
        return (pairs_component(self._config.pairs, self._config.policy.pairs, told),)

    def _nics(self) -> Sequence[AnyCollector]:
        """Return the history's results of probes of NICs, if these are switched on and there were any."""
        config, path = self._config, self._state.nics if self._state else None
        if not (config.probe.enabled and config.probe.nics.enabled and path and path.exists()):
            return ()
        history = History(path, self._hardware.clock, HistoryLimits(busy=BUSY_SECONDS), read_only=True)
        return (recalled_nics(config.probe, config.policy.probe, self._expect, history),)

    def _recall(self) -> Component:
        config, history = self._config, self._state.history if self._state else None
        known = recall(history, self._hardware, config.probe, config.policy.probe, self._expect, self._prober)
        pointless = None if config.probe.engine == "gloo" else nothing_to_probe(self._hardware)
        return known if pointless is None else replace(known, memory=replace(known.memory, refusal=pointless))

    def last_probe(self) -> tuple[ProbeSummary | None, tuple[Finding, ...]]:
        """The newest complete probe of the history and its findings; None when probing is off."""
        self._in_real_time()
        if not self._config.probe.enabled:
            return None, ()
        component = self._recall()
        return probe_summary(component, self._hardware.clock.mono()), component.findings

    def probe(self, owner: str, end: float) -> ProbeResult:
        """Probe for the owner of the GPUs until `end` (monotonic), and again to confirm findings."""
        self._in_real_time()
        config, wish = self._config, ProbeOverrides(owner=owner)
        # The clock of a play is not the machine's.
        end += self._hardware.clock.mono() - time.monotonic()
        return probe_now(
            self._hardware, config.probe, config.policy.probe, self._expect, wish, self._state, end,
            self._prober,
        )  # fmt: skip

    def _in_real_time(self) -> None:
        """A probe for an owner takes its time, also on a recording that was played without waiting."""
        if self._played is not None:
            self._played.clock.let_go()

    def stop(self) -> None:
        """End the NVML process."""
        self._nvml.stop()

    def kill(self) -> None:
        """Kill processes that may hang, without waiting."""
        self._nvml.kill()


HOLD = 300.0
"""Seconds for which a fault must have lasted: longer than every window of minutes in which a rule counts."""
PACE = 5.0
"""Least seconds between two polls of a collector in a play: a play of minutes needs no more polls."""
MOST = 3600.0
"""Seconds after which a play waits for no probe."""
QUIET = {
    "wirewatch.hw.nvml": logging.CRITICAL, "wirewatch.jobs": logging.ERROR,
    "wirewatch.probe": logging.ERROR,
}  # fmt: skip
"""The least level of the log: a lost GPU, each hint and each probe would be logged again and again."""
PASSING = frozenset({SkipReason.SETTLING, SkipReason.BUDGET, SkipReason.LOCKED})
"""Reasons of a passing refusal: a probe will run soon."""


@contextmanager
def quiet() -> Iterator[None]:
    """Log less, as QUIET says, until the block ends."""
    before = {name: logging.getLogger(name).level for name in QUIET}
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


class PlayedPoll(Poll):
    """A recording in play, and the present knowledge of it.

    Args:
    collectors: the probe's component and that of the drift as well.
    recall: reads the component of the probe from the history; None where none is kept.
    seen: called each time that the counters of NVLink have been read.
    """

    def __init__(
        self, collectors: Sequence[AnyCollector], ports: PlayedPorts, expect: Expect, policy: VerdictPolicy,
        ledger: Ledger, recall: Callable[[], Component] | None, seen: Callable[[Poll], None],
    ) -> None:  # fmt: skip
        super().__init__(collectors, ports.hardware, expect, policy, ledger, recall)
        self._seen = seen
        self._play, self._steady = ports.clock, ports.steady
        self._stopped: set[str] = set()
        self._ended = False

    def run(self, end: float) -> None:
        """Play until all is confirmed, or until `end` (monotonic seconds of the machine)."""
        with quiet():
            self._run(end)

    def _run(self, end: float) -> None:
        due = [(0.0, number) for number in range(len(self._collectors))]
        while due:
            if time.monotonic() > end:
                return
            at, number = heappop(due)
            collector = self._collectors[number]
            self._play.move_to(at)
            self._turn(collector)
            if collector.name == NVLINK:
                self._seen(self)
            if not self._settled(collector):
                heappush(due, (max(self._play.seconds(), at + self._interval(collector)), number))
        self._recall_kept()
        self._ended = True
        self._play.let_go()

    def grounds(self, why: str) -> Grounds:
        """Return the present knowledge; before the play has ended nothing is known to be well."""
        known = super().grounds(f"{why}, played for {short_span(self._play.seconds())}")
        return known if self._ended else known.at_least(Health.UNKNOWN)

    def troubles(self) -> Sequence[str]:
        """Return the rules of all findings except drift; while there are any, nothing is learned."""
        return troubles(self._board.node.verdict, DRIFT)

    def _turn(self, collector: AnyCollector) -> None:
        component = self._board.state.components[collector.name]
        deadline = collector.options.deadline
        if collector.lane not in self._stopped:
            try:
                with self._play.within(deadline):
                    self._board.publish(self._poll(collector))
            except PlayOverdue:
                # The thread of its lane waits for ever.
                self._stopped.add(collector.lane)
        if collector.lane in self._stopped and component.overdue_since is None:
            self._board.publish(overdue(component, self._play.now(), deadline))

    def _interval(self, collector: AnyCollector) -> float:
        component = self._board.state.components[collector.name]
        return paced(collector) if component.succeeding else min(paced(collector), RETRY)

    def _settled(self, collector: AnyCollector) -> bool:
        lasted = self._play.seconds() - self._steady
        if lasted < lasting(collector):
            return False
        memory = self._board.state.components[collector.name].memory
        return not isinstance(memory, ProbeMemory) or lasted > MOST or self._is_probed(memory, collector)

    def _is_probed(self, memory: ProbeMemory, collector: AnyCollector) -> bool:
        """Return whether another probe would show nothing more, or none can run."""
        if collector.lane in self._stopped:
            return True
        if memory.refusal is not None and memory.refusal.reason not in PASSING:
            return True
        tried = memory.tried_mono is not None and memory.tried_mono >= self._play.mono_at(self._steady)
        failing = 0 < memory.failures < collector.policy.failures
        return tried and not confirming(memory) and not failing

    def _recall_kept(self) -> None:
        """Publish the probe of the history, where none was played."""
        component = self._board.state.components.get(PROBE_NAME)
        if self._recall is None or component is None or _probed(component):
            return
        kept = self._recalled()
        if kept.findings or _probed(kept):
            self._board.publish(kept)


def polls_needed(collector: AnyCollector) -> int:
    """Return the number of polls that must show a fault to confirm it."""
    confirm = getattr(collector.policy, "confirm", 1)
    return confirm if isinstance(confirm, int) else 1


def lasting(collector: AnyCollector) -> float:
    """Return the seconds of polling that the collector needs to confirm a fault that has begun."""
    options = asdict(collector.options)
    # `link_detail_interval` counts where `link_detail` is not off.
    names = (n for n in options if n.endswith("interval") and options.get(n.removesuffix("_interval"), True))
    often: list[float] = [options[name] for name in names]
    return max(HOLD, 2 * max(often), (polls_needed(collector) + 1) * paced(collector))


def paced(collector: AnyCollector) -> float:
    """Seconds between two polls in a play."""
    interval: float = collector.options.interval
    return max(interval, PACE)


def _unread(component: Component, at: float, waited: float) -> Component:
    """Return a component without a result in time; that alone does not mean that the driver hangs."""
    late = f"no result within {waited:.1f} s, when the answer was due"
    finding = Finding(
        blind_rule(component.name), Health.UNKNOWN, Subject(), late,
        "ask the daemon, which waits longer, or give more time with --deadline", at,
        absent=Absent(Why.TIMEOUT, late),
    )  # fmt: skip
    return replace(component, findings=(*component.findings, finding))


def _state(config: Config, *, keep: bool) -> StateFolder | None:
    """Return the state folder; None when it cannot be used, since a verdict does not need it."""
    try:
        folder = state_directory(config.state.directory)
        if keep:
            return open_state_for_command(folder)
    except StateError as error:
        click.echo(f"wirewatch: {error}: no probe is kept, and no lock is respected", err=True)
        return None
    return StateFolder(folder) if folder.is_dir() else None


def _probed(component: Component) -> bool:
    return isinstance(component.memory, ProbeMemory) and component.memory.last is not None
