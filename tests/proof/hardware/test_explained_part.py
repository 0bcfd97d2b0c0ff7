"""The kit's part `explained`: what it takes for right, and that what is missing is not."""

from pathlib import Path
from typing import Any

import pytest

from proof.hardware.explained import CASES, ExplainCase, explained, right, watched
from proof.hardware.kit import KitError
from tests.node.jobs.explain.test_walls import CAUSES
from wirewatch.jobs.explain.evidence import Wall

LATE = ExplainCase("late rank", "data_parallel", Wall.LATE_RANK, ("rank 1",))


def document(wall: Wall, sentence: str, *causes: str) -> dict[str, Any]:
    answer = {"wall": wall.value, "sentence": sentence, "causes": list(causes), "because": []}
    return {"sentence": sentence, "answer": answer}


def test_the_wall_and_its_words_are_right_and_another_rank_is_not() -> None:
    assert right(LATE, document(Wall.LATE_RANK, "Collectives: 1 of 2 ranks wait for rank 1"))
    assert not right(LATE, document(Wall.LATE_RANK, "Collectives: 1 of 2 ranks wait for rank 0"))
    assert not right(LATE, document(Wall.HOST, "Host: wait for rank 1"))


def test_a_line_that_comes_later_is_right_and_what_was_said_before_is_kept() -> None:
    shown = iter([
        document(Wall.NOT_KNOWN, "Not known"), document(Wall.HOST, "Host"),
        document(Wall.LATE_RANK, "rank 1"),
    ])  # fmt: skip
    trial = watched(lambda: next(shown), LATE, 60.0, 0.0)
    assert trial.after is not None
    assert (trial.others, trial.sentence) == (["host"], "rank 1")


def test_a_line_that_never_comes_is_none() -> None:
    assert watched(lambda: document(Wall.NOTHING, "No wall"), LATE, 0.01, 0.0).after is None


def test_each_cause_that_tests_draw_is_made_on_gpus_but_a_throttled_one() -> None:
    drawn = {wall for wall, _ in CAUSES.values()}
    assert drawn == {case.wall for case in CASES}
    assert len(CASES) >= len(CAUSES) - 1
    assert len({case.name for case in CASES}) == len(CASES)


def test_without_a_daemon_the_part_fails(tmp_path: Path) -> None:
    with pytest.raises(KitError, match=r"explain 1: 3: .*is the daemon running"):
        explained(f"{tmp_path}/w.sock", 1)
