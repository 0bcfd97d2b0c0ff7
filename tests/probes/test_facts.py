"""Reading who uses the GPUs: what is not understood never reads as idle."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import example, given

from tests.core.strategies import JSON
from tests.probes.idle import DENIED, Idle, idle_gpus
from wirewatch.core.nvml import compute_processes
from wirewatch.core.ports import Gpu, Pod, SlurmJob
from wirewatch.core.types import Absent, Json, Why
from wirewatch.probe.gate import Facts, Reason, Rules, Stillness, new_allocations, read_facts, refuse

RULES = Rules(settle=0.0, unseen=2 << 30, free=3 << 30)
UNSUPPORTED = Absent(Why.UNSUPPORTED, "not supported", 3)


def facts(node: Idle) -> Facts:
    return read_facts(node.hardware, node.listed(), slurm=True)


def reason(node: Idle) -> Reason | None:
    found = refuse(facts(node), Stillness(), RULES)
    return found.reason if found else None


def whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


IDLE: Mapping[str, Callable[[Json], bool]] = {
    "MemoryInfo": lambda _: False,
    "MigMode": lambda v: isinstance(v, list) and len(v) == 2 and all(map(whole, v)) and v[0] != 1,
    "ComputeMode": lambda v: whole(v) and v != 2,
    "ComputeRunningProcesses": lambda v: v == [],
    "MPSComputeRunningProcesses": lambda v: v == [],
}
"""Which answers mean that nobody is there."""


@pytest.mark.parametrize("call", IDLE)
@given(JSON)
@example("[]")
@example(None)
@example([])
@example([0, 0])
@example([1, 1])
@example([0, 1])
@example([1, 0])
@example(2)
def test_an_answer_that_is_not_understood_never_reads_as_idle(call: str, answer: Json) -> None:
    node = Idle(2)
    node.answer(1, call, answer)
    assert (reason(node) is None) == IDLE[call](answer)


@pytest.mark.parametrize("call", IDLE)
def test_what_nvml_does_not_answer_is_blind(call: str) -> None:
    node = Idle(2)
    node.answer(0, call, DENIED)
    assert reason(node) is Reason.BLIND


def test_old_drivers_know_neither_mig_nor_modes_nor_mps() -> None:
    node = Idle(2)
    before = facts(node)
    for call in ("MigMode", "ComputeMode", "MPSComputeRunningProcesses"):
        node.answer(0, call, UNSUPPORTED)
    assert facts(node) == before


def test_clients_of_mps_compute_too_and_ids_may_be_hidden() -> None:
    gpus, gpu = idle_gpus(1), Gpu(0, "GPU-0")
    gpus.table["GPU-0", "ComputeRunningProcesses()"] = [None]
    gpus.table["GPU-0", "MPSComputeRunningProcesses()"] = [{"pid": 9}]
    assert compute_processes(gpus, gpu) == frozenset({9, None})
    gpus.table["GPU-0", "MPSComputeRunningProcesses()"] = DENIED
    assert compute_processes(gpus, gpu) == DENIED


def test_finished_pods_hold_nothing() -> None:
    node = Idle(2)
    node.pods.told = [Pod("default", "train", (("nvidia.com/gpu", "GPU-0"),))]
    assert reason(node) is Reason.ALLOCATED
    node.files.texts["/var/log/pods/default_train_6a1e/main/0.log"] = ""
    for folder in ("kubepods-burstable.slice", "kubepods-besteffort.slice"):
        node.files.texts[f"/sys/fs/cgroup/kubepods.slice/{folder}/cgroup.procs"] = ""
    assert reason(node) is None
    living = "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6a1e.slice"
    node.files.texts[f"{living}/cgroup.procs"] = "12"
    assert reason(node) is Reason.ALLOCATED
    assert facts(node).pods[0].holder == "pod:6a1e"  # type: ignore[index]


def test_nobody_to_ask_has_given_nothing_away_but_one_that_does_not_answer_may_have() -> None:
    node = Idle(2)
    assert (facts(node).pods, facts(node).slurm) == ((), ())
    node.jobs.told = [SlurmJob("7", "RUNNING", None)]
    assert reason(node) is Reason.ALLOCATED
    node.jobs.told = DENIED
    assert reason(node) is Reason.BLIND
    node.jobs.told, node.pods.told = [], DENIED
    assert reason(node) is Reason.BLIND
    assert read_facts(node.hardware, node.listed(), slurm=False).slurm is None


def test_a_gpu_that_is_lost_is_asked_nothing_and_makes_all_blind() -> None:
    node = Idle(3)
    lost = replace(node.listed()[1], absent=Absent(Why.LOST, "fallen off the bus", 15))
    told = read_facts(node.hardware, [node.listed()[0], lost, node.listed()[2]], slurm=True)
    found = refuse(told, Stillness(), RULES)
    assert found is not None
    assert (found.reason, "fallen off the bus" in found.detail) == (Reason.BLIND, True)


def test_new_allocations_are_those_of_the_gpus_that_are_probed() -> None:
    node = Idle(4)
    node.pods.told = [Pod("default", "before", (("nvidia.com/gpu", "GPU-3"),))]
    look = new_allocations(node.hardware, node.listed()[:2], facts(node))
    assert look() is None
    node.pods.told = [*node.pods.told, Pod("default", "beside", (("nvidia.com/gpu", "GPU-2"),))]
    assert look() is None
    node.pods.told = [*node.pods.told, Pod("default", "on-ours", (("nvidia.com/gpu", "GPU-1"),))]
    assert "default/on-ours" in (look() or "")
    node.pods.told = DENIED
    assert "no longer tells" in (look() or "")
