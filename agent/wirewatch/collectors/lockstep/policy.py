"""When a GPU counts as the one that never waits, as data; where the figures are from is in ADR 0013."""

import math
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class LockstepPolicy:
    """What a window must be like, and how far one GPU must stand out. Ratios are of 0 to 1.

    `settle`: seconds for which a job's processes must have been the same before it is looked at. A window is
    `shortest` to `longest` seconds long, on all GPUs within `together`.
    `same_bytes`: how far the GPUs' NVLink bytes may be from each other, and `least_bytes` a second of them.
    `same_time`: the same for the time in which anything runs on a GPU. `same_memory` and `same_math`: how far
    a GPU's use of its memory and its arithmetic may be from that of the others; arithmetic counts from
    `math_from` on, times the median of the last `clocks` clocks.
    `same_others`: how far the others may be from each other in how busy their SMs are.
    `gap`: how much busier than the others' a GPU's SMs must be; or `least_gap`, and `shift` more than in the
    first windows of the same job, of which there must be `references` and are `most_references` at most.
    `confirm`: windows in a row that must name the same GPU; `misses` in a row that tell nothing end it.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    settle: float = 30.0
    shortest: float = 2.0
    longest: float = 60.0
    together: float = 0.5
    same_bytes: float = 0.05
    least_bytes: float = 100e6
    same_time: float = 0.03
    same_memory: float = 0.06
    same_math: float = 0.10
    math_from: float = 0.10
    clocks: int = 3
    same_others: float = 0.04
    gap: float = 0.08
    least_gap: float = 0.03
    shift: float = 0.04
    references: int = 3
    most_references: int = 20
    confirm: int = 3
    misses: int = 2

    def wrong(self) -> str:
        """What cannot be meant, in words; empty when all can."""
        seconds = {
            "settle": self.settle, "shortest": self.shortest, "longest": self.longest,
            "together": self.together, "least_bytes": self.least_bytes,
        }  # fmt: skip
        ratios = {
            "same_bytes": self.same_bytes, "same_time": self.same_time, "same_memory": self.same_memory,
            "same_math": self.same_math, "math_from": self.math_from, "same_others": self.same_others,
            "gap": self.gap, "least_gap": self.least_gap, "shift": self.shift,
        }  # fmt: skip
        counts = {
            "clocks": self.clocks, "references": self.references, "confirm": self.confirm,
            "misses": self.misses,
        }  # fmt: skip
        checks = (
            ([n for n, v in seconds.items() if not 0 <= v < math.inf], "must not be below 0"),
            ([n for n, v in ratios.items() if not 0 < v <= 1], "must be above 0 and at most 1"),
            ([n for n, v in counts.items() if v < 1], "must be above 0"),
            ([] if self.shortest <= self.longest else ["longest"], "must not be below shortest"),
            (
                [] if self.references <= self.most_references else ["most_references"],
                "must not be below references",
            ),
        )
        return "; ".join(f"{text}: {bad[0]!r}" for bad, text in checks if bad)
