"""What is expected of GPUs of one node that reach each other over its NICs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.busbw.ports import GEN4, HDR, NDR, RDMA_100G, on_switch, port, rails
from tests.rows import each
from wirewatch.busbw.expected import Expectation
from wirewatch.busbw.network import LARGE, count_ports, expect_network
from wirewatch.busbw.references import Confidence
from wirewatch.core.hostlink import Pcie
from wirewatch.core.probe import Conditions, RdmaPort
from wirewatch.core.types import Absent, Why


def expected(conditions: Conditions, op: str = "all_reduce", size: int = LARGE) -> Expectation:
    found = expect_network(conditions, op, size)
    assert isinstance(found, Expectation), found
    return found


def absent(conditions: Conditions, op: str = "all_reduce") -> str:
    found = expect_network(conditions, op, LARGE)
    assert isinstance(found, Absent), found
    return found.detail


@each(
    ("gpus", "ports", "gbs"),
    [
        (8, rails(8, 8), 50.0),
        (4, rails(4, 2), 25.0),
        (8, rails(8, 8, pcie=GEN4), 31.508),
        (8, rails(8, 8, rate=HDR), 25.0),
        (8, rails(8, 8, rate=HDR, pcie=GEN4), 25.0),
        (8, rails(8, 8, rate=RDMA_100G, layer="Ethernet"), 12.5),
        (8, rails(8, 1), 6.25),
        (8, rails(8, 8, pcie=Pcie(5, 8)), 31.508),
        (8, rails(8, 8, pcie=Absent(Why.UNSUPPORTED, "no PCIe link")), 50.0),
        (8, rails(8, 8, pcie=Pcie(9, 16)), 50.0),
    ],
)
def test_the_slower_of_port_and_pcie_times_nics_by_gpus(
    gpus: int, ports: Sequence[RdmaPort], gbs: float
) -> None:
    found = expected(on_switch(gpus, ports))
    assert found.busbw == pytest.approx(gbs * 1e9, rel=1e-4)
    assert found.derivation[-1].endswith(f"/ {gpus} GPUs = {gbs:.1f} GB/s")
    assert found.confidence is Confidence.DERIVED


@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([NDR, HDR, RDMA_100G]), st.sampled_from([3, 4, 5]),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall"]),
)  # fmt: skip
def test_no_gpu_is_expected_to_send_more_than_its_share(nics: int, rate: float, gen: int, op: str) -> None:
    found = expected(on_switch(8, rails(8, nics, rate=rate, pcie=Pcie(gen, 16))), op)
    assert found.busbw <= rate * nics / 8
    assert found.busbw == expected(on_switch(8, rails(8, nics, rate=rate, pcie=Pcie(gen, 16)))).busbw


def test_it_is_derived_line_by_line() -> None:
    found = expected(on_switch(4, rails(4, 2, pcie=GEN4)))
    assert found.derivation == (
        "counted: mlx5_0:1, mlx5_1:1",
        "mlx5_0: 400 Gb/s = 50.0 GB/s each way",
        "PCIe 4 x16 = 31.5 GB/s each way",
        "31.5 GB/s x 2 NICs / 4 GPUs = 15.8 GB/s",
    )


def test_of_many_ports_twelve_are_named() -> None:
    named = ", ".join(f"mlx5_{n}:1" for n in range(12))
    assert expected(on_switch(8, [port(n, ["PIX"] * 8) for n in range(14)])).derivation[0] == (
        f"counted: {named} and 2 more"
    )


def test_two_ports_of_a_card_share_its_slot() -> None:
    """As two functions of one card, or two ports of one device."""
    one, other = rails(2, 2)
    functions = (one, replace(other, card=one.card, paths=one.paths))
    ports = (one, replace(one, port="2"))
    for both in (functions, ports):
        every = tuple(replace(each, paths=("PIX", "PIX")) for each in both)
        found = expected(on_switch(2, every))
        assert found.busbw == pytest.approx(63.015e9 / 2, rel=1e-4)
        assert "2 ports of 400 Gb/s = 100.0 GB/s" in found.derivation[1]


def test_where_no_card_is_known_each_device_is_one() -> None:
    assert expected(on_switch(8, rails(8, 8, card=""))).busbw == 50e9
    one, other = (port(0, ["PIX", "PIX"], card="", port=number) for number in "12")
    assert expected(on_switch(2, [one, other])).busbw == pytest.approx(63.015e9 / 2, rel=1e-4)


def test_the_slowest_nic_sets_the_pace() -> None:
    ports = list(rails(4, 4))
    ports[2] = replace(ports[2], rate=HDR)
    assert expected(on_switch(4, ports)).busbw == HDR


def test_a_gpu_s_own_slot_may_be_the_narrower() -> None:
    found = expected(on_switch(2, [port(n, ["PIX", "PIX"]) for n in range(8)]))
    assert found.busbw == pytest.approx(63.015e9, rel=1e-4)
    assert found.derivation[-1] == "a GPU reaches them by PCIe 5 x16 = 63.0 GB/s"
    unknown = replace(on_switch(2, [port(n, ["PIX", "PIX"]) for n in range(8)]), pcie=Absent(Why.MISSING))
    assert expected(unknown).busbw == 200e9


STORAGE = {"paths": ("NODE",) * 4, "rate": HDR}


@each(
    ("other", "settings", "why"),
    [
        (STORAGE, {}, "every GPU has others that are faster to reach, or as fast and nearer"),
        ({"state": "down"}, {}, "down"),
        ({"state": "init"}, {}, "init"),
        ({"state": ""}, {}, "its state is not known"),
        ({"layer": "Unspecified"}, {}, "link layer Unspecified"),
        ({"rate": Absent(Why.MALFORMED, "?")}, {}, "its rate is not known"),
        ({}, {"NCCL_IB_HCA": "^mlx5_9"}, "NCCL_IB_HCA=^mlx5_9"),
        ({}, {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}, "NCCL_IB_HCA==mlx5_0,mlx5_1"),
        ({}, {"NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1,mlx5_9:2"}, "NCCL_IB_HCA=mlx5_0:1,mlx5_1:1,mlx5_9:2"),
    ],
)
def test_which_ports_are_counted_is_said(
    other: Mapping[str, Any], settings: Mapping[str, str], why: str
) -> None:
    beside = port(9, **{"paths": ("PIX",) * 4, **other})
    found = expected(on_switch(4, [*rails(4, 2), beside], settings))
    assert found.busbw == 25e9
    assert found.derivation[:2] == ("counted: mlx5_0:1, mlx5_1:1", f"not counted: mlx5_9:1 ({why})")


@pytest.mark.parametrize(
    ("paths", "gpu", "slot", "counted"),
    [
        (("NODE", "NODE"), 5, 5, [0]),  # the faster, though it is farther
        (("NODE", "NODE"), 3, 5, [1]),  # a slow slot of the GPU makes both as fast: then the nearer
        (("NODE", "NODE"), 5, 2, [1]),  # its own slot makes the farther one the slower
        (("SYS", "SYS"), 5, 5, [1]),  # how fast the wire between sockets is, is not known
    ],
)
def test_to_nccl_bandwidth_comes_before_the_path(
    paths: tuple[str, str], gpu: int, slot: int, counted: list[int]
) -> None:
    fast = port(0, paths, pcie=Pcie(slot, 16))
    near = port(1, ["PIX", "PIX"], rate=HDR)
    found, _ = count_ports(replace(on_switch(2, [fast, near]), pcie=Pcie(gpu, 16)))
    assert [one.device for one in found] == [f"mlx5_{n}" for n in counted]


def test_where_no_path_is_known_the_fastest_ports_are_taken() -> None:
    """As in a virtual machine, beside a network card of the hypervisor's."""
    every = [*(port(n, [""] * 8) for n in range(4)), *(port(n, []) for n in range(4, 8))]
    ports = [*every, port(9, [""] * 8, rate=RDMA_100G, layer="Ethernet")]
    counted, left_out = count_ports(on_switch(8, ports))
    assert [one.device for one in counted] == [f"mlx5_{n}" for n in range(8)]
    assert left_out == ("mlx5_9:1 (every GPU has others that are faster to reach, or as fast and nearer)",)


