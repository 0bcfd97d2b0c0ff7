"""Several communicators in one log: which line belongs to which."""

import pytest

from tests.node.nccl.texts import init, links, pointer, say
from wirewatch.core.account import Comm, Connection
from wirewatch.nccl.comms import CANDIDATES, NAME
from wirewatch.nccl.log import NcclLog, parse_nccl_log


def comms(text: str) -> tuple[Comm, ...]:
    told = parse_nccl_log(text)
    assert told.not_understood == 0
    return told.comms


def both(state: str, gpus: tuple[int, ...], comm: int) -> str:
    """The same line of every rank of a communicator over these GPUs."""
    return "".join(
        say(init(state, rank, len(gpus), rest=f"commId 0xab{comm} ", comm=comm, gpu=gpu), gpu)
        for rank, gpu in enumerate(gpus)
    )


def set_up(gpus: tuple[int, ...], comm: int, channels: int = 8, seconds: float = 1.0) -> str:
    counts = f"{channels} coll channels, 0 collnet channels, 0 nvls channels, 4 p2p channels, 2 p2p channels"
    return (
        both("START", gpus, comm)
        + say(f"{counts} per peer", gpus[0])
        + both("COMPLETE", gpus, comm)
        + say(f"Init timings - x: rank 0 nranks {len(gpus)} total {seconds:.2f} (kernels 0.1)", gpus[0])
    )


def link(source: tuple[int, int], destination: tuple[int, int], transport: str = "P2P/CUMEM") -> str:
    (a, near), (b, far) = source, destination
    return say(f"Channel 00/0 : {a}[{near}] -> {b}[{far}] via {transport}", near, thread=5000 + near)


def test_communicators_one_after_the_other_keep_their_own_channels_and_times() -> None:
    first, second = comms(
        set_up((0, 1, 2), 0, channels=24, seconds=2.0)
        + link((0, 0), (1, 1))
        + set_up((0, 1), 1, channels=2, seconds=0.5)
        + link((0, 0), (1, 1), "SHM/direct/direct")
    )
    assert (first.id, first.ranks, first.init_seconds) == ("0xab0", 3, 2.0)
    assert (second.id, second.ranks, second.init_seconds) == ("0xab1", 2, 0.5)
    assert [getattr(comm.channels, "coll", None) for comm in (first, second)] == [24, 2]
    assert first.connections == (Connection(0, 1, "P2P/CUMEM", 1),)
    assert second.connections == (Connection(0, 1, "SHM/direct/direct", 1),)


def test_channels_made_at_first_use_go_by_the_devices_of_their_ranks() -> None:
    one, other = comms(set_up((0, 1), 0) + set_up((3, 2), 1) + link((0, 0), (1, 1)) + link((0, 3), (1, 2)))
    assert [len(c.connections) for c in (one, other)] == [1, 1]
    assert {rank: device.cuda for rank, device in other.devices.items()} == {0: 3, 1: 2}


def test_of_two_alike_each_has_a_channel_once() -> None:
    one, other = comms(set_up((0, 1), 0) + set_up((0, 1), 1) + link((0, 0), (1, 1)) * 2)
    assert one.connections == other.connections == (Connection(0, 1, "P2P/CUMEM", 1),)


@pytest.mark.parametrize("ends", [((0, 6), (1, 7)), ((0, 0), (1, 7)), ((0, 0), (5, 5)), ((5, 5), (0, 0))])
def test_a_channel_that_fits_no_communicator_is_reported_without_one(
    ends: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    first, rest = comms(set_up((0, 1), 0) + link(*ends, "SHM/direct/direct"))
    assert first.connections == ()
    assert (rest.id, rest.connections) == (
        "",
        (Connection(ends[0][0], ends[1][0], "SHM/direct/direct", 1),),
    )


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "connections"),
        ("Init timings - x: rank 0 nranks 2 total 1.50 (kernels 0.1)", "init_seconds"),
        ("2 coll channels, 2 p2p channels, 2 p2p channels per peer", "channels"),
        ("comm 0x5 rank 0 nRanks 2 nNodes 3 localRanks 2 localRank 0 MNNVL 0", "nodes"),
    ],
)
def test_a_line_of_no_communicator_stands_in_one_without_an_id(line: str, shown: str) -> None:
    """Each such line alone; a log of none of them has no communicator."""
    (one,) = comms(say(line))
    (empty,) = comms(say(init("START", 0)))
    assert (one.id, one.devices, one.finished) == ("", {}, ())
    assert getattr(one, shown) != getattr(empty, shown)
    assert len({name for name in ("connections", "init_seconds", "channels", "nodes")
                if getattr(one, name) != getattr(empty, name)}) == 1  # fmt: skip
    assert comms(say("Using network Socket")) == ()


