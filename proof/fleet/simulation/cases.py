"""The cases that are drawn, and one trial of each."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from proof.fleet.simulation.faulty import drawn_faults, kind_of, score
from proof.fleet.simulation.methods import bisect, paired_again
from tests.fleet.pairs.drawn import DrawnFleet, FabricNoise

SEED = "2026"
USUAL = FabricNoise()


def times(factor: float, noise: FabricNoise = USUAL) -> FabricNoise:
    """Every spread so many times; how often other traffic comes stays."""
    return replace(
        noise, member=factor * noise.member, nic=factor * noise.nic, pair=factor * noise.pair,
        run=factor * noise.run, cell=factor * noise.cell, drift=factor * noise.drift,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PairsCase:
    """A kind of fleet. `faults`: from so many to so many; `lost`: each one's loss, None for 5 to 60 %.

    `missing`: share of runs without an answer. `trials`: how many are aimed at. `methods`: whether the others
    are tried too.
    """

    name: str
    about: str
    size: int
    trials: int
    faults: tuple[int, int] = (1, 5)
    lost: float | None = None
    missing: float = 0.0
    gone: int = 0
    noise: FabricNoise = USUAL
    rails: int = 4
    methods: bool = False

    def of(self, trials: int) -> "PairsCase":
        """The same with so many of them; a trial of it does not depend on how many there are."""
        return replace(self, trials=trials)


CASES = (
    PairsCase("mixed-256", "256 nodes", 256, 1000, methods=True),
    PairsCase("mixed-2000", "2,000 nodes", 2000, 400, methods=True),
    PairsCase("healthy-256", "256 nodes", 256, 20_000, faults=(0, 0)),
    PairsCase("healthy-2000", "2,000 nodes", 2000, 2000, faults=(0, 0)),
    PairsCase("quiet-256", "256 nodes, a fifth of the noise", 256, 60, noise=times(0.2)),
    PairsCase("noisy-256", "256 nodes, three times the noise", 256, 60, noise=times(3)),
    PairsCase("healthy-noisy-256", "256 nodes, three times the noise", 256, 300, faults=(0, 0),
              noise=times(3)),
    PairsCase("traffic-256", "256 nodes, 5 % of runs slowed by other traffic", 256, 60,
              noise=replace(USUAL, transient=0.05)),
    PairsCase("healthy-traffic-256", "256 nodes, 20 % of directions slowed by other traffic", 256, 20,
              faults=(0, 0), noise=replace(USUAL, transient=0.2)),
    PairsCase("lost-10-256", "256 nodes, 10 % of answers lost, 4 nodes gone", 256, 60, missing=0.1, gone=4),
    PairsCase("lost-50-256", "256 nodes, half of the answers lost", 256, 60, missing=0.5),
    PairsCase("five-256", "256 nodes, each fault 5 %", 256, 60, faults=(3, 3), lost=0.05),
    PairsCase("seven-256", "256 nodes, each fault 7 %", 256, 60, faults=(3, 3), lost=0.07),
    PairsCase("ten-256", "256 nodes, each fault 10 %", 256, 60, faults=(3, 3), lost=0.1),
)  # fmt: skip


def trial(case: PairsCase, number: int) -> dict[str, Any]:
    """One drawn fleet of a case, as plain values."""
    chance = Random(f"{SEED}/{case.name}/{number}")  # noqa: S311
    fleet = DrawnFleet(
        case.size, case.rails, seed=f"{SEED}/{case.name}/{number}", noise=case.noise, lost=case.missing
    )
    fleet.faults = drawn_faults(fleet, chance.randint(*case.faults), chance, case.lost)
    if case.gone:
        fleet.gone = {name: chance.randint(1, 4) for name in chance.sample(fleet.names, case.gone)}
    verdict, rounds = fleet.verdict()
    found = score(fleet, verdict, rounds)
    made: dict[str, Any] = {
        "case": case.name, "number": number, "rounds": found.rounds, "tests": 2 * found.tests,
        "wrong": found.wrong,
        "open": found.open, "health": found.health, "gone": sorted(fleet.gone),
        "faults": [
            (one.kind, round(one.lost, 4), one.named, one.suspected, one.hidden, one.inside)
            for one in found.faults
        ],
    }  # fmt: skip
    if case.methods:
        made["methods"] = {
            name: _beside(fleet, method(fleet, chance))
            for name, method in (("bisect", bisect), ("again", paired_again))
        }
    return made


def _beside(fleet: DrawnFleet, run: Any) -> dict[str, Any]:
    """What another method found: nodes are all that it can name."""
    node = [one for one in fleet.faults if one.place.kind == "node"]
    slow = {one.place.name for one in node} | {
        name for one in fleet.faults if one.place.kind == "leaf"
        for name, leaf in fleet.leafs.items() if leaf == one.place.name
    }  # fmt: skip
    return {
        "rounds": run.rounds, "tests": run.tests, "wrong": len(run.named - slow),
        "nodes": [(kind_of(one), one.place.name in run.named) for one in node],
    }  # fmt: skip
