"""The advice on NCCL's settings: its own choice, unless the node or a sweep of it speaks against that."""

from dataclasses import replace

import pytest

from tests.lab.advice.settings import HUNDRED, LOCAL, MAPPED, MIB, gids, node, port, swept
from tests.support import EPOCH
from wirewatch.busbw.references import Confidence
from wirewatch.collectors.gpudirect import CheckState, GpudirectCheck
from wirewatch.core.topology import WireKind
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.settings.advice import advise
from wirewatch_lab.advice.settings.candidates import VariableAdvice
from wirewatch_lab.advice.settings.gids import V1, V2
from wirewatch_lab.advice.settings.measured import JobPurpose
from wirewatch_lab.advice.settings.node import NcclNode
from wirewatch_lab.study.curve import Configuration, Study

IB = (port("mlx5_0", ("PIX", "SYS")), port("mlx5_3", ("SYS", "PIX")))
STORAGE = port("mlx5_8", ("NODE", "SYS"), "Ethernet", HUNDRED)
ROCE = tuple(replace(one, layer="Ethernet") for one in IB)
TREE = Configuration(4, "Tree")


def advice(
    where: NcclNode, *studies: Study, purpose: JobPurpose = JobPurpose.INFERENCE
) -> dict[str, VariableAdvice]:
    return {one.name: one for one in advise(where, studies, purpose, EPOCH).variables}


@pytest.mark.parametrize("purpose", JobPurpose)
@pytest.mark.parametrize("ports", [(), IB, ROCE])
def test_all_but_the_log_is_left_to_nccl_where_nothing_speaks_against_it(
    purpose: JobPurpose, ports: tuple[()]
) -> None:
    """No guide's Ring, Tree, 4 channels, 2 MiB, SL 5, TC 160, CROSS_NIC 1, GID 3, GDR level 5 or auto."""
    found = advice(node(*ports), purpose=purpose)
    assert {name: one.value for name, one in found.items() if one.value is not None} == {"NCCL_DEBUG": "WARN"}
    assert {"NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_MAX_NCHANNELS"} < set(found)
    for one in found.values():
        assert one.reason
        assert one.when_not
        assert one.source


def test_ports_that_are_not_for_gpus_are_left_out_by_name() -> None:
    """The prefix mlx5 would take them in."""
    found = advice(node(*IB, STORAGE))["NCCL_IB_HCA"]
    assert (found.value, found.confidence) == ("=mlx5_0,mlx5_3", Confidence.DERIVED)
    assert "mlx5_8:1 (Ethernet, 100 Gb/s = 12.5 GB/s)" in found.reason
    assert "the prefix takes all devices" in found.disagree


def test_one_port_of_two_is_named_with_its_number() -> None:
    second = replace(STORAGE, device="mlx5_0", port="2")
    assert advice(node(*IB, second))["NCCL_IB_HCA"].value == "=mlx5_0:1,mlx5_3"


def test_a_port_that_is_down_is_no_reason_for_a_list() -> None:
    assert advice(node(*IB, replace(STORAGE, state="down")))["NCCL_IB_HCA"].value is None


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (node(), "no RDMA port is here"),
        (node(replace(STORAGE, layer="Unspecified")), "the ports are EFA's"),
        (node(replace(STORAGE, state="down")), "no InfiniBand or RoCE port is active"),
        (NcclNode(ports=Absent(Why.MISSING, "nobody knows")), "nobody knows: nothing can be said"),
    ],
)  # fmt: skip
def test_without_ports_nothing_is_advised_of_them(where: NcclNode, words: str) -> None:
    found = advice(where)
    assert words in found["NCCL_IB_HCA"].reason
    assert found["NCCL_IB_HCA"].value is None
    assert "NCCL_IB_GID_INDEX" not in found


def test_a_gid_index_matters_on_roce_alone() -> None:
    assert advice(node(*IB))["NCCL_IB_GID_INDEX"].reason.startswith("an index matters on RoCE only")
    found = advice(node(*ROCE))["NCCL_IB_GID_INDEX"]
    assert found.value is None
    assert "NCCL takes RoCE v2 of an IPv4 address by itself, here index mlx5_0, mlx5_3: 3" in found.reason
    assert found.when_not == "NCCL before 2.21, which takes index 0: set 3"


def test_an_old_nccl_is_told_the_index_that_is_right_on_every_port() -> None:
    old = node(*ROCE, nccl=(2, 20, 5))
    found = advice(old)["NCCL_IB_GID_INDEX"]
    assert found.value == "3"
    assert "NCCL 2.20.5 takes index 0 unless set (mlx5_0, mlx5_3: IB/RoCE v1, link-local)" in found.reason
    other = {"mlx5_3": gids((LOCAL, V1), (MAPPED, V2))}
    found = advice(node(*ROCE, tables=other, nccl=(2, 20, 5)))["NCCL_IB_GID_INDEX"]
    assert found.value is None
    assert "No index is RoCE v2 of an IPv4 address on every port" in found.reason


