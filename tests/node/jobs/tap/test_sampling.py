"""How calls are timed, and never what a CUDA graph captures; which ones: test_pace.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.jobs.tap.playing import BASE, MS, TIMED, Player, channel, collective

TIMES = [5_999, 6_000, 6_100, 6_199, 6_200, 7_999, 8_000, 8_001, 9_000]
SWITCHED_OFF, NOT_MEASURED, ELSEWHERE, CAPTURED, BROADCASTS, MASK_CHANGED = 1, 2, 3, 4, 5, 6
"""`ww_untimed` of ring.h."""
EXPECTED = [BASE, TIMED, TIMED, TIMED, BASE, BASE, TIMED, TIMED, BASE]


def masks(player: Player, times_ms: list[int], context: int = 0, version: int = 5) -> list[int]:
    """The mask that NCCL goes by for a collective at each time."""
    found = []
    for number, ms in enumerate(times_ms):
        player.do(f"clock {ms * MS + 1}")
        result, _, mask, changed = player.do(f"call {version} {context} 1 0").split()
        assert (result, changed) == ("0", "0")
        player.do(collective(version, number, context=context))
        found.append(int(mask))
    return found


def begin(player: Player, version: int = 5) -> None:
    player.do(f"init {version} 0 1 1 2 0 -")


@pytest.mark.parametrize("version", [5, 6])
def test_a_part_of_every_period_alone_where_the_job_asks_for_it(folder: Path, version: int) -> None:
    with Player(folder, WIREWATCH_TAP_ON_MS="200") as player:
        begin(player, version)
        assert masks(player, TIMES, version=version) == EXPECTED
        assert player.do("mask 0") == str(BASE)
        ring = player.ring()
    assert (ring.on_ms, ring.period_ms, ring.windows, ring.timing) == (200, 2000, 2, 0)


@pytest.mark.parametrize(("on", "timed"), [("200", [True, True, False]), ("0", [False, False, False])])
def test_a_window_has_its_first_nanosecond_and_not_the_one_after_its_last(
    folder: Path, on: str, timed: list[bool]
) -> None:
    found = []
    with Player(folder, WIREWATCH_TAP_ON_MS=on) as player:
        begin(player)
        for moment in (6_000 * MS, 6_200 * MS - 1, 6_200 * MS):
            player.do(f"clock {moment}")
            found.append(player.do("call 5 0 1 0").split()[2] == str(TIMED))
    assert found == timed


@pytest.mark.parametrize(
    ("version", "nccl", "why"),
    [(5, 22807, NOT_MEASURED), (6, 22907, NOT_MEASURED), (6, 23007, NOT_MEASURED), (7, 23203, NOT_MEASURED),
     (5, 0, NOT_MEASURED), (5, 22809, 0), (4, 22809, NOT_MEASURED)],
)  # fmt: skip
def test_an_nccl_that_was_not_measured_is_counted(folder: Path, version: int, nccl: int, why: int) -> None:
    """No mask and no call gets the channels, and what is played nonetheless gets no record."""
    with Player(folder) as player:
        player.do(f"nccl {nccl}")
        begin(player, version)
        if version > 4:
            assert masks(player, [6_000], version=version) == [TIMED if why == 0 else BASE]
        else:
            player.all(f"other 4 0 1 1\nclock {6_000 * MS}\n{collective(4, 1)}")
        assert player.do("mask 0") == str(BASE)
        ring = player.ring()
    assert (ring.enqueued, ring.untimed, ring.windows) == (1, why, int(why == 0))


def test_who_measures_an_nccl_times_it(folder: Path) -> None:
    with Player(folder, WIREWATCH_TAP_UNMEASURED="1") as player:
        player.do("nccl 22907")
        begin(player, 6)
        assert masks(player, [6_000], version=6) == [TIMED]


def test_a_call_outside_of_thread_local_variables_is_not_written(folder: Path) -> None:
    """It looks like NCCL's in every other way: the tap's mask is where it should be."""
    with Player(folder) as player:
        begin(player)
        player.do("stack 1")
        assert masks(player, [6_000]) == [BASE]
        player.do("stack 0")
        assert masks(player, [6_000]) == [TIMED]


@pytest.mark.parametrize(("version", "why"), [(5, ELSEWHERE), (7, 0)])
def test_where_nccl_keeps_its_calls_matters_where_a_call_is_written(
    folder: Path, version: int, why: int
) -> None:
    """NCCL is found by its log, which this communicator has not; interface 7 writes to the mask of init."""
    with Player(folder, WIREWATCH_TAP_UNMEASURED="1") as player:
        player.do(f"init {version} 0 1 1 2 0 - 0 quiet")
        assert masks(player, [6_000], version=version) == [BASE if why else TIMED]
        assert player.ring().untimed == why


class TestInterface7:
    """Every call from the first on, by the mask of init, until something ends it for good."""

    @pytest.fixture
    def player(self, folder: Path) -> Iterator[Player]:
        with Player(folder, WIREWATCH_TAP_UNMEASURED="1") as player:
            begin(player, 7)
            yield player

    def test_all_are_timed_whatever_the_clock_says(self, player: Player) -> None:
        assert masks(player, [5_000, 6_000, 7_000], version=7) == [TIMED] * 3
        ring = player.ring()
        assert (ring.on_ms, ring.period_ms, ring.timing, ring.untimed) == (2000, 2000, 1, 0)
        assert (ring.budget, ring.block, ring.stride) == (0, 0, 1)

    def test_a_broadcast_ends_it(self, player: Player) -> None:
        """NCCL counts it on the GPU alone: later times would be those of other collectives."""
        player.do("call 7 0 1 0 Broadcast")
        assert masks(player, [6_000], version=7) == [BASE]
        assert player.do(collective(7)).split() == ["0", "(nil)"]
        ring = player.ring()
        assert (ring.untimed, ring.timing, player.do("mask 0")) == (BROADCASTS, 0, str(BASE))

    def test_a_captured_call_ends_it(self, player: Player) -> None:
        player.do("call 7 0 1 1")
        assert masks(player, [6_000], version=7) == [BASE]
        assert player.ring().untimed == CAPTURED

    def test_a_mask_without_the_channels_ends_it(self, player: Player) -> None:
        """RAS can take them out for a whole job, and put them back."""
        player.do(f"maskset 0 {BASE}")
        assert masks(player, [6_000], version=7) == [BASE]
        player.do(f"maskset 0 {TIMED}")
        assert player.do(collective(7)).split() == ["0", "(nil)"]
        assert player.ring().untimed == MASK_CHANGED

    def test_the_channels_stay_while_another_communicator_needs_them(self, player: Player) -> None:
        player.do("init 7 1 2 1 2 0 second")
        player.do("call 7 0 1 1")
        assert masks(player, [6_000], context=1, version=7) == [TIMED]
        player.do("call 7 1 1 1")
        assert player.do("mask 0") == str(BASE)
        player.do("init 7 2 3 1 2 0 third")
        assert player.do("mask 0") == str(TIMED)

    def test_a_communicator_that_is_gone_needs_no_channels(self, player: Player) -> None:
        player.do("init 7 1 2 1 2 0 second")
        player.do("finalize 7 1")
        player.do("call 7 0 1 1")
        assert player.do("mask 0") == str(BASE)

    def test_another_nccl_of_the_process_has_channels_of_its_own(self, player: Player) -> None:
        player.do("init 7 1 2 1 2 0 second 1")
        player.do("call 7 0 1 1")
        assert (player.do("mask 0"), player.do("mask 1")) == (str(BASE), str(TIMED))

    def test_it_can_be_switched_off(self, folder: Path) -> None:
        with Player(folder, WIREWATCH_TAP_UNMEASURED="1", WIREWATCH_TAP_ON_MS="0") as player:
            begin(player, 7)
            assert masks(player, [6_000], version=7) == [BASE]
            assert player.ring(-1).untimed == SWITCHED_OFF


@pytest.mark.parametrize("words", ["-3", "-1", "1", "2", "5", ""])
def test_where_nccl_keeps_a_call_elsewhere_nothing_is_timed_or_written(folder: Path, words: str) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(f"layout {words}")
        assert masks(player, [6_000, 6_100]) == [BASE, BASE]
        ring = player.ring()
    assert (ring.enqueued, ring.windows, ring.timing) == (2, 0, 0)


def test_a_mask_that_somebody_else_has_set_stays(folder: Path) -> None:
    """NCCL from 2.31 on lets an operator set it for a whole job: nothing is timed then."""
    with Player(folder) as player:
        player.do("maskset 0 512")
        begin(player)
        assert masks(player, [6_000]) == [512]
        assert player.do("mask 0") == "512"


@pytest.mark.parametrize(
    ("on", "period", "timed"),
    [
        ("0", "2000", [False, False]),
        ("10", "10", [True, True]),
        ("500", "100", [True, True]),
        ("900", "1000", [True, False]),
        ("1", "86400000", [False, False]),
    ],
)
def test_settings(folder: Path, on: str, period: str, timed: list[bool]) -> None:
    with Player(folder, WIREWATCH_TAP_ON_MS=on, WIREWATCH_TAP_PERIOD_MS=period) as player:
        begin(player)
        assert [mask == TIMED for mask in masks(player, [5_500, 5_950])] == timed
        ring = player.ring()
    assert (ring.on_ms, ring.period_ms) == (int(on), int(period))


@pytest.mark.parametrize("version", [5, 7])
def test_no_budget_times_nothing(folder: Path, version: int) -> None:
    with Player(folder, WIREWATCH_TAP_UNMEASURED="1", WIREWATCH_TAP_BUDGET="0") as player:
        begin(player, version)
        assert masks(player, [6_000], version=version) == [BASE]
        assert player.ring().untimed == SWITCHED_OFF


BAD = ["", " ", "-1", "0x10", "1e3", "10 ", "99999999999999999999", "86400001", "4294967297", "abc"]


@pytest.mark.parametrize("bad", [*BAD, "0"])
def test_a_bad_setting_is_the_default(folder: Path, bad: str) -> None:
    with Player(folder, WIREWATCH_TAP_ON_MS=bad if bad != "0" else "", WIREWATCH_TAP_PERIOD_MS=bad) as player:
        begin(player)
        ring = player.ring()
    assert (ring.on_ms, ring.period_ms) == (2000, 2000)


@pytest.mark.parametrize("kind", ["call", "p2pcall"])
def test_a_captured_call_is_not_timed_and_its_communicator_never_again(folder: Path, kind: str) -> None:
    """The first one neither, at a moment of timing: NCCL would wait for a time that never comes."""
    with Player(folder) as player:
        begin(player)
        player.do("init 5 1 2 1 2 0 other")
        assert masks(player, [6_000]) == [TIMED]
        answer = player.do(f"{kind} 5 0 3 1").split()
        assert answer[:2] == ["0", "(nil)"]
        assert answer[2:] in ([], [str(BASE), "0"])
        assert [player.ring(index).timing for index in (0, 1)] == [0, 0]
        assert masks(player, [6_100, 8_100, 60_100]) == [BASE] * 3
        assert masks(player, [60_100], context=1) == [TIMED]
        rings = [player.ring(index) for index in (0, 1)]
    assert sorted((ring.captured, ring.windows, ring.timing) for ring in rings) == [(0, 1, 1), (1, 1, 0)]


def test_a_captured_call_is_not_timed_for_another_communicator(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do("init 5 1 2 1 2 0 other")
        player.do(f"clock {6_000 * MS}")
        assert player.do("call 5 1 3 1").split()[1:] == ["(nil)", str(BASE), "0"]
        rings = [player.ring(index) for index in (0, 1)]
    assert [(ring.windows, ring.timing) for ring in rings] == [(0, 0), (0, 0)]


def test_a_send_within_a_window_ends_no_window(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        assert masks(player, [6_000]) == [TIMED]
        player.do("p2pcall 5 0 1 0")
        assert player.ring().timing == 1
        assert masks(player, [6_100]) == [TIMED]
        assert player.ring().windows == 1


def test_a_communicator_after_one_with_a_graph_is_timed(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do("call 5 0 3 1")
        assert masks(player, [18_100]) == [BASE]
        assert player.do(collective()).split() == ["0", "(nil)"]
        ring = player.ring()
        player.do("finalize 5 0")
        player.do("init 5 0 9 1 2 0 new")
        assert masks(player, [22_100]) == [TIMED]
    assert (ring.captured, ring.enqueued, ring.written) == (1, 2, 0)


@pytest.mark.parametrize("captured", [0, 1])
def test_sends_are_never_timed(folder: Path, captured: int) -> None:
    with Player(folder) as player:
        begin(player)
        player.do(f"clock {6_000 * MS}")
        player.do(f"p2pcall 5 0 1 {captured}")
        assert player.do("mask 0") == str(BASE)
        assert player.ring().timing == 0


def test_replays_of_a_graph_are_neither_numbered_nor_recorded(folder: Path) -> None:
    """NCCL raises the number of a replayed collective only if its call had a handle: so it has none."""
    with Player(folder) as player:
        begin(player)
        assert player.do("call 5 0 3 1").split()[1] == "(nil)"
        assert player.do(collective(parent=3)).split() == ["0", "(nil)"]
        player.all(channel(0, 10, 20) + channel(1, 10, 20))
        player.do("p2p 5 0 4 3 Send ncclInt8 1 1")
        assert player.do("other 5 0 5 1").split() == ["0", "(nil)"]
        assert player.do("other 5 0 5 256").split() == ["0", "(nil)"]
        ring = player.ring()
    assert (ring.enqueued, ring.written, ring.sends, ring.captured) == (0, 0, 0, 1)


def test_one_mask_for_all_communicators_of_an_nccl(folder: Path) -> None:
    """A communicator that comes or fails does not end the timing of another; the last one does."""
    with Player(folder) as player:
        begin(player)
        assert player.do("init 5 1 2 1 2 0 second").endswith(f" {BASE}")
        player.do("setenv WIREWATCH_TAP_DIR /nonexistent")
        assert player.do("init 5 2 3 1 2 0 third") == f"0 (nil) {BASE}"
        assert player.do("init 5 3 4 1 2 0 other 1") == "0 (nil) 0"
        assert masks(player, [6_000]) == [TIMED]
        player.do("finalize 5 0")
        assert masks(player, [6_100], context=1) == [TIMED]
        assert player.do("mask 0") == str(BASE)
        player.do("finalize 5 1")
        assert player.do("mask 0") == "0"


def test_two_nccls_in_a_process_have_a_mask_each(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do("init 5 1 2 1 2 0 second 1")
        assert (masks(player, [6_000]), masks(player, [6_100], context=1)) == ([TIMED], [TIMED])
        player.do("finalize 5 0")
        assert (player.do("mask 0"), player.do("mask 1")) == ("0", str(BASE))
