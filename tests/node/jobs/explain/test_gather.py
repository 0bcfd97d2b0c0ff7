"""From a node's state to what is known of each job: what is not read is not watched, and never well."""

from dataclasses import replace

import click
import pytest

from tests.node.jobs.explain.drawn import NOW, PIDS, gpu_uuid, healthy, job, late, ledger, spent, waiting
from tests.node.jobs.explain.drawnnodes import GONE, component, node
from tests.node.jobs.lockstepjobs import measured
from wirewatch.cli.jobs.explain import selected
from wirewatch.cli.jobs.explained import page
from wirewatch.collectors.gpu import GpuFacts, GpuNow
from wirewatch.collectors.nvlink import NvlinkFacts
from wirewatch.collectors.nvlink.model import NvlinkLink
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.owners import PROBE
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Failed, Finding, Health, Subject, Why
from wirewatch.documents.jobs import explain
from wirewatch.documents.judged import jobs
from wirewatch.jobs.bursts import BurstFacts, BurstFigures, BurstLook
from wirewatch.jobs.explain.evidence import (
    NOT_BEGUN,
    EvidenceSource,
    JobEvidence,
    JobSettings,
    SourceStatus,
    Wall,
)
from wirewatch.jobs.explain.gather import BURSTS, GPU, HANGS, jobs_of, switch_on, with_settings, with_threads
from wirewatch.jobs.explain.held import HeldAnswers
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.hangs import HangFacts, HangingJob, HangKind, StandingJob
from wirewatch.jobs.ledger.spent import JobLedger, LedgerFacts, RankBehind
from wirewatch.jobs.lockstep import Hint, HintTime, LockstepFacts, UnevenWork
from wirewatch.jobs.times import JobsFacts, RunningJob, TimesDoubt


def gpus(*numbers: int, shared: bool = False) -> GpuFacts:
    return GpuFacts(
        frozenset(),
        {gpu_uuid(n): GpuNow(n, 0.9, 600.0, (), frozenset({PIDS if shared else PIDS + n})) for n in numbers},
    )


def test_memory_of_its_own_processes_stands_beside_each_gpu() -> None:
    """Not of others, and not while the collector of GPUs does not read."""
    now = {gpu_uuid(0): GpuNow(0, 0.9, 600.0, (), frozenset({PIDS}), {PIDS: 5, PIDS + 9: 7})}
    facts = GpuFacts(frozenset(), now)
    (one,) = jobs_of(node(component("gpu", facts)), NOW)
    assert [gpu.memory for gpu in one.gpus] == [{PIDS: 5}]
    (blind,) = jobs_of(node(component("gpu", facts, failed=True)), NOW)
    assert [(gpu.pids, gpu.memory) for gpu in blind.gpus] == [((PIDS,), {})]


def lockstep(*numbers: int, hint: Hint | None = None) -> LockstepFacts:
    window = measured("data_parallel")[0][0]
    return LockstepFacts(hint, hint, {gpu_uuid(n): window for n in numbers}, "all wait alike", in_step=True)


def looked(number: int) -> BurstFacts:
    figures = BurstFigures(0.25, 250, 10**9, 12, 320e9, 0.01, 10**8, 3e-3, long=True, duty=0.2, period=0.02)
    look = BurstLook(str(number), gpu_uuid(number), frozenset({PIDS}), NOW, figures, 478e9, GONE)
    return BurstFacts((look,), (), None)


def whole() -> NodeState:
    """All sources that there are, over a job of four ranks."""
    hot = Finding("gpu.throttle", Health.DEGRADED, Subject("2", gpu_uuid(2)), "throttled 40 %", "cool it")
    return node(
        component("jobs", JobsFacts(NOW, 10.0, (job(),))),
        component("lockstep", lockstep(0, 1, 2, 3)),
        component("gpu", gpus(0, 1, 2, 3), hot),
        component("bursts", looked(1)),
        component("hangs", None),
        component("ledger", LedgerFacts(10.0, (healthy(),))),
    )


def test_a_job_with_the_tap_has_what_each_source_says_of_its_gpus() -> None:
    (one,) = jobs_of(whole(), NOW)
    assert one.name == "slurm:4711"
    assert [gpu.index for gpu in one.gpus] == ["0", "1", "2", "3"]
    assert [gpu.pids for gpu in one.gpus] == [(PIDS + n,) for n in range(4)]
    second = one.gpus[1]
    assert (second.plateau, second.duty, second.power) == (320e9, 0.2, 600.0)
    assert isinstance(second.peak, Absent)
    assert isinstance(one.gpus[0].plateau, Absent)
    assert not second.short
    assert [finding.rule for finding in one.findings] == ["gpu.throttle"]
    off = {status.source for status in one.sources if not status.watched}
    assert off == {EvidenceSource.THREADS}
    assert decide(one).wall is Wall.NOTHING