CHANNEL = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"


def test_a_channel_made_during_a_set_up_is_of_the_thread_s_communicator() -> None:
    """As all were before 2.22."""
    begun = "".join(say(init("START", 0, rest=f"commId 0xab{n} ", comm=n), thread=6000 + n) for n in (0, 1))
    one, other = comms(begun + say(CHANNEL, thread=6000))
    assert (len(one.connections), len(other.connections)) == (1, 0)


def test_a_thread_that_sets_one_up_may_log_another() -> None:
    begun = "".join(say(init("START", n, rest=f"commId 0xab{n} ", comm=n), thread=6000) for n in (0, 1))
    one, other = comms(begun + say(CHANNEL, thread=6000))
    assert (len(one.connections), len(other.connections)) == (1, 0)


def test_a_thread_that_has_set_up_two_may_later_make_channels_for_either() -> None:
    """As in a process of one GPU since 2.22."""
    both_done = "".join(
        say(init(state, 0, rest=f"commId 0xab{n} ", comm=n))
        for n in (0, 1)
        for state in ("START", "COMPLETE")
    )
    one, other = comms(both_done + say(CHANNEL) * 2)
    assert (len(one.connections), len(other.connections)) == (1, 1)


@pytest.mark.parametrize(
    ("before", "after", "known"),
    [(63, 0, True), (64, 0, False), (0, 66, True)],
    ids=["the last that is looked at", "one too many since", "however many come later"],
)
def test_the_communicators_begun_next_to_a_channel_are_looked_at(
    before: int, after: int, *, known: bool
) -> None:
    """Only the first has the channel's ranks on its devices."""
    assert (CANDIDATES, NAME) == (64, 100)
    others = [say(init("START", 0, rest=f"commId 0xab{n} ", comm=n % 10, gpu=5)) for n in range(1, 70)]
    begun = say(init("START", 0, rest="commId 0xab0 "), thread=6000) + "".join(others[:before])
    found = comms(begun + say(CHANNEL, thread=5000) + "".join(others[:after]))
    assert [bool(one.connections) for one in (found[0], found[-1])] == [known, not known]


def test_a_channel_before_the_lines_of_its_communicator_goes_by_its_devices() -> None:
    """Before 2.18.3 there is no line for the beginning, and another thread may make the channel."""
    ends = "".join(
        say(init("COMPLETE", rank, name="", nvml=False), rank, thread=6000 + rank) for rank in (0, 1)
    )
    (comm,) = comms(say("Channel 00 : 0[41000] -> 1[42000] via P2P/IPC", thread=5000) + ends)
    assert comm.connections == (Connection(0, 1, "P2P/IPC", 1),)


def test_a_channel_is_of_what_was_begun_before_it_and_of_the_last_of_these() -> None:
    """Two were begun before it, the first of which was done last; a third comes after it."""
    begun = [say(init("START", 0, rest=f"commId 0xab{n} ", comm=n), thread=6000 + n) for n in (0, 1, 2)]
    done = [say(init("COMPLETE", 0, rest=f"commId 0xab{n} ", comm=n), thread=6000 + n) for n in (1, 0)]
    found = comms("".join([*begun[:2], *done, say(CHANNEL, thread=5000), begun[2]]))
    assert [len(one.connections) for one in found] == [0, 1, 0]


def test_a_channel_whose_line_lost_its_beginning_goes_by_its_devices() -> None:
    (comm,) = comms(set_up((0, 1), 0) + f"NCCL INFO {CHANNEL}\n")
    assert comm.connections == (Connection(0, 1, "P2P/CUMEM", 1),)


def test_channels_are_counted_by_number_and_connection_and_not_by_their_ends() -> None:
    told = "".join(
        say(f"Channel {lane} : 0[0] -> 1[1] [{side}] via NET/Socket/0", gpu, thread=5000 + gpu)
        for lane in ("00/0", "00/1", "01/0")
        for side, gpu in (("send", 0), ("receive", 1))
    )
    (comm,) = comms(set_up((0, 1), 0) + told)
    assert comm.connections == (Connection(0, 1, "NET/Socket/0", 3),)


