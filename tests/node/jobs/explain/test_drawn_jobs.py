"""Jobs drawn as rings, through the collector that joins them, to the first line of `explain`."""

from dataclasses import replace

import pytest

from tests.node.jobs.explain.drawnnodes import watched
from tests.node.jobs.ringjobs import (
    DDP,
    FSDP,
    LATE,
    LL,
    P2P_OFF,
    SMALL,
    TENSOR_PARALLEL,
    TRAINING,
    TREE,
    JobShape,
)
from wirewatch.jobs.explain.evidence import JobAnswer, Wall
from wirewatch.jobs.explain.gather import jobs_of
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.explain.wires import wire_in_use


def answered(shape: JobShape, seed: int = 0) -> JobAnswer:
    (one,) = jobs_of(watched(shape, seed), 1e9)
    return decide(one)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("shape", "wall", "said"),
    [
        (LATE, Wall.LATE_RANK, "3 of 4 ranks wait for rank 2 on GPU 2, which costs "),
        (replace(P2P_OFF, settings={"NCCL_P2P_DISABLE": "1"}), Wall.SLOW_WIRE, "because NCCL_P2P_DISABLE=1;"),
        (
            P2P_OFF,
            Wall.SLOW_WIRE,
            "all_reduce of 256 MiB gets 25.1 GB/s of 345 GB/s (7.3 %); this costs about",
        ),
        (TREE, Wall.SLOW_WIRE, "because NCCL ran Tree where its defaults take Ring;"),
        (LL, Wall.SLOW_WIRE, "because NCCL ran the protocol LL;"),
    ],
    ids=["late", "p2p off", "p2p off, settings not read", "tree", "ll"],
)
def test_the_first_line_of_a_job_as_its_rings_have_it(
    shape: JobShape, wall: Wall, said: str, seed: int
) -> None:
    answer = answered(shape, seed)
    assert answer.wall is wall
    assert said in answer.sentence


HEALTHY = {
    "training": TRAINING, "ddp": DDP, "fsdp": FSDP, "tensor parallel": TENSOR_PARALLEL, "small": SMALL,
}  # fmt: skip


@pytest.mark.parametrize("shape", HEALTHY.values(), ids=list(HEALTHY))
def test_a_healthy_job_as_its_rings_have_it_hits_no_wall(shape: JobShape) -> None:
    answer = answered(shape)
    assert answer.wall in {Wall.NOTHING, Wall.COMPUTING}, answer.sentence


def test_the_wire_in_use_is_what_nvlink_counted_of_what_was_due() -> None:
    (fast,) = jobs_of(watched(TRAINING), 1e9)
    assert str(wire_in_use(fast)).startswith("NVLink: NVLink counts 7.8 GB/s a GPU")
    assert fast.gpus[0].peak == pytest.approx(478.1e9, rel=1e-3)
    (slow,) = jobs_of(watched(P2P_OFF), 1e9)
    assert str(wire_in_use(slow)).startswith("not NVLink, but host memory (SHM), PCIe or sockets: NVLink")


def test_the_cost_of_a_late_rank_is_that_of_the_step() -> None:
    cost = answered(LATE).cost
    assert isinstance(cost, float)
    assert cost == pytest.approx(0.085, abs=0.02)


def test_the_cost_of_a_slow_wire_is_what_a_healthy_one_would_save() -> None:
    """A step of 31 ms of work and 16 ms on the wire, of which 1.2 ms would be enough."""
    cost = answered(P2P_OFF).cost
    assert isinstance(cost, float)
    assert cost == pytest.approx(14.9 / 47.1, abs=0.04)
