"""docs/runbook.md as it is read by its tests: entries with the rules that they name and their points."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from wirewatch.core.declared import RULE
from wirewatch.hw.overlay import bundled_overlays

PAGE = Path(__file__).parents[1] / "docs" / "runbook.md"
LABELS = ("Means", "How bad", "Look at", "Do", "After", "Rehearse")


@dataclass(frozen=True)
class Entry:
    """One `###` of the page: the rules it names, its points by label, and all its text in one line."""

    title: str
    names: frozenset[str]
    points: Mapping[str, str]
    text: str

    def has(self, rule: str) -> bool:
        return any(fnmatchcase(rule, name) for name in self.names)

    @property
    def overlays(self) -> list[str]:
        """Bundled faults to rehearse it with, or the like of it."""
        return [name for name in code(self.points["Rehearse"]) if name in bundled_overlays()]

    @property
    def like(self) -> bool:
        """Whether no fault that is bundled makes its rules."""
        return self.points["Rehearse"].startswith("no overlay")


def code(text: str) -> list[str]:
    """Whatever stands in backticks."""
    return re.findall(r"(?<!`)`([^`]+)`(?!`)", text)


@cache
def page() -> str:
    return PAGE.read_text("utf-8")


@cache
def entries() -> tuple[Entry, ...]:
    return entries_in(page())


def entries_in(text: str) -> tuple[Entry, ...]:
    """Return the entries of this text of the page."""
    parts = re.split(r"^#{2,3} ", text, flags=re.MULTILINE)[1:]
    return tuple(_entry(part) for part in parts if "\n- **Means:**" in part)


def entry_of(rule: str) -> Entry:
    """The entry that names the rule itself, else one for its kind."""
    exact = [one for one in entries() if rule in one.names]
    return (exact or [one for one in entries() if one.has(rule)])[0]


def _entry(part: str) -> Entry:
    head, *points = re.split(r"^- (?=\*\*)", part, flags=re.MULTILINE)
    points_of = {label: " ".join(text.split()) for label, text in map(_point, points)}
    names = frozenset(name for name in code(head) if RULE.fullmatch(name))
    return Entry(part.partition("\n")[0], names, points_of, " ".join(part.split()))


def _point(text: str) -> tuple[str, str]:
    label, _, rest = text.removeprefix("**").partition(":**")
    return label, rest.partition("\n\n")[0]
