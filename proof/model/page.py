"""The page of results: right, wrong, denied and silent by family."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from proof.model.judge import DENIED, RIGHT, SILENT, WRONG
from proof.model.results import Family
from tools.prose import formatted

PAGE = Path(__file__).with_name("results.md")
HEAD = """# An independent model judges the first line

`make model` makes jobs whose truth is known, and plays them through the collectors of the daemon. The model
was written without a look at the code that judges. It simulates ranks, streams and collectives, and writes
rings byte by byte ([ring.h](../../agent/tap/ring.h)). NVML, /proc and RAS answer from the same simulation.

A first line is read every 2 seconds.

| word | meaning |
| -- | -- |
| right | the cause is named within 30 s, or 60 s where it is rare. Of a healthy job the line says so |
| wrong | another rank, GPU or wire is accused, at any moment; or a hang is called where a rank is slow |
| denied | after that time a line says falsely that nobody waits, or that the GPUs do nothing |
| silent | none of these |
| shown | silent jobs whose line or ledger shows the waiting as not attributed |
| taken back | right jobs that were denied later |
| number | right jobs in which the rank had another number than the job's own |
| too late | denied or silent jobs whose cause was named later |
| lines | how often the first line changed in its words, on average |
| mislaid | jobs of whose time the ledger lays more than 3 % on GPUs for which nobody waits |

"""
COLUMNS = (
    "family", "jobs", "right", "after, median", "wrong", "denied", "silent", "shown", "taken back", "number",
    "too late", "lines", "mislaid",
)  # fmt: skip
TABLE = f"| {' | '.join(COLUMNS)} |\n| --{' | --:' * (len(COLUMNS) - 1)} |\n"


def page(families: Sequence[Family], seeds: int, sampling: str, commit: str) -> str:
    """The page, formatted."""
    jobs = sum(one.jobs for one in families)
    wrong, denied, silent = (sum(one.of(what) for one in families) for what in (WRONG, DENIED, SILENT))
    shown = sum(one.shown for one in families)
    errors = [error for one in families for error in one.errors]
    words = [
        f"Tree of agent: {commit}. {seeds} jobs a family; the tap times {sampling}.",
        f"Of {jobs} jobs {wrong / jobs:.1%} were accused wrongly, and {denied / jobs:.1%} were denied.",
        f"Of {silent} silent ones {shown} showed that the waiting is not attributed.",
    ]
    if errors:
        words.append(
            f"The shares of the ledger are {statistics.fmean(errors):.1%} from the truth on average: of "
            "computing, of idle time, of all that is lost."
        )
    rows = "".join(map(_row, families))
    false = "".join(f"- {one.name}, seed {line}\n" for one in families for line in one.examples)
    end = f"\n## False lines, the first of each family\n\n{false}" if false else ""
    return formatted(f"{HEAD}{' '.join(words)}\n\n{TABLE}{rows}{end}")


def _row(one: Family) -> str:
    after = f"{statistics.median(one.seconds):.0f} s" if one.seconds else ""
    counts = [one.jobs, one.of(RIGHT), after, *map(one.of, (WRONG, DENIED, SILENT)), one.shown, one.back,
              one.numbers, one.late, f"{one.changes:.1f}", one.laid]  # fmt: skip
    return f"| {one.name} | {' | '.join(map(str, counts))} |\n"
