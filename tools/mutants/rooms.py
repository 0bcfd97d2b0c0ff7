"""The rooms of the product, and the mutants that a seed draws from each."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.mutants import python, tap
from tools.mutants.choice import OF_TORCH
from tools.mutants.site import Site

JUDGES = ("verdict", "collectors", "jobs", "fleet/controller", "probe's judge")
"""Rooms that decide about a node: more mutants are drawn there, and the goal is higher."""
FROM_JUDGES, FROM_OTHERS = 150, 40
_JUDGE = frozenset({"counters.py", "findings.py", "history.py", "judge.py", "measurement.py"})
_LEFT_OUT = ("_pb2.py", "__main__.py")


def rooms(root: Path) -> dict[str, list[Path]]:
    """Return the source files of each room, by its name."""
    found: dict[str, list[Path]] = {}
    files = [*(root / "agent").rglob("*.py"), *(root / "agent/tap").glob("*.c")]
    for path in sorted(files):
        if not path.name.endswith(_LEFT_OUT):
            found.setdefault(_room(path.relative_to(root / "agent")), []).append(path)
    return found


def drawn(root: Path, seed: int, names: Sequence[str] = ()) -> dict[str, list[Site]]:
    """Return what a seed draws of each room, each mutant of a room as likely as any other."""
    return {
        room: _draw(sorted(of_files(root, files), key=lambda one: (one.path, one.start, one.put)), room, seed)
        for room, files in rooms(root).items()
        if not names or room in names
    }


def of_files(root: Path, files: Sequence[Path]) -> Iterator[Site]:
    """Yield every mutant of some files."""
    for path in files:
        language = tap if path.suffix == ".c" else python
        yield from language.sites(str(path.relative_to(root)), path.read_bytes())


def kinds(mutants: Sequence[Site]) -> Mapping[str, int]:
    """Return how many mutants there are of each kind."""
    return {kind: sum(one.kind == kind for one in mutants) for kind in sorted({one.kind for one in mutants})}


def _draw(mutants: Sequence[Site], room: str, seed: int) -> list[Site]:
    quota = FROM_JUDGES if room in JUDGES else FROM_OTHERS
    chance = random.Random(f"{seed} {room}")  # noqa: S311 - a draw that can be repeated
    return chance.sample(mutants, min(quota, len(mutants)))


def _room(path: Path) -> str:
    package, *rest = path.parts
    if package == "tap":
        return "tap"
    prefix = {"wirewatch": "", "wirewatch_lab": "lab/", "wirewatch_fleet": "fleet/"}[package]
    room = rest[0] if len(rest) > 1 else "its own modules"
    if room == "worker" and path.name in OF_TORCH:
        return "worker on torch"
    return "probe's judge" if room == "probe" and not prefix and path.name in _JUDGE else f"{prefix}{room}"
