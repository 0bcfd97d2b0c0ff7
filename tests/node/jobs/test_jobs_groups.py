"""Each guard alone: how groups of a job are called, how its ranks are, and what siblings show of a rail."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.node.jobs.ringjobs import AROUND, MIB, uuid
from tests.node.jobs.test_jobs_trace import ring
from tests.rows import each
from wirewatch.core.jobs import RingReading, RingState
from wirewatch.core.pci import Place
from wirewatch.core.topology import NicPart, NicPath, Topology
from wirewatch.jobs.running.grouping import RingGroup, job_groups, ring_groups
from wirewatch.jobs.running.model import CommunicatorMemory, JobsPolicy, RingProgress
from wirewatch.jobs.running.parallel import RankNames, families, rank_names
from wirewatch.jobs.running.rails import Sibling, beyond_best, slow_rails, usual_times
from wirewatch.jobs.times import NO_REFERENCE, CommunicatorWindow, JobRank, OperationTimes, RankTime

POLICY = JobsPolicy()
Made = tuple[tuple[int, ...], int, dict[str, int], int, int]
"""The processes of a communicator, its nodes, its calls, the bytes of each, and its sends on each rank."""
TP: Made = ((0, 1), 1, {"all_reduce": 400}, MIB, 0)
TP_TWO: Made = ((2, 3), 1, {"all_reduce": 400}, MIB, 0)
DP: Made = ((0, 2), 1, {"all_reduce": 100}, MIB, 0)
DP_TWO: Made = ((1, 3), 1, {"all_reduce": 100}, MIB, 0)


def job(*made: Made, uneven: int = 0) -> tuple[dict[int, RingGroup], dict[str, RingProgress]]:
    readings, rings = [], {}
    for number, (processes, nodes, calls, size, sends) in enumerate(made, 1):
        for rank, process in enumerate(processes):
            one = ring(number, rank, len(processes) * nodes, process, nodes)
            readings.append(RingReading(one))
            sent = sends + (uneven if 0 < rank < len(processes) - 1 else 0)
            both = {**calls, "sendrecv": sent} if sent else calls
            sizes = {op: count * size for op, count in both.items()}
            rings[one.name] = RingProgress(calls=both, bytes=sizes, sends=sent)
    return {group.key[1]: group for group in ring_groups(readings)[0]}, rings


def names(*made: Made, uneven: int = 0) -> list[RankNames]:
    groups, rings = job(*made, uneven=uneven)
    by_key = {group.key: group for group in groups.values()}
    found = rank_names(job_groups([*by_key.values()], {}), by_key, rings)
    return [found[groups[number].key] for number in sorted(groups)]


def but(made: Made, **change: object) -> Made:
    fields = dict(zip(("processes", "nodes", "calls", "size", "sends"), made, strict=True))
    return tuple({**fields, **change}.values())  # type: ignore[return-value]


FOUR = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("guard", "made", "uneven", "called"),
    [
        ("tensor and data", (TP, TP_TWO, DP, DP_TWO), 0, ["TP", "TP", "DP", "DP"]),
        ("not so often", (TP, TP_TWO, *(but(one, calls={"all_reduce": 101}) for one in (DP, DP_TWO))), 0,
         ["", "", "", ""]),
        ("smaller messages across", (TP, TP_TWO, *(but(one, size=MIB - 1) for one in (DP, DP_TWO))), 0,
         ["", "", "", ""]),
        ("not all processes across", (TP, TP_TWO, DP), 0, ["", "", ""]),
        ("tensor over two nodes", (but(TP, nodes=2), but(TP_TWO, nodes=2), DP, DP_TWO), 0, ["", "", "", ""]),
        ("data with one rank here", (TP, *(((n,), 8, {"all_reduce": 9}, MIB, 0) for n in (0, 1))), 0,
         ["TP", "DP", "DP"]),
        ("one communicator", ((FOUR, 1, {"all_reduce": 400}, MIB, 0),), 0, [""]),
        ("a pipeline", ((FOUR, 1, {}, MIB, 100),), 100, ["PP"]),
        ("as many sends on each rank", ((FOUR, 1, {}, MIB, 100),), 0, ["EP"]),
        ("two ranks show neither", (((0, 1), 1, {}, MIB, 100),), 0, [""]),
        ("two of a chain", (((0, 1), 1, {}, MIB, 100), ((1, 2), 1, {}, MIB, 100)), 0, ["PP", "PP"]),
        ("more collectives than sends", ((FOUR, 1, {"all_reduce": 40}, MIB, 100),), 100, [""]),
        ("its own all_to_all", (((0, 1), 1, {"alltoall": 5}, MIB, 0),), 0, ["EP"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_what_a_group_is_called(
    guard: str, made: Sequence[Made], uneven: int, called: list[str]
) -> None:
    assert [one.group for one in names(*made, uneven=uneven)] == called, guard


def test_a_rank_has_the_job_s_number_where_a_communicator_holds_all() -> None:
    rank = JobRank(1, uuid(3), "3", 3, 3, "", RingState.LIVE, {})
    whole: Made = ((3, 2, 1, 0), 1, {"all_reduce": 9}, 1, 0)
    *_, across, world = names(TP, TP_TWO, DP, DP_TWO, whole)
    assert (across.number(rank), across.words([rank])) == (0, "rank 0 (GPU 3)")
    assert world.ranks == {0: 0, 1: 1, 2: 2, 3: 3}
    alone = names(TP, TP_TWO, DP, DP_TWO)[3]
    assert (alone.number(rank), alone.words([rank])) == (1, "rank 1 (GPU 3) of the DP group")
    both = [rank, replace(rank, rank=0, index="", gpu=uuid(1))]
    assert RankNames().words(both) == f"ranks 1 (GPU 3) and 0 ({uuid(1)}) of its communicator"
    wide: Made = ((0,), 8, {"all_reduce": 9}, MIB, 0)
    assert names(((0, 1), 1, {"all_reduce": 400}, MIB, 0), wide)[0].ranks == {}, "other nodes have ranks too"


def test_communicators_that_are_alike_are_a_family() -> None:
    groups, rings = job(TP, TP_TWO, DP, DP_TWO, ((4, 5), 1, {"all_reduce": 200}, MIB, 0))
    found = families(groups.values(), rings)
    assert [sorted(group.key[1] for group in some) for some in found] == [[1, 2, 5], [3, 4]]


def row(seconds: float, joined: int = 20, size: int = 64 * MIB) -> OperationTimes:
    return OperationTimes(
        "all_reduce", size, 8, joined, joined, size, seconds, seconds, seconds, "RING", "SIMPLE", 4,
        NO_REFERENCE, NO_REFERENCE, mean=seconds,
    )  # fmt: skip


def sibling(number: int, *seconds: float, joined: int = 20, size: int = 64 * MIB) -> Sibling:
    windows = [
        CommunicatorWindow(0.0, 5.0, (row(one, joined, size),), (RankTime(0, 0.5, 0.0, 0.0, 0.0),))
        for one in seconds
    ]
    return Sibling(("", number), JobRank(0, uuid(number), str(number), 1, 1, "", RingState.LIVE, {}), windows)


EVEN = [sibling(number, 1e-3, 1e-3) for number in range(3)]


@each(
    ("guard", "slow", "named"),
    [
        ("half as long again", [sibling(9, 1.5e-3, 1.5e-3)], True),
        ("less", [sibling(9, 1.49e-3, 1.49e-3)], False),
        ("one window", [sibling(9, 1.5e-3)], False),
        ("few collectives", [sibling(9, 1.5e-3, 1.5e-3, joined=3)], False),
        ("as many as are enough", [sibling(9, 1.5e-3, 1.5e-3, joined=4)], True),
        ("messages of another size", [sibling(9, 1.5e-3, 1.5e-3, size=MIB)], False),
        ("half of all", [sibling(number, 9e-3, 9e-3) for number in (7, 8, 9)], False),
    ],
)
def test_a_guard_alone_decides_whether_a_rail_is_slow(
    guard: str, slow: list[Sibling], *, named: bool
) -> None:
    found = dict(slow_rails([*EVEN, *slow], AROUND.topology, POLICY))
    assert ([*found] == [("", 9)]) is named, guard


def test_two_communicators_are_too_few_to_say_which_is_slow() -> None:
    assert not dict(slow_rails([EVEN[0], sibling(9, 9e-3, 9e-3)], AROUND.topology, POLICY))
    assert usual_times(EVEN[:2], POLICY) == {("", 0): {}, ("", 1): {}}


def test_a_slow_rail_is_said_with_its_nearest_nic() -> None:
    paths = (("mlx5_0", "SYS"), ("mlx5_3", "PIX"), ("mlx5_4", ""))
    nics = tuple(NicPart("", name, "", "", Place("", "", (), 0), ()) for name, _ in paths)
    topology = Topology((), nics, (), tuple(NicPath(uuid(9), *one) for one in paths), 2, ())
    slow = [*EVEN, sibling(9, 2.5e-3, 2.5e-3)]
    (known,) = dict(slow_rails(slow, topology, POLICY)).values()
    assert known.cost == pytest.approx(0.3)
    assert known.text.startswith(
        "slow rail: the communicator of GPU 9 takes 2.5 times as long as its 3 siblings (all_reduce of "
        "64 MiB in 2.5 ms, there 1 ms), and mlx5_3 is nearest to it: its NIC or what is behind it is slow"
    )
    alike = replace(topology, paths=tuple(replace(one, path="SYS") for one in topology.paths))
    (unknown,) = dict(slow_rails(slow, alike, POLICY)).values()
    assert "nearest" not in unknown.text


@each(
    ("guard", "best", "usual", "beyond"),
    [
        ("half as long again as its best", (0.1, 2.0), {}, 1 / 3),
        ("less", (0.1, 2.01), {}, 0.0),
        ("one window is no best", (0.1,), {}, 0.0),
        ("nothing is known", (), {}, 0.0),
        ("as long as siblings", (0.1, 2.01), {("all_reduce", 64 * MIB): 1.0}, 2 / 3),
        ("siblings are slower", (0.1, 2.0), {("all_reduce", 64 * MIB): 2.5}, 1 / 3),
    ],
)
def test_a_guard_alone_decides_what_is_beyond_the_best(
    guard: str, best: tuple[float, ...], usual: Mapping[tuple[str, int], float], beyond: float
) -> None:
    memory = CommunicatorMemory(best={("all_reduce", 64 * MIB, "RING", "SIMPLE"): best} if best else {})
    window = CommunicatorWindow(0.0, 5.0, (row(3.0),), ())
    assert beyond_best(memory, window, usual) == pytest.approx(beyond), guard
