"""What the daemon is composed of: the components of a configuration, and what is remembered for them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from wirewatch.cli.topologies import given_graph
from wirewatch.config import Config, expectations
from wirewatch.core.collector import AnyCollector
from wirewatch.core.ports import Hardware
from wirewatch.daemon.baselines import NOTHING, BaselineStore, foreign, load_baseline
from wirewatch.daemon.machine import KeptMachine, MachineWriter, load_kept, recalled
from wirewatch.daemon.operator import TopologyOrders
from wirewatch.daemon.pairsresult import PairsResultStore, load_result
from wirewatch.daemon.persistence import load_ledger, lost
from wirewatch.daemon.service import LAST_WRITE, Remembered
from wirewatch.jobs.surroundings import newest_hint, with_surroundings
from wirewatch.probe.collector import due_after_hint, probe_collector
from wirewatch.probe.history import History
from wirewatch.probe.remote import RemoteProber
from wirewatch.probe.restore import boot_id, persistent, remember
from wirewatch.statefolder import StateFolder
from wirewatch.verdict.drift.component import DriftContext, drift_component
from wirewatch.verdict.ledger import Ledger
from wirewatch.verdict.pairs import pairs_component


@dataclass(frozen=True, slots=True)
class Parts:
    """What takes orders, what is remembered, and what makes the components of a configuration."""

    topologies: TopologyOrders
    remembered: Remembered
    components: Callable[[Config, Sequence[AnyCollector]], tuple[AnyCollector, ...]]


def composed(
    config: Config, hardware: Hardware, state: StateFolder | None, every: Sequence[AnyCollector],
    prober: RemoteProber | None, stack: ExitStack,
) -> Parts:  # fmt: skip
    """`every`: all collectors, also those that a reload may switch on."""
    kept = KeptMachine() if state is None else load_kept(state, every, hardware)
    topologies, drifting = _drifting(hardware, state, stack)

    def hinted() -> float | None:
        node = topologies.node()
        return None if node is None else newest_hint(node.state)

    probing = _probing(config, hardware, state, prober, hinted)
    pairs = _pairs(hardware, state)
    remembered = replace(_remembered(config, hardware, state, kept, every), pairs=pairs)
    return Parts(topologies, remembered, _composer(kept, topologies, probing, drifting, pairs))


def _probing(
    config: Config, hardware: Hardware, state: StateFolder | None, prober: RemoteProber | None,
    hinted: Callable[[], float | None],
) -> Callable[[Config], Sequence[AnyCollector]]:  # fmt: skip
    """What makes the component of the probe, with the history of the state folder; none when it is off."""
    if not config.probe.enabled:
        return lambda _: ()
    history, boot = None if state is None else History.open(state.history, hardware.clock), boot_id(hardware)
    start = None
    if history is not None:
        start = remember(history, hardware.clock, config.policy.probe, boot=boot)

    def component(config: Config) -> Sequence[AnyCollector]:
        expect = expectations(config)
        made = probe_collector(config.probe, config.policy.probe, expect, start, prober)
        kept = made if history is None else persistent(made, history, boot, expect, prober)
        return (due_after_hint(kept, hinted),)

    return component


def _drifting(
    hardware: Hardware, state: StateFolder | None, stack: ExitStack
) -> tuple[TopologyOrders, Callable[[Config], Sequence[AnyCollector]]]:
    """Orders about the topology, and what makes its component; none when it is switched off."""
    loaded = NOTHING if state is None else load_baseline(state.baseline, hardware.clock.now())
    store = BaselineStore(None if state is None else state.baseline, hardware.clock, loaded)
    stack.callback(store.flush, LAST_WRITE)
    topologies = TopologyOrders(store, hardware.clock)

    def component(config: Config) -> Sequence[AnyCollector]:
        options = config.drift
        if not options.enabled:
            return ()
        given = given_graph(options.baseline) if options.baseline else None
        around = DriftContext(store, given, topologies.troubles, foreign)
        return (drift_component(options, config.policy.drift, around),)

    return topologies, component


def _composer(
    kept: KeptMachine,
    topologies: TopologyOrders,
    probing: Callable[[Config], Sequence[AnyCollector]],
    drifting: Callable[[Config], Sequence[AnyCollector]],
    pairs: PairsResultStore,
) -> Callable[[Config, Sequence[AnyCollector]], tuple[AnyCollector, ...]]:
    """What makes all components of a configuration and of its enabled collectors."""

    def components(config: Config, collectors: Sequence[AnyCollector]) -> tuple[AnyCollector, ...]:
        own = recalled(collectors, kept)
        links, pins = config.expect.nvlink_links, config.probe.pins
        judged = (with_surroundings(one, topologies.node, links, pins) for one in own)
        return (*judged, *probing(config), *drifting(config), *_pairs_component(config, pairs))

    return components


def _pairs(hardware: Hardware, state: StateFolder | None) -> PairsResultStore:
    """What pairs of nodes found out about this one, with what the state folder has kept of it."""
    if state is None:
        return PairsResultStore(None, hardware.clock)
    return PairsResultStore(state.pairs, hardware.clock, load_result(state.pairs, hardware.clock.now()))


def _pairs_component(config: Config, store: PairsResultStore) -> Sequence[AnyCollector]:
    """The component of what pairs of nodes found out; none when it is switched off."""
    return (pairs_component(config.pairs, config.policy.pairs, store),) if config.pairs.enabled else ()


def _remembered(
    config: Config,
    hardware: Hardware,
    state: StateFolder | None,
    kept: KeptMachine,
    every: Sequence[AnyCollector],
) -> Remembered:
    """What is remembered; `every`: all collectors, also those that a reload may switch on."""
    boot, policy = boot_id(hardware), config.policy.verdict
    if state is None:
        return Remembered(policy, Ledger(boot))
    now = hardware.clock.now()
    ledger = load_ledger(state.latches, boot, now)
    if kept.wrong:
        ledger = lost(ledger, "the machine", kept.wrong, now)
    writer = MachineWriter(state.machine, kept, every, hardware.clock)
    return Remembered(policy, ledger, state.latches, writer)
