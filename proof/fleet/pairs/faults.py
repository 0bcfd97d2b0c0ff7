"""Faults of the wires between eight nodes, what must be named for each, and the table of what was."""

import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.system.namespaces import Wires
from wirewatch_fleet.pairs.model import PairFleet, PairMember
from wirewatch_fleet.pairs.plan import PlannedRound, next_step

NODES = tuple(f"n{number}" for number in range(1, 9))
LEAFS = {name: leaf for leaf, names in (("leaf1", NODES[:4]), ("leaf2", NODES[4:])) for name in names}
RATE, SLOW = 16e6, 0.5
"""Bits per second of a wire each way, and what is left of it where it is slowed."""
UPLINKS = 2
"""Between the two leafs, each as fast as a node's wire: half as many as a leaf has nodes."""
ANSWERED = 0.75
"""Share of the runs that must have answered: without answers nobody is named, whatever is slow."""
WORK = ("--engine", "gloo", "--size", "1M", "--iterations", "10", "--limit", "120s")
WIRES = f"""\
Eight nodes, in two leafs of four, are network namespaces of one machine with {os.cpu_count()} processors.
Each node has a wire of {RATE / 1e6:.0f} Mbit/s each way, which `tc` (tbf) holds. Pairs measure with engine
gloo on processors, one process a node, 1 MiB at a time. Where the table says slowly, {SLOW:.0%} of the rate
is left. In the row of one pair a filter slows what the first node sends to the second, and nothing else.
Those two meet in the first round: three rounds of eight nodes bring 12 of the 28 pairs together, and a
pair that never met cannot be named. A percentage after a name is how much slower it was found to be."""
"""What pairs were measured over, for both pages."""
LONGEST = 120
"""Characters of a reason on a page."""
Named = tuple[str, ...]


@dataclass(frozen=True)
class Slowed:
    """What is slowed, and what must be named: (name, way), or (name, "to", other) for a pair.

    With `uplinks` flows between the leafs share so many by a hash, and a collision must be told.
    """

    title: str
    slow: Callable[[Wires], None]
    named: frozenset[Named]
    uplinks: int = 0


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


def shared() -> tuple[Slowed, ...]:
    """Leafs between which flows share links: nothing is slowed, then a node too."""
    return (
        Slowed("hashed uplinks, nothing is slowed", lambda _: None, frozenset(), UPLINKS),
        Slowed(
            "hashed uplinks, n3 sends slowly", lambda w: w.sends("n3", RATE * SLOW),
            frozenset({("n3", "sends")}), UPLINKS,
        ),
        Slowed(
            "hashed uplinks, n6 receives slowly", lambda w: w.receives("n6", RATE * SLOW),
            frozenset({("n6", "receives")}), UPLINKS,
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
    collisions = [part for part in found["collisions"] if part["across"] and not _traffic(part)]
    losses += [
        f"collision across leafs, {part['loss']:.0%} lost when all pairs talk, {part['slow']} of "
        f"{part['runs']} runs slow, {part['alone_slow']} of {part['alone']} alone"
        for part in collisions[:1]
    ]
    good = named == one.named and found["answered"] >= ANSWERED * max(1, found["runs"])
    good = good and bool(collisions) is bool(one.uplinks)
    return good, f"{'; '.join(losses or ['nobody is named'])}; {answered}"


def _traffic(part: Mapping[str, int]) -> bool:
    """Whether runs alone are slow about as often, which is other traffic and no collision."""
    alone_slow = part["alone_slow"]
    return alone_slow > 0 and 2 * alone_slow * part["runs"] >= part["slow"] * part["alone"]


def _named(part: dict[str, object], way: dict[str, object]) -> Named:
    if part["kind"] == "pair":
        return str(part["name"]), "to", str(part["peer"])
    return str(part["name"]), str(way["way"])


def shortened(why: str) -> str:
    """A reason as a page has it, without the place in a library's source; what libraries say fills lines."""
    return textwrap.shorten(re.sub(r"\[/\S+\] ", "", why), LONGEST, placeholder=" ...")


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
