"""Looks at bursts: reads of a real job's counters, and a job whose every byte and read is drawn."""

import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wirewatch.core.types import Json
from wirewatch.jobs.bursts.estimate import CounterRead

FILE = Path(__file__).parent / "bursts-h200x4.json"
"""Four H200 on 2026-11-22, five looks at one GPU; the job's own CUDA events say how fast it was."""
KIB = 1024


@cache
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return found


def recorded_looks() -> list[list[CounterRead]]:
    return [
        [CounterRead(micros / 1e6, sent * KIB, received * KIB) for micros, sent, received in look]
        for look in recorded()["bursts"]
    ]


@dataclass(frozen=True)
class DrawnJob:
    """A job that computes for a while and then moves `size` bytes at `rate`, again and again.

    `received`: of the bytes that it sends, the share that it receives too.
    """

    rate: float
    size: int
    compute: float
    received: float = 1.0

    @property
    def on_wire(self) -> float:
        return self.size / self.rate

    @property
    def step(self) -> float:
        return self.compute + self.on_wire

    def bytes_at(self, seconds: float) -> int:
        steps, rest = divmod(seconds, self.step)
        return int(steps) * self.size + int(min(self.size, max(0.0, rest - self.compute) * self.rate))

    def look(self, seed: int = 0, seconds: float = 0.25) -> list[CounterRead]:
        """Reads as on H200: 0.74 to 1.09 ms each, one in ten 2 ms; when a counter is taken is not known."""
        rng = random.Random(seed)  # noqa: S311 - the same reads each time
        now = rng.uniform(0, self.step)
        end = now + seconds
        rows: list[tuple[float, int, int]] = []
        while now < end:
            lasts = rng.uniform(0.74e-3, 1.09e-3) + (rng.uniform(0.5e-3, 1.3e-3) if rng.random() < 0.1 else 0)
            now += lasts
            taken = now - rng.uniform(0, 0.3e-3)
            sent, received = self.bytes_at(taken), self.bytes_at(taken - 0.14e-3) * self.received
            rows.append((now, sent // KIB * KIB, int(received) // KIB * KIB))
        first = rows[0]
        return [CounterRead(t - first[0], s - first[1], r - first[2]) for t, s, r in rows]


def as_json(look: list[CounterRead]) -> Json:
    """A look as NVML's process answers it: microseconds and KiB."""
    return {"reads": [[round(r.seconds * 1e6), r.sent // KIB, r.received // KIB] for r in look]}
