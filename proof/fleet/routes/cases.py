"""The fleets that are drawn on fabrics whose links are shared, and what came of each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median
from typing import Any

from proof.fleet.routes.network import Fabric, RoutedFleet, Routes, SlowNode, planned_pairs
from wirewatch.core.pairs import PartKind
from wirewatch_fleet.pairs.model import MeasuredRound, PairLimits
from wirewatch_fleet.pairs.plan import PairsVerdict, next_step

OPTIC, DIRECT, NIC = SlowNode(0, 0.7, 1), SlowNode(0, 0.6), SlowNode(0, 0.85, 1)
"""A bad optic of one rail, a node without GPUDirect, and a NIC at 85 %; which node it is, is drawn."""
SEED = "2028"
"""With a case and a number it is the seed of a fleet. The rules were made on fleets of another."""
MINE = 4
"""Times as many queue pairs as the work has are tried where routes are shared."""
Trial = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RoutesCase:
    """A kind of fleet: its fabric, its one fault, if any, and how many are aimed at."""

    name: str
    about: str
    fabric: Fabric
    fault: SlowNode | None = None
    trials: int = 20


def _cases() -> tuple[RoutesCase, ...]:
    made = []
    for size, rails, leaf, trials in ((32, 4, 8, 240), (256, 4, 32, 20), (1024, 2, 32, 4)):
        hashed = Fabric(size, Routes.HASHED, leaf=leaf, uplinks=leaf, rails=rails)
        for name, about, fabric in (
            ("adaptive", "adaptive routing", replace(hashed, routes=Routes.ADAPTIVE)),
            ("hashed", "a new hash for each run", hashed),
            ("fixed", "hash fixed for a pair", replace(hashed, routes=Routes.FIXED)),
            ("unknown", "hashed, leafs not known", replace(hashed, known=False)),
            ("narrow", "hashed, 2:1", replace(hashed, uplinks=hashed.uplinks // 2)),
            ("queues", "hashed, 4 queue pairs", replace(hashed, queues=4)),
            ("tenants", "adaptive, traffic in 20 % of directions",
             replace(hashed, routes=Routes.ADAPTIVE, traffic=0.2)),
            ("busy", "hash fixed for a pair, traffic in 20 % of directions",
             replace(hashed, routes=Routes.FIXED, traffic=0.2)),
            ("loaded", "hash fixed, a leaf's rail loaded by 0 to 50 %",
             replace(hashed, routes=Routes.FIXED, loaded=1)),
        ):  # fmt: skip
            made.append(RoutesCase(f"{name}-{size}", f"{size:,} nodes, {about}", fabric, trials=trials))
    issue = Fabric(96, Routes.HASHED)
    adaptive = replace(issue, routes=Routes.ADAPTIVE)
    for name, about, fabric, fault in (
        ("optic", "adaptive, an optic at 70 %", adaptive, OPTIC),
        ("direct", "adaptive, GPUDirect off (60 %)", adaptive, DIRECT),
        ("nic", "adaptive, a NIC at 85 %", adaptive, NIC),
        ("hashed-optic", "hashed, an optic at 70 %", issue, OPTIC),
        ("hashed-direct", "hashed, GPUDirect off (60 %)", issue, DIRECT),
        ("hashed-nic", "hashed, a NIC at 85 %", issue, NIC),
        ("queues-nic", "hashed, 16 queue pairs, a NIC at 85 %", replace(issue, queues=16), NIC),
        ("fixed-direct", "hash fixed for a pair, GPUDirect off (60 %)", replace(issue, routes=Routes.FIXED),
         DIRECT),
        ("unknown-optic", "hashed, leafs not known, an optic at 70 %", replace(issue, known=False), OPTIC),
        ("unknown-direct", "hashed, leafs not known, GPUDirect off (60 %)", replace(issue, known=False),
         DIRECT),
        ("unknown-nic", "hashed, leafs not known, a NIC at 85 %", replace(issue, known=False), NIC),
        ("narrow-direct", "hashed, 2:1, GPUDirect off (60 %)", replace(issue, uplinks=16), DIRECT),
    ):  # fmt: skip
        made.append(RoutesCase(name, f"96 nodes, {about}", fabric, fault, trials=60))
    for size, rails, trials in ((256, 4, 16), (1024, 2, 3)):
        hashed = replace(issue, size=size, rails=rails)
        for name, about, fabric in (
            ("adaptive", "adaptive", replace(hashed, routes=Routes.ADAPTIVE)), ("hashed", "hashed", hashed),
        ):  # fmt: skip
            for fault, words in ((OPTIC, "an optic at 70 %"), (DIRECT, "GPUDirect off (60 %)")):
                made.append(RoutesCase(
                    f"{name}-{'direct' if fault.rail is None else 'optic'}-{size}",
                    f"{size:,} nodes, {about}, {words}", fabric, fault, trials=trials,
                ))  # fmt: skip
    return tuple(made)


CASES = _cases()
FAULTY = frozenset(case.name for case in CASES if case.fault is not None)


def played(fleet: RoutedFleet, limits: PairLimits) -> tuple[PairsVerdict, list[MeasuredRound]]:
    """All rounds of a fleet until the verdict."""
    rounds: list[MeasuredRound] = []
    while not isinstance(step := next_step(fleet.fleet, rounds, None, limits), PairsVerdict):
        rounds.append(fleet.run(step.round))
    return step, rounds


def trial(case: RoutesCase, number: int) -> Trial:
    """One drawn fleet of a case, as plain values."""
    seed = f"{SEED}/{case.name}/{number}"
    chance = Random(seed)  # noqa: S311
    faults: tuple[SlowNode, ...] = ()
    if case.fault is not None:
        faults = (replace(case.fault, node=chance.randrange(case.fabric.size)),)
    fleet = RoutedFleet(case.fabric, seed, faults)
    limits = PairLimits(queue_pairs=MINE * case.fabric.queues)
    verdict, rounds = played(fleet, limits)
    known = verdict.assessment
    right = {(fleet.names[one.node], "" if one.rail is None else f"{one.rail}") for one in faults}
    parts = [one for one in known.named if one.place.kind in {PartKind.NODE, PartKind.PAIR}]
    wrong = [one for one in parts if (one.place.name, one.place.rail) not in right]
    wrong_nodes = [one for one in wrong if one.place.kind is PartKind.NODE]
    return {
        "case": case.name, "number": number, "health": verdict.health.name,
        "right": any(one not in wrong for one in parts),
        "wrong": len(wrong), "failed": sum(one.loss >= limits.failed for one in wrong_nodes),
        "wide": sum(one not in parts for one in known.named),
        "open": len(known.open) + len(known.thin), "unseen": len(known.unseen),
        "suspected": any(one.place.name == name for one in known.open for name, _ in right),
        "rounds": len(rounds), "pairs": planned_pairs(rounds),
        "lost": [(one.measure.value, round(one.loss, 3), one.with_queues and round(one.with_queues, 3))
                 for one in known.collisions][:1],
    }  # fmt: skip


def _lost(one: Trial) -> bool:
    """Whether anything was named that is not slow, or a fault was not named."""
    return bool(one["wrong"]) or (one["case"] in FAULTY and not one["right"])


def summary(some: Sequence[Trial]) -> Trial:
    """What came of all fleets of a case, as plain values."""
    lost = [one["lost"][0] for one in some if one["lost"]]
    after = [more for _, _, more in lost if more is not None]
    healths = [one["health"] for one in some]
    alone = [one["pairs"].get("alone", 0) for one in some]
    return {
        "fleets": len(some), "losses": sorted(one["number"] for one in some if _lost(one)),
        **{key: sum(bool(one[key]) for one in some) for key in
        ("right", "wrong", "failed", "wide", "open", "unseen")},
        "healths": {name: healths.count(name) for name in sorted(set(healths))},
        "rounds": [median(one["rounds"] for one in some), max(one["rounds"] for one in some)],
        "alone": [median(alone), max(alone)],
        "collision": len(lost), "lost": round(median(one[1] for one in lost), 3) if lost else None,
        "with_queues": round(median(after), 3) if after else None,
    }  # fmt: skip
