"""Each test reads lines and names anew: a line that an earlier one has read would not be read again."""

import pytest

from wirewatch.nccl import lines, variables


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    lines.fact.cache_clear()
    variables._variables.cache_clear()  # noqa: SLF001
