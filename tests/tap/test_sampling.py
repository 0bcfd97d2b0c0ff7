"""When channels are timed: by the machine's clock, and never for what a CUDA graph captures."""

from pathlib import Path

import pytest

from tests.tap.playing import BASE, MS, TIMED, Player, channel, collective


def masks(player: Player, times_ms: list[int], version: int = 5) -> list[int]:
    """The mask after a collective at each time."""
    found = []
    for number, ms in enumerate(times_ms):
        player.all(f"clock {ms * MS + 1}\n{collective(version, number)}")
        found.append(int(player.do("mask 0")))
    return found


def begin(player: Player, version: int = 5) -> None:
    player.do(f"init {version} 0 1 1 2 0 -")
    player.do(f"call {version} 0 1 0")


@pytest.mark.parametrize("version", [4, 5, 6])
def test_two_hundred_milliseconds_of_every_two_seconds(folder: Path, version: int) -> None:
    with Player(folder) as player:
        begin(player, version)
        assert player.do("mask 0") == str(BASE)
        times = [5_999, 6_000, 6_100, 6_199, 6_200, 7_999, 8_000, 8_001, 9_000]
        expected = [BASE, TIMED, TIMED, TIMED, BASE, BASE, TIMED, TIMED, BASE]
        assert masks(player, times, version) == expected
        ring = player.ring()
    assert (ring.on_ms, ring.period_ms, ring.windows, ring.timing) == (200, 2000, 2, 0)


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
def test_a_captured_call_ends_timing_of_all_communicators_for_ten_seconds(folder: Path, kind: str) -> None:
    with Player(folder) as player:
        begin(player)
        player.do("init 5 1 2 1 2 0 other")
        assert masks(player, [6_000]) == [TIMED]
        assert player.do(f"{kind} 5 1 3 1").split() == ["0", "(nil)"]
        assert player.do("mask 0") == str(BASE)
        assert masks(player, [6_100, 8_100, 14_100, 16_100]) == [BASE, BASE, BASE, TIMED]
        rings = [player.ring(index) for index in (0, 1)]
    assert sorted((ring.captured, ring.windows) for ring in rings) == [(0, 2), (1, 0)]


def test_a_communicator_with_a_graph_is_not_timed_any_more(folder: Path) -> None:
    """Its kernels are numbered on the GPU alone from the first replay on: times would be of other ones."""
    with Player(folder) as player:
        begin(player)
        player.do("init 5 1 2 1 2 0 other")
        player.do("call 5 1 4 0")
        player.do("call 5 0 3 1")
        assert masks(player, [18_100]) == [BASE]
        player.do(f"clock {20_100 * MS}")
        assert player.do(collective(context=1, parent=4)).split()[1] != "(nil)"
        assert player.do("mask 0") == str(TIMED)
        assert player.do(collective()).split() == ["0", "(nil)"]
        assert player.do("mask 0") == str(TIMED)
        assert masks(player, [20_201]) == [BASE]
        rings = [player.ring(index) for index in (0, 1)]
        player.do("finalize 5 0")
        player.do("init 5 0 9 1 2 0 new")
        player.do("call 5 0 1 0")
        assert masks(player, [22_100]) == [TIMED]
    assert sorted((one.captured, one.enqueued, one.written) for one in rings) == [(0, 1, 0), (1, 3, 0)]


def test_replays_of_a_graph_are_neither_numbered_nor_recorded(folder: Path) -> None:
    """NCCL raises the number of a replayed collective only if its call had a handle: so it has none."""
    with Player(folder) as player:
        begin(player)
        captured = player.do("call 5 0 3 1").split()[1]
        assert captured == "(nil)"
        assert player.do(collective(parent=3)).split() == ["0", "(nil)"]
        player.all(channel(0, 10, 20) + channel(1, 10, 20))
        player.do("p2p 5 0 4 3 Send ncclInt8 1 1")
        assert player.do("other 5 0 5 1").split() == ["0", "(nil)"]
        assert player.do("other 5 0 5 256").split() == ["0", "(nil)"]
        ring = player.ring()
    assert (ring.enqueued, ring.written, ring.sends, ring.captured) == (0, 0, 0, 1)


def test_one_mask_for_all_communicators_of_an_nccl(folder: Path) -> None:
    """A communicator that comes or fails does not switch off the timing of another; the last one does."""
    with Player(folder) as player:
        begin(player)
        assert masks(player, [6_000]) == [TIMED]
        assert player.do("init 5 1 2 1 2 0 second").endswith(f" {TIMED}")
        player.do("setenv WIREWATCH_TAP_DIR /nonexistent")
        assert player.do("init 5 2 3 1 2 0 third") == f"0 (nil) {TIMED}"
        assert player.do("init 5 3 4 1 2 0 other 1") == "0 (nil) 0"
        player.do("finalize 5 0")
        assert player.do("mask 0") == str(TIMED)
        player.do("finalize 5 1")
        assert player.do("mask 0") == "0"


def test_two_nccls_in_a_process_have_a_mask_each(folder: Path) -> None:
    with Player(folder) as player:
        begin(player)
        player.do("init 5 1 2 1 2 0 second 1")
        player.do(f"clock {6_000 * MS}")
        player.do(collective())
        assert (player.do("mask 0"), player.do("mask 1")) == (str(TIMED), str(BASE))
        player.do("finalize 5 0")
        assert (player.do("mask 0"), player.do("mask 1")) == ("0", str(BASE))
