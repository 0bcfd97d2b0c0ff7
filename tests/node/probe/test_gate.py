"""The gate: each reason for its cause alone, and nothing that could not be read opens it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.node.core.strategies import JSON
from tests.node.probe.idle import DENIED, Idle, idle_gpus
from tests.rows import each
from wirewatch.core.nvml import gpu_processes
from wirewatch.core.ports import Gpu, Pod, SlurmJob
from wirewatch.core.types import Absent, Json, Why
from wirewatch.probe.gate import (
    GateFacts,
    GateLimits,
    GpuUsers,
    Holding,
    Refusal,
    SkipReason,
    Stillness,
    candidates,
    new_allocations,
    nothing_to_probe,
    read_facts,
    refuse,
    watch_users,
)

RULES = GateLimits(settle=120.0, unseen=2 << 30, free=3 << 30)
ABSENT = Absent(Why.TIMEOUT, "no answer")
LOST = Absent(Why.LOST, "fallen off the bus", 15)
LONG_AGO = Stillness(since={f"GPU-{n}": 0.0 for n in range(8)})


def use(n: int) -> GpuUsers:
    return GpuUsers(
        Gpu(n, f"GPU-{n}"), frozenset(), used=645 << 20, free=140 << 30, mig=False, compute_mode=0
    )


def facts(count: int = 4, mono: float = 1000.0) -> GateFacts:
    return GateFacts(tuple(use(n) for n in range(count)), pods=(), slurm=(), mono=mono)


def changed(which: int, **values: object) -> GateFacts:
    """Four idle GPUs, one of which is not."""
    idle = facts()
    uses = [replace(u, **values) if n == which else u for n, u in enumerate(idle.uses)]  # type: ignore[arg-type]
    return replace(idle, uses=tuple(uses))


def reason(told: GateFacts, owner: str | None = None, still: Stillness = LONG_AGO) -> SkipReason | None:
    found = refuse(told, still, RULES, owner)
    return found.reason if found else None


def held(holder: str, *gpus: int) -> Holding:
    return Holding(holder, f"about {holder}", tuple(f"GPU-{n}" for n in gpus))


GATE_CASES = [
    (facts(), None),
    (facts(2), None),
    (changed(3, processes=frozenset({4711})), SkipReason.BUSY),
    (changed(0, processes=frozenset({None})), SkipReason.BUSY),
    (changed(1, mig=True), SkipReason.MIG),
    (changed(1, compute_mode=2), SkipReason.PROHIBITED),
    (changed(1, compute_mode=3), None),
    (changed(2, used=(2 << 30) + 1), SkipReason.MEMORY),
    (changed(2, used=2 << 30), None),
    (changed(2, free=(3 << 30) - 1), SkipReason.MEMORY),
    (changed(2, free=3 << 30), None),
    (changed(1, gpu=Gpu(1, "GPU-1", absent=LOST)), SkipReason.BLIND),
    *[(changed(1, **{name: ABSENT}), SkipReason.BLIND) for name in GpuUsers.__slots__ if name != "gpu"],
    (replace(facts(), pods=(held("pod:a", 3),)), SkipReason.ALLOCATED),
    (replace(facts(), slurm=(held("slurm:7", 0),)), SkipReason.ALLOCATED),
    (replace(facts(), pods=ABSENT), SkipReason.BLIND),
    (replace(facts(), holds=(held("slurm:7", 0),)), SkipReason.HOLD),
    (replace(facts(), holds=ABSENT), SkipReason.BLIND),
    (replace(facts(), slurm=ABSENT), SkipReason.BLIND),
    (replace(facts(), slurm=None), None),
    (facts(mono=119.0), SkipReason.SETTLING),
    (facts(mono=120.0), None),
    (facts(1), SkipReason.FEW_GPUS),
    (facts(0), SkipReason.FEW_GPUS),
]


@each(("told", "expected"), GATE_CASES)
def test_each_cause_has_its_reason_and_no_other(told: GateFacts, expected: SkipReason | None) -> None:
    assert reason(told) is expected


def test_every_reason_has_a_meaning_and_those_of_the_gate_are_reached() -> None:
    assert all(reason.meaning for reason in SkipReason)
    elsewhere = {SkipReason.BUDGET, SkipReason.LOCKED, SkipReason.NO_ENGINE, SkipReason.PROBER_AWAY}
    assert {wanted for _, wanted in GATE_CASES} - {None} == set(SkipReason) - elsewhere


def test_what_lasts_is_reported_before_what_passes() -> None:
    busy = replace(use(0), processes=frozenset({1}), used=100 << 30)
    told = replace(facts(mono=1.0), uses=(busy, use(1)), pods=(held("pod:a", 0),))
    order = []
    while (found := reason(told)) is not None:
        order.append(found)
        told = {
            SkipReason.BUSY: lambda t: replace(t, uses=(replace(busy, processes=frozenset()), use(1))),
            SkipReason.MEMORY: lambda t: replace(t, uses=(use(0), use(1))),
            SkipReason.ALLOCATED: lambda t: replace(t, pods=()),
            SkipReason.SETTLING: lambda t: replace(t, mono=500.0),
        }[found](told)
    assert order == [SkipReason.BUSY, SkipReason.MEMORY, SkipReason.ALLOCATED, SkipReason.SETTLING]


def test_the_refusal_says_who_and_where() -> None:
    def detail(told: GateFacts) -> str:
        found = refuse(told, LONG_AGO, RULES)
        assert isinstance(found, Refusal)
        return found.detail

    assert detail(changed(3, processes=frozenset({42, None}))) == "GPU 3 is used by process 42, unknown"
    assert "about slurm:9" in detail(replace(facts(), slurm=(held("slurm:9", 1),)))
    assert "no answer" in detail(changed(2, used=ABSENT))
    assert detail(facts(mono=30.0)) == (
        "processes on the GPUs came, went or were first looked at 30 s ago; "
        "a probe starts after 120 s without a change"
    )


@pytest.mark.parametrize(
    ("here", "least", "detail"),
    [(1, 2, "1 GPU"), (3, 4, "3 of the 4 GPUs that are asked for"), (4, 4, None), (2, 2, None)],
)
def test_too_few_gpus_are_counted(here: int, least: int, detail: str | None) -> None:
    found = refuse(facts(here), LONG_AGO, replace(RULES, gpus=least))
    assert (found and found.detail) == detail


# --- owners


def test_gpus_of_the_owner_count_as_idle_and_others_block_it() -> None:
    mine = replace(facts(), slurm=(held("slurm:7", 0, 1),))
    assert reason(mine) is SkipReason.ALLOCATED
    assert reason(mine, "slurm:7") is None
    assert [gpu.index for gpu in candidates(mine, "slurm:7")] == [0, 1]
    shared = replace(mine, pods=(held("pod:b", 1),))
    assert reason(shared, "slurm:7") is SkipReason.ALLOCATED
    assert reason(replace(mine, pods=(held("pod:b", 2),)), "slurm:7") is None
    assert reason(changed(0, processes=frozenset({5})), "slurm:7") is SkipReason.BUSY


def test_an_owner_of_nothing_asks_for_all_and_one_of_a_single_gpu_has_no_peer() -> None:
    told = replace(facts(), slurm=(held("slurm:7", 0, 1), held("slurm:8", 3)))
    assert reason(told, "slurm:9") is SkipReason.ALLOCATED
    assert len(candidates(told, "slurm:9")) == 4
    assert reason(told, "slurm:8") is SkipReason.FEW_GPUS


def test_who_holds_nothing_gets_no_probe_of_idle_gpus() -> None:
    assert reason(facts(), "slurm:9") is SkipReason.BLIND
    assert reason(facts()) is None


# --- standing still


def turns(seen: Sequence[GateFacts]) -> list[Stillness]:
    still, found = Stillness(), []
    for told in seen:
        still = watch_users(still, told)
        found.append(still)
    return found


def test_settling_is_counted_for_each_gpu_from_its_last_change() -> None:
    busy = replace(use(1), processes=frozenset({7}))
    told = [facts(2, 0.0), replace(facts(2, 50.0), uses=(use(0), busy)), facts(2, 90.0), facts(2, 150.0)]
    first, second, third, last = turns(told)
    assert first.since == {"GPU-0": 0.0, "GPU-1": 0.0}
    assert second.since == {"GPU-0": 0.0, "GPU-1": 50.0}
    assert third.since == last.since == {"GPU-0": 0.0, "GPU-1": 90.0}
    assert reason(facts(2, 209.9), still=last) is SkipReason.SETTLING
    assert reason(facts(2, 210.0), still=last) is None


CHANGES: list[Callable[[GateFacts], GateFacts]] = [
    lambda told: replace(told, uses=(replace(told.uses[0], processes=frozenset({8})), *told.uses[1:])),
    lambda told: replace(told, uses=(replace(told.uses[0], mig=True), *told.uses[1:])),
    lambda told: replace(told, pods=(held("pod:x", 0),)),
    lambda told: replace(told, pods=ABSENT),
    lambda told: replace(told, uses=(replace(told.uses[0], processes=ABSENT), *told.uses[1:])),
]


@each("change", CHANGES)
def test_a_change_of_users_and_what_cannot_be_read_begin_the_count_again(
    change: Callable[[GateFacts], GateFacts],
) -> None:
    before, during, after = turns([facts(2, 0.0), change(facts(2, 60.0)), facts(2, 61.0)])
    assert (before.since["GPU-0"], during.since["GPU-0"], after.since["GPU-0"]) == (
        0.0,
        60.0,
        after.since["GPU-0"],
    )
    assert after.since["GPU-0"] >= 60.0


def test_what_stays_unreadable_never_settles_and_slurm_does_not_count() -> None:
    blind = [replace(facts(2, float(n)), pods=ABSENT) for n in range(5)]
    unseen = [replace(facts(1, float(n)), uses=(replace(use(0), processes=ABSENT),)) for n in range(5)]
    for told in (blind, unseen):
        assert [still.since["GPU-0"] for still in turns(told)] == [0.0, 1.0, 2.0, 3.0, 4.0]
    asked = [replace(facts(2, float(n)), slurm=((), None, ABSENT)[n % 3]) for n in range(6)]
    assert {still.since["GPU-0"] for still in turns(asked)} == {0.0}


# --- what cannot be read never opens the gate

PROCESSES = st.frozensets(st.none() | st.integers(1, 9), max_size=2)
USES = st.builds(
    GpuUsers, st.just(Gpu(0, "")), PROCESSES | st.just(ABSENT), st.sampled_from([0, 9 << 30, ABSENT]),
    st.sampled_from([0, 90 << 30, ABSENT]), st.sampled_from([False, True, ABSENT]),
    st.sampled_from([0, 2, ABSENT]),
)  # fmt: skip
HOLDINGS = st.lists(
    st.builds(held, st.sampled_from(["pod:a", "slurm:1"]), st.integers(0, 3)), max_size=2
).map(tuple)
FACTS = st.builds(
    lambda uses, *rest: GateFacts(
        tuple(replace(u, gpu=Gpu(n, f"GPU-{n}")) for n, u in enumerate(uses)), *rest
    ),
    st.lists(USES | st.builds(use, st.just(0)), max_size=4), HOLDINGS | st.just(ABSENT),
    HOLDINGS | st.sampled_from([ABSENT, None]), st.sampled_from([100.0, 500.0]),
)  # fmt: skip


def blinded(told: GateFacts) -> list[GateFacts]:
    """The same with one thing more that cannot be read, in every way."""
    found = [replace(told, pods=ABSENT), replace(told, slurm=ABSENT)]
    for n, one in enumerate(told.uses):
        worse = [replace(one, **{name: ABSENT}) for name in GpuUsers.__slots__ if name != "gpu"]  # type: ignore[arg-type]
        worse.append(replace(one, gpu=replace(one.gpu, absent=LOST)))
        found += [replace(told, uses=(*told.uses[:n], bad, *told.uses[n + 1 :])) for bad in worse]
    return found


@given(FACTS, st.sampled_from([None, "pod:a", "slurm:1"]))
@example(replace(facts(), slurm=(held("slurm:1", 0, 1),)), "slurm:1")
def test_one_more_thing_unread_never_opens_the_gate(told: GateFacts, owner: str | None) -> None:
    shut = reason(told, owner) is not None
    for worse in blinded(told):
        now = reason(worse, owner)
        assert now is not None or not shut
        # Its own use is what counts: a GPU that is not touched may be blind.
        untouched = {u.gpu.key for u in told.uses} - {gpu.key for gpu in candidates(told, owner)}
        assert now is not None or untouched


RULES_AT_ONCE = GateLimits(settle=0.0, unseen=2 << 30, free=3 << 30)
UNSUPPORTED = Absent(Why.UNSUPPORTED, "not supported", 3)


def facts_of(node: Idle) -> GateFacts:
    return read_facts(node.hardware, node.listed(), slurm=True)


def reason_of(node: Idle) -> SkipReason | None:
    found = refuse(facts_of(node), Stillness(), RULES_AT_ONCE)
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
    assert (reason_of(node) is None) == IDLE[call](answer)


@each("call", IDLE)
def test_what_nvml_does_not_answer_is_blind(call: str) -> None:
    node = Idle(2)
    node.answer(0, call, DENIED)
    assert reason_of(node) is SkipReason.BLIND


def test_old_drivers_know_neither_mig_nor_modes_nor_mps() -> None:
    node = Idle(2)
    before = facts_of(node)
    for call in (
        "MigMode",
        "ComputeMode",
        "MPSComputeRunningProcesses",
        "GraphicsRunningProcesses",
    ):
        node.answer(0, call, UNSUPPORTED)
    assert facts_of(node) == before


@each(
    ("name", "foreign"),
    [
        ("Xorg", False), ("gnome-shell", False), ("Xwayland", False), ("blender", True), ("python3", True),
        ("Xorg-render", True), ("", True), (Absent(Why.MISSING, "another PID namespace"), True),
    ],
)  # fmt: skip
def test_who_draws_is_foreign_unless_it_is_known_to_be_harmless(name: str | Absent, *, foreign: bool) -> None:
    """Before, a renderer with less than 2 GiB passed the gate: only its memory was asked for."""
    node = Idle(2)
    node.answer(1, "GraphicsRunningProcesses", [{"pid": 4711, "usedGpuMemory": 300 << 20}])
    node.files.texts["/proc/4711/comm"] = name
    found = refuse(facts_of(node), LONG_AGO, RULES_AT_ONCE)
    assert (found is not None and found.reason is SkipReason.BUSY) == foreign
    assert found is None or "4711" in found.detail
    node.busy(1, 4711)
    assert refuse(facts_of(node), LONG_AGO, RULES_AT_ONCE) is not None, (
        "who computes as well is never harmless"
    )


def test_who_draws_without_an_id_is_foreign_and_a_list_that_is_refused_is_not_known() -> None:
    node = Idle(2)
    node.answer(0, "GraphicsRunningProcesses", [None])
    found = refuse(facts_of(node), LONG_AGO, RULES_AT_ONCE)
    assert (found and found.reason) is SkipReason.BUSY
    node.answer(0, "GraphicsRunningProcesses", DENIED)
    found = refuse(facts_of(node), LONG_AGO, RULES_AT_ONCE)
    assert (found and found.reason) is SkipReason.BLIND


@each(
    ("gpus", "mode", "expected"),
    [(0, None, SkipReason.FEW_GPUS), (1, None, SkipReason.FEW_GPUS), (2, [1, 1], SkipReason.MIG),
     (2, [0, 1], None), (2, None, None), (2, DENIED, None)],
)  # fmt: skip
def test_nothing_to_probe_is_known_and_not_guessed(
    gpus: int, mode: Json | Absent, expected: SkipReason | None
) -> None:
    node = Idle(gpus)
    for gpu in range(gpus):
        if mode is not None:
            node.answer(gpu, "MigMode", mode)
    found = nothing_to_probe(node.hardware)
    assert (found.reason if found else None) is expected


def test_gpus_that_cannot_be_listed_may_be_many() -> None:
    node = Idle(1)
    node.gpus.absent = DENIED
    assert nothing_to_probe(node.hardware) is None


def test_clients_of_mps_compute_too_and_ids_may_be_hidden() -> None:
    gpus, gpu = idle_gpus(1), Gpu(0, "GPU-0")
    gpus.table["GPU-0", "ComputeRunningProcesses()"] = [None]
    gpus.table["GPU-0", "MPSComputeRunningProcesses()"] = [{"pid": 9}]
    assert gpu_processes(gpus, gpu) == (frozenset({9, None}), frozenset())
    gpus.table["GPU-0", "MPSComputeRunningProcesses()"] = DENIED
    assert gpu_processes(gpus, gpu) == DENIED


def test_finished_pods_hold_nothing() -> None:
    node = Idle(2)
    node.pods.told = [Pod("default", "train", (("nvidia.com/gpu", "GPU-0"),))]
    assert reason_of(node) is SkipReason.ALLOCATED
    node.files.texts["/var/log/pods/default_train_6a1e/main/0.log"] = ""
    for folder in ("kubepods-burstable.slice", "kubepods-besteffort.slice"):
        node.files.texts[f"/sys/fs/cgroup/kubepods.slice/{folder}/cgroup.procs"] = ""
    assert reason_of(node) is None
    living = "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6a1e.slice"
    node.files.texts[f"{living}/cgroup.procs"] = "12"
    assert reason_of(node) is SkipReason.ALLOCATED
    assert facts_of(node).pods[0].holder == "pod:6a1e"  # type: ignore[index]


def test_an_allocator_that_is_absent_has_given_nothing_away_but_one_that_does_not_answer_may_have() -> None:
    node = Idle(2)
    assert (facts_of(node).pods, facts_of(node).slurm) == ((), ())
    node.jobs.told = [SlurmJob("7", "RUNNING", None)]
    assert reason_of(node) is SkipReason.ALLOCATED
    node.jobs.told = DENIED
    assert reason_of(node) is SkipReason.BLIND
    node.jobs.told, node.pods.told = [], DENIED
    assert reason_of(node) is SkipReason.BLIND
    assert read_facts(node.hardware, node.listed(), slurm=False).slurm is None


def test_a_gpu_that_is_lost_is_asked_nothing_and_makes_all_blind() -> None:
    node = Idle(3)
    lost = replace(node.listed()[1], absent=Absent(Why.LOST, "fallen off the bus", 15))
    told = read_facts(node.hardware, [node.listed()[0], lost, node.listed()[2]], slurm=True)
    found = refuse(told, Stillness(), RULES_AT_ONCE)
    assert found is not None
    assert (found.reason, "fallen off the bus" in found.detail) == (SkipReason.BLIND, True)


def test_new_allocations_are_those_of_the_gpus_that_are_probed() -> None:
    node = Idle(4)
    node.pods.told = [Pod("default", "before", (("nvidia.com/gpu", "GPU-3"),))]
    look = new_allocations(node.hardware, node.listed()[:2], facts_of(node))
    assert look() is None
    node.pods.told = [*node.pods.told, Pod("default", "beside", (("nvidia.com/gpu", "GPU-2"),))]
    assert look() is None
    node.pods.told = [*node.pods.told, Pod("default", "on-ours", (("nvidia.com/gpu", "GPU-1"),))]
    assert "default/on-ours" in (look() or "")
    node.pods.told = DENIED
    assert "no longer says" in (look() or "")
