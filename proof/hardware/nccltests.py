"""nccl-tests, the oracle: running its binaries and reading their tables."""

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from proof.hardware.kit import KitError, tail
from wirewatch.core.probe import OPS

WITHIN = 120.0
WARMUP, ITERATIONS = 5, 20
SMALLEST_PIECE = 16
"""Bytes a rank: what its all_gather and reduce_scatter round down to a multiple of."""
_SIDES = ("out-of-place", "in-place")
_LIBRARY = re.compile(r"nccl-library=(\d+)")


@dataclass(frozen=True)
class Side:
    """Half a row: seconds an operation, bus bandwidth in bytes per second; `wrong` None where not checked."""

    seconds: float
    busbw: float
    wrong: int | None


@dataclass(frozen=True)
class Row:
    size_bytes: int
    out_of_place: Side
    in_place: Side


@dataclass(frozen=True)
class Table:
    """One run: `nccl` is the version of the library that it used, empty where it does not say.

    `seconds` from the start of the process to its end.
    """

    command: tuple[str, ...]
    rows: tuple[Row, ...]
    nccl: str
    seconds: float

    def row(self, size_bytes: int) -> Row:
        """Raises KitError when that size was not run."""
        for row in self.rows:
            if row.size_bytes == size_bytes:
                return row
        told = ", ".join(str(row.size_bytes) for row in self.rows)
        raise KitError(f"{' '.join(self.command)}: no row of {size_bytes} bytes, but {told}")


class NcclTests:
    """The binaries in a folder, for so many GPUs of this machine in one process; `ran`: all tables so far."""

    def __init__(self, folder: Path | None, gpus: int, ops: Sequence[str] = OPS) -> None:
        """Raises KitError when one of these primitives is not there."""
        names = [f"{op}_perf" for op in ops]
        if folder is None:
            raise KitError(f"give --nccl-tests DIR, the folder that holds {', '.join(names)}")
        missing = [name for name in names if not os.access(folder / name, os.X_OK)]
        if missing:
            raise KitError(f"--nccl-tests {folder}: no program {', '.join(missing)} there")
        self._folder = folder.absolute()
        self._gpus = gpus
        self._environment = environment(os.environ)
        self.ran: list[dict[str, Any]] = []

    def run(self, op: str, *arguments: str) -> Table:
        """Run one collective.

        Raises:
            KitError: it failed, took too long, or printed something that is not its table.
        """
        command = (str(self._folder / f"{op}_perf"), *arguments, "-g", str(self._gpus))
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=WITHIN, check=False, env=self._environment
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KitError(f"{' '.join(command)}: {error}") from error
        seconds = time.monotonic() - began
        if done.returncode:
            said = tail(done.stdout + done.stderr)
            raise KitError(f"{' '.join(command)}: status {done.returncode}: {said}")
        table = Table(command, parse(done.stdout), library(done.stdout), seconds)
        self.ran.append(asdict(table))
        return table

    def sizes(self, op: str, *sizes: int, more: Sequence[str] = ()) -> Table:
        """Two sizes at most, as often as the probe's plans of the kit run them; `more` are options."""
        factor = ["-f", str(max(sizes) // min(sizes))] if len(sizes) > 1 else []
        around = ["-w", str(WARMUP), "-n", str(ITERATIONS)]
        return self.run(op, "-b", str(min(sizes)), "-e", str(max(sizes)), *factor, *around, *more)

    def small(self, op: str, *, graphs: int = 0) -> Row:
        """The smallest message; with `graphs` as a CUDA graph that is launched so often."""
        size = smallest(op, self._gpus)
        graph = ["-G", str(graphs)] if graphs else []
        return self.run(op, "-b", str(size), "-e", str(size), *graph).row(size)


def smallest(op: str, ranks: int) -> int:
    """The smallest message in bytes of which its table is right: below it pieces are empty."""
    return 8 if op == "all_reduce" else SMALLEST_PIECE * ranks


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """What it is run with: the NCCL that torch and our worker load here comes first, and its log is off."""
    told = {name: value for name, value in inherited.items() if not name.startswith("NCCL_DEBUG")}
    places = [*_nccl_folders(), *filter(None, [told.get("LD_LIBRARY_PATH")])]
    return {**told, "LD_LIBRARY_PATH": ":".join(places)} if places else told


def _nccl_folders() -> list[str]:
    try:
        found = find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return []
    places = [Path(place, "lib") for place in (found.submodule_search_locations or ())] if found else []
    return [str(place) for place in places if (place / "libnccl.so.2").exists()]


def library(text: str) -> str:
    """The version of NCCL that it says it runs with, such as 2.28.9; empty where it does not say."""
    found = _LIBRARY.search(text)
    number = int(found[1]) if found else 0
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else ""


def parse(text: str) -> tuple[Row, ...]:
    """The rows of its table, read by the names of the columns.

    Raises:
        KitError: no table, a row that does not fit its header, or other units than microseconds and GB/s.
    """
    sides: list[str] = []
    columns: list[str] = []
    rows = []
    for line in text.splitlines():
        if line.startswith("#"):
            words = line[1:].split()
            sides = [word for word in words if word in _SIDES] or sides
            columns = words if words[:1] == ["size"] else columns
        elif columns and line.split()[:1] and line.split()[0].isdigit():
            rows.append(_row(columns, sides, line.split()))
    if not rows or "(us)" not in text or "(GB/s)" not in text:
        raise KitError(f"not a table of nccl-tests in microseconds and GB/s: {tail(text)}")
    return tuple(rows)


def _row(columns: Sequence[str], sides: Sequence[str], words: Sequence[str]) -> Row:
    begins = [place for place, name in enumerate(columns) if name == "time"]
    if len(words) != len(columns) or sorted(sides) != sorted(_SIDES) or len(begins) != len(sides):
        raise KitError(f"a row of nccl-tests that does not fit its header: {' '.join(words)}")
    ends = [*begins[1:], len(columns)]
    found = {}
    for side, begin, end in zip(sides, begins, ends, strict=True):
        found[side] = _side(dict(zip(columns[begin:end], words[begin:end], strict=True)))
    return Row(int(words[0]), found["out-of-place"], found["in-place"])


def _side(told: dict[str, str]) -> Side:
    wrong = told.get("#wrong", "N/A")
    try:
        return Side(
            float(told["time"]) * 1e-6, float(told["busbw"]) * 1e9,
            None if wrong == "N/A" else int(float(wrong)),
        )  # fmt: skip
    except (KeyError, ValueError) as error:
        raise KitError(f"a row of nccl-tests that is not understood: {told}") from error
