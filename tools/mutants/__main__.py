"""`make mutants`: draw mutants of each room by a seed, and see which of them the tests notice."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

from tools.mutants import covering, rooms
from tools.mutants.choice import Choice
from tools.mutants.score import Draw, load, page, save
from tools.mutants.site import Site
from tools.mutants.trial import Copy, End, Tried

ROOT = Path(__file__).parents[2]
RAN = (0, 1)
"""Ends of pytest after which there is a record, which lacks the tests that failed."""
BUILD, DATA = ROOT / "build" / "mutants", ROOT / "proof" / "mutants"


def main() -> int:
    """Exit code 0 when all mutants are dead or explained, 1 when one survives, 2 when none was tried."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("rooms", nargs="*", help="rooms, such as verdict or fleet/pairs; all without one")
    parser.add_argument("--seed", type=int, default=int(datetime.now(UTC).strftime("%Y%m%d")))
    parser.add_argument(
        "--record", action="store_true", help="run the suite first and record which tests run a line"
    )
    parser.add_argument("--again", action="store_true", help="try only what survived of this seed")
    parser.add_argument(
        "--page", action="store_true", help="write proof/mutants.md from the committed draws, and try nothing"
    )
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.page:
        (DATA.parent / "mutants.md").write_text(page(load(DATA)), "utf-8")
        return 0
    if options.record:
        record()
    before = {draw.seed: draw for draw in load(DATA)}.get(options.seed)
    drawn = rooms.drawn(ROOT, options.seed, options.rooms)
    if options.again:
        if before is None:
            parser.error(f"nothing is committed of seed {options.seed}")
        drawn = before.surviving(ROOT)
    notes = BUILD / f"{options.seed}{'-again' if options.again else ''}.jsonl"
    if options.again:
        notes.unlink(missing_ok=True)
    tried = _try_all(
        [(room, site) for room, sites in drawn.items() for site in sites], options.processes, notes
    )
    draw = (
        before.tried_again(tried)
        if options.again and before
        else Draw.of(options.seed, _commit(), tried, before)
    )
    save(DATA, draw)
    living = [one for one in tried if not one.dead]
    print(f"{len(tried)} mutants, {len(tried) - len(living)} dead, {len(living)} not")
    return 2 if not tried else 1 if living else 0


def record() -> None:
    """Run the suite with coverage of each test; some minutes."""
    BUILD.mkdir(parents=True, exist_ok=True)
    settings, seconds = BUILD / "coveragerc", BUILD / "seconds.jsonl"
    seconds.unlink(missing_ok=True)
    settings.write_text(covering.SETTINGS % (BUILD / "data"), "utf-8")
    environment = {"COVERAGE_PROCESS_START": str(settings), covering.SECONDS: str(seconds), "RELEASE": "1"}
    measured = ("--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report=")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n2", "-p", covering.__name__, "-m", "not system", *measured,
         "tests/node", "tests/lab", "tests/fleet"],
        cwd=ROOT, env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    if done.returncode not in RAN:
        raise SystemExit(f"the suite did not run: pytest ended with {done.returncode}")


def _try_all(mutants: Sequence[tuple[str, Site]], processes: int, notes: Path) -> list[Tried]:
    """Try mutants in some copies of the tree, and note each at once; what is noted is not tried again."""
    known = (BUILD / "data").exists()
    choice = Choice(
        ROOT, covering.Record(BUILD / "data", BUILD / "seconds.jsonl") if known else None, _fresh()
    )
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(processes):
        copies.put(Copy(ROOT, BUILD / f"copy{number}", choice))
    before = _noted(notes)

    def one(mutant: tuple[str, Site]) -> Tried:
        room, site = mutant
        copy = copies.get()
        try:
            return before.get((room, site.path, site.key)) or _shown(copy.try_one(room, site), notes)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(processes) as pool:
        tried = list(pool.map(one, mutants))
    for _ in range(processes):
        copies.get().close()
    return tried


def _noted(path: Path) -> dict[tuple[str, str, str], Tried]:
    """Return what a run that was stopped had tried of a seed; it goes on from there."""
    found = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        note = json.loads(line)
        one = Tried(
            note["room"], Site(**note["site"]), End[note["end"]], note["by"], note["seconds"], note["tests"]
        )
        found[one.room, one.site.path, one.site.key] = one
    return found


def _shown(one: Tried, notes: Path) -> Tried:
    """Note it and print a line of it."""
    with notes.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**asdict(one), "end": one.end.name}) + "\n")
    site = one.site
    head = f"{one.end.name:9} {one.seconds:5.1f} s {one.tests:4}"
    print(f"{head} {site.path}:{site.line} {site.key[:120]} {one.by}", flush=True)
    return one


def _fresh() -> set[str]:
    """Return the test files that changed since the record."""
    seconds = BUILD / "seconds.jsonl"
    since = seconds.stat().st_mtime if seconds.exists() else 0
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.stat().st_mtime > since
    }


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
