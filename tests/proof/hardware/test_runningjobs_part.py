"""The kit's part `runningjobs`: what it takes for right, and that what is missing is not."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proof.hardware import runningjobs
from proof.hardware.kit import KitError, Report
from proof.hardware.runningjobs import HealthySeen, JobTrial, judge, slow_wires, walls, watch
from proof.hardware.scrape import Scrape
from tests.rows import each


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


JUDGED = """
wirewatch_job_busbw_bytes_per_second{op="all_reduce"} 2.5e11
wirewatch_gpu_sm_busy_ratio{gpu="0"} 0.9
wirewatch_collector_success{collector="lockstep"} 1
wirewatch_collector_last_success_timestamp_seconds{collector="lockstep"} 1000
"""
MISSING = {"rule": "gpu.missing", "health": "failed", "evidence": "one of two"}
HANGS = {"rule": "hangs.symmetric", "health": "degraded", "evidence": "nothing moves"}


@each(
    ("answers", "findings", "more", "named"),
    [
        ([answer("nothing", "No wall of this node")], [MISSING], "", set()),
        ([LATE], [], "", {"Waiting: GPU 1 is late"}),
        ([], [HANGS], "", {"hangs.symmetric: nothing moves"}),
        ([], [], 'wirewatch_straggler_hint{gpu="1"} 1\n', {"straggler_hint: GPU 1"}),
        ([], [], 'wirewatch_job_uneven_work_ratio{gpu="1"} 0.1\n', {"job_uneven_work_ratio: GPU 1"}),
    ],
)
def test_whatever_accuses_a_healthy_job_is_kept(
    answers: list[dict[str, Any]], findings: list[dict[str, Any]], more: str, named: set[str]
) -> None:
    seen = HealthySeen()
    seen.add(answers, findings, Scrape(JUDGED + more))
    assert (seen.named, seen.good) == (named, not named)


@pytest.mark.parametrize("line", JUDGED.strip().splitlines()[:4])
def test_a_healthy_job_that_nobody_looked_at_is_not_good(line: str) -> None:
    seen = HealthySeen()
    seen.add([], [], Scrape(JUDGED.replace(line, "")))
    assert not seen.good


def test_a_job_hits_no_wall_where_every_answer_says_so_and_there_was_one() -> None:
    def unwalled(*walls: str) -> bool:
        return HealthySeen(walls=Counter(walls)).unwalled

    assert (unwalled(), unwalled("nothing"), unwalled("nothing", "host")) == (False, True, False)
    assert (unwalled("nothing", "nothing", "not known"), unwalled("nothing", "not known")) == (True, False)
