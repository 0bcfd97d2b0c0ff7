"""From NCCL's events to records and counters, by every interface; and events as they must not come."""

import subprocess
from pathlib import Path

import pytest

from tests.node.jobs.tap.playing import MS, Player, built, channel, collective
from tests.node.jobs.tap.ringbytes import LIVE, RING_BYTES, Record
from wirewatch import __version__

LIBRARIES = Path(__file__).with_name("libraries.c")
UUID = b"GPU-30313233-3435-3637-3839-3a3b3c3d3e3f"
"""Of the card in it."""
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECEIVE = 2, 1, 8, 11, 6


def begin(player: Player, version: int = 5, context: int = 0, rank: int = 2) -> None:
    """A communicator of four ranks, and handle 1 of a call that is not captured (handle 0 stays null)."""
    player.do(f"init {version} {context} 0xabc123 2 4 {rank} world")
    player.do(f"call {version} {context} 1 0")


@pytest.mark.parametrize("version", [5, 6])
def test_a_timed_collective_becomes_a_record(folder: Path, version: int) -> None:
    with Player(folder) as player:
        begin(player, version)
        player.do(collective(version, 7, of="AllReduce 1048576 3 ncclBfloat16", by="TREE LL128"))
        player.do(f"stop {version} 2")
        player.all(channel(0, 10_000, 15_000, version=version) + channel(1, 10_100, 16_500, version=version))
        ring = player.ring()
    assert ring.records == (
        Record(1, 7, 1048576, 10_000, 16_500, 5_000 * MS, 6_400, ALL_REDUCE, 10, 1, 2, 2, 2, 1, 3, 0),
    )
    assert (ring.magic, ring.version, ring.sizes) == (b"WWRING1\0", 1, (4096, 64, 4096))
    assert (ring.communicator, ring.ranks, ring.rank, ring.nodes) == (0xABC123, 4, 2, 2)
    assert (ring.interface, ring.name, ring.state) == (version, b"world", LIVE)
    assert (ring.pid, ring.created, ring.uuid, ring.nccl) == (player.pid, 5_000 * MS, b"", 22809)
    assert (ring.written, ring.dropped, ring.enqueued) == (1, 0, 1)
    assert player.rings()[0].stat().st_size == RING_BYTES


