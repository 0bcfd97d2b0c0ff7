"""Ranks are the job's, where a communicator spans it; else it is said of which communicator they are."""

from dataclasses import replace

import pytest

from tests.node.jobs.explain.drawn import PIDS, RANKS, evidence, gpu_uuid, job, late, waiting
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.ranks import gpu_rank_name, job_ranks, late_name, rank_name, ranks_on
from wirewatch.jobs.times import CommunicatorTimes, RunningJob

UNKNOWN = Absent(Why.MISSING, "in another pid namespace")
(WORLD,) = job().communicators


def reordered(name: str = "tp", ranks: int = RANKS, nodes: int = 1, here: int = RANKS) -> CommunicatorTimes:
    """A communicator over `here` of the same processes, in the opposite order."""
    opposite = tuple(replace(one, rank=RANKS - 1 - one.rank) for one in WORLD.here[:here])
    return replace(WORLD, id=f"0x{name}", name=name, ranks=ranks, nodes=nodes, here=opposite)


def of(*comms: CommunicatorTimes) -> RunningJob:
    return replace(job(), communicators=comms)


@pytest.mark.parametrize(
    ("guard", "running", "ranks"),
    [
        ("the one that there is", of(WORLD), "2"),
        ("the first of two alike", of(WORLD, replace(WORLD, id="0xdef")), "2"),
        ("two that number in different ways", of(WORLD, reordered()), ""),
        ("a smaller one beside it", of(reordered(ranks=2, here=2), WORLD), "2"),
        ("another has more ranks", of(WORLD, reordered(ranks=8, here=2)), ""),
        ("another has more nodes", of(WORLD, reordered(nodes=2, here=2)), ""),
        ("one that lacks a process", of(replace(WORLD, here=WORLD.here[:3]), reordered(ranks=2)), ""),
        ("none", of(), ""),
        ("no tap", UNKNOWN, ""),
        ("processes that are not known", of(replace(WORLD, here=tuple(
            replace(one, pid=UNKNOWN) for one in WORLD.here))), "2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_communicator_spans_the_job(guard: str, running: RunningJob | Absent, ranks: str) -> None:
    assert ranks_on(evidence(running, book=waiting(2, 0.1)), gpu_uuid(2)) == ranks, guard
    assert bool(job_ranks(running)) is bool(ranks)


def test_a_rank_of_another_communicator_is_the_job_s_by_its_process() -> None:
    seen = evidence(of(WORLD, reordered(ranks=3, here=3)), book=waiting(2, 0.1))
    assert rank_name(seen, 3, "0xtp", PIDS) == "rank 0"
    assert rank_name(seen, 3, "0xtp", None) == rank_name(seen, 3, "0xtp", UNKNOWN)
    assert rank_name(seen, 3, "0xtp", UNKNOWN) == "rank 3 of communicator tp"
    assert rank_name(seen, 3, WORLD.id, UNKNOWN) == "rank 3"
    assert rank_name(seen, 3, "0xgone", 1) == "rank 3 of communicator 0xgone"


def test_a_late_rank_has_its_gpu_and_host() -> None:
    tensor = replace(reordered(ranks=3, here=3), late=late(1))
    seen = replace(evidence(of(WORLD, tensor), book=waiting(1, 0.1)), host="gpu-017")
    assert late_name(seen, late(1)) == "rank 1 on GPU 1 of gpu-017"
    assert gpu_rank_name(seen, gpu_uuid(3)) == "rank 3 on GPU 3 of gpu-017"
    assert gpu_rank_name(seen, "GPU-beyond") == "GPU-beyond of gpu-017"
    shared = of(replace(WORLD, here=tuple(replace(one, gpu=gpu_uuid(0)) for one in WORLD.here)))
    assert gpu_rank_name(evidence(shared, book=waiting(1, 0.1)), gpu_uuid(0)) == "GPU 0"
