"""What several files of tests of the daemon need."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from tests.node.daemon.test_service_drift import DRIFT, daemon
from tests.node.hw.children import until
from tests.node.kubernetes.apiserver import ApiServer


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    """An API server with a service account below the test's own folder."""
    with ApiServer(tmp_path / "account") as server:
        yield server


@pytest.fixture(scope="session")
def learned_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder of a daemon that has learned, and ended."""
    folder = tmp_path_factory.mktemp("learned")
    state = folder / "state"
    with daemon(folder) as running:
        running.wait(DRIFT, '"origin":"learned"')
        running.wait("/metrics", "wirewatch_topology_baseline_timestamp_seconds 1")
        until((state / "baseline.json").exists)
        assert running.terminate()[0] == 0
    until((state / "machine.json").exists)
    return state


@pytest.fixture
def learned(tmp_path: Path, learned_once: Path) -> Path:
    """A state folder of the test's own, in which a daemon has learned."""
    return Path(copytree(learned_once, tmp_path / "state"))