def test_of_the_windows_the_newest_is_kept() -> None:
    """The document of a job with hundreds of communicators would be tens of megabytes else."""
    comm = job().communicators[0]
    early, late = (replace(comm.windows[0], started=started) for started in (1.0, 2.0))
    many = job(windows=(early, late))
    (one,) = jobs_of(whole().with_component(component("jobs", JobsFacts(NOW, 10.0, (many,)))), NOW)
    assert isinstance(one.job, RunningJob)
    assert one.job.communicators[0].windows == (late,)


def test_a_job_that_has_timed_nothing_for_long_is_not_told_by_its_last_window() -> None:
    """It trained an hour ago, and writes a checkpoint or hangs since: no speed of its wires is known."""
    old = JobsFacts(NOW, 10.0, (job(fresh=False),))
    (one,) = jobs_of(whole().with_component(component("jobs", old)), NOW)
    tap = next(status for status in one.sources if status.source is EvidenceSource.TAP)
    assert (tap.watched, tap.why) == (False, "no collective has been timed lately")
    answer = decide(one)
    assert answer.wall is Wall.COMPUTING
    assert "nobody waits" not in answer.sentence
    assert "330 GB/s" not in "\n".join(page(explain(one, NOW, "live"), 80))


def test_a_late_rank_of_rings_that_are_not_read_any_more_is_not_named() -> None:
    state = whole().with_component(component("jobs", JobsFacts(NOW, 10.0, (job(late=late()),))))
    book = component("ledger", LedgerFacts(10.0, (waiting(2, 0.12),)))
    fresh = jobs_of(state.with_component(book), NOW)[0]
    assert isinstance(fresh.job, RunningJob)
    assert fresh.job.late is not None
    blind = jobs_of(state.with_component(component("jobs", state.facts(JobsFacts), failed=True)), NOW)[0]
    assert isinstance(blind.job, RunningJob)
    assert (blind.job.late, [one.fresh for one in blind.job.communicators]) == (None, [False])


def test_what_cannot_be_read_now_is_not_watched_whatever_it_said_before() -> None:
    for name, source in (
        ("jobs", EvidenceSource.TAP),
        ("lockstep", EvidenceSource.ACTIVITY),
        ("gpu", EvidenceSource.GPU),
        ("bursts", EvidenceSource.BURSTS),
        ("hangs", EvidenceSource.HANGS),
        ("ledger", EvidenceSource.LEDGER),
    ):
        state = whole()
        known = state.components[name]
        state = state.with_component(replace(known, outcome=Failed(GONE, NOW, 10.0)))
        (one,) = jobs_of(state, NOW)
        (status,) = (status for status in one.sources if status.source is source)
        assert (status.watched, status.why) == (False, str(GONE))
        assert status.switch_on
        overdue = state.with_component(replace(known, overdue_since=NOW))
        (status,) = (s for s in jobs_of(overdue, NOW)[0].sources if s.source is source)
        assert (status.watched, status.why) == (False, "its collector is overdue")


def test_a_job_that_has_ended_is_none() -> None:
    assert jobs_of(node(component("jobs", JobsFacts(NOW, 1.0, (replace(job(), live=False),)))), NOW) == ()


def test_processes_without_the_tap_are_jobs_of_which_less_is_known() -> None:
    state = node(component("gpu", gpus(0, 1, 2, 3)))
    assert [one.name for one in jobs_of(state, NOW)] == [f"pid:{PIDS + n}" for n in range(4)]
    together = state.with_component(component("lockstep", lockstep(1, 2)))
    assert [(one.name, len(one.gpus)) for one in jobs_of(together, NOW)] == [
        (f"pid:{PIDS + 1}", 2),
        (f"pid:{PIDS}", 1),
        (f"pid:{PIDS + 3}", 1),
    ]
    shared = node(component("gpu", gpus(0, 1, 2, shared=True)))
    (one,) = jobs_of(shared, NOW)
    assert len(one.gpus) == 3
    assert decide(one).wall is Wall.NOT_KNOWN
    tap = next(status for status in one.sources if status.source is EvidenceSource.TAP)
    assert (tap.watched, tap.why) == (False, "its collector is off")


def test_processes_of_one_owner_are_one_job_by_its_name() -> None:
    owners = {PIDS: "slurm:77", PIDS + 1: "slurm:77", PIDS + 2: "parent:9", PIDS + 3: "parent:9"}
    hangs = component("hangs", HangFacts((), (), owners))
    state = node(component("gpu", gpus(0, 1, 2, 3, 4)), hangs)
    found = jobs_of(state, NOW)
    assert [(one.name, len(one.gpus)) for one in found] == [
        ("slurm:77", 2), (f"pid:{PIDS + 2}", 2), (f"pid:{PIDS + 4}", 1),
    ]  # fmt: skip
    assert selected(found, "slurm:77") is found[0]
    blind = state.with_component(replace(hangs, outcome=Failed(GONE, NOW, 1.0)))
    assert len(jobs_of(blind, NOW)) == 5


