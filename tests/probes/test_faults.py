"""What one probe finds wrong: the rule, the part it names, and the numbers and settings that it tells."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.probes.drawn import OFF, breaches, drawn, gloo, on_pcie, on_switch, two_islands
from wirewatch.core.probe import Conditions, Outcome, Probed
from wirewatch.core.types import Health, Subject
from wirewatch.probe.judge import Breach
from wirewatch.probe.model import ProbePolicy

POLICY = ProbePolicy()
HEALTHY: Mapping[str, Probed] = {
    "two": drawn(on_switch(2)),
    "four": drawn(on_switch(4)),
    "eight": drawn(on_switch(8)),
    "eight with NVLS": drawn(on_switch(8, settings={})),
    "islands": drawn(two_islands()),
    "islands through host memory": drawn(two_islands(), whole="SHM/direct/direct"),
    "islands on two sockets": drawn(two_islands(roots=2), whole="SHM/direct/direct"),
    "PCIe": drawn(on_pcie(4)),
    "PCIe through host memory": drawn(on_pcie(4), transport="SHM/direct/direct"),
    "a product that is not known": drawn(on_switch(8, "NVIDIA R100")),
    "processors": gloo(),
    "torch": drawn(on_switch(4), engine="torch"),
}


def found(probed: Probed, policy: ProbePolicy = POLICY) -> dict[str, Breach]:
    """By rule; the first of each."""
    told: dict[str, Breach] = {}
    for breach in breaches(probed, policy):
        told.setdefault(breach.rule, breach)
    return told


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_wrong_with_a_healthy_node(name: str) -> None:
    assert breaches(HEALTHY[name], POLICY) == ()


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("outcome", ["preempted", "failed", "timeout", "garbage", "stuck", "out_of_memory"])
def test_a_probe_that_was_broken_off_finds_no_speed_wrong(name: str, outcome: Outcome) -> None:
    slow = replace(HEALTHY[name], outcome=outcome)
    assert not {"probe.busbw", "probe.wrong_data", "probe.nvls"} & set(found(slow))


# --- slow


@pytest.mark.parametrize("count", [2, 4, 8])
@given(st.floats(0.05, 0.6))
def test_slow_is_found_at_any_speed_well_below_the_limit(count: int, speed: float) -> None:
    slow = found(drawn(on_switch(count), speed=speed))
    assert set(slow) == {"probe.busbw"}
    assert (slow["probe.busbw"].worst, slow["probe.busbw"].subject) == (Health.FAILED, Subject())
    assert not slow["probe.busbw"].sure


def test_slow_tells_the_worst_and_how_many_more() -> None:
    told = found(drawn(on_switch(4), noise=(1.0, 1.0, 0.5, 0.6, 1.0, 1.0, 1.0, 1.0, 1.0)))["probe.busbw"]
    assert told.evidence.startswith("all_reduce of 512 MiB: ")
    assert "50 % of the expected" in told.evidence
    assert told.evidence.endswith(", and 1 more below")


def test_the_limit_is_the_policys() -> None:
    slow = drawn(on_switch(4), speed=0.8)
    assert found(slow) == {}
    assert set(found(slow, ProbePolicy(ratio=0.9))) == {"probe.busbw"}


def test_settings_that_lower_bandwidth_are_told_with_it() -> None:
    told = found(drawn(on_switch(4, settings={**OFF, "NCCL_MAX_NCHANNELS": "2"}), speed=0.2))
    assert "NCCL is told NCCL_MAX_NCHANNELS=2 (" in told["probe.busbw"].evidence
    assert "NVLS_ENABLE" not in told["probe.busbw"].evidence  # What is expected follows it.


def test_runs_that_were_fast_enough_make_it_inconclusive() -> None:
    spread = found(drawn(on_switch(4), speed=0.5, fast=1.6))["probe.busbw"]
    assert spread.worst is Health.DEGRADED
    assert spread.evidence.endswith("single runs were fast enough: not conclusive")
    assert found(drawn(on_switch(4), speed=0.5, fast=1.3))["probe.busbw"].worst is Health.FAILED


PINNED = {"all_reduce": 40e9, "all_reduce@67108864": 40e9}


def test_a_slow_crossing_between_islands_names_the_wire() -> None:
    told = found(drawn(two_islands(pins=PINNED), speeds={0: 0.5, 1: 1.0, 2: 1.0}))
    assert set(told) == {"probe.busbw"}
    assert "; the ring crosses the host bridges of one NUMA node" in told["probe.busbw"].evidence
    assert " on GPUs " not in told["probe.busbw"].evidence


def test_a_slow_island_is_named_by_its_gpus() -> None:
    told = found(drawn(two_islands(), speeds={0: 1.0, 1: 1.0, 2: 0.5}))["probe.busbw"]
    assert " on GPUs 4-7: " in told.evidence
    assert "crosses" not in told.evidence


@pytest.mark.parametrize(
    "probed",
    [
        drawn(on_switch(8, "NVIDIA R100"), speed=0.01),
        drawn(two_islands(roots=2), speeds={0: 0.01, 1: 1.0, 2: 1.0}),
        replace(gloo(), seconds=500.0),
    ],
)
def test_without_a_reference_nothing_is_slow(probed: Probed) -> None:
    assert breaches(probed, POLICY) == ()


# --- wrong data


def test_wrong_elements_are_believed_at_once() -> None:
    told = found(drawn(on_switch(2), wrong=3))["probe.wrong_data"]
    assert (told.worst, told.sure) == (Health.FAILED, True)
    assert "all_reduce of 8 B: 3 elements" in told.evidence
    assert "nonsense" in told.action


# --- the way


@pytest.mark.parametrize(
    ("transport", "wire"),
    [
        ("SHM/direct/direct", "host memory"),
        ("NET/Socket/0", "TCP sockets"),
        ("NET/IB/0", "InfiniBand without"),
    ],
)
def test_a_fallback_names_the_wire_the_ranks_and_the_setting(transport: str, wire: str) -> None:
    settings = {**OFF, "NCCL_P2P_DISABLE": "1"}
    told = found(drawn(on_switch(2, settings=settings), transport=transport, speed=0.1))
    assert set(told) == {"probe.busbw", "probe.transport"}
    fallback = told["probe.transport"]
    assert fallback.worst is Health.FAILED
    assert f"NCCL went by {wire}" in fallback.evidence
    assert f"({transport}) where NVLink is: ranks 0 to 1, 1 to 0" in fallback.evidence
    assert fallback.evidence.endswith("NCCL is told NCCL_P2P_DISABLE=1")


def test_many_pairs_are_cut_short() -> None:
    told = found(drawn(on_switch(10), transport="SHM"))["probe.transport"]
    assert told.evidence.endswith("6 to 7, 7 to 8, ...")


def test_host_memory_within_an_island_is_a_fallback_and_between_them_is_not() -> None:
    whole = drawn(two_islands(), whole="SHM/direct/direct", speeds={0: 1.0})
    assert "probe.transport" not in found(whole)
    inside = drawn(two_islands(), transport="SHM/direct/direct", whole="P2P/CUMEM")
    assert "0 to 1, 1 to 2, 2 to 3, 3 to 0" in found(inside)["probe.transport"].evidence


def test_nvls_that_is_due_and_was_not_taken() -> None:
    told = found(drawn(on_switch(8, settings={}), algorithm="ring", speed=0.9))["probe.nvls"]
    assert told.worst is Health.DEGRADED
    assert told.evidence.startswith("NCCL took ring where NVLink SHARP (NVLS) is due: all_reduce of 64 MiB")
    for taken in ("nvls", "nvls_tree", ""):
        assert "probe.nvls" not in found(drawn(on_switch(8, settings={}), algorithm=taken))
    assert found(drawn(on_switch(8, settings=OFF), algorithm="ring")) == {}
    assert found(drawn(on_switch(8, settings={}), algorithm="ring", multicast=False)) == {}
    silent = drawn(on_switch(8, settings={}), algorithm="ring")
    assert silent.account is not None
    assert "probe.nvls" in found(silent)
    assert "probe.nvls" not in found(replace(silent, account=replace(silent.account, nvls=())))


def carrying(probed: Probed, share: float, part: str) -> Probed:
    """The same, with NVLink having carried another share in the parts that begin so."""
    parts = []
    for one in probed.parts:
        by = share if one.name.startswith(part) else 1.0
        moved = tuple(replace(m, transmit=int((m.transmit or 0) * by)) for m in one.moved)
        parts.append(replace(one, moved=moved))
    return replace(probed, parts=tuple(parts))


def test_a_tree_that_a_setting_forces_is_slow_and_no_fault_of_the_path() -> None:
    settings = {**OFF, "NCCL_ALGO": "Tree"}
    tree = drawn(on_switch(8, settings=settings), algorithm="tree", speed=0.4)
    told = found(carrying(tree, 1.7, "all_reduce"))
    assert set(told) == {"probe.busbw"}
    assert "NCCL_ALGO=Tree" in told["probe.busbw"].evidence
    assert "probe.path" in found(carrying(drawn(on_switch(8)), 1.7, "all_reduce"))


def test_ll_that_a_setting_forces_sends_twice_and_is_no_fault_of_the_path() -> None:
    twice = drawn(on_switch(2, settings={**OFF, "NCCL_PROTO": "LL"}), protocol="ll", speed=0.4)
    assert set(found(twice)) == {"probe.busbw", "probe.path"}
    assert set(found(carrying(carrying(twice, 2.0, "all"), 2.0, "reduce_"))) == {"probe.busbw"}


# --- bytes, links, errors


def test_bytes_that_are_missing_or_too_many_name_the_gpu() -> None:
    few = found(drawn(on_switch(4), share={2: 0.8}))
    assert set(few) == {"probe.path"}
    assert few["probe.path"].subject == Subject(gpu="2", uuid="GPU-2")
    assert few["probe.path"].worst is Health.DEGRADED
    assert "(80 %)" in few["probe.path"].evidence
    many = [b.subject.gpu for b in breaches(drawn(on_switch(4), share={0: 1.5, 3: 0.0}), POLICY)]
    assert many == ["0", "3"]
    assert found(drawn(on_switch(4), share={2: 0.95, 1: None})) == {}


def test_an_uneven_link_is_named() -> None:
    told = breaches(drawn(on_switch(4), link=(3, 11, 0.5)), POLICY)
    assert [(b.rule, b.subject) for b in told] == [("probe.uneven", Subject("3", "GPU-3", "11"))]
    assert told[0].evidence.startswith("link 11 ")
    assert " 49 % " in told[0].evidence
    assert breaches(drawn(on_switch(4), link=(3, 11, 0.9)), POLICY) == ()
    assert breaches(drawn(two_islands(), link=(3, 11, 0.5)), POLICY) == ()


def test_new_errors_are_told_by_gpu_and_kind() -> None:
    told = breaches(drawn(on_switch(4), errors={0: {"crc": 2}, 1: {"replay": 1, "symbol": 400}}), POLICY)
    assert [(b.rule, b.subject.gpu, b.evidence.partition(": ")[2]) for b in told] == [
        ("probe.link_errors", "0", "6 crc"), ("probe.link_errors", "1", "3 replay"),
    ]  # fmt: skip
    assert {b.worst for b in told} == {Health.DEGRADED}


def test_gloo_finds_nothing_of_gpus_whatever_its_times() -> None:
    probed = gloo(2)
    assert probed.document is not None
    slow = tuple(replace(t, seconds=1e3, high=2e3) for t in probed.document.collectives)
    assert breaches(replace(probed, document=replace(probed.document, collectives=slow)), POLICY) == ()


NODES = (on_switch(2), on_switch(8), on_switch(8, settings={}), two_islands(), on_pcie(4))


@given(st.sampled_from(NODES), st.lists(st.floats(0.9, 1.1), min_size=1, max_size=27))
def test_noise_of_a_tenth_is_nothing(conditions: tuple[Conditions, ...], noise: list[float]) -> None:
    assert breaches(drawn(conditions, noise=noise), POLICY) == ()
