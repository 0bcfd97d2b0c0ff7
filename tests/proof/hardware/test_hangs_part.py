"""The kit's part `hangs`: what counts as right, what as tried, and where it looks for findings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proof.hardware import hangs
from proof.hardware.hangs import HEALTHY, HUNG, SCENARIOS, HangTrial, hangs_in, judge, settled, watch
from proof.hardware.kit import KitError, Report
from wirewatch.jobs.hangs.judge import RULES


def good(scenario: str) -> HangTrial:
    if scenario in HEALTHY:
        return HangTrial(scenario, "")
    rule, who = HUNG[scenario]
    gpu = "1" if who == "culprit" else ""
    return HangTrial(scenario, gpu, rule, gpu, 21.0)


def judged(folder: Path, trials: Sequence[HangTrial], count: int = 1) -> list[str]:
    """Limits that fail."""
    report = Report("hangs", folder)
    judge(report, trials, SCENARIOS, count)
    return [check["name"] for check in report.checks if not check["ok"]]


ALL = [good(scenario) for scenario in SCENARIOS]
RIGHT = "the right kind and culprit, or nothing"


def test_all_right_passes(tmp_path: Path) -> None:
    assert len(SCENARIOS) == 8
    assert judged(tmp_path, ALL) == []


def test_rules_that_are_looked_for_are_those_of_the_collector() -> None:
    assert {rule for rule, _ in HUNG.values()} <= {rule.name for rule in RULES}


@pytest.mark.parametrize(
    "wrong",
    [
        HangTrial("stop", "1"),
        HangTrial("stop", "1", "hangs.stopped", "0", 20.0),
        HangTrial("skip", "1", "hangs.asymmetric", "1", 20.0, ["hangs.symmetric"]),
        HangTrial("stuck", "", "hangs.symmetric", "1", 20.0),
        HangTrial("checkpoint", "", seen=["hangs.asymmetric"]),
        HangTrial("idle", "", seen=["hangs.suspected"]),
    ],
)
def test_another_kind_another_gpu_or_a_finding_too_many_is_wrong(tmp_path: Path, wrong: HangTrial) -> None:
    rest = [trial for trial in ALL if trial.scenario != wrong.scenario]
    assert judged(tmp_path, [*rest, wrong]) == [RIGHT]


def test_a_scenario_that_was_not_tried_fails(tmp_path: Path) -> None:
    assert judged(tmp_path, ALL[1:]) == ["stop: tried"]
    assert RIGHT in judged(tmp_path, [])


def test_of_twenty_four_one_may_be_wrong(tmp_path: Path) -> None:
    bad = HangTrial("stop", "1")
    assert judged(tmp_path, [*ALL[1:], bad, *ALL, *ALL], 3) == []
    assert judged(tmp_path, [*ALL[1:], bad, *ALL[1:], bad, *ALL], 3) == [RIGHT]


class Shown:
    """A daemon that shows this, one list of findings a look, the last one for ever."""

    def __init__(self, *shown: list[dict[str, Any]]) -> None:
        self._shown = list(shown)
        self._asked = 0.0

    def findings(self) -> list[dict[str, Any]]:
        self._asked += 1
        return self._shown.pop(0) if len(self._shown) > 1 else self._shown[0]

    def looks(self) -> float:
        return self._asked


def finding(rule: str, **subject: str) -> dict[str, Any]:
    return {"rule": rule, "evidence": f"of {rule}", "subject": subject}


def test_what_is_looked_for_ends_the_look_and_what_came_before_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hangs, "LOOK", 0.0)
    trial = HangTrial("skip", "1")
    watch(Shown([], [finding("hangs.suspected")], [finding("hangs.asymmetric", gpu="1")]), trial, 60.0)
    assert (trial.found, trial.named, trial.seen) == ("hangs.asymmetric", "1", ["hangs.suspected"])
    assert not trial.right


def test_a_healthy_job_is_looked_at_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangs, "LOOK", 0.0)
    trial = HangTrial("idle", "")
    watch(Shown([]), trial, 0.05)
    assert trial.right
    assert trial.looks > 1


def test_a_finding_that_stays_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangs, "LOOK", 0.0)
    with pytest.raises(KitError, match="still found"):
        settled(Shown([finding("hangs.stopped")]), 0.05)
    settled(Shown([finding("hangs.stopped")], []), 60.0)


def test_only_findings_of_hangs_are_looked_at() -> None:
    found = [finding("hangs.stopped"), finding("gpu.lost")]
    assert hangs_in({"findings": found}) == found[:1]
    with pytest.raises(KitError, match="not findings"):
        hangs_in({"detail": "Not Found"})
