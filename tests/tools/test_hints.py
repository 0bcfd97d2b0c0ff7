"""Hints: every command that the program says to type is a command, and runs where it is a whole one."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rows import each
from tests.tools.blocks import ROOT, simple, wrong
from tests.tools.examples import lasts, play
from tests.tools.test_examples import VERDICTS, staged
from wirewatch.core.extras import EXTRAS, install

HINT = re.compile(r"`(wirewatch [a-z][^`]*)`")
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z0-9_.]+\b|\bX\b|\.\.\.")
"""A word in capitals stands for something: ID, TEXT, FILE."""
ALONE = re.compile(
    r"wirewatch (check|status|findings( list)?|topology( show| diff| baseline)?|demo (overlays|recordings)"
    r"|jobs status|release (--for \w+|--end)|config show|top --once|probe)$"
)
"""Hints that say a whole command, which can run beside any daemon."""


def texts(path: Path) -> Iterator[str]:
    """The texts of a module but its own description of itself; of another file, all of it."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def hints() -> dict[str, str]:
    """Every command in backticks of what the program says, with the file that says it."""
    found: dict[str, str] = {}
    for folder in ("wirewatch", "wirewatch_lab", "wirewatch_fleet"):
        for path in sorted((ROOT / "agent" / folder).rglob("*")):
            if path.suffix in {".py", ".j2", ".html", ".toml"} or path.name == "reasons.json":
                for text in texts(path):
                    for hint in HINT.findall(" ".join(text.split())):
                        found.setdefault(hint, str(path.relative_to(ROOT)))
    return found


EVERY = hints()


def test_the_words_of_hints_are_right() -> None:
    told = []
    for hint, path in EVERY.items():
        line = re.sub(r"\[(-[^]]*)\]", r"\1", re.sub(r"\{\{.*?\}\}", "X", hint))
        told += [f"{path}: {hint}: {why}" for words in simple(line) if (why := wrong(words))]
    # In a sentence an option may stand without its value, and a command without its arguments.
    assert not [one for one in told if "requires" not in one and "Missing" not in one]
    assert len(EVERY) > 40


def test_hints_that_are_whole_commands_run_as_they_stand(tmp_path: Path) -> None:
    """Beside the daemon of a node with a link down, as an operator reads them."""
    lines = [hint for hint in sorted(EVERY) if ALONE.match(hint) and not PLACEHOLDER.search(hint)]
    assert len(lines) > 8
    assert not [line for line in lines if lasts(line.split())]
    with staged(tmp_path, "--replay", "demo-dgx-h200", "--overlay", "nvlink-link-down") as environment:
        ended = [(line, *play(line, tmp_path / "home", environment)) for line in lines]
    assert not [one for one in ended if one[1] not in VERDICTS], ended


@each("extra", EXTRAS)
def test_a_hint_of_an_extra_names_what_pyproject_names(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert list(EXTRAS[extra]) == project["optional-dependencies"][extra]
    assert install(extra).startswith("pip install ")


@pytest.mark.parametrize("name", ["agent", "docs"])
def test_nobody_is_sent_to_an_index_that_has_no_wirewatch(name: str) -> None:
    """A name that nobody owns may be somebody's tomorrow."""
    index = re.compile(r"pip install '?\"?wirewatch\b(?![./-])")
    files = [one for one in (ROOT / name).rglob("*") if one.suffix in {".py", ".md", ".json", ".j2"}]
    assert len(files) > 20
    pages = [one for one in files if "adr" not in one.parts]
    assert not [str(one) for one in pages if index.search(one.read_text("utf-8"))]
