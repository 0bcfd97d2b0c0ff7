"""Counters around a probe: what grew, and what is no measurement."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.collectors.drawn import Files
from tests.node.hw.direct import DirectNvml
from tests.node.probe.idle import DENIED, idle_gpus
from wirewatch.core.nvml import gpu_processes
from wirewatch.core.ports import ALL_LINKS, Gpu, Question
from wirewatch.core.probe import Clocks, LinkBytes, Moved
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.overlay import Player
from wirewatch.hw.recording import load_recording
from wirewatch.probe.counters import (
    CounterReader,
    Counters,
    clocks,
    link_bytes,
    links_moved,
    memory_use,
    memory_used,
    moved,
    nic_counts,
)

MIB64 = 64 << 20
LOST = Absent(Why.LOST, "fallen off the bus", 15)


def at(sent: int, received: int, twin_sent: int, twin_received: int, **errors: int) -> Counters:
    return Counters((sent, received, twin_sent, twin_received), MIB64, errors)


START = at(1000, 2000, 3000, 4000, crc=5, replay=0)


def test_what_grew_is_the_difference() -> None:
    after = at(1000 + 7, 2000 + 8, 3000 + 9, 4000 + 9, crc=6, replay=0)
    assert moved(3, START, after) == Moved(3, 7, 8, {"crc": 1, "replay": 0})


def test_a_counter_that_shrank_was_reset_and_says_nothing() -> None:
    after = at(999, 2001, 3001, 4001, crc=4, replay=2)
    assert moved(0, START, after) == Moved(0, None, 1, {"replay": 2})


def test_a_counter_that_stood_still_beside_a_moving_twin_says_nothing() -> None:
    after = at(1000, 2000, 3000 + MIB64, 4000 + MIB64 - 1, crc=5, replay=0)
    assert moved(0, START, after) == Moved(0, None, 0, {"crc": 0, "replay": 0})
    both = at(1000, 2001, 3000 + MIB64, 4000 + MIB64, crc=5, replay=0)
    assert (moved(0, START, both).transmit, moved(0, START, both).receive) == (None, 1)


def test_errors_are_reported_where_bytes_are_not_and_new_kinds_have_no_growth() -> None:
    unread = Counters(None, 0, {"crc": 9})
    assert moved(0, unread, Counters(None, 0, {"crc": 11, "symbol": 4})) == Moved(0, None, None, {"crc": 2})
    assert moved(0, START, unread) == Moved(0, None, None, {"crc": 4})
    assert moved(0, unread, at(1, 1, 1, 1, crc=9)) == Moved(0, None, None, {"crc": 0})


def test_a_gpu_that_could_not_be_read_has_moved_nothing_that_is_known() -> None:
    for before, after in ((START, LOST), (LOST, START), (LOST, LOST)):
        assert moved(1, before, after) == Moved(1, None, None, {})


COUNTS = st.tuples(*[st.integers(0, 2**62)] * 4)


@given(COUNTS, COUNTS)
def test_no_bytes_are_ever_less_than_none(
    before: tuple[int, int, int, int], after: tuple[int, int, int, int]
) -> None:
    found = moved(0, at(*before), at(*after))
    for value, first, last in zip((found.transmit, found.receive), before[:2], after[:2], strict=True):
        assert value is None or value == last - first >= 0
        assert value is not None or last <= first


def test_links_that_came_or_went_are_left_out_and_resets_say_nothing() -> None:
    before: Mapping[int, tuple[int | None, int | None]] = {0: (10, 10), 1: (10, None), 2: (10, 10), 5: (1, 1)}
    after: Mapping[int, tuple[int | None, int | None]] = {0: (15, 9), 1: (None, 3), 2: (10, 30), 7: (1, 1)}
    assert links_moved(4, before, after) == LinkBytes(4, (0, 1, 2), (5, None, 0), (None, None, 20))
    assert links_moved(4, {}, after) == LinkBytes(4, (), (), ())


# --- read from what drivers told

GPUS = tuple(Gpu(n, f"index:{n}") for n in range(4))


class Played:
    """A recording of four H200s; `seconds` says which moment is now."""

    def __init__(self, name: str) -> None:
        self.seconds = 0.0
        player = Player(load_recording(name), lambda: self.seconds, strict=True)
        self.nvml = DirectNvml(player)


def test_bytes_between_two_moments_of_traffic_are_the_recorded_ones() -> None:
    """GPU 0 sent 11454312639 - 9657660501 KiB in five seconds of peer copies; no link had an error."""
    played = Played("h200x4-traffic")
    reader = CounterReader(played.nvml, GPUS)
    before, played.seconds = reader.read(), 5.0
    asked, after = played.nvml.asked, reader.read()
    found = [moved(n, a, b) for n, (a, b) in enumerate(zip(before, after, strict=True))]
    assert found[0].transmit == (11454312639 - 9657660501) * 1024
    for one in found:
        assert one.transmit == pytest.approx(found[0].transmit, rel=0.01)
        assert one.receive == pytest.approx(one.transmit, rel=0.01)
        assert one.errors == {"replay": 0, "recovery": 0, "crc": 0}
    # Only what these GPUs support is asked again: four counters of bytes, three kinds of error.
    assert played.nvml.asked - asked == 4 * 7


def test_links_of_a_gpu_add_up_to_its_counter() -> None:
    played = Played("h200x4-traffic")
    reader = CounterReader(played.nvml, GPUS[:1])
    first, links = reader.read(), link_bytes(played.nvml, GPUS[0])
    played.seconds = 10.0
    grown = links_moved(0, links, link_bytes(played.nvml, GPUS[0]))
    whole = moved(0, first[0], reader.read()[0])
    assert grown.links == tuple(range(18))
    assert sum(value or 0 for value in grown.transmit) == pytest.approx(whole.transmit, rel=0.01)


def test_idle_gpus_move_nothing() -> None:
    played = Played("h200x4-idle")
    reader = CounterReader(played.nvml, GPUS)
    before, played.seconds = reader.read(), 5.0
    for n, (a, b) in enumerate(zip(before, reader.read(), strict=True)):
        assert moved(n, a, b).transmit in range(1 << 20)


def test_processes_clocks_and_memory_of_the_recording() -> None:
    busy, idle = Played("h200x4-traffic").nvml, Played("h200x4-idle").nvml
    assert gpu_processes(idle, GPUS[0]) == (frozenset(), frozenset())
    assert gpu_processes(busy, GPUS[0]) == (frozenset({None}), frozenset())
    assert clocks(busy, 2, GPUS[0]) == Clocks(2, 1.98e9, 3.201e9, 0)
    assert memory_used(idle, GPUS[0]) == 644939776
    assert memory_use(idle, GPUS[0]) is None
    told = memory_use(busy, GPUS[0])
    assert told is not None
    assert 0.1 < told <= 1.0


# --- drivers that tell less


def newer(table: dict[tuple[str | None, str], Json | Absent], **fields: int) -> None:
    for name, value in fields.items():
        question = Question("Field", (int(name.removeprefix("f")), ALL_LINKS))
        table["GPU-0", str(question)] = value


def test_true_bytes_of_nvlink_5_are_not_scaled_and_packets_are_the_twin() -> None:
    gpus, gpu = idle_gpus(1), Gpu(0, "GPU-0")
    newer(gpus.table, f201=10, f202=5000, f203=10, f204=6000, f138=1, f139=1, f140=1, f141=1)
    reader = CounterReader(gpus, [gpu])
    (before,) = reader.read()
    assert before == Counters((5000, 6000, 10, 10), 10_000, {})
    newer(gpus.table, f201=10_010, f202=5000, f203=10_009, f204=6000)
    assert moved(0, before, reader.read()[0]) == Moved(0, None, 0, {})


def test_a_gpu_without_counters_has_none_and_a_lost_one_is_absent() -> None:
    gpus, gpu = idle_gpus(1), Gpu(0, "GPU-0")
    assert CounterReader(gpus, [gpu]).read() == [Counters(None, 0, {})]
    assert link_bytes(gpus, gpu) == {}
    gpus.table = {("GPU-0", str(Question("Field", (f, ALL_LINKS)))): LOST for f in range(300)}
    assert CounterReader(gpus, [gpu]).read() == [LOST]


def test_what_is_refused_is_not_known() -> None:
    gpus, gpu = idle_gpus(1), Gpu(0, "GPU-0")
    for call in ("MemoryInfo()", "ClockInfo(1)", "CurrentClocksEventReasons()", "ComputeRunningProcesses()"):
        gpus.table["GPU-0", call] = DENIED
    gpus.table["GPU-0", "ClockInfo(2)"] = 3201
    assert memory_used(gpus, gpu) is None
    assert memory_use(gpus, gpu) is None
    assert clocks(gpus, 0, gpu) == Clocks(0, None, 3.201e9, None)
    assert gpu_processes(gpus, gpu) == DENIED


def test_nics_by_name_and_kind_words_as_bytes_and_the_loopback_left_out() -> None:
    port, net = "/sys/class/infiniband/mlx5_0/ports/1", "/sys/class/net"
    files = Files({
        f"{port}/counters/port_xmit_data": "10", f"{port}/counters/port_rcv_data": "20",
        f"{port}/counters/symbol_error": "3", f"{port}/counters/port_xmit_wait": "9",
        f"{port}/hw_counters/out_of_sequence": "4", f"{port}/hw_counters/rp_cnp_handled": "6",
        f"{port}/hw_counters/np_ecn_marked_roce_packets": "2", f"{port}/hw_counters/lifespan": "12",
        f"{net}/eth0/statistics/rx_pause": "5", f"{port}/hw_counters/local_ack_timeout_err": "soon",
        f"{net}/eth0/statistics/tx_bytes": "7", f"{net}/eth0/statistics/rx_dropped": "1",
        f"{net}/lo/statistics/tx_bytes": "8",
    })  # fmt: skip
    assert nic_counts(files) == {
        ("mlx5_0:1", "sent"): 40, ("mlx5_0:1", "received"): 80, ("mlx5_0:1", "symbol_error"): 3,
        ("mlx5_0:1", "out_of_sequence"): 4, ("mlx5_0:1", "port_xmit_wait"): 9,
        ("mlx5_0:1", "rp_cnp_handled"): 6, ("mlx5_0:1", "np_ecn_marked_roce_packets"): 2,
        ("eth0", "rx_pause"): 5, ("eth0", "sent"): 7, ("eth0", "rx_dropped"): 1,
    }  # fmt: skip


def test_a_node_without_nics_counts_nothing() -> None:
    assert nic_counts(Files()) == {}
