"""Jobs that hang and jobs that only look so: the eight kinds that are told apart, poll by poll."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.examples import examples
from tests.node.jobs.hungjobs import GIB, NOBODY, REST, UID, WAIT, WORK, HungJob
from tests.node.jobs.ras.reports import HOST
from wirewatch.core.jobs import RasCommunicator, RasCrowd, RasListener, RasPhase, RasRank, RasReport
from wirewatch.core.types import Absent, Finding, Health, Why
from wirewatch.jobs.hangs.model import HangFacts, StandingJob, WatchedJob

STUCK = 13
"""Polls after which a job that hangs has been looked at twice: 26 s after it began to."""


def standing(job: HungJob) -> tuple[StandingJob, ...]:
    """The jobs that are said to stand still."""
    facts = job.watched.component.facts
    assert isinstance(facts, HangFacts)
    return facts.standing


def hung(polls: int = STUCK) -> tuple[HungJob, Callable[[], Finding]]:
    """A job that has worked, and the one finding after it has hung for so many polls."""
    job = HungJob()
    assert not job.work(8)

    def found() -> Finding:
        job.poll(polls)
        (one,) = job.watched.component.findings
        return one

    return job, found


def test_a_rank_that_is_stopped_is_named() -> None:
    job, found = hung()
    job.wait(2)
    job.ranks[2].state, job.ranks[2].missing = "T", "unresponsive"
    one = found()
    assert (one.rule, one.health, one.subject.gpu) == ("hangs.stopped", Health.DEGRADED, "2")
    assert "rank 2 (GPU 2, process 4002) is stopped by a signal" in one.evidence
    assert one.evidence.startswith("Slurm job 41: ")
    assert "do not drain it" in one.action


def test_a_rank_that_only_ras_misses_is_named() -> None:
    job, found = hung()
    job.wait(1)
    job.ranks[1].state, job.ranks[1].missing = "D", "dead"
    one = found()
    assert one.rule == "hangs.stopped"
    assert "rank 1 (GPU 1, process 4001) does not answer RAS (dead) and is inside the kernel" in one.evidence


def test_a_rank_that_has_ended_is_named_by_its_gpu() -> None:
    job, found = hung()
    job.wait(3)
    job.ranks[3].ended, job.ranks[3].missing = True, "dead"
    one = found()
    assert (one.rule, one.subject.gpu) == ("hangs.stopped", "3")
    assert "GPU 3, process 4003 has ended" in one.evidence


def test_a_collective_that_one_rank_skipped_is_named() -> None:
    job, found = hung()
    job.wait(2)
    for number in (0, 1, 3):
        job.ranks[number].launched += 1
    one = found()
    assert (one.rule, one.subject.gpu, one.subject.uuid) == ("hangs.asymmetric", "2", "GPU-2")
    assert (
        "rank 2 (GPU 2, process 4002) has launched 2400 all_reduce, others 2401 (communicator 0x17fa of 4)"
        in one.evidence
    )
    assert "py-spy" in one.action


def test_a_job_in_which_nothing_completes_is_symmetric_and_names_no_gpu() -> None:
    job, found = hung()
    job.wait()
    one = found()
    assert (one.rule, str(one.subject)) == ("hangs.symmetric", "node")
    assert "4 GPUs at 125 W, no byte over NVLink; it has looked so for" in one.evidence


def test_a_loader_that_stalls_is_no_hang_and_nobody_is_asked() -> None:
    job = HungJob()
    job.work()
    job.wait(0, 1, 2, 3)
    assert not job.poll(60)
    assert job.ras.asked == 0


def test_a_checkpoint_behind_a_barrier_is_no_hang() -> None:
    job = HungJob()
    job.work()
    job.wait(0)
    for one in job.ranks[1:]:
        one.launched += 1
    for _ in range(200):
        job.ranks[0].files += 4 * GIB
        assert not job.poll()
    assert job.ras.asked > 1
    (said,) = standing(job)
    assert said.busy
    assert "busy for 6.6 min: rank 0 (GPU 0, process 4000) has launched" in said.text
    assert "it is at work on files (2147 MB/s): a compile, a checkpoint?" in said.text
    # The file is written, and the rank does not come back.
    job.poll(130)
    assert job.rules()["hangs.asymmetric"].subject.gpu == "0"
    assert standing(job) == ()


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ({"cpu": 2.0}, "it computes (100 % of a core)"),
        ({"faults": 200}, "it waits for pages of files (100/s)"),
        ({"files": GIB}, "it is at work on files (537 MB/s)"),
    ],
)
def test_a_rank_at_work_for_which_others_wait_is_busy_for_ten_minutes_and_then_found(
    work: Mapping[str, int], said: str
) -> None:
    job, _ = hung()
    job.wait(1)
    for number in (0, 2, 3):
        job.ranks[number].launched += 1

    def working(seconds: int) -> tuple[Finding, ...]:
        found: tuple[Finding, ...] = ()
        for _ in range(seconds // 2):
            for name, growth in work.items():
                setattr(job.ranks[1], name, getattr(job.ranks[1], name) + growth)
            found = job.poll()
        return found

    assert working(590) == ()
    (one,) = standing(job)
    assert (one.busy, said in one.text) == (True, True)
    (finding,) = working(50)
    assert (finding.rule, finding.subject.gpu) == ("hangs.asymmetric", "1")
    assert f"the others wait in what it has not launched ({said})" in finding.evidence


def test_a_rank_that_waits_in_a_kernel_and_spins_is_not_at_work() -> None:
    job, _ = hung()
    job.wait()
    for number in (0, 2, 3):
        job.ranks[number].launched += 1
    for _ in range(STUCK):
        job.ranks[1].cpu += 2.0
        job.poll()
    assert job.rules()["hangs.asymmetric"].subject.gpu == "1"


def test_of_ranks_that_are_behind_those_that_run_nothing_are_waited_for() -> None:
    job, found = hung()
    job.wait(3)
    job.ranks[0].launched += 1
    one = found()
    assert one.subject.gpu == "3"
    assert "rank 1" not in one.evidence


def test_decoding_with_graphs_is_no_hang_since_bytes_move() -> None:
    job = HungJob()
    for one in job.ranks:
        one.load = (1.0, 180.0)
    assert not job.work(90, moved=200 << 20, launched=0)
    assert job.ras.asked == 0


def test_a_server_without_requests_is_no_hang() -> None:
    job = HungJob()
    job.work()
    for one in job.ranks:
        one.load = REST
    assert not job.poll(360)
    assert job.ras.asked == 0


def test_the_end_of_a_job_is_no_hang() -> None:
    job = HungJob()
    job.work()
    job.wait()
    for one in job.ranks:
        one.phase = RasPhase.FINALIZING
    assert not job.poll(30)
    for one in job.ranks:
        one.ended = True
    assert not job.poll(30)
    assert not job.watched.component.memory.jobs


def test_a_job_that_goes_on_by_its_counts_is_no_hang() -> None:
    """Collectives over sockets: no byte on NVLink, little power, and RAS shows that they go on."""
    job = HungJob()
    job.work()
    job.wait()
    assert not job.work(60, moved=0)
    assert job.ras.asked > 1


def test_nothing_is_found_by_one_answer() -> None:
    job, _ = hung()
    job.wait(2)
    job.ranks[2].state = "T"
    assert not job.poll(9)
    assert job.ras.asked == 1
    assert job.poll(3)


def test_it_is_said_to_stand_still_ten_seconds_after_it_began_to() -> None:
    job, _ = hung()
    job.wait(0)
    assert not job.poll(5)
    assert standing(job) == ()
    assert not job.poll(2)
    (one,) = standing(job)
    assert one.text == (
        "GPUs 1, 2 and 3 run at 100 % with 125 W, as kernels do that wait; GPU 0 runs nothing; "
        "no byte over NVLink for 8 s"
    )
    assert one.processes == {f"GPU-{number}": frozenset({4000 + number}) for number in range(4)}
    assert one.since == job.watched.clock.now() - 14.0


def test_ras_is_left_alone_more_and_more_once_it_has_answered() -> None:
    job, found = hung()
    job.wait()
    found()
    assert job.ras.asked == 2
    job.poll(1785)
    assert 8 <= job.ras.asked <= 14  # an hour after the first


def test_the_finding_holds_while_the_job_hangs_and_is_kept_when_it_is_gone() -> None:
    job, found = hung()
    job.wait(2)
    for number in (0, 1, 3):
        job.ranks[number].launched += 1
    found()
    assert [one.rule for one in job.poll(500)] == ["hangs.asymmetric"]
    assert job.watched.series("job_hang", kind="asymmetric") == [1]
    for one in job.ranks:
        one.ended = True
    assert not job.poll()
    memory = job.watched.component.memory
    (past,) = memory.past
    assert (past.kind, past.owner) == ("asymmetric", "slurm:41")
    assert "communicator 0x17fa of 4: 0:2401 1:2401 2:2400 3:2401" in past.snapshot
    assert job.watched.series("job_hang", kind="asymmetric") == [0]
    assert job.watched.series("job_hangs_total", kind="asymmetric") == [1]
    collector = job.watched.collector
    assert collector.lasting is not None
    assert collector.lasting.recall(collector.lasting.keep(memory)).past == memory.past


def restarted(job: HungJob) -> None:
    """The agent is started again: what is kept goes through JSON, and all else is lost."""
    lasting = job.watched.collector.lasting
    assert lasting is not None
    adapter = TypeAdapter(lasting.kept)
    kept = adapter.validate_json(adapter.dump_json(lasting.keep(job.watched.component.memory)))
    job.watched.component = replace(job.watched.component, memory=lasting.recall(kept))


def test_a_hang_is_found_again_and_counted_once_when_the_agent_is_started_again() -> None:
    """It moves no byte any more, by which a job is known to have begun."""
    job, found = hung()
    job.wait(2)
    for number in (0, 1, 3):
        job.ranks[number].launched += 1
    found()
    restarted(job)
    for _ in range(STUCK):
        assert [one.rule for one in job.poll()] == ["hangs.asymmetric"]
    assert job.watched.series("job_hangs_total", kind="asymmetric") == [1]
    job.work(2)
    job.ranks[2].launched += 1
    job.wait()
    assert found().rule == "hangs.symmetric"
    assert job.watched.series("job_hangs_total", kind="symmetric") == [1]


def test_a_process_that_ended_while_the_agent_was_away_is_the_culprit() -> None:
    job, found = hung()
    restarted(job)
    job.wait(3)
    job.ranks[3].ended = True
    assert "GPU 3, process 4003 has ended" in found().evidence


def test_after_a_restart_another_job_of_the_same_owner_must_move_bytes_first() -> None:
    job, _ = hung()
    restarted(job)
    job.watched.component = replace(
        job.watched.component,
        memory=replace(
            job.watched.component.memory,
            jobs={"slurm:41": WatchedJob({"GPU-0": frozenset({77})}, moved=True)},
        ),
    )
    job.wait()
    assert job.poll(30) == ()
    assert job.ras.asked == 0


def test_a_job_that_moves_again_hangs_no_more() -> None:
    job, found = hung()
    job.wait()
    found()
    for one in job.ranks:
        one.load = WORK
    assert not job.work(1)
    assert len(job.watched.component.memory.past) == 1


def test_who_waits_for_a_rank_that_waits_itself_is_no_culprit() -> None:
    """Rank 1 lags in one communicator since it waits in another, for rank 3."""
    job, found = hung()
    job.wait(3)

    def ranks(*launched: int) -> tuple[RasRank, ...]:
        return tuple(RasRank(n, HOST, 900 + n, n, n, {"all_reduce": c}) for n, c in enumerate(launched))

    first, second = ranks(5, 4, 5, 5), ranks(9, 9, 9, 8)
    both = (RasCommunicator("0xa", "0x1:0x2", 4, first), RasCommunicator("0xb", "0x1:0x2", 4, second))
    job.answer = (RasReport("2.29.2", both, 0.01, uid=UID, processes=4),)
    one = found()
    assert one.subject.gpu == "3"
    assert "rank 1" not in one.evidence


def test_a_culprit_on_another_node_is_named_by_its_host() -> None:
    job, _ = hung()
    job.wait()
    for rank in job.ranks:
        rank.launched += 1
    job.remote = (RasRank(4, "192.0.2.9", 901, 0, 0, {"all_reduce": 900}),)
    job.poll(STUCK)
    assert job.rules() == {}
    assert (
        "whether it is at work cannot be seen here (its process is on another node)" in standing(job)[0].text
    )
    job.poll(50)
    one = job.rules()["hangs.asymmetric"]
    assert str(one.subject) == "node"
    assert "rank 4 (GPU 0 as the job counts, process 901 on host 192.0.2.9)" in one.evidence


def test_what_ras_does_not_count_is_found_by_the_idle_gpu() -> None:
    job, found = hung()
    job.wait(1)
    one = found()
    assert (one.rule, one.subject.gpu) == ("hangs.asymmetric", "1")
    assert "has launched as much as the others by RAS, and its GPU is idle" in one.evidence


def test_an_error_that_nccl_reports_is_named() -> None:
    job, found = hung()
    job.wait()
    job.ranks[1].errors = ("remote error while running",)
    one = found()
    assert (one.rule, one.subject.gpu) == ("hangs.error", "1")
    assert "remote error while running" in one.evidence


@pytest.mark.parametrize("answer", [NOBODY, Absent(Why.TIMEOUT, "RAS did not answer"), ()])
@pytest.mark.parametrize(("asleep", "polls"), [(True, 30), (False, 150)])
def test_without_an_answer_it_is_suspected_sooner_where_the_idle_process_is_seen_to_sleep(
    answer: Absent | tuple[()], polls: int, *, asleep: bool
) -> None:
    job, _ = hung()
    job.wait(2)
    job.answer = answer
    if not asleep:
        job.hidden = ("io",)
    assert not job.poll(polls - 1)
    assert len(standing(job)) == 1
    job.poll(3)
    (one,) = job.watched.component.findings
    assert (one.rule, one.health, one.subject.gpu) == ("hangs.suspected", Health.DEGRADED, "2")
    assert "GPU 2, process 4002 its GPU is idle while others wait" in one.evidence
    why = answer.detail if isinstance(answer, Absent) else "RAS answered for other jobs, not for this one"
    assert why in one.evidence


def test_without_an_answer_a_job_that_waits_for_no_rank_here_is_suspected_after_five_minutes() -> None:
    """A rank of another node may write a checkpoint meanwhile."""
    job, _ = hung()
    job.wait()
    job.answer = NOBODY
    assert not job.poll(149)
    job.poll(3)
    assert list(job.rules()) == ["hangs.suspected"]


def test_a_stopped_process_is_named_without_ras() -> None:
    job, found = hung()
    job.wait(2)
    job.answer, job.ranks[2].state = NOBODY, "T"
    assert found().rule == "hangs.stopped"


def test_a_pods_own_network_namespace_is_the_reason_that_is_given() -> None:
    job = HungJob(owner="0::/kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000000a.slice/x.scope")
    job.files.texts["/var/log/pods/team_train-0_0a1b2c3d-0000-4000-8000-00000000000a/x"] = ""
    job.work()
    job.wait(1)
    job.answer = NOBODY
    job.ras.own, job.ras.theirs = (), (RasListener("127.0.0.1:28028", UID, 8, open=False),)
    job.poll(34)
    (one,) = job.watched.component.findings
    assert "network namespace of its own" in one.evidence
    assert one.evidence.startswith("pod team/train-0: ")


def test_an_answer_of_another_user_s_listener_is_not_believed() -> None:
    job, _ = hung()
    job.wait(2)
    job.answer = tuple(replace(one, uid=UID + 1) for one in job.reports())
    job.poll(60)
    assert list(job.rules()) == ["hangs.suspected"]


def test_a_listener_that_others_can_reach_is_a_finding_of_its_own() -> None:
    job = HungJob()
    job.ras.own = (RasListener("0.0.0.0:28028", UID, 7, open=True),)
    (one,) = job.work()
    assert (one.rule, one.health) == ("hangs.ras_open", Health.DEGRADED)
    assert "0.0.0.0:28028" in one.evidence
    assert job.ras.asked == 0
    job.ras.own = ()
    assert not job.work(31)


def test_the_text_of_an_old_nccl_names_the_rank_that_it_lists() -> None:
    job, found = hung()
    job.wait(2)
    late = RasRank(2, HOST, 902, 2, 2, {"all_reduce": 640})
    crowd = (RasCrowd("all_reduce", 3, 641),)
    comm = RasCommunicator("0xfa", "", 4, (late,), crowd, listed=False)
    job.answer = (RasReport("2.26.2", (comm,), 0.01, uid=UID, processes=4),)
    one = found()
    assert (one.rule, one.subject.gpu) == ("hangs.asymmetric", "2")


def test_two_jobs_are_two_and_one_of_them_hangs() -> None:
    job = HungJob()
    job.owners = dict.fromkeys((2, 3), "0::/system.slice/slurmstepd.scope/job_42/step_0")
    job.work()
    for rank in job.ranks[:2]:
        rank.load = WAIT
    for _ in range(STUCK):
        for rank in job.ranks[2:]:
            rank.sent += GIB
        job.poll()
    assert set(job.watched.component.memory.jobs) == {"slurm:41", "slurm:42"}
    (one,) = job.watched.component.findings
    assert one.evidence.startswith("Slurm job 41: ")
    assert "2 GPUs at" in one.evidence


def test_a_process_that_goes_to_another_job_has_not_ended() -> None:
    job = HungJob()
    job.work()
    job.owners = dict.fromkeys((2, 3), "0::/system.slice/slurmstepd.scope/job_42/step_0")
    job.poll()
    assert not any(one.gone for one in job.watched.component.memory.jobs.values())


@pytest.mark.parametrize(("state", "rule"), [("T", "hangs.stopped"), ("S", "hangs.asymmetric")])
def test_processes_that_nvml_does_not_know_are_those_of_ras(state: str, rule: str) -> None:
    job = HungJob(foreign=True)
    job.work()
    job.wait(2)
    job.ranks[2].state = state
    job.poll(STUCK)
    (one,) = job.watched.component.findings
    assert (one.rule, one.subject.gpu) == (rule, "2")
    assert "rank 2 (GPU 2, process 902)" in one.evidence


def test_a_lost_reading_neither_finds_nor_clears() -> None:
    job, found = hung()
    job.wait()
    job.poll(5)
    for question in ("PowerUsage()", "UtilizationRates()"):
        job.table.table["GPU-1", question] = Absent(Why.LOST, "lost")
    job.watched.poll(1, 2.0)
    assert found().rule == "hangs.symmetric"


@dataclass(frozen=True)
class Shape:
    """Two seconds of a healthy job: loads of its first rank and the others, and what grows meanwhile.

    `memory`: per cent of time in which its GPUs' memory is used. `state`: of the first rank's process; the
    other members are what grows of it.
    """

    first: tuple[float, float] = WORK
    others: tuple[float, float] = WORK
    sent: int = 0
    launched: int = 0
    memory: int = 30
    state: str = "S"
    files: int = 0
    cpu: float = 0.0
    faults: int = 0


BARRIER = Shape(REST, WAIT, memory=0)
SHAPES = {
    "work": Shape(sent=GIB, launched=100),
    "decode in graphs": Shape((1.0, 180.0), (1.0, 180.0), sent=GIB),
    "loader": Shape(REST, REST, memory=0),
    "evaluation": Shape((1.0, 400.0), (1.0, 400.0)),
    "evaluation by the first rank": Shape((1.0, 400.0), WAIT),
    "checkpoint": replace(BARRIER, files=GIB),
    "checkpoint that goes to its disk": replace(BARRIER, state="D"),
    "checkpoint that is mapped": replace(BARRIER, faults=500),
    "compile": replace(BARRIER, cpu=2.0),
    "upload": replace(BARRIER, cpu=0.4),
}


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(SHAPES)), st.integers(1, 30)), min_size=1, max_size=8))
def test_healthy_jobs_of_any_shape_name_nobody(story: list[tuple[str, int]]) -> None:
    """Whether RAS answers or not; a barrier behind one rank lasts eight minutes at most."""
    jobs = HungJob(gpus=2), HungJob(gpus=2, answer=NOBODY)
    for name, polls in story:
        shape = SHAPES[name]
        for _ in range(polls):
            for job in jobs:
                for number, one in enumerate(job.ranks):
                    one.load, one.memory = shape.others if number else shape.first, shape.memory
                    one.sent += shape.sent
                    one.launched += shape.launched
                first = job.ranks[0]
                first.state = shape.state
                first.files, first.cpu, first.faults = (
                    first.files + shape.files, first.cpu + shape.cpu, first.faults + shape.faults
                )  # fmt: skip
                assert not job.poll()


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 3), st.integers(0, 40), st.booleans())
def test_whoever_sleeps_is_named_within_thirty_seconds_whenever_it_began_to(
    culprit: int, worked: int, decodes: bool,  # noqa: FBT001
) -> None:  # fmt: skip
    """Also where its GPUs drew little power before, and showed the same but for their bytes."""
    job = HungJob()
    for one in job.ranks:
        one.load = (1.0, 180.0) if decodes else WORK
    job.work(worked + 2)
    job.wait(culprit)
    for number, one in enumerate(job.ranks):
        one.launched += number != culprit
    polls = next(number for number in range(1, 20) if job.poll())
    assert 9 <= polls <= 14
    assert job.rules()["hangs.asymmetric"].subject.gpu == str(culprit)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 3), st.integers(1, 40), st.sampled_from([None, NOBODY]))
def test_whoever_is_stopped_is_named_whenever_it_stops(
    culprit: int, worked: int, answer: Absent | None
) -> None:
    job = HungJob()
    job.work(worked + 1)
    job.wait(culprit)
    job.ranks[culprit].state = "T"
    job.answer = answer
    job.poll(STUCK)
    (one,) = job.watched.component.findings
    assert (one.rule, one.subject.gpu) == ("hangs.stopped", str(culprit))
