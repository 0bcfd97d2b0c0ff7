"""Faults of the wires between eight nodes, what must be named for each, and the table of what was."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.system.namespaces import Wires
from wirewatch.fleet.pairs.model import PairFleet, PairMember
from wirewatch.fleet.pairs.plan import PlannedRound, next_step

NODES = tuple(f"n{number}" for number in range(1, 9))
LEAFS = {name: leaf for leaf, names in (("leaf1", NODES[:4]), ("leaf2", NODES[4:])) for name in names}
RATE, SLOW = 16e6, 0.5
"""Bits per second of a wire each way, and what is left of it where it is slowed."""
ANSWERED = 0.75
"""Share of the runs that must have answered: without answers nobody is named, whatever is slow."""
WORK = ("--engine", "gloo", "--size", "1M", "--iterations", "10", "--limit", "120s")
Named = tuple[str, ...]


@dataclass(frozen=True)
class Slowed:
    """What is slowed, and what must be named: (name, way), or (name, "to", other) for a pair."""

    title: str
    slow: Callable[[Wires], None]
    named: frozenset[Named]


@dataclass
class Outcome:
    """One line of the page."""

    title: str
    good: bool
    words: str
    seconds: float


def slowed() -> tuple[Slowed, ...]:
    """All, a healthy fabric first."""
    first, second = _met()
    return (
        Slowed("nothing is slowed", lambda _: None, frozenset()),
        Slowed("n3 sends slowly", lambda w: w.sends("n3", RATE * SLOW), frozenset({("n3", "sends")})),
        Slowed(
            "n6 receives slowly", lambda w: w.receives("n6", RATE * SLOW), frozenset({("n6", "receives")})
        ),
        Slowed(
            f"one pair, {first} to {second}", lambda w: w.sends_to(first, second, RATE * SLOW),
            frozenset({(first, "to", second)}),
        ),
        Slowed(
            "n3 sends and n6 receives slowly", _both,
            frozenset({("n3", "sends"), ("n6", "receives")}),
        ),
    )  # fmt: skip


def _both(wires: Wires) -> None:
    wires.sends("n3", RATE * SLOW)
    wires.receives("n6", RATE * SLOW)


def _met() -> tuple[str, str]:
    """A pair that the first round brings together; three rounds of eight nodes bring 12 of 28 together."""
    step = next_step(PairFleet(tuple(PairMember(name, LEAFS[name]) for name in NODES)), ())
    assert isinstance(step, PlannedRound)
    return step.round.pairs[0]


def judged(one: Slowed, found: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether a result names what it must, and nothing else, by enough answers; and what it says."""
    named = {_named(part, way) for part in found["named"] for way in part["losses"]}
    losses = [
        f"{' '.join(_named(part, way))}: {way['loss']:.0%}"
        for part in found["named"]
        for way in part["losses"]
    ]
    answered = f"{found['answered']} of {found['runs']} runs answered, {found['rounds']} rounds"
    good = named == one.named and found["answered"] >= ANSWERED * max(1, found["runs"])
    return good, f"{'; '.join(losses) or 'nobody is named'}; {answered}"


def _named(part: dict[str, object], way: dict[str, object]) -> Named:
    if part["kind"] == "pair":
        return str(part["name"]), "to", str(part["peer"])
    return str(part["name"]), str(way["way"])


def printed(one: Outcome, errors: str = "") -> Outcome:
    """The line, on standard output too; with the errors of one that is not as it should be."""
    print(f"{'PASS' if one.good else 'FAIL'} {one.title}: {one.words} ({one.seconds:.0f} s)", flush=True)
    if not one.good:
        print(errors, flush=True)
    return one


def table(outcomes: Sequence[Outcome]) -> str:
    rows = "\n".join(
        f"| {one.title} | {'yes' if one.good else '**no**'} | {one.words} | {one.seconds:.0f} |"
        for one in outcomes
    )
    return f"| what happens | as it should | what was said | seconds |\n|---|---|---|---|\n{rows}"
