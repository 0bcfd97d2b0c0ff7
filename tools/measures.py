"""Measure a checkout's code: lines by room, importers, names and lengths, and hold them below their bounds.

    python -m tools.measures [--root DIR] [--json] [--page] [--check]

It reads any revision without running it, but for the walks of tools/walks.py, which it runs where the
checkout has them. `--json` prints everything with names, `--page` a table beside the figures of 0.2, and
`--check` what is above its bound in tools/bounds.toml.

- Lines are all lines of Python files. Generated files count as others do.
- A module has one importer when one other module imports it, wherever the import stands. Left out are
  commands that a table names, programs and collectors, which are found by name. So are modules in a
  collector's own folder, and those that protoc generated (`*_pb2`).
- A class name stands in several modules when each defines a class of that name, private ones too.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.imports import PACKAGE, ROOT, graph

BEFORE = Path(__file__).with_name("measures-0.2.json")
"""The figures of release 0.2, its files counted in the rooms that they have moved to."""
BOUNDS = Path(__file__).with_name("bounds.toml")
SKIPPED = frozenset({"__pycache__", "node_modules", ".venv", "build"})
PROGRAMS: Mapping[str, str] = {"wirewatch_lab": "lab", "wirewatch_fleet": "fleet"}
JOBS = frozenset({"jobs", "cli/jobs", "jobs.py"})
"""Rooms of the node that are about running jobs; `jobs.py` are the modules of that name in other rooms."""
_OWN = re.compile(rf"{PACKAGE}\.(collectors\.\w+|jobs\.(bursts|hangs|ledger|lockstep|running))\.")
"""Modules in the folder of a collector."""
_NAMED = re.compile(r'"(wirewatch[\w.]*):\w+"')
"""A command, as a table of commands names its module."""


def measures(root: Path) -> dict[str, Any]:
    """Return all figures of a checkout, with the names that they count."""
    files = _python(root / "agent")
    trees = {path: ast.parse(path.read_text("utf-8")) for path in files}
    rooms = lines_by_room(root, files)
    single, classes = one_importer(root, files), _several(trees)
    functions = _longest(_functions(root, trees))
    modules = _longest((_lines(path), path.relative_to(root).as_posix()) for path in files)
    return {
        "rooms": rooms,
        "lines": {**_programs(rooms), **_beside(root)},
        "modules": sum(path.name != "__init__.py" for path in files),
        "one_importer": {"count": len(single), "names": single},
        "class_names": {"count": len(classes), "names": classes},
        "function_lines": {"count": functions[0], "names": functions[1]},
        "module_lines": {"count": modules[0], "names": modules[1]},
        "walks": _walks(root),
    }


def lines_by_room(root: Path, files: Iterable[Path]) -> dict[str, int]:
    """Return the lines of each room, such as `core`, and those of single modules as `wirewatch`."""
    counted: Counter[str] = Counter()
    for path in files:
        package, *rest = path.relative_to(root / "agent").parts
        inside = rest[:-1]
        places = ("/".join(inside[:2]), "/".join(inside[:1]), rest[-1])
        room = next((place for place in places if place in JOBS), places[1]) or package
        counted[room if package == PACKAGE else "/".join((package, *inside[:1]))] += _lines(path)
    return dict(sorted(counted.items()))


def one_importer(root: Path, files: Iterable[Path]) -> list[str]:
    """Return the modules that one other module imports, but for what is found by name."""
    imports = graph(root)
    named = {name for path in files for name in _NAMED.findall(path.read_text("utf-8"))}
    packages = {name.rpartition(".")[0] for name in imports.modules}
    return sorted(
        name
        for name in imports.modules - packages - named
        if not name.endswith(("_pb2", "__main__"))
        and not _OWN.match(name)
        and name.rpartition(".")[0] != f"{PACKAGE}.collectors"
        and len(imports.find_modules_that_directly_import(name)) == 1
    )


def above(found: Mapping[str, Any], bounds: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a sentence for each figure that is above its bound."""
    figures = {f"lines of {name}": (found["lines"][name], most, "") for name, most in bounds["lines"].items()}
    for name, most in bounds["most"].items():
        figures[name] = (found[name]["count"], most, ": " + ", ".join(found[name]["names"]))
    return [
        f"{name}: {has:,} of at most {most:,}{why}"
        for name, (has, most, why) in figures.items()
        if has > most
    ]


