"""Mutants: where the syntax tree has them, which tests must notice them, and how their score is said."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rows import each
from tools.mutants import python, rooms, score, tap
from tools.mutants.choice import Choice
from tools.mutants.score import Count, Draw, Survivor, interval, load, page, save
from tools.mutants.site import Site
from tools.mutants.trial import Copy, End, Tried

ROOT = Path(__file__).parents[2]
FILES = {
    "agent/wirewatch/__init__.py": "",
    "agent/wirewatch/core/__init__.py": "",
    "agent/wirewatch/core/a.py": "def bad(a) -> bool:\n    if a < 0:\n        return 0\n    return a > 3.5\n",
    "tests/node/core/test_a.py": "from wirewatch.core.a import bad\n\n\ndef test_a():\n    assert bad(4)\n",
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n',
}


def changes(source: str) -> list[tuple[str, str]]:
    """The kind of each mutant and the source with it."""
    text = source.encode()
    return [(one.kind, one.applied(text).decode()) for one in python.sites("agent/wirewatch/core/a.py", text)]


@each(
    ("source", "kind", "mutated"),
    [
        ("x = a and b(c)", "conjunct", "x = ((b(c)))"),
        ("x = a or b or c", "conjunct", "x = ((a) or (c))"),
        ("def f():\n  if a:\n    return\n  b()", "guard", "def f():\n  if False:\n    return\n  b()"),
        (
            "for a in b:\n  if c:\n    d()\n    continue",
            "guard",
            "for a in b:\n  if False:\n    d()\n    continue",
        ),
        ("x = min(a, b)", "swap", "x = max(a, b)"),
        ("x = any(a)", "swap", "x = all(a)"),
        ("LIMIT = 5 * 60.0", "limit", "LIMIT = 2 * (5 * 60.0)"),
        ("x = len(a) < b", "limit", "x = (len(a) <= b)"),
        ("x = a > 0.5", "limit", "x = a > (0.5 * 1.5 + 0.1)"),
        ("x = a is None", "invert", "x = (a is not None)"),
        ("x = not a", "invert", "x = bool(a)"),
        ("if a:\n  b = 1\nelse:\n  b = 2\n  c()", "else", "if a:\n  b = 1\nelse:\n  pass"),
        ("x = a if b else c", "else", "x = (a)"),
        ("def f() -> bool:\n  return a", "always", "def f() -> bool:\n  return True"),
        ("with self._lock:\n  a = 1", "sync", "if True:\n  a = 1"),
        ("a.clear()", "statement", "pass"),
        ("é = 'ü'; x = max(a, b)", "swap", "é = 'ü'; x = min(a, b)"),
    ],
)
def test_a_mutant_changes_one_place(source: str, kind: str, mutated: str) -> None:
    assert (kind, mutated) in changes(source)


@each(
    "source",
    [
        "log.info('a')",
        "x = f'{a or b}'",
        "lines.append('a')",
        "if TYPE_CHECKING:\n  import a",
        "x = a < b",
        "N = f(3)",
    ],
)
def test_what_only_speaks_or_is_not_run_has_none(source: str) -> None:
    assert changes(source) == []


def test_the_tap_has_mutants_of_c() -> None:
    body = b"if (a > 3 && b) return 1;\n  atomic_thread_fence(x);\n  g(a);\n  return a ? 2 : 3;"
    source = b"int f(int a) {\n  %b\n}\n" % body
    found = {
        (one.kind, one.where, one.line, one.applied(source).decode()) for one in tap.sites("a.c", source)
    }
    wholes = {(kind, line) for kind, _, line, _ in found}
    assert wholes == {("conjunct", 2), ("guard", 2), ("limit", 2), ("sync", 3), ("statement", 4), ("else", 5)}
    assert all(where == "f" for _, where, _, _ in found)
    assert any("if (0) return 1;" in text for _, _, _, text in found)


def test_a_seed_draws_its_quota_of_each_room_and_the_same_again() -> None:
    names = ("fleet/controller", "kubernetes")
    first, again, other = (rooms.drawn(ROOT, seed, names) for seed in (1, 1, 2))
    assert first == again != other
    assert {room: len(set(sites)) for room, sites in first.items()} == {
        "fleet/controller": 150,
        "kubernetes": 40,
    }


def test_every_source_file_is_in_a_room_and_every_judge_is_a_room() -> None:
    found = rooms.rooms(ROOT)
    assert set(rooms.JUDGES) <= set(found)
    named = {path.relative_to(ROOT / "agent") for paths in found.values() for path in paths}
    there = {path.relative_to(ROOT / "agent") for path in (ROOT / "agent").rglob("*.py")}
    assert {path.name for path in there - named} <= {"__main__.py", "podresources_pb2.py"}


def tree(folder: Path) -> Path:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_mutant_dies_by_a_test_that_passes_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    root, place = tree(tmp_path / "root"), tmp_path / "copy"
    (root / "tools").symlink_to(ROOT / "tools")
    path = root / "tests/node/core/test_a.py"
    path.write_text(f"{path.read_text()}\n\ndef test_sick():\n    assert not bad(4)\n")
    copy = Copy(root, place, Choice(root, None))
    sites = list(rooms.of_files(root, [root / "agent/wirewatch/core/a.py"]))
    tried = {(one.site.kind, one.site.put): one for one in (copy.try_one("core", site) for site in sites)}
    copy.close()
    assert tried["guard", "False"].end is End.SURVIVED
    assert tried["always", "return False"].end is End.KILLED
    assert tried["always", "return False"].by == "tests/node/core/test_a.py::test_a"
    assert tried["always", "return True"].end is End.SURVIVED
    assert (place / "agent/wirewatch/core/a.py").read_text() == FILES["agent/wirewatch/core/a.py"]


SITE = Site("agent/wirewatch/verdict/a.py", 3, 3, "f", "guard", 0, 1, "a", "False")
TRIED = [
    Tried("verdict", SITE, End.SURVIVED, "", 1.0, 5),
    *(Tried("verdict", SITE, End.KILLED, "t", 1.0, 5),) * 19,
]


def test_the_first_score_of_a_seed_stays_when_a_survivor_dies(tmp_path: Path) -> None:
    draw = Draw.of(7, "abc", TRIED, None)
    save(tmp_path, draw)
    (read,) = load(tmp_path)
    assert read == Draw(
        7,
        draw.date,
        "abc",
        {"verdict": Count(20, 19)},
        [Survivor("verdict", SITE.path, 3, "guard", SITE.key, "")],
    )
    mended = read.tried_again([Tried("verdict", SITE, End.KILLED, "test_b", 1.0, 5)])
    assert mended.rooms == read.rooms
    assert [one.now for one in mended.survivors] == ["test_b"]


def test_the_page_says_score_interval_and_survivors() -> None:
    text = page([Draw.of(7, "abc", TRIED, None)])
    row = next(line for line in text.splitlines() if line.startswith("| verdict"))
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "verdict",
        "20",
        "0",
        "19",
        "95%, 76% to 99%",
        "1",
        "no",
    ]
    assert f"- verdict: `{SITE.path}` `{SITE.key}`" in text


def test_wilson_s_interval_is_that_of_the_books() -> None:
    low, high = interval(81, 263)
    assert (round(low, 3), round(high, 3)) == (0.255, 0.366)
    assert interval(10, 10)[1] == 1.0


def test_an_explanation_is_of_a_mutant_that_the_tree_has() -> None:
    files = [path for paths in rooms.rooms(ROOT).values() for path in paths]
    assert set(score.explained()) <= {one.key for one in rooms.of_files(ROOT, files)}
    assert all(len(why) > 20 for why in score.explained().values())


@pytest.mark.parametrize(
    ("seconds", "first", "then"),
    [
        ({"a": 1.0, "b": 30.0, "c": 20.0, "d": 100.0}, ["a", "c"], ["b"]),
        ({"a": 100.0, "b": 200.0}, ["a"], ["b"]),
        ({"a": 1.0, "b": 2.0}, ["a", "b"], []),
    ],
)
def test_tests_that_take_longer_than_is_waited_for_are_not_tried(
    seconds: dict[str, float], first: list[str], then: list[str]
) -> None:
    """A mutant that only they reach would be killed by the time limit, which notices nothing."""
    record: Any = SimpleNamespace(tests=lambda _: {of(name) for name in seconds}, seconds={})
    record.seconds = {of(name): took for name, took in seconds.items()}
    site = Site("agent/wirewatch/cli/check.py", 1, 1, "f.g", "else", 0, 0, "", "")
    found = Choice(Path("nowhere"), record).of(site)
    assert found == (
        [of(name) for name in first],
        [of(name) for name in then],
    )


def of(name: str) -> str:
    return f"tests/node/cli/test_check.py::{name}"
