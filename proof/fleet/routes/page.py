"""proof/fleet/routes/routes.md, of what was drawn."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proof.fleet.routes.cases import CASES, SEED, RoutesCase
from proof.fleet.routes.network import Routes
from proof.fleet.simulation.page import bound
from tools.prose import formatted

PAGE = Path(__file__).with_name("routes.md")
FIRST = Path(__file__).with_name("first.json")
"""The draw after which a rule was mended."""
WORDS = Path(__file__).with_name("page.in.md")
Results = Mapping[str, Mapping[str, Any]]


def page(results: Results) -> str:
    """The whole page."""
    text = WORDS.read_text("utf-8")
    healthy = [results[case.name] for case in CASES if case.fault is None and case.name in results]
    fleets, failed = (sum(one[key] for one in healthy) for key in ("fleets", "failed"))
    for name, words in (
        ("healthy", "\n".join(_healthy(results))), ("faulty", "\n".join(_faulty(results))),
        ("first", "\n".join(_sizes(json.loads(FIRST.read_text("utf-8"))))),
        ("sizes", "\n".join(_sizes(results))), ("adaptive", " ".join(_routed(results))), ("seed", SEED),
        ("fleets", f"{fleets:,}"), ("failed", f"{failed}"), ("bound", f"{bound(failed, fleets):.2%}"),
    ):  # fmt: skip
        text = text.replace(f"{{{name}}}", words)
    return formatted(text)


def _healthy(results: Results) -> Iterator[str]:
    head = ("fleets", "drawn", "node FAILED", "at most, 95 %", "named", "undecided", "lost")
    yield f"| {' | '.join((*head, 'with 4 times the queue pairs', 'rounds', 'pairs alone'))} |"
    yield "|---" * 10 + "|"
    for case in CASES:
        if case.fault is None and (one := results.get(case.name)):
            drawn, failed, open_ = one["fleets"], one["failed"], one["healths"].get("UNKNOWN", 0)
            cells = (
                case.about, f"{drawn}", f"{failed}", f"{bound(failed, drawn):.1%}", f"{one['wrong']}",
                f"{open_}", _share(one["lost"]), _share(one["with_queues"]), _most(one["rounds"]),
                _most(one["alone"]),
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"


def _sizes(results: Results) -> Iterator[str]:
    """Healthy fleets of one size, on all fabrics."""
    yield "| nodes | healthy fleets | node FAILED | at most, 95 % | anything named | undecided |"
    yield "|---" * 6 + "|"
    healthy = [case for case in CASES if case.fault is None and case.name in results]
    for size in sorted({case.fabric.size for case in healthy}):
        some = [results[case.name] for case in healthy if case.fabric.size == size]
        fleets, failed, wrong = (sum(one[key] for one in some) for key in ("fleets", "failed", "wrong"))
        open_ = sum(one["healths"].get("UNKNOWN", 0) for one in some)
        yield f"| {size:,} | {fleets:,} | {failed} | {bound(failed, fleets):.2%} | {wrong} | {open_} |"


def _routed(results: Results) -> Iterator[str]:
    """The share of single faults that are named, with its bound, and what it took."""
    for words, adaptive in (("adaptive", True), ("hashed", False)):
        cases = [case for case in CASES if case.fault is not None and case.name in results
                 and (case.fabric.routes is Routes.ADAPTIVE) is adaptive]  # fmt: skip
        right, fleets = (sum(results[case.name][key] for case in cases) for key in ("right", "fleets"))
        if fleets:
            least = 1 - bound(fleets - right, fleets)
            yield (
                f"On {words} fabrics {right:,} of {fleets:,} single faults are named "
                f"({right / fleets:.1%}; with 95 % confidence at least {least:.1%})."
            )
    yield from (_losses(case, results[case.name]["losses"]) for case in CASES
                if case.name in results and results[case.name]["losses"])  # fmt: skip


def _losses(case: RoutesCase, numbers: list[int]) -> str:
    return f"Lost: {case.about}: {', '.join(f'`{SEED}/{case.name}/{number}`' for number in numbers)}."


def _faulty(results: Results) -> Iterator[str]:
    yield "| fleets | drawn | named right | anything else named | undecided | rounds | pairs alone |"
    yield "|---" * 7 + "|"
    for case in CASES:
        if case.fault is not None and (one := results.get(case.name)):
            yield (
                f"| {case.about} | {one['fleets']} | {one['right']} | {one['wrong']} "
                f"| {one['healths'].get('UNKNOWN', 0)} | {_most(one['rounds'])} | {_most(one['alone'])} |"
            )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _most(two: list[float]) -> str:
    return f"{two[0]:g}, {two[1]:g}"