def rows(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures in short, by what they are."""
    lines = {f"lines of {part}": f"{count:,}" for part, count in found["lines"].items()}
    rooms = {f"lines of room {room}": f"{count:,}" for room, count in found["rooms"].items()}
    walks = {f"files entered: {walk['about']}": str(walk["count"]) for walk in found["walks"].values()}
    return {
        **lines,
        **rooms,
        "modules of the agent": str(found["modules"]),
        "modules with one importer": str(found["one_importer"]["count"]),
        "class names in several modules": str(found["class_names"]["count"]),
        "lines of the longest function": str(found["function_lines"]["count"]),
        "lines of the longest module": str(found["module_lines"]["count"]),
        **walks,
    }


def page(now: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """Return a Markdown table of the figures of 0.2 and those of now."""
    earlier, later = rows(before), rows(now)
    names = [*earlier, *(name for name in later if name not in earlier)]
    table = [f"| {name} | {earlier.get(name, '')} | {later.get(name, '')} |" for name in names]
    return "\n".join(["| | 0.2 | now |", "|---|---:|---:|", *table, ""])


def _python(folder: Path) -> list[Path]:
    found = folder.rglob("*.py") if folder.is_dir() else ()
    return sorted(path for path in found if not SKIPPED & set(path.relative_to(folder).parts))


def _lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def _programs(rooms: Mapping[str, int]) -> dict[str, int]:
    counted = dict.fromkeys(("node", "jobs", *PROGRAMS.values()), 0)
    for room, count in rooms.items():
        counted["jobs" if room in JOBS else PROGRAMS.get(room.partition("/")[0], "node")] += count
    return {**counted, "all": sum(rooms.values())}


def _beside(root: Path) -> dict[str, int]:
    folders = ("tests", "tools", "proof", "dashboards")
    return {name: sum(map(_lines, _python(root / name))) for name in folders if (root / name).is_dir()}


def _several(trees: Mapping[Path, ast.Module]) -> dict[str, int]:
    """Return the names of classes that at least two modules define, with how many do."""
    found = Counter(
        name
        for tree in trees.values()
        for name in {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    )
    return {name: count for name, count in sorted(found.items()) if count > 1}


def _functions(root: Path, trees: Mapping[Path, ast.Module]) -> Iterator[tuple[int, str]]:
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                where = f"{path.relative_to(root).as_posix()} {node.name}"
                yield (node.end_lineno or 0) - node.lineno + 1, where


def _longest(found: Iterable[tuple[int, str]]) -> tuple[int, list[str]]:
    """Return the most lines, and the names of all that have so many."""
    every = list(found)
    most = max((lines for lines, _ in every), default=0)
    return most, sorted(name for lines, name in every if lines == most)


def _walks(root: Path) -> dict[str, Any]:
    if not (root / "tools" / "walks.py").exists():
        return {}
    command = [sys.executable, "-m", "tools.walks", "--json"]
    # A virtual environment finds the agent of its own checkout, which need not be this one.
    environment = {**os.environ, "PYTHONPATH": str(root / "agent")}
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the figures of a checkout, or what is above its bound."""
    parser = argparse.ArgumentParser(description="Figures of a checkout's code.")
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout of any revision")
    parser.add_argument("--json", action="store_true", help="everything, with names")
    parser.add_argument("--page", action="store_true", help="a Markdown table, beside 0.2")
    parser.add_argument("--check", action="store_true", help="what is above its bound, which fails")
    given = parser.parse_args()
    found = measures(given.root.resolve())
    if given.check:
        wrong = above(found, tomllib.loads(BOUNDS.read_text("utf-8")))
        sys.exit("\n".join(wrong) if wrong else 0)
    if given.json:
        text = json.dumps(found, indent=1) + "\n"
    elif given.page:
        text = page(found, json.loads(BEFORE.read_text("utf-8")))
    else:
        text = "".join(f"{value:>20}  {name}\n" for name, value in rows(found).items())
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
