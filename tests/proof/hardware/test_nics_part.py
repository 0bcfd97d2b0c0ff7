"""The kit's part `nics`: the slowed wire has to be named while it is slow, and no other ever."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from proof.hardware.kit import Report
from proof.hardware.nics import RATE, SLOW, judge, measured
from wirewatch.core.types import Finding
from wirewatch.probe.network import RailJob, RailResult
from wirewatch.probe.nics import SLOW as RULE
from wirewatch.probe.nics import NicsMemory

RAILS = ("r0", "r1", "r2")
Round = tuple[Mapping[str, float], tuple[Finding, ...]]


def named(*rails: str) -> tuple[Finding, ...]:
    return tuple(RULE.finding(RailJob(rail, None).subject, f"{rail} is slow") for rail in rails)


def rates(**changed: float) -> Mapping[str, float]:
    return {**dict.fromkeys(RAILS, 0.97 * RATE / 8), **changed}


def failing(folder: Path, **changed: Round) -> int:
    right: dict[str, Round] = {
        "healthy": (rates(), ()), "slowed": (rates(r1=0.97 * SLOW / 8), named("r1")),
        "healthy again": (rates(), ()),
    }  # fmt: skip
    report = Report("nics", folder)
    judge(report, right | changed, RAILS, "r1")
    return sum(not one["ok"] for one in report.checks)


def test_what_is_slowed_and_named_passes(tmp_path: Path) -> None:
    assert failing(tmp_path) == 0


@pytest.mark.parametrize(
    "slowed",
    [
        (rates(r1=0.97 * SLOW / 8), ()), (rates(r1=0.97 * SLOW / 8), named("r2")),
        (rates(r1=0.97 * SLOW / 8), named("r1", "r2")), (rates(), named("r1")), ({}, named("r1")),
    ],
)  # fmt: skip
def test_the_slowed_wire_alone_has_to_be_named_and_slow(tmp_path: Path, slowed: Round) -> None:
    assert failing(tmp_path, slowed=slowed) == 1


@pytest.mark.parametrize("healthy", [(rates(), named("r0")), (rates(r0=1.0), ()), ({}, ())])
def test_a_healthy_wire_that_is_named_or_not_measured_fails(tmp_path: Path, healthy: Round) -> None:
    assert failing(tmp_path, healthy=healthy) == 1


def test_no_port_at_all_is_no_proof() -> None:
    job = RailJob("mlx5_0:1", direct=True)
    one = RailResult(job, 1e9, 1e9, 0, True, None, "GPUs", (), ())  # noqa: FBT003 - crossed
    assert measured(NicsMemory(results={job: (1.0, one)}), ("mlx5_0:1",))
    assert not measured(NicsMemory(results={job: (1.0, one)}), ("mlx5_0:1", "mlx5_1:1"))
    assert not measured(NicsMemory(), ())
