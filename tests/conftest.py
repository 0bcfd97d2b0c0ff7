"""Hypothesis asserts no speed here: its deadline is off.

A change is tried on examples that are always the same, so that it fails for what it did and for nothing else;
before a release (`EXAMPLES=1`) new ones are drawn.
"""

import gc
import signal
from collections.abc import MutableSequence
from typing import Any

import pytest
from hypothesis import settings

from tests import processes
from tests.examples import SHARE, examples
from tests.forkserver import read_once
from tests.patience import SLOWNESS
from tests.release import Release
from tests.skips import Skips

settings.register_profile("wirewatch", deadline=None, max_examples=examples(100), derandomize=SHARE < 1)
settings.load_profile("wirewatch")

# What a script starts in its background ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Collection makes values that live to the end: to look for garbage among them takes a third of its time.
gc.disable()

LONG = (
    "tests/node/cli/test_check_hanging.py", "tests/node/daemon/", "tests/proof/",
    "tests/tools/test_blocks.py", "tests/tools/test_faults.py", "tests/tools/test_generated.py",
)  # fmt: skip


def pytest_report_header() -> str:
    """Say by how much deadlines are longer than on a quiet machine."""
    return f"deadlines: {SLOWNESS:.1f} times those of a quiet machine"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Skips())
    config.pluginmanager.register(Release())
    if place := getattr(config, "workerinput", {}).get("forks"):
        processes.call(place)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let a worker report what a test came to, and neither its start and end nor a setup that went well."""
    if session.config.getoption("durations") is None:
        for plugin in session.config.pluginmanager.get_plugins():
            if type(plugin).__name__ == "WorkerInteractor":
                _make_terse(plugin)


def _make_terse(worker: Any) -> None:
    send = worker.sendevent

    def needed(name: str, **given: Any) -> None:
        told = given["data"] if name == "testreport" else {}
        idle = told.get("when") in {"setup", "teardown"} and told["outcome"] == "passed"
        if not idle and name not in {"logstart", "logfinish"}:
            send(name, **given)

    worker.sendevent = needed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All workers call one process, which imports everything once."""
    node.workerinput["forks"] = processes.shared()


def pytest_collection_modifyitems(items: MutableSequence[pytest.Item]) -> None:
    """Long tests first: one that is left for the end runs alone."""
    items[:] = sorted(items, key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection_finish() -> None:
    """What is here by now lives to the end; to look for garbage in it takes a twentieth of all the time."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
    read_once()
