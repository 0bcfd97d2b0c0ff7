"""The times of collectives are those of the table."""

import pytest

from tests.lab.advice import timetable

TABLE = dict(
    part.split("\n", 1) for part in timetable.HERE.read_text("utf-8").removeprefix("# ").split("\n# ")
)


def test_the_table_has_every_machine() -> None:
    assert list(TABLE) == [name for name, *_ in timetable.machines()]


@pytest.mark.parametrize("name", TABLE)
def test_times_are_those_of_the_table(name: str) -> None:
    """To four digits; after a change that was meant: `make generated`, and read the difference."""
    assert timetable.block(name) == TABLE[name].rstrip("\n") + "\n"
