"""Trials that were drawn, a line each in one file of a folder, so that a run goes on where it was ended."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proof.fleet.simulation.cases import CASES, PairsCase

FILE = "pairs-simulation.jsonl"
PARTS = 20
"""Each case is drawn in so many parts, a part of every case in turn: whenever it ends, each has some."""
Trial = dict[str, Any]


def known(folder: Path) -> dict[str, list[Trial]]:
    """Trials by case, in the order of their numbers, whatever the order in which they were drawn."""
    made: dict[str, dict[int, Trial]] = {case.name: {} for case in CASES}
    file = folder / FILE
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        one = _trial(line)
        if one is not None and one["case"] in made:
            made[one["case"]][one["number"]] = one
    return {name: [some[number] for number in sorted(some)] for name, some in made.items()}


def _trial(line: str) -> Trial | None:
    """None for a line that an end in the middle of it left."""
    try:
        made: Trial = json.loads(line)
    except ValueError:
        return None
    return made


def left(
    cases: Sequence[PairsCase], done: Mapping[str, Sequence[Trial]], share: float
) -> Iterator[tuple[PairsCase, int]]:
    """What is still to be drawn, a part of each case in turn."""
    numbers = {
        case: sorted(
            set(range(max(1, round(share * case.trials)))) - {one["number"] for one in done[case.name]}
        )
        for case in cases
    }
    for part in range(PARTS):
        for case, some in numbers.items():
            yield from ((case, number) for number in some[part::PARTS])


def write_trial(folder: Path, made: Trial) -> None:
    """Add one; each is on the disk before the next, so that a killed run loses none that ended."""
    with (folder / FILE).open("a+b") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(f"{json.dumps(made)}\n".encode())
