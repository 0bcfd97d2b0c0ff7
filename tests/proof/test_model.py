"""The independent model of jobs: its truth, what it writes and shows, how it judges, a job of each family."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from proof.model import rings
from proof.model.families import More, Stalls, make
from proof.model.job import OTHERS, Job, Spending, World, spending
from proof.model.judge import DENIED, RIGHT, SILENT, WRONG, Bench, Verdict
from proof.model.load import Clock, Load, ModelFiles, ModelNvml, ModelRas, Node
from proof.model.page import PAGE, page
from proof.model.play import MONO, OWNER, UNIX, Look, Played, play
from proof.model.results import FILE, judged, known, loaded
from proof.model.rings import PROXY, Clocks, Writer, uuid
from proof.model.shapes import drawn, program
from tests.processes import ROOT
from wirewatch.core.jobs import RingState, TimedCollective
from wirewatch.core.ports import ALL_LINKS, Question
from wirewatch.core.types import Absent, value_or
from wirewatch.documents.jobs import ExplainedJob
from wirewatch.jobs.explain.evidence import Certainty, JobAnswer, JobEvidence, Wall
from wirewatch.jobs.ledger.spent import GpuLedger, JobLedger, LedgerFacts, Spent
from wirewatch.jobs.tap.rings import FileRings


@cache
def ran(family: str, seed: int = 0) -> Played:
    """A job without what the daemon says of it."""
    case = make(family, seed)
    plan = case.plan
    job = Job(case.world, {rank: program(plan, rank) for rank in plan.everyone})
    job.run(case.seconds + 5)
    ends = case.seconds + 1e3
    loads = [Load(job.ranks[n], plan.gpus[n], 4000 + n, 0.0, ends, plan.spins) for n in plan.ranks]
    return Played(case, [job], loads, [])


def small(family: str) -> int:
    """The seed of the first ones whose job has fewest events: few ranks, long steps."""
    plans = {seed: make(family, seed).plan for seed in range(8)}
    return min(plans, key=lambda seed: len(plans[seed].everyone) / plans[seed].step)


def test_the_others_wait_for_the_rank_that_has_more_work() -> None:
    draw = random.Random(1)  # noqa: S311
    plan = drawn(draw, "ddp", least=4)
    plan.fault = More({1: 1.25}, 20.0)
    job = Job(World(draw, plan.groups, len(plan.gpus)), {rank: program(plan, rank) for rank in plan.ranks})
    job.run(40.0)
    before = [spending(rank, 12.0, 19.0) for rank in job.ranks.values()]
    after = [spending(rank, 22.0, 39.0) for rank in job.ranks.values()]
    assert max(one.waiting for one in before) < 0.04
    assert after[1].computing > 0.98
    for one in (after[0], *after[2:]):
        assert one.waiting == pytest.approx(0.2, abs=0.02)
        assert one.waits[1] > 0.95 * one.waiting
        assert one.computing + one.waiting + one.moving + one.idle == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("family", "least"),
    [
        ("late rank: TP x DP", 0.08),
        ("late loader: steps of 0.05 to 1 s", 0.08),
        ("two late ranks", 0.08),
        ("hot expert: sends", 0.08),
        ("pipeline with an uneven stage", 0.2),
        ("stall of 1.5 s each 10 steps", 0.2),
    ],
)
def test_a_fault_costs_those_that_it_does_not_befall(family: str, least: float) -> None:
    played = ran(family, small(family))
    case = played.case
    spent = {
        n: spending(played.lives[0].ranks[n], case.onset, case.onset + case.limit) for n in case.plan.ranks
    }
    assert all(spent[n].waiting > least for n in case.plan.ranks if n not in case.ranks)
    assert all(spent[n].waiting < least for n in case.ranks)


def test_who_waits_for_another_node_waits_for_no_local_rank() -> None:
    played = ran(REMOTE, small(REMOTE))
    for n in played.case.plan.ranks:
        spent = spending(played.lives[0].ranks[n], played.case.onset + 5, played.case.onset + 25)
        assert spent.waits[OTHERS] > max(0.05, 0.5 * spent.waiting)


def test_a_slow_wire_costs_what_a_healthy_one_would_not() -> None:
    played = ran("slow wire", small("slow wire"))
    spent = spending(played.lives[0].ranks[0], played.case.onset + 5, played.case.onset + 25)
    slower = played.case.world.wires(played.case.plan.groups[0], "all_reduce", 4, 1e3)
    assert spent.beyond == pytest.approx(spent.moving * (1 - 1 / slower), rel=0.02)
    assert spent.beyond > 0.05


HEADER = (ROOT / "agent" / "tap" / "ring.h").read_text("utf-8")


def test_the_layout_is_that_of_the_tap() -> None:
    defined = {name: int(value) for name, value in re.findall(r"#define WW_(\w+) (\d+)u?\b", HEADER)}
    assert defined["RING_HEADER"] == rings.HEADER_BYTES
    assert (defined["RING_RECORD"], defined["RING_RECORDS"]) == (rings.RECORD.size, rings.RECORDS)
    assert (defined["RING_RECORD"], defined["FUNCTIONS"]) == (rings.RECORD_BYTES, rings.FUNCTIONS)
    assert rings.HEADER.size == rings.COUNTERS_AT
    for enum, names in (
        ("function", rings.NUMBERS),
        ("datatype", {"float32": rings.SINGLE, "bfloat16": rings.HALF}),
    ):
        (listed,) = re.findall(rf"enum ww_{enum} {{([^}}]*)}}", HEADER)
        order = [one.split("=")[0].strip().lower().removeprefix("ww_") for one in listed.split(",")]
        assert {name: order.index(name.replace("alltoall", "all_to_all")) for name in names} == names


def test_a_ring_grows_with_its_job_and_ends_with_it(tmp_path: Path) -> None:
    plan, rank = ran(FSDP, small(FSDP)).case.plan, ran(FSDP, small(FSDP)).lives[0].ranks[1]
    gpu, draw = plan.gpus[1], random.Random(3)  # noqa: S311
    clocks = Clocks(UNIX, MONO, {gpu: 5 * 10**17}, {gpu: 1e-6}, 32)
    (ring,) = Writer(tmp_path, clocks, draw, "all").rings(plan.groups, 1, rank, gpu, 4001, 40.0)
    read, after, calls = FileRings(tmp_path), dict[str, int](), list[TimedCollective]()
    for second, state in ((20.0, RingState.LIVE), (22.0, RingState.LIVE), (45.0, RingState.DEAD)):
        ring.grow(second)
        found = read.poll(after)
        assert not isinstance(found, Absent)
        assert not found.refused
        (one,) = found.rings
        after[one.ring.name] = one.last
        calls += one.calls
        made = [at for at, *_ in rank.enqueued if at <= min(second, 40.0)]
        assert one.ring.counts.enqueued == len(made)
        assert one.ring.counts.event == pytest.approx(MONO + made[-1])
        assert (one.ring.rank, one.ring.gpu, one.ring.pid, one.ring.state) == (1, uuid(gpu), 4001, state)
    read.close()
    timed = [t for t in rank.timed if t.end + PROXY <= 40.0]
    assert [(c.op, c.sequence, c.size_bytes) for c in calls] == [(t.op, t.sequence, t.size) for t in timed]
    for call, t in zip(calls, timed, strict=True):
        assert call.seconds == pytest.approx(t.end - t.start, abs=3e-6)
        assert call.stopped is not None
        assert call.stopped - 5e8 == pytest.approx(t.end, abs=1e-3)


@pytest.mark.parametrize(
    ("sampling", "least", "most"),
    [("0.2 s of 2 s", 0.09, 0.11), ("all", 1.0, 1.0), (rings.DEFAULT, 0.2, 0.3)],
)
def test_a_rule_times_its_share_and_all_ranks_alike(sampling: str, least: float, most: float) -> None:
    """Two ranks, 300 microseconds apart, make 200 calls a second: of these the default times a quarter."""
    timed = []
    for behind in (0.0, 3e-4):
        rule = rings.SAMPLINGS[sampling][0]()
        timed.append({n for n in range(8000) if rule.times(7, 20.0 + n / 200 + behind) and n >= 1000})
        assert least <= len(timed[-1]) / 7000 <= most
        assert rule.stride(7) == (4 if sampling == rings.DEFAULT else 0)
    assert len(timed[0] & timed[1]) >= 0.95 * len(timed[0])


def stopped() -> int:
    """The first seed of a hang in which a process is stopped, on few GPUs."""
    for seed in range(50):
        plan = make("hang of one rank", seed).plan
        if isinstance(plan.fault, Stalls) and plan.fault.what == "stopped" and len(plan.gpus) < 8:
            return seed
    raise AssertionError


def test_a_hang_shows_on_gpus_and_processes_and_in_ras() -> None:
    played = ran("hang of one rank", stopped())
    case, (late,) = played.case, played.case.ranks
    clock = Clock(UNIX, MONO, case.onset + 20)
    node = Node(played.loads, clock)
    nvml, files, ras = (
        ModelNvml(node),
        ModelFiles(node, OWNER),
        ModelRas(node, case.plan.groups, reached=True),
    )
    asked = [Question("UtilizationRates"), Question("PowerUsage"), Question("Field", (138, ALL_LINKS))]
    for n, load in enumerate(played.loads):
        before = [one.value for one in nvml.ask(uuid(load.gpu), asked)]
        assert before[:2] == [
            {"gpu": 0 if n == late else 100, "memory": 5},
            122_000 if n == late else 126_000,
        ]
        clock.second += 5
        assert nvml.ask(uuid(load.gpu), asked)[2].value == before[2] != 0
        clock.second -= 5
        waits = "R" if case.plan.spins else "S"
        assert str(files.read(f"/proc/{load.pid}/stat")).split()[2] == ("T" if n == late else waits)
    (report,) = value_or(ras.ask(5.0), ())
    assert [rank.rank for rank in report.communicators[0].ranks if rank.missing] == [late]
    ras.reached = False
    assert isinstance(ras.ask(5.0), Absent)


def outcome(family: str, seed: int, *said: tuple[float, Wall, str]) -> str:
    """How a job is judged of which this was said: seconds after the onset, wall and first line."""
    played = replace(ran(family, seed), looks=[])
    for after, wall, line in said:
        answer = JobAnswer(wall, line, Certainty.MEDIUM)
        told = ExplainedJob(answer, JobEvidence("slurm:1", UNIX, ()))
        played.looks.append(Look(played.case.onset + after, (told,), ()))
    return Bench(played).verdict().outcome


FSDP = "healthy: FSDP"
LATE, RAIL = "late rank: FSDP", "slow rail under TP8 x DP8"
NOBODY = "Not known what holds it up: nobody waits for a rank, the collectives run at 252 GB/s."
UNKNOWN, REMOTE = "waiting that could not be attributed", "late rank of another node"
IDLE = "Host: nothing runs on the GPUs 90 % of the time."


def waits(gpu: int) -> str:
    return f"Collectives: 1 of 2 ranks wait for rank 9 on GPU {gpu}, which costs 35 % of the time."


def test_first_lines_are_judged_by_the_truth() -> None:
    case = make(LATE, small(LATE))
    gpu = case.plan.gpus[case.ranks[0]]
    other = next(one for one in case.plan.gpus if one != gpu)
    right, wrong = waits(gpu), waits(other)
    rows = [
        (LATE, RIGHT, [(20.0, Wall.LATE_RANK, right)]),
        (LATE, RIGHT, [(20.0, Wall.LATE_RANK, right), (40.0, Wall.NOT_KNOWN, NOBODY)]),
        (LATE, SILENT, [(35.0, Wall.LATE_RANK, right)]),
        (LATE, SILENT, [(20.0, Wall.NOT_KNOWN, NOBODY)]),
        (LATE, DENIED, [(35.0, Wall.NOT_KNOWN, NOBODY)]),
        (LATE, DENIED, [(35.0, Wall.HOST, IDLE)]),
        (LATE, WRONG, [(-5.0, Wall.LATE_RANK, right)]),
        (LATE, WRONG, [(20.0, Wall.LATE_RANK, right), (25.0, Wall.LATE_RANK, wrong)]),
        (LATE, WRONG, [(20.0, Wall.LATE_RANK, f"GPU {gpu} and GPU {other} are late.")]),
        (LATE, RIGHT, [(20.0, Wall.LATE_RANK, f"GPU {other} waits for GPU {gpu}.")]),
        (LATE, WRONG, [(20.0, Wall.HANG, f"Hang: rank 1 (GPU {gpu}) is stopped.")]),
        (LATE, WRONG, [(20.0, Wall.SLOW_WIRE, "Collectives: the wire is slow.")]),
        ("healthy: DDP", RIGHT, [(70.0, Wall.NOTHING, "No wall of this node: nobody waits.")]),
        ("healthy: DDP", SILENT, [(70.0, Wall.NOT_KNOWN, NOBODY)]),
        ("healthy: DDP", DENIED, [(70.0, Wall.HOST, IDLE)]),
        ("healthy: DDP", WRONG, [(70.0, Wall.LATE_RANK, waits(0))]),
        ("healthy: DDP", DENIED, [(70.0, Wall.NOT_ATTRIBUTED, f"12 % is {UNKNOWN}.")]),
        ("healthy: DDP", RIGHT, [(70.0, Wall.COMPUTING, "3 % not attributed, 1 % waiting for a rank.")]),
        ("variable lengths", DENIED, [(70.0, Wall.NOTHING, "No wall of this node: nobody waits.")]),
        ("variable lengths", RIGHT, [(70.0, Wall.NOT_KNOWN, f"12 % is {UNKNOWN}.")]),
        ("slow wire", RIGHT, [(20.0, Wall.SLOW_WIRE, "Collectives: the wire is slow.")]),
        ("slow wire", WRONG, [(20.0, Wall.LATE_RANK, waits(0))]),
        (REMOTE, RIGHT, [(20.0, Wall.LATE_RANK, "All wait for a rank of another node.")]),
        ("checkpoint", WRONG, [(20.0, Wall.HANG, "Hang: rank 0 (GPU 0) waits.")]),
        ("two communicators in opposite order", RIGHT, [(20.0, Wall.HANG, "Hang: a deadlock of two.")]),
    ]  # fmt: skip
    got = [(family, outcome(family, small(family), *said), said) for family, _, said in rows]
    assert got == [(family, due, said) for family, due, said in rows]


def kept_by_a_ledger(shares: Callable[[Spending], dict[Spent, float]], blamed: str) -> Verdict:
    """The verdict of a silent job whose ledger has shares made of the truth, and blames a GPU for waiting."""
    played = replace(ran(LATE, small(LATE)), looks=[])
    for after in range(20, 40):
        at = played.case.onset + after
        gpus = []
        for load in played.loads:
            made = shares(spending(load.rank, at - 10, at))
            waits = {blamed: made.get(Spent.LOCAL_RANK, 0.0)}
            gpus.append(GpuLedger(uuid(load.gpu), str(load.gpu), 10.0, made, waits))
        ledger = JobLedger("slurm:1", (), 0.0, starting=False, short=tuple(gpus), long=())
        played.looks.append(Look(at, (), (LedgerFacts(MONO + at, (ledger,)),)))
    return Bench(played).verdict()


def test_a_ledger_is_held_against_the_truth() -> None:
    plan, (late,) = make(LATE, small(LATE)).plan, make(LATE, small(LATE)).ranks
    culprit, innocent = uuid(plan.gpus[late]), uuid(next(g for g in plan.gpus if g != plan.gpus[late]))
    true = kept_by_a_ledger(
        lambda t: {Spent.COMPUTING: t.computing, Spent.LOCAL_RANK: t.waiting, Spent.IDLE: t.idle}, culprit
    )
    assert (true.outcome, true.attributed) == (SILENT, True)
    assert true.error == pytest.approx(0.0, abs=1e-9)
    assert true.misattributed == pytest.approx(0.0, abs=1e-9)
    not_known = kept_by_a_ledger(lambda t: {Spent.NOT_ATTRIBUTED: t.waiting + 0.1}, culprit)
    assert not_known.attributed
    assert not_known.error == pytest.approx(0.33, abs=0.1)
    assert not kept_by_a_ledger(lambda _: {Spent.COMPUTING: 1.0}, culprit).attributed
    assert kept_by_a_ledger(lambda t: {Spent.LOCAL_RANK: t.waiting}, innocent).misattributed > 0.03


def test_a_rail_is_not_its_rank() -> None:
    case = make(RAIL, small(RAIL))
    gpu = case.plan.gpus[case.ranks[0]]
    named = f"The way of GPU {gpu} to other nodes is slow."
    assert outcome(RAIL, small(RAIL), (20.0, Wall.SLOW_WIRE, named)) == RIGHT
    assert outcome(RAIL, small(RAIL), (20.0, Wall.LATE_RANK, waits(gpu))) == WRONG


def test_the_same_seed_is_the_same_job() -> None:
    family = "late rank: clocks drift"
    one, two = (play(make(family, small(family)), "x").looks for _ in range(2))
    assert one == two
    assert make("healthy: DDP", 0).plan.step != make("healthy: DDP", 1).plan.step


CHEAP = (
    "healthy: DDP", "healthy: pipeline", "healthy: decode in graphs", "variable lengths", "late rank: DDP",
    "late rank: FSDP", "late rank: accumulation", "late rank: clocks drift",
    "late loader: steps of 1 to 10 s", "two late ranks", "stall of 1.5 s each 10 steps",
    "hot expert: sends", "pipeline with an uneven stage", "restarts", "slow wire", "checkpoint",
    "hang of one rank", "slow rail under TP8 x DP8",
)  # fmt: skip
"""Families of each wall whose jobs have few events; a release runs all."""
BEST_FIRST = f"{RIGHT[0]}{SILENT[0]}{DENIED[0]}{WRONG[0]}"


@pytest.mark.parametrize("family", CHEAP)
def test_a_job_of_a_family_is_judged_no_worse_than_results_say(family: str) -> None:
    """It is the seed with the fewest events. `make model` keeps new results."""
    no_worse(family)


@pytest.mark.parametrize("family", sorted({*known(())} - {*CHEAP}))
def test_a_job_of_every_other_family_is_judged_no_worse_than_results_say(family: str) -> None:
    no_worse(family)


def no_worse(family: str) -> None:
    kept = next(one for one in loaded(FILE.read_text("utf-8"))[0] if one.name == family)
    seed = small(family)
    found = judged(family, seed)
    assert BEST_FIRST.index(found.outcome[0]) <= BEST_FIRST.index(kept.seeds[seed]), found


def test_the_page_has_what_was_kept() -> None:
    assert PAGE.read_text("utf-8") == page(*loaded(FILE.read_text("utf-8")))


def test_a_name_without_a_family_is_refused() -> None:
    assert known(["late loader"]) == [one for one in known(()) if one.startswith("late loader")]
    with pytest.raises(SystemExit, match="no family has nonsense"):
        known(["nonsense"])
