"""Facts of the node about the wires under running jobs, as the daemon hands them to their collector."""

from dataclasses import replace
from typing import Any

import pytest

from tests.rows import each
from tests.support import Node
from wirewatch.busbw.expected import expect
from wirewatch.collectors.nvlink import NvlinkFacts
from wirewatch.collectors.nvlink.model import NvlinkLink
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.jobs import RingState
from wirewatch.core.ports import Gpu
from wirewatch.core.probe import ALL_REDUCE, MIB, Conditions
from wirewatch.core.topology import Topology, WireKind
from wirewatch.core.types import Absent, Failed, Finding, Health, Ok, Subject, Why
from wirewatch.jobs import ledger
from wirewatch.jobs.hangs import HangFacts, HangingJob, HangKind
from wirewatch.jobs.ledger import GpuActivity, LedgerSurroundings
from wirewatch.jobs.lockstep import GpuWindow, LockstepFacts
from wirewatch.jobs.running import COLLECTOR, JobSurroundings, NvlinkSent
from wirewatch.jobs.running.expected import conditions_of
from wirewatch.jobs.surroundings import ledger_surroundings, surroundings, with_surroundings, witnesses
from wirewatch.jobs.times import (
    CommunicatorTimes,
    CommunicatorWindow,
    GpuTime,
    JobRank,
    JobsFacts,
    RunningJob,
    TimesDoubt,
)
from wirewatch.verdict.node import LATCHED, LIVE, REPAIRED, Standing, Verdict, judge_state

UNREAD = Absent(Why.TIMEOUT, "the driver hangs")
NVLINK_UP = "gpu2/Field(165,7)"


def around(node: Node) -> JobSurroundings:
    judged = judge_state(node.state)
    return surroundings(judged.state, judged.verdict, None, {})


def test_a_healthy_node_hands_on_its_wires_and_no_witness() -> None:
    node = Node("h200x8")
    node.poll(times=2)
    found = around(node)
    assert isinstance(found.topology, Topology)
    assert found.link_rate == 26.562e9
    assert len(found.nvlink.sent) == 8
    assert found.nvlink.mono > 1000
    assert found.witnesses == ()
    keys = [gpu.uuid for gpu in found.topology.gpus[:4]]
    conditions = conditions_of(found, keys, 1, {})
    assert isinstance(conditions, Conditions)
    assert conditions.group.kind is WireKind.SWITCH
    assert conditions.group.ranks == 4
    due = expect(conditions, ALL_REDUCE, 256 * MIB)
    assert not isinstance(due, Absent)
    assert 330e9 < due.busbw < 350e9


def test_a_link_that_is_down_is_a_witness_for_its_gpu() -> None:
    node = Node("h200x8")
    node.change(NVLINK_UP, "set", 0)
    node.poll(times=4)
    (found,) = around(node).witnesses
    assert found.rule == "nvlink.link_down"
    assert found.subject.gpu == "2"


def test_what_says_nothing_of_a_wire_is_no_witness() -> None:
    node = Node("h200x8")
    node.change("gpu7/RemappedRows()", "set", [0, 0, 0, 1])
    node.poll(times=4)
    judged = judge_state(node.state)
    assert judged.verdict.findings
    assert list(witnesses(judged.verdict)) == []


@each(
    ("rule", "subject", "counts"),
    [
        ("topology.nvlink_lost", Subject("2", "GPU-2"), True),
        ("topology.pcie_path", Subject("2", "GPU-2"), True),
        ("sxid.12028", Subject(device="0000:c3:00.0"), True),
        ("topology.nic_lost", Subject(device="mlx5_0"), False),
        ("topology.nic_replaced", Subject(device="mlx5_0"), False),
        ("topology.gpu_replaced", Subject("2", "GPU-2"), False),
        ("topology.clique", Subject(), False),
    ],
)
def test_changes_of_nics_are_no_witness_of_a_wire_between_gpus(
    rule: str, subject: Subject, counts: bool  # noqa: FBT001
) -> None:  # fmt: skip
    one = Finding(rule, Health.DEGRADED, subject, "it changed", "look")
    judged = judge_state(NodeState({"pcie": Component("pcie", None, Ok(None, 1.0, 1.0), findings=(one,))}))
    assert [found.rule for found in witnesses(judged.verdict)] == ([rule] if counts else [])


