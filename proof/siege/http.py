"""The HTTP server of this checkout beside that of another, in turns: proof/siege/http.md.

    python -m proof.siege.http --before FOLDER [--rounds N] [--write] [NAME ...]

Each round attacks both, so that what else the machine does meets both alike. Results are added to
build/siege/http.json; `--write` makes the page of all that is there.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from proof.siege.attack import Attack, carry_out, every
from proof.siege.attacks.http import BOOK, CROWD, FROM, HOLD, KEPT, REST, SCRAPES
from proof.siege.daemon import ROOT
from proof.siege.page import table
from proof.siege.results import OUT, Figure, Outcome
from tools.prose import formatted

FILE = OUT.with_name("http.json")
PAGE = Path(__file__).with_name("http.md")
TEXT = Path(__file__).with_name("http.in.md")
SLOW = ("idle", "heads", "bodies", "readers", "tls")
HEAD = (
    "clients", "", "/metrics p50", "p99", "failed", "/livez p99", "failed", "local p99", "failed", "lanes",
    "memory", "processor",
)  # fmt: skip
SIDES = ("before", "now")
ERRORS = "errors of "
Results = dict[str, dict[str, list[Outcome]]]
"""Outcomes of all rounds by side and attack."""


def main() -> int:
    attacks = every((BOOK,))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*attacks, []], default=[], metavar="NAME")
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="proof/siege/http.md, of all results")
    wanted = parser.parse_args()
    results, trees = load(), dict(zip(SIDES, (wanted.before.resolve(), ROOT), strict=True))
    for _ in range(wanted.rounds):
        for name in wanted.names or attacks:
            for side, tree in trees.items():
                outcome = carry_out(attacks[name], tree, short=False)
                results[side].setdefault(name, []).append(outcome)
                print(
                    f"{side:7} {name}: {'; '.join([*outcome.troubles, *map(str, outcome.figures)])}",
                    flush=True,
                )
                save(results)
    if wanted.write:
        PAGE.write_text(page(attacks, results, commit(trees["before"])), "utf-8")
    return 0


def load() -> Results:
    if not FILE.exists():
        return {side: {} for side in SIDES}
    return {
        side: {
            name: [
                Outcome(**{**one, "figures": [Figure(**each) for each in one["figures"]]}) for one in rounds
            ]
            for name, rounds in named.items()
        }
        for side, named in json.loads(FILE.read_text("utf-8")).items()
    }


def save(results: Results) -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    entries = {
        side: {name: [asdict(one) for one in rounds] for name, rounds in named.items()}
        for side, named in results.items()
    }
    FILE.write_text(json.dumps(entries, indent=1) + "\n", "utf-8")


def commit(tree: Path) -> str:
    done = subprocess.run(
        ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def page(attacks: dict[str, Attack], results: Results, before: str) -> str:
    """The page; each figure is the median of the rounds, with the lowest and the highest."""
    outcomes = [one for named in results.values() for rounds in named.values() for one in rounds]
    slow = [row for name in SLOW for row in _slow(attacks[name], results)]
    tables = {name: _figures(name, results) for name in ("kept", "scrape", "rest", "vectors")}
    text = TEXT.read_text("utf-8").format(
        before=before, cores=os.cpu_count(), python=platform.python_version(),
        kernel=platform.release().split("-")[0], day=max(one.at for one in outcomes),
        rounds=len(results["now"]["scrape"]), crowd=CROWD, sources=FROM, hold=HOLD, kept_count=KEPT,
        scrapes=SCRAPES, rest_seconds=REST, slow=table(HEAD, slow), troubles=_troubles(results), **tables,
    )  # fmt: skip
    return formatted(text)


def _slow(attack: Attack, results: Results) -> Iterator[Sequence[str]]:
    for side in SIDES:
        rounds = results[side].get(attack.name, [])
        cells = [
            _of(rounds, "/metrics p50"), _of(rounds, "/metrics p99"), _failed(rounds, f"/metrics {ERRORS}"),
            _of(rounds, "/livez p99"), _failed(rounds, f"/livez {ERRORS}"), _of(rounds, "local p99"),
            _failed(rounds, f"local {ERRORS}"), _of(rounds, "lanes' worst gap"), _of(rounds, "memory grew"),
            _of(rounds, "processor"),
        ]  # fmt: skip
        yield (attack.about if side == SIDES[0] else "", side, *cells)


def _figures(name: str, results: Results) -> str:
    """A row for each figure of an attack."""
    sides = [results[side].get(name, []) for side in SIDES]
    names = dict.fromkeys(one.name for rounds in sides for out in rounds for one in out.figures)
    kept = [one for one in names if not one.startswith(ERRORS)]
    rows = [(one, *(_of(rounds, one) for rounds in sides)) for one in kept]
    if len(kept) < len(names):
        rows.append(("failed", *(_failed(rounds, ERRORS) for rounds in sides)))
    return table(("", *SIDES), rows)


def _of(rounds: Sequence[Outcome], name: str) -> str:
    found = [one for outcome in rounds for one in outcome.figures if one.name == name]
    if not found:
        return ""
    values = [one.value for one in found]
    low, mid, high = (str(Figure("", value)).strip() for value in (min(values), median(values), max(values)))
    return f"{mid}{f' ({low} to {high})' if low != high else ''} {found[0].unit}".strip()


def _failed(rounds: Sequence[Outcome], beginning: str) -> str:
    """Of all rounds together."""
    found = [one for out in rounds for one in out.figures if one.name.startswith(beginning)]
    asked = sum(int(one.name.rpartition(" ")[2]) for one in found)
    return f"{sum(one.value for one in found):.0f} of {asked:,}"


def _troubles(results: Results) -> str:
    """The rules that an attack did not keep; they are those of proof/siege/siege.md."""
    found = (
        (side, name, trouble)
        for side in SIDES
        for name, rounds in results[side].items()
        for outcome in rounds
        for trouble in outcome.troubles
    )
    return "\n".join(f"- {side}, {name}: {trouble}" for side, name, trouble in found) or "None."


if __name__ == "__main__":
    sys.exit(main())
