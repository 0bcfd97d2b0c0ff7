"""Studies around the probe: what no daemon measures is labelled, never kept, and changes no verdict."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.collectors.drawn import Probes
from tests.node.probe.histories import stored
from tests.node.probe.idle import Idle
from tests.node.probe.overnetwork import GDR, IB, SOCKET, recorded_over
from tests.rows import each
from wirewatch.core.ports import Order
from wirewatch.core.probe import MIB, OFF, ON, OPS, PRIMITIVES, Document, LinkBytes, Plan, Probed, Timed
from wirewatch.core.types import Absent, Expect, Health, Why
from wirewatch.documents.probed import on_request
from wirewatch.documents.probes import PROBE, ProbeDocument
from wirewatch.probe.gate import Refusal, SkipReason
from wirewatch.probe.measurement import Measured, measure
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.network import NETWORK_ONLY
from wirewatch.probe.request import (
    GPUDIRECT_SIZES,
    ProbeOverrides,
    ProbeResult,
    ProbeRun,
    probe_now,
    run_differences,
)
from wirewatch.probe.setup import REQUIREMENTS, Variation
from wirewatch.statefolder import open_state

ALL = ProbeOverrides()
STUDIES: Mapping[str, ProbeOverrides] = {
    "primitives": ProbeOverrides(ops=("broadcast",)),
    "dtype": ProbeOverrides(variation=Variation(dtype="bfloat16")),
    "out of place": ProbeOverrides(variation=Variation(in_place=False)),
    "iterations": ProbeOverrides(variation=Variation(iterations=20)),
    "network": ProbeOverrides(variation=Variation(network=True)),
    "engines": ProbeOverrides(engines=("nccl", "torch")),
    "gpudirect": ProbeOverrides(variation=Variation(network=True), gpudirect=(True, False)),
}
NO_STUDIES = (
    ALL, ProbeOverrides(ops=OPS[:1], sizes=(MIB,), engine="torch", force=True),
    ProbeOverrides(variation=Variation(dtype="float32", in_place=True)),
)  # fmt: skip


@dataclass
class Engines(Probes):
    """Has these engines; what comes of an order may differ by engine or by plan."""

    here: tuple[str, ...] = ("nccl", "torch", "distributed")
    ended: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def engine(self, wanted: str) -> str | Absent:
        name = self.here[0] if wanted == "auto" else wanted
        return name if name in self.here else Absent(Why.MISSING, f"no engine: {wanted} is not installed")

    def run(self, order: Order) -> Probed:
        probed = super().run(order)
        changes = self.ended.get(order.plan.engine, {})
        return replace(probed, **changes)


def node_with(*engines: str, count: int = 4) -> tuple[Idle, Engines]:
    node = Idle(count)
    probes = Engines(result=node.probes.result, here=engines or ("nccl", "torch", "distributed"))
    node.hardware = replace(node.hardware, probe=probes)
    return node, probes


def asked(node: Idle, wish: ProbeOverrides, state: Any = None) -> ProbeResult:
    return probe_now(node.hardware, ProbeOptions(), ProbePolicy(), Expect(), wish, state)


def document(found: ProbeResult) -> ProbeDocument:
    """The document, as a reader of its JSON has it."""
    made = on_request(found)
    assert PROBE.validate_json(PROBE.dump_json(made)) == made
    return made


@each(
    ("variation", "wrong"),
    [
        (Variation(), ""), (Variation(dtype="bfloat16"), ""), (Variation(dtype="int3"), "dtypes are "),
        (Variation(iterations=1), ""), (Variation(iterations=10_000), ""),
        (Variation(iterations=0), "iterations are 1 to 10000"),
        (Variation(iterations=10_001), "iterations are 1 to 10000"),
        (Variation(ops=("alltoall", "broadcast")), ""), (Variation(ops=("alltoall", "gossip")), "ops are "),
    ],
)  # fmt: skip
def test_a_variation_that_cannot_be_meant_is_said(variation: Variation, wrong: str) -> None:
    assert variation.wrong().startswith(wrong)
    assert bool(variation.wrong()) == bool(wrong)


# --- what is a study


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_labelled_and_never_kept(tmp_path: Path, name: str) -> None:
    node, probes = node_with()
    state = open_state(tmp_path)
    found = asked(node, STUDIES[name], state)
    assert found.study
    assert document(found).study == list(found.study)
    assert len(probes.ordered) >= 1
    assert not state.history.exists()
    assert {order.plan.copy_bytes for order in probes.ordered} == {0}
    assert not any(order.plan.micro for order in probes.ordered)


@pytest.mark.parametrize("wish", NO_STUDIES)
def test_what_a_daemon_measures_too_is_kept_as_ever(tmp_path: Path, wish: ProbeOverrides) -> None:
    node, probes = node_with()
    state = open_state(tmp_path)
    found = asked(node, wish, state)
    assert (found.study, len(stored(state.history))) == ((), 1)
    assert probes.ordered[0].plan.copy_bytes > 0
    made = document(found)
    assert (made.study, made.dtype, made.in_place, made.environment) == ([], "float32", True, {})


@given(
    st.builds(
        Variation, st.sampled_from([None, "float32", "int8"]), st.sampled_from([None, True, False]),
        st.sampled_from([None, 1, 20]), st.booleans(), st.sampled_from([None, True, False]),
    ),
    st.lists(st.sampled_from(PRIMITIVES), unique=True),
)  # fmt: skip
def test_no_study_has_a_plan_that_a_daemon_could_order(variation: Variation, ops: list[str]) -> None:
    usual = Plan("nccl", ("a", "b"), ((0, 1),))
    wish = ProbeOverrides(ops=tuple(ops), variation=variation)
    assert wish.varied.of(usual) == usual or wish.study
    assert not wish.varied.wrong()


def test_the_worker_gets_what_was_asked_for() -> None:
    node, probes = node_with()
    asked(node, ProbeOverrides(
        ops=("alltoall",), sizes=(8, 64 * MIB),
        variation=Variation("int64", in_place=False, iterations=7, network=True),
    ))  # fmt: skip
    plan = probes.ordered[0].plan
    assert (plan.ops, plan.latency_sizes, plan.bandwidth) == (("alltoall",), (8,), ((64 * MIB, 7),))
    assert (plan.dtype, plan.in_place, plan.latency_iterations) == ("int64", False, 7)
    assert plan.environment == NETWORK_ONLY
    assert probes.ordered[0].settings == {}


def test_a_study_asks_gate_and_lock_as_any_probe_does() -> None:
    for wish in STUDIES.values():
        node, probes = node_with()
        node.busy(1, 4711)
        found = asked(node, wish)
        assert found.refusal is not None
        assert (found.refusal.reason, found.health) == (SkipReason.BUSY, Health.UNKNOWN)
        node, probes = node_with()
        probes.holder = "pid 12"
        found = asked(node, wish)
        assert found.refusal == Refusal(SkipReason.LOCKED, "pid 12")
        assert (probes.ordered, document(found).outcome) == ([], "skipped")


@pytest.mark.parametrize("op", PRIMITIVES)
def test_every_primitive_has_its_busbw_and_what_is_expected_of_it_or_why_nothing_is(op: str) -> None:
    node, _ = node_with(count=8)
    made = document(asked(node, ProbeOverrides(ops=(op,), sizes=(256 * MIB,))))
    (result,) = made.results
    assert (made.health, result.wrong) == ("ok", 0)
    due = {"all_reduce": 1.75, "broadcast": 1.0, "reduce": 1.0, "sendrecv": 1.0}.get(op, 0.875)
    assert result.busbw == pytest.approx(due * 256 * MIB / result.seconds)
    if result.expected_busbw is None:
        assert re.fullmatch(rf"no reference for \w+ {op} of 8 Hopper GPUs over NVSwitch", result.no_reference)
    else:
        assert result.no_reference == ""
        assert result.ratio == pytest.approx(result.busbw / result.expected_busbw)
    known = {*OPS, "broadcast", "alltoall"}
    assert (result.expected_busbw is not None) is (op in known)


def wrong(probed: Probed) -> dict[str, Any]:
    assert probed.document is not None
    timed = tuple(replace(one, wrong=5) for one in probed.document.collectives)
    return {"document": replace(probed.document, collectives=timed)}


@pytest.mark.parametrize("name", ["primitives", "dtype", "out of place", "iterations"])
def test_a_wrong_value_is_as_grave_in_a_study(name: str) -> None:
    node, probes = node_with()
    inner = probes.result
    assert inner is not None
    probes.result = lambda order: replace(inner(order), **wrong(inner(order)))
    found = asked(node, STUDIES[name])
    assert (found.health, [one.rule for one in found.findings]) == (Health.FAILED, ["probe.wrong_data"])


def test_other_elements_are_compared_with_what_float32_gives_and_not_judged_by_it() -> None:
    node, _ = node_with(count=8)
    node.knobs = {"speed": 0.5}
    half = asked(node, ProbeOverrides(ops=("all_reduce",), variation=Variation(dtype="float16")))
    result = document(half).results[-1]
    assert (half.health, result.ratio) == (Health.OK, None)
    assert result.expected_busbw is not None
    assert "that is of float32, and float16 is added up: not judged" in result.derivation
    moved = asked(node, ProbeOverrides(ops=("all_gather",), variation=Variation(dtype="float16")))
    assert (moved.health, [one.rule for one in moved.findings]) == (Health.FAILED, ["probe.busbw"])


@pytest.mark.parametrize(("moved", "rules"), [(1 << 20, []), (1 << 30, ["probe.uneven"])])
def test_a_few_small_messages_do_not_make_a_link_uneven(moved: int, rules: list[str]) -> None:
    node, probes = node_with()
    inner = probes.result
    assert inner is not None
    sent = (moved,) * 17 + (moved // 2,)
    probes.result = lambda order: replace(
        inner(order), links=(LinkBytes(0, tuple(range(18)), sent, sent),), parts=()
    )
    found = asked(node, ProbeOverrides(variation=Variation(iterations=1), sizes=(8,)))
    assert [one.rule for one in found.findings] == rules


# --- engines side by side


def test_engines_run_one_after_the_other_and_stand_side_by_side() -> None:
    node, probes = node_with()
    found = asked(node, ProbeOverrides(engines=("nccl", "torch", "distributed")))
    assert [order.plan.engine for order in probes.ordered] == ["nccl", "torch", "distributed"]
    assert {order.plan.ops for order in probes.ordered} == {OPS}
    assert {order.plan.sizes() for order in probes.ordered} == {(256 * MIB,)}
    made = document(found)
    assert [(run.name, run.engine, len(run.results)) for run in made.runs] == [
        ("nccl", "nccl", 3), ("torch", "torch", 3), ("distributed", "distributed", 3),
    ]  # fmt: skip
    pairs = {(one.run, one.against) for one in made.differences}
    assert pairs == {("torch", "nccl"), ("distributed", "nccl")}
    assert {one.difference for one in made.differences} == {0.0}
    assert (made.health, made.engine) == ("ok", "nccl")


def test_an_engine_that_is_not_installed_is_said_and_the_others_still_run() -> None:
    for missing in ("nccl", "torch"):
        here = tuple({"nccl", "torch", "distributed"} - {missing})
        node, probes = node_with(*here)
        found = asked(node, ProbeOverrides(engines=("nccl", "torch", "distributed")))
        made = document(found)
        assert len(probes.ordered) == 2
        assert {run.name: run.problem for run in made.runs if run.problem} == {
            missing: f"not installed: it needs {REQUIREMENTS[missing]}"
        }
        assert (found.health, len(made.differences)) == (Health.OK, 3)
    node, _ = node_with("gloo")
    assert asked(node, ProbeOverrides(engines=("nccl", "torch"))).health is Health.UNKNOWN


def test_what_an_engine_does_not_have_is_said_and_is_no_result() -> None:
    """torch.distributed adds up in place alone."""
    node, probes = node_with()
    inner = probes.result
    assert inner is not None

    def run(order: Order) -> Probed:
        found = inner(order)
        assert found.document is not None
        kept = tuple(one for one in found.document.collectives if one.op != "all_reduce")
        document = replace(found.document, collectives=kept, not_offered=("all_reduce",))
        return replace(found, document=document) if order.plan.engine == "distributed" else found

    probes.result = run
    outside = Variation(in_place=False)
    made = document(asked(node, ProbeOverrides(engines=("nccl", "distributed"), variation=outside)))
    assert [run.not_offered for run in made.runs] == [[], ["all_reduce"]]
    assert {one.op for one in made.differences} == {"all_gather", "reduce_scatter"}
    assert made.health == "ok"
    alone = ProbeOverrides(ops=("all_reduce",), engine="distributed", variation=outside)
    made = document(asked(node, alone))
    assert (made.health, made.results, made.not_offered) == ("unknown", [], ["all_reduce"])
    assert made.unproven == "the engine distributed does not offer all_reduce"


def test_processors_are_shown_and_never_compared_with_gpus() -> None:
    node, _ = node_with("nccl", "gloo")
    made = document(asked(node, ProbeOverrides(engines=("gloo", "nccl"))))
    assert [run.problem for run in made.runs] == ["it measures this machine's processors, not its GPUs", ""]
    assert (made.differences, len(made.runs[0].results) > 0) == ([], True)


@pytest.mark.parametrize(
    ("outcome", "ran", "health"),
    [("failed", 3, Health.UNKNOWN), ("timeout", 3, Health.UNKNOWN), ("preempted", 2, Health.UNKNOWN),
     ("stuck", 2, Health.UNKNOWN)],
)  # fmt: skip
def test_a_run_that_does_not_end_is_said_and_one_that_gave_way_is_the_last(
    outcome: str, ran: int, health: Health
) -> None:
    node, probes = node_with()
    probes.ended["torch"] = {"outcome": outcome, "why": "a job came", "document": None, "account": None}
    found = asked(node, ProbeOverrides(engines=("nccl", "torch", "distributed")))
    made = document(found)
    assert (len(probes.ordered), found.health) == (ran, health)
    assert made.runs[1].problem == f"{outcome}: a job came"
    assert len(made.results) == 3
    if ran == 2:
        assert made.runs[2].problem.endswith(": a job came")


@pytest.mark.parametrize(("outcomes", "shown"), [(("failed", "ok"), 1), (("failed", "failed"), 0)])
def test_the_first_that_came_to_its_end_is_shown_else_the_first(
    outcomes: tuple[str, str], shown: int
) -> None:
    node, probes = node_with()
    names = ("nccl", "torch")
    for name, outcome in zip(names, outcomes, strict=True):
        if outcome != "ok":
            probes.ended[name] = {"outcome": outcome, "why": name, "document": None, "account": None}
    found = asked(node, ProbeOverrides(engines=names))
    assert found.probed is not None
    assert found.probed.plan.engine == names[shown]
    assert found.at == found.probed.at


def test_what_keeps_one_away_keeps_all_that_follow_away() -> None:
    """Though the GPUs are free again when the second could begin."""
    node, probes = node_with()
    node.busy(0, 4711)
    engine = probes.engine

    def free_later(wanted: str) -> str | Absent:
        node.busy(0, *([4711] if wanted == "nccl" else []))
        return engine(wanted)

    probes.engine = free_later  # type: ignore[method-assign]
    found = asked(node, ProbeOverrides(engines=("nccl", "torch")))
    assert [run.refusal and run.refusal.reason for run in found.runs] == [SkipReason.BUSY] * 2
    assert probes.ordered == []


def test_a_wrong_value_of_one_engine_names_the_engine() -> None:
    node, probes = node_with()
    inner = probes.result
    assert inner is not None
    probes.result = lambda order: (
        replace(inner(order), **wrong(inner(order))) if order.plan.engine == "torch" else inner(order)
    )
    found = asked(node, ProbeOverrides(engines=("nccl", "torch")))
    assert found.health is Health.FAILED
    assert [one.evidence.partition(":")[0] for one in found.findings] == ["torch"]


def one_run(name: str, gbs: float, low: float, high: float) -> ProbeRun:
    """All_reduce of 256 MiB on 4 GPUs, its single runs from `low` to `high` GB/s."""
    node, probes = node_with()
    asked(node, ProbeOverrides(ops=("all_reduce",), sizes=(256 * MIB,)))
    (order,) = probes.ordered
    assert probes.result is not None
    probed = probes.result(order)

    def seconds(rate: float) -> float:
        return 1.5 * 256 * MIB / (rate * 1e9)

    timed = Timed(0, "all_reduce", 256 * MIB, "stream", 8, 11, seconds(gbs), seconds(high), seconds(gbs),
                  seconds(low), 0)  # fmt: skip
    assert isinstance(probed.document, Document)
    probed = replace(probed, document=replace(probed.document, collectives=(timed,)))
    return ProbeRun(name, probed, measure(probed))


@pytest.mark.parametrize(
    ("other", "share", "beyond"),
    [
        ((330.0, 328.0, 332.0), 0.1, True), ((303.0, 302.0, 304.0), 0.01, False),
        ((330.0, 290.0, 340.0), 0.1, False), ((270.0, 269.0, 271.0), -0.1, True),
        ((330.0, 330.0, 330.0), 0.1, None),
    ],
)  # fmt: skip
def test_a_difference_stands_beside_the_spread_of_both(
    other: tuple[float, float, float], share: float, *, beyond: bool | None
) -> None:
    base = one_run("nccl", 300.0, 296.0, 303.5)
    alone = one_run("alone", 300.0, 300.0, 300.0)
    (found,) = run_differences((alone, one_run("torch", *other)))
    assert (found.against_spread, found.beyond_spread) == (None, None)
    (found,) = run_differences((base, one_run("torch", *other)))
    assert (found.run, found.against, found.beyond_spread) == ("torch", "nccl", beyond)
    assert found.difference == pytest.approx(share, rel=1e-6)
    assert found.against_spread == pytest.approx(7.5 / 300)


# --- GPUDirect on and off


def with_network(probes: Engines, on: str, off: str, gbs: tuple[float, float]) -> None:
    """Connections and busbw by what the plan says of GPUDirect."""
    inner = probes.result
    assert inner is not None

    def run(order: Order) -> Probed:
        level = dict(order.plan.environment)["NCCL_NET_GDR_LEVEL"]
        way, rate = (on, gbs[0]) if level == "SYS" else (off, gbs[1])
        conditions = replace(order.conditions[0], network=PORTS)
        found = recorded_over(conditions, (way,), rate, level, 0, "all_reduce")
        assert found.document is not None
        timed = tuple(replace(found.document.collectives[0], size_bytes=size) for size in order.plan.sizes())
        plan = replace(order.plan, log="")
        return replace(found, plan=plan, document=replace(found.document, collectives=timed))

    probes.result = run


PORTS = ()


def gpudirect(on: str, off: str, gbs: tuple[float, float] = (48.0, 40.0), **wish: Any) -> ProbeDocument:
    node, probes = node_with()
    with_network(probes, on, off, gbs)
    variation = Variation(network=True)
    found = asked(node, ProbeOverrides(variation=variation, gpudirect=(True, False), **wish))
    made = document(found)
    levels = [dict(order.plan.environment)["NCCL_NET_GDR_LEVEL"] for order in probes.ordered]
    assert (levels, [run.name for run in made.runs]) == (["SYS", "LOC"], [ON, OFF])
    assert made.health == ("ok" if not any(run.problem for run in made.runs) else "unknown")
    return made


def test_with_and_without_gpudirect_at_six_sizes() -> None:
    made = gpudirect(GDR, IB)
    assert [one.size_bytes for one in made.differences] == list(GPUDIRECT_SIZES)
    assert GPUDIRECT_SIZES == (104856, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)
    assert {size % 4 for size in GPUDIRECT_SIZES} == {0}
    assert {(one.run, one.against) for one in made.differences} == {(ON, OFF)}
    assert [one.difference for one in made.differences] == pytest.approx([0.2] * 6)
    assert [run.gpudirect for run in made.runs] == ["proven", "refuted"]
    given_ = gpudirect(GDR, IB, sizes=(64 * MIB,), ops=("all_gather",))
    assert {one.size_bytes for one in given_.differences} == {64 * MIB}


@pytest.mark.parametrize(
    ("on", "off", "problems"),
    [(IB, IB, [True, False]), (GDR, GDR, [False, True]), (SOCKET, SOCKET, [True, True]),
     ("P2P/CUMEM", IB, [True, False])],
)  # fmt: skip
def test_a_column_that_the_log_does_not_prove_is_not_compared(
    on: str, off: str, problems: list[bool]
) -> None:
    made = gpudirect(on, off)
    assert [bool(run.problem) for run in made.runs] == problems
    assert made.differences == []
    assert all(run.results for run in made.runs)


def test_results_of_different_sizes_are_not_compared() -> None:
    assert run_differences(()) == ()
    base = one_run("a", 300.0, 299.0, 301.0)
    apart: tuple[Measured, ...] = tuple(replace(one, size_bytes=1) for one in base.measured)
    assert run_differences((base, replace(base, name="b", measured=apart))) == ()


def test_what_took_no_time_is_compared_with_nothing() -> None:
    base = one_run("a", 300.0, 299.0, 301.0)
    timeless: tuple[Measured, ...] = tuple(replace(one, busbw=0.0) for one in base.measured)
    odd = replace(base, name="b", measured=timeless)
    assert run_differences((odd, base)) == ()
    (found,) = run_differences((base, odd))
    assert (found.difference, found.spread, found.beyond_spread) == (-1.0, None, None)
