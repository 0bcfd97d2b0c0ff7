"""Each test asserts something: itself, or in a function of the tests that it calls."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ROOT

CHECKS = frozenset({"raises", "fail"})
"""Functions of pytest that raise where something is wrong."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the tests: whether it asserts by itself, and the names that it calls."""

    path: Path
    name: str
    asserts: bool
    calls: frozenset[str]


def functions(folder: Path) -> Iterator[Function]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = list(ast.walk(node))
                called = [one.func for one in inside if isinstance(one, ast.Call)]
                asserts = any(
                    isinstance(one, ast.Assert)
                    or (isinstance(one, ast.Raise) and "AssertionError" in ast.unparse(one))
                    or (isinstance(one, ast.Attribute) and one.attr in CHECKS)
                    for one in inside
                )
                names = frozenset(one.id for one in called if isinstance(one, ast.Name))
                yield Function(path, node.name, asserts, names)


def silent(folder: Path) -> list[str]:
    """The test functions that assert nothing, neither by themselves nor in a function that they call."""
    known = list(functions(folder))
    helpers: set[str] = set()
    while more := {one.name for one in known if one.asserts or helpers & one.calls} - helpers:
        helpers |= more
    return [
        f"{one.path.relative_to(folder)}: {one.name}"
        for one in known
        if one.name.startswith("test_") and not (one.asserts or helpers & one.calls)
    ]


def test_each_test_asserts_something() -> None:
    assert silent(ROOT / "tests") == []


def test_one_that_asserts_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "def deeper(): assert True\ndef helper(): deeper()\ndef idle(): pass\n"
        "def test_by_itself(): assert True\ndef test_by_a_helper(): helper()\n"
        "def test_refused():\n    with pytest.raises(ValueError): int('x')\n"
        "def test_idle(): idle()\n"
    )
    assert silent(tmp_path) == ["test_a.py: test_idle"]
