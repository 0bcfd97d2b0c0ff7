"""From when on a GPU, a pair or a link is slow, as data; where the figures are from is in ADR 0012."""

import math
from dataclasses import dataclass
from typing import ClassVar

from wirewatch.verdict.straggler.signals import Resource


@dataclass(frozen=True, slots=True)
class StragglerPolicy:
    """When a part is slow. All are parts of its speed, and counts of probes.

    `own`: lost against the part's own accepted history, `peers`: against its peers, where there is no such
    history yet or it was slow from the start. `score`: how many standard deviations that must be, of noise
    that is taken to be no smaller than `noise_own` and `noise_peers`, each by resource. `failed`: lost, from
    which on jobs are kept away. A finding needs `confirm` of the newest `among` probes. `learn`: probes that
    make a history.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    own: float = 0.06
    peers: float = 0.1
    failed: float = 0.25
    score: float = 4.0
    confirm: int = 2
    among: int = 3
    learn: int = 5
    noise_compute: float = 0.005
    noise_memory: float = 0.005
    noise_pair: float = 0.005
    noise_link: float = 0.01
    noise_peers: float = 0.015

    def noise(self, resource: Resource) -> float:
        """One standard deviation of a healthy rate of this kind against its own history, at least."""
        known = {Resource.COMPUTE: self.noise_compute, Resource.MEMORY: self.noise_memory}
        return known.get(resource, self.noise_pair)

    def wrong(self) -> str:
        """What cannot be meant, in words; empty when all can."""
        parts = {
            "own": self.own, "peers": self.peers, "failed": self.failed, "noise_compute": self.noise_compute,
            "noise_memory": self.noise_memory, "noise_pair": self.noise_pair, "noise_peers": self.noise_peers,
            "noise_link": self.noise_link,
        }  # fmt: skip
        counts = {"confirm": self.confirm, "among": self.among, "learn": self.learn}
        checks = (
            ([name for name, value in parts.items() if not 0 < value < 1], "must be above 0 and below 1"),
            ([name for name, value in counts.items() if value < 1], "must be above 0"),
            ([self.score] if not 0 < self.score < math.inf else [], "score must be above 0"),
            ([self.confirm] if self.confirm > self.among else [], "confirm must not be above among"),
        )
        return "; ".join(f"{text}: {bad[0]!r}" for bad, text in checks if bad)
