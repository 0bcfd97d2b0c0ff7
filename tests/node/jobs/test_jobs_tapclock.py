"""Expected times by the tap's clock: they fit what healthy GPUs were measured to do, and guess nothing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.node.jobs.ringjobs import AROUND, topology, uuid
from tests.rows import each
from wirewatch.busbw.expected import expect
from wirewatch.busbw.formulas import RING, busbw, factor
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, BROADCAST, MIB, REDUCE_SCATTER, Conditions
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent
from wirewatch.jobs.running.expected import conditions_of
from wirewatch.jobs.running.model import JobsPolicy
from wirewatch.jobs.running.tapclock import LAUNCH, TRUSTED, expect_in_job

MEASURED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("tapclock-h200.json").read_text())[
    "rows"
]
EARLIER = (
    (ALL_GATHER, 256 * MIB, 525.35e-6, 587.392e-6, 572.032e-6),
    (ALL_REDUCE, 256 * MIB, 896.0e-6, 961.056e-6, 966.08e-6),
    (REDUCE_SCATTER, 256 * MIB, 557.81e-6, 600.4e-6, 604.144e-6),
    (ALL_GATHER, 64 * MIB, 151.96e-6, 158.896e-6, 158.592e-6),
    (ALL_REDUCE, 64 * MIB, 249.61e-6, 257.664e-6, 259.2e-6),
    (REDUCE_SCATTER, 64 * MIB, 158.6e-6, 163.664e-6, 164.528e-6),
    (ALL_REDUCE, 256 * MIB, 1183e-6, 1235e-6, 1244e-6),
    (ALL_GATHER, 256 * MIB, 648.71e-6, 697.6e-6, 704.272e-6),
    (ALL_REDUCE, 256 * MIB, 1184.13e-6, 1229.28e-6, 1232.59e-6),
    (REDUCE_SCATTER, 256 * MIB, 657.69e-6, 681.104e-6, 683.344e-6),
    (ALL_GATHER, 64 * MIB, 185.46e-6, 198.304e-6, 198.752e-6),
    (ALL_REDUCE, 64 * MIB, 320.36e-6, 335.552e-6, 337.648e-6),
    (REDUCE_SCATTER, 64 * MIB, 185.55e-6, 191.04e-6, 190.112e-6),
)
"""Operation, bytes, seconds by nccl-tests, and behind products in two jobs: six rows on 2 H200, then on 4."""
A100 = "NVIDIA A100-SXM4-80GB"


def of(count: int, node: Topology | None = None, **changes: Any) -> Conditions:
    """Return the facts by which bus bandwidth of the first GPUs of a node is expected."""
    around = replace(AROUND, topology=node or topology())
    found = conditions_of(around, [uuid(number) for number in range(count)], 1, {})
    assert isinstance(found, Conditions)
    return replace(found, **changes)


def expected(ranks: int, op: str, size: int) -> float:
    found = expect_in_job(of(ranks, multicast=False), op, size)
    assert not isinstance(found, Absent), found
    return found.busbw


def reached(row: dict[str, Any], seconds: str = "best_us") -> float:
    got = busbw(row["op"], row["ranks"], row["bytes"], row[seconds] * 1e-6)
    return got / expected(row["ranks"], row["op"], row["bytes"])


@each("row", [row for row in MEASURED if row["how"] == "series"], ids=str)
def test_collectives_in_a_row_reach_what_is_expected(row: dict[str, Any]) -> None:
    assert reached(row) == pytest.approx(1.0, rel=0.005)
    assert 0.85 < reached(row, "median_us") <= 1.001


def test_healthy_collectives_behind_and_beside_work_stay_above_the_limits() -> None:
    policy = JobsPolicy()
    seen = {
        least: min(reached(row) for row in MEASURED if row["bytes"] >= least) for least in (TRUSTED, 16 * MIB)
    }
    assert seen[TRUSTED] > policy.other_ratio > policy.ratio
    assert seen[16 * MIB] > 0.5 * policy.ratio
    assert all(reached(row) < 1.05 for row in MEASURED)


@pytest.mark.parametrize(("place", "row"), list(enumerate(EARLIER)), ids=str)
def test_jobs_of_other_machines_fit_too(place: int, row: tuple[str, int, float, float, float]) -> None:
    op, size, alone, *jobs = row
    ranks = 2 if place < 6 else 4
    share = factor(op, ranks) * size
    for seconds in jobs:
        assert 0.88 < share / seconds / expected(ranks, op, size) < 1.05
    assert share / alone / expected(ranks, op, size) == pytest.approx(1.0, abs=0.06)


def test_between_and_beyond_the_measured_sizes_times_grow_with_the_bytes() -> None:
    sizes = [2 * MIB, 3 * MIB, 5 * MIB, 100 * MIB, 300 * MIB, 512 * MIB, 700 * MIB, 4096 * MIB]
    times = [factor(ALL_REDUCE, 4) * size / expected(4, ALL_REDUCE, size) for size in sizes]
    assert times == sorted(times)
    assert expected(4, ALL_REDUCE, 4096 * MIB) < 478.116e9


@pytest.mark.parametrize(
    ("guard", "conditions", "op"),
    [
        ("three GPUs", of(3), ALL_REDUCE),
        ("an operation that was not measured", of(4), BROADCAST),
        ("another architecture", of(4, topology(name=A100)), ALL_REDUCE),
        ("the operator's figure of the operation", of(4, pins={ALL_REDUCE: 300e9}), ALL_REDUCE),
        ("the operator's figure of the size", of(4, pins={f"{ALL_REDUCE}@{256 * MIB}": 3e11}), ALL_REDUCE),
        ("NVLS", of(8), ALL_REDUCE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_takes_the_time_from_nccl_tests(guard: str, conditions: Conditions, op: str) -> None:
    found, theirs = (ask(conditions, op, 256 * MIB) for ask in (expect_in_job, expect))
    if isinstance(theirs, Absent):
        assert found == theirs, guard
        return
    assert not isinstance(found, Absent)
    assert "by the tap's clock" not in found.derivation[-1], guard
    if conditions.pins:
        assert found.busbw == theirs.busbw
        return
    share = factor(op, conditions.group.ranks) * 256 * MIB
    assert share / found.busbw == pytest.approx(share / theirs.busbw - LAUNCH)


def test_a_small_message_has_no_expectation() -> None:
    assert isinstance(expect_in_job(of(4), ALL_GATHER, 2 * MIB - 1), Absent)
    found = expect_in_job(of(4), REDUCE_SCATTER, 2 * MIB)
    assert not isinstance(found, Absent)
    assert (found.trusted, found.algorithm) == (False, RING)


def test_the_launch_is_never_most_of_the_time() -> None:
    found, theirs = (ask(of(3), ALL_REDUCE, 16 * MIB) for ask in (expect_in_job, expect))
    assert not isinstance(found, Absent)
    assert not isinstance(theirs, Absent)
    assert theirs.busbw < found.busbw <= theirs.busbw / 0.7