def test_a_job_without_the_tap_stays_a_job_while_its_gpus_cannot_be_read() -> None:
    """A driver that hangs is when people ask: what runs is still known, and only its figures are not."""
    owners = {PIDS: "slurm:77", PIDS + 1: "slurm:77"}
    state = node(component("gpu", gpus(0, 1, 2)), component("hangs", HangFacts((), (), owners)))
    known = state.components["gpu"]
    for lost in (replace(known, outcome=Failed(GONE, NOW, 10.0)), replace(known, overdue_since=NOW)):
        first, second = jobs_of(state.with_component(lost), NOW)
        assert (first.name, [gpu.index for gpu in first.gpus], first.pids) == (
            "slurm:77", ["0", "1"], (PIDS, PIDS + 1),
        )  # fmt: skip
        assert second.name == f"pid:{PIDS + 2}"
        assert isinstance(first.gpus[0].utilisation, Absent)
        assert not first.watches(EvidenceSource.GPU)
        assert decide(first).wall is Wall.NOT_KNOWN


def test_gpus_that_do_not_run_in_lockstep_are_not_made_one_job() -> None:
    """The collector looks at all busy GPUs together; two jobs side by side are not in lockstep."""
    apart = replace(lockstep(0, 1, 2, 3), in_step=False)
    state = node(component("gpu", gpus(0, 1, 2, 3)), component("lockstep", apart))
    assert [len(one.gpus) for one in jobs_of(state, NOW)] == [1, 1, 1, 1]
    together = component("lockstep", lockstep(0, 1, 2, 3))
    assert [len(one.gpus) for one in jobs_of(state.with_component(together), NOW)] == [4]
    overdue = replace(together, overdue_since=NOW)
    assert [len(one.gpus) for one in jobs_of(state.with_component(overdue), NOW)] == [1, 1, 1, 1]


def test_two_jobs_with_names_stay_two_although_their_gpus_run_alike() -> None:
    owners = {PIDS + n: f"slurm:{7 + n // 2}" for n in range(4)}
    state = node(
        component("gpu", gpus(0, 1, 2, 3)),
        component("lockstep", lockstep(0, 1, 2, 3)),
        component("hangs", HangFacts((), (), owners)),
    )
    assert [(one.name, len(one.gpus)) for one in jobs_of(state, NOW)] == [("slurm:7", 2), ("slurm:8", 2)]


def test_a_container_is_named_by_its_long_and_by_its_short_id() -> None:
    short, long = "0123456789ab", "0123456789AB" + "cdef" * 13
    owners = {PIDS: f"container:{short}"}
    state = node(component("gpu", gpus(0, 1)), component("hangs", HangFacts((), (), owners)))
    found = jobs_of(state, NOW)
    assert selected(found, f"container:{short}") is selected(found, f"container:{long}") is found[0]
    with pytest.raises(click.UsageError, match="no job container:012345 runs"):
        selected(found, "container:012345")


def test_where_there_is_no_folder_of_rings_it_is_said() -> None:
    folder = Absent(Why.MISSING, "/run/wirewatch-tap: no such folder")
    facts = JobsFacts(NOW, 1.0, folder=folder)
    (one,) = jobs_of(node(component("jobs", facts), component("gpu", gpus(0))), NOW)
    assert one.sources[0].why == str(folder)


def test_a_hint_of_lockstep_is_of_the_job_that_has_the_gpu() -> None:
    hint = Hint(
        "2", gpu_uuid(2), NOW, HintTime(NOW, 1.0), "SM busy 93 % against 85 %", 0.93, 0.85, 0.09, GONE, 3
    )
    state = node(component("gpu", gpus(0, 1, 2, 3)), component("lockstep", lockstep(1, 2, 3, hint=hint)))
    first, second = jobs_of(state, NOW)
    assert (first.late is not None, second.late) == (True, None)
    assert decide(first).sentence == "Collectives: the others wait for GPU 2, whose SMs never wait."


def hanging(*numbers: int, pids: bool = True) -> HangFacts:
    processes = {gpu_uuid(n): frozenset({PIDS + n if pids else 0}) for n in numbers}
    text = "slurm:4711: rank 2 (GPU 2, process 4713) is stopped; no byte over NVLink for 41 s"
    one = HangingJob(HangKind.STOPPED, processes, (), NOW, text, "rank 0: 7\nrank 2: 6", "continue it")
    return HangFacts((), (one,))