def test_before_2_16_memory_that_is_used_again_is_another_communicator() -> None:
    text = say(init("COMPLETE", 0, name="", rest="", nvml=False))
    assert [comm.finished for comm in comms(text * 3)] == [(0,), (0,), (0,)]


def test_2_17_logs_the_rank_that_has_set_up_nvls() -> None:
    text = say(f"NVLS comm {pointer(1)} rank 1 nranks 2 buffSize 4194304 memSize 2097152", 1)
    (comm,) = comms(text + say(init("COMPLETE", 1, name="", nvml=False), 1))
    assert comm.nvls == (1,)


def test_ranks_of_several_processes_are_one_communicator() -> None:
    lines = [
        say(init(state, rank), rank, host="node7", pid=100 + rank)
        for state in ("START", "COMPLETE")
        for rank in (1, 0)
    ]
    lines += [
        say("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", 0, pid=100),
        say("Channel 00/0 : 1[1] -> 0[0] via P2P/IPC", 1, pid=101),
    ]
    (comm,) = comms("".join(lines))
    assert comm.finished == (0, 1)
    assert comm.connections == (Connection(0, 1, "P2P/IPC", 1), Connection(1, 0, "P2P/IPC", 1))


@pytest.mark.parametrize("count", ["", "splitCount 1 ", "childCount 1 "])
def test_those_split_off_go_by_parent_and_color(count: str) -> None:
    """Of 2.23, of 2.24 to 2.28, and of 2.29 on; the line of their start has no blank before its dash."""
    text = set_up((0, 1, 2, 3), 0)
    for rank, gpu, color in ((0, 0, 0), (1, 1, 0), (0, 2, 7), (1, 3, 7)):
        rest = f"parent {pointer(gpu)} {count}color {color} key {rank}"
        text += say(init("START", rank, rest=rest, comm=1, gpu=gpu), gpu)
        text += say(init("COMPLETE", rank, rest=f"{rest} ", comm=1, gpu=gpu), gpu)
    _, left, right = comms(text + link((1, 3), (0, 2)))
    number = 1 if count else 0
    assert (left.id, right.id) == (f"0xab0/{number}.0", f"0xab0/{number}.7")
    assert [d.cuda for d in right.devices.values()] == [2, 3]
    assert right.connections == (Connection(1, 0, "P2P/CUMEM", 1),)
    assert left.finished == right.finished == (0, 1)


@pytest.mark.parametrize(("color", "kept"), [(1234567, True), (12345678, False)])
def test_a_split_of_a_split_has_its_parents_name_until_that_is_long(color: int, kept: bool) -> None:  # noqa: FBT001
    """Of 99 characters all of it stands in the split's, of 100 the pointer stands for it."""
    text = say(init("START", 0, rest="commId 0x1234567890abcdef "))
    for above, own in enumerate([1234567890] * 3 + [color, 0]):
        rest = f"parent {pointer(0, above)} splitCount 999999999 color {own} key 0"
        text += say(init("START", 0, rest=rest, comm=above + 1))
    *_, parent, last = comms(text)
    assert (len(parent.id) == 99) == kept
    assert last.id == f"{parent.id if kept else pointer(0, 4)}/999999999.0"


def test_a_split_of_what_the_log_lacks_has_an_unknown_parent() -> None:
    (comm,) = comms(say(init("START", 0, rest="parent 0x77 splitCount 1 color 0 key 0")))
    assert comm.id == "?/1.0"


def test_before_2_16_the_ranks_of_two_communicators_are_not_mixed() -> None:
    text = "".join(
        say(init("COMPLETE", rank, name="", rest="", comm=comm, nvml=False), rank)
        for rank in (0, 1)
        for comm in (0, 1)
    )
    one, other = comms(text)
    assert [(c.finished, len(c.devices)) for c in (one, other)] == [((0, 1), 2)] * 2
    assert one.id != other.id


def test_an_id_that_two_share_is_two_communicators() -> None:
    """As all that 2.18 to 2.20 split off."""
    text = "".join(
        say(init("COMPLETE", rank, rest="commId 0x0 ", comm=comm), rank) for rank in (0, 1) for comm in (0, 1)
    )
    assert [comm.finished for comm in comms(text)] == [(0, 1), (0, 1)]


