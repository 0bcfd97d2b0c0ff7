"""What a sweep finds here before it measures, and what keeps two of them from being mixed."""

from dataclasses import replace

import pytest

from tests.lab.study.sweeps import Failure, probed
from tests.node.probe.idle import FREE, Idle
from wirewatch.core.account import Multicast
from wirewatch.core.ports import Order
from wirewatch.core.probe import Outcome, Probed
from wirewatch.core.types import Absent, Why
from wirewatch.probe.gate import GateFacts, Stillness
from wirewatch.probe.setup import ProbeRequest, prepare
from wirewatch_lab.study.environment import capabilities, differences, environment, scout
from wirewatch_lab.study.grid import SweepOptions

GIB = 1 << 30
OPTIONS = SweepOptions("nccl")
THEN = {"driver": "580.1", "gpus": "GPU-0 GPU-1", "host": "one", "nccl": "2.28.9", "nccl_settings": "none"}


def prepared(node: Idle) -> tuple[Order, GateFacts]:
    made = prepare(node.hardware, ProbeRequest(node.made, "command"), Stillness())
    assert isinstance(made.order, Order)
    return made.order, made.facts


def scouted(order: Order, offered: bool | None = None) -> Probed:  # noqa: FBT001
    found = probed(order, (), None)
    assert found.account is not None
    nvls = () if offered is None else (Multicast(0, offered, Absent(Why.MISSING)),)
    return replace(found, account=replace(found.account, nvls=nvls))


def test_what_is_here_follows_from_the_gate_and_from_nccls_log() -> None:
    node = Idle(4, settle=0.0)
    order, facts = prepared(node)
    for offered in (None, True, False):
        here = capabilities(node.hardware, order, facts, scouted(order, offered), OPTIONS, 3 * GIB)
        assert (here.gpus, here.nvlink, here.switch, here.multicast) == (4, 4, True, offered)
        assert here.memory == FREE - 3 * GIB


@pytest.mark.parametrize(
    "options",
    [
        replace(OPTIONS, in_place=False),
        replace(OPTIONS, ops=("alltoall",)),
        replace(OPTIONS, ops=("sendrecv",)),
    ],
)
def test_what_is_not_in_place_takes_two_buffers(options: SweepOptions) -> None:
    node = Idle(4, settle=0.0)
    order, facts = prepared(node)
    assert capabilities(node.hardware, order, facts, scouted(order), options, 0).memory == FREE // 2


def test_ranks_of_gloo_share_the_memory_of_the_machine() -> None:
    node = Idle(4, settle=0.0, engine="gloo", ranks=2)
    node.probes.name = "gloo"
    node.host.told["Hostname"] = "one"
    node.files.texts["/proc/meminfo"] = "MemTotal: 9 kB\nMemAvailable:    8192 kB\nBuffers: 1 kB"
    order, facts = prepared(node)
    here = capabilities(node.hardware, order, facts, scouted(order), replace(OPTIONS, engine="gloo"), 0)
    assert (here.engine, here.gpus, here.memory, here.nvlink) == ("gloo", 2, 1 << 20, 0)
    around = environment(node.hardware, order, scouted(order))
    assert set(around) == {"wirewatch", "engine", "gpus", "host", "nccl", "nccl_settings"}


def test_the_environment_names_machine_and_software() -> None:
    node = Idle(4, settle=0.0)
    node.host.told["Hostname"] = "one"
    node.gpus.table[None, "SystemGetDriverVersion()"] = "580.159"
    order, _ = prepared(node)
    around = environment(node.hardware, replace(order, settings={"NCCL_NVLS_ENABLE": "0"}), scouted(order))
    assert around["gpus"] == "GPU-0 GPU-1 GPU-2 GPU-3"
    assert (around["driver"], around["nccl"]) == ("580.159", "2.28.9")
    assert around["wires"] == "GPUs 0,1,2,3: NVSwitch"
    assert around["nvls"] == "NCCL_NVLS_ENABLE=0, multicast not known"
    assert around["nccl_settings"] == "NCCL_NVLS_ENABLE=0"
    assert all(around.values())
    for offered, said in ((True, "multicast is offered"), (False, "multicast is not offered")):
        plain = environment(node.hardware, order, scouted(order, offered))
        assert (plain["nvls"], plain["nccl_settings"]) == (said, "none")


@pytest.mark.parametrize("name", sorted(set(THEN) - {"host"}))
def test_whatever_else_is_different_is_named(name: str) -> None:
    assert differences(THEN, THEN | {name: "other"}) == f"{name} is other, it was {THEN[name]}"
    without = {key: value for key, value in THEN.items() if key != name}
    assert f"{name} is not known, it was {THEN[name]}" in differences(THEN, without)


def test_a_container_with_another_name_is_the_same_machine_where_gpus_say_so() -> None:
    assert differences(THEN, THEN | {"host": "two"}) == ""
    cpus = {"engine": "gloo", "host": "one"}
    assert differences(cpus, cpus | {"host": "two"}) == "host is two, it was one"


@pytest.mark.parametrize(("outcome", "tries"), [("failed", 2), ("timeout", 2), ("preempted", 1), ("ok", 1)])
def test_a_first_worker_that_fails_by_chance_is_tried_once_more(outcome: Outcome, tries: int) -> None:
    node = Idle(4, settle=0.0)
    failure = None if outcome == "ok" else Failure(outcome, "why", document=False)
    node.probes.result = lambda order: probed(order, (), failure)
    order, _ = prepared(node)
    assert scout(node.hardware, order, replace(OPTIONS, in_place=False)).outcome == outcome
    assert len(node.probes.ordered) == tries
    plan = node.probes.ordered[-1].plan
    assert (plan.ops, plan.in_place, node.probes.ordered[-1].deadline) == (OPTIONS.ops, False, 120.0)
    assert (plan.cases, plan.sizes(), plan.copy_bytes, plan.micro) == ((), (), 0, False)
    assert (order.plan.host_bytes > 0, plan.host_bytes, plan.near) == (True, 0, ())


def test_gpus_whose_architecture_is_not_known_are_left_out() -> None:
    node = Idle(4, settle=0.0)
    order, facts = prepared(node)
    (one,) = order.conditions
    assert capabilities(node.hardware, order, facts, scouted(order), OPTIONS, 0).architectures == {"Hopper"}
    odd = replace(
        one, group=replace(one.group, gpus=tuple(replace(x, name="NVIDIA R9") for x in one.group.gpus))
    )
    order = replace(order, conditions=(odd,))
    assert capabilities(node.hardware, order, facts, scouted(order), OPTIONS, 0).architectures == frozenset()


def test_a_machine_that_does_not_say_what_memory_is_available_has_none() -> None:
    node = Idle(4, settle=0.0, engine="gloo", ranks=2)
    node.probes.name = "gloo"
    order, facts = prepared(node)
    for text in (None, "MemTotal: 9 kB"):
        if text is not None:
            node.files.texts["/proc/meminfo"] = text
        here = capabilities(node.hardware, order, facts, scouted(order), replace(OPTIONS, engine="gloo"), 0)
        assert here.memory == 0
