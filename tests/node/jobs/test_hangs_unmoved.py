"""Jobs that were never seen to move a byte over NVLink: what is said of them, and of what only looks so."""

from collections.abc import Callable

import pytest

from tests.node.jobs.hungjobs import INNER, NOBODY, REST, UID, WAIT, HungJob
from wirewatch.core.jobs import RasListener, RasRank
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.hangs.model import HangFacts, StandingJob

MINUTE = 30
"""Polls in a minute."""


def standing(job: HungJob) -> tuple[StandingJob, ...]:
    facts = job.watched.component.facts
    assert isinstance(facts, HangFacts)
    return facts.standing


def waiting(*idle: int, gpus: int = 4) -> HungJob:
    """A job that already waits when the agent sees it for the first time, but for these ranks."""
    job = HungJob(gpus=gpus)
    job.wait(*idle)
    return job


def behind(job: HungJob, late: int) -> None:
    for number, one in enumerate(job.ranks):
        one.launched += number != late


def test_a_job_that_hung_before_the_agent_saw_it_is_found_a_minute_later() -> None:
    job = waiting(2)
    behind(job, 2)
    assert not job.poll(MINUTE)
    assert (job.ras.asked, standing(job)) == (0, ())
    job.poll(8)
    assert job.rules()["hangs.asymmetric"].subject.gpu == "2"


@pytest.mark.parametrize("unlinked", [True, False])
def test_a_job_over_sockets_that_hangs_is_found_a_minute_later(*, unlinked: bool) -> None:
    """Its GPUs have NVLink, which it does not use, or none at all."""
    job = HungJob()
    if unlinked:
        job.without = ("Field(138,all)",)
    for one in job.ranks:
        one.memory = 30
    assert not job.work(60, moved=0)
    for one in job.ranks:
        one.memory = 0
    job.wait(1)
    behind(job, 1)
    assert not job.poll(MINUTE)
    job.poll(9)
    assert job.rules()["hangs.asymmetric"].subject.gpu == "1"


def test_a_job_over_sockets_that_reads_and_writes_its_memory_is_at_work_however_little_power_it_draws() -> (
    None
):
    job = waiting()
    job.ranks[1].memory = 1
    job.answer = NOBODY
    assert not job.poll(20 * MINUTE)
    assert (job.ras.asked, standing(job)) == (0, ())


def test_a_job_over_sockets_whose_counts_rise_does_not_stand_still() -> None:
    job = waiting()
    assert not job.work(20 * MINUTE, moved=0)
    assert 2 <= job.ras.asked <= 8
    assert standing(job) == ()


def elsewhere(job: HungJob) -> None:
    """The job listens in a network namespace of its own."""
    job.answer = NOBODY
    job.ras.own, job.ras.theirs = (), (RasListener("127.0.0.1:28028", UID, 8, open=False),)


def nobody_listens(job: HungJob) -> None:
    job.answer, job.ras.own = NOBODY, ()


def unknown_listeners(job: HungJob) -> None:
    job.answer, job.ras.theirs = NOBODY, Absent(Why.DENIED, "not ours")


@pytest.mark.parametrize(
    ("guard", "change", "said"),
    [
        ("its RAS listens where we cannot reach it", elsewhere, True),
        ("it uses no NCCL: servers of one pod, each alone on its GPU", nobody_listens, False),
        ("whether it uses NCCL is not known", unknown_listeners, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_an_answer_only_a_job_that_uses_nccl_is_suspected(
    guard: str, change: Callable[[HungJob], None], *, said: bool
) -> None:
    job = waiting()
    change(job)
    assert not job.poll(5 * MINUTE - 1), guard
    assert bool(standing(job)) is said, guard
    job.poll(4)
    assert list(job.rules()) == (["hangs.suspected"] if said else [])
    if not said:
        job.poll(20 * MINUTE)
        assert job.rules() == {}


def test_a_process_alone_on_its_gpu_waits_for_nobody() -> None:
    """A server's kernel that stays, at 100 % and little power; its own NCCL has a communicator of one."""
    job = waiting(gpus=1)
    assert not job.poll(20 * MINUTE)
    assert standing(job) == ()
    job.answer = NOBODY
    assert not job.poll(20 * MINUTE)
    job.ranks[0].state = "T"
    assert not job.poll(20 * MINUTE)
    assert standing(job) == ()


def test_a_process_alone_on_its_gpu_waits_for_ranks_of_other_nodes_that_ras_names() -> None:
    job = waiting(gpus=1)
    job.ranks[0].launched = 900
    job.remote = tuple(
        RasRank(number, f"192.0.2.{number}", INNER, 0, 0, {"all_reduce": 899 if number == 3 else 900})
        for number in (1, 2, 3)
    )
    assert not job.poll(MINUTE + 8)
    assert len(standing(job)) == 1
    job.poll(MINUTE)
    one = job.rules()["hangs.asymmetric"]
    assert (
        f"rank 3 (GPU 0 as the job counts, process {INNER} on host 192.0.2.3) has launched 899"
        in one.evidence
    )


def test_a_job_that_all_have_launched_and_that_has_ranks_elsewhere_is_symmetric_two_minutes_later() -> None:
    """A rank of another node may be in a compile or a checkpoint, in what RAS does not count."""
    job = HungJob()
    job.remote = (RasRank(4, "192.0.2.9", INNER, 0, 0, {"all_reduce": 2400}),)
    job.work(8)
    job.wait()
    assert not job.poll(59)
    (one,) = standing(job)
    unseen = (
        "all have launched as much as each other; whether ranks of other nodes are at work cannot be seen"
    )
    assert one.text.startswith(f"{unseen} here; GPUs 0, 1, 2 and 3 run at 100 %")
    job.poll(3)
    assert list(job.rules()) == ["hangs.symmetric"]


def test_a_single_process_with_several_gpus_may_wait_for_itself() -> None:
    job = HungJob(single=True)
    job.work(8)
    job.wait(3)
    job.answer = NOBODY
    assert not job.poll(MINUTE - 1)
    assert len(standing(job)) == 1
    job.poll(4 * MINUTE + 4)
    assert list(job.rules()) == ["hangs.suspected"]


def test_a_server_of_two_gpus_without_requests_is_no_hang() -> None:
    """Its kernels are in graphs, and end with each request."""
    job = HungJob(gpus=2)
    job.work(8)
    for one in job.ranks:
        one.load = REST
    assert not job.poll(20 * MINUTE)
    assert (job.ras.asked, standing(job)) == (0, ())


def test_bytes_are_read_where_they_decide_and_seldom_otherwise() -> None:
    """Eight GPUs at work: nothing but cheap questions once it is known that the job uses NVLink."""
    job = HungJob(gpus=8)
    job.work(10)
    before = job.table.put["Field(138,all)"]
    job.work(10 * MINUTE)
    assert job.table.put["Field(138,all)"] == before
    for one in job.ranks:
        one.load = WAIT
    # A decode at little power: bytes move, and are read every six seconds.
    job.work(MINUTE)
    assert job.table.put["Field(138,all)"] - before <= 8 * 12
