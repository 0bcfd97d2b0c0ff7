"""Each kind of change alone and ten at once: the sentences, word by word."""

import pytest

from tests.verdict.drift.drawn import Box, Edit, below, bridged, changes, switched
from tests.verdict.drift.edits import (
    MIRROR,
    bridge_lost,
    clique,
    clustering,
    driver,
    gpu_lost,
    gpu_moved,
    gpu_new,
    gpu_product,
    gpu_replaced,
    link_lost,
    link_new,
    nic_firmware,
    nic_lost,
    nic_model,
    nic_moved,
    nic_new,
    nic_ports,
    nic_replaced,
    no_nics,
    other_socket,
    peers_swapped,
    wire_lost,
)
from wirewatch.core.types import Health
from wirewatch.verdict.drift.change import Kind, severity


def racked() -> Box:
    box = switched()
    for n in range(8):
        box.gpu(n, clique="b1f3/2")
    return box


FAILED, DEGRADED, OK = Health.FAILED, Health.DEGRADED, Health.OK

ALONE = {
    "gpu_lost": (switched, gpu_lost, FAILED, "GPU 3 (...0003) is gone: NVIDIA H200 at 0000:46:00.0"),
    "gpu_new": (switched, gpu_new, OK, "GPU 8 (...0008) is new: NVIDIA H200 at 0000:18:00.0"),
    "gpu_replaced": (switched, gpu_replaced, OK, "GPU 3 (...9999) replaced GPU 3 (...0003)"),
    "gpu_product": (switched, gpu_product, OK, "GPU 3 (...0003): product NVIDIA H200 -> NVIDIA H200 NVL"),
    "nvlink_lost": (switched, link_lost, FAILED, "GPU 3 (...0003): NVLink 18 -> 17 links up, link 7 down"),
    "nvlink_new": (switched, link_new, OK, "GPU 2 (...0002): NVLink 18 -> 20 links up, links 18, 19 came up"),
    "nvlink_lost between two": (
        bridged, wire_lost, FAILED,
        "GPU 0 (...0000): NVLink 12 -> 11 links up, link 3 down (with link 3 of GPU 1 (...0001))",
    ),
    "nvlink_peer": (
        bridged, peers_swapped, DEGRADED,
        "GPU 0 (...0000): NVLink links 0, 1 go to the switch instead of GPU 1 (...0001)",
    ),
    "island": (
        bridged, bridge_lost, FAILED,
        "NVLink island broke up into GPU 0 (...0000) | GPU 1 (...0001): 12 links down",
    ),
    "clique": (racked, clique, DEGRADED, "GPUs 0-3: fabric clique b1f3/2 -> b1f3/7"),
    "clique that is new": (switched, clique, OK, "GPUs 0-3: fabric clique none -> b1f3/7"),
    "nic_lost": (
        switched, nic_lost, FAILED, "mlx5_4 is gone: MT4129 at 0000:53:00.0, GUID 0000:00c0:ffee:0004",
    ),
    "nic_new": (
        switched, nic_new, OK, "mlx5_10 is new: MT4129 at 0000:29:00.0, GUID 0000:00c0:ffee:0010",
    ),
    "nic_replaced": (
        switched, nic_replaced, OK, "mlx5_5: GUID 0000:00c0:ffee:0005 replaced by 0000:00c0:ffee:0099",
    ),
    "nic_model": (switched, nic_model, OK, "mlx5_5: model MT4129 -> MT4131"),
    "nic_firmware": (switched, nic_firmware, OK, "mlx5_6: firmware 28.41.1000 -> 28.44.1036"),
    "nic_ports": (switched, nic_ports, FAILED, "mlx5_6: port 1 InfiniBand -> Ethernet"),
    "pcie_path": (
        switched, nic_moved, DEGRADED,
        ("mlx5_4 moved from PIX to SYS for GPU 4; from NODE to SYS for GPUs 5-7; "
         "from SYS to NODE for GPUs 1-3; from SYS to PIX for GPU 0"),
    ),
    "pcie_path of a GPU": (
        switched, gpu_moved, DEGRADED,
        ("GPU 1 (...0001) moved from PIX to SYS for mlx5_1; from NODE to SYS for mlx5_0, mlx5_2, mlx5_3; "
         "from SYS to NODE for mlx5_4, mlx5_5, mlx5_6; from SYS to PIX for mlx5_7"),
    ),
    "pcie_place": (
        no_nics(switched), other_socket, DEGRADED, "GPU 2 (...0002) moved from NUMA node 0 to NUMA node 1",
    ),
    "numa": (switched, clustering, DEGRADED, "node: 2 -> 4 NUMA nodes"),
    "version": (switched, driver, OK, "driver 580.1 -> 590.2"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_each_change_alone_is_told_once_in_these_words(name: str) -> None:
    make, edit, health, text = ALONE[name]
    (change,) = changes(make, edit)
    assert (change.kind.value, change.text) == (name.split(maxsplit=1)[0], text)
    assert severity(change).health is health


def test_every_kind_is_tried_alone() -> None:
    assert {name.split(maxsplit=1)[0] for name in ALONE} == {kind.value for kind in Kind}


@pytest.mark.parametrize("name", ALONE)
def test_the_way_back_is_the_mirror(name: str) -> None:
    make, edit, *_ = ALONE[name]
    (there,) = changes(make, edit)
    (back,) = changes(make, edit, back=True)
    assert back.kind is MIRROR.get(there.kind, there.kind)
    assert (back.before, back.after) == (there.after, there.before)
    if there.kind not in {Kind.GPU_REPLACED, Kind.NIC_REPLACED}:
        assert back.part == there.part


TEN = (
    gpu_replaced, link_lost, link_new, nic_lost, nic_new, nic_replaced, nic_firmware, driver,
    lambda box: box.nic(7, place=below(0, 7)),
    lambda box: box.drop_gpu(5),
)  # fmt: skip


def test_ten_changes_at_once_are_ten_sentences() -> None:
    assert [change.text for change in changes(switched, *TEN)] == [
        "GPU 5 (...0005) is gone: NVIDIA H200 at 0000:66:00.0",
        "GPU 3 (...9999) replaced GPU 3 (...0003)",
        "GPU 3 (...9999): NVLink 18 -> 17 links up, link 7 down",
        "GPU 2 (...0002): NVLink 18 -> 20 links up, links 18, 19 came up",
        "mlx5_4 is gone: MT4129 at 0000:53:00.0, GUID 0000:00c0:ffee:0004",
        "mlx5_10 is new: MT4129 at 0000:29:00.0, GUID 0000:00c0:ffee:0010",
        "mlx5_5: GUID 0000:00c0:ffee:0005 replaced by 0000:00c0:ffee:0099",
        "mlx5_6: firmware 28.41.1000 -> 28.44.1036",
        (
            "mlx5_7 moved from PIX to SYS for GPU 7; from NODE to SYS for GPUs 4, 6; "
            "from SYS to NODE for GPUs 1-3; from SYS to PIX for GPU 0"
        ),
        "driver 580.1 -> 590.2",
    ]


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    "edit",
    [
        lambda box: box.nic(6, firmware=""),
        lambda box: box.nic(6, model=""),
        lambda box: box.gpu(3, name=""),
        lambda box: box.nic(6, ports=(("1", ""),)),
    ],
    ids=["firmware", "model", "product", "link layer"],
)
def test_what_one_of_both_does_not_know_is_no_change(edit: Edit, back: bool) -> None:  # noqa: FBT001
    assert changes(switched, edit, back=back) == ()