def test_memory_that_is_used_again_belongs_to_the_last() -> None:
    spans = "rank 0 nRanks 2 nNodes {} localRanks 2 localRank 0 MNNVL 0"
    text = "".join(
        say(init("START", 0, rest=f"commId 0xab{n} "))
        + say(f"comm {pointer(0)} {spans.format(n)}")
        + say(f"NVLS comm {pointer(0)} headRank 0 nHeads 2 buffSize 1")
        for n in (1, 2)
    )
    assert [(comm.nodes, comm.nvls) for comm in comms(text)] == [(1, (0,)), (2, (0,))]


def test_what_is_said_of_a_communicator_has_its_line_and_its_process() -> None:
    lines = (set_up((0, 1), 0) + link((0, 0), (1, 1)) * 2 + link((1, 1), (0, 0))).splitlines()
    (found,) = NcclLog().read(lines).comms()
    assert (found.line, found.channels_line) == (1, 3)
    assert found.lines == {(0, 1, "P2P/CUMEM"): 7, (1, 0, "P2P/CUMEM"): 9}
    assert found.processes == {0: ("node7", 4711), 1: ("node7", 4711)}


def test_a_set_up_that_does_not_end_is_not_finished() -> None:
    (comm,) = comms(both("START", (0, 1), 0) + say(init("COMPLETE", 1, rest="commId 0xab0 "), 1))
    assert comm.finished == (1,)


def test_a_line_without_its_beginning_is_no_communicator_of_its_own() -> None:
    start = say(init("START", 0)).partition("NCCL")
    (comm,) = comms(
        start[1] + start[2] + say(init("COMPLETE", 0)) + say(init("COMPLETE", 1), 1) + links("P2P/IPC")
    )
    assert comm.finished == (0, 1)
    assert [c.channels for c in comm.connections] == [2, 2]


def test_a_bus_that_is_no_address_has_none() -> None:
    (comm,) = comms(say(init("START", 0).replace("busId 41000", "busId 4100f")))
    assert comm.devices[0].bus == ""


def test_a_rank_whose_beginning_is_missing_joins_the_one_communicator_that_lacks_it() -> None:
    spans = "comm {} rank {} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"
    text = say(init("START", 0)) + say(spans.format(pointer(1), 1), 1, host="node8")
    (only,) = NcclLog().read(text.splitlines()).comms()
    assert (only.comm.id, only.comm.nodes) == ("0xabc1", 2)
    assert {rank: host for rank, (host, _) in only.processes.items()} == {0: "node7", 1: "node8"}
    assert list(only.comm.devices) == [0]
    twice = text + say(spans.format(pointer(3), 1), 1, host="node9")
    assert [sorted(one.processes) for one in NcclLog().read(twice.splitlines()).comms()] == [[0, 1], [1]]


def test_an_end_that_names_no_communicator_is_of_the_only_one_with_its_other_end() -> None:
    link = "Channel 03/0 : 1[1] -> 0[0] [{}] via NET/IB/{}/GDRDMA"
    sent = say(link.format("send", 1), 1, host="node8")
    text = say(init("START", 0)) + say(link.format("receive", 0))
    (only,) = NcclLog().read((text + sent).splitlines()).comms()
    assert only.lanes == {
        (1, 0, "NET/IB/0/GDRDMA"): {(3, 0, True): 2}, (1, 0, "NET/IB/1/GDRDMA"): {(3, 0, False): 3},
    }  # fmt: skip
    assert only.processes[1] == ("node8", 4711)
    two = (
        text + say(init("START", 0, rest="commId 0xabc2 ", comm=1)) + say(link.format("receive", 0), thread=4)
    )
    assert NcclLog().read((two + sent).splitlines()).comms()[-1].comm.id == ""


def test_lines_of_connections_alone_place_their_ranks_unless_two_processes_do() -> None:
    text = say("Ring 00 : 15 -> 0 [send] via NET/Socket/0", host="b") + say(
        "Ring 00 : 7 -> 8 [send] via NET/Socket/0"
    )
    (only,) = NcclLog().read(text.splitlines()).comms()
    assert {rank: host for rank, (host, _) in only.processes.items()} == {15: "b", 7: "node7"}
    both = text + say("Ring 01 : 7 -> 8 [send] via NET/Socket/0", host="c")
    assert NcclLog().read(both.splitlines()).comms()[0].processes[7] == ("", 0)
