"""The part that replaces agents under a job, without a GPU: what it reads and how it waits."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof.hardware.kit import KitError
from proof.hardware.upgraded import OTHER, counts_of, numbers, other_version, until
from tests.node.jobs.ringfiles import RingWriter, Written

DOCUMENT = {"jobs": [{"missed": 3, "of": {"missed": 4.5}}, {"missed": None, "joined": 7}], "missed": "many"}


@pytest.mark.parametrize(("key", "total"), [("missed", 7.5), ("joined", 7), ("absent", 0)])
def test_numbers_are_found_wherever_they_stand(key: str, total: float) -> None:
    assert sum(numbers(DOCUMENT, key)) == total


def test_an_answer_is_waited_for_and_its_absence_is_said() -> None:
    answers = iter(["", "", "named"])
    found, after = until(lambda: next(answers), 60.0)
    assert (found, after < 60.0) == ("named", True)
    assert until(lambda: "", 0.0) == ("", math.inf)


def test_every_ring_is_counted_as_a_new_reader_finds_it(tmp_path: Path) -> None:
    with RingWriter(tmp_path / "a.ring") as ring:
        ring.counter(2, 5)
        for _ in range(3):
            ring.put(Written())
        assert counts_of(tmp_path) == {"a.ring": (5, 3)}
    with pytest.raises(KitError):
        counts_of(tmp_path / "none")


def test_the_agent_after_an_upgrade_has_another_version() -> None:
    before = os.environ.get("PYTHONPATH")
    with other_version():
        line = [sys.executable, "-m", "wirewatch", "--version"]
        said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert OTHER in said
    assert os.environ.get("PYTHONPATH", "") == (before or "")