def test_gids_that_cannot_be_read_are_not_known() -> None:
    found = advice(node(*ROCE, tables={"mlx5_0": Absent(Why.DENIED, "no")}))["NCCL_IB_GID_INDEX"]
    assert (found.value, found.confidence) == (None, Confidence.LOW)


def test_gpudirect_is_in_reach_or_far_or_impossible() -> None:
    assert "every GPU has a port within PXB" in advice(node(*IB))["NCCL_NET_GDR_LEVEL"].reason
    far = node(port("mlx5_0", ("PIX", "SYS")))
    assert "the nearest port of GPU 1 (SYS) is farther" in advice(far)["NCCL_NET_GDR_LEVEL"].reason
    barred = GpudirectCheck("peer_memory", CheckState.FAILED, "no peer memory module is loaded")
    found = advice(replace(node(*IB), gpudirect=(barred,)))["NCCL_NET_GDR_LEVEL"]
    assert "no level makes GPUDirect RDMA work here: no peer memory module" in found.reason
    hidden = node(port("mlx5_0", ("", "")))
    assert "the PCI tree is hidden" in advice(hidden)["NCCL_NET_GDR_LEVEL"].reason
    assert "the PCI tree is hidden" in advice(hidden)["NCCL_TOPO_FILE"].reason


def test_what_guides_say_stands_beside_what_was_measured() -> None:
    """Tree first, Ring for small, Tree above 256 MB; algbw for busbw; defaults that are none."""
    found = advice(node(*IB), purpose=JobPurpose.TRAINING)
    assert "NVLS 376, Ring 366, Tree 259" in found["NCCL_ALGO"].reason
    assert "which is algbw: busbw is 35.1 and 66.3" in found["NCCL_ALGO"].disagree
    assert "auto, fails init" in found["NCCL_ALGO"].when_not
    assert "4 measured 98 GB/s, 1 measured 25, of 340" in found["NCCL_MAX_NCHANNELS"].reason
    assert found["NCCL_CROSS_NIC"].reason.startswith("2 by default, not 0")
    assert "5 is read as SYS" in found["NCCL_NET_GDR_LEVEL"].disagree
    assert "400 and 100 are Gb/s of a port (50 and 12.5 GB/s)" in found["NCCL_IB_HCA"].disagree
    assert "NCCL_ALGO=Ring beside it: unused" in found["NCCL_NVLS_ENABLE"].when_not
    assert "160 is DSCP 40" in found["NCCL_IB_TC"].disagree


def test_one_nic_has_none_to_cross_to_and_no_switch_has_no_nvls() -> None:
    assert "no effect" in advice(node(port("mlx5_0")))["NCCL_CROSS_NIC"].reason
    assert "no NVSwitch" in advice(node(kind=WireKind.PCIE))["NCCL_NVLS_ENABLE"].reason


def test_a_sweep_of_this_node_overrules_at_the_sizes_of_the_purpose() -> None:
    study = swept((TREE, {0: -0.2, 64 * MIB: 0.4}))
    found = advice(node(), study)["NCCL_ALGO"]
    assert (found.value, found.confidence) == ("allreduce:Tree", Confidence.MEASURED)
    assert found.reason.startswith("measured here 24.9% faster")
    assert found.source == "a sweep of this node: a sweep"
    assert found.when_not.startswith("messages of 64 MiB to 256 MiB: all_reduce is 28.5% slower; ")
    assert [one.verdict for one in found.measured] == ["faster", "faster", "slower"]
    assert advice(node(), study, purpose=JobPurpose.TRAINING)["NCCL_ALGO"].value is None


def test_an_old_nccl_reads_no_lists_for_single_collectives() -> None:
    assert advice(node(nccl=(2, 23, 4)), swept((TREE, {0: -0.2})))["NCCL_ALGO"].value is None


def test_what_is_only_measured_is_shown_too() -> None:
    odd = Configuration(4, settings=(("NCCL_WORK_ARGS_BYTES", "1"),))
    found = advice(node(), swept((odd, {}), settings="NCCL_NVLS_ENABLE=0"))["NCCL_WORK_ARGS_BYTES"]
    assert found.value is None
    assert {one.verdict for one in found.measured} == {"same"}
    assert {one.around for one in found.measured} == {"NCCL_NVLS_ENABLE=0"}


def test_those_with_a_value_come_first() -> None:
    values = [
        one.value is not None for one in advise(node(*IB, STORAGE), (), JobPurpose.TRAINING, EPOCH).variables
    ]
    assert values == sorted(values, reverse=True)
