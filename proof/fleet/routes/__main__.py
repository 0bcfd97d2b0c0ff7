"""proof/fleet/routes/routes.md: `make routes-simulation`. Trials go on where a run was ended.

python -m proof.fleet.routes --seconds 600 [CASE ...]
"""

import argparse
import json
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from proof.fleet.routes.cases import CASES, Trial, summary, trial

RESULTS = Path(__file__).with_name("results.json")
DRAWN = Path("build/routes-simulation.jsonl")


def known() -> dict[str, dict[int, Trial]]:
    """Trials by case and number."""
    made: dict[str, dict[int, Trial]] = {case.name: {} for case in CASES}
    for line in DRAWN.read_text("utf-8").splitlines() if DRAWN.exists() else ():
        one: Trial = json.loads(line)
        if one["case"] in made:
            made[one["case"]][one["number"]] = one
    return made


def draw(names: list[str], seconds: float, processes: int) -> None:
    """Draw trials that are not there yet, some of each case in turn, until the time is up."""
    done, end = known(), time.monotonic() + seconds
    cases = [case for case in CASES if not names or case.name in names]
    # By their share of what is aimed at, so that every case has some whenever it ends.
    left = sorted(((n + 1) / case.trials, case.name, n, case) for case in cases for n in range(case.trials)
                  if n not in done[case.name])  # fmt: skip
    DRAWN.parent.mkdir(exist_ok=True)
    with (
        ProcessPoolExecutor(processes, get_context("spawn")) as pool,
        DRAWN.open("a", encoding="utf-8") as file,
    ):
        running: set[Future[Trial]] = set()
        while (left and time.monotonic() < end) or running:
            while left and len(running) < processes and time.monotonic() < end:
                _, _, number, case = left.pop(0)
                running.add(pool.submit(trial, case, number))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for one in ended:
                file.write(f"{json.dumps(one.result())}\n")
                file.flush()


def kept(drawn: dict[str, Trial]) -> dict[str, Trial]:
    """Return the summaries of each case: those drawn here, and the committed ones of no fewer fleets."""
    before: dict[str, Trial] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    names = (case.name for case in CASES if case.name in drawn or case.name in before)
    return {name: max((some[name] for some in (drawn, before) if name in some), key=fleets) for name in names}


def fleets(one: Trial) -> int:
    """The number of fleets of a summary."""
    return int(one["fleets"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.fleet.routes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="to draw; 0: only write the page")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("names", nargs="*", help="cases; all of them")
    given = parser.parse_args()
    if given.seconds:
        draw(given.names, given.seconds, given.processes)
    results = kept({name: summary(list(some.values())) for name, some in known().items() if some})
    RESULTS.write_text(f"{json.dumps(results, indent=1)}\n", "utf-8")
    # Formatting a page takes what only a developer has.
    from proof.fleet.routes.page import PAGE, page  # noqa: PLC0415

    PAGE.write_text(page(results), "utf-8")


if __name__ == "__main__":
    main()
