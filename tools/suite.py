"""Measure where the test suite's processor time goes: `make suite`.

    python -m tools.suite NAME [PYTEST ARGUMENT ...]

It runs pytest with the plugin tools/suitecosts.py. It keeps the figures as NAME in proof/suite.json, beside
those of other runs, and writes proof/suite.md.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proof.rehearsal.page import table
from tools.prose import formatted
from tools.suitecosts import PLACE

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "proof/suite.json"
PAGE = KEPT.with_suffix(".md")
DEAREST = 40
"""Tests that are listed by name."""
SLOW = 2.0
"""Seconds from which on a file is listed."""
PARTS: Mapping[str, str] = {
    "start": "start of the workers, until they collect",
    "collection": "collection: every worker imports all tests",
    "forkservers": "processes that fork commands: imports and forks",
    "bodies": "tests, in the workers themselves",
    "children": "commands and daemons that tests start",
    "between tests": "workers, between tests",
    "controller": "the process that hands out tests",
    "ends": "difference from what the system counts for all of them",
}
HEAD = """# The time of the test suite

Written by `make suite`, which runs the tests with a plugin (tools/suite.py) and keeps the figures
in suite.json beside this page. All figures are CPU seconds of user and system together: they hang
on the machine's load far less than seconds of a clock do. tests/release.toml has what a change
leaves to a release."""


def main() -> int:
    """Run pytest, keep its figures under their name, and write the page; return pytest's exit code."""
    name, *words = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "costs.json")
        began, load = time.monotonic(), os.getloadavg()[0]
        code = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "tools.suitecosts", *words],
            check=False, env={**os.environ, PLACE: str(place)},
        ).returncode  # fmt: skip
        costs, ended = json.loads(place.read_text("utf-8")), resource.getrusage(resource.RUSAGE_CHILDREN)
        kept = summary(costs, ended.ru_utime + ended.ru_stime)
        kept |= {"wall": round(time.monotonic() - began, 1), "load": round(load, 1), "words": words}
    runs = {**json.loads(KEPT.read_text("utf-8")), name: kept} if KEPT.exists() else {name: kept}
    KEPT.write_text(json.dumps(runs, indent=1) + "\n", "utf-8")
    PAGE.write_text(formatted(page(runs)), "utf-8")
    return code


def summary(costs: Mapping[str, Any], whole: float) -> dict[str, Any]:
    """Return what is kept of a run: its parts, its folders, and the dearest tests and files."""
    tests: Mapping[str, tuple[float, float]] = costs["tests"]
    folders: defaultdict[str, float] = defaultdict(float)
    files: defaultdict[str, float] = defaultdict(float)
    functions: defaultdict[str, float] = defaultdict(float)
    for name, cost in tests.items():
        function, file = name.partition("[")[0], name.partition("::")[0]
        depth = 3 if file.startswith("tests/node/") else 2
        folders["/".join(Path(file).parts[: min(depth, len(Path(file).parts) - 1)])] += sum(cost)
        files[file] += sum(cost)
        functions[function] += sum(cost)
    parts = {name: round(cost, 1) for name, cost in costs["parts"].items()}
    return {
        "cpu": round(whole, 1),
        "tests": len(tests),
        "parts": {**parts, "ends": round(whole - sum(costs["parts"].values()), 1)},
        "folders": _rounded(folders),
        "files": _rounded(files, least=SLOW),
        "dearest": _rounded(functions, most=DEAREST),
    }


def _rounded(costs: Mapping[str, float], least: float = 0.0, most: int | None = None) -> dict[str, float]:
    """Costs from the dearest on."""
    dear = sorted(costs.items(), key=lambda item: -item[1])[:most]
    return {name: round(cost, 2) for name, cost in dear if cost >= least}


def page(runs: Mapping[str, Any]) -> str:
    """Return the page of all kept runs, the newest last."""
    names = list(runs)
    kinds = list(dict.fromkeys(part for run in runs.values() for part in run["parts"]))
    rows = [
        ("CPU seconds, all processes", [run["cpu"] for run in runs.values()]),
        *((f"- {PARTS[kind]}", [run["parts"].get(kind, 0.0) for run in runs.values()]) for kind in kinds),
        ("tests", [run["tests"] for run in runs.values()]),
        ("seconds until the end", [run["wall"] for run in runs.values()]),
        ("load of the machine at the start", [run["load"] for run in runs.values()]),
    ]
    places = list(dict.fromkeys(place for run in runs.values() for place in run["folders"]))
    last = runs[names[-1]]
    return "\n\n".join((
        HEAD,
        table(["", *names], [[title, *map(str, figures)] for title, figures in rows]),
        *(f"*{name}*: {run['note']}" for name, run in runs.items() if "note" in run),
        "## By folder",
        table(["folder", *names], [
            [place, *(str(run["folders"].get(place, 0)) for run in runs.values())] for place in places
        ]),
        f"## Files above {SLOW:g} seconds, {names[-1]}",
        table(["file", "CPU seconds"], [[file, str(cost)] for file, cost in last["files"].items()]),
        f"## The dearest tests, {names[-1]}",
        table(["test", "CPU seconds"], [[test, str(cost)] for test, cost in last["dearest"].items()]),
    )) + "\n"  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
