"""`make siege`: every attack, or those named; `short` for those of CI.

    python -m proof.siege [--tree FOLDER] [--before FOLDER] [--write] [NAME ...]

Results are added to build/siege/results.json one by one, so that a run that ends early is continued with the
names that are missing. `--before FOLDER` attacks another checkout and keeps its results in
proof/siege/before.json.
An attack of `short` that does not hold beside another is repeated alone, and the second outcome counts.
`--write` makes proof/siege/siege.md of all results, and keeps them in proof/siege/after.json. Exit status 1
where an attack does not hold.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from proof.siege import results
from proof.siege.attack import Attack, carry_out, every
from proof.siege.attacks import connections, floods, limits, load, places, processes, requests, rings
from proof.siege.daemon import ROOT
from proof.siege.page import PAGE, page
from proof.siege.results import AFTER, BEFORE, OUT, SHORT, SOAK, Outcome

BOOKS = (
    requests.BOOK, connections.BOOK, floods.BOOK, processes.BOOK, places.BOOK, limits.BOOK, load.BOOK,
    rings.BOOK,
)  # fmt: skip
AT_ONCE = 2
"""Short attacks at the same time: they wait more than they compute."""


def main() -> int:
    attacks = every(BOOKS)
    wanted = _wanted(attacks)
    short = wanted.names == ["short"]
    file = BEFORE if wanted.before else SHORT if short else OUT
    chosen = [one for one in attacks.values() if one.short] if short else _chosen(attacks, wanted.names)
    outcomes = _carried_out(chosen, wanted, file, at_once=AT_ONCE if short else 1)
    again = [one for one in chosen if not outcomes[one.name].holds] if short else []
    if again:
        print("Attacks at the same time are in each other's way. Again, alone:", flush=True)
        outcomes = _carried_out(again, wanted, file, at_once=1)
    mine = [outcomes[one.name] for one in chosen]
    failed = sum(not one.holds for one in mine)
    print(f"{len(mine)} attacks, {failed} do not hold, {sum(one.seconds for one in mine):.0f} s; {file}")
    if wanted.write:
        made = page(attacks, outcomes, results.load(BEFORE), SOAK)
        PAGE.write_text(made, "utf-8")
        results.save(AFTER, outcomes)
    return 1 if failed and not wanted.before else 0


def _carried_out(
    chosen: list[Attack], wanted: argparse.Namespace, file: Path, *, at_once: int
) -> dict[str, Outcome]:
    """All outcomes of the file, with those of these attacks, which it keeps one by one."""
    tree = (wanted.before or wanted.tree).resolve()
    attack = partial(one_of_all, tree=tree, short=wanted.names == ["short"])
    with ProcessPoolExecutor(at_once) as pool:
        for outcome in pool.map(attack, [one.name for one in chosen]):
            _print(outcome)
            # Read again: another run may have added to it meanwhile.
            results.save(file, {**results.load(file), outcome.name: outcome})
    return results.load(file)


def one_of_all(name: str, tree: Path, *, short: bool) -> Outcome:
    """In a process of its own, since limits are those of a process."""
    return carry_out(every(BOOKS)[name], tree, short=short)


def _chosen(attacks: dict[str, Attack], names: list[str]) -> list[Attack]:
    return [attacks[name] for name in names or attacks]


def _wanted(attacks: dict[str, Attack]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*attacks, "short", []], default=[], metavar="NAME")
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="the checkout that is attacked; default: this one"
    )
    parser.add_argument("--before", type=Path, help="a checkout as it was before")
    parser.add_argument("--write", action="store_true", help="proof/siege/siege.md, of all results")
    return parser.parse_args()


def _print(outcome: Outcome) -> None:
    print(f"{'ok' if outcome.holds else 'FAILED':6} {outcome.name} ({outcome.seconds:g} s)", flush=True)
    print(f"       {'; '.join(map(str, outcome.figures))}", flush=True)
    for trouble in outcome.troubles:
        print(f"       ! {trouble}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