def test_before_anything_is_read_nothing_is_known() -> None:
    found = around(Node("h200x8"))
    assert isinstance(found.topology, Absent)
    assert isinstance(found.link_rate, Absent)
    assert found.nvlink.sent == {}
    assert isinstance(conditions_of(found, ["GPU-1"], 1, {}), Absent)


def test_the_collector_of_jobs_is_given_them() -> None:
    node = Node("h200x8", also=("jobs",))
    node.poll(times=2)
    judged = judge_state(node.state)
    made = with_surroundings(COLLECTOR, lambda: judged, 18, {"all_reduce": 1e9})
    reading = made.read(node.hardware, made.start, made.options)
    assert not isinstance(reading, Absent)
    assert reading.around == surroundings(judged.state, judged.verdict, 18, {"all_reduce": 1e9})
    other = node.collectors["pcie"]
    assert with_surroundings(other, lambda: judged, None, {}) is other
    early = with_surroundings(COLLECTOR, lambda: None, None, {})
    unknown = early.read(node.hardware, early.start, early.options)
    assert not isinstance(unknown, Absent)
    assert unknown.around == JobSurroundings()


def test_ranks_of_several_nodes_have_no_expectation() -> None:
    node = Node("h200x8")
    node.poll(times=2)
    found = around(node)
    assert isinstance(found.topology, Topology)
    keys = [gpu.uuid for gpu in found.topology.gpus]
    why = conditions_of(found, keys, 2, {})
    assert isinstance(why, Absent)
    assert "several nodes" in why.detail
    assert isinstance(conditions_of(found, [*keys, "GPU-of-nobody"], 1, {}), Absent)
    assert replace(found, links=18).links == 18


