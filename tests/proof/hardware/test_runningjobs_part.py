"""The kit's part `runningjobs`: what it takes for right, and that what is missing is not."""

from pathlib import Path
from typing import Any

import pytest

from proof.hardware import runningjobs
from proof.hardware.kit import KitError, Report
from proof.hardware.runningjobs import JobTrial, judge, slow_wires, walls, watch


def answer(wall: str, sentence: str, *causes: str) -> dict[str, Any]:
    return {"wall": wall, "sentence": sentence, "causes": list(causes), "because": []}


LATE = answer("late rank", "Waiting: GPU 1 is late")
WIRE = answer("slow wire", "Slow: 25 of 340 GB/s", "NCCL_P2P_DISABLE=1")


def test_the_right_gpu_is_right_and_another_is_not() -> None:
    assert watch(lambda: [LATE], "late", "late rank", ["GPU 1"], 1.0).right
    assert not watch(lambda: [LATE], "late", "late rank", ["GPU 0"], 0.0).right


def test_a_late_rank_that_was_called_wire_on_the_way_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runningjobs, "LOOK", 0.0)
    shown = iter([[WIRE], [LATE]])
    trial = watch(lambda: next(shown), "late", "late rank", ["GPU 1"], 60.0)
    assert (trial.right, trial.others, trial.after is not None) == (False, ["slow wire"], True)


def test_nothing_said_is_wrong() -> None:
    assert watch(list, "P2P off", "slow wire", [], 0.0).after is None


def test_a_document_without_jobs_is_none() -> None:
    with pytest.raises(KitError, match="not a document"):
        walls({"detail": "Not Found"})


@pytest.mark.parametrize(("rights", "good"), [([True, True], True), ([True, False], False), ([True], False)])
def test_a_trial_that_is_missing_fails(tmp_path: Path, rights: list[bool], *, good: bool) -> None:
    report = Report("runningjobs", tmp_path)
    late = [JobTrial("late, x", 1.0 if right else None, [], "") for right in rights]
    judge(report, [*late, *(JobTrial("Tree", 1.0, [], "") for _ in range(2))], {"late": 2, "wire": 2})
    assert [check["ok"] for check in report.checks] == [good, True]


def test_tree_is_a_slow_wire_between_more_than_two_gpus_alone() -> None:
    assert slow_wires(2, None) == ["P2P off", "LL"]
    assert slow_wires(4, None) == slow_wires(4, ["ddp"]) == ["P2P off", "Tree", "LL"]
    assert slow_wires(4, ["Tree", "ddp"]) == ["Tree"]
