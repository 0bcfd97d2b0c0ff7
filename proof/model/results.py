"""Plays many jobs of each family, in several processes, and sums up how they were judged."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path

from proof.model.families import FAMILIES, make
from proof.model.judge import DENIED, RIGHT, SILENT, WRONG, Bench, Verdict
from proof.model.play import play
from proof.model.rings import DEFAULT

FILE = Path(__file__).with_name("results.json")
MISLAID = 0.03
EXAMPLES = 1
"""False lines of a family that are kept, by the seed."""


@dataclass(frozen=True)
class Family:
    """The jobs of one family. `seconds`: until the right name, of those that were named in time.

    `shown`: silent ones in which the waiting was shown as not attributed. `back`: right, and denied later.
    `numbers`: right with another number of the rank than the job's. `late`: named rightly, too late.
    `changes`: of the first line, on average. `errors`: of the ledger, by job, as shares; empty without one.
    `laid`: jobs of whose time the ledger lays more than MISLAID on GPUs for which nobody waits.
    `seeds`: the first letter of the outcome of each seed. `examples`: seeds with false lines.
    """

    name: str
    jobs: int
    outcomes: Mapping[str, int]
    seeds: str
    seconds: Sequence[float]
    shown: int
    back: int
    numbers: int
    late: int
    changes: float
    errors: Sequence[float] = ()
    laid: int = 0
    examples: Sequence[str] = field(default_factory=tuple)

    def of(self, outcome: str) -> int:
        return self.outcomes.get(outcome, 0)


def judged(family: str, seed: int, sampling: str = DEFAULT) -> Verdict:
    """Play one job; the same every time."""
    case = make(family, seed)
    case.sampling = sampling
    return Bench(play(case, f"{family} {seed}")).verdict()


def _judged(task: tuple[str, int, str]) -> tuple[str, int, Verdict, float]:
    began = time.process_time()
    found = judged(*task)
    return task[0], task[1], found, time.process_time() - began


def run(seeds: int, names: Iterable[str], sampling: str = DEFAULT) -> tuple[list[Family], float]:
    """Return the families, and the CPU seconds that they took."""
    chosen = list(names)
    tasks = [(name, seed, sampling) for name in chosen for seed in range(seeds)]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        done = list(pool.map(_judged, tasks, chunksize=5))
    by = {name: [(seed, found) for of, seed, found, _ in done if of == name] for name in chosen}
    return [summed(name, found) for name, found in by.items()], sum(one[3] for one in done)


def summed(name: str, found: Sequence[tuple[int, Verdict]]) -> Family:
    """Sum up a family."""
    verdicts = [one for _, one in found]
    false = [(seed, one) for what in (WRONG, DENIED) for seed, one in found if one.outcome == what]
    outcomes = Counter(one.outcome for one in verdicts)
    return Family(
        name, len(found), dict(sorted(outcomes.items())),
        "".join(one.outcome[0] for one in verdicts),
        [round(v.after, 1) for v in verdicts if v.outcome == RIGHT and v.after is not None],
        sum(one.attributed for one in verdicts if one.outcome == SILENT), sum(one.back for one in verdicts),
        sum(one.number for one in verdicts),
        sum(one.outcome in {DENIED, SILENT} and one.after is not None for one in verdicts),
        round(statistics.fmean(one.changes for one in verdicts), 2),
        [round(one.error, 3) for one in verdicts if one.error is not None],
        sum(one.misattributed > MISLAID for one in verdicts),
        [f"{seed}: {one.outcome} at {one.second:.0f} s: {one.line}" for seed, one in false[:EXAMPLES]],
    )  # fmt: skip


def kept(families: Sequence[Family], seeds: int, sampling: str, commit: str) -> str:
    """The text of results.json."""
    told = {
        "commit": commit,
        "seeds": seeds,
        "sampling": sampling,
        "families": [asdict(one) for one in families],
    }
    return json.dumps(told, indent=1) + "\n"


def loaded(text: str) -> tuple[list[Family], int, str, str]:
    """The families of results.json, how many seeds, by which sampling and of which commit."""
    told = json.loads(text)
    families = [Family(**one) for one in told["families"]]
    return families, told["seeds"], told["sampling"], told["commit"]


def commit() -> str:
    """The commit of the agent that is judged."""
    done = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD:agent"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def known(names: Sequence[str]) -> list[str]:
    """The families that any of the names is a part of; all without a name."""
    found = [one for one in FAMILIES if not names or any(name in one for name in names)]
    if not found:
        sys.exit(f"no family has {' or '.join(names)} in its name: {', '.join(FAMILIES)}")
    return found