@pytest.mark.parametrize(
    ("guard", "speeds", "rate"),
    [
        ("as most links show it", (26e9, 26e9, 25e9), 26e9),
        ("links that are down have none", (0.0, 0.0, 26e9), 26e9),
        ("speeds that were not read are none", (UNREAD, UNREAD, 26e9), 26e9),
        ("all links are down", (0.0, 0.0), Absent(Why.MISSING, "no link is up")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_rate_of_a_link_is_that_of_links_that_are_up(
    guard: str, speeds: tuple[float | Absent, ...], rate: float | Absent
) -> None:
    node = Node("h200x8")
    node.poll()
    links = tuple(NvlinkLink(number, 1, speed) for number, speed in enumerate(speeds))
    component = replace(node.state.components["nvlink"], facts=NvlinkFacts({Gpu(0, "GPU-0"): links}))
    state = replace(node.state, components={**node.state.components, "nvlink": component})
    judged = judge_state(state)
    assert surroundings(judged.state, judged.verdict, None, {}).link_rate == rate, guard


DOWN = Finding("nvlink.link_down", Health.FAILED, Subject("2", "GPU-2", "7"), "link 7 is down", "look")


def verdict(*standings: Standing) -> Verdict:
    return Verdict(Health.FAILED, (), standings)


def standing(stage: str = LIVE, under: tuple[Standing, ...] = (), **but: object) -> Standing:
    finding = replace(DOWN, **but)  # type: ignore[arg-type]
    return replace(Standing(finding, stage, "nvlink", finding.health), same_cause=under)


@pytest.mark.parametrize(
    ("guard", "standings", "count"),
    [
        ("a fault that holds now", [standing()], 1),
        ("a fault that is remembered", [standing(LATCHED)], 0),
        ("a fault that is acknowledged", [standing(REPAIRED)], 0),
        ("what is not known", [standing(health=Health.UNKNOWN)], 0),
        ("what is well", [standing(health=Health.OK)], 0),
        ("a fault that comes under another one", [standing(rule="xid.79", under=(standing(),))], 2),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_what_is_a_witness(guard: str, standings: list[Standing], count: int) -> None:
    found = list(witnesses(verdict(*standings)))
    assert len(found) == count, guard
    assert all((one.subject, one.text) == (DOWN.subject, DOWN.evidence) for one in found)


def test_eight_witnesses_are_handed_on_the_worst_first() -> None:
    many = [standing(evidence=f"{number}") for number in range(12)]
    found = surroundings(NodeState({}), verdict(*many), None, {}).witnesses
    assert [one.text for one in found] == [f"{number}" for number in range(8)]


SENT = NvlinkFacts({Gpu(0, "GPU-0"): (NvlinkLink(0, 1, 26e9),)}, sent={"GPU-0": 5})
NVLINK = Component("nvlink", None, Ok(None, 1.0, 70.0), facts=SENT)


@pytest.mark.parametrize(
    ("guard", "components", "sent"),
    [
        ("read just now", {"nvlink": NVLINK}, NvlinkSent(70.0, {"GPU-0": 5})),
        (
            "it cannot be read any more",
            {"nvlink": replace(NVLINK, outcome=Failed(UNREAD, 1.0, 70.0))},
            NvlinkSent(),
        ),
        ("nothing is known of it", {"nvlink": replace(NVLINK, facts=None)}, NvlinkSent()),
        ("it is not watched", {}, NvlinkSent()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_nvlink_s_counters_are_handed_on(
    guard: str, components: dict[str, Component], sent: NvlinkSent
) -> None:
    assert surroundings(NodeState(components), verdict(), None, {}).nvlink == sent, guard


def test_where_there_is_no_folder_of_rings_nothing_is_handed_to_its_reading() -> None:
    node = Node("h200x8", also=("jobs",))
    node.poll()
    judged = judge_state(node.state)
    blind = replace(COLLECTOR, read=lambda _hardware, _memory, _options: UNREAD)
    made = with_surroundings(blind, lambda: judged, None, {})
    assert made.read(node.hardware, made.start, made.options) == UNREAD


# What the waiting ledger is given


def ring_rank(number: int, state: RingState = RingState.LIVE) -> JobRank:
    settings = {"NCCL_DEBUG": "INFO"}
    return JobRank(
        number, f"GPU-{number}", str(number), 100 + number, 1, "2.28.9", state, settings, 0.0, 9, 5.0
    )


def communicator(**values: Any) -> CommunicatorTimes:
    made = CommunicatorTimes("c0", "c0", 2, 1, (ring_rank(0), ring_rank(1)))
    return replace(made, **values)


def running(*comms: CommunicatorTimes, live: bool = True) -> RunningJob:
    gpus = tuple(
        GpuTime(f"GPU-{n}", str(n), 0.4, 0.1, 0.0, measured=True, calls={"all_reduce": 5}) for n in range(2)
    )
    return RunningJob("slurm:7", (), 0, 0.0, live, comms, gpus)


def told(**facts: object) -> LedgerSurroundings:
    outcome = Ok(None, 50.0, 40.0)
    return ledger_surroundings(
        NodeState({name: Component(name, None, outcome, facts=one) for name, one in facts.items()})
    )


def test_before_anything_is_known_of_jobs_the_ledger_is_given_nothing() -> None:
    assert told() == LedgerSurroundings()


def test_the_ledger_is_given_counts_and_times_without_what_it_does_not_need() -> None:
    window = CommunicatorWindow(20.0, 6.0, (), ())
    timed = communicator(id="c1", windows=(window,), fresh=True)
    older = communicator(windows=(replace(window, started=8.0),), fresh=True)
    found = told(jobs=JobsFacts(1.0, 33.0, (running(communicator(), timed, older),)))
    assert found.counted == 33.0
    (job,) = found.jobs
    assert (job.name, job.pids) == ("slurm:7", (100, 101))
    assert [one.id for one in job.communicators] == ["c0", "c1", "c0"]
    assert job.communicators[0].here[0] == replace(ring_rank(0), settings={})
    assert job.timed == {"GPU-0": (8.0, 26.0), "GPU-1": (8.0, 26.0)}
    assert job.gpus["GPU-0"].in_collectives == 0.4
    assert job.gpus["GPU-0"].calls == {}


@pytest.mark.parametrize("changes", [{"fresh": False}, {"windows": ()}])
def test_a_window_that_is_not_fresh_has_no_time_of_now(changes: dict[str, Any]) -> None:
    given = {"windows": (CommunicatorWindow(20.0, 6.0, (), ()),), "fresh": True, **changes}
    (job,) = told(jobs=JobsFacts(1.0, 33.0, (running(communicator(**given)),))).jobs
    assert job.timed == {}


@each(
    ("changes", "kept"),
    [
        ({}, 2), ({"doubt": TimesDoubt.FEW}, 2), ({"doubt": TimesDoubt.TWICE}, None),
        ({"doubt": TimesDoubt.UNLIKE}, None), ({"doubt": TimesDoubt.SAME_GPU}, None),
        ({"source": "NCCL Inspector"}, None),
        ({"here": (ring_rank(0), ring_rank(1, RingState.DEAD))}, 2),
        ({"here": (ring_rank(0), ring_rank(1, RingState.FINALIZED))}, 1),
        ({"here": (ring_rank(0, RingState.DEAD), ring_rank(1, RingState.DEAD))}, None),
    ],
)  # fmt: skip
def test_counts_that_cannot_be_compared_are_not_handed_on(changes: dict[str, Any], kept: int | None) -> None:
    (job,) = told(jobs=JobsFacts(1.0, 33.0, (running(communicator(**changes)),))).jobs
    assert [len(one.here) for one in job.communicators] == ([] if kept is None else [kept])


def test_a_job_that_has_ended_is_not_handed_on() -> None:
    assert told(jobs=JobsFacts(1.0, 33.0, (running(communicator(), live=False),))).jobs == ()


def test_the_ledger_is_given_activity_owners_and_what_belongs_together() -> None:
    window = GpuWindow(7.5, 0.99, 0.9, 0.3, 0.0, 0.0)
    steps = LockstepFacts(None, None, {"GPU-0": window}, in_step=True)
    hang = HangingJob(
        HangKind.STOPPED, {"GPU-1": frozenset({5}), "GPU-2": frozenset({6})}, (), 0.0, "", "", ""
    )
    found = told(lockstep=steps, hangs=HangFacts((), (hang,), {5: "slurm:1"}))
    assert found.activity == {"GPU-0": GpuActivity(7.5, 0.99, 0.9)}
    assert (found.seen, found.in_step) == (40.0, ("GPU-0",))
    assert (found.owners, found.hanging) == ({5: "slurm:1"}, (("GPU-1", "GPU-2"),))
    assert told(lockstep=replace(steps, in_step=False)).in_step == ()
    guess = replace(hang, kind=HangKind.SUSPECTED)
    assert told(hangs=HangFacts((), (guess,))).hanging == (), "nobody has said that they communicate"


def test_the_ledger_is_given_what_communicates() -> None:
    twice = communicator(id="c1", doubt=TimesDoubt.TWICE)
    inspected = communicator(id="c2", source="NCCL Inspector")
    for comm, linked in ((communicator(), True), (inspected, True), (twice, False)):
        (job,) = told(jobs=JobsFacts(1.0, 33.0, (running(comm),))).jobs
        assert job.linked == ((("GPU-0", "GPU-1"),) if linked else ())
    found = told(nvlink=NvlinkFacts({}, {"GPU-0": 7}))
    assert (found.sent, found.sent_at) == ({"GPU-0": 7}, 40.0)


def test_activity_that_is_not_read_any_more_is_not_handed_on() -> None:
    steps = LockstepFacts(None, None, {"GPU-0": GpuWindow(7.5, 0.99, 0.9, 0.3, 0.0, 0.0)})
    failed = Component("lockstep", None, Failed(UNREAD, 50.0, 40.0), facts=steps)
    assert ledger_surroundings(NodeState({"lockstep": failed})).activity == {}


def test_the_ledger_reads_with_what_the_node_knows_of_jobs() -> None:
    node = Node("h100x2-jobs", only=("ledger", "jobs"))
    node.poll(times=2)
    judged = judge_state(node.state)
    made = with_surroundings(ledger.COLLECTOR, lambda: judged, None, {})
    reading = made.read(node.hardware, made.start, made.options)
    assert not isinstance(reading, Absent)
    assert reading.around == ledger_surroundings(judged.state)
    assert reading.around.counted > 0


def test_gpus_with_calls_that_nobody_times_are_said() -> None:
    for none, some in ((communicator(), communicator(sends=1)), (communicator(), communicator(captured=1))):
        gpus = frozenset(str(rank.gpu) for rank in some.here)
        (timed,) = told(jobs=JobsFacts(1.0, 33.0, (running(none),))).jobs
        (partly,) = told(jobs=JobsFacts(1.0, 33.0, (running(some),))).jobs
        assert (timed.partly, partly.partly) == (frozenset[str](), gpus)
