"""Figures of a checkout's code: how many modules, how long, how tangled, how well described.

    python -m tools.measures [--root DIR] [--json] [--page]

It reads any revision without running it, but for the walks of tools/walks.py, which it runs where the
checkout has them. `--json` prints everything with names, `--page` a table beside the figures of 0.1.

What is counted:

- Lines are all lines of Python files.
- An `__init__.py` is not counted as a module, since most hold one line; the lines of all of them together are
  a figure of their own. Generated files are counted as others are, but for the next figure.
- A module has one importer when one other module of the agent imports it, wherever the import stands.
  `__main__`, commands and collectors have none: they are found by name. Modules that protoc generated
  (`*_pb2`) are left out: their importer is the one module that has the protocol, by design.
- A class name stands in several modules when each defines a class of that name, private ones too.
- Public are functions, methods and classes with no underscore before their names and those around them.
- Proof is what proves on hardware and clusters, by rehearsal, simulation and benchmark, but its own tests.
"""

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.imports import PACKAGE, ROOT, graph

BEFORE = Path(__file__).with_name("measures-0.1.json")
"""The figures of release 0.1."""
TOLD = re.compile(r"\btold\b")
_BUSBW = ("busbw", "expected", "references", "wire")
ROOMS: Mapping[str, Sequence[str]] = {
    "collectors": ("collectors/",),
    "busbw": ("busbw/", *(f"core/probing/{name}.py" for name in _BUSBW)),
    "nccl": ("nccl/", "core/probing/nccl"),
    "verdict": ("verdict/",),
    "core": ("core/",),
}
"""Rooms whose docstrings are counted, with how the names of their files begin; the first that fits counts."""
PROVING = ("hardware", "rehearsal", "simulation", "bench", "kubernetes", "image", "systemd", "grafana")
"""Folders of tests/ that proved something before there was proof/."""
SKIPPED = frozenset({"__pycache__", "node_modules", ".venv", "build"})
_GENERATED = "_pb2"


def measures(root: Path) -> dict[str, Any]:
    """All figures of a checkout, with the names that they count."""
    agent = root / "agent" / PACKAGE
    files = _python(agent)
    modules = [path for path in files if path.name != "__init__.py"]
    low, middle, high = statistics.quantiles([_lines(path) for path in modules], n=4)
    single, classes = _one_importer(root), _several(files)
    return {
        "modules": len(modules),
        "module_lines": {"lower_quartile": low, "median": middle, "upper_quartile": high},
        "init_lines": sum(_lines(path) for path in files if path.name == "__init__.py"),
        "one_importer": {"count": len(single), "names": single},
        "class_names": {"count": len(classes), "names": classes},
        "docstrings": _docstrings(agent, files),
        "told": sum(len(TOLD.findall(path.read_text("utf-8"))) for path in _python(root / "agent")),
        "lines": _parts(root),
        "walks": _walks(root),
    }


def rows(found: Mapping[str, Any]) -> Mapping[str, str]:
    """The figures in short, by what they are."""
    lines, parts = found["module_lines"], found["docstrings"]
    named = [parts[name] for name in ROOMS]
    public = sum(part["public"] for part in named)
    told = {f"lines of {part}": f"{count:,}" for part, count in found["lines"].items()}
    walks = {f"files entered: {walk['about']}": str(walk["count"]) for walk in found["walks"].values()}
    return {
        "modules of the agent": str(found["modules"]),
        "lines of a module: median": f"{lines['median']:g}",
        "lines of a module: quartiles": f"{lines['lower_quartile']:g}, {lines['upper_quartile']:g}",
        "lines in `__init__.py` files": str(found["init_lines"]),
        "modules with one importer": str(found["one_importer"]["count"]),
        "class names in several modules": str(found["class_names"]["count"]),
        f"without a docstring, in {', '.join(ROOMS)}": f"{sum(map(_missing, named))} of {public}",
        "the word told in the agent": f"{found['told']:,}",
        **told,
        **walks,
    }


def page(now: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """A Markdown table of the figures of 0.1 and those of now."""
    earlier, later = rows(before), rows(now)
    names = [*earlier, *(name for name in later if name not in earlier)]
    table = [f"| {name} | {earlier.get(name, '')} | {later.get(name, '')} |" for name in names]
    return "\n".join(["| | 0.1 | now |", "|---|---:|---:|", *table, ""])


def _missing(part: Mapping[str, Any]) -> int:
    return len(part["missing"])


def _python(folder: Path) -> list[Path]:
    found = folder.rglob("*.py") if folder.is_dir() else ()
    return sorted(path for path in found if not SKIPPED & set(path.relative_to(folder).parts))


def _lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def _one_importer(root: Path) -> list[str]:
    imports = graph(root)
    packages = {name.rpartition(".")[0] for name in imports.modules}
    modules = (name for name in imports.modules - packages if not name.endswith(_GENERATED))
    single = [name for name in modules if len(imports.find_modules_that_directly_import(name)) == 1]
    return sorted(name.removeprefix(f"{PACKAGE}.") for name in single)


def _several(paths: Iterable[Path]) -> dict[str, int]:
    """Names of classes that at least two modules define, with how many do."""
    found: dict[str, set[Path]] = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).add(path)
    return {name: len(found[name]) for name in sorted(found) if len(found[name]) > 1}


def _docstrings(agent: Path, paths: Iterable[Path]) -> dict[str, Any]:
    counted: dict[str, dict[str, Any]] = {name: {"public": 0, "missing": []} for name in ROOMS}
    for path in paths:
        where = path.relative_to(agent).as_posix()
        room = next((room for room, begins in ROOMS.items() if where.startswith(tuple(begins))), None)
        if room is None:
            continue
        for name, node in _public("", ast.parse(path.read_text("utf-8")).body):
            counted[room]["public"] += 1
            if ast.get_docstring(node) is None:
                counted[room]["missing"].append(f"{where}:{node.lineno} {name}")
    return counted


def _public(
    inside: str, body: Iterable[ast.stmt]
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        yield inside + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from _public(f"{inside}{node.name}.", node.body)


def _parts(root: Path) -> dict[str, int]:
    """Lines of the agent, of tests, tools and proof, wherever the revision has them."""
    tests, tools = _python(root / "tests"), [*_python(root / "tools"), *_python(root / "tests" / "tools")]
    proof = _python(root / "proof") or [p for name in PROVING for p in _python(root / "tests" / name)]
    proof = [path for path in proof if not path.name.startswith("test_")]
    parts = {
        "agent": _python(root / "agent"),
        "tests": sorted(set(tests) - {*tools, *proof}),
        "tools": tools,
        "proof": proof,
    }
    return {name: sum(map(_lines, paths)) for name, paths in parts.items()}


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
    """Print the figures of a checkout."""
    parser = argparse.ArgumentParser(description="Figures of a checkout's code.")
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout of any revision")
    parser.add_argument("--json", action="store_true", help="everything, with names")
    parser.add_argument("--page", action="store_true", help="a Markdown table, beside 0.1")
    given = parser.parse_args()
    found = measures(given.root.resolve())
    if given.json:
        text = json.dumps(found, indent=1) + "\n"
    elif given.page:
        text = page(found, json.loads(BEFORE.read_text("utf-8")))
    else:
        text = "".join(f"{value:>20}  {name}\n" for name, value in rows(found).items())
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
