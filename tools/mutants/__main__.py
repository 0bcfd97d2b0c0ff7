"""`make mutants`: every mutant of the list, or those named, against the tests that must notice it."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.mutants.catalogue import Mutant, Placed, Stale, load, place
from tools.mutants.page import page
from tools.mutants.trial import Copy, End, Tried, note, noted

ROOT = Path(__file__).parents[2]
COPY, NOTES = ROOT / "build" / "mutants", ROOT / "build" / "mutants.jsonl"
PAGE = ROOT / "proof" / "mutants.md"


def main() -> int:
    """Exit code 0 when all are killed, 1 when one survives, 2 when the list does not fit the tree."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="ids, beginnings of ids, or families; all without one")
    parser.add_argument("--write", action="store_true", help="write proof/mutants.md, of all runs")
    parser.add_argument("--list", action="store_true", help="only say whether the list fits the tree")
    parser.add_argument("--hasty", action="store_true", help="do not run the tests without a mutant first")
    options = parser.parse_args()
    began = time.monotonic()
    wanted = [one for one in load() if not options.names or _is_named(one, options.names)]
    placed, stale = _place_all(wanted)
    if stale or options.list or not placed:
        print(f"{len(placed)} mutants fit the tree, {stale} do not")
        return 2 if stale or not placed else 0
    copy = Copy(ROOT, COPY)
    sick = "" if options.hasty else copy.healthy(path for one in placed for path in one.tests)
    if sick:
        print(f"the tests fail without any mutant:\n{sick}", file=sys.stderr)
        return 2
    tried = [_show(copy.try_one(one)) for one in placed]
    seconds = time.monotonic() - began
    if options.write:
        PAGE.write_text(page(noted(NOTES, load())), "utf-8")
    living = [one for one in tried if not one.dead]
    print(f"{len(tried)} mutants, {len(tried) - len(living)} killed, {len(living)} not, in {seconds:.0f} s")
    for one in living:
        print(f"  {one.mutant.id}: {one.end.value}: {one.mutant.harm} {one.why}".rstrip())
    return 1 if any(one.end is End.SURVIVED for one in tried) else 2 if living else 0


def _is_named(mutant: Mutant, names: Sequence[str]) -> bool:
    return mutant.family in names or any(mutant.id.startswith(name) for name in names)


def _place_all(mutants: Sequence[Mutant]) -> tuple[list[Placed], int]:
    """Those that fit the tree, and how many do not, each of them said in a line."""
    placed, stale = [], 0
    for one in mutants:
        try:
            placed.append(place(ROOT, one))
        except Stale as error:
            stale += 1
            print(error, file=sys.stderr)
    return placed, stale


def _show(one: Tried) -> Tried:
    """Print and note it."""
    note(NOTES, one)
    print(f"{one.end.value:9} {one.seconds:5.1f} s  {one.mutant.id:40} {one.why}", flush=True)
    return one


if __name__ == "__main__":
    sys.exit(main())
