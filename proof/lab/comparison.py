"""How often a comparison of two studies errs, in comparison.md beside this: `make simulation`, two minutes.

Curves are drawn with noise of several kinds, compared with others of the same kind, and with others of which
a part became slower. What a comparison calls changed is counted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.lab.study.drawn import FULL, Noise, study
from tools.prose import formatted
from wirewatch_lab.study.compare import Comparison, compare, contests

PAGE = Path(__file__).with_name("comparison.md")
MIB = 1 << 20
SAME, OTHERS = 1000, 300
"""Comparisons: of the same, and of what changed."""
NOISES = {
    "each time alone, 1 %": Noise(),
    "common to a repeat of a curve, 1 %": Noise(each=0.0, curve=0.01),
    "both, 0.7 % each": Noise(each=0.007, curve=0.007),
    "common to a repeat of all curves, 1 %, each time 0.3 %": Noise(each=0.003, session=0.01),
    "5 % up to 4 KiB, 0.5 % above": Noise(each=0.005, small=0.05),
    "common to a repeat, 1 %, and 3 % in the last curve": Noise(each=0.0, curve=0.01, last=3.0),
}
Shift = Callable[[int, int], float]


@dataclass(frozen=True)
class Case:
    """Something that changed, and what of a comparison must say so."""

    name: str
    curves: int
    sizes: Sequence[int]
    repeats: int
    shift: Shift
    noise: Noise = NOISES["each time alone, 1 %"]
    size: int = 0

    def found(self, comparison: Comparison) -> bool:
        first = comparison.curves[0]
        if self.size:
            return any(part.verdict == "changed" and part.first_bytes == self.size for part in first.points)
        return any(part.verdict == "changed" for part in first.parts)


def slower(share: float) -> Shift:
    """The whole first curve."""
    return lambda curve, _size: share if curve == 0 else 0.0


def at(share: float, only: int) -> Shift:
    """One size of the first curve."""
    return lambda curve, size: share if curve == 0 and size == only else 0.0


def cases() -> Iterator[Case]:
    yield Case("a study of one curve by 3 %", 1, FULL, 5, slower(0.03))
    yield Case("one setting of 6 by 3 %", 6, FULL, 5, slower(0.03))
    yield Case("one setting of 30 by 3 %", 30, FULL, 5, slower(0.03))
    yield Case("one setting of 6 by 3 %, 6 sizes", 6, FULL[::6], 5, slower(0.03))
    yield Case(
        "one setting of 6 by 3 % from 16 MiB on", 6, FULL, 5,
        lambda curve, size: 0.03 if curve == 0 and size >= 16 * MIB else 0.0,
    )  # fmt: skip
    for curves in (1, 6, 30):
        name = f"one setting of {curves} by 3 %, noise of 0.7 % each time and 0.7 % common to a repeat"
        yield Case(name, curves, FULL, 5, slower(0.03), NOISES["both, 0.7 % each"])
    for repeats in (5, 7, 9):
        name = "one setting of 6 by 3 %, all noise common to a repeat"
        noise = NOISES["common to a repeat of a curve, 1 %"]
        yield Case(name, 6, FULL, repeats, slower(0.03), noise)
    for share, repeats in ((0.12, 5), (0.03, 5), (0.03, 10), (0.03, 15), (0.03, 20)):
        yield Case(f"a single size of one curve by {share:.0%}", 1, FULL, repeats, at(share, MIB), size=MIB)


def same() -> Iterator[tuple[str, int, int]]:
    """Kind of noise, curves, and how many of SAME comparisons of a machine with itself found a change."""
    for name, noise in NOISES.items():
        for curves in (1, 6):
            random = Random(20)  # noqa: S311 - noise
            pairs = ((study(random, noise, curves), study(random, noise, curves)) for _ in range(SAME))
            yield name, curves, sum(compare(*pair).changed > 0 for pair in pairs)


def power(case: Case) -> int:
    """How many of OTHERS comparisons found it."""
    random = Random(21)  # noqa: S311 - noise
    drawn = (
        (
            study(random, case.noise, case.curves, case.sizes, case.repeats),
            study(random, case.noise, case.curves, case.sizes, case.repeats, case.shift),
        )
        for _ in range(OTHERS)
    )
    return sum(case.found(compare(*pair)) for pair in drawn)


def won(noise: Noise, curves: int, repeats: int) -> int:
    """How many of SAME contests among equal settings called one of them slower."""
    random = Random(22)  # noqa: S311 - noise
    drawn = (study(random, noise, curves, (8,), repeats).curves for _ in range(SAME))
    return sum(not all(one.tied for one in next(contests(some)).placings[1:]) for some in drawn)


def winners() -> Iterator[str]:
    """A row of the table for each kind of noise."""
    for name, noise in (
        ("1 % in all", Noise()),
        ("1 %, and 3 % in the last", Noise(0.01, last=3.0)),
        ("1 %, and 10 % in the last", Noise(0.01, last=10.0)),
    ):
        found = (won(noise, curves, repeats) for curves in (2, 3, 6, 12) for repeats in (3, 5))
        yield f"| {name} | {' | '.join(map(str, found))} |"


def page() -> str:
    lines = [
        "# How often a comparison errs",
        "",
        "Written by `make simulation`: studies that are drawn, not measured, of 8 B to 8 GiB in 31 sizes.",
        "What is compared and why so is in [studies](../../docs/studies.md#compare) and ADR 0039.",
        "",
        "## A machine against itself",
        "",
        f"Whole comparisons, of {SAME:,}, that call anything changed, with 5 repeats. At most 1 in 100 may.",
        "",
        "| noise | 1 curve | 6 curves |",
        "|---|---|---|",
    ]
    wrong = {(name, curves): count for name, curves, count in same()}
    lines += [f"| {name} | {wrong[name, 1]} | {wrong[name, 6]} |" for name in NOISES]
    lines += [
        "",
        "## Something changed",
        "",
        f"How often it is found, in {OTHERS} comparisons; noise of each time alone, 1 %, unless said.",
        "",
        "| what became slower | repeats | found |",
        "|---|---|---|",
    ]
    lines += [f"| {case.name} | {case.repeats} | {power(case) / OTHERS:.0%} |" for case in cases()]
    lines += [
        "",
        "## Which setting wins",
        "",
        f"Contests, of {SAME:,}, among settings that are equally fast, that call one of them slower than the",
        "first. At most 1 in 100 should.",
        "",
        "| noise | " + " | ".join(f"{n} settings, {r} repeats" for n in (2, 3, 6, 12) for r in (3, 5)) + " |",
        "|---" * 9 + "|",
        *winners(),
    ]
    return formatted("\n".join(lines) + "\n")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
