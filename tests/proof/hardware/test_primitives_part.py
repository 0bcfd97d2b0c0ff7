"""The kit's part `primitives`: what it takes for whole and right, and that one failure loses nothing else."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proof.hardware.kit import KitError, Report
from proof.hardware.primitives import (
    DEADLINE,
    FIRST,
    OFFERED,
    ORACLE,
    SIZE,
    Asked,
    Oracle,
    every,
    judge,
    parity,
)
from proof.hardware.probing import Probing
from wirewatch.core.probe import (
    ALLTOALL,
    GATHER,
    PRIMITIVES,
    PROBED_SCHEMA,
    REDUCE,
    Case,
    Outcome,
    Plan,
    Probed,
    Timed,
)

RIGHT = Timed(0, "", 0, "stream", 20, 26, 1e-3, 1e-3, 1e-3, 1e-3, 0)


class Machine:
    """Two GPUs; a probe ends as `breaks` says before its first case of one of these primitives."""

    def __init__(
        self, report: Report, breaks: dict[str, Outcome] | None = None, changes: dict[str, Any] | None = None
    ) -> None:
        self.report, self.gpus = report, (SimpleNamespace(), SimpleNamespace())
        self._breaks, self._changes = breaks or {}, changes or {}
        self.ran: list[tuple[str, tuple[str, ...]]] = []
        self.deadlines: list[float] = []

    def run(
        self, what: str, *, engine: str, cases: tuple[Case, ...], deadline: float,
        heard: Callable[[Timed], None], **_plan: object,
    ) -> Probed:  # fmt: skip
        self.deadlines.append(deadline)
        self.ran.append((what, tuple(case.op for case in cases)))
        outcome: Outcome = "ok"
        for one in cases:
            if one.op in self._breaks:
                outcome = self._breaks[one.op]
                break
            heard(replace(RIGHT, op=one.op, size_bytes=one.size_bytes, **self._changes))
        plan = Plan(engine, ("a", "b"), ((0, 1),), cases=cases)
        return Probed(
            schema=PROBED_SCHEMA, at=0.0, by="command", forced=False, outcome=outcome,
            why="" if outcome == "ok" else "NCCL says no", plan=plan, gpus=(), conditions=(), settings={},
            seconds=1.0, held_seconds=1.0,
        )  # fmt: skip


def asked(
    folder: Path, breaks: dict[str, Outcome] | None = None, **changes: Any
) -> tuple[Asked, Machine, Report]:
    report = Report("primitives", folder)
    machine = Machine(report, breaks, changes)
    return Asked(cast("Probing", machine)), machine, report


def failed(report: Report) -> list[str]:
    return [check["name"] for check in report.checks if not check["ok"]]


@pytest.mark.parametrize(("outcome", "again"), [("failed", 3), ("garbage", 3), ("timeout", 1)])
def test_a_case_that_fails_costs_no_other_one_and_what_hangs_is_not_asked_for_again(
    tmp_path: Path, outcome: Outcome, again: int
) -> None:
    probes, machine, report = asked(tmp_path, {REDUCE: outcome, ALLTOALL: outcome})
    found = probes.ask("all", "nccl", every(PRIMITIVES))
    assert {one.op for one in found} == set(PRIMITIVES) - {REDUCE, ALLTOALL}
    behind = [PRIMITIVES[PRIMITIVES.index(op) + 1 :] for op in (REDUCE, ALLTOALL)]
    assert [ops for _, ops in machine.ran] == [PRIMITIVES, *behind]
    assert failed(report) == ["all: the probe came to its end"] * 2
    assert {one.op for one in probes.ask("again", "nccl", every(PRIMITIVES))} == {one.op for one in found}
    assert len(machine.ran) == 3 + again
    probes.whole("all", found, PRIMITIVES, "stream")
    assert failed(report)[-1] == "all: every value right"


def test_an_engine_that_fails_at_its_first_two_cases_is_left_alone(tmp_path: Path) -> None:
    probes, machine, _ = asked(tmp_path, dict.fromkeys(PRIMITIVES, "failed"))
    assert probes.ask("one", "nccl", every(PRIMITIVES)) == []
    assert probes.ask("two", "nccl", every(PRIMITIVES)) == []
    assert len(machine.ran) == 2


@pytest.mark.parametrize("outcome", ["no_engine", "timeout"])
def test_an_engine_that_does_not_start_or_hangs_at_once_is_left_alone(
    tmp_path: Path, outcome: Outcome
) -> None:
    probes, machine, report = asked(tmp_path, {PRIMITIVES[0]: outcome})
    assert probes.ask("one", "torch", every(OFFERED["torch"])) == []
    assert probes.ask("two", "torch", every(OFFERED["torch"])) == []
    assert len(machine.ran) == len(failed(report)) == 1
    assert probes.ask("three", "nccl", every((REDUCE,)))


def test_the_first_probe_of_an_engine_has_longer_and_none_more_than_what_is_left(tmp_path: Path) -> None:
    probes, machine, _ = asked(tmp_path)
    for engine in ("nccl", "torch", "nccl"):
        probes.ask(engine, engine, every(PRIMITIVES[:1]))
    assert machine.deadlines == [FIRST, FIRST, DEADLINE]
    probes.end = time.monotonic() + DEADLINE / 2
    probes.ask("late", "torch", every(PRIMITIVES[:1]))
    assert DEADLINE / 4 < machine.deadlines[-1] <= DEADLINE / 2


def test_when_its_time_is_over_no_probe_is_begun(tmp_path: Path) -> None:
    probes, machine, _ = asked(tmp_path)
    probes.end = time.monotonic()
    with pytest.raises(KitError, match="are over"):
        probes.ask("late", "nccl", every(PRIMITIVES))
    assert machine.ran == []


@pytest.mark.parametrize("changes", [{"wrong": 1}, {"launch": "graph"}])
def test_a_wrong_value_or_another_launch_is_a_limit_that_fails(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    probes, _, report = asked(tmp_path, **changes)
    probes.whole("all", probes.ask("all", "nccl", every(PRIMITIVES)), PRIMITIVES, "stream")
    assert failed(report) == ["all: every value right"]


def test_nothing_measured_is_not_right(tmp_path: Path) -> None:
    probes, _, report = asked(tmp_path)
    probes.whole("none", [], (), "stream")
    assert failed(report) == ["none: every value right"]


@pytest.mark.parametrize(
    ("engine", "op", "ours", "fails"),
    [
        ("nccl", REDUCE, 1.02, False), ("nccl", REDUCE, 1.04, True), ("nccl", GATHER, 0.9, True),
        ("distributed", GATHER, 0.9, False), ("distributed", REDUCE, 0.9, True),
    ],
)  # fmt: skip
def test_farther_than_the_limit_from_nccl_tests_fails(
    tmp_path: Path, engine: str, op: str, ours: float, fails: bool  # noqa: FBT001
) -> None:  # fmt: skip
    theirs = {name: [1e11] * 3 for name in PRIMITIVES}
    report = Report("primitives", tmp_path)
    judge(report, engine, PRIMITIVES, {ORACLE: theirs, engine: {**theirs, op: [ours * 1e11] * 3}})
    assert bool(failed(report)) is fails


def test_a_primitive_that_was_not_compared_fails(tmp_path: Path) -> None:
    theirs = {name: [1e11] * 3 for name in PRIMITIVES if name != REDUCE}
    report = Report("primitives", tmp_path)
    judge(report, "nccl", PRIMITIVES, {ORACLE: theirs, "nccl": theirs})
    assert len(failed(report)) == 1


def test_without_nccl_tests_the_engines_are_still_measured(tmp_path: Path) -> None:
    probes, machine, report = asked(tmp_path)
    parity(probes, Oracle(cast("Probing", machine), None))
    assert len(machine.ran) == 9
    assert len([name for name in failed(report) if name.startswith("nccl-tests'")]) == 3 * len(PRIMITIVES)
    assert [check["name"] for check in report.checks if "every value right" in check["name"] and check["ok"]]
    assert SIZE == 1 << 28
