"""The tests that run a line: a plugin that records them, and the reader of its records.

`coverage` writes the lines with the test as context, in the process of the test and in those that it starts.
The plugin adds the seconds of each test.
"""

import json
import os
from collections.abc import Generator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

import pytest
from coverage import CoverageData

from tools.mutants.site import Site

SETTINGS = """\
[run]
source = wirewatch,wirewatch_lab,wirewatch_fleet
parallel = true
patch = subprocess,_exit
context = ${WIREWATCH_TEST-}
data_file = %s
"""
TEST = "WIREWATCH_TEST"
"""The test that runs now, for processes that it starts."""
SECONDS = "WIREWATCH_TEST_SECONDS"
"""File to which the seconds of each test go, in lines of JSON."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Say in the environment which test runs."""
    os.environ[TEST] = item.nodeid
    try:
        return (yield)
    finally:
        del os.environ[TEST]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the seconds of a test that passed; each process of xdist notes its own."""
    path = os.environ.get(SECONDS)
    if path and report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" in os.environ:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, round(report.duration, 4)]) + "\n")


class Record:
    """A run of the suite: the tests that ran a line of a file, and the seconds of each test."""

    def __init__(self, data: Path, seconds: Path) -> None:
        """Read both files.

        Raises:
            OSError: There is no such record.
        """
        lines = [json.loads(line) for line in seconds.read_text("utf-8").splitlines()]
        self.seconds: Mapping[str, float] = dict(lines)
        self._data = CoverageData(basename=str(data))
        self._data.read()
        self._files = {_below(name): name for name in self._data.measured_files()}
        self._of = cache(self._read)

    def tests(self, site: Site) -> AbstractSet[str]:
        """Return the tests that run its first line; of a line that runs at import, those of its module."""
        lines = self._of(site.path)
        here = lines.get(site.line, set())
        return here or (set().union(*lines.values()) if "." not in site.where and lines else set())

    def _read(self, path: str) -> Mapping[int, AbstractSet[str]]:
        name = self._files.get(path)
        of_lines = self._data.contexts_by_lineno(name) if name else {}
        return {
            line: {context.partition("|")[0] for context in contexts if context} & self.seconds.keys()
            for line, contexts in of_lines.items()
        }


def _below(name: str) -> str:
    """Return the path below the root of the tree."""
    return "agent/" + name.rpartition("/agent/")[2]
