"""A change leaves to a release only the cases that the list names, and says how many."""

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.processes import ROOT
from tests.release import LISTED, Values, chosen

FILE = """
import pytest

@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_many(name): assert name in "ac"

@pytest.mark.parametrize("fast", [0, 1])
@pytest.mark.parametrize("slow", "xy")
def test_both(slow, fast): assert (slow, fast) in {("x", 0), ("y", 1)}

def test_dear(): raise AssertionError

def test_other(): pass
"""
LIST = """
[cases]
"test_some.py::test_many" = 2
"test_some.py::test_both" = 2
[release]
"test_some.py::test_dear" = "test_other has its rule"
"""
CONFTEST = """
from pathlib import Path
from tests import release

release.LISTED = Path(__file__).with_name("list.toml")

def pytest_configure(config):
    config.pluginmanager.register(release.Release())
"""


def values(*cases: tuple[int, ...]) -> list[Values]:
    return [frozenset((f"parameter {n}", place) for n, place in enumerate(case)) for case in cases]


def test_cases_of_one_parameter_are_spread_evenly_from_the_first_on() -> None:
    assert chosen(values(*((n,) for n in range(12))), 3) == {0, 4, 8}
    assert chosen(values(*((n,) for n in range(12))), 0) == set()
    assert chosen(values((0,), (1,)), 5) == {0, 1}


def test_each_value_of_each_parameter_comes_before_a_second_case_of_one() -> None:
    products = values(*((first, second) for first in range(3) for second in range(3)))
    kept = [products[place] for place in chosen(products, 3)]
    assert len(frozenset.union(*kept)) == 6


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), unique=True), st.integers(0, 30))
def test_as_many_as_are_wanted_and_there(cases: list[tuple[int, ...]], most: int) -> None:
    assert len(chosen(values(*cases), most)) == min(most, len(cases))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cases")
    for name, text in (("conftest.py", CONFTEST), ("list.toml", LIST), ("test_some.py", FILE)):
        (made / name).write_text(text, "utf-8")
    return made


@pytest.mark.parametrize(
    ("words", "settings", "said", "last"),
    [
        (["test_some.py", "-p", "xdist", "-n", "1"], {}, "5 passed", "5 cases are left to a release"),
        (["test_some.py"], {"RELEASE": "1"}, "5 failed, 5 passed", ""),
        (["test_some.py::test_dear"], {}, "1 failed", ""),
    ],
)
def test_a_run_says_how_many_are_left(
    folder: Path, words: list[str], settings: dict[str, str], said: str, last: str
) -> None:
    plain = {name: text for name, text in os.environ.items() if name not in {"RELEASE", "EXAMPLES"}}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, *words],
        capture_output=True, text=True, check=False, cwd=folder,
        env={**plain, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **settings},
    )  # fmt: skip
    assert said in done.stdout
    assert ("left to a release" in done.stdout, last in done.stdout) == (bool(last), True)


def test_the_list_names_tests_that_there_are() -> None:
    listed = tomllib.loads(LISTED.read_text("utf-8"))
    names = [*listed["cases"], *listed["release"]]
    assert len(names) == len(set(names))
    assert [name for name in names if not _there(*name.split("::"))] == []
    assert min(listed["cases"].values()) > 0
    assert all(listed["release"].values())


def _there(file: str, *path: str) -> bool:
    """Whether the file has a function of that name, or a class with it."""
    if not (ROOT / file).exists():
        # Run without the other programs: tests/node-alone.
        return not (ROOT / "tests/lab").exists() and file.startswith(("tests/lab", "tests/fleet"))
    body = ast.parse((ROOT / file).read_bytes()).body
    for name in path:
        found = [one for one in body if isinstance(one, (ast.FunctionDef, ast.ClassDef)) and one.name == name]
        body = found[0].body if found else []
    return bool(body)
