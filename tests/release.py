"""Tests of which a change runs some cases alone, and a release all: release.toml has which and why.

`RELEASE=1` runs all cases, and so does `EXAMPLES=1`. So does a name with `::` on pytest's command line.
"""

import os
import tomllib
from collections import defaultdict
from collections.abc import Mapping, MutableSequence, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.examples import SHARE

ALL = bool(os.environ.get("RELEASE")) or SHARE >= 1
"""True in a run before a release."""
LISTED = Path(__file__).with_name("release.toml")
Values = frozenset[tuple[str, int]]
"""The value of each parameter of a case, by its identity."""
NONE = SimpleNamespace(params={})


@cache
def cases() -> Mapping[str, int]:
    """How many cases a change runs of each listed test; none of those that a release alone runs."""
    listed = tomllib.loads(LISTED.read_text("utf-8"))
    return {**listed["cases"], **dict.fromkeys(listed["release"], 0)}


def chosen(values: Sequence[Values], most: int) -> set[int]:
    """Choose at most so many of a test's cases.

    Each takes the most values of parameters that no other has yet; among equals they are spread evenly, from
    the first on.
    """
    spread = dict.fromkeys(place * len(values) // most for place in range(most)) if most else {}
    left = [*spread, *(place for place in range(len(values)) if place not in spread)]
    seen: set[tuple[str, int]] = set()
    found: set[int] = set()
    while len(found) < min(most, len(values)):
        best = max(left, key=lambda place: len(values[place] - seen))
        left.remove(best)
        found.add(best)
        seen |= values[best]
    return found


class Release:
    """Leaves to a release what the list says, and counts it in the last lines of the run."""

    def __init__(self) -> None:
        self.left = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: MutableSequence[pytest.Item]
    ) -> None:
        if ALL or any("::" in word for word in config.args):
            return
        tests: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            tests[item.nodeid.partition("[")[0]].append(item)
        gone = [item for name, most in cases().items() for item in _left(tests.get(name, ()), most)]
        left = set(gone)
        items[:] = [item for item in items if item not in left]
        self.left = len(gone)
        config.hook.pytest_deselected(items=gone)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["left"] = self.left

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.left = getattr(node, "workeroutput", {}).get("left", self.left)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left:
            terminalreporter.write_line(f"{self.left} cases are left to a release; RELEASE=1 runs them too")


def _left(items: Sequence[pytest.Item], most: int) -> list[pytest.Item]:
    values = [
        frozenset((name, id(value)) for name, value in getattr(item, "callspec", NONE).params.items())
        for item in items
    ]
    kept = chosen(values, most)
    return [item for place, item in enumerate(items) if place not in kept]
