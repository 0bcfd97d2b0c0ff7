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
from tools.measures import BEFORE, page, rows

TREE = {
    "agent/wirewatch/__init__.py": '"""The agent."""\n',
    "agent/wirewatch/core/__init__.py": '"""Types."""\n',
    "agent/wirewatch/core/types.py": (
        "class Memory:\n    def told(self):\n        return 1\n\n    def _own(self): ...\n"
    ),
    "agent/wirewatch/collectors/__init__.py": "",
    "agent/wirewatch/collectors/fans.py": (
        "from wirewatch.core.types import Memory as Of\n\n# who told\n\n\nclass Memory(Of):\n"
        '    """Of fans."""\n\n\ndef read():\n    """Speeds."""\n'
    ),
    "agent/wirewatch/hw/__init__.py": "",
    "agent/wirewatch/hw/port.py": (
        "def read():\n    from wirewatch.collectors.fans import read\n    return read\n"
    ),
    "agent/wirewatch/hw/other.py": "import wirewatch.core.types\nimport wirewatch.hw.fans_pb2\n",
    "agent/wirewatch/hw/fans_pb2.py": "",
    "tests/test_fans.py": "\n\n",
    "tests/bench/poll.py": "\n\n\n",
    "tests/bench/test_poll.py": "\n",
    "tests/tools/pages.py": "\n\n\n\n",
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


def test_modules_and_lines(found: dict[str, Any]) -> None:
    assert found["modules"] == 5
    assert found["module_lines"]["median"] == 3.0
    assert found["init_lines"] == 2
    assert found["lines"] == {"agent": 23, "tests": 3, "tools": 4, "proof": 3}


def test_importers_classes_and_docstrings(found: dict[str, Any]) -> None:
    assert found["one_importer"]["names"] == ["collectors.fans"]
    assert found["class_names"]["names"] == {"Memory": 2}
    assert found["docstrings"]["core"]["missing"] == ["core/types.py:1 Memory", "core/types.py:2 Memory.told"]
    assert found["docstrings"]["collectors"] == {"public": 2, "missing": []}
    assert found["told"] == 2


def test_the_page_sets_both_beside_each_other(found: dict[str, Any]) -> None:
    before = json.loads(BEFORE.read_text("utf-8"))
    lines = page(found, before).splitlines()
    assert "| modules of the agent | 314 | 5 |" in lines
    assert "| files entered: an NVLink counter to /metrics | 24 |  |" in lines
    assert len(lines) == len(rows(before)) + 2


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
