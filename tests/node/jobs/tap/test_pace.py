"""Timing follows the work: whole blocks, the same on all ranks, to a budget, and all parts of a step."""

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.jobs.tap.pacing import BLOCK, Process, chosen, runs
from tests.node.jobs.tap.playing import MS, Player, memory_folder

SECOND_NS = 1000 * MS
BUDGET = 50
IDS = st.integers(0, 2**64 - 1)


def begin(player: Player, context: int = 0, number: int = 1) -> None:
    player.do(f"init 5 {context} {number} 1 2 0 -")


def played(player: Player, calls: int, every_ns: int, context: int = 0) -> list[tuple[int, int]]:
    """The runs of timed calls, each as its first and its length."""
    *words, end = player.do(f"pace 5 {context} {calls} {every_ns}").split()
    assert end == "."
    found = [word.split("+") for word in words]
    return [(int(first), int(length)) for first, length in found]


def numbers(found: Sequence[tuple[int, int]]) -> set[int]:
    return {number for first, length in found for number in range(first, first + length)}


class TestChosenBlocks:
    @given(communicator=IDS, halvings=st.integers(0, 12), run=st.integers(0, 2**40))
    def test_one_of_each_run(self, communicator: int, halvings: int, run: int) -> None:
        blocks = range(run << halvings, run + 1 << halvings)
        assert sum(chosen(communicator, block, halvings) for block in blocks) == 1

    @given(communicator=IDS, block=st.integers(0, 2**40), halvings=st.integers(0, 20))
    def test_those_of_a_coarser_stride_are_among_those_of_a_finer(
        self, communicator: int, block: int, halvings: int
    ) -> None:
        if chosen(communicator, block, halvings + 1):
            assert chosen(communicator, block, halvings)

    @pytest.mark.parametrize("step", [64, 96, 128, 200, 1024])
    @pytest.mark.parametrize("halvings", [1, 3, 5])
    def test_each_position_of_a_step_is_timed_as_often(self, step: int, halvings: int) -> None:
        """Over 10,000 steps, within five standard deviations of drawing blocks at random."""
        steps = 10_000
        times = [0] * step
        for block in range(steps * step // BLOCK):
            if chosen(0xC0FFEE, block, halvings):
                for call in range(block * BLOCK, block * BLOCK + BLOCK):
                    times[call % step] += 1
        due = steps / 2**halvings
        assert max(abs(found - due) for found in times) <= 5 * due**0.5


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(1, 150), st.sampled_from([1000, MS, 7 * MS, 400 * MS, 11_000 * MS])
    ),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=examples(30))
