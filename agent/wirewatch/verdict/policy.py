"""What becomes of a fault that is not seen any more, as data; where the figures are from is in ADR 0010."""

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

DAY = 86400.0


@dataclass(frozen=True, slots=True)
class VerdictPolicy:
    """What becomes of a fault that is not seen any more.

    `latch`: rules whose FAILED stands until a reboot, a reset, another GPU or `findings ack`, since silence
    repairs nothing; `plain`: rules that are over when they are not seen, since a person put them right. All
    others are on probation. Both are patterns such as `xid.*`.
    `settle`: seconds without a fault before it counts as gone. `probation`: seconds for which it stays
    DEGRADED then, and for `clean_probes` probes that find nothing, where probes run. `recurrence`: seconds
    within which it is FAILED at once when it comes back; `latch_after`: how often it may come before it
    latches as well. All these seconds are of watching.
    `flapping`: rules that are FAILED too when they come and go, `flaps` times within `flap_window` seconds,
    since their collectors count only what stays.
    `require_fresh_probe`: whether `check` may pass a node whose last probe is old.
    `longest_suppression`: seconds.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    latch: tuple[str, ...] = ("xid.*", "sxid.*", "kernel.*", "probe.wrong_data")
    plain: tuple[str, ...] = ("gpudirect.*", "agent.*", "topology.*")
    flapping: tuple[str, ...] = (
        "nvlink.*down", "nvlink.*slow", "c2c.link_down", "pcie.width",
        "infiniband.port_down", "infiniband.port_slow", "infiniband.pcie",
    )  # fmt: skip
    settle: float = 60.0
    probation: float = DAY
    clean_probes: int = 3
    recurrence: float = 7 * DAY
    latch_after: int = 3
    flaps: int = 5
    flap_window: float = 3600.0
    require_fresh_probe: bool = False
    longest_suppression: float = 90 * DAY

    def wrong(self) -> str:
        """What cannot be meant, in words; empty when all can."""
        seconds = {
            "settle": self.settle, "probation": self.probation, "recurrence": self.recurrence,
            "longest_suppression": self.longest_suppression, "flap_window": self.flap_window,
        }  # fmt: skip
        bad = [name for name, value in seconds.items() if not 0 <= value < math.inf]
        if bad:
            return f"seconds must not be below 0: {bad[0]!r}"
        if self.recurrence < self.probation:
            return "recurrence must not be shorter than probation"
        counts = {
            "clean_probes": (self.clean_probes, 0),
            "latch_after": (self.latch_after, 2),
            "flaps": (self.flaps, 2),
        }
        return "; ".join(f"{name} must be at least {low}" for name, (n, low) in counts.items() if n < low)

    def latches(self, rule: str) -> bool:
        return any(fnmatchcase(rule, pattern) for pattern in self.latch)

    def flaps_count(self, rule: str) -> bool:
        return any(fnmatchcase(rule, pattern) for pattern in self.flapping)

    def forgets(self, rule: str) -> bool:
        return any(fnmatchcase(rule, pattern) for pattern in self.plain)
