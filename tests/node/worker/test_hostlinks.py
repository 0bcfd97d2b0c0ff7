"""Host links: which copies are timed and by what, where their memory is made, and what is said without it."""

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.node.worker.test_timing import Counted
from wirewatch.core.hostlink import HostCopies
from wirewatch.core.probe import Plan
from wirewatch.worker import hostlinks
from wirewatch.worker.hostlinks import (
    COPIED,
    RUNS,
    WARMUP,
    HostQueue,
    free_bytes,
    host_copies,
    near,
    parse_cpus,
)
from wirewatch.worker.run import EngineError

SIZE = 1 << 20
TAKES = {"to_device": 2.0, "from_device": 3.0, "both": 4.0}


@dataclass
class Log:
    """What the queues were asked, in order; `sharing`: copies take twice as long while another GPU copies."""

    moves: list[tuple[int, str]] = field(default_factory=list)
    pins: list[tuple[int, int, frozenset[int]]] = field(default_factory=list)


class Host(Counted, HostQueue):
    """A GPU whose copies take fixed times; the first of a series takes 100 s more, as a link that sleeps."""

    def __init__(self, rank: int, log: Log, slow: float = 1.0, refuses: str = "") -> None:
        super().__init__(rank, ())
        self._log, self._slow, self._refuses, self._last = log, slow, refuses, ""

    def pin(self, size: int) -> None:
        if self._refuses:
            raise EngineError("out_of_memory", self._refuses)
        self._log.pins.append((self.rank, size, frozenset(os.sched_getaffinity(0))))

    def move(self, way: str, size: int) -> None:
        assert size == SIZE
        self._log.moves.append((self.rank, way))
        self.now += TAKES[way] * self._slow + (100.0 if way != self._last else 0.0)
        self._last = way


def plan(count: int, cpus: tuple[str, ...] = ()) -> Plan:
    return Plan("x", tuple(map(str, range(count))), (), host_bytes=SIZE, near=cpus)


def measured(count: int, log: Log, cpus: tuple[str, ...] = (), slow: float = 1.0) -> list[HostCopies]:
    gpus = [Host(rank, log, slow if rank == 1 else 1.0) for rank in range(count)]
    found = host_copies(gpus, plan(count, cpus))
    assert isinstance(found, list)
    return found


def test_each_gpu_is_timed_alone_in_both_directions_and_at_once_then_all_together() -> None:
    log = Log()
    measured(2, log)
    alone = [(rank, way) for rank in (0, 1) for way in TAKES for _ in range(WARMUP + RUNS)]
    assert log.moves[: len(alone)] == alone
    rest = log.moves[len(alone) :]
    together = [
        (rank, way) for way in ("to_device", "from_device") for _ in range(1 + RUNS) for rank in (0, 1)
    ]
    assert rest == together
    each_way = [sum(one == (0, way) for one in log.moves) for way in TAKES]
    assert each_way[0] + each_way[2] == each_way[1] + each_way[2] == COPIED


def test_a_link_that_trains_up_in_the_first_copies_is_not_slow() -> None:
    one, other = measured(2, Log(), slow=3.0)
    assert (one.to_device, one.from_device, one.both) == (2.0, 3.0, 4.0)
    assert (other.to_device, other.to_device_low, other.from_device) == (6.0, 6.0, 9.0)
    assert (one.all_to_device, one.all_from_device) == (2.0, 3.0)
    assert (one.gpu, other.gpu, one.runs, one.size_bytes) == (0, 1, COPIED, SIZE)


def test_the_memory_is_made_on_cpus_near_the_gpu_and_nothing_else_stays_there() -> None:
    mine = sorted(os.sched_getaffinity(0))
    log = Log()
    found = measured(3, log, (str(mine[0]), f"{mine[-1]},9999", "9998-9999"))
    pins = {rank: (size, cpus) for rank, size, cpus in log.pins}
    assert pins[0] == (2 * SIZE, frozenset({mine[0]}))
    assert pins[1] == (2 * SIZE, frozenset({mine[-1]}))
    assert pins[2] == (2 * SIZE, frozenset(mine)), "no CPU near this one may be used"
    assert [one.near for one in found] == [True, True, False]
    assert [one.near for one in measured(1, Log())] == [None]
    assert os.sched_getaffinity(0) == set(mine)


