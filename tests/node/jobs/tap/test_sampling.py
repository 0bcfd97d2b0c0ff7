"""Which calls are timed: those at moments of the machine's clock, and never what a CUDA graph captures."""

from pathlib import Path

import pytest

from tests.node.jobs.tap.playing import BASE, MS, TIMED, Player, channel, collective

TIMES = [5_999, 6_000, 6_100, 6_199, 6_200, 7_999, 8_000, 8_001, 9_000]
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
def test_two_hundred_milliseconds_of_every_two_seconds(folder: Path, version: int) -> None:
    with Player(folder) as player:
        begin(player, version)
        assert masks(player, TIMES, version=version) == EXPECTED
        assert player.do("mask 0") == str(BASE)
        ring = player.ring()
    assert (ring.on_ms, ring.period_ms, ring.windows, ring.timing) == (200, 2000, 2, 0)


def test_interface_4_is_timed_only_where_the_job_asks_for_it(folder: Path) -> None:
    """It does not tell what is captured: the mask of all is written, at each collective."""
    found = []
    for settings in ({}, {"WIREWATCH_TAP_ON_MS": "200"}):
        with Player(folder, **settings) as player:
            begin(player, 4)
            player.do("other 4 0 1 1")
            for number, ms in enumerate(TIMES):
                player.all(f"clock {ms * MS + 1}\n{collective(4, number)}")
                found.append(int(player.do("mask 0")))
            ring = player.ring(-1)
            assert (ring.on_ms, ring.enqueued) == (200 if settings else 0, len(TIMES))
    assert found == [BASE] * len(TIMES) + EXPECTED


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


BAD = ["", " ", "-1", "0x10", "1e3", "10 ", "99999999999999999999", "86400001", "4294967297", "abc"]


@pytest.mark.parametrize("bad", [*BAD, "0"])
def test_a_bad_setting_is_the_default(folder: Path, bad: str) -> None:
    with Player(folder, WIREWATCH_TAP_ON_MS=bad if bad != "0" else "", WIREWATCH_TAP_PERIOD_MS=bad) as player:
        begin(player)
        ring = player.ring()
    assert (ring.on_ms, ring.period_ms) == (200, 2000)


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
        assert masks(player, [6_100, 8_100, 60_100]) == [BASE] * 3
        assert masks(player, [60_100], context=1) == [TIMED]
        rings = [player.ring(index) for index in (0, 1)]
    assert sorted((ring.captured, ring.windows, ring.timing) for ring in rings) == [(0, 1, 1), (1, 1, 0)]


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
