"""proof/simulation/simulation.md: the words of page.in.md, with what came of it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from proof.simulation.fit import FAR, LEAST, Fitted, modelled
from proof.simulation.noise import FREEDOM, OFFSETS, RHO, times
from proof.simulation.results import (  # fmt: skip
    ALONE,
    ENDS,
    FACTORS,
    LOST,
    LOST_FROM_START,
    PROBES,
    SEED,
    TRIALS,
    Results,
    quantile,
    within,
)
from proof.simulation.simulate import HORIZON, LEARNT, LIFE, POLICY, Outcome
from proof.simulation.tail import (
    DAY,
    MILLION,
    begun,
    begun_failed,
    bound,
    counted,
    false_degraded,
    false_failed,
    heavier_failed,
)
from tools.prose import formatted
from wirewatch.verdict.straggler.signals import Resource

PAGE, TEXT = (Path(__file__).with_name(name) for name in ("simulation.md", "page.in.md"))
AIM = 300
"""Real healthy probes to fit the noise on."""
ASKED, SOON = 0.1, 3
"""The loss that must be found, within so many probes."""
OUT, DRAWS, SCALE = (3, 5, 8), 2_000_000, 0.01
Row = Sequence[str]


def page(told: Results) -> str:
    values = {**of_probes(told), **_model(), **_alarms(told), **_delays(told)}
    return formatted(TEXT.read_text("utf-8").format_map(values))


def of_probes(told: Results) -> Mapping[str, str]:
    """What follows from the real probes alone."""
    count, found = told.real.probes, told.real
    short = f"That is {AIM - count} short of the {AIM} that are aimed at."
    aim = short if count < AIM else f"At least {AIM} were aimed at."
    far = f"beyond {FAR:g} spreads"
    head = ("resource", "values", "spread", "autocorrelation", far, "farthest, spreads", "freedom")
    rows = [*map(_fitted, told.fitted), ("the model", "", "", f"{RHO}", _part(modelled()), "", f"{FREEDOM}")]
    return {
        "real": f"{count}", "aim": aim, "least": f"{LEAST}", "runs": f"{told.runs}",
        "spacing": f"{told.spacing:.1f}", "real_named": f"{found.named or 'none'}",
        "real_findings": f"{found.degraded or 'no'}", "real_failed": f"{found.failed or 'none'}",
        "noise": _table(head, rows),
    }  # fmt: skip


def _fitted(one: Fitted) -> Row:
    memory = ", ".join(f"{value:.2f}" for value in one.memory)
    spread = f"{one.scale * 100:.3f} % ({one.least * 100:.3f} %)"
    far = (f"{_part(one.far)} ({_part(one.far_own)})", f"{one.farthest:.1f}")
    return one.resource.value, f"{one.values}", spread, memory, *far, f"{one.freedom}"


def _model() -> Mapping[str, str]:
    apart = math.erfc(-math.log1p(-POLICY.peers) / OFFSETS[Resource.COMPUTE] / 2)
    return {
        "offsets": ", ".join(f"{value * 100:g} % ({one.value})" for one, value in OFFSETS.items()),
        "rho": f"{RHO}", "far": f"{FAR:g}", "freedom": f"{FREEDOM}", "more": f"{FACTORS[-1]}",
        "learnt": f"{LEARNT}",
        "probes": _each(PROBES.values()), "trials": _each(TRIALS.values()), "seed": SEED, "life": f"{LIFE}",
        "own": _part(POLICY.own), "peers": _part(POLICY.peers), "limit": _part(POLICY.failed),
        "twice": _part(round(POLICY.failed_twice, 2)),
        "offset": _part(OFFSETS[Resource.COMPUTE]), "apart": f"{apart * MILLION:.0f}",
        "link": f"{100 / 18:.1f} %",
        "draws": f"{DRAWS:,}", "asked": _part(ASKED), "soon": f"{SOON}", "horizon": f"{HORIZON}",
    }  # fmt: skip


_COUNTED = (
    "noise", "GPUs", "probes", "named", "by history", "estimated", "by peers", "FAILED", "3/n, in 10^6 days",
)  # fmt: skip
_ESTIMATED = (
    "noise", "GPUs", "false DEGRADED in 10^6 days", "false FAILED", "with a heavier tail of memory",
    "bound by the real probes",
)  # fmt: skip
_CHECKED = ("loss, in robust spreads", "findings, counted", "estimated", "FAILED, counted", "estimated")


def _alarms(told: Results) -> Mapping[str, str]:
    noise = [times(told.scales, factor) for factor in FACTORS]
    one, more = (_number(false_failed(8, scale, POLICY)) for scale in noise)
    heavy_one, heavy_more = (_number(heavier_failed(8, scale, POLICY)) for scale in noise)
    every = told.well.values()
    return {
        "failed": f"{sum(alarms.failed for alarms in every) or 'no'}",
        "drawn": f"{sum(alarms.probes for alarms in every):,}",
        "tail_1": one,
        "tail_3": more,
        "heavy_1": heavy_one,
        "heavy_3": heavy_more,
        "bound": _number(bound(told.real.probes)),
        "counted": _table(_COUNTED, _counted(told)),
        "estimated": _table(_ESTIMATED, _estimated(told)),
        "checked": _table(_CHECKED, _checked()),
    }


def _counted(told: Results) -> Iterator[Row]:
    for (factor, count), one in told.well.items():
        days = one.probes / DAY / MILLION
        expected = days * false_degraded(count, times(told.scales, factor), POLICY)
        limit = "" if one.failed else f"≤ {_number(bound(one.probes))}"
        named = f"{one.named} ({_part(one.named / one.probes)})"
        findings = (f"{one.degraded - one.peers}", f"{expected:.1g}", f"{one.peers}", f"{one.failed}")
        yield _times(factor), f"{count}", f"{one.probes:,}", named, *findings, limit


def _estimated(told: Results) -> Iterator[Row]:
    limit = "" if told.real.failed else f"≤ {_number(bound(told.real.probes))}"
    for factor in FACTORS:
        scale = times(told.scales, factor)
        for count in PROBES:
            each = (of(count, scale, POLICY) for of in (false_degraded, false_failed, heavier_failed))
            yield _times(factor), f"{count}", *map(_number, each), limit


def _checked() -> Iterator[Row]:
    for spreads in OUT:
        lost = -math.expm1(-spreads * SCALE)
        degraded, failed = counted(lost, SCALE, DRAWS, 1, POLICY)
        expected = (begun(lost, SCALE, POLICY), begun_failed(lost, SCALE, POLICY))
        each = (degraded, expected[0], failed, expected[1])
        yield f"{spreads}", *(f"{value:.1e}" for value in each)


def _delays(told: Results) -> Mapping[str, str]:
    asked = [told.of(factor, ASKED) for factor in FACTORS]
    one, more = (f"{_within(ones)} of {len(ones):,} trials" for ones in asked)
    failed = {
        lost: [one.failed for factor in FACTORS for one in told.of(factor, lost)] for lost in (0.3, 0.5)
    }
    each = [
        f"{_times(factor)}: {what}" for factor in FACTORS for what in ("within 3", "median, 95 %", "right")
    ]
    also = [
        f"{_times(f)}: {what}" for f in FACTORS for what in ("within 3", "median, 95 %", "right", "FAILED")
    ]
    return {
        "found_1": one,
        "nodes": f"{sum(TRIALS.values())}",
        "found_3": more,
        "failed_30": _late(quantile(failed[0.3], 0.95)),
        "failed_50": _late(quantile(failed[0.5], 0.95)),
        "tenth": _table(("slow", "GPUs", *each), _tenth(told)),
        "by_loss": _table(("lost", *also), _by_loss(told, LOST, history=True)),
        "from_start": _table(("lost", *also), _by_loss(told, LOST_FROM_START, history=False)),
    }


def _tenth(told: Results) -> Iterator[Row]:
    for resource in (*ALONE, *ENDS):
        for count in TRIALS:
            found = [told.of(factor, ASKED, resource=resource, count=count) for factor in FACTORS]
            if all(found):
                yield resource.value, f"{count}", *(cell for ones in found for cell in _delay(ones))


def _by_loss(told: Results, losses: Iterable[float], *, history: bool) -> Iterator[Row]:
    for lost in losses:
        cells: list[str] = []
        for factor in FACTORS:
            ones = told.of(factor, lost, history=history)
            cells += (*_delay(ones), _part(within([one.failed for one in ones], HORIZON)))
        yield f"{lost * 100:g} %", *cells


def _delay(ones: Sequence[Outcome]) -> tuple[str, str, str]:
    delays = [one.found for one in ones]
    median, late = (quantile(delays, part) for part in (0.5, 0.95))
    found = sum(delay is not None for delay in delays)
    right = _part(sum(one.right for one in ones) / found) if found else ""
    return _within(ones), f"{_late(median)}, {_late(late)}", right


def _within(ones: Sequence[Outcome]) -> str:
    return _part(within([one.found for one in ones], SOON))


def _table(head: Row, rows: Iterable[Row]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def _times(factor: int) -> str:
    return f"{factor} \N{MULTIPLICATION SIGN}"


def _late(delay: int | None) -> str:
    return f"> {HORIZON}" if delay is None else str(delay)


def _part(value: float) -> str:
    """Per cent; what is only near 0 or 100 is not called that."""
    if value in {0.0, 1.0}:
        return f"{value * 100:.0f} %"
    near = min(value, 1 - value)
    digits = 1 if near >= 0.0005 else 3
    return f"{value * 100:.{digits}f}".removesuffix(".0") + " %"


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{float(f'{value:.2g}'):,.0f}"


def _each(numbers: Iterable[int]) -> str:
    *most, last = (f"{number:,}" for number in numbers)
    return f"{', '.join(most)} and {last}"
