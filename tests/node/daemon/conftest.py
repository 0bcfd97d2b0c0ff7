"""What several files of tests of the daemon need."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.kubernetes.apiserver import ApiServer


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    """An API server with a service account below the test's own folder."""
    with ApiServer(tmp_path / "account") as server:
        yield server
