"""The list of mutants, and where each of them stands in the tree today.

Neither modules nor tests are named by their folder: both are found by searching, so that the list outlives
moves. Whitespace in a searched text matches any whitespace.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

LIST = Path(__file__).parent / "list"
SOURCE, TESTS = Path("agent"), Path("tests")
ELSEWHERE = frozenset({"system", "proof"})
"""Folders of tests that are not of the agent alone."""


class Stale(Exception):
    """The list does not fit the tree; the text is one line."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault. `harm`: what a user would suffer.

    `find` stands once in all modules, or once in those whose dotted name contains `module`; `put` replaces
    it. `tests`: names of test files that must notice, such as `test_gate.py`; with a folder, such as
    `core/test_component.py`, where several have one of that name. `file`: instead of all modules, one file
    that is no Python, such as a template of the chart; `tests` may then be of tests/system, and single
    ones, such as `test_chart.py::test_numbers`.
    """

    family: str
    id: str
    harm: str
    find: str
    put: str
    tests: tuple[str, ...]
    module: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """A mutant in today's tree: the file, its mutated text, and the test files, all relative to the root."""

    mutant: Mutant
    path: Path
    text: str
    tests: tuple[Path, ...]


def load(folder: Path = LIST) -> tuple[Mutant, ...]:
    """All mutants, by file and in the files' order.

    Raises:
        Stale: an entry lacks a field, has one too many, or its id is taken.
    """
    made = [_mutant(path.stem, one) for path in sorted(folder.glob("*.toml")) for one in _entries(path)]
    ids = [one.id for one in made]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise Stale(f"an id is there twice: {', '.join(twice)}")
    return tuple(made)


def _entries(path: Path) -> Sequence[Mapping[str, object]]:
    entries = tomllib.loads(path.read_text("utf-8")).get("mutant", [])
    assert isinstance(entries, list)
    return entries


def _mutant(family: str, entry: Mapping[str, object]) -> Mutant:
    tests = entry.get("tests", ())
    texts = {name: value for name, value in entry.items() if isinstance(value, str)}
    try:
        return Mutant(family=family, tests=tuple(tests), **texts)  # type: ignore[arg-type]
    except TypeError as error:
        raise Stale(f"{family}: {entry.get('id', 'an entry without an id')}: {error}") from error


@cache
def sources(root: Path) -> Mapping[Path, str]:
    """The agent's modules by path relative to the root."""
    found = sorted((root / SOURCE).rglob("*.py"))
    return {path.relative_to(root): path.read_text("utf-8") for path in found}


@cache
def files_of_tests(root: Path, *, system: bool = False) -> Mapping[str, tuple[Path, ...]]:
    """Test files by their name, several folders may have one of the same.

    `system`: those that need other packages too.
    """
    found: dict[str, tuple[Path, ...]] = {}
    for path in sorted((root / TESTS).rglob("test_*.py")):
        if system or not ELSEWHERE & set(path.relative_to(root).parts):
            found[path.name] = (*found.get(path.name, ()), path.relative_to(root))
    return found


def place(root: Path, mutant: Mutant) -> Placed:
    """The mutant in today's tree.

    Raises:
        Stale: its text or its tests are not there, the text is there more than once, or the result is no
            Python.
    """
    among = _file(root, mutant) if mutant.file else sources(root)
    path, match = _found(mutant, among)
    before = among[path]
    text = before[: match.start()] + mutant.put.strip() + before[match.end() :]
    if text == before or text.split() == before.split():
        raise Stale(f"{mutant.id}: changes nothing")
    if mutant.file:
        return Placed(mutant, path, text, tuple(_tests(root, mutant)))
    first, last = _statements(before, match.start(), match.end())
    try:
        ast.parse(text[first : last + len(text) - len(before)])
    except SyntaxError as error:
        raise Stale(f"{mutant.id}: no Python: {error}") from error
    return Placed(mutant, path, text, tuple(_tests(root, mutant)))


def _file(root: Path, mutant: Mutant) -> Mapping[Path, str]:
    try:
        return {Path(mutant.file): (root / mutant.file).read_text("utf-8")}
    except OSError as error:
        raise Stale(f"{mutant.id}: {mutant.file}: {error.strerror}") from error


def _found(mutant: Mutant, among: Mapping[Path, str]) -> tuple[Path, re.Match[str]]:
    """Where its text stands; raises Stale unless that is one place."""
    words = mutant.find.split()
    form, rarest = re.compile(r"\s+".join(map(re.escape, words))), max(words, key=len)
    likely = [(path, text) for path, text in among.items() if rarest in text]
    found = [(path, match) for path, text in likely for match in form.finditer(text)]
    if len(found) > 1 and mutant.module:
        found = [one for one in found if mutant.module in ".".join(one[0].with_suffix("").parts)]
    if len(found) != 1:
        where = f" ({', '.join(sorted({str(path) for path, _ in found}))})" if found else ""
        raise Stale(f"{mutant.id}: its text is found {len(found)} times{where}: {mutant.find[:60]!r}")
    return found[0]


def _statements(text: str, start: int, end: int) -> tuple[int, int]:
    """From where to where the outermost statements reach that hold a part of a text: the rest is Python."""
    bounds = _outermost(text)
    first = max((at for at in bounds if at <= start), default=0)
    return first, min((at for at in bounds if at >= end), default=len(text))


@cache
def _outermost(text: str) -> tuple[int, ...]:
    """Where each outermost statement begins."""
    lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    body = ast.parse(text).body
    decorated = (getattr(one, "decorator_list", []) for one in body)
    return tuple(
        lines[min([one.lineno, *(each.lineno for each in above)]) - 1]
        for one, above in zip(body, decorated, strict=True)
    )


def _tests(root: Path, mutant: Mutant) -> Iterator[Path]:
    if not mutant.tests:
        raise Stale(f"{mutant.id}: names no tests")
    for name in mutant.tests:
        whole, colons, single = name.partition("::")
        folder, _, file = whole.rpartition("/")
        paths = files_of_tests(root, system=bool(mutant.file)).get(file, ())
        if not paths:
            raise Stale(f"{mutant.id}: there is no {name}")
        for path in [path for path in paths if folder in path.parts] or paths:
            yield Path(f"{path}{colons}{single}")
