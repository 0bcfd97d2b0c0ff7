"""Each test asserts something: itself, or in a function of the tests that it calls by name."""

import ast
from collections.abc import Mapping, Sequence
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

    name: str
    asserts: bool
    calls: frozenset[str]


@dataclass(frozen=True, slots=True)
class Module:
    """A module's functions, and the names of other modules' functions that it imports, with their modules."""

    functions: Sequence[Function]
    imports: Mapping[str, str]


def modules(folder: Path) -> Mapping[str, Module]:
    found = {}
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        tree = ast.parse(path.read_text("utf-8"))
        nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        imports = {alias.asname or alias.name: str(node.module) for node in nodes for alias in node.names}
        found[name.removesuffix(".__init__")] = Module(_inside(tree)[2], imports)
    return found


def _inside(node: ast.AST) -> tuple[bool, set[str], list[Function]]:
    """Return whether something in a node asserts, the names that are called there, and its functions."""
    asserts = isinstance(node, ast.Assert) or (isinstance(node, ast.Attribute) and node.attr in CHECKS)
    names = {node.func.id} if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else set()
    found: list[Function] = []
    if isinstance(node, ast.Raise):
        asserts = "AssertionError" in ast.unparse(node)
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, LEAVES):
            inner = _inside(part)
            asserts, names = asserts or inner[0], names | inner[1]
            found += inner[2]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        found.append(Function(node.name, asserts, frozenset(names)))
    return asserts, names, found


def silent(folder: Path) -> list[str]:
    """The test functions that assert nothing, neither by themselves nor in a function that they call.

    A function of another module counts where its name is imported from there, and no other of that name.
    """
    known = modules(folder)
    assert_: set[tuple[str, str]] = set()

    def asserts(place: str, function: Function) -> bool:
        module = known[place]
        return function.asserts or any(
            (module.imports.get(name, place), name) in assert_ for name in function.calls
        )

    def found() -> set[tuple[str, str]]:
        return {
            (place, one.name)
            for place, module in known.items()
            for one in module.functions
            if asserts(place, one)
        }

    while more := found() - assert_:
        assert_ |= more
    return [
        f"{place}: {one.name}"
        for place, module in known.items()
        for one in module.functions
        if one.name.startswith("test_") and not asserts(place, one)
    ]


def test_each_test_asserts_something() -> None:
    assert silent(ROOT / "tests") == []


def test_one_that_asserts_nothing_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "cases"
    folder.mkdir()
    (folder / "test_a.py").write_text(
        "from cases.test_b import idle_there, there\n"
        "def deeper(): assert True\ndef helper(): deeper()\ndef idle(): pass\ndef same(): pass\n"
        "def test_by_itself(): assert True\ndef test_by_a_helper(): helper()\n"
        "def test_by_another_module(): there()\n"
        "def test_refused():\n    with pytest.raises(ValueError): int('x')\n"
        "def test_idle(): idle()\ndef test_idle_elsewhere(): idle_there()\n"
        "def test_another_of_this_name_asserts(): same()\n"
    )
    (folder / "test_b.py").write_text(
        "def there(): assert True\ndef same(): assert True\ndef idle_there(): pass\n"
    )
    assert silent(folder) == [
        f"cases.test_a: {name}"
        for name in ("test_idle", "test_idle_elsewhere", "test_another_of_this_name_asserts")
    ]