def test_memory_is_near_only_where_the_nodes_of_these_cpus_have_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node full of what was read from files gives none: the kernel then takes that of another."""
    mine = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(hostlinks, "_NODES", tmp_path)
    assert [one.near for one in measured(1, Log(), (str(mine[0]),))] == [True], "no NUMA here"
    for number, (cpus, free) in enumerate(((mine[0], 8 * SIZE >> 10), (mine[-1], (8 * SIZE >> 10) - 1))):
        node = tmp_path / f"node{number}"
        node.mkdir()
        (node / "cpulist").write_text(f"{cpus}\n")
        (node / "meminfo").write_text(
            f"Node {number} MemTotal: 9999999 kB\nNode {number} MemFree:   {free} kB\n"
        )
    found = measured(2, Log(), (str(mine[0]), "9998-9999"))
    assert [one.near for one in found] == [True, False]
    assert [one.near for one in measured(2, Log(), (str(mine[0]), str(mine[-1])))] == [True, None]
    (tmp_path / "node0" / "meminfo").write_text("nothing\n")
    assert [one.near for one in measured(1, Log(), (str(mine[0]),))] == [None]
    (tmp_path / "node0" / "meminfo").unlink()
    assert [one.near for one in measured(1, Log(), (str(mine[0]),))] == [None]


def test_a_thread_goes_back_to_its_cpus_after_an_error() -> None:
    mine, seen = os.sched_getaffinity(0), []

    def work() -> None:
        with pytest.raises(EngineError), near(str(min(mine))):
            raise EngineError("driver", "as drawn")
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [mine]


def test_memory_that_is_refused_is_a_reason_and_no_error() -> None:
    gpus = [Host(0, Log()), Host(1, Log(), refuses="the CUDA driver says CUDA_ERROR_OUT_OF_MEMORY")]
    told = host_copies(gpus, plan(2))
    assert told == f"{4 * SIZE} bytes of the host's memory could not be pinned: {gpus[1]._refuses}"  # noqa: SLF001


@pytest.mark.parametrize(("free", "measures"), [(4 * SIZE, True), (4 * SIZE - 1, False)])
def test_no_more_than_half_of_free_memory_is_pinned(
    free: int, *, measures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostlinks, "free_bytes", lambda: free)
    log = Log()
    told = host_copies([Host(0, log)], plan(1))
    assert isinstance(told, list) is measures
    assert bool(log.pins) is measures
    if not measures:
        assert told == f"{2 * SIZE} bytes of the host's memory are to be pinned, and {free} are free"


def test_a_control_group_limits_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path("/proc/self/cgroup").read_text("ascii").rpartition("::/")[2].strip()
    whole = free_bytes()
    monkeypatch.setattr(hostlinks, "_CGROUPS", tmp_path)
    assert free_bytes() == pytest.approx(whole, rel=0.5)
    group = tmp_path / own
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text("5000000\n")
    (group / "memory.current").write_text("2000000\n")
    (group / "memory.stat").write_text("anon 1900000\ninactive_file 100000\nactive_file 7\n")
    assert free_bytes() == 3_100_000, "what was read from files goes when memory is asked for"
    (group / "memory.max").write_text("max\n")
    assert free_bytes() > 3_000_000


@given(st.sets(st.integers(0, 300)))
@example({0, 1, 2, 8})
def test_lists_of_cpus_are_read_as_the_kernel_writes_them(cpus: set[int]) -> None:
    assert parse_cpus(",".join(f"{one}-{one}" if one % 2 else str(one) for one in sorted(cpus))) == cpus


@given(st.text(max_size=20).filter(lambda text: not any(c.isdigit() for c in text)))
@example("")
@example("-")
@example("a-b")
def test_what_is_no_list_of_cpus_has_none(text: str) -> None:
    assert parse_cpus(text) == set()
