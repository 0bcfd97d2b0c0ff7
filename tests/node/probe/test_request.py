"""A probe on somebody's word: the gate but for the waiting, and a second look at what is wrong."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.node.collectors.drawn import RDMA, Probes
from tests.node.probe.histories import stored
from tests.node.probe.idle import DENIED, Idle
from tests.rows import each
from wirewatch.core.collector import NodeState
from wirewatch.core.ports import Order, Pod, SlurmJob
from wirewatch.core.probe import OPS, Probed
from wirewatch.core.types import Absent, Expect, Health, Why
from wirewatch.documents.probed import probes_of
from wirewatch.probe.gate import Refusal, SkipReason
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.request import ENGINES_SIZES, ProbeOverrides, ProbeResult, ProbeRun, probe_now
from wirewatch.probe.setup import Variation
from wirewatch.statefolder import open_state

MIB = 1 << 20


def asked(
    node: Idle, policy: ProbePolicy | None = None, options: ProbeOptions | None = None, **wish: Any
) -> ProbeResult:
    used = policy or ProbePolicy()
    return probe_now(node.hardware, options or ProbeOptions(), used, Expect(), ProbeOverrides(**wish), None)


def reason(told: ProbeResult) -> str:
    assert told.probed is None
    assert told.findings == ()
    assert told.health is Health.UNKNOWN
    assert told.refusal is not None
    return str(told.refusal.reason.value)


# --- how often


def test_a_healthy_node_is_probed_once_and_without_waiting() -> None:
    node = Idle(4)
    told = asked(node)
    assert (len(node.probes.ordered), told.health, told.refusal) == (1, Health.OK, None)
    order = node.probes.ordered[0]
    assert (order.by, order.forced, order.deadline) == ("command", False, 60.0)


def test_what_is_found_is_looked_at_again_and_confirmed() -> None:
    node = Idle(4)
    node.knobs = {"speed": 0.5}
    told = asked(node)
    assert (len(node.probes.ordered), told.health) == (2, Health.FAILED)
    assert told.findings[0].evidence.endswith("(2 probes in a row)")
    thrice = Idle(4)
    thrice.knobs = {"speed": 0.5}
    assert asked(thrice, ProbePolicy(confirm=3)).health is Health.FAILED
    assert len(thrice.probes.ordered) == 3


def test_what_a_second_look_does_not_find_is_gone() -> None:
    node = Idle(4)
    node.knobs = {"speed": 0.5}
    node.during = lambda _: node.knobs.update(speed=0.5 if len(node.probes.ordered) == 1 else 1.0)
    told = asked(node)
    assert (len(node.probes.ordered), told.health, told.findings) == (2, Health.OK, ())


@each("outcome", ["failed", "timeout", "preempted", "stuck", "garbage", "out_of_memory"])
def test_a_probe_that_does_not_end_says_nothing_of_the_node(outcome: str) -> None:
    node = Idle(4)
    node.outcome = outcome  # type: ignore[assignment]
    told = asked(node)
    assert (len(node.probes.ordered), told.health) == (1, Health.UNKNOWN)
    assert told.probed is not None
    assert told.probed.outcome == outcome


def test_what_is_slow_once_and_then_broken_off_is_not_confirmed() -> None:
    node = Idle(4)
    node.knobs = {"speed": 0.5}

    def during(_: object) -> None:
        if len(node.probes.ordered) == 2:
            node.outcome = "preempted"

    node.during = during
    told = asked(node)
    assert len(node.probes.ordered) == 2
    assert (told.health, [f.health for f in told.findings]) == (Health.UNKNOWN, [Health.DEGRADED])
    assert told.measured == ()


def test_a_wrong_sum_is_failed_also_where_the_second_look_is_broken_off() -> None:
    """Before: UNKNOWN, beside a finding that was FAILED."""
    node = Idle(4)
    node.knobs = {"wrong": 1}

    def during(_: object) -> None:
        if len(node.probes.ordered) == 2:
            node.outcome = "preempted"

    node.during = during
    told = asked(node)
    assert (len(node.probes.ordered), told.health) == (2, Health.FAILED)


# --- why not


def test_reasons_are_those_of_the_gate() -> None:
    node = Idle(2)
    node.busy(1, 4711)
    assert reason(asked(node)) == "busy"
    node = Idle(2)
    node.jobs.told = [SlurmJob("7", "RUNNING", (0, 1))]
    assert reason(asked(node)) == "allocated"
    node = Idle(2)
    node.answer(0, "MigMode", [1, 1])
    assert reason(asked(node)) == "mig"
    node = Idle(2)
    node.pods.told = DENIED
    assert reason(asked(node)) == "blind"
    assert reason(asked(Idle(1))) == "few_gpus"
    node = Idle(2)
    node.probes.name = Absent(Why.MISSING, "nothing is installed")
    assert reason(asked(node)) == "no_engine"
    node = Idle(2)
    node.gpus.absent = Absent(Why.MISSING, "no driver", 9)
    assert reason(asked(node)) == "blind"
    assert node.probes.ordered == []


def test_another_prober_is_not_waited_for() -> None:
    node = Idle(2)
    node.probes.holder = "pid 12 (wirewatch serve)"
    told = asked(node, force=True)
    assert (reason(told), node.probes.ordered) == ("locked", [])
    assert "pid 12" in str(told.refusal)


def test_the_owner_probes_its_own_gpus_beside_others() -> None:
    node = Idle(4)
    node.jobs.told = [SlurmJob("7", "RUNNING", (1, 2)), SlurmJob("8", "RUNNING", (0,))]
    assert reason(asked(node)) == "allocated"
    told = asked(node, owner="slurm:7")
    assert told.health is Health.OK
    (order,) = node.probes.ordered
    assert order.plan.gpus == ("GPU-1", "GPU-2")
    assert [gpu.index for gpu in order.gpus] == [1, 2]
    assert reason(asked(node, owner="slurm:8")) == "few_gpus"
    assert reason(asked(node, owner="slurm:9")) == "allocated"


def test_a_pod_beside_the_owners_gpus_does_not_end_its_probe() -> None:
    node = Idle(4)
    node.jobs.told = [SlurmJob("7", "RUNNING", (1, 2))]
    told: list[str | None] = []

    def during(order: Any) -> None:
        for gpu in ("GPU-0", "GPU-2"):
            node.pods.told = [Pod("default", "late", (("nvidia.com/gpu", gpu),))]
            told.append(order.allocations())

    node.during = during
    asked(node, owner="slurm:7")
    assert told[0] is None
    assert "default/late" in (told[1] or "")


# --- force


@pytest.mark.parametrize("shut", ["busy", "allocated", "blind", "memory", "prohibited"])
def test_force_asks_no_gate_and_is_labelled(shut: str) -> None:
    node = Idle(2)
    if shut == "busy":
        node.busy(0, 4711)
    node.jobs.told = [SlurmJob("7", "RUNNING", None)] if shut == "allocated" else []
    if shut == "blind":
        node.pods.told = DENIED
    if shut == "memory":
        node.answer(0, "MemoryInfo", {"total": 1 << 37, "used": 1 << 36, "free": 1 << 36})
    node.answer(1, "ComputeMode", 2 if shut == "prohibited" else 0)
    assert reason(asked(node)) == shut
    told = asked(node, force=True)
    assert told.probed is not None
    assert told.probed.forced
    assert node.probes.ordered[0].forced
    node.pods.told = [Pod("default", "late", (("nvidia.com/gpu", "GPU-0"),))]
    assert node.probes.ordered[0].allocations() is None


def test_force_makes_no_second_gpu_no_engine_and_no_wires_of_mig() -> None:
    assert [reason(asked(Idle(count), force=True)) for count in (0, 1)] == ["few_gpus"] * 2
    node = Idle(2)
    node.answer(0, "MigMode", [1, 1])
    assert reason(asked(node, force=True)) == "mig"
    node.probes.name = Absent(Why.MISSING, "nothing is installed")
    assert reason(asked(node, force=True)) == "no_engine"


# --- wishes


def test_sizes_are_sorted_into_latency_and_bandwidth() -> None:
    node = Idle(2)
    asked(node, sizes=(256 * MIB, 8, 4 * MIB, 256 * MIB), ops=("all_gather", "all_gather"))
    plan = node.probes.ordered[0].plan
    assert plan.ops == ("all_gather",)
    assert plan.latency_sizes == (8,)
    assert plan.bandwidth == ((256 * MIB, 8), (4 * MIB, 8))


def test_without_wishes_it_is_what_the_configuration_says() -> None:
    node = Idle(2)
    options = ProbeOptions(ops=("reduce_scatter",), bandwidth=((64 * MIB, 3),), kill_after=9.0)
    asked(node, options=options)
    order = node.probes.ordered[0]
    assert (order.plan.ops, order.plan.bandwidth) == (("reduce_scatter",), ((64 * MIB, 3),))
    assert order.deadline == 9.0


@dataclass
class Named(Probes):
    """Has every engine, and tells which were wanted."""

    wanted: list[str] = field(default_factory=list)

    def engine(self, wanted: str) -> str | Absent:
        self.wanted.append(wanted)
        return "nccl" if wanted == "auto" else wanted


def test_the_engine_is_the_one_that_is_wanted() -> None:
    node = Idle(2)
    engines = Named(result=node.probes.result)
    node.hardware = replace(node.hardware, probe=engines)
    for wish, options in (("torch", "auto"), (None, "torch"), ("auto", "torch"), (None, "auto")):
        asked(node, options=ProbeOptions(engine=options), engine=wish)  # type: ignore[arg-type]
    assert engines.wanted == ["torch", "torch", "auto", "auto"]
    assert [order.plan.engine for order in engines.ordered] == ["torch", "torch", "nccl", "nccl"]


def test_gloo_asks_no_gpu() -> None:
    node = Idle(2)
    node.probes.name, node.gpus.absent = "gloo", Absent(Why.MISSING, "no driver", 9)
    told = asked(node, engine="gloo", options=ProbeOptions(ranks=3))
    assert told.health is Health.OK
    assert node.probes.ordered[0].plan.gpus == ("cpu:0", "cpu:1", "cpu:2")


@pytest.mark.parametrize(
    ("source", "engine", "missing"),
    [
        ("replay", "torch", ("engine torch",)), ("replay", "auto", ()), ("replay", None, ()),
        ("live", "torch", ()),
    ],
)  # fmt: skip
def test_an_engine_that_is_named_is_missing_in_a_recording_alone(
    source: str, engine: str | None, missing: tuple[str, ...]
) -> None:
    node = Idle(2)
    node.hardware = replace(node.hardware, source=source)
    node.probes.name = Absent(Why.MISSING, "nothing is installed")
    assert asked(node, engine=engine).not_recorded == missing
    node.probes.name = "nccl"
    node.busy(1, 4711)
    told = asked(node, engine=engine)
    assert (reason(told), told.not_recorded) == ("busy", ())


@pytest.mark.parametrize(
    ("owner", "by", "gpus", "refused"),
    [
        ("slurm:7", "recording", ("GPU-1", "GPU-2"), False),
        ("slurm:7", "recording", ("GPU-0", "GPU-1"), True),
        ("slurm:7", "command", ("GPU-0", "GPU-1"), False),
        (None, "recording", ("GPU-0", "GPU-1", "GPU-2", "GPU-9"), False),
    ],
)  # fmt: skip
def test_a_recorded_probe_of_other_gpus_is_not_the_owners(
    owner: str | None, by: Literal["recording", "command"], gpus: tuple[str, ...], *, refused: bool
) -> None:
    node = Idle(4)
    node.jobs.told = [SlurmJob("7", "RUNNING", (1, 2))] if owner else []
    inner = node.probes.result
    assert inner is not None
    node.probes.result = lambda order: replace(
        inner(order),
        by=by,
        plan=replace(inner(order).plan, gpus=gpus),
    )
    told = asked(node, owner=owner)
    assert (told.refusal is not None) == refused
    if refused:
        assert reason(told) == "blind"
        assert told.why == "the recorded probe is of 2 GPUs, not of the 2 that slurm:7 holds"


def test_engines_side_by_side_measure_what_every_daemon_could_at_one_size() -> None:
    """Whatever the configuration names; what is asked for goes before both."""
    ((name, one),) = ProbeOverrides(engines=("torch",)).several()
    assert (name, one.engine, one.engines, one.ops, one.sizes) == ("torch", "torch", (), OPS, ENGINES_SIZES)
    ((_, one),) = ProbeOverrides(engines=("torch",), ops=("all_gather",), sizes=(8,)).several()
    assert (one.ops, one.sizes) == (("all_gather",), (8,))


def test_without_gpus_nothing_is_expected_of_a_network() -> None:
    node = Idle(2)
    network = Variation(network=True)
    node.busy(1, 4711)
    assert len(asked(node, variation=network).conditions) == 1
    assert asked(node).conditions == asked(Idle(2), variation=network).conditions == ()
    node.gpus.absent = Absent(Why.MISSING, "no driver", 9)
    assert asked(node, variation=network).conditions == ()


def test_what_was_not_run_has_no_reason_of_its_own() -> None:
    assert ProbeResult(0.0, None, (), None).why == ""
    assert ProbeRun("torch").problem == "not run"
    absent = Refusal(SkipReason.NO_ENGINE, "nothing is installed")
    assert ProbeRun("on", refusal=absent).problem == "no_engine: nothing is installed"
    assert ProbeRun("torch", refusal=absent).problem.startswith("not installed: it needs torch")


# --- kept


def test_every_probe_is_kept_as_the_commands(tmp_path: Path) -> None:
    node, state = Idle(2), open_state(tmp_path)
    node.knobs = {"speed": 0.5}
    probe_now(node.hardware, ProbeOptions(), ProbePolicy(), Expect(), ProbeOverrides(force=True), state)
    kept = [(one.started_by, one.forced, one.result) for one in stored(state.history)]
    assert kept == [("command", True, "ok")] * 2


def test_a_policy_that_asks_for_no_confirmation_still_probes() -> None:
    node = Idle(2)
    assert asked(node, ProbePolicy(confirm=0)).health is Health.OK


LONG = 8.0


def asked_until(node: Idle, seconds: float) -> ProbeResult:
    """With so many seconds until the deadline."""
    end = node.hardware.clock.mono() + seconds
    return probe_now(
        node.hardware, ProbeOptions(), ProbePolicy(confirm=3), Expect(), ProbeOverrides(), None, end
    )


def lasting(node: Idle) -> None:
    """Each probe takes LONG seconds."""
    inner = node.probes.result
    assert inner is not None

    def run(order: Order) -> Probed:
        end = node.clock.seconds + LONG
        probed = inner(order)
        node.clock.seconds = end
        return replace(probed, seconds=LONG)

    node.probes.result = run


def test_the_worker_is_killed_by_then() -> None:
    node = Idle(4)
    asked_until(node, 25.0)
    asked_until(node, 1000.0)
    assert [order.deadline for order in node.probes.ordered] == [25.0, 60.0]


def test_what_is_found_is_looked_at_again_while_there_is_time() -> None:
    node = Idle(4)
    node.knobs = {"speed": 0.5}
    lasting(node)
    told = asked_until(node, 2.5 * LONG)
    assert [order.deadline for order in node.probes.ordered] == [2.5 * LONG, 1.5 * LONG]
    assert told.health is Health.DEGRADED
    assert [f.evidence.endswith("(2 probes in a row)") for f in told.findings] == [True]


def test_why_there_is_no_result_is_reported() -> None:
    node = Idle(1)
    assert asked_until(node, 20.0).why == "1 GPU"
    node = Idle(4)
    assert asked_until(node, 20.0).why == ""
    node.outcome = "timeout"
    told = asked_until(node, 20.0)
    assert told.probed is not None
    assert told.why == told.probed.why != ""


@pytest.mark.parametrize("why", [why for why in Why if why is not Why.MISSING])
def test_who_cannot_be_asked_may_have_given_gpus_away(why: Why) -> None:
    for port in ("jobs", "pods"):
        node = Idle(settle=0.0)
        getattr(node, port).told = Absent(why, "name one")
        node.poll(times=20, every=30.0)
        assert node.probes.ordered == []
        assert node.reason() == "blind"


def test_the_controller_is_not_asked_every_turn_while_a_job_holds_idle_gpus() -> None:
    node = Idle(settle=0.0)
    node.job("7", 0, 1)
    node.poll(times=120, every=30.0)
    assert node.reason() == "allocated"
    assert 10 <= node.jobs.asked <= 12
    node.job("7")
    node.poll(times=11, every=30.0)
    assert len(node.probes.ordered) == 1


def test_a_topology_that_cannot_be_read_is_no_fault_of_the_node() -> None:
    node = Idle(settle=0.0)
    node.files.texts[RDMA] = Absent(Why.DENIED, "permission denied")
    node.poll(times=20, every=30.0)
    assert node.probes.ordered == []
    assert node.reason() == "blind"
    assert node.component.health in {None, Health.OK}


def test_the_gate_is_not_called_open_before_anybody_has_looked() -> None:
    told = probes_of(NodeState({}), 0.0)
    assert (told.gate.open, told.gate.reason) == (False, "blind")
    node = Idle(settle=0.0)
    node.poll(times=2, every=30.0)
    assert probes_of(NodeState({"probe": node.component}), 0.0).gate.open


def test_an_owner_that_holds_nothing_is_given_nothing() -> None:
    node = Idle()
    for owner in ("slurm:42", "pod:no-such"):
        told = probe_now(
            node.hardware, node.made, node.rules_used, Expect(), ProbeOverrides(owner=owner), None
        )
        assert told.refusal is not None
        assert told.refusal.reason is SkipReason.BLIND
        assert f"{owner} holds no GPU here" in told.refusal.detail
    assert node.probes.ordered == []
