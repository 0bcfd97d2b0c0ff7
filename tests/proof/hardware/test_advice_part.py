"""The kit's part `advice`: what it compares, by which limits, and that nothing missing passes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from proof.hardware.advice import (
    FIT,
    HOW,
    JOB_SIZES,
    WHOLE,
    collectives,
    job_curve,
    middle,
    per_token,
)
from proof.hardware.jobs.tokens import REDUCTIONS, SHAPES
from proof.hardware.kit import KitError, Report
from proof.hardware.predicted import PredictedTime, judge, stands_on, three_sizes
from proof.lab.times import machine, two
from wirewatch.core.probe import MIB, OPS
from wirewatch_lab.advice.times.estimate import LAUNCHES, CollectiveTimes, Estimate, Ranks
from wirewatch_lab.cli.sweep import sweep
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study

LIMITS = 2


def failed(report: Report) -> list[str]:
    return [check["name"] for check in report.checks if not check["ok"]]


ENGINES = {"graph": "nccl", "eager": "distributed"}


def measured(
    launch: str, ranks: int, sizes: tuple[int, ...], given: Sequence[Study], slower: float = 1.0
) -> Study:
    """A sweep of a machine that is just as the model says, or slower."""
    times = CollectiveTimes(machine(4, *given))
    curves = []
    for op in OPS:
        found = [times.estimate(op, Ranks(ranks), size, launch) for size in sizes]
        seconds = [slower * one.seconds for one in found if isinstance(one, Estimate)]
        points = tuple(CurvePoint(size, (at,)) for size, at in zip(sizes, seconds, strict=True))
        curves.append(Curve(op, Configuration(ranks, launch=launch), points))
    return Study(0.0, "made up", {"engine": ENGINES[launch]}, tuple(curves))


THREE = (32, 64 * MIB, 256 * MIB)
TWO = {launch: measured(launch, 2, THREE, [two("all_reduce")]) for launch in LAUNCHES}
SIZES = (64, 1 << 20, 64 * MIB, 1 << 30)


@pytest.mark.parametrize(("slower", "fails"), [(1.0, 0), (1.12, 6), (1.3, 12)])
def test_ten_per_cent_of_large_messages_and_fifteen_of_all(tmp_path: Path, slower: float, fails: int) -> None:
    report = Report("advice", tmp_path)
    given = list(TWO.values())
    whole = {launch: measured(launch, 4, SIZES, given, slower) for launch in LAUNCHES}
    collectives(report, machine(4), TWO, whole)
    assert len(report.checks) == LIMITS * len(OPS) * len(LAUNCHES)
    assert len(failed(report)) == fails


def test_nothing_compared_is_a_limit_that_fails(tmp_path: Path) -> None:
    report = Report("advice", tmp_path)
    judge(report, "all_reduce", [])
    judge(report, "all_gather", [PredictedTime("all_gather", 8, 1e-5, 1e-5)])
    assert len(failed(report)) == 3


def test_what_repeats_differ_by_is_allowed_and_said_and_no_more(tmp_path: Path) -> None:
    """A launch that took from 10 to 20 us cannot be predicted within 15 %; one that always took 20 can."""
    firm = PredictedTime("all_reduce", MIB, 1.1e-4, 1e-4, repeats=0.02)
    report = Report("advice", tmp_path)
    for repeats, given, off in ((0.0, 0.7, 0.5), (0.6, 0.0, 0.5), (0.02, 0.03, 0.5), (0.6, 0.3, 0.7)):
        loose = PredictedTime("all_reduce", 8, (1 - off) * 2e-5, 2e-5, repeats, given)
        judge(report, f"{repeats} {given}", [firm, loose, replace(firm, size_bytes=64 * MIB, predicted=1e-4)])
    held = [check["ok"] for check in report.checks if "all sizes" in check["name"]]
    assert held == [True, True, False, False]
    assert "1 of 3 sizes are not reproducible" in report.checks[0]["told"]
    assert "70 % apart), there 8 B: -50.0 %" in report.checks[0]["told"]


def test_where_nothing_is_reproducible_nothing_is_shown(tmp_path: Path) -> None:
    report = Report("advice", tmp_path)
    judge(report, "all_reduce", [PredictedTime("all_reduce", 64 * MIB, 1e-3, 1e-3, repeats=0.5)])
    assert len(failed(report)) == 2


def test_a_size_stands_on_the_smallest_where_a_launch_may_decide_and_on_the_large_ones_else() -> None:
    points = (CurvePoint(8, (1e-5, 2e-5)), CurvePoint(64 * MIB, (1e-3,)))
    curves = tuple(Curve("all_reduce", Configuration(2, launch=launch), points) for launch in LAUNCHES)
    both = Study(0.0, "made up", {}, curves)

    def sizes(launch: str, predicted: float, on_gpus: float) -> list[int]:
        return [one.size_bytes for one in stands_on(both, "all_reduce", launch, MIB, predicted, on_gpus)]

    assert sizes("eager", 1.9e-5, 1.9e-5) == [8]
    assert sizes("eager", 2.1e-5, 2.1e-5) == [64 * MIB]
    assert sizes("graph", 1.9e-5, 1.9e-5) == [64 * MIB]
    assert stands_on(both, "all_reduce", "graph", 8, 1e-6, 1e-6) == [points[0]]


def test_a_launch_on_more_gpus_than_were_given_may_decide_where_theirs_did_not() -> None:
    """One process launches twice as long on four GPUs as on two."""
    points = (CurvePoint(8, (1e-5, 2e-5)), CurvePoint(64 * MIB, (1e-3,)))
    given = Study(0.0, "made up", {}, (Curve("all_reduce", Configuration(2), points),))
    assert stands_on(given, "all_reduce", "eager", MIB, 3e-5, 2.1e-5) == [points[0]]


def test_three_sizes_are_the_smallest_and_the_two_large_ones() -> None:
    more = measured("graph", 2, (8, 32, MIB, 64 * MIB, 256 * MIB), list(TWO.values()))
    kept = {tuple(point.size_bytes for point in curve.points) for curve in three_sizes(more).curves}
    assert kept == {(8, 64 * MIB, 256 * MIB)}
    first = more.curves[0]
    short = replace(more, curves=(replace(first, points=first.points[:4]),))
    with pytest.raises(KitError):
        three_sizes(short)


REPEATS = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.0, 3.0, 0.5)
"""Of one thing in turns; the host is away once."""


def timed(**changes: float) -> Iterator[dict[str, Any]]:
    """What the job prints, of all-reduces of 30 us one by one and 10 us in a graph."""
    for launch, least in (("eager", 30e-6), ("graph", 10e-6)):
        for size in JOB_SIZES:
            yield line("curve", launch, size, least if size == JOB_SIZES[0] else size / 300e9)
        for hidden, tokens in SHAPES:
            size = 2 * hidden * tokens
            sent = REDUCTIONS * (least + size / 300e9)
            found = {"step": 1e-3 + 0.7 * sent, "compute": 1e-3, "sequence": sent}
            for what, seconds in found.items():
                yield line(what, launch, size, seconds * changes.get(what, 1.0))


def line(what: str, launch: str, size: int, seconds: float) -> dict[str, Any]:
    return {"what": what, "launch": launch, "size": size, "seconds": [seconds * at for at in REPEATS]}


def test_a_tokens_time_is_that_of_its_all_reduces_alone() -> None:
    for launch in LAUNCHES:
        found = per_token(machine(2), job_curve(list(timed()), 2), list(timed()), launch, 2)
        assert [one.compared.size_bytes for one in found] == [
            2 * hidden * tokens for hidden, tokens in SHAPES
        ]
        for one in found:
            size = one.compared.size_bytes
            least = 10e-6 if launch == "graph" else 30e-6
            assert one.compared.measured == pytest.approx(REDUCTIONS * (least + size / 300e9))
            assert one.less == pytest.approx(0.7 * one.compared.measured)
            assert one.compared.repeats == pytest.approx(0.02)
            assert one.compared.given == pytest.approx(0.02)
        smallest = found[0].compared
        assert smallest.predicted == pytest.approx(smallest.measured, rel=0.1)


def test_repeats_of_one_process_count_without_the_highest_and_lowest_quarter() -> None:
    assert middle(REPEATS) == [0.99, 1.0, 1.0, 1.0, 1.01]
    assert middle([5.0, 1.0]) == [1.0, 5.0]
    with pytest.raises(KitError):
        middle([])


@pytest.mark.parametrize("launch", LAUNCHES)
def test_all_reduces_that_take_no_time_or_were_not_measured_are_no_measurement(launch: str) -> None:
    curve = job_curve(list(timed()), 2)
    with pytest.raises(KitError):
        per_token(machine(2), curve, list(timed(sequence=0.0)), launch, 2)
    for what in ("step", "compute", "sequence"):
        with pytest.raises(KitError):
            per_token(machine(2), curve, [one for one in timed() if one["what"] != what], launch, 2)


def test_a_curve_without_one_of_its_sizes_is_no_curve() -> None:
    with pytest.raises(KitError):
        job_curve([one for one in timed() if one["size"] != 64 * MIB], 2)


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("sizes", [FIT, ("--gpus", "4", *WHOLE)])
def test_the_sweeps_are_what_the_command_takes(sizes: tuple[str, ...], launch: str, tmp_path: Path) -> None:
    context = sweep.make_context("sweep", ["--out", str(tmp_path), *sizes, *HOW[launch]])
    assert isinstance(context, click.Context)
