"""proof/fleet/simulation/pairs.md, of what was drawn."""

from collections.abc import Iterator, Mapping, Sequence
from math import comb
from pathlib import Path
from statistics import median
from typing import Any

from proof.fleet.simulation.cases import CASES, USUAL, PairsCase
from proof.fleet.simulation.faulty import KINDS
from proof.fleet.simulation.methods import MINUTES
from tools.prose import formatted

PAGE = Path(__file__).with_name("pairs.md")
WORDS = Path(__file__).with_name("page.in.md")
Trials = Mapping[str, Sequence[Mapping[str, Any]]]
MIXED = ("mixed-256", "mixed-2000")
SIZES = ((0.05, 0.07), (0.07, 0.1), (0.1, 0.2), (0.2, 0.6))
UNLIKELY = 0.05
NAMED, WRONG = 0.99, 0.001
"""Aims: the share of faults that are named, and of healthy fleets in which anything is, at most."""


def page(every: Trials) -> str:
    """The whole page."""
    text = WORDS.read_text("utf-8")
    for name, lines in (
        ("head", _head(every)), ("short", _short(every)), ("named", _named(every)), ("kinds", _kinds(every)),
        ("healthy", _healthy(every)),
        ("cost", _cost(every)), ("drawn", (f"{sum(map(len, every.values())):,}",)),
        ("aimed", (f"{sum(max(case.trials, len(every[case.name])) for case in CASES):,}",)),
    ):  # fmt: skip
        text = text.replace(f"{{{name}}}", "\n".join(lines))
    return formatted(text)


def _head(every: Trials) -> Iterator[str]:
    mixed = [one for name in MIXED for one in every[name]]
    faults = _seen(mixed)
    named = sum(fault[2] for fault in faults)
    healthy = _usual_healthy(every)
    wrong, bad = (sum(bool(one["wrong"]) for one in some) for some in (healthy, mixed))
    drawn = sum(len(one["faults"]) for one in mixed)
    yield f"- Of {drawn:,} faults of 5 to 60 %, 1 to 5 in a fleet, {named:,} are named as they are: "
    yield f"  {_share(named, drawn)}. {drawn - len(faults):,} lie hidden behind another fault; of the others"
    yield f"  {_share(named, len(faults))} are named."
    yield f"- Of {len(healthy):,} healthy fleets {wrong} had anything named: with 95 % confidence at most"
    yield f"  {bound(wrong, len(healthy)):.2%} of such fleets."
    yield f"- Of {len(mixed):,} fleets with faults {bad} had anything named that is not slow, or not in that"
    yield "  direction."


def _short(every: Trials) -> Iterator[str]:
    """Aims that are not reached, or not shown to be by so many fleets."""
    for case in CASES:
        faults = _seen(every[case.name]) if case.name in MIXED else []
        named = sum(fault[2] for fault in faults)
        if named < NAMED * len(faults):
            yield f"**Not reached** in fleets of {case.about}: {named} of {len(faults)} faults are named."
    healthy = _usual_healthy(every)
    wrong = sum(bool(one["wrong"]) for one in healthy)
    if bound(wrong, len(healthy)) > WRONG:
        yield f"**Not shown** by {len(healthy):,} healthy fleets: the {WRONG * 100:g} %."
        yield f"With {wrong} named it takes {enough(wrong):,} fleets."


def _seen(trials: Sequence[Mapping[str, Any]]) -> list[Sequence[Any]]:
    """Faults that no other hides."""
    return [fault for one in trials for fault in one["faults"] if not fault[4]]


def _usual_healthy(every: Trials) -> list[Mapping[str, Any]]:
    usual = [case.name for case in CASES if case.faults == (0, 0) and case.noise == USUAL]
    return [one for name in usual for one in every[name]]


