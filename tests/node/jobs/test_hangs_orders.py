"""Jobs whose ranks launch in different orders: a mismatch names the few, equal parts and circles nobody."""

from collections.abc import Mapping, Sequence

from tests.node.jobs.hungjobs import INNER, UID, HungJob
from tests.node.jobs.ras.reports import HOST
from wirewatch.core.jobs import RasCommunicator, RasRank, RasReport
from wirewatch.core.types import Finding

STUCK = 13
"""Polls of 2 s after which a job that hangs has been looked at twice."""
REDUCED, GATHERED = {"all_reduce": 201, "all_gather": 100}, {"all_reduce": 200, "all_gather": 101}


def comm(name: str, *counts: Mapping[str, int], inner: Sequence[int] = ()) -> RasCommunicator:
    pids = inner or range(INNER, INNER + len(counts))
    ranks = tuple(
        RasRank(number, HOST, pid, number, number, some)
        for number, (pid, some) in enumerate(zip(pids, counts, strict=True))
    )
    return RasCommunicator(name, "0x1:0x2", len(counts), ranks)


def found(*comms: RasCommunicator, gpus: int = 8, idle: Sequence[int] = ()) -> Finding:
    """The finding 26 s after all ranks began to wait, but for those that have nothing to do."""
    job = HungJob(gpus=gpus)
    assert not job.work(8)
    job.wait(*idle)
    job.answer = (RasReport("2.28.9", comms, 0.01, uid=UID, processes=gpus),)
    assert not job.poll(8)
    job.poll(STUCK - 8)
    (one,) = job.watched.component.findings
    return one


def test_the_one_rank_that_calls_another_operation_is_named_with_its_gpu() -> None:
    one = found(comm("0x17fa", *[REDUCED] * 5, GATHERED, *[REDUCED] * 2))
    assert (one.rule, one.subject.gpu, one.subject.uuid) == ("hangs.asymmetric", "5", "GPU-5")
    assert (
        "rank 5 (GPU 5, process 4005) has launched 101 all_gather, others 100 and 200 all_reduce, others 201 "
        "(communicator 0x17fa of 8); a mismatch: most ranks have launched another collective than it"
    ) in one.evidence


def test_of_equal_parts_both_are_said_and_nobody_is_named() -> None:
    one = found(comm("0x17fa", *[REDUCED] * 2, *[GATHERED] * 2), gpus=4)
    assert (one.rule, str(one.subject)) == ("hangs.asymmetric", "node")
    assert (
        "rank 0 (GPU 0, process 4000), rank 1 (GPU 1, process 4001) launched 201 all_reduce; "
        "rank 2 (GPU 2, process 4002), rank 3 (GPU 3, process 4003) launched 101 all_gather; nobody is named"
    ) in one.evidence


LATER, SOONER = {"all_reduce": 6}, {"all_reduce": 5}
OPPOSITE = (comm("0xa", LATER, SOONER), comm("0xb", SOONER, LATER))


def test_two_communicators_in_opposite_order_are_a_deadlock_and_its_circle_is_said() -> None:
    one = found(*OPPOSITE, gpus=2)
    assert (one.rule, str(one.subject)) == ("hangs.asymmetric", "node")
    assert (
        "a deadlock: rank 1 (GPU 1, process 4001) waits in communicator 0xb for rank 0 "
        "(GPU 0, process 4000), which waits in communicator 0xa for rank 1 (GPU 1, process 4001)"
    ) in one.evidence


def test_a_rank_that_runs_nothing_waits_in_no_communicator_and_makes_no_circle() -> None:
    one = found(*OPPOSITE, gpus=2, idle=[0])
    assert one.subject.gpu == "0"
    assert "a deadlock" not in one.evidence


def test_ranks_have_the_job_s_numbers_where_one_communicator_is_of_all() -> None:
    """Tensor parallel 2 in a job of 4: rank 1 of the second pair is the job's rank 3."""
    pairs = (comm("0xt", SOONER, SOONER, inner=[900, 901]), comm("0xu", LATER, SOONER, inner=[902, 903]))
    whole = comm("0xw", *[SOONER] * 4)
    one = found(*pairs, whole, gpus=4, idle=[3])
    assert "rank 3 (GPU 3, process 4003) has launched 5 all_reduce" in one.evidence
    one = found(*pairs, gpus=4, idle=[3])
    assert "communicator rank 1 (GPU 3, process 4003) has launched 5 all_reduce" in one.evidence
