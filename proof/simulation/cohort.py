"""How often WirewatchBusbwBelowCohort errs, in docs/cohort-simulation.md: `make simulation`, seconds.

Nodes of one product are drawn around one bus bandwidth, one of them slower. The limits are those of the
shipped alert.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tools.alerting import alerts
from tools.pages import DOCS
from tools.prose import formatted

PAGE = DOCS / "cohort-simulation.md"
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
[{alert}](runbooks/{alert}.md) (under {limit:.0%} of the median, and {times:g} times as far below it
as the lower quarter of the cohort), whose reasons are in
[ADR 0057](adr/0057-the-fleet-is-judged-by-its-own-spread.md).

Healthy nodes differ by a normal distribution of this standard deviation; one node of each cohort is
{loss:.0%} slower. An hour is one draw: what a node differs by, it differs by all the time. So a
wrong alert is one of a whole fleet, not of an hour.

{table}
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Least part of the median, and how many times the lower quarter's distance from it."""

    part: float
    times: float


def shipped() -> Limits:
    """The limits as the alert's expression has them."""
    (alert,) = (one for one in alerts() if one.name == ALERT)
    found = re.search(r"< ([\d.]+)\s.*?< on .*?1 - (\d+) \* \(1 - ", alert.expr, re.DOTALL)
    assert found, alert.expr
    return Limits(float(found[1]), float(found[2]))


def quantile(values: Sequence[float], part: float) -> float:
    """As Prometheus' `quantile`: between the two nearest of the sorted values."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


def odd(busbw: Sequence[float], limits: Limits) -> list[bool]:
    """For each node of a cohort, whether the alert names it."""
    median = quantile(busbw, 0.5)
    parts = [one / median for one in busbw]
    least = min(limits.part, 1 - limits.times * (1 - quantile(parts, 0.25)))
    return [one < least for one in parts]


def _rows(limits: Limits) -> Iterator[str]:
    yield "| nodes differ by | nodes | cohorts with a wrong alert | slow node named |"
    yield "|---|---|---|---|"
    random = Random(57)  # noqa: S311 - no secret
    for spread in SPREADS:
        for size in SIZES:
            cohorts = max(COHORTS, DRAWN // size)
            wrong = named = 0
            for _ in range(cohorts):
                drawn = [random.gauss(1, spread) for _ in range(size)]
                told = odd([drawn[0] * (1 - LOSS), *drawn[1:]], limits)
                named += told[0]
                wrong += any(told[1:])
            yield f"| {spread:.0%} | {size} | {wrong / cohorts:.2%} | {named / cohorts:.1%} |"


def main() -> None:
    limits = shipped()
    text = TEXT.format(
        alert=ALERT, limit=limits.part, times=limits.times, loss=LOSS, table="\n".join(_rows(limits))
    )
    PAGE.write_text(formatted(text), "utf-8")


if __name__ == "__main__":
    main()
