"""Rounds of pairs whose rates a test gives; nothing in them is by chance."""

from collections.abc import Callable, Sequence

from wirewatch_fleet.pairs.model import MeasuredRound, PairLimits, PairRound, PairRun, RoundPurpose

RATE = 48e9
BY_ROUNDS = PairLimits(alone=0)
"""Limits by which rounds of all pairs name by themselves, as where no two of them share a link."""
Loss = Callable[[str, str, int], float]
"""The share that the first loses towards the second in a round."""


def measured(
    number: int, pairs: Sequence[tuple[str, str]], lost: Loss,
    purpose: RoundPurpose = RoundPurpose.RANDOM,
) -> MeasuredRound:  # fmt: skip
    """A round of these pairs, both directions of each."""
    runs = [
        PairRun(
            a, b, sends=RATE * (1 - lost(a, b, number)) * wobble(a, b, number),
            receives=RATE * (1 - lost(b, a, number)) * wobble(b, a, number),
        )
        for a, b in pairs
    ]  # fmt: skip
    return MeasuredRound(PairRound(number, purpose, tuple(pairs)), runs)


def wobble(a: str, b: str, number: int) -> float:
    """Half a percent to either side, the same for the same run."""
    return 1 + 0.005 * (sum(map(ord, f"{a}>{b}:{number}")) * 2654435761 % 101 - 50) / 50


def around(names: Sequence[str], number: int) -> list[tuple[str, str]]:
    """The pairs of a round in which all meet another, and in each of the next rounds one more."""
    last, ring = names[-1], list(names[:-1])
    ring = ring[number:] + ring[:number]
    half = len(names) // 2
    return [(last, ring[0]), *((ring[n], ring[-n]) for n in range(1, half))]
