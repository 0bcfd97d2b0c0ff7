"""What a late rank is said to cost, beside what the steps of a drawn job really lose by it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.node.jobs.ringjobs import (
    AT_ONCE,
    BUCKETS,
    DDP,
    FSDP,
    LAYERS,
    TENSOR_PARALLEL,
    TRAINING,
    DrawnNode,
    JobShape,
    lates,
)
from wirewatch.jobs.times import JobsFacts

SHAPES: Mapping[str, JobShape] = {
    "training": TRAINING, "tensor parallel": TENSOR_PARALLEL, "buckets": BUCKETS, "layers": LAYERS,
    "at once": AT_ONCE, "ddp": DDP, "fsdp": FSDP,
}  # fmt: skip
POLLS = 8
TWO, FOUR = (0, 1), (0, 1, 2, 3)
EVERY_SHAPE = pytest.mark.parametrize("name", SHAPES)
SEEDS = pytest.mark.parametrize("seed", range(2))


_SEEN: dict[tuple[str, int], tuple[JobsFacts, int]] = {}


def watched(shape: JobShape, seed: int) -> tuple[JobsFacts, int]:
    """What is said of the job, and how many collectives it made meanwhile."""
    key = (repr(shape), seed)
    if key not in _SEEN:
        node = DrawnNode(shape, seed=seed)
        _SEEN[key] = node.poll(POLLS), node.jobs[0].made.total()
    return _SEEN[key]


def lost(shape: JobShape, seed: int) -> float:
    """The share of the time that the job loses by its slow rank."""
    healthy = replace(shape, slow={}, behind={})
    return 1 - watched(shape, seed)[1] / watched(healthy, seed)[1]


def cost(facts: JobsFacts) -> float | None:
    late = facts.jobs[0].late
    return late.cost if late else None


@EVERY_SHAPE
@SEEDS
@pytest.mark.parametrize(
    ("gpus", "slower"), [(TWO, 1.12), (TWO, 1.2), (FOUR, 1.12)], ids=["two", "two slower", "four"]
)
def test_a_slow_gpu_is_said_to_cost_about_what_the_step_loses(
    name: str, gpus: tuple[int, ...], slower: float, seed: int
) -> None:
    shape = replace(SHAPES[name], gpus=gpus, slow={0: slower})
    facts, _ = watched(shape, seed)
    assert lates(facts) == ["0"]
    assert cost(facts) == pytest.approx(lost(shape, seed), rel=0.35)


@EVERY_SHAPE
@SEEDS
@pytest.mark.parametrize("gpus", [TWO, FOUR], ids=["two", "four"])
def test_what_healthy_gpus_cost_each_other_names_nobody(name: str, gpus: tuple[int, ...], seed: int) -> None:
    """3.3 to 5.0 % of the time on real ones, with and without overlap (proof/hardware)."""
    facts, _ = watched(replace(SHAPES[name], gpus=gpus, slow={0: 1.04}), seed)
    assert lates(facts) == []


@SEEDS
@pytest.mark.parametrize("gpus", [TWO, FOUR], ids=["two", "four"])
@pytest.mark.parametrize(("name", "behind"), [
    ("buckets", 5e-3), ("layers", 5e-3), ("at once", 5e-3), ("ddp", 0.027), ("fsdp", 0.05),
])  # fmt: skip
def test_a_loader_that_is_late_once_a_step_costs_that_once(
    name: str, behind: float, gpus: tuple[int, ...], seed: int
) -> None:
    """A tenth of a step; it is waited for in each collective, most of the time in all."""
    shape = replace(SHAPES[name], gpus=gpus, behind={0: behind})
    facts, _ = watched(shape, seed)
    assert lates(facts) == ["0"]
    assert cost(facts) == pytest.approx(lost(shape, seed), rel=0.8)


@SEEDS
def test_a_gpu_of_half_the_speed_loses_half(seed: int) -> None:
    shape = replace(TRAINING, slow={2: 2.0})
    facts, _ = watched(shape, seed)
    assert cost(facts) == pytest.approx(lost(shape, seed), rel=0.05)


AHEAD = {1: 0.97}
"""Rank 1 is the faster GPU by 3 %: between healthy ones on one H200 machine it was up to that."""


@SEEDS
@pytest.mark.parametrize("name", ["training", "tensor parallel"])
@pytest.mark.parametrize("gpus", [TWO, FOUR], ids=["two", "four"])
def test_the_faster_gpu_is_named_when_it_becomes_a_tenth_slower(
    name: str, gpus: tuple[int, ...], seed: int
) -> None:
    """What it costs then is below the limit, since the others were slower than it before (proof/hardware)."""
    healthy = replace(SHAPES[name], gpus=gpus, slow=AHEAD)
    node = DrawnNode(healthy, seed=seed)
    assert lates(node.poll(POLLS)) == []
    node.jobs[0].shape = replace(healthy, slow={1: 0.97 * 1.08})
    facts = node.poll(6)
    assert lates(facts) == ["1"]
    late = facts.jobs[0].late
    assert late is not None
    assert 0.03 < late.cost < 0.05
    assert "fell behind by" in late.text
    assert lates(node.poll(12)) == ["1"]
    node.jobs[0].shape = healthy
    assert lates(node.poll(POLLS)) == []


@SEEDS
@pytest.mark.parametrize("name", ["training", "tensor parallel"])
def test_a_gpu_that_is_a_little_slower_from_the_start_is_not_named_later(name: str, seed: int) -> None:
    node = DrawnNode(replace(SHAPES[name], slow={1: 1.04}), seed=seed)
    for facts in node.watch(120):
        assert lates(facts) == []


@SEEDS
@EVERY_SHAPE
def test_healthy_gpus_that_take_turns_in_being_last_are_not_named(name: str, seed: int) -> None:
    """One warms up and the other cools down: 2 % either way."""
    first, second = (replace(SHAPES[name], gpus=TWO, slow={rank: 1.02}) for rank in (0, 1))
    node = DrawnNode(first, seed=seed)
    assert lates(node.poll(POLLS)) == []
    node.jobs[0].shape = second
    for facts in node.watch(60):
        assert lates(facts) == []
