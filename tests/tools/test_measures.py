"""The measures of a small tree, and the walks through the real one."""

import json
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tools import walks
from tools.imports import ROOT
from tools.measures import BEFORE, above, page, rows

TREE = {
    "agent/wirewatch/__init__.py": '"""The agent."""\n',
    "agent/wirewatch/core/__init__.py": '"""Types."""\n',
    "agent/wirewatch/core/types.py": "class Memory:\n    def held(self):\n        return 1\n",
    "agent/wirewatch/collectors/__init__.py": "",
    "agent/wirewatch/collectors/fans.py": (
        "from wirewatch.core.types import Memory as Of\n\n\nclass Memory(Of):\n"
        '    """Of fans."""\n\n\ndef read():\n    """Speeds."""\n'
    ),
    "agent/wirewatch/collectors/wind/__init__.py": "import wirewatch.collectors.wind.judge\n",
    "agent/wirewatch/collectors/wind/judge.py": "",
    "agent/wirewatch/hw/__init__.py": "",
    "agent/wirewatch/hw/port.py": (
        "def read():\n    from wirewatch.collectors.fans import read\n    return read\n"
    ),
    "agent/wirewatch/hw/other.py": "import wirewatch.core.types\nimport wirewatch.hw.fans_pb2\n",
    "agent/wirewatch/hw/fans_pb2.py": "",
    "agent/wirewatch/cli/__init__.py": "",
    "agent/wirewatch/core/jobs.py": "\n\n\n",
    "agent/wirewatch/cli/jobs/__init__.py": '"""Commands."""\n',
    "agent/wirewatch/cli/jobs/top.py": "import wirewatch.hw.port\n",
    "agent/wirewatch/cli/jobs/table.py": (
        'import wirewatch.cli.jobs.top\nTOP = "wirewatch.cli.jobs.top:top"\n'
    ),
    "agent/wirewatch_lab/__init__.py": '"""The lab."""\n',
    "agent/wirewatch_lab/study/__init__.py": "",
    "agent/wirewatch_lab/study/curve.py": "\n\n",
    "agent/wirewatch_fleet/__init__.py": '"""The fleet."""\n',
    "tests/test_fans.py": "\n\n",
    "tools/pages.py": "\n\n\n\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("checkout")
    for name, text in TREE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    command = [sys.executable, "-m", "tools.measures", "--root", str(root), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def test_lines_are_counted_by_program_and_room(found: dict[str, Any]) -> None:
    assert found["rooms"] == {
        "cli": 0, "cli/jobs": 4, "collectors": 10, "core": 4, "hw": 5, "jobs.py": 3, "wirewatch": 1,
        "wirewatch_fleet": 1, "wirewatch_lab": 1, "wirewatch_lab/study": 2,
    }  # fmt: skip
    assert found["lines"] == {
        "node": 20, "jobs": 7, "lab": 3, "fleet": 1, "all": 31, "tests": 2, "tools": 4,
    }  # fmt: skip


def test_importers_names_and_lengths(found: dict[str, Any]) -> None:
    # Not a collector, nor what is in its folder, nor a command of a table, nor what protoc made.
    assert found["one_importer"]["names"] == ["wirewatch.hw.port"]
    assert found["class_names"]["names"] == {"Memory": 2}
    assert found["function_lines"] == {"count": 3, "names": ["agent/wirewatch/hw/port.py read"]}
    assert found["module_lines"] == {"count": 9, "names": ["agent/wirewatch/collectors/fans.py"]}


def test_a_figure_above_its_bound_is_named_and_one_at_its_bound_is_not(found: dict[str, Any]) -> None:
    bounds = {"lines": {"node": 20, "lab": 2}, "most": {"one_importer": 0, "function_lines": 3}}
    assert above(found, bounds) == [
        "lines of lab: 3 of at most 2",
        "one_importer: 1 of at most 0: wirewatch.hw.port",
    ]


def test_the_page_sets_both_beside_each_other(found: dict[str, Any]) -> None:
    before = json.loads(BEFORE.read_text("utf-8"))
    lines = page(found, before).splitlines()
    assert "| lines of all | 83,741 | 31 |" in lines
    assert "| files entered: an NVLink counter to /metrics | 16 |  |" in lines
    assert len(lines) == len({*rows(before), *rows(found)}) + 2


def test_a_walk_counts_functions_of_all_threads_and_no_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "walked_imported.py").write_text(
        "from dataclasses import dataclass\n\ndef made():\n    return 1\n\nVALUE = made()\n\n"
        "@dataclass\nclass Part:\n    number: int = made()\n",
        "utf-8",
    )
    for name in ("first", "second"):
        (tmp_path / f"walked_{name}.py").write_text("def enter():\n    return [1 for _ in '12']\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(walks, "AGENT", f"{tmp_path}/")
    first, second = import_module("walked_first"), import_module("walked_second")
    with walks.Watch() as watch:
        import_module("walked_imported").Part(2)
        thread = threading.Thread(target=second.enter)
        thread.start()
        thread.join()
        first.enter()
    assert watch.files == {"walked_second.py": "enter", "walked_first.py": "enter"}


def test_each_walk_ends_where_it_should() -> None:
    found = walks.walked()
    for name, files in found.items():
        assert "core/types.py" in files, name
        assert not any(path.startswith(("hw/replay", "hw/recording")) for path in files), name
    assert any(path.startswith("cli/check") for path in found["link"])
    assert any(path.startswith("verdict/straggler/") for path in found["probe"])
