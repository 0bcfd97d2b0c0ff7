"""proof/fleet/simulation/pairs.md: `make pairs-simulation`. What was drawn is kept, so that a run goes on.

Another machine can draw: `python -m proof.fleet.simulation --draw --data DIR` needs no more than the agent.
"""

import argparse
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from proof.fleet.simulation.cases import CASES, PairsCase, trial
from proof.fleet.simulation.kept import known, left, write_trial

BUILD = Path("build")
"""Where data are kept that no option says otherwise of."""


def draw(cases: Sequence[PairsCase], folder: Path, processes: int, share: float = 1.0) -> None:
    """Every trial that is not kept yet; each follows from its case and number alone."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = list(left(cases, known(folder), share))
    # Not forked: a pool has threads, and a fork of a process with threads is not safe.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(trial, case, number) for case, number in missing]
        try:
            for count, job in enumerate(as_completed(jobs), start=1):
                write_trial(folder, job.result())
                if count % 100 == 0:
                    print(f"{count:,} of {len(jobs):,}", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def asked_cases(
    names: Sequence[str], sizes: Sequence[int], trials: Sequence[tuple[str, int]]
) -> list[PairsCase]:
    """The cases of these names and of fleets of these sizes; none given: all of them."""
    counts = dict(trials)
    return [
        case.of(counts.get(case.name, case.trials))
        for case in CASES
        if (not names or case.name in names) and (not sizes or case.size in sizes)
    ]


def _trials(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if name not in {case.name for case in CASES} or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not like healthy-256=10000")
    return name, int(count)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.fleet.simulation", description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at once; one a core")
    parser.add_argument("--data", type=Path, default=BUILD, help="folder of what was drawn; build/")
    parser.add_argument("--share", type=float, default=1.0, help="of the trials that are aimed at")
    parser.add_argument("--size", type=int, action="append", default=[], help="only fleets of so many nodes")
    parser.add_argument(
        "--trials", type=_trials, action="append", default=[], metavar="CASE=N",
        help="so many fleets of a case instead of what is aimed at",
    )  # fmt: skip
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--page", action="store_true", help="write the page of what was drawn, draw nothing")
    only.add_argument("--draw", action="store_true", help="draw, write no page")
    parser.add_argument("names", nargs="*", help=f"cases: {', '.join(case.name for case in CASES)}")
    return parser


def main() -> None:
    given = arguments().parse_args()
    if not given.page:
        draw(asked_cases(given.names, given.size, given.trials), given.data, given.processes, given.share)
    if not given.draw:
        # Formatting a page takes what only a developer has.
        from proof.fleet.simulation.page import PAGE, page  # noqa: PLC0415

        PAGE.write_text(page(known(given.data)), "utf-8")


if __name__ == "__main__":
    main()