def test_a_hang_is_of_the_job_whose_processes_hang() -> None:
    state = whole().with_component(component("hangs", hanging(0, 1, 2, 3)))
    (one,) = jobs_of(state, NOW)
    answer = decide(one)
    assert answer.wall is Wall.HANG
    assert answer.sentence.startswith("Hang: slurm:4711: rank 2 (GPU 2, process 4713) is stopped;")
    assert answer.because == ("rank 0: 7", "rank 2: 6")
    assert answer.advice == ("continue it",)
    other = state.with_component(component("hangs", hanging(5, 6)))
    assert jobs_of(other, NOW)[0].hang is None
    blind = component("hangs", hanging(0), failed=True)
    assert jobs_of(state.with_component(blind), NOW)[0].hang is None


def test_processes_that_hang_are_one_job_without_the_tap_too() -> None:
    for pids in (True, False):
        state = node(component("gpu", gpus(0, 1, 2, 3)), component("hangs", hanging(0, 1, 3, pids=pids)))
        first, second = jobs_of(state, NOW)
        assert (len(first.gpus), first.hang is not None) == (3, True)
        assert (len(second.gpus), second.hang) == (1, None)


def test_collectives_in_cuda_graphs_are_said_not_to_be_timed() -> None:
    graphs = job(windows=(), captured=812)
    state = whole().with_component(component("jobs", JobsFacts(NOW, 1.0, (graphs,))))
    (one,) = jobs_of(state, NOW)
    assert one.sources[0].why == "812 calls are in CUDA graphs, and their communicators are not timed"
    assert "nobody waits" not in decide(one).sentence


def test_an_nccl_whose_times_are_not_proven_is_named() -> None:
    """No window will come: nobody is asked to wait for one."""
    counted = job(windows=(), doubt=TimesDoubt.NOT_MEASURED)
    state = whole().with_component(component("jobs", JobsFacts(NOW, 1.0, (counted,))))
    (one,) = jobs_of(state, NOW)
    told = f"{TimesDoubt.NOT_MEASURED.value} (NCCL 2.28.9)"
    assert (one.sources[0].watched, one.sources[0].why, one.sources[0].switch_on) == (False, told, "")


def test_what_a_command_reads_itself_joins_what_the_daemon_knows() -> None:
    denied = Absent(Why.DENIED, "process 4711 belongs to user 7")
    (one,) = jobs_of(node(component("gpu", gpus(0, 1, shared=True))), NOW)
    seen = with_threads(one, {PIDS: 0.97})
    assert [gpu.thread for gpu in seen.gpus] == [0.97, 0.97]
    assert seen.watches(EvidenceSource.THREADS)
    assert not with_threads(one, {PIDS: denied}).watches(EvidenceSource.THREADS)
    read = with_settings(one, [JobSettings(PIDS, {"NCCL_ALGO": "Tree"})])
    assert read.watches(EvidenceSource.SETTINGS)
    refused = with_settings(one, [JobSettings(PIDS, denied)])
    (status,) = (s for s in refused.sources if s.source is EvidenceSource.SETTINGS)
    assert (status.watched, status.why) == (False, str(denied))
    both = with_settings(read, [JobSettings(PIDS, denied)])
    assert both.settings == read.settings


def test_uneven_work_by_lockstep_is_of_the_job_that_has_the_gpu() -> None:
    work = {"use of memory": 0.13}
    uneven = UnevenWork(
        "2", gpu_uuid(2), NOW, HintTime(NOW, 1.0), "GPU 2 has 14% more work", 0.14, 0.12, 0.08, work, GONE, 3
    )
    facts = replace(lockstep(1, 2, 3), uneven=uneven)
    state = node(component("gpu", gpus(0, 1, 2, 3)), component("lockstep", facts))
    first, second = jobs_of(state, NOW)
    assert (first.late, second.more) == (None, None)
    assert decide(first).wall is Wall.UNEVEN_WORK
    said = "Uneven work: GPU 2 has 14 % more work than the others; the others wait 12 % of the time."
    assert decide(first).sentence == said
    gone = state.with_component(component("lockstep", facts, failed=True))
    assert all(one.more is None for one in jobs_of(gone, NOW))


def test_the_plateau_of_short_bursts_is_a_lower_bound() -> None:
    facts = looked(1)
    short = replace(facts.looks[0], figures=replace(facts.looks[0].figures, long=False))
    state = whole().with_component(component("bursts", BurstFacts((short,), (), None)))
    (one,) = jobs_of(state, NOW)
    assert one.gpus[1].short
    assert "at least 320" in "\n".join(page(explain(one, NOW, "live"), 80))
    (long,) = jobs_of(whole(), NOW)
    assert "at least" not in "\n".join(page(explain(long, NOW, "live"), 80))


