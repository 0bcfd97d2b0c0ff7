"""The sums of the kit's parts `straggler` and `lockstep`, and whom they expect to be named."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from proof.hardware.interference import Step
from proof.hardware.kit import Report
from proof.hardware.lockstep import HEALTHY as SHAPES
from proof.hardware.lockstep import (
    HOPELESS,
    NAMED,
    UnevenTrial,
    hopeless,
    judge_uneven,
    median_between,
    shares,
)
from proof.hardware.lockstep import TRIALS as WATCHED
from proof.hardware.lockstep import Trial as Watched
from proof.hardware.lockstep import judge as judge_watched
from proof.hardware.straggler import COLD, HEALTHY, TRIALS, Case, Trial, judge, named_by, parts
from tests.node.probe.drawn import drawn, on_switch
from wirewatch.verdict.straggler.signals import RateHistory


def trials(how: str, count: int, *, right: bool = True) -> list[Trial]:
    return [Trial("memory 1", how, "ok", ["memory 1"], [0.4], right=right)] * count


GOOD = [
    *trials("own", TRIALS - COLD), *trials("own, cold", COLD),
    *trials("foreign", TRIALS), *trials("forced", TRIALS), *trials("command", 6),
]  # fmt: skip


def judged(folder: Path, made: Sequence[Trial], named: list[str], healthy: int = HEALTHY) -> list[str]:
    """Limits that fail."""
    report = Report("straggler", folder)
    judge(report, list(made), named, healthy, TRIALS)
    return [check["name"] for check in report.checks if not check["ok"]]


def test_all_right_passes(tmp_path: Path) -> None:
    assert judged(tmp_path, GOOD, []) == []


@pytest.mark.parametrize("how", ["own", "own, cold", "foreign", "forced", "command"])
def test_one_wrong_name_or_none_tried_fails(tmp_path: Path, how: str) -> None:
    assert judged(tmp_path, [*GOOD, *trials(how, 1, right=False)], []) == [f"{how}: the right word"]
    without = [trial for trial in GOOD if trial.how != how]
    assert f"{how}: the right word" in judged(tmp_path, without, [])


def test_a_named_part_or_too_few_healthy_probes_fail(tmp_path: Path) -> None:
    assert judged(tmp_path, GOOD, ["pair 0>1"]) == ["healthy: nobody is named"]
    assert judged(tmp_path, GOOD, [], HEALTHY - 1) == ["healthy: nobody is named"]
    assert judged(tmp_path, GOOD[1:], []) == ["own: trials"]


def test_of_a_copy_both_ends_are_expected_and_of_two_gpus_the_pair() -> None:
    assert Case("peer", 0, 1, 2).expected() == ["pair 0>1"]
    assert Case("peer", 3, 4, 8).expected() == ["destination 4", "source 3"]
    assert Case("memory", 3, 4, 8).expected() == ["memory 3"]


def test_parts_are_named_by_index() -> None:
    probed = drawn(on_switch(4), left={"pair 1>3": 0.5, "memory 2": 0.7})
    assert sorted(parts(named_by(probed, RateHistory()), probed)) == ["memory 2", "pair 1>3"]


def test_a_hint_is_right_only_when_it_names_that_gpu_and_no_other() -> None:
    told = {
        right: Watched("sharded", 1, named, 20.0, 5.0).right
        for named, right in ((["1"], "1"), ([], "none"), (["0"], "0"), (["0", "1"], "both"))
    }
    assert told == {"1": True, "none": False, "0": False, "both": False}


def watched(right: int, wrong: int) -> list[Watched]:
    good, bad = Watched("sharded", 1, ["1"], 22.0, 7.5), Watched("sharded", 1, [], None, 0.0)
    return [bad] * wrong + [good] * right


@pytest.mark.parametrize(
    ("right", "wrong", "count", "ok"),
    [(20, 0, WATCHED, True), (NAMED, 1, WATCHED, True), (18, 2, WATCHED, False), (19, 0, WATCHED, False),
     (4, 0, 4, True), (3, 1, 4, False)],
)  # fmt: skip
def test_one_hint_of_twenty_may_be_missing(
    tmp_path: Path, right: int, wrong: int, count: int, *, ok: bool
) -> None:
    report = Report("lockstep", tmp_path)
    judge_watched(report, watched(right, wrong), count)
    assert report.ok == ok


def test_trials_are_shared_out_among_jobs_whose_gpus_do_the_same() -> None:
    assert sum(shares(SHAPES, WATCHED).values()) == WATCHED
    assert shares(["pipeline", "sharded", "data_parallel"], 5) == {
        "pipeline": 0, "sharded": 3, "data_parallel": 2,
    }  # fmt: skip
    assert set(shares(SHAPES, 0).values()) == {0}


def test_a_part_that_names_no_gpu_ends_early() -> None:
    assert not hopeless(watched(0, HOPELESS - 1))
    assert hopeless(watched(0, HOPELESS))
    assert not hopeless([*watched(0, HOPELESS), *watched(1, 0)])
    assert not hopeless([])


def test_fewer_trials_may_have_fewer_without_a_history(tmp_path: Path) -> None:
    made = [*trials("own", 8), *trials("own, cold", 2)]
    report = Report("straggler", tmp_path)
    judge(report, [*made, *(one for one in GOOD if not one.how.startswith("own"))], [], HEALTHY, 10)
    assert report.ok
    judge(report, [*made, *(one for one in GOOD if not one.how.startswith("own"))], [], HEALTHY, 12)
    assert [check["name"] for check in report.checks if not check["ok"]] == ["own: trials"]


def test_steps_are_those_that_lie_wholly_between() -> None:
    steps: list[Step] = [(1.0, 50.0), (2.0, 100.0), (3.0, 300.0), (4.0, 900.0), (5.0, 10.0)]
    assert median_between(steps, 1.5, 4.5) == 300.0


def uneven_failing(folder: Path, *made: UnevenTrial) -> list[str]:
    """Limits that fail."""
    report = Report("lockstep", folder)
    judge_uneven(report, made)
    return [check["name"] for check in report.checks if not check["ok"]]


def test_uneven_work_is_noted_of_the_right_gpu_by_as_much_as_it_was_given(tmp_path: Path) -> None:
    good = UnevenTrial(1, {"1": 0.112}, 11.0, [], 0.07, 6.0)
    assert uneven_failing(tmp_path, good) == []
    assert uneven_failing(tmp_path) == ["a GPU was given more work"]
    its, slow, ends = (
        f"GPU 1: {what}"
        for what in (
            "its work is noted, and how much more it is",
            "nobody is called slow",
            "the note ends with it",
        )
    )
    for noted in ({}, {"0": 0.112}, {"0": 0.1, "1": 0.1}, {"1": 0.04}, {"1": 0.3}):
        assert uneven_failing(tmp_path, replace(good, noted=noted)) == [its]
    assert uneven_failing(tmp_path, replace(good, hints=["1"])) == [slow]
    assert uneven_failing(tmp_path, replace(good, cleared=None)) == [ends]
