"""Each test asserts something: itself, or in a function of the tests that it calls."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ROOT

CHECKS = frozenset({"raises", "fail"})
"""Functions of pytest that raise where something is wrong."""
LEAVES = (ast.Constant, ast.Name, ast.expr_context, ast.operator, ast.cmpop)
"""Most nodes: nothing in them asserts or calls."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the tests: whether it asserts by itself, and the names that it calls."""

    path: Path
    name: str
    asserts: bool
    calls: frozenset[str]


def functions(folder: Path) -> Iterator[Function]:
    for path in sorted(folder.rglob("*.py")):
        yield from _inside(ast.parse(path.read_text("utf-8")), path)[2]


def _inside(node: ast.AST, path: Path) -> tuple[bool, set[str], list[Function]]:
    """Return whether something in a node asserts, the names that are called there, and its functions."""
    asserts = isinstance(node, ast.Assert) or (isinstance(node, ast.Attribute) and node.attr in CHECKS)
    names = {node.func.id} if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else set()
    found: list[Function] = []
    if isinstance(node, ast.Raise):
        asserts = "AssertionError" in ast.unparse(node)
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, LEAVES):
            inner = _inside(part, path)
            asserts, names = asserts or inner[0], names | inner[1]
            found += inner[2]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        found.append(Function(path, node.name, asserts, frozenset(names)))
    return asserts, names, found


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
