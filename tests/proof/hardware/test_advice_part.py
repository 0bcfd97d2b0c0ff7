"""The kit's part `advice`: what it compares, by which limits, and that nothing missing passes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from proof.hardware.advice import (
    FIT,
    JOB_SIZES,
    WHOLE,
    Compared,
    collectives,
    job_curve,
    judge,
    per_token,
    three_sizes,
)
from proof.hardware.jobs.tokens import REDUCTIONS, SHAPES
from proof.hardware.kit import KitError, Report
from proof.times import machine, two
from wirewatch.advice.times.estimate import LAUNCHES, CollectiveTimes, Estimate, Ranks
from wirewatch.cli.sweep import sweep
from wirewatch.core.probe import MIB, OPS
from wirewatch.study.curve import Configuration, Curve, CurvePoint, Study

LIMITS = 2


def failed(report: Report) -> list[str]:
    return [check["name"] for check in report.checks if not check["ok"]]


def measured(ranks: int, sizes: tuple[int, ...], given: Study, slower: float = 1.0) -> Study:
    """A sweep of a machine that is just as the model says, or slower."""
    times = CollectiveTimes(machine(4, given))
    curves = []
    for op in OPS:
        for launch in LAUNCHES:
            found = [times.estimate(op, Ranks(ranks), size, launch, one_process=True) for size in sizes]
            seconds = [slower * one.seconds for one in found if isinstance(one, Estimate)]
            points = tuple(CurvePoint(size, (at,)) for size, at in zip(sizes, seconds, strict=True))
            curves.append(Curve(op, Configuration(ranks, launch=launch), points))
    return Study(0.0, "made up", {"engine": "nccl"}, tuple(curves))


TWO = measured(2, (32, 64 * MIB, 256 * MIB), two("all_reduce"))
SIZES = (64, 1 << 20, 64 * MIB, 1 << 30)


@pytest.mark.parametrize(("slower", "fails"), [(1.0, 0), (1.12, 6), (1.3, 12)])
def test_ten_per_cent_of_large_messages_and_fifteen_of_all(tmp_path: Path, slower: float, fails: int) -> None:
    report = Report("advice", tmp_path)
    collectives(report, machine(4, TWO), TWO, measured(4, SIZES, TWO, slower))
    assert len(report.checks) == LIMITS * len(OPS) * len(LAUNCHES)
    assert len(failed(report)) == fails


def test_nothing_compared_is_a_limit_that_fails(tmp_path: Path) -> None:
    report = Report("advice", tmp_path)
    judge(report, "all_reduce", [])
    judge(report, "all_gather", [Compared("all_gather", 8, 1e-5, 1e-5)])
    assert len(failed(report)) == 3


def test_three_sizes_are_the_smallest_and_the_two_large_ones() -> None:
    more = measured(2, (8, 32, MIB, 64 * MIB, 256 * MIB), TWO)
    kept = {tuple(point.size_bytes for point in curve.points) for curve in three_sizes(more).curves}
    assert kept == {(8, 64 * MIB, 256 * MIB)}
    first = more.curves[0]
    short = replace(more, curves=(replace(first, points=first.points[:4]),))
    with pytest.raises(KitError):
        three_sizes(short)


def timed(**changes: float) -> Iterator[dict[str, Any]]:
    """What the job prints, of all-reduces of 30 us one by one and 10 us in a graph."""
    for launch, each in (("eager", 30e-6), ("graph", 10e-6)):
        for size in JOB_SIZES:
            seconds = each if size == JOB_SIZES[0] else size / 300e9
            yield {"what": "curve", "launch": launch, "size": size, "seconds": seconds}
        for hidden, tokens in SHAPES:
            size = 2 * hidden * tokens
            sent = REDUCTIONS * (each + size / 300e9)
            for what, seconds in (("step", 1e-3 + sent), ("compute", 1e-3), ("sequence", sent)):
                found = seconds * changes.get(what, 1.0)
                yield {"what": what, "launch": launch, "size": size, "seconds": found}


def test_a_tokens_time_is_that_in_the_pass_of_a_graph_and_alone_one_by_one() -> None:
    for launch in LAUNCHES:
        found = per_token(machine(2, TWO), job_curve(list(timed())), list(timed(sequence=2.0)), launch, 2)
        assert len(found) == len(SHAPES)
        for one, inside, alone in found:
            assert one.measured == pytest.approx(inside if launch == "graph" else alone)
            assert alone == pytest.approx(2 * inside)
        smallest = found[0][0]
        share = 1.0 if launch == "graph" else 2.0
        assert smallest.predicted * share == pytest.approx(smallest.measured, rel=0.05)


def test_a_pass_that_takes_no_longer_with_all_reduces_is_no_measurement() -> None:
    with pytest.raises(KitError):
        per_token(machine(2, TWO), job_curve(list(timed())), list(timed(compute=3.0)), "graph", 2)


def test_a_curve_without_one_of_its_sizes_is_no_curve() -> None:
    with pytest.raises(KitError):
        job_curve([one for one in timed() if one["size"] != 64 * MIB])


@pytest.mark.parametrize("arguments", [FIT, ("--gpus", "4", *WHOLE)])
def test_the_sweeps_are_what_the_command_takes(arguments: tuple[str, ...], tmp_path: Path) -> None:
    context = sweep.make_context("sweep", ["--out", str(tmp_path), *arguments])
    assert isinstance(context, click.Context)
