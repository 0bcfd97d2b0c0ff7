"""How often WirewatchBusbwBelowCohort errs, in proof/simulation/cohort.md: `make simulation`, seconds.

Nodes of one product are drawn around one bus bandwidth, one of them slower. The limits are those of the
shipped alert.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tools.alerting import alerts
from tools.prose import formatted

PAGE = Path(__file__).with_name("cohort.md")
ALERT = "WirewatchBusbwBelowCohort"
SPREADS = (0.01, 0.02, 0.05, 0.08)
"""Standard deviations of healthy nodes, as parts of the median."""
SIZES = (5, 8, 16, 64, 512, 2000)
LOSS = 0.27
DRAWN = 40_000
"""Nodes for each line, and at least this many cohorts."""
COHORTS = 200
TEXT = """# Cohorts, simulated

Written by `make simulation`: nodes that are drawn, not measured, judged by the limits of the alert
[{alert}](../../docs/runbook.md#{anchor}) (under {limit:.0%} of the median, and
{times:g} times as far below it as the upper quarter of the cohort is above it, and not where the
quarters are {limit:.0%} apart, which
is [WirewatchCohortSplit](../../docs/runbook.md#wirewatchcohortsplit)), whose reasons are in
[ADR 0057](../../docs/adr/0057-comparison-of-nodes.md).

Healthy nodes differ by a normal distribution of this standard deviation; one node of each cohort is
{loss:.0%} slower, and in the last column a quarter of them: each is named, or the split is said. An
hour is one draw: what a node differs by, it differs by all the time. So a
wrong alert is one of a whole fleet, not of an hour.

{table}
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Least part of the median, how many times the upper quarter's distance from it, when it is a split."""

    part: float
    times: float
    split: float


def shipped() -> Limits:
    """The limits as the alert's expression has them."""
    (alert,) = (one for one in alerts() if one.name == ALERT)
    form = r"< ([\d.]+)\s.*?< on .*?1 - (\d+) \* \(.*upper_quartile - 1\).*unless on .*< ([\d.]+)\s*$"
    found = re.search(form, alert.expr, re.DOTALL)
    assert found, alert.expr
    return Limits(float(found[1]), float(found[2]), float(found[3]))


def quantile(values: Sequence[float], part: float) -> float:
    """As Prometheus' `quantile`: between the two nearest of the sorted values."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


def odd(busbw: Sequence[float], limits: Limits) -> list[bool]:
    """For each node of a cohort, whether the alert names it; none where the cohort is split."""
    median = quantile(busbw, 0.5)
    parts = [one / median for one in busbw]
    least = min(limits.part, 1 - limits.times * (quantile(parts, 0.75) - 1))
    whole = not split(busbw, limits)
    return [whole and one < least for one in parts]


def split(busbw: Sequence[float], limits: Limits) -> bool:
    """Whether the quarters are too far apart for any node to be the odd one."""
    return quantile(busbw, 0.25) / quantile(busbw, 0.75) < limits.split


def _rows(limits: Limits) -> Iterator[str]:
    yield "| nodes differ by | nodes | cohorts with a wrong alert | slow node named | a slow quarter told |"
    yield "|---|---|---|---|---|"
    random = Random(57)  # noqa: S311 - no secret
    for spread in SPREADS:
        for size in SIZES:
            cohorts = max(COHORTS, DRAWN // size)
            wrong = named = quarter = 0
            for _ in range(cohorts):
                drawn = [random.gauss(1, spread) for _ in range(size)]
                told = odd(_slow(drawn, 1), limits)
                named += told[0]
                wrong += any(told[1:])
                many = _slow(drawn, max(1, size // 4))
                quarter += split(many, limits) or all(odd(many, limits)[: max(1, size // 4)])
            parts = (wrong / cohorts, named / cohorts, quarter / cohorts)
            yield f"| {spread:.0%} | {size} | {parts[0]:.2%} | {parts[1]:.1%} | {parts[2]:.1%} |"


def _slow(drawn: Sequence[float], count: int) -> list[float]:
    return [one * (1 - LOSS) for one in drawn[:count]] + [*drawn[count:]]


def main() -> None:
    limits = shipped()
    text = TEXT.format(
        alert=ALERT,
        anchor=ALERT.lower(),
        limit=limits.part,
        times=limits.times,
        loss=LOSS,
        table="\n".join(_rows(limits)),
    )
    PAGE.write_text(formatted(text), "utf-8")


if __name__ == "__main__":
    main()