@given(budget=st.sampled_from([1, 7, 50]), ids=st.tuples(IDS, IDS), changes=CHANGES)
def test_the_tap_times_the_calls_that_its_rule_says(
    budget: int, ids: tuple[int, int], changes: list[tuple[int, int, int]]
) -> None:
    """Of two communicators whose rates change as they like."""
    with memory_folder() as folder, Player(folder, WIREWATCH_TAP_BUDGET=str(budget)) as player:
        now, process = 5_000 * MS, Process(budget)
        for context, number in enumerate(ids):
            begin(player, context, number)
        both = [process.communicator(number, now // MS) for number in ids]
        for context, calls, every_ns in changes:
            times = [now + (place + 1) * every_ns for place in range(calls)]
            now = times[-1]
            assert played(player, calls, every_ns, context) == runs(
                [both[context].call(time // MS) for time in times]
            )
        strides = {ring.communicator: ring.stride for ring in map(player.ring, (0, 1))}
    assert ids[0] == ids[1] or strides == {one.number: 1 << one.halvings for one in both}


@pytest.mark.parametrize("rate", [1, 5, 20, 49, 60, 90, 130, 400, 1000, 3000, 10_000, 50_000])
def test_the_budget_is_kept(folder: Path, rate: int) -> None:
    """Once the rate is known: every call up to the budget, else the budget within a factor of two."""
    with Player(folder, "PLAIN") as player:
        begin(player)
        played(player, 10 * rate, SECOND_NS // rate)
        found = numbers(played(player, 200 * rate, SECOND_NS // rate))
        ring = player.ring()
    assert (ring.budget, ring.block) == (BUDGET, BLOCK)
    if rate <= BUDGET:
        assert len(found) == 200 * rate
        assert ring.stride == 1
    else:
        assert BUDGET / 2 <= len(found) / 200 <= 2 * BUDGET


def test_a_rate_that_jumps_is_bounded_at_once(folder: Path) -> None:
    """From one call a second to 50,000: 375 calls are timed before the stride rises."""
    with Player(folder, "PLAIN") as player:
        begin(player)
        played(player, 20, SECOND_NS)
        found = [len(numbers(played(player, 5_000, 20_000))) for _ in range(50)]
    assert sum(found) <= 2_500
    assert sum(found[10:]) / 4 <= 8 * BUDGET


def test_whole_blocks_are_timed(folder: Path) -> None:
    with Player(folder, "PLAIN") as player:
        begin(player)
        played(player, 32 * 1000, MS)
        found = played(player, 32 * 2000, MS)
    assert all(first % BLOCK == 0 and length % BLOCK == 0 for first, length in found)
    starts = [first for first, _ in found]
    stride = 16  # 1000 a second, and 75 at most
    assert max(b - a for a, b in pairwise(starts)) < 2 * stride * BLOCK


def test_what_is_made_of_a_start_is_forgotten(folder: Path) -> None:
    """3,000 broadcasts within a second; then a call each 10 s, of which all are timed half a minute later."""
    with Player(folder, "PLAIN") as player:
        begin(player)
        played(player, 3_000, SECOND_NS // 3_000)
        assert player.ring().stride == 8
        played(player, 3, 10 * SECOND_NS)
        assert player.ring().stride == 1
        assert played(player, 40, 10 * SECOND_NS) == [(0, 40)]


def test_a_step_whose_calls_come_at_once_is_timed_alike_all_through(folder: Path) -> None:
    """500 within half a second of every 5 s: the pause before them does not make the first ones denser."""
    times = [0] * 500
    with Player(folder, "PLAIN") as player:
        begin(player)
        for step in range(220):
            for place in numbers(played(player, 500, MS)):
                times[place] += step >= 20
            player.do(f"clock {(5_000 + (step + 1) * 5_000) * MS}")
    halves = sum(times[:250]), sum(times[250:])
    assert min(halves) > 0.8 * max(halves)
    assert min(times) > 0
    assert BUDGET / 4 <= sum(times) / 1000 <= 2 * BUDGET


def test_a_slow_communicator_is_timed_whole_beside_a_fast_one(folder: Path) -> None:
    found = {0: 0, 1: 0}
    with Player(folder, "PLAIN") as player:
        begin(player, 0, 7)
        begin(player, 1, 8)
        for second in range(120):
            for context, calls in ((0, 2_000), (1, 3)):
                timed = len(numbers(played(player, calls, SECOND_NS // calls // 2, context)))
                found[context] += timed if second >= 20 else 0
    assert found[1] == 300
    assert BUDGET / 2 <= (found[0] + found[1]) / 100 <= 2 * BUDGET


def test_ranks_time_the_same_calls_though_their_clocks_and_rates_differ(folder: Path) -> None:
    """Two processes in lockstep, one polled by noise: what both time is what the coarser one does."""
    both = list[set[int]]()
    with ExitStack() as open_until_then:
        for rank, jitter in ((0, 0), (1, 3 * MS)):
            place = folder / str(rank)
            place.mkdir()
            player = open_until_then.enter_context(Player(place, "PLAIN"))
            begin(player, 0, 0xBEEF)
            found = set[int]()
            for step in range(400):
                player.do(f"clock {(6_000 + step * 250) * MS + jitter * (step % 5)}")
                found |= {100 * step + one for one in numbers(played(player, 100, 1000 + jitter // 100))}
            both.append(found)
    less, more = sorted(both, key=len)
    assert less <= more
    assert len(less) > 0.9 * len(more)
    assert BUDGET / 2 <= len(less) / 100 <= 2 * BUDGET


@pytest.mark.parametrize(("bad", "budget"), [("", 50), ("x", 50), ("-1", 50), ("86400001", 50), ("7", 7)])
def test_a_budget_that_is_no_number_is_the_default(folder: Path, bad: str, budget: int) -> None:
    with Player(folder, WIREWATCH_TAP_BUDGET=bad) as player:
        begin(player)
        assert player.ring().budget == budget


def test_a_communicator_with_a_graph_needs_nothing_of_the_budget(folder: Path) -> None:
    """It would leave half of it to the other one, whose 60 calls a second would be too many."""
    with Player(folder, "PLAIN") as player:
        begin(player, 0, 7)
        begin(player, 1, 8)
        played(player, 10_000, 100_000, 0)
        player.do("call 5 0 3 1")
        assert played(player, 300, SECOND_NS // 60, 1) == [(0, 300)]


def test_a_stall_of_four_seconds_in_one_of_25_steps_is_among_the_times(folder: Path) -> None:
    """Twelve calls a step of 137 ms, 40 a second in all: every call is timed."""
    with Player(folder, "PLAIN") as player:
        begin(player)
        for step in range(250):
            player.do(f"clock {(6_000 + step * 137 + step // 25 * 4_000) * MS}")
            assert played(player, 12, MS) == [(0, 12)]
