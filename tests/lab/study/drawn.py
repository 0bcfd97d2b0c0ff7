"""Studies with noise that is drawn, and curves of tables by hand. Times follow a line, as NCCL's do."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study

FULL = tuple(8 << power for power in range(31))
"""8 B to 8 GiB."""
SHORT = FULL[::6]
LATENCY, RATE = 25e-6, 300e9


@dataclass(frozen=True)
class Noise:
    """Relative standard deviations: of each time, of what all sizes of one curve's repeat have in common, and
    of what all curves of a repeat have in common.

    `small`: of each time up to 4 KiB, where that differs. `last`: the last curve has so many times more.
    """

    each: float = 0.01
    curve: float = 0.0
    session: float = 0.0
    small: float | None = None
    last: float = 1.0


def study(
    random: Random,
    noise: Noise,
    curves: int = 6,
    sizes: Sequence[int] = FULL,
    repeats: int = 5,
    shift: Callable[[int, int], float] = lambda _curve, _size: 0.0,
) -> Study:
    """`shift`: by which share the times of a curve are longer at a size."""
    sessions = [random.gauss(0, noise.session) for _ in range(repeats)]
    made = []
    for place in range(curves):
        more = noise.last if place == curves - 1 else 1.0
        common = [one + random.gauss(0, more * noise.curve) for one in sessions]
        points = []
        for size in sizes:
            each = noise.small if noise.small is not None and size <= 4096 else noise.each
            right = (LATENCY + size / RATE) * (1 + shift(place, size))
            times = tuple(right * math.exp(one + random.gauss(0, more * each)) for one in common)
            points.append(CurvePoint(size, times))
        configuration = Configuration(4, settings=(("NCCL_MAX_NCHANNELS", f"{place + 1}"),))
        made.append(Curve("all_reduce", configuration, tuple(points)))
    return Study(1_700_000_000.0, "drawn, not measured", {"NCCL": "2.30.7"}, made)


def curve(
    times: Mapping[int, float | Sequence[float]],
    configuration: Configuration = Configuration(4),  # noqa: B008 - it is frozen
    op: str = "all_reduce",
    *,
    in_place: bool = True,
) -> Curve:
    """Microseconds by size in bytes, of one repeat or several."""
    points = [
        CurvePoint(size, tuple(1e-6 * x for x in ([us] if isinstance(us, float) else us)))
        for size, us in times.items()
    ]
    return Curve(op, configuration, tuple(points), in_place=in_place)
