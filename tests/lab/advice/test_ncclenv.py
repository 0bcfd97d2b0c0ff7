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
        (node(replace(STORAGE, layer="Unspecified")), "aws-ofi-nccl drives the network"),
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


def test_ports_of_which_none_is_for_gpus_are_all_left_to_nccl() -> None:
    """No GPU is known, so that no port is nearer to one than another."""
    found = advice(NcclNode(ports=IB))["NCCL_IB_HCA"]
    assert found.value is None
    assert found.reason.startswith(
        "NCCL's own choice takes mlx5_0:1 (InfiniBand, 400 Gb/s = 50 GB/s), mlx5_3:1"
    )
    assert advice(NcclNode(ports=ROCE))["NCCL_IB_GID_INDEX"].confidence is Confidence.LOW
    assert "one NIC" in advice(NcclNode(ports=IB[:1]))["NCCL_CROSS_NIC"].reason


def test_two_ports_of_a_card_are_one_nic() -> None:
    card = tuple(replace(one, card="0000:10:00") for one in IB)
    assert "no effect" in advice(node(*card))["NCCL_CROSS_NIC"].reason
    assert "no effect" not in advice(node(*IB))["NCCL_CROSS_NIC"].reason
    bare = tuple(replace(one, card="") for one in IB)
    assert "no effect" not in advice(node(*bare))["NCCL_CROSS_NIC"].reason


FABRIC = {
    "NCCL_IB_TC": (
        "NCCL sets no traffic class on InfiniBand",
        "the traffic class whose DSCP the switches carry",
    ),
    "NCCL_IB_SL": (
        "0 by default; a level that the fabric does not map",
        "0 by default; on RoCE the traffic class",
    ),
    "NCCL_IB_ADAPTIVE_ROUTING": ("on by default on InfiniBand, off on RoCE", "off by default on RoCE"),
}


@pytest.mark.parametrize("name", FABRIC)
def test_infiniband_and_roce_have_defaults_of_their_own(name: str) -> None:
    infiniband, roce = FABRIC[name]
    assert advice(node(*IB))[name].reason.startswith(infiniband)
    assert advice(node(*ROCE))[name].reason.startswith(roce)


def test_of_both_layers_that_of_the_gpus_has_its_word() -> None:
    both = advice(node(*IB, STORAGE))
    for name, (infiniband, _) in FABRIC.items():
        assert both[name].reason.startswith(infiniband)


def test_gpudirect_by_what_was_read_of_it() -> None:
    described_ = replace(node(*IB), gpudirect=Absent(Why.MISSING, "nothing was read"))
    assert advice(described_)["NCCL_NET_GDR_LEVEL"].reason.startswith("PXB by default")
    unsure = (
        GpudirectCheck("peer_memory", CheckState.PASSED, "nvidia_peermem is loaded"),
        GpudirectCheck("acs", CheckState.FAILED, "ACS is on"),
    )
    assert "is in reach" in advice(replace(node(*IB), gpudirect=unsure))["NCCL_NET_GDR_LEVEL"].reason
    both = tuple(
        GpudirectCheck(name, CheckState.FAILED, f"no {name}") for name in ("rdma_stack", "peer_memory")
    )
    assert advice(replace(node(*IB), gpudirect=both))["NCCL_NET_GDR_LEVEL"].reason.endswith(
        "no rdma_stack; no peer_memory"
    )
    hidden = replace(node(port("mlx5_0", ("", ""))), topology_file=True)
    assert advice(hidden)["NCCL_TOPO_FILE"].reason.endswith("is there, and NCCL reads it by itself")
    assert advice(replace(hidden, topology_file=False))["NCCL_TOPO_FILE"].reason.endswith("is not there")
    assert "NCCL reads the PCI tree itself" in advice(node(*IB))["NCCL_TOPO_FILE"].reason


def test_gids_by_type_and_kind_of_address() -> None:
    tables = {"mlx5_0": gids((LOCAL, V1), ("fd00::1", "")), "mlx5_3": gids((MAPPED, V1))}
    found = advice(node(*ROCE, tables=tables, nccl=(2, 20, 5)))["NCCL_IB_GID_INDEX"]
    assert (
        "takes index 0 unless set (mlx5_0: IB/RoCE v1, link-local; mlx5_3: IB/RoCE v1, IPv4)" in found.reason
    )
    new = advice(node(*ROCE, tables=tables))["NCCL_IB_GID_INDEX"]
    assert new.reason.endswith("here index mlx5_0, mlx5_3: 0")
    assert new.when_not == "the other nodes of the job differ: each has its own"


def test_a_port_without_a_path_from_some_gpu_is_near_to_others_alone() -> None:
    """A machine whose ports were described with fewer paths than it has GPUs."""
    short = node(port("mlx5_0", ("SYS",)))
    assert "the nearest port of GPU 0 (SYS) is farther" in advice(short)["NCCL_NET_GDR_LEVEL"].reason


def test_the_reasons_of_a_purpose_and_of_a_node_without_a_switch() -> None:
    small, large = (advice(node(*IB), purpose=one)["NCCL_PROTO"].reason for one in JobPurpose)
    assert small.startswith("NCCL takes LL for small messages")
    assert large.startswith("NCCL takes Simple for large messages")
    for kind in (WireKind.SWITCH, WireKind.UNKNOWN):
        assert "no NVSwitch" not in advice(node(kind=kind))["NCCL_NVLS_ENABLE"].reason
    assert "no NVSwitch" not in advice(NcclNode())["NCCL_NVLS_ENABLE"].reason


@pytest.mark.parametrize(
    ("nccl", "value"), [(None, "allreduce:Tree"), ((2, 24, 3), "allreduce:Tree"), ((2, 23, 4), None)]
)
def test_lists_for_single_collectives_take_a_version_that_reads_them(
    nccl: tuple[int, int, int] | None, value: str | None
) -> None:
    found = advice(replace(node(), nccl=nccl), swept((TREE, {0: -0.2})))["NCCL_ALGO"]
    assert found.value == value
    if value:
        assert found.when_not.endswith("so set no two of them. Lists for single collectives take NCCL 2.24.")


def test_a_winner_says_what_the_sweep_was_run_with() -> None:
    few = Configuration(4, settings=(("NCCL_MAX_CTAS", "16"),))
    found = advice(node(), swept((few, {0: -0.2}), settings="NCCL_NVLS_ENABLE=0"))["NCCL_MAX_CTAS"]
    assert found.value == "16"
    assert found.when_not.endswith("so set no two of them. The sweep was run with NCCL_NVLS_ENABLE=0.")


def test_a_new_nccl_finds_the_right_gid_by_itself() -> None:
    for nccl in ((2, 21, 5), (2, 28, 9)):
        found = advice(node(*ROCE, nccl=nccl))["NCCL_IB_GID_INDEX"]
        assert found.value is None
        assert found.reason.startswith("from 2.21 on NCCL takes RoCE v2 of an IPv4 address by itself")


def test_the_ports_that_gpu_nic_maps_are_those_for_gpus_while_they_are_up() -> None:
    mapped = replace(node(*IB), mapped=IB[1:])
    assert [one.device for one in mapped.for_gpus()] == ["mlx5_3"]
    lost = replace(node(IB[0], replace(IB[1], state="down")), mapped=IB[1:])
    assert lost.for_gpus() == ()
    assert [one.device for one in node(*IB).for_gpus()] == ["mlx5_0", "mlx5_3"]
    assert NcclNode(ports=IB).for_gpus() == ()
    assert replace(node(*IB), ports=Absent(Why.MISSING)).for_gpus() == ()
