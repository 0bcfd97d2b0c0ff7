"""One preemption as its witness saw it, and many of them against the limits."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proof.hardware.kit import KitError, Report, quantile

SIGKILL_WITHIN = 0.1
SLACK = 64 << 20
"""Bytes that memory in use may move by when no process comes or goes."""
MOMENTS = ("killed", "at_most", "dead", "freed")


@dataclass(frozen=True)
class Comer:
    """A foreign process: its GPU, when it came (seconds after the worker's contexts were up).

    `began` and `ready`: before and after its context and memory, on the monotonic clock.
    """

    pid: int
    gpu: int
    moment: float
    began: float
    ready: float


@dataclass(frozen=True)
class Ended:
    """What the probe made of it: how it ended, and whether there was a document all the same."""

    outcome: str
    why: str
    document: bool


@dataclass(frozen=True)
class Trial:
    """Seconds since the foreign process could be seen; nan for never.

    `killed`: until SIGKILL waited for the worker; `at_most`: the same since the last look that did not show
    the other yet. `dead`: until the worker was a zombie or gone. `freed`: until no GPU held more than it did
    in the end, give or take SLACK; `kept`: bytes that GPUs without the other then held beyond before.
    """

    number: int
    comer: Comer
    ended: Ended
    killed: float
    at_most: float
    dead: float
    freed: float
    kept: int
    slowest_look: float

    @property
    def good(self) -> bool:
        """Whether the probe gave way to this process, and nothing is left of its result."""
        named = re.search(rf"\b{self.comer.pid}\b", self.ended.why) is not None
        gave_way = self.ended.outcome == "preempted" and not self.ended.document
        return gave_way and named and not math.isnan(self.killed)

    def line(self) -> str:
        told = ", ".join(f"{name} {1e3 * getattr(self, name):.1f} ms" for name in MOMENTS)
        came = f"GPU {self.comer.gpu} after {self.comer.moment:.2f} s"
        return f"trial {self.number}: {came}: {self.ended.outcome}, {told}"


def freed_at(used: Sequence[tuple[float, Sequence[int]]]) -> float:
    """From when on no GPU held more bytes than in the end, give or take SLACK; nan of nothing."""
    since = math.nan
    for moment, values in reversed(used):
        if any(now > last + SLACK for now, last in zip(values, used[-1][1], strict=True)):
            return since
        since = moment
    return since


def trial(
    number: int, comer: Comer, ended: Ended, seen: Mapping[str, Any], before: Sequence[int | None]
) -> Trial:
    """Of what the witness saw; `before`: bytes in use on each GPU with no probe and no other.

    Raises:
        KitError: the other could be seen before it had a context, which proves nothing.
    """
    visible = seen["visible"]
    if visible is not None and visible < comer.began:
        raise KitError(f"NVML showed process {comer.pid} {comer.began - visible:.3f} s before it came")

    def since(name: str) -> float:
        return math.nan if visible is None or seen[name] is None else seen[name] - visible

    unseen = 0.0 if visible is None or seen["unseen"] is None else visible - seen["unseen"]
    last = seen["used"][-1][1] if seen["used"] else []
    kept = [
        now - (then or 0) for n, (now, then) in enumerate(zip(last, before, strict=False)) if n != comer.gpu
    ]
    freed = math.nan if visible is None else freed_at(seen["used"]) - visible
    return Trial(
        number=number, comer=comer, ended=ended, killed=since("killed"), at_most=since("killed") + unseen,
        dead=since("dead"), freed=freed, kept=max(kept, default=0), slowest_look=seen["slowest_look"],
    )  # fmt: skip


def judge(report: Report, trials: Sequence[Trial], count: int) -> None:
    good = [one for one in trials if one.good]
    bad = "; ".join(f"trial {one.number}: {one.ended}" for one in trials if not one.good)
    report.check(
        "who comes ends the probe, without a result", ok=len(good) == count,
        told=f"{len(good)} of {count}{'; ' if bad else ''}{bad[:500]}",
    )  # fmt: skip
    if not good:
        return
    rows = []
    for name in MOMENTS:
        values = [1e3 * getattr(one, name) for one in good]
        rows.append([name, quantile(values, 0.5), quantile(values, 0.95), max(values)])
    contexts = [1e3 * (one.comer.ready - one.comer.began) for one in good]
    rows.append(["(its own context)", quantile(contexts, 0.5), quantile(contexts, 0.95), max(contexts)])
    report.table("since the foreign process could be seen, ms", ["until", "p50", "p95", "worst"], rows)
    worst = max(one.killed for one in good)
    slowest = max(one.slowest_look for one in good)
    report.check(
        f"SIGKILL within {SIGKILL_WITHIN:g} s of the moment NVML shows it, in the worst of {len(good)}",
        ok=worst <= SIGKILL_WITHIN,
        told=f"worst {1e3 * worst:.1f} ms; slowest answer of NVML {1e3 * slowest:.1f} ms",
    )
    kept = max(one.kept for one in good)
    report.check("the other GPUs have all their memory again", ok=kept <= 0, told=f"most {kept} bytes kept")