@pytest.mark.parametrize(
    ("guard", "nodes", "found"),
    [
        ("no communicator leaves the node", (1, 1), []),
        ("one communicator of two leaves the node", (1, 2), ["nic.down"]),
        ("each communicator leaves the node", (2, 2), ["nic.down"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_of_a_nic_is_of_a_job_that_uses_the_network(
    guard: str, nodes: tuple[int, ...], found: list[str]
) -> None:
    down = Finding("nic.down", Health.FAILED, Subject(device="mlx5_0"), "no carrier", "look at its cable")
    spread = tuple(replace(job().communicators[0], nodes=number) for number in nodes)
    facts = JobsFacts(NOW, 10.0, (replace(job(), communicators=spread),))
    state = node(component("jobs", facts), component("gpu", gpus(0, 1, 2, 3)), component("nic", None, down))
    (one,) = jobs_of(state, NOW)
    assert [finding.rule for finding in one.findings] == found, guard


def tapped(changed: RunningJob, *others: Component) -> JobEvidence:
    """A job with the tap, beside what other collectors say."""
    first, *_ = jobs_of(node(component("jobs", JobsFacts(NOW, 10.0, (changed,))), *others), NOW)
    return first


def ranks(**changes: object) -> RunningJob:
    """A job of which only three ranks are as they were; its first is changed."""
    whole_job = job()
    (comm,) = whole_job.communicators
    here = (replace(comm.here[0], **changes), *comm.here[1:])  # type: ignore[arg-type]
    known = whole_job.gpus if "gpu" not in changes else whole_job.gpus[1:]
    return replace(whole_job, communicators=(replace(comm, here=here),), gpus=known)


@pytest.mark.parametrize(
    ("guard", "changed", "gpus", "pids"),
    [
        ("all is known", ranks(), 4, 4),
        ("the GPU of a rank is not known", ranks(gpu=GONE, index=""), 3, 3),
        ("the process of a rank is not known", ranks(pid=GONE), 4, 3),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rank_counts_where_its_gpu_and_its_process_are_known(
    guard: str, changed: RunningJob, gpus: int, pids: int
) -> None:
    one = tapped(changed)
    assert [gpu.uuid for gpu in one.gpus] == [gpu_uuid(n) for n in range(4 - gpus, 4)], guard
    assert [read.pid for read in one.settings] == [PIDS + n for n in range(4 - pids, 4)]
    assert [gpu.pids for gpu in one.gpus if gpu.pids] == [(PIDS + n,) for n in range(4 - pids, 4)]


def test_of_the_processes_on_a_gpu_those_of_the_job_are_taken() -> None:
    """Another program may run on the same GPU; where the tap knows no process, all are taken."""
    beside = component("gpu", gpus(0, 1, 2, 3, shared=True))
    assert [gpu.pids for gpu in tapped(job(), beside).gpus] == [(PIDS + n,) for n in range(4)]
    assert tapped(ranks(pid=GONE), beside).gpus[0].pids == (PIDS,)


def test_a_hang_of_processes_is_of_a_job_on_these_gpus_whose_processes_are_not_known() -> None:
    (comm,) = job().communicators
    unseen = tuple(replace(rank, pid=GONE) for rank in comm.here)
    blind = replace(job(), communicators=(replace(comm, here=unseen),))
    for numbers, found in (((0, 1), True), ((5, 6), False)):
        one = tapped(blind, component("hangs", hanging(*numbers)))
        assert (one.pids, one.hang is not None) == ((), found)


@pytest.mark.parametrize(
    ("guard", "owners", "name"),
    [
        ("no owner is known", {}, f"pid:{PIDS}"),
        ("one owner with a name", {PIDS: "slurm:7", PIDS + 9: "slurm:7"}, "slurm:7"),
        ("two owners with names", {PIDS: "slurm:7", PIDS + 9: "pod:8"}, f"pid:{PIDS}"),
        ("one owner without a name", {PIDS: "parent:1", PIDS + 9: "parent:1"}, f"pid:{PIDS}"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_processes_on_one_gpu_have_the_name_of_their_only_owner(
    guard: str, owners: dict[int, str], name: str
) -> None:
    both = GpuFacts(frozenset(), {gpu_uuid(0): GpuNow(0, 0.9, 600.0, (), frozenset({PIDS, PIDS + 9}))})
    state = node(component("gpu", both), component("hangs", HangFacts((), (), owners)))
    assert jobs_of(state, NOW)[0].name == name, guard


DENIED = Absent(Why.DENIED, "process 4712 belongs to user 7")


@pytest.mark.parametrize(
    ("guard", "threads", "seen", "why"),
    [
        ("each is read", {PIDS: 0.9, PIDS + 1: 0.8}, (0.9, 0.8), ""),
        ("one of two is read", {PIDS: 0.9, PIDS + 1: DENIED}, (0.9, DENIED), ""),
        ("none may be read", {PIDS: DENIED, PIDS + 1: DENIED}, (DENIED, DENIED), str(DENIED)),
        ("they are those of others", {1: 0.9}, (None, None), "none of its processes is known"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_threads_are_watched_where_those_of_one_gpu_are_read(
    guard: str, threads: dict[int, float | Absent], seen: tuple[float | Absent | None, ...], why: str
) -> None:
    facts = GpuFacts(frozenset(), dict(gpus(0, 1).now))
    state = node(component("gpu", facts), component("lockstep", lockstep(0, 1)))
    (one,) = jobs_of(state, NOW)
    read = with_threads(one, threads)
    for gpu, value in zip(read.gpus, seen, strict=True):
        assert gpu.thread == value or (value is None and isinstance(gpu.thread, Absent)), guard
    (status,) = (status for status in read.sources if status.source is EvidenceSource.THREADS)
    assert (status.watched, status.why) == (not why, why)


def test_the_peak_of_a_gpu_is_that_of_its_own_links_that_are_up_and_known() -> None:
    up, asleep, down = (NvlinkLink(n, n, 10e9 + n) for n in (1, 2, 0))
    unknown = NvlinkLink(3, 1, GONE)
    links = {
        Gpu(0, gpu_uuid(0)): (up, asleep, down, unknown),
        Gpu(1, gpu_uuid(1)): (up,),
        Gpu(2, gpu_uuid(2)): (down, unknown),
    }
    one = tapped(job(), component("nvlink", NvlinkFacts(links)))
    none = Absent(Why.MISSING, "the rates of its NVLinks are not known")
    assert [gpu.peak for gpu in one.gpus] == [20e9 + 3, 10e9 + 1, none, none]


def test_a_source_that_lacks_a_gpu_of_the_job_does_not_watch_it() -> None:
    whole, part = (tapped(job(), component("lockstep", lockstep(*range(of)))) for of in (4, 3))
    activity = EvidenceSource.ACTIVITY
    assert (whole.watches(activity), part.watches(activity)) == (True, False)


def test_arithmetic_is_that_of_the_busiest_unit_where_one_is_reported() -> None:
    window = measured("data_parallel")[0][0]
    windows = {
        gpu_uuid(0): replace(window, math={"tensor": 0.3, "fp32": 0.7}),
        gpu_uuid(1): replace(window, math={}),
    }
    facts = LockstepFacts(None, None, windows, "all wait alike", in_step=True)
    first, second, *_ = tapped(job(), component("lockstep", facts)).gpus
    assert first.math == 0.7
    assert second.math == Absent(Why.UNSUPPORTED, "no arithmetic unit is reported")


@pytest.mark.parametrize(
    ("guard", "rule", "where", "found"),
    [
        ("a GPU of the job", "gpu.throttle", Subject("2", gpu_uuid(2)), 1),
        ("a GPU of another job", "gpu.throttle", Subject("7", gpu_uuid(7)), 0),
        ("a device of the network", "nic.down", Subject(device="mlx5_0"), 1),
        ("the node itself", "clock.unsynchronised", Subject(), 0),
        ("the job itself, said already", "jobs.slow_wire", Subject("2", gpu_uuid(2)), 0),
        ("a hang, said already", "hangs.stopped", Subject("2", gpu_uuid(2)), 0),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_findings_of_a_job_on_two_nodes_are_those_of_its_gpus_and_of_the_network(
    guard: str,
    rule: str,
    where: Subject,
    found: int,
) -> None:
    seen = Finding(rule, Health.DEGRADED, where, "evidence", "action")
    one = tapped(job(nodes=2), component("others", None, seen))
    assert [finding.rule for finding in one.findings] == [rule] * found, guard


def test_a_source_without_a_value_of_these_gpus_says_why() -> None:
    """The collectors read, but not these GPUs; a collector that reads has nothing to say of itself."""
    others = (component("lockstep", lockstep(5)), component("gpu", gpus(5)), component("bursts", looked(5)))
    statuses = {status.source: status for status in tapped(job(), *others, component("hangs", None)).sources}
    why = {source: status.why for source, status in statuses.items()}
    assert why[EvidenceSource.ACTIVITY] == "all wait alike"
    assert why[EvidenceSource.GPU] == "NVML does not say it of these GPUs"
    assert why[EvidenceSource.BURSTS] == "no look at its GPUs yet"
    hangs = SourceStatus(EvidenceSource.HANGS, watched=True, switch_on=switch_on(HANGS))
    assert statuses[EvidenceSource.HANGS] == hangs
    full = {status.source: status for status in jobs_of(whole(), NOW)[0].sources}
    assert full[EvidenceSource.HANGS] == hangs
    for source, collector in ((EvidenceSource.GPU, GPU), (EvidenceSource.BURSTS, BURSTS)):
        assert full[source] == SourceStatus(source, watched=True, switch_on=switch_on(collector))


def status_of(one: JobEvidence, source: EvidenceSource) -> SourceStatus:
    (found,) = (status for status in one.sources if status.source is source)
    return found


def communicators(*changes: dict[str, object]) -> RunningJob:
    (comm,) = job().communicators
    made = tuple(replace(comm, **one) for one in changes)  # type: ignore[arg-type]
    return replace(job(), communicators=made)


UNTIMED: dict[str, object] = {"windows": (), "joined": 0}


@pytest.mark.parametrize(
    ("guard", "changed", "watched", "why"),
    [
        ("each communicator is timed", communicators({}, {}), 1, ""),
        ("one of two is timed", communicators(UNTIMED, {}), 1, ""),
        ("none has been timed", communicators(UNTIMED, UNTIMED), 0, "no window is full yet"),
        ("one has been timed", communicators(UNTIMED, {"windows": ()}), 0,
         "no collective has been timed lately"),
        ("graphs in both", communicators({**UNTIMED, "captured": 2}, {**UNTIMED, "captured": 3}), 0,
         "5 calls are in CUDA graphs, and their communicators are not timed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_job_is_timed_where_one_of_its_communicators_is(
    guard: str, changed: RunningJob, watched: int, why: str
) -> None:
    tap = status_of(tapped(changed), EvidenceSource.TAP)
    assert (tap.watched, tap.why) == (bool(watched), why), guard


def test_a_process_beside_a_folder_of_rings_does_not_carry_the_tap() -> None:
    (one,) = jobs_of(node(component("jobs", JobsFacts(NOW, 1.0)), component("gpu", gpus(0))), NOW)
    assert status_of(one, EvidenceSource.TAP).why == "its processes do not carry the tap"


def test_settings_are_watched_where_those_of_each_process_are_read() -> None:
    settings = EvidenceSource.SETTINGS
    (bare,) = jobs_of(node(component("gpu", gpus(0))), NOW)
    assert status_of(bare, settings).why == "the daemon reads those of jobs with the tap"
    assert not bare.watches(settings)
    assert tapped(job()).watches(settings)
    half = tapped(ranks(settings=DENIED))
    assert (half.watches(settings), status_of(half, settings).why) == (False, str(DENIED))


def test_a_collector_that_has_not_read_yet_says_so() -> None:
    waiting = replace(component("bursts", None), outcome=None)
    one = tapped(job(), waiting)
    assert status_of(one, EvidenceSource.BURSTS).why == "its collector has not read yet"
    assert status_of(one, EvidenceSource.HANGS).why == "its collector is off"


def test_of_two_processes_on_a_gpu_the_one_that_sleeps_more_counts() -> None:
    both = GpuFacts(frozenset(), {gpu_uuid(0): GpuNow(0, 0.9, 600.0, (), frozenset({PIDS, PIDS + 1}))})
    (one, *_) = jobs_of(node(component("gpu", both)), NOW)
    for first, second, least in ((0.9, 0.4, 0.4), (DENIED, 0.7, DENIED), (0.7, DENIED, DENIED)):
        assert with_threads(one, {PIDS: first, PIDS + 1: second}).gpus[0].thread == least


def test_a_gpu_without_a_number_comes_after_the_others() -> None:
    named = {n: str(n) for n in (10, 9)}
    shares = [replace(job().gpus[0], gpu=gpu_uuid(n), index=named.get(n, "")) for n in (3, 10, 1, 9)]
    (comm,) = job().communicators
    one = tapped(replace(job(), gpus=tuple(shares), communicators=(replace(comm, here=()),)))
    assert [gpu.uuid for gpu in one.gpus] == [gpu_uuid(n) for n in (9, 10, 1, 3)]


def test_the_processes_of_a_job_are_those_of_its_gpus_and_of_ranks_without_a_gpu() -> None:
    one = tapped(ranks(gpu=GONE, index=""))
    assert one.pids == tuple(PIDS + n for n in range(4))
    assert replace(one, job=GONE).pids == tuple(PIDS + n for n in range(1, 4))
    assert not replace(one, sources=()).watches(EvidenceSource.TAP)


def probing(*numbers: int) -> HangFacts:
    """The probe of wirewatch has these GPUs."""
    return HangFacts((), owners={PIDS + n: PROBE if n in numbers else f"parent:{n}" for n in range(4)})


def test_a_probe_is_no_job() -> None:
    state = node(component("gpu", gpus(0, 1, 2)), component("hangs", probing(0, 1)))
    (one,) = jobs_of(state, NOW)
    assert [gpu.uuid for gpu in one.gpus] == [gpu_uuid(2)]
    assert jobs_of(node(component("gpu", gpus(0, 1)), component("hangs", probing(0, 1))), NOW) == ()


def test_a_probe_beside_a_job_is_none_of_its_processes() -> None:
    both = GpuFacts(frozenset(), {gpu_uuid(0): GpuNow(0, 0.9, 600.0, (), frozenset({PIDS, PIDS + 1}))})
    (one,) = jobs_of(node(component("gpu", both), component("hangs", probing(0))), NOW)
    assert (one.name, one.pids) == (f"pid:{PIDS + 1}", (PIDS + 1,))


def standing(*numbers: int, pids: bool = True) -> HangFacts:
    held = {gpu_uuid(n): frozenset({PIDS + n if pids else 0}) for n in numbers}
    return HangFacts((), standing=(StandingJob(held, NOW - 14, "no byte moves"),))


@pytest.mark.parametrize(
    ("guard", "facts", "stands"),
    [
        ("its processes", standing(0, 1), True),
        ("its GPUs, of processes that are not known", standing(0, pids=False), True),
        ("other GPUs", standing(4, pids=False), False),
        ("other processes", standing(5), False),
        ("nobody", HangFacts(()), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_that_stands_still_is_found_by_processes_or_gpus(
    guard: str, facts: HangFacts, *, stands: bool
) -> None:
    (one,) = jobs_of(whole().with_component(component("hangs", facts)), NOW)
    assert (one.standing is not None) is stands, guard
    assert (decide(one).wall is Wall.STANDING) is stands


def test_the_ledgers_of_a_job_s_gpus_are_one() -> None:
    behind = RankBehind(1, "0xabc", gpu_uuid(1), "1", None, 2, 12.0)
    halves = (ledger(spent(0), spent(9), since=8.0), ledger(spent(4), spent(5)),
              ledger(*(spent(n) for n in (1, 2, 3)), starting=True, since=5.0, behind=(behind,)))  # fmt: skip
    (one,) = jobs_of(whole().with_component(component("ledger", LedgerFacts(10.0, halves))), NOW, "gpu-017")
    assert isinstance(one.ledger, JobLedger)
    assert [gpu.index for gpu in one.ledger.long] == [gpu.index for gpu in one.ledger.short] == list("0123")
    assert (one.ledger.starting, one.ledger.since, one.ledger.behind) == (True, 5.0, (behind,))
    assert one.host == "gpu-017"
    (one,) = jobs_of(whole().with_component(component("ledger", LedgerFacts(10.0, halves[1:2]))), NOW)
    status = status_of(one, EvidenceSource.LEDGER)
    assert (one.ledger, status.watched) == (NOT_BEGUN, False)
    assert status.why == "it has nothing of these GPUs yet"
    assert decide(one).wall is Wall.NOT_KNOWN


def test_a_hang_that_is_only_suspected_is_said_so() -> None:
    state = node(component("gpu", gpus(0, 1, 2, 3)), component("hangs", hanging(0, 1, 3, pids=True)))
    facts = state.components["hangs"].facts
    assert isinstance(facts, HangFacts)
    guessed = replace(facts, now=tuple(replace(one, kind=HangKind.SUSPECTED) for one in facts.now))
    sure, guess = (jobs_of(state.with_component(component("hangs", f)), NOW)[0] for f in (facts, guessed))
    assert sure.hang is not None
    assert guess.hang == replace(sure.hang, suspected=True)


def test_the_document_of_jobs_goes_on_with_what_is_shown() -> None:
    answers, state = HeldAnswers(), whole()
    late = LedgerFacts(10.0, (waiting(1, 0.3),))
    other = state.with_component(component("ledger", replace(late, jobs=(waiting(2, 0.4),))))
    state = state.with_component(component("ledger", late))

    def first(known: NodeState, at: float, shown: HeldAnswers | None) -> tuple[str, float]:
        (one,) = jobs(known, at, "live", shown, "gpu-017").jobs
        return one.answer.sentence, one.since

    before = first(state, NOW, answers)
    assert "rank 1 on GPU 1 of gpu-017, which costs 30 %" in before[0]
    assert first(other, NOW + 5, answers) == before
    assert first(other, NOW + 5, None)[0] != before[0]
    after = first(other, NOW + 15, answers)
    assert "rank 2 on GPU 2 of gpu-017, which costs 40 %" in after[0]
    assert after[1] == NOW + 15


def test_two_jobs_of_one_owner_are_both_there() -> None:
    """One carries the tap, the other does not."""
    facts = HangFacts((), owners={PIDS + 9: "slurm:4711"})
    state = whole().with_component(component("hangs", facts))
    state = state.with_component(component("gpu", gpus(0, 1, 2, 3, 9)))
    assert [one.evidence.name for one in jobs(state, NOW, "live").jobs] == ["slurm:4711"] * 2
