from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.jobs.tap.playing import memory_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as path:
        yield path