def test_to_nccl_host_bridges_of_one_numa_node_are_one() -> None:
    counted, _ = count_ports(on_switch(2, [port(0, ["NODE", "NODE"]), port(1, ["PHB", "PHB"])]))
    assert len(counted) == 2


@each(
    ("ports", "settings", "why"),
    [
        ((), {}, "no reference: no RDMA port, so NCCL uses sockets"),
        (rails(4, 2, state="down"), {}, "so NCCL uses sockets; mlx5_0:1, mlx5_1:1 (down)"),
        (rails(4, 2), {"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE=1 leaves NCCL sockets"),
        (rails(4, 2), {"NCCL_NET": "Socket"}, "NCCL_NET=Socket leaves NCCL sockets"),
        (rails(4, 2), {"NCCL_NET": "AWS Libfabric"}, "NCCL_NET=AWS Libfabric names a network plugin"),
        (rails(4, 2), {"NCCL_IB_HCA": "mlx4"}, "so NCCL uses sockets"),
    ],
)
def test_without_a_port_that_nccl_uses_there_is_no_reference(
    ports: Sequence[RdmaPort], settings: Mapping[str, str], why: str
) -> None:
    assert why in absent(on_switch(4, ports, settings))
    assert absent(on_switch(4, ports, settings)).startswith("no reference")


@pytest.mark.parametrize("settings", [{"NCCL_IB_DISABLE": "0"}, {"NCCL_NET": "ib"}, {"NCCL_IB_HCA": ""}])
def test_settings_that_leave_the_ports_change_nothing(settings: Mapping[str, str]) -> None:
    assert expected(on_switch(4, rails(4, 2), settings)).busbw == 25e9


def test_a_root_that_alone_sends_or_receives_and_one_gpu_have_no_reference() -> None:
    for op in ("gather", "scatter", "allreduce"):
        assert op in absent(on_switch(4, rails(4, 2)), op)
    alone = on_switch(2, rails(2, 1))
    one = replace(alone, group=replace(alone.group, gpus=alone.group.gpus[:1]))
    assert absent(one) == "no reference for all_reduce of 1 GPUs over the network"
    assert expected(alone).busbw == 25e9
    unlisted = replace(on_switch(4, ()), network=Absent(Why.DENIED, "permission denied"))
    assert absent(unlisted) == "no reference: the RDMA ports cannot be listed: permission denied"


def test_of_smaller_messages_it_is_the_most_and_judges_nothing() -> None:
    found = expected(on_switch(4, rails(4, 2)), size=LARGE // 2)
    assert (found.busbw, found.confidence) == (25e9, Confidence.LOW)
    assert found.derivation[-1] == "128 MiB: no latency term is known -> 25.0 GB/s at most"
