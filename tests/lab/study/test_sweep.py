"""Sweeps over workers in memory: what is measured, and what a failure, a job or a signal does to it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.study.sweeps import (
    CURVES,
    NO_ROOM,
    NO_START,
    OPTIONS,
    REFUSED,
    Failure,
    Node,
    header,
    measured,
    probed,
    timed,
)
from tests.rows import each
from wirewatch.core.ports import Hold, Order
from wirewatch.core.probe import Case, Probed, Timed
from wirewatch_lab.study.records import keys, read_records, study_of
from wirewatch_lab.study.summary import summary_lines
from wirewatch_lab.study.sweep import SweepRun, batches, start_seconds, usual_seconds

ALL = sorted(keys(header()))


def algorithm(order: Order) -> str:
    return dict(order.plan.environment).get("NCCL_ALGO", "auto")


def test_all_is_measured_once_each_configuration_in_a_worker_of_its_own_in_each_repeat(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path / "sweep")
    assert node.sweep(header()).how == "complete"
    assert sorted(measured(node.folder)) == ALL
    workers = Counter((algorithm(order), order.plan.gpus) for order in node.ran)
    two, four = ("GPU-0", "GPU-1"), ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
    assert workers == {(name, gpus): 3 for name in ("Ring", "Tree") for gpus in (two, four)}
    assert {order.plan.warmup for order in node.ran} == {5}
    assert all(order.gpus == node.ran[0].gpus and len(order.gpus) == 4 for order in node.ran)
    study = study_of(read_records(node.folder), "here")
    assert [(curve.op, curve.configuration) for curve in study.curves] == [
        (c.op, c.configuration) for c in CURVES
    ]
    for curve in study.curves:
        assert [len(point.seconds) for point in curve.points] == [3, 3, 3]
        assert {point.ran for point in curve.points} == {(f"{curve.configuration.algorithm} LL",)}
    assert study.problems == ()
    assert node.moved == pytest.approx(usual_seconds(header(), ALL))
    assert len(node.began) == len(node.ran)


def test_the_order_is_drawn_again_for_each_repeat_and_is_the_seeds_alone() -> None:
    def names(seed: int) -> list[list[object]]:
        made = header(seed=seed)
        found = batches(made, keys(made))
        assert [batch.repeat for batch in found] == sorted(batch.repeat for batch in found)
        return [[b.configuration for b in found if b.repeat == repeat] for repeat in range(3)]

    assert names(1) == names(1)
    orders = [tuple(order) for seed in range(5) for order in names(seed)]
    assert len(set(orders)) > 5
    assert all(Counter(order) == Counter(orders[0]) for order in orders)


def test_a_sweep_gives_way_to_a_hold_and_goes_on_after_it(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep")

    def hold(timed: Timed) -> Timed:
        node.idle.probes.held = [Hold("slurm:7", 1e9, None)]
        return timed

    node.answered = hold
    done = node.sweep(header())
    assert (done.how, done.why.startswith("slurm:7 was given GPUs")) == ("gave_way", True)
    node.idle.probes.held, node.answered = (), lambda timed: timed
    assert node.sweep().how == "complete"
    assert sorted(measured(node.folder)) == ALL


@given(st.lists(st.integers(1, len(ALL) - 1), min_size=1, max_size=12), st.sampled_from(["comes", "stops"]))
def test_whenever_it_is_ended_a_resumed_sweep_measures_exactly_the_rest(ends: list[int], by: str) -> None:
    with TemporaryDirectory() as folder:
        node = Node(Path(folder) / "sweep")
        for number, end in enumerate(ends):
            setattr(node, by, end)
            done = node.sweep(None if number else header())
            if done.how == "complete":
                break
            assert (done.how, done.why) == (
                ("gave_way", "GPU 0 has a process") if by == "comes" else ("stopped", "ended by SIGINT")
            )
        node.stops = node.comes = None
        assert node.sweep().how == "complete"
        assert sorted(measured(node.folder)) == ALL
        whole = Node(Path(folder) / "whole")
        whole.sweep(header())
        assert measured(node.folder) == measured(whole.folder)


def test_what_was_measured_before_the_end_is_not_measured_again(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep", stops=7)
    assert node.sweep(header()).how == "stopped"
    before = measured(node.folder)
    assert len(before) == 7
    node.stops = None
    node.sweep()
    asked = [case for order in node.ran[-4:] for case in order.plan.cases]
    assert asked
    assert Counter(measured(node.folder)) == Counter(ALL)
    assert measured(node.folder)[:7] == before


def test_a_setting_that_nccl_refuses_is_given_up_with_its_words_and_the_others_go_on(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep", fails=lambda order, _: REFUSED if algorithm(order) == "Tree" else None)
    assert node.sweep(header()).how == "complete"
    ring = [key for key in ALL if CURVES[key[0]].configuration.algorithm == "Ring"]
    assert sorted(measured(node.folder)) == ring
    assert sum(algorithm(order) == "Tree" for order in node.ran) == 2
    problems = study_of(read_records(node.folder), "here").problems
    assert len(problems) == 4
    assert all(
        "Tree" in line and line.endswith("from 64 B on: NCCL says ncclInvalidUsage") for line in problems
    )
    assert node.moved == pytest.approx(usual_seconds(header(), ALL))
    assert node.sweep().how == "complete"
    assert sorted(measured(node.folder)) == ring


def test_without_room_for_the_largest_size_the_others_are_measured(tmp_path: Path) -> None:
    def fails(order: Order, _: Case) -> Failure | None:
        return NO_ROOM if max(case.size_bytes for case in order.plan.cases) > 1024 else None

    node = Node(tmp_path / "sweep", fails=fails)
    assert node.sweep(header()).how == "complete"
    assert sorted(measured(node.folder)) == [key for key in ALL if key[2] <= 1024]
    assert all("no memory" in line for line in study_of(read_records(node.folder), "").problems)


def test_a_size_that_fails_ends_its_curve_alone(tmp_path: Path) -> None:
    def fails(order: Order, case: Case) -> Failure | None:
        bad = case.op == "all_gather" and case.launch == "graph" and case.size_bytes == 1024
        return Failure() if bad and len(order.plan.gpus) == 4 else None

    node = Node(tmp_path / "sweep", fails=fails)
    assert node.sweep(header()).how == "complete"
    (bad,) = [n for n, c in enumerate(CURVES) if c.op == "all_gather" and c.configuration.launch == "graph"][
        1:
    ]
    assert sorted(measured(node.folder)) == [key for key in ALL if key[0] != bad or key[2] < 1024]
    (problem,) = study_of(read_records(node.folder), "").problems
    assert problem == "all_gather with 4 ranks, graph, Ring: not measured from 1024 B on: NCCL says no"


def test_a_case_that_hangs_is_killed_by_what_it_should_take(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep", hangs=lambda case: case.launch == "graph" and case.size_bytes == 1 << 20)
    assert node.sweep(header()).how == "complete"
    kept = [k for k in ALL if CURVES[k[0]].configuration.launch == "eager" or k[2] < 1 << 20]
    assert sorted(measured(node.folder)) == kept
    assert all("took too long" in line for line in study_of(read_records(node.folder), "").problems)


def test_three_different_workers_that_do_not_start_end_it_and_nothing_is_given_up(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep", fails=lambda *_: NO_START)
    end = node.sweep(header())
    assert (end.how, len(node.ran)) == ("failed", 3)
    assert end.why == f"3 configurations without a worker that starts; the last: {NO_START.why}"
    assert read_records(node.folder).given_up == {}
    node.fails = lambda *_: None
    assert node.sweep().how == "complete"
    assert sorted(measured(node.folder)) == ALL


def test_one_that_does_not_start_among_others_that_do_is_given_up(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep", fails=lambda order, _: NO_START if algorithm(order) == "Tree" else None)
    assert node.sweep(header()).how == "complete"
    assert {CURVES[key[0]].configuration.algorithm for key in measured(node.folder)} == {"Ring"}
    assert len(read_records(node.folder).given_up) == 4


def test_a_worker_that_does_not_die_ends_it(tmp_path: Path) -> None:
    stuck = Failure("stuck", "process 7 was killed and does not die")
    node = Node(tmp_path / "sweep", fails=lambda *_: stuck)
    assert node.sweep(header()).why == stuck.why
    assert len(node.ran) == 1


def test_an_engine_that_launches_otherwise_is_not_taken_for_what_was_asked(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep", answered=lambda timed: replace(timed, launch="stream"))
    assert node.sweep(header()).how == "complete"
    assert {CURVES[key[0]].configuration.launch for key in measured(node.folder)} == {"eager"}
    assert all("as it was asked for" in line for line in study_of(read_records(node.folder), "").problems)


def test_what_ran_otherwise_than_was_asked_is_said(tmp_path: Path) -> None:
    made = header()
    wanted = tuple(replace(c, configuration=replace(c.configuration, protocol="LL128")) for c in made.curves)
    node = Node(tmp_path / "sweep")

    def run(order: Order) -> Probed:
        around = tuple(
            (name, "LL" if name == "NCCL_PROTO" else value) for name, value in order.plan.environment
        )
        return node.run(replace(order, plan=replace(order.plan, environment=around)))

    node.idle.probes.result = run
    assert node.sweep(replace(made, curves=wanted)).how == "complete"
    told = [line for line in summary_lines(study_of(read_records(node.folder), "")) if "otherwise" in line]
    assert len(told) == len(wanted)
    assert told[0].startswith("ran otherwise: all_reduce, 2 ranks, float32, in place, Ring LL128: ")
    assert "NCCL's log has Ring LL at " in told[0]


def test_a_sweep_takes_longer_the_more_it_sends() -> None:
    few = [key for key in ALL if key[2] < 1 << 20]
    assert 0 < usual_seconds(header(), few) < usual_seconds(header(), ALL)
    assert start_seconds("gloo") > 0
    assert OPTIONS.repeats == 3


@pytest.mark.parametrize(
    "failure",
    [
        Failure(),
        NO_START,
        Failure("garbage", "not a document", document=False),
        Failure("out_of_memory", "no memory for a message, after its communicators"),
    ],
)
@pytest.mark.parametrize("size", [64, 1 << 20])
def test_what_fails_once_is_measured_after_all(tmp_path: Path, failure: Failure, size: int) -> None:
    failed: list[Case] = []

    def fails(order: Order, case: Case) -> Failure | None:
        if failed or case.size_bytes != size or algorithm(order) != "Tree":
            return None
        failed.append(case)
        return failure

    node = Node(tmp_path / "sweep", fails=fails)
    assert node.sweep(header()).how == "complete"
    assert failed
    assert sorted(measured(node.folder)) == ALL
    assert study_of(read_records(node.folder), "").problems == ()


@pytest.mark.parametrize("number", [0, 3, 11])
def test_a_worker_that_does_not_start_once_is_tried_again_whatever_ran_before(
    tmp_path: Path, number: int
) -> None:
    """The first of all, and others after which some have started."""
    node = Node(tmp_path / "sweep")
    node.fails = lambda *_: NO_START if len(node.ran) == number + 1 else None
    assert node.sweep(header()).how == "complete"
    assert sorted(measured(node.folder)) == ALL
    assert read_records(node.folder).given_up == {}


def test_a_worker_that_never_starts_is_tried_twice_and_no_more(tmp_path: Path) -> None:
    """It is the only configuration: nothing says whether that or the machine is at fault."""
    node = Node(tmp_path / "sweep", fails=lambda *_: NO_START)
    end = node.sweep(header(CURVES[:1], options=replace(OPTIONS, repeats=1)))
    assert (end.how, len(node.ran)) == ("failed", 2)
    assert end.why.startswith("1 configurations without a worker that starts")


def test_workers_that_do_not_start_count_only_until_one_has_measured(tmp_path: Path) -> None:
    """Two of them, then two that measure, of which one does not start later: never three in a row."""
    node, once = Node(tmp_path / "sweep"), [0]

    def fails(order: Order, _: Case) -> Failure | None:
        third = len(node.ran) > 4 and order.plan.environment == node.ran[2].plan.environment
        if len(node.ran) > 2 and not (third and order.plan.gpus == node.ran[2].plan.gpus and once):
            return None
        if len(node.ran) > 2:
            once.clear()
        return NO_START

    node.fails = fails
    assert node.sweep(header()).how == "complete"
    assert sorted(measured(node.folder)) == ALL


def test_operations_that_an_engine_does_not_have_shift_no_other(tmp_path: Path) -> None:
    """It passes over them without a word."""
    node = Node(tmp_path / "sweep")

    def run(order: Order) -> Probed:
        there = tuple(case for case in order.plan.cases if case.op != "all_gather")
        return node.run(replace(order, plan=replace(order.plan, cases=there)))

    node.idle.probes.result = run
    assert node.sweep(header()).how == "complete"
    assert sorted(measured(node.folder)) == [key for key in ALL if CURVES[key[0]].op == "all_reduce"]


def test_a_sweep_that_is_told_to_end_before_it_begins_starts_no_worker(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep", stops=0)
    assert (node.sweep(header()).how, node.ran) == ("stopped", [])


@pytest.mark.parametrize(
    "change",
    [{"seconds": 0.0}, {"launch": "graph"}, {"op": "broadcast"}, {"size_bytes": 7}],
    ids=lambda change: next(iter(change)),
)
def test_what_was_not_asked_for_is_kept_nowhere(tmp_path: Path, change: dict[str, object]) -> None:
    """A worker that answers otherwise is tried once more, and then its sizes are given up."""
    only = tuple(curve for curve in CURVES if curve.configuration.launch == "eager")[:1]
    node = Node(tmp_path / "sweep", answered=lambda timed: replace(timed, **change))  # type: ignore[arg-type]
    assert node.sweep(header(only)).how == "complete"
    assert measured(node.folder) == []
    (problem,) = study_of(read_records(node.folder), "here").problems
    assert problem.startswith(
        f"{only[0].op} with {only[0].configuration.ranks} ranks, eager, Ring: not measured"
    )
    assert problem.endswith(" from 64 B on: the worker did not report it as it was asked for")


def test_of_a_size_that_was_not_measured_nothing_is_said_that_ran(tmp_path: Path) -> None:
    """NCCL logs its choice before an operation that then fails."""

    def run(order: Order) -> Probed:
        found = node.run(order)
        every = probed(order, tuple(map(timed, order.plan.cases)), None)
        return replace(found, account=every.account)

    node = Node(tmp_path / "sweep", fails=lambda _, case: Failure() if case.size_bytes > 1024 else None)
    node.idle.probes.result = run
    node.sweep(header(CURVES[:1]))
    found = read_records(node.folder)
    assert set(found.ran) == {(curve, size) for curve, _, size in found.measured}
    assert all(found.ran.values())
    assert {size for _, size in found.ran} == {64, 1024}


@each(
    ("stop", "trouble", "due", "why"),
    [
        (None, "", 9.0, None), ("ended by SIGINT", "", 9.0, "ended by SIGINT"),
        (None, "the disk is full", 9.0, "the disk is full"), (None, "", 4.0, "it took too long; killed"),
        (None, "", 5.0, None),
    ],
)  # fmt: skip
def test_why_a_worker_is_to_be_killed(stop: str | None, trouble: str, due: float, why: str | None) -> None:
    header_ = header()
    hardware: Any = SimpleNamespace(clock=SimpleNamespace(mono=lambda: 5.0))
    file: Any = SimpleNamespace(records=SimpleNamespace(header=header_), trouble=trouble)
    view: Any = SimpleNamespace(stop=lambda: stop)
    one = SweepRun(hardware, SimpleNamespace(), file, view)  # type: ignore[arg-type]
    one._due = due  # noqa: SLF001
    assert one._withdrawn() == why  # noqa: SLF001


def test_without_a_log_nothing_is_said_of_what_ran(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep")
    run = node.run
    node.idle.probes.result = lambda order: replace(run(order), account=None)
    assert node.sweep(header(CURVES[:1])).how == "complete"
    assert read_records(node.folder).ran == {}