def test_channels_come_in_any_order_and_the_times_are_of_all(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(collective(channels=3))
        player.all("""channel 5 0 12 2 2 5000
            channel 5 0 10 2 0 4000
            record 5 12 22 9000
            stop 5 12
            record 5 10 22 8000
            stop 5 10""")
        assert player.ring().records == ()
        player.all(channel(1, 3000, 3500))
        (record,) = player.ring().records
    assert (record.started, record.stopped, record.longest) == (3000, 9000, 4000)
    assert (record.channels, record.ended, record.flags) == (3, 3, 1)


def test_bytes_are_those_of_nccl_tests(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(collective(of="AllReduce 1000 0 ncclFloat32"))
        player.do(collective(of="AllGather 1000 0 ncclInt8"))
        player.do(collective(of="ReduceScatter 1000 0 ncclFloat16"))
        player.do(collective(of="ReduceScatter 1000 0 Unknown"))
        player.do(collective(of="Broadcast 1000 0 ncclFloat64"))
        player.do("p2pcall 5 0 1 0")
        player.do("p2p 5 0 3 1 Send ncclFloat8e4m3 500 1")
        player.do("p2p 5 0 3 1 Recv ncclFloat8e5m2 600 1")
        ring = player.ring()
    assert ring.bytes[ALL_REDUCE] == 4000
    assert ring.bytes[ALL_GATHER] == 4000  # 1000 of each of four ranks
    assert ring.bytes[REDUCE_SCATTER] == 8000
    assert (ring.calls[REDUCE_SCATTER], ring.unsized[REDUCE_SCATTER]) == (2, 1)
    assert ring.bytes[4] == 8000
    assert (ring.bytes[SEND], ring.bytes[RECEIVE], ring.sends, ring.enqueued) == (500, 600, 2, 5)


FUNCTIONS = (
    "AllGather", "AllReduce", "AlltoAll", "Broadcast", "Gather", "Recv", "Reduce", "ReduceScatter", "Scatter",
    "SendRecv", "Send",
)  # fmt: skip
DATATYPES = (
    "Int8", "Uint8", "Int32", "Uint32", "Int64", "Uint64", "Float16", "Float32", "Float64", "Bfloat16",
    "Float8e4m3", "Float8e5m2",
)  # fmt: skip
ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
ODD = (
    "-",
    "~",
    "A",
    "x" * 100,
    "AllReduceX",
    "allreduce",
    "nccl",
    "ncclFloat",
    "LL12",
    "Float32",
    "xxxxInt8",
)


def test_every_word_has_its_number_and_all_others_have_none(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        words: list[tuple[str, int]] = []
        words += [(f"{name} 1 0 Unknown|- -", i) for i, name in enumerate(FUNCTIONS, 1)]
        words += [(f"- 1 0 nccl{name}|- -", i) for i, name in enumerate(DATATYPES, 1)]
        words += [(f"- 1 0 -|{name} -", i) for i, name in enumerate(ALGORITHMS, 1)]
        words += [(f"- 1 0 -|- {name}", i) for i, name in enumerate(("LL", "LL128", "SIMPLE"), 1)]
        words += [(f"{odd} 1 0 {odd}|{odd} {odd}", 0) for odd in ODD]
        for number, (word, _) in enumerate(words):
            of, by = word.split("|")
            player.do(collective(number=number, of=of, by=by, channels=1))
            player.all(channel(0, 100, 200))
        records = player.ring().records
    got = [(r.function, r.datatype, r.algorithm, r.protocol) for r in records]
    assert [sum(numbers) for numbers in got] == [number for _, number in words]
    assert len({numbers for numbers in got if any(numbers)}) == len(words) - len(ODD)


def test_a_channel_that_stops_twice_or_starts_twice_counts_once(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(collective(channels=2))
        player.all(channel(0, 1000, 2000))
        player.all("record 5 10 22 9999\nstop 5 10\nstop 5 10")
        assert player.do("channel 5 0 11 2 0 1").split()[1] == "(nil)"
        assert player.ring().written == 0
        player.all(channel(1, 1500, 2500))
        player.all("stop 5 10\nstop 5 11\nrecord 5 10 22 7777")
        player.all(channel(1, 1, 2))
        (record,) = player.ring().records
        player.all("\n".join(collective(number=n) for n in range(1100)))
        assert player.ring().dropped == 0, "its slot is free"
    assert (record.started, record.stopped, record.longest) == (1000, 2500, 1000)


@pytest.mark.parametrize(
    ("guard", "between"),
    [
        ("its collective stops", "stop 5 2"),
        ("its collective has a time", "record 5 2 22 1500"),
        ("it has a time of another kind", "record 5 10 21 1500"),
    ],
)
def test_a_channel_is_stopped_by_its_own_stop_alone(folder: Path, guard: str, between: str) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(collective(channels=1))
        player.all(f"channel 5 0 10 2 0 1000\n{between}\nrecord 5 10 22 3000\nstop 5 10")
        (record,) = player.ring().records
    assert (record.started, record.stopped, record.flags) == (1000, 3000, 1), guard


def test_a_channel_without_a_time_is_said(folder: Path) -> None:
    """Of two channels one stops without its time, of another collective both do."""
    with Player(folder) as player:
        begin(player)
        player.do(collective(number=1))
        player.all("channel 5 0 10 2 0 1000\nstop 5 10" + "\n" + channel(1, 1200, 1900))
        player.do(collective(number=2))
        player.all("channel 5 0 10 2 0 1000\nstop 5 10\nchannel 5 0 11 2 1 1000\nrecord 5 11 22 -\nstop 5 11")
        player.do(collective(number=3))
        player.all(channel(0, 5000, 4000) + channel(1, 5000, 5100))  # a clock that runs backwards
        ring = player.ring()
    assert [(r.collective, r.channels, r.ended, r.flags) for r in ring.records] == [
        (1, 2, 1, 0),
        (3, 2, 1, 0),
    ]
    assert (ring.written, ring.dropped) == (2, 1)


def test_a_channel_that_stops_as_it_starts_has_a_time_and_one_that_stops_before_has_none(
    folder: Path,
) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(collective(number=1, channels=1))
        player.all(channel(0, 1000, 1000))
        player.do(collective(number=2, channels=2))
        # The second stops after the collective began, and before it began itself.
        player.all(channel(0, 1000, 3000) + channel(1, 2000, 1500))
        first, second = player.ring().records
    assert (first.started, first.stopped, first.longest, first.ended) == (1000, 1000, 0, 1)
    assert (second.started, second.stopped, second.longest, second.ended, second.flags) == (
        1000, 3000, 2000, 1, 0,
    )  # fmt: skip


def test_the_longest_channel_has_all_ones_beyond_four_seconds(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(collective(channels=2))
        player.all(channel(0, 2**32 - 5, 2**32 + 5) + channel(1, 2**32 - 4, 2**32 + 2**31))
        player.do(collective(channels=1, number=2))
        player.all(channel(0, 10**18, 10**18 + 2**32))
        first, second = player.ring().records
    assert (first.longest, second.longest) == (2**31 + 4, 2**32 - 1)
    assert second.stopped - second.started == 2**32


def test_what_never_stops_is_reclaimed_and_counted(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(collective(number=1, handle=3))
        player.all("channel 5 0 10 3 0 1000\nchannel 5 0 11 3 1 1000\nrecord 5 10 22 2000\nstop 5 10")
        player.do(collective(number=2, handle=4))  # no channel of it has started yet
        player.all("\n".join(collective(number=n) for n in range(3, 1100)))
        assert (player.ring().dropped, player.ring().written) == (1, 0)
        player.all("record 5 11 22 2000\nstop 5 11")
        assert player.do("channel 5 0 12 4 0 1000").split()[1] == "(nil)"
        player.do("channel 5 0 12 4 1 1000")
        ring = player.ring()
        player.do(collective(number=1100, channels=1))
        player.all(channel(0, 1000, 2000))
        after = player.ring()
    assert (ring.dropped, ring.written, ring.enqueued) == (2, 0, 1099)
    assert (after.dropped, after.written, after.enqueued) == (2, 1, 1100)


def test_what_a_communicator_left_is_not_counted_in_the_next(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(collective(handle=3))
        player.do("finalize 5 0")
        begin(player)
        player.all("\n".join(collective(number=n) for n in range(1100)))
        player.all("channel 5 0 10 3 0 1000\nrecord 5 10 22 2000\nstop 5 10")
        assert (player.ring().dropped, player.ring().written) == (0, 0)
        player.do(collective(number=2000, channels=1))
        player.all(channel(0, 1000, 2000))
        assert [record.collective for record in player.ring().records] == [2000]


def test_the_ring_holds_the_last_records(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        for start in range(1, 5001, 250):
            several = range(start, start + 250)
            player.all(
                "\n".join(f"{collective(number=n, channels=1)}\n{channel(0, n, 2 * n)}" for n in several)
            )
        ring = player.ring()
    assert (ring.written, ring.dropped) == (5000, 0)
    assert sorted(r.sequence for r in ring.records) == list(range(905, 5001))
    assert all(
        (r.collective, r.started, r.stopped) == (r.sequence, r.sequence, 2 * r.sequence) for r in ring.records
    )
    assert ring.records[0].sequence == 4097


@pytest.mark.parametrize("version", [5, 6])
def test_null_pointers_and_strange_events_do_nothing(folder: Path, version: int) -> None:
    with Player(folder) as player:
        assert player.do(f"nulls {version}") == "0 (nil)"
        assert player.do(f"init {version} 0 1 1 2 0 - -") == "0 (nil) 0"
        begin(player, version)
        before = player.ring()
        for kind in (0, 8, 16, 32, 128, 3, 66, 255) + (() if version == 4 else (256, 2048, 1 << 40, 4096)):
            assert player.do(f"other {version} 0 5 {kind}") == "0 (nil)"
        player.do("set 6 0xffffffffffffffff")
        player.do("set 7 0x2000004")
        # A channel and a collective of an entry of the table that no communicator has had.
        player.do("set 3 0x200002c")
        player.do("set 4 0x200002b")
        for handle in (3, 4, 6, 7):
            assert player.do(f"record {version} {handle} 22 1") == "0"
            assert player.do(f"stop {version} {handle}") == "0"
            assert player.do(f"channel {version} 0 8 {handle} 0 100").split() == ["0", "(nil)"]
        assert player.do(f"channel {version} 0 8 0 0 100").split() == ["0", "(nil)"]
        player.do(collective(version, channels=200))
        assert player.do(f"channel {version} 0 8 2 64 100").split() == ["0", "(nil)"]
        assert player.ring().written == before.written == 0


@pytest.mark.parametrize(("version", "told"), [(4, True), (5, False), (6, False)])
def test_a_group_has_a_handle_where_nccl_needs_one(folder: Path, version: int, *, told: bool) -> None:
    """NCCL 2.27 tells of a collective only if its group has one; later it would number replays by it."""
    with Player(folder) as player:
        begin(player, version)
        assert (player.do(f"other {version} 0 5 1") != "0 (nil)") == told
        assert player.do(f"stop {version} 5") == "0"


@pytest.mark.parametrize(
    ("fails", "uuid", "nccl"),
    [
        ("", UUID, 22809),
        ("context", b"", 22809),
        ("uuid", b"", 22809),
        ("version", UUID, 0),
    ],
)
def test_gpu_and_nccl_are_those_of_the_process(folder: Path, fails: str, uuid: bytes, nccl: int) -> None:
    """Loaded for itself alone, as torch loads its libraries; what is not loaded is not asked."""
    with Player(folder, FAILS=fails) as player:
        assert player.do(f"library {built() / 'libcuda.so.1'}") == "loaded"
        begin(player)
        ring = player.ring()
    assert (ring.uuid, ring.nccl) == (uuid, nccl)


@pytest.mark.parametrize(
    ("lacks", "uuid", "nccl"),
    [
        ("nothing", UUID, 22809),
        ("cuCtxGetDevice", b"", 22809),
        ("cuDeviceGetUuid_v2", b"", 22809),
        ("ncclGetVersion", UUID, 22808),
    ],
)
def test_a_library_that_lacks_a_function_is_not_asked(
    folder: Path, tmp_path: Path, lacks: str, uuid: bytes, nccl: int
) -> None:
    """NCCL's version is then that of the process; the tap holds no library when it has asked it."""
    library = tmp_path / "libcuda.so.1"
    options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", f"-D{lacks}=not_{lacks}"]
    subprocess.run(["cc", *options, "-o", library, LIBRARIES], check=True)
    with Player(folder) as player:
        player.do("nccl 22808")
        assert player.do(f"library {library}") == "loaded"
        begin(player)
        ring = player.ring()
        assert player.do(f"unlibrary {library}") == "gone"
    assert (ring.uuid, ring.nccl) == (uuid, nccl)


def test_a_driver_of_before_11_4_has_the_uuid_by_an_older_name(folder: Path, tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-DcuDeviceGetUuid_v2=cuDeviceGetUuid"]
    subprocess.run(["cc", *options, "-o", library, LIBRARIES], check=True)
    with Player(folder) as player:
        player.do(f"library {library}")
        begin(player)
        assert player.ring().uuid == UUID


def test_interface_4_counts_whatever_its_parent_is(folder: Path) -> None:
    """It tells of no calls: later ones count by a call, and so no replay of a graph."""
    for version, counted in ((4, 1), (5, 0), (6, 0), (7, 0)):
        with Player(folder) as player:
            player.do(f"init {version} 0 1 1 2 0 -")
            assert player.do(f"p2p {version} 0 3 0 Send ncclInt8 500 1") == "0 (nil)"
            assert player.do(collective(version, parent=0)) == "0 (nil)"
            assert (player.ring(-1).sends, player.ring(-1).enqueued) == (counted, counted)


def test_null_pointers_do_nothing_by_interface_4_either(folder: Path) -> None:
    with Player(folder) as player:
        assert player.do("nulls 4") == "0 (nil)"


@pytest.mark.parametrize(("root", "kept"), [(0, 0), (254, 254), (255, 255), (300, 255), (-1, 255)])
def test_a_root_is_kept_where_a_byte_holds_it(folder: Path, root: int, kept: int) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(collective(of=f"Broadcast 1 {root} ncclInt8", channels=1))
        player.all(channel(0, 1000, 2000))
        (record,) = player.ring().records
    assert record.root == kept


def test_the_time_of_the_last_event_is_that_of_collectives_and_of_sends(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        assert player.ring().event == 5_000 * MS
        player.do(f"clock {6_000 * MS}")
        player.do(collective())
        assert player.ring().event == 6_000 * MS
        player.do(f"clock {7_000 * MS}")
        player.do("p2pcall 5 0 1 0")
        player.do("p2p 5 0 3 1 Send ncclInt8 500 1")
        assert player.ring().event == 7_000 * MS


def test_a_process_without_a_log_is_watched_and_its_next_communicator_says_so(folder: Path) -> None:
    with Player(folder) as player:
        assert player.do("init 5 0 1 1 2 0 world 0 quiet").split()[1] != "(nil)"
        assert player.do("log") == "0 "
        player.do("init 5 1 2 1 2 0 world")
        assert player.do("log") == f"1 wirewatch tap {__version__}: watching, rings in {folder}"


@pytest.mark.parametrize("name", ["x" * 63, "x" * 64, "x" * 300])
def test_a_long_name_is_cut(folder: Path, name: str) -> None:
    with Player(folder) as player:
        player.do(f"init 5 0 1 1 2 0 {name}")
        assert player.ring().name == b"x" * 63


def test_a_communicator_without_a_name_has_an_empty_one(folder: Path) -> None:
    with Player(folder) as player:
        player.do("init 5 0 1 1 2 0 -")
        assert (player.ring().name, player.ring().tap) == (b"", __version__.encode())


def test_an_event_makes_no_system_call(folder: Path) -> None:
    """The kernel ends a process for anything but read and write, which the harness needs."""
    player = Player(folder, "PLAIN", WIREWATCH_TAP_ON_MS="10", WIREWATCH_TAP_PERIOD_MS="10")
    begin(player)
    assert player.do("strict") == "0"
    for number in range(1, 3000, 500):
        several = range(number, number + 500)
        player.all("\n".join(f"{collective(number=n, channels=1)}\n{channel(0, n, 2 * n)}" for n in several))
    player.do("call 5 0 3 1")
    player.do("p2pcall 5 0 4 0")
    player.do("p2p 5 0 5 4 Send ncclInt8 1 1")
    player.do(collective(number=3001))
    player.do("channel 5 0 12 2 1 1000")
    ring = player.ring()
    assert (ring.written, ring.enqueued, ring.sends, ring.captured) == (3000, 3001, 1, 1)
    with pytest.raises(AssertionError, match="the harness ended"):
        player.do("closefiles")  # what does make one is noticed
    player.kill()


def test_the_process_is_left_as_it_was(folder: Path) -> None:
    """Not errno; init says one line for the whole process, through NCCL."""
    with Player(folder) as player:
        for context in range(3):
            player.do(f"init 5 {context} 1 1 2 0 world")
        assert player.do("log") == f"1 wirewatch tap {__version__}: watching, rings in {folder}"
        assert player.do("finalize 5 0").split()[1] == "0"
        player.do("init 5 3 1 1 2 0 world 0 quiet")


def test_finalize_counts_what_is_under_way_and_later_events_belong_to_no_communicator(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(collective(channels=2))
        player.do("channel 5 0 10 2 0 1000")
        with player.rings()[0].open("rb") as kept:
            player.do("finalize 5 0")
            begin(player, context=1)
            player.all("record 5 10 22 2000\nstop 5 10\nchannel 5 0 11 2 1 1000\nrecord 5 11 22 9\nstop 5 11")
            player.do(collective())  # by a context that is gone
            player.do("finalize 5 0")
            after = kept.read()
        ring = player.ring()
        assert len(player.rings()) == 1
    assert after[256 + 8 : 256 + 16] == (1).to_bytes(8, "little")
    assert (ring.written, ring.dropped, ring.enqueued) == (0, 0, 0)
