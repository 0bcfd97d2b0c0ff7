"""The tests that must notice a mutant: the nearest first, then all that reach it."""

import ast
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path, PurePath

from tools.mutants.covering import Record
from tools.mutants.site import Site

NEAR = 60
"""Tests that are tried first; they kill most mutants in two seconds."""
BUDGET = 40.0
"""Seconds of tests that are tried at once, the cheapest first: a time limit is no test that notices."""
_TAP = ("tests/node/jobs/tap", "tests/node/jobs/test_rings.py")
_MEETS = tuple(
    f"tests/node/worker/test_{name}.py" for name in ("distributed_engine", "gloo_engine", "meeting")
)
OF_TORCH = {
    "torch_engine.py": ("tests/node/worker/test_torch_engine.py",),
    "torch_gpu.py": ("tests/node/worker/test_torch_engine.py", _MEETS[0]),
    "distributed_engine.py": (
        *_MEETS,
        "tests/node/worker/test_torch_engine.py::test_a_torch_without_cuda_is_no_engine",
    ),
}
"""Modules of the worker whose tests run in the environment of `make test-system` alone, and those tests."""
_OF_ROOMS = {"wirewatch": "tests/node", "wirewatch_lab": "tests/lab", "wirewatch_fleet": "tests/fleet"}


class Choice:
    """Chooses the tests of each mutant, by a record where it has the line, else by imports and names."""

    def __init__(self, root: Path, record: Record | None, fresh: AbstractSet[str] = frozenset()) -> None:
        """`fresh`: test files that are newer than the record."""
        self._root, self._record, self._fresh = root, record, fresh
        self._imports = cache(self._importers)

    def of(self, site: Site) -> Sequence[Sequence[str]]:
        """Return two lists of tests, as pytest takes them; the second is tried when the first passes."""
        if site.path.endswith(".c"):
            return [], _TAP
        if PurePath(site.path).name in OF_TORCH:
            return [], OF_TORCH[PurePath(site.path).name]
        near = [name for name in self._importing(site) if _is_near(site, name)]
        known = self._record.tests(site) if self._record else set()
        if not known or not self._record:
            return near, [name for name in self._importing(site) if name not in near]
        seconds = self._record.seconds
        ordered = sorted(known, key=lambda name: (not _is_near(site, name.partition("::")[0]), seconds[name]))
        first = _within(ordered[:NEAR], seconds)
        fresh = [name for name in self._importing(site) if name in self._fresh]
        rest = sorted(ordered[len(first) :], key=seconds.__getitem__)
        return first, [*fresh, *_within(rest, seconds)]

    def _importing(self, site: Site) -> Sequence[str]:
        module = ".".join(PurePath(site.path).relative_to("agent").with_suffix("").parts).removesuffix(
            ".__init__"
        )
        stem = module.rpartition(".")[2]
        named = [
            name
            for name in self._imports()[1]
            if PurePath(name).stem in {f"test_{stem}", f"test_{stem}_command"}
        ]
        near = [name for name in named if _is_near(site, name)]
        return sorted({*near, *self._imports()[0].get(module, ())})

    def _importers(self) -> tuple[Mapping[str, AbstractSet[str]], Sequence[str]]:
        found: dict[str, set[str]] = {}
        files = [path for folder in _OF_ROOMS.values() for path in (self._root / folder).rglob("test_*.py")]
        for path in files:
            for module in _imported(ast.parse(path.read_bytes())):
                found.setdefault(module, set()).add(str(path.relative_to(self._root)))
        return found, [str(path.relative_to(self._root)) for path in files]


def _imported(tree: ast.AST) -> AbstractSet[str]:
    """Return the names of modules that a test imports, of packages and of their members."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _is_near(site: Site, name: str) -> bool:
    """Tell whether a test file lies in the folder of the mutant's room."""
    _, package, room, *_ = PurePath(site.path).parts
    folder = PurePath(_OF_ROOMS[package], room)
    return PurePath(name).is_relative_to(folder) or PurePath(name).parent == PurePath(_OF_ROOMS[package])


def _within(names: Sequence[str], seconds: Mapping[str, float]) -> Sequence[str]:
    kept: list[str] = []
    spent = 0.0
    for name in names:
        spent += seconds[name]
        if kept and spent > BUDGET:
            break
        kept.append(name)
    return kept
