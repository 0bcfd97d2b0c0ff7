"""The list of mutants: it fits the tree, and what does not is said in one line."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tools.mutants.catalogue import Mutant, Stale, load, place
from tools.mutants.page import page
from tools.mutants.trial import Copy, End, Tried, note, noted

ROOT = Path(__file__).parents[2]
MUTANT = Mutant(
    "core",
    "limit-off",
    "a fault is not told",
    "return value > LIMIT",
    "return value >= LIMIT",
    ("test_a.py",),
)
FILES = {
    "agent/wirewatch/__init__.py": "",
    "agent/wirewatch/core/__init__.py": "",
    "agent/wirewatch/core/a.py": "LIMIT = 3\n\n\ndef bad(value: int) -> bool:\n    return value > LIMIT\n",
    "agent/wirewatch/core/b.py": "LIMIT = 4\n",
    "tests/node/core/test_a.py": "from wirewatch.core.a import bad\n\n\ndef test_a():\n    assert bad(4)\n",
    "tests/node/probe/test_a.py": "def test_nothing():\n    assert True\n",
    "deploy/rules.yml": "expr: a > 3\n",
    "tests/system/test_rules.py": "def test_one():\n    assert 'a > 3' in open('deploy/rules.yml').read()\n",
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n',
}


def tree(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_list_fits_the_tree() -> None:
    stale = []
    for one in load():
        try:
            place(ROOT, one)
        except Stale as error:
            stale.append(str(error))
    assert stale == []


def test_every_mutant_says_who_suffers_what_and_is_there_once() -> None:
    mutants = load()
    assert len(mutants) >= 125
    assert all(one.harm and one.harm == one.harm.strip(" .") for one in mutants)
    assert len({(one.find, one.put, one.module) for one in mutants}) == len(mutants)


def test_a_text_is_found_wherever_it_stands_and_however_it_is_wrapped(tmp_path: Path) -> None:
    placed = place(tree(tmp_path), replace(MUTANT, find="return   value\n > LIMIT"))
    assert placed.path == Path("agent/wirewatch/core/a.py")
    assert "return value >= LIMIT" in placed.text
    assert placed.tests == (Path("tests/node/core/test_a.py"), Path("tests/node/probe/test_a.py"))
    assert place(tmp_path, replace(MUTANT, tests=("core/test_a.py",))).tests == placed.tests[:1]
    assert place(tmp_path, replace(MUTANT, tests=("moved/test_a.py",))).tests == placed.tests


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"find": "return value < LIMIT"}, "found 0 times"),
        ({"find": "LIMIT ="}, "found 2 times"),
        ({"find": "LIMIT =", "module": "nowhere"}, "found 0 times"),
        ({"put": "return value >"}, "no Python"),
        ({"put": "return  value  >  LIMIT"}, "changes nothing"),
        ({"tests": ()}, "names no tests"),
        ({"tests": ("test_gone.py",)}, "there is no test_gone.py"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(tmp_path: Path, change: dict[str, object], words: str) -> None:
    with pytest.raises(Stale, match=f"^limit-off: .*{words}") as error:
        place(tree(tmp_path), replace(MUTANT, **change))  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_a_module_chooses_between_two_places(tmp_path: Path) -> None:
    placed = place(tree(tmp_path), replace(MUTANT, find="LIMIT =", put="LIMIT = 1 +", module="core.b"))
    assert placed.text == "LIMIT = 1 + 4\n"


def test_a_file_that_is_no_python_has_mutants_too(tmp_path: Path) -> None:
    root = tree(tmp_path / "root")
    rule = replace(
        MUTANT, file="deploy/rules.yml", find="a > 3", put="a > 4", tests=("test_rules.py::test_one",)
    )
    placed = place(root, rule)
    assert (placed.text, placed.tests) == ("expr: a > 4\n", (Path("tests/system/test_rules.py::test_one"),))
    copy = Copy(root, tmp_path / "copy")
    assert copy.healthy(placed.tests) == ""
    assert copy.try_one(placed).end is End.KILLED
    assert (root / "deploy/rules.yml").read_text() == FILES["deploy/rules.yml"]
    for change, words in (({"file": "deploy/gone.yml"}, "No such file"), ({"file": ""}, "found 0 times")):
        with pytest.raises(Stale, match=words):
            place(root, replace(rule, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('id = "a"\nharm = "b"\nfind = "c"\n', "missing"),
        ('id = "a"\nharm = "b"\nfind = "c"\nput = "d"\ntests = ["e"]\nwhy = "f"\n', "why"),
    ],
)
def test_an_entry_has_the_fields_that_it_needs_and_no_others(tmp_path: Path, entry: str, words: str) -> None:
    (tmp_path / "x.toml").write_text(f"[[mutant]]\n{entry}")
    with pytest.raises(Stale, match=words):
        load(tmp_path)


def test_one_is_killed_one_survives_and_the_copy_is_as_it_was(tmp_path: Path) -> None:
    root, place_of = tree(tmp_path / "root"), tmp_path / "copy"
    copy = Copy(root, place_of)
    assert copy.healthy([Path("tests/node/core/test_a.py")]) == ""
    survived = copy.try_one(place(root, MUTANT))
    killed = copy.try_one(place(root, replace(MUTANT, put="return value < LIMIT")))
    broken = copy.try_one(place(root, replace(MUTANT, put="return value > NOWHERE")))
    assert [one.end for one in (survived, killed, broken)] == [End.SURVIVED, End.KILLED, End.KILLED]
    assert killed.why == "tests/node/core/test_a.py::test_a"
    assert (place_of / "agent/wirewatch/core/a.py").read_text() == FILES["agent/wirewatch/core/a.py"]


def test_the_page_counts_by_family_and_names_who_lives() -> None:
    told = page([Tried(MUTANT, End.KILLED, "", 1.0), Tried(MUTANT, End.SURVIVED, "", 2.0)])
    assert "| core | 2 | 1 | 1 | 3 |" in told
    assert "- `limit-off`: a fault is not told (survived)" in told


def test_the_newest_note_counts_and_none_of_a_mutant_that_was_changed_since(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    other, changed = replace(MUTANT, id="other"), replace(MUTANT, put="return False")
    for one in (Tried(MUTANT, End.SURVIVED, "", 1.0), Tried(MUTANT, End.KILLED, "test_a", 2.0)):
        note(path, one)
    told = noted(path, [MUTANT, other, changed])
    assert [(one.end, one.seconds) for one in told] == [(End.KILLED, 2.0), (End.ERROR, 0.0), (End.ERROR, 0.0)]
