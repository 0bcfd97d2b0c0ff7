"""The real fold over drawn probes: how often it is wrong about healthy nodes, how soon it finds a fault."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from proof.simulation.healthy import Run
from proof.simulation.noise import Fault, Scales, probes, slowed
from tests.node.verdict.straggler.nodes import gpu
from wirewatch.verdict.straggler.naming import ConfirmedStraggler, SlowPart, StragglerWatch, fold_stragglers
from wirewatch.verdict.straggler.signals import Resource, Signals, StragglerPolicy, Unit

EVERY = 600.0
"""Seconds between probes of an idle node."""
LIFE = 500
"""Probes of one healthy node, before the next is drawn: the first have no history."""
LEARNT = 12
"""Probes of a history, where there is one."""
HORIZON = 8
"""Probes after which a fault that was not found counts as not found."""
POLICY = StragglerPolicy()
Timed = tuple[float, Signals]


@dataclass(frozen=True, slots=True)
class Alarms:
    """Of healthy nodes. `named`: probes that alone called something slow; the others: findings that began.

    `peers`: of these, findings against peers, not against the part's own history.
    """

    probes: int = 0
    named: int = 0
    degraded: int = 0
    failed: int = 0
    peers: int = 0

    def __add__(self, other: "Alarms") -> "Alarms":
        return Alarms(
            self.probes + other.probes, self.named + other.named,
            self.degraded + other.degraded, self.failed + other.failed, self.peers + other.peers,
        )  # fmt: skip


def timed(told: Iterable[Signals]) -> Iterator[Timed]:
    return ((EVERY * number, one) for number, one in enumerate(told))


def watch_over(told: Iterable[Timed], policy: StragglerPolicy = POLICY) -> Alarms:
    """One node that is well, from its first probe on."""
    watch, found = StragglerWatch(), Alarms()
    believed: Mapping[Unit, ConfirmedStraggler] = {}
    for at, signals in told:
        watch = fold_stragglers(watch, signals, at, policy, accepted=True)
        now = {_unit(one): one for one in watch.held(policy)}
        new = [one for unit, one in now.items() if unit not in believed]
        worse = [one for unit, one in now.items() if one.failed and not _failed(believed.get(unit))]
        named = bool(watch.named.slow or watch.named.uniform)
        found += Alarms(1, int(named), len(new), len(worse), sum(map(_by_peers, new)))
        believed = now
    return found


def well(count: int, scales: Scales, number: int, seed: str) -> Alarms:
    """So many probes of drawn nodes of `count` GPUs."""
    found = Alarms()
    for node, first in enumerate(range(0, number, LIFE)):
        chance = Random(f"{seed} well {count} {node}")  # noqa: S311 - the same each time
        life = islice(probes(chance, count, scales), min(LIFE, number - first))
        found += watch_over(timed(life))
    return found


def replayed(runs: Iterable[Run]) -> Alarms:
    """Real healthy probes, each run as a node of its own."""
    return sum((watch_over(run.signals()) for run in runs), Alarms())


@dataclass(frozen=True, slots=True)
class Outcome:
    """Probes from the first slow one to the finding and to FAILED, both counted; None: not within `HORIZON`.

    `right`: the finding names the part at fault and no other.
    """

    found: int | None = None
    failed: int | None = None
    right: bool = False


Case = tuple[Resource, float]
"""What is slow, and the part of its speed that it has lost."""


def faults(
    count: int, scales: Scales, cases: Sequence[Case], trials: int, seed: str, *, history: bool
) -> Mapping[Case, Sequence[Outcome]]:  # fmt: skip
    """Each case on the same drawn nodes; another GPU at fault on each.

    `history`: whether the fault comes after `LEARNT` healthy probes, or was there from the first probe on.
    """
    found: dict[Case, list[Outcome]] = {case: [] for case in cases}
    for trial in range(trials):
        chance = Random(f"{seed} fault {count} {trial}")  # noqa: S311 - the same each time
        node = timed(probes(chance, count, scales))
        watch = StragglerWatch()
        for at, signals in islice(node, LEARNT if history else 0):
            watch = fold_stragglers(watch, signals, at, POLICY, accepted=True)
        coming = tuple(islice(node, HORIZON))
        one, other = chance.sample(range(count), 2)
        for resource, lost in cases:
            unit = Unit(resource, gpu(one), gpu(other) if resource is Resource.PAIR else "")
            found[resource, lost].append(outcome(watch, coming, Fault(unit, lost)))
    return found


def outcome(watch: StragglerWatch, coming: Sequence[Timed], fault: Fault) -> Outcome:
    """What becomes of a fault in the coming probes."""
    found: int | None = None
    right = False
    for number, (at, signals) in enumerate(coming, 1):
        watch = fold_stragglers(watch, slowed(signals, fault), at, POLICY, accepted=True)
        held = watch.held(POLICY)
        if held and found is None:
            found, right = number, [_unit(one) for one in held] == [fault.unit]
        if any(one.failed for one in held):
            return Outcome(found, number, right)
        if found is not None and fault.lost < POLICY.failed:
            break
    return Outcome(found, None, right)


def _unit(held: ConfirmedStraggler) -> Unit:
    return held.seen.unit if isinstance(held.seen, SlowPart) else Unit(held.seen.resource, "")


def _failed(held: ConfirmedStraggler | None) -> bool:
    return held is not None and held.failed


def _by_peers(held: ConfirmedStraggler) -> bool:
    return isinstance(held.seen, SlowPart) and not held.seen.own
