"""A plugin of pytest that measures CPU seconds of tests and of pytest's processes: see tools/suite.py."""

import json
import os
import resource
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

PLACE = "WIREWATCH_SUITE"
"""The environment variable with the file to which the figures are written."""
TICKS = os.sysconf("SC_CLK_TCK")


class Costs:
    """Measures the CPU seconds of pytest's processes, part by part, and of each test."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.tests: dict[str, tuple[float, float]] = {}
        """Of each, the process itself and others."""
        self.workers: list[dict[str, Any]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        self.parts["start"] = time.process_time()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self.parts["collection"] = time.process_time() - self.parts["start"]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        own, others = time.process_time(), descendants()
        try:
            return (yield)
        finally:
            self.tests[item.nodeid] = (time.process_time() - own, descendants() - others)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.workers.append(node.workeroutput["costs"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["costs"] = self._own()
        else:
            place = Path(os.environ[PLACE])
            place.write_text(json.dumps(self._all() if self.workers else self._own()), "utf-8")

    def _own(self) -> dict[str, Any]:
        """The figures of this process."""
        forking = sum(cpu(pid)[0] for pid in forkserver())
        bodies, others = (sum(cost[part] for cost in self.tests.values()) for part in (0, 1))
        between = time.process_time() - sum(self.parts.values()) - bodies
        tests = {"bodies": bodies, "children": others - forking, "forkservers": forking}
        return {"parts": {**self.parts, **tests, "between tests": between}, "tests": self.tests}

    def _all(self) -> dict[str, Any]:
        """The figures of all workers, and of this process, which hands out the tests."""
        names = self.workers[0]["parts"]
        parts = {name: sum(worker["parts"][name] for worker in self.workers) for name in names}
        tests = {name: cost for worker in self.workers for name, cost in worker["tests"].items()}
        parts["forkservers"] += sum(cpu(pid)[0] for pid in forkserver())
        return {"parts": {**parts, "controller": time.process_time()}, "tests": tests}


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs())


def descendants() -> float:
    """Return the seconds of what this process started: what ended, and what forks, with its children."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(cpu(pid)[0] + cpu(pid)[1] for pid in forkserver())


def forkserver() -> list[int]:
    """Return the processes that fork this one's commands, as far as they were started."""
    processes = sys.modules.get("tests.processes")
    if processes is None:
        return []
    called = [processes.server().pid] if processes.server.cache_info().currsize else []
    return [*called, *processes.started]


def cpu(pid: int) -> tuple[float, float]:
    """Return the seconds that a process took, and those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS, (int(fields[13]) + int(fields[14])) / TICKS