def enough(bad: int) -> int:
    """How many fleets show that at most WRONG of them are named, with so many that are."""
    low, high = 1, 1 << 20
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(bad, middle) <= WRONG else (middle + 1, high)
    return low


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def bound(bad: int, count: int) -> float:
    """The rate above which so few in so many are less than 5 % likely."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        likely = sum(comb(count, k) * middle**k * (1 - middle) ** (count - k) for k in range(bad + 1))
        low, high = (middle, high) if likely > UNLIKELY else (low, middle)
    return high


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _named(every: Trials) -> Iterator[str]:
    head = ("fleets", "drawn", "faults", "named", "open", "hidden", "wrong", "rounds", "within")
    cases = (case for case in CASES if case.faults != (0, 0) and every[case.name])
    yield from _table(head, (_row(case, every[case.name]) for case in cases))


def _row(case: PairsCase, trials: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    drawn = [fault for one in trials for fault in one["faults"]]
    faults = _seen(trials)
    inside = [fault[5] for fault in faults if fault[5] is not None]
    return (
        case.about, f"{len(trials)}", f"{len(faults)}",
        _share(sum(fault[2] for fault in faults), len(faults)),
        f"{sum(not fault[2] and fault[3] for fault in faults)}", f"{len(drawn) - len(faults)}",
        f"{sum(bool(one['wrong']) for one in trials)}", _rounds(trials), _share(sum(inside), len(inside)),
    )  # fmt: skip


def _rounds(trials: Sequence[Mapping[str, Any]]) -> str:
    rounds = [one["rounds"] for one in trials]
    return f"{median(rounds):g}, {max(rounds)}"


def _kinds(every: Trials) -> Iterator[str]:
    faults = _seen([one for name in MIXED for one in every[name]])
    rows = (
        (
            kind,
            *(_of([one for one in faults if one[0] == kind and low <= one[1] < high]) for low, high in SIZES),
        )
        for kind in KINDS
    )
    yield from _table(("kind", *(f"{low:.0%} to {high:.0%}" for low, high in SIZES)), rows)


def _of(faults: Sequence[Sequence[Any]]) -> str:
    return f"{sum(one[2] for one in faults)} of {len(faults)}"


def _healthy(every: Trials) -> Iterator[str]:
    def row(case: PairsCase) -> Sequence[str]:
        trials = every[case.name]
        wrong, left = sum(bool(one["wrong"]) for one in trials), sum(one["open"] > 0 for one in trials)
        most = f"{bound(wrong, len(trials)):.2%}"
        return case.about, f"{len(trials):,}", f"{wrong}", most, f"{left}", _rounds(trials)

    cases = (case for case in CASES if case.faults == (0, 0) and every[case.name])
    yield from _table(("fleets", "drawn", "named", "at most, 95 %", "open", "rounds"), map(row, cases))


def _cost(every: Trials) -> Iterator[str]:
    head = ("fleets", "method", "rounds", "node-minutes", "faulty nodes found", "wrong names a fleet")
    cases = (case for case in CASES if case.methods and every[case.name])
    yield from _table(head, (row for case in cases for row in _methods(case, every[case.name])))


def _methods(case: PairsCase, trials: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[str]]:
    hits = [bool(fault[2]) for one in trials for fault in one["faults"] if "node" in fault[0]]
    wrong = sum(len(one["wrong"]) for one in trials)
    yield _method(case, "rounds of pairs", trials, hits, wrong)
    for key, name in (("bisect", "bisecting"), ("again", "pairs, re-paired")):
        runs = [one["methods"][key] for one in trials]
        hits = [hit for run in runs for _, hit in run["nodes"]]
        yield _method(case, name, runs, hits, sum(run["wrong"] for run in runs))
    minutes = MINUTES * case.size * (case.size - 1)
    yield case.about, "all pairs", f"{case.size - 1:,}", f"{minutes:,.0f}", "not drawn", "not drawn"


def _method(
    case: PairsCase, name: str, runs: Sequence[Mapping[str, Any]], hits: Sequence[bool], wrong: int
) -> Sequence[str]:
    rounds, tests = (median(one[key] for one in runs) for key in ("rounds", "tests"))
    found = _share(sum(hits), len(hits))
    return case.about, name, f"{rounds:g}", f"{MINUTES * tests:,.0f}", found, f"{wrong / len(runs):.2f}"
