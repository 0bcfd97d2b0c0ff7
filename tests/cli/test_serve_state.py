"""`wirewatch serve` and its state folder: one agent a folder."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from wirewatch.cli import serve as command
from wirewatch.config import Config, StateSection
from wirewatch.probe.statefolder import StateError

opened = vars(command)["_state"]


def test_a_second_agent_does_not_begin_on_the_same_folder_until_the_first_has_ended(tmp_path: Path) -> None:
    config = Config(state=StateSection(directory=str(tmp_path)))
    with ExitStack() as first:
        assert opened(config, None, first) is not None
        with ExitStack() as second, pytest.raises(StateError, match="another agent keeps its state in"):
            opened(config, None, second)
    with ExitStack() as third:
        assert opened(config, None, third) is not None


def test_a_recording_has_no_state_unless_it_is_given_a_folder(tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert opened(Config(), "h200x8", stack) is None
        assert opened(Config(state=StateSection(directory=str(tmp_path))), "h200x8", stack) is not None
