"""A real port, published with every value of its files: read through a tree of our own below a fake root."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.collectors.drawn import Watched
from tests.recorded import PUBLISHED
from wirewatch.core.rdma import WORD, Rate, counter, physical_state, port_rate, port_state
from wirewatch.core.tree import RDMA
from wirewatch.core.types import Absent, Why
from wirewatch.hw.files import SystemSysfs

SAMPLE = PUBLISHED / "sysfs_ib.h100.mlx5_0.values.txt"
PORT = f"{RDMA}/mlx5_0/ports/1"


def build(root: Path) -> SystemSysfs:
    """The files of the sample below `root`, each as the kernel ends it."""
    for line in SAMPLE.read_text("utf-8").splitlines():
        path, _, value = line.partition(" = ")
        file = root / RDMA.lstrip("/") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n", "utf-8")
    return SystemSysfs(root)


@pytest.fixture
def sysfs(tmp_path: Path) -> SystemSysfs:
    return build(tmp_path)


def test_the_port_is_up_at_the_published_rate(sysfs: SystemSysfs) -> None:
    assert port_state(sysfs.read(f"{PORT}/state")) == "active"
    assert physical_state(sysfs.read(f"{PORT}/phys_state")) == "link_up"
    assert port_rate(sysfs.read(f"{PORT}/rate")) == Rate(50e9, 4, "NDR")
    assert sysfs.read(f"{PORT}/link_layer") == "InfiniBand"


def test_the_device_is_the_published_one(sysfs: SystemSysfs) -> None:
    assert sysfs.entries(RDMA) == ["mlx5_0"]
    assert sysfs.read(f"{RDMA}/mlx5_0/hca_type") == "MT4129"
    assert sysfs.read(f"{RDMA}/mlx5_0/fw_ver") == "28.41.1000"
    assert sysfs.read(f"{RDMA}/mlx5_0/board_id") == "MT_0000000838"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("symbol_error", 0),
        ("link_downed", 0),
        ("link_error_recovery", 0),
        ("excessive_buffer_overrun_errors", 15),
        ("port_rcv_errors", 14),
        ("port_rcv_switch_relay_errors", 1),
        ("port_xmit_wait", 2489603687),
        ("unicast_rcv_packets", 317548853677),
    ],
)
def test_counters_have_the_published_values(sysfs: SystemSysfs, name: str, value: int) -> None:
    assert counter(sysfs.read(f"{PORT}/counters/{name}")) == value


@pytest.mark.parametrize(
    ("name", "value"), [("roce_adp_retrans", 3), ("rx_write_requests", 3809045607), ("lifespan", 12)]
)
def test_counters_of_the_card_have_the_published_values(sysfs: SystemSysfs, name: str, value: int) -> None:
    assert counter(sysfs.read(f"{PORT}/hw_counters/{name}")) == value


@pytest.mark.parametrize(
    ("name", "words"), [("port_rcv_data", 230539874932483), ("port_xmit_data", 230442669431839)]
)
def test_data_counters_count_words_of_four_bytes(sysfs: SystemSysfs, name: str, words: int) -> None:
    told = counter(sysfs.read(f"{PORT}/counters/{name}"))
    assert told == words
    assert told * WORD == words * 4
    packets = counter(sysfs.read(f"{PORT}/counters/{name.replace('data', 'packets')}"))
    assert isinstance(packets, int)
    assert 64 < told * WORD / packets < 4200, "a packet of InfiniBand carries up to 4096 bytes"


def test_every_counter_of_the_port_is_a_number(sysfs: SystemSysfs) -> None:
    for folder, at_least in (("counters", 20), ("hw_counters", 20)):
        names = sysfs.entries(f"{PORT}/{folder}")
        assert not isinstance(names, Absent)
        assert len(names) >= at_least
        values = [counter(sysfs.read(f"{PORT}/{folder}/{name}")) for name in names]
        assert all(isinstance(value, int) and value >= 0 for value in values)


def test_what_the_port_does_not_have_is_missing_and_not_zero(sysfs: SystemSysfs) -> None:
    for name in ("hw_counters/np_cnp_sent", "counters/no_such_counter"):
        told = counter(sysfs.read(f"{PORT}/{name}"))
        assert isinstance(told, Absent)
        assert told.why is Why.MISSING


def test_the_collector_exports_the_published_numbers_and_finds_nothing_wrong(tmp_path: Path) -> None:
    node = Watched("infiniband")
    node.hardware = replace(node.hardware, sysfs=build(tmp_path))
    assert node.poll(3) == ()
    assert node.series("rdma_port_transmit_bytes_total") == [230442669431839 * 4]
    assert node.series("rdma_port_receive_bytes_total") == [230539874932483 * 4]
    assert node.series("rdma_port_errors_total", kind="receive") == [14]
    assert node.series("rdma_port_errors_total", kind="buffer_overrun") == [15]
    assert node.series("rdma_port_counters_saturated") == [1]
    assert node.series("rdma_port_congestion_total", kind="wait") == [2489603687]
    assert node.series("rdma_port_congestion_total", kind="adaptive_retransmits") == [3]
    assert node.series("rdma_port_rate_bytes_per_second") == [50e9]
    assert node.series("rdma_port_info", model="MT4129", firmware="28.41.1000") == [1]
