"""How near the best a placement comes, in placements.json beside this: `python -m proof.lab.placements`.

Small clusters and jobs are drawn, by the seed that the search was made with, and by a later one. Every way
to deal out their GPUs is tried, with sums of its own over the times of operations. The seconds of the
placement that `wirewatch advise placement` finds are compared with the least of all. Two cases in three are
training; in one of four groups do not all fit into NVLink domains.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from random import Random
from statistics import median

from wirewatch.core.probe import ALL_REDUCE, SENDRECV
from wirewatch.core.types import Absent
from wirewatch_lab.advice.placement import search
from wirewatch_lab.advice.placement.cluster import ClusterNode, NodePool, over_pcie, sharing, wiring
from wirewatch_lab.advice.placement.jobs import Infeasible, PlacementJob
from wirewatch_lab.advice.placement.layouts import Workload, layout_cost
from wirewatch_lab.advice.placement.proposals import Proposals
from wirewatch_lab.advice.placement.space import Level
from wirewatch_lab.advice.shapes import SHAPES
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Ranks

RESULTS = Path(__file__).with_name("placements.json")
SEED, FRESH, CASES, MOST_GPUS = 20261129, 40817253, 400, 12
"""The search was made with the first seed; the fresh one was tried once it was done."""
EQUAL = 1e-6
"""A loss that is the rounding of sums."""
MOST_WAYS = 10_000
"""Ways to place one replica of a case that is drawn."""
SHAPE = next(one for one in SHAPES if one.name == "llama-3-8b")
Shares = tuple[int, ...]
"""GPUs of a TP group in each domain."""


@dataclass(frozen=True)
class PlacedCase:
    """A cluster and a job. `domains`: free GPUs with node, rack and rest of the node."""

    nodes: tuple[ClusterNode, ...]
    job: PlacementJob
    workload: Workload

    def name(self) -> str:
        """All of it in a line."""
        free = ("+".join(str(len(part)) for part in one.free()) or "0" for one in self.nodes)
        racks = (f"@{one.rack}" if one.rack else "" for one in self.nodes)
        nodes = " ".join(f"{gpus}{rack}" for gpus, rack in zip(free, racks, strict=True))
        nodes = f"{self.nodes[0].wiring.product} {nodes}"
        what = "training" if self.workload.training else "serving"
        job = f"TP {self.job.tp} x PP {self.job.pp} x {self.job.replicas}"
        return f"{job}, {what}, {self.workload.tokens} tokens: {nodes}"


def drawn(random: Random) -> PlacedCase:
    """A case of at most 12 GPUs that has a placement, and few enough ways to try."""
    while True:
        tp, pp, replicas = random.choice((1, 1, 2, 2, 3, 4, 6)), random.randint(1, 6), random.randint(1, 6)
        if not 4 <= tp * pp * replicas <= MOST_GPUS:
            continue
        product_ = random.choice(("H100", "H100", "A100"))
        racks = random.choice((("",), ("r1", "r2")))
        nodes = []
        for number in range(random.randint(2, 6)):
            islands = random.choice(((8,), (8,), (4, 4), (4,)))
            gpus = sum(islands)
            starts = [sum(islands[:place]) for place in range(len(islands))]
            given = tuple(tuple(range(a, a + n)) for a, n in zip(starts, islands, strict=True))
            wires = wiring(product_, gpus, given, None, f"{random.choice((gpus, gpus, 4))}xNDR")
            busy = frozenset(random.sample(range(gpus), random.randint(0, gpus - 1)))
            nodes.append(ClusterNode(f"n{number}", wires, "", random.choice(racks), "", busy))
        training = random.random() < 2 / 3
        tokens = random.choice((512, 4096, 16384)) if training else random.choice((1, 64, 2048))
        case = PlacedCase(
            tuple(nodes), PlacementJob(tp, pp, replicas), Workload(SHAPE, training=training, tokens=tokens)
        )
        free = sum(len(part) for one in nodes for part in one.free())
        if tp * pp * replicas <= free <= MOST_GPUS and len(Best(case).groups) ** pp <= MOST_WAYS:
            return case


class Best:
    """The least that a case takes, by trying all."""

    def __init__(self, case: PlacedCase) -> None:
        self.case = case
        parts = [(one, part) for one in case.nodes for part in one.free()]
        self.nodes = [one for one, _ in parts]
        self.free = tuple(len(part) for _, part in parts)
        tp, groups = case.job.tp, case.job.pp * case.job.replicas
        self.whole = sum(free // tp for free in self.free) >= groups
        every = product(*(range(min(free, tp) + 1) for free in self.free))
        self.groups = [
            one for one in every if sum(one) == tp and (not self.whole or sum(map(bool, one)) == 1)
        ]
        self.known: dict[object, float] = {}

    def seconds(self) -> float:
        """The least of all; infinite where no way has a time that is known."""
        job = self.case.job
        replicas = sorted((self.replica(one), one) for one in product(self.groups, repeat=job.pp))
        replicas = [(cost, one) for cost, one in replicas if math.isfinite(cost)]
        best = math.inf

        def deal(first: int, left: Shares, chosen: list[tuple[Shares, ...]]) -> None:
            nonlocal best
            if len(chosen) == job.replicas:
                slowest = replicas[first][0]
                best = min(best, slowest + max(self.gradients(stage) for stage in zip(*chosen, strict=True)))
                return
            for number in range(first, len(replicas)):
                cost, one = replicas[number]
                if cost >= best:
                    return
                rest = tuple(n - sum(taken) for n, taken in zip(left, zip(*one, strict=True), strict=True))
                if min(rest) >= 0:
                    deal(number, rest, [*chosen, one])

        deal(0, self.free, [])
        return best

    def replica(self, stages: Sequence[Shares]) -> float:
        """All-reduces of all layers, and the way from stage to stage."""
        work = self.case.workload
        passes = 2 if work.training else 1
        size = SHAPE.message(work.tokens, work.activation)
        total = 0.0
        for number, group in enumerate(stages):
            layers = len(range(number, SHAPE.layers, len(stages)))
            counts = {place: n for place, n in enumerate(group) if n}
            total += 2 * layers * passes * self.time(ALL_REDUCE, counts, size, equal=True)
        for one, other in pairwise(stages):
            pairs = zip(places(one), places(other), strict=True)
            total += passes * max(self.time(SENDRECV, Counter(pair), size) for pair in pairs)
        return total

    def gradients(self, stage: Sequence[Shares]) -> float:
        """The all-reduce over the replicas of a stage, of its slowest tensor rank."""
        if not self.case.workload.training or len(stage) == 1:
            return 0.0
        size = SHAPE.parameters * 2 / (self.case.job.tp * self.case.job.pp)
        ranks = zip(*(places(one) for one in stage), strict=True)
        return max(self.time(ALL_REDUCE, Counter(rank), size) for rank in ranks)

    def time(self, op: str, counts: dict[int, int], size: float, *, equal: bool = False) -> float:
        """One operation of so many ranks in each domain; `equal`: of others nothing is known."""
        key = (op, tuple(sorted(counts.items())), size)
        if key not in self.known:
            times = [self._time(op, self.nodes[place], counts, size, equal=equal) for place in counts]
            self.known[key] = max(times)
        return self.known[key]

    def _time(self, op: str, of: ClusterNode, counts: dict[int, int], size: float, *, equal: bool) -> float:
        machine, ranks, more = of.wiring.machine, sum(counts.values()), 0.0
        assert not isinstance(machine, Absent)
        if ranks == 1:
            return 0.0
        each = set(counts.values())
        span = Ranks(ranks, len(counts) if len(each) == 1 else ranks)
        if len(each) > 1 and equal:
            return math.inf
        if len(counts) > 1 and len({self.nodes[one].name for one in counts}) == 1:
            machine, span = over_pcie(machine), Ranks(ranks)
        elif len(counts) > 1:
            machine = sharing(machine, ranks // span.domains)
            racks = {self.nodes[one].rack or self.nodes[one].name for one in counts}
            stated = any(one.rack for one in self.nodes)
            hops = 2 * (span.domains - 1).bit_length() if op == ALL_REDUCE else 1
            more = 3e-6 * hops if stated and len(racks) > 1 else 0.0
        found = CollectiveTimes(machine).estimate(op, span, size)
        return math.inf if isinstance(found, Absent) else found.seconds + more


def places(group: Shares) -> list[int]:
    """The domain of each tensor rank."""
    return [place for place, n in enumerate(group) for _ in range(n)]


def found(case: PlacedCase) -> float:
    """Seconds of the placement that the product finds; infinite where its time is not known."""
    proposals = Proposals(NodePool("drawn", case.nodes), case.workload, degraded=False)
    space = proposals.space()
    placed = proposals.placed([case.job], space, Level.CLUSTER)
    assert not isinstance(placed, Infeasible), placed
    total = layout_cost(space, placed[0], case.workload).total
    return math.inf if isinstance(total, Absent) else total


@dataclass(frozen=True)
class PlacementTrial:
    """A case with the seconds of the best, and of what is found by all means and by the search alone.

    Infinite where no time is known.
    """

    case: PlacedCase
    whole: bool
    best: float
    found: float
    alone: float

    def loss(self, seconds: float) -> float:
        """By what share so many seconds are longer than the best."""
        if math.isinf(self.best):
            return 0.0
        return seconds / self.best - 1 if self.best else seconds


def trials(seed: int, cases: int) -> Iterator[PlacementTrial]:
    """So many cases by a seed."""
    random, most = Random(seed), search.MOST_REPLICAS  # noqa: S311
    for _ in range(cases):
        case = drawn(random)
        best, ours = Best(case), found(case)
        search.MOST_REPLICAS = 0
        alone = found(case)
        search.MOST_REPLICAS = most
        yield PlacementTrial(case, best.whole, best.seconds(), ours, alone)


def summary(losses: Sequence[float]) -> dict[str, float]:
    """How near the best so many cases come."""
    return {
        "cases": len(losses), "best": sum(loss < EQUAL for loss in losses),
        "within_1_percent": sum(loss < 0.01 for loss in losses),
        "median_of_other_losses": median([loss for loss in losses if loss >= EQUAL] or [0.0]),
    }  # fmt: skip


def main() -> None:
    """Try all cases of both seeds, and keep the results."""
    kept = [results(seed, list(trials(seed, CASES))) for seed in (SEED, FRESH)]
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def results(seed: int, every: Sequence[PlacementTrial]) -> dict[str, object]:
    """What the cases of a seed show."""
    alone = [one for one in every if one.whole]
    return {
        "seed": seed, "training": sum(one.case.workload.training for one in every),
        "groups_do_not_all_fit": sum(not one.whole for one in every),
        "no_time_is_known": sum(math.isinf(one.best) for one in every),
        "as_placed": summary([one.loss(one.found) for one in every]),
        "search_alone": summary([one.loss(one.alone) for one in every]),
        "search_alone_where_groups_fit": summary([one.loss(one.alone) for one in alone]),
        "missed": [one.case.name() for one in every if one.loss(one.found) >= EQUAL],
        "missed_by_search_alone": [one.case.name() for one in every if one.loss(one.alone) >= EQUAL],
    }  # fmt: skip


if __name__ == "__main__":
    main()
