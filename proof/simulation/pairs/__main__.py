"""docs/pairs-simulation.md: `make pairs-simulation`. What was drawn is kept in build/, so a run goes on."""

import argparse
import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from proof.simulation.pairs.cases import CASES, PairsCase, trial
from proof.simulation.pairs.page import PAGE, page

KEPT = Path("build") / "pairs-simulation.jsonl"


def known() -> dict[str, dict[int, dict[str, Any]]]:
    """Trials by case and number."""
    made: dict[str, dict[int, dict[str, Any]]] = {case.name: {} for case in CASES}
    if KEPT.exists():
        for line in KEPT.read_text("utf-8").splitlines():
            one = json.loads(line)
            if one["case"] in made:
                made[one["case"]][one["number"]] = one
    return made


def missing(share: float, names: list[str]) -> Iterator[tuple[PairsCase, int]]:
    """What is still to be drawn, a little of each case in turn."""
    done = known()
    wanted = {
        case: [n for n in range(max(1, round(share * case.trials))) if n not in done[case.name]]
        for case in CASES
        if not names or case.name in names
    }
    while any(wanted.values()):
        for case, numbers in wanted.items():
            for number in numbers[: max(1, case.trials // 20)]:
                yield case, number
            del numbers[: max(1, case.trials // 20)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the trials that are aimed at")
    parser.add_argument(
        "--page", action="store_true", help="write the page from what was drawn, draw nothing"
    )
    parser.add_argument("names", nargs="*", help="cases; all by default")
    given = parser.parse_args()
    if not given.page:
        KEPT.parent.mkdir(exist_ok=True)
        with ProcessPoolExecutor(os.cpu_count()) as pool, KEPT.open("a", encoding="utf-8") as file:
            jobs = [pool.submit(trial, case, number) for case, number in missing(given.share, given.names)]
            for job in as_completed(jobs):
                file.write(json.dumps(job.result()) + "\n")
                file.flush()
    PAGE.write_text(page({name: list(some.values()) for name, some in known().items()}), "utf-8")


if __name__ == "__main__":
    main()
