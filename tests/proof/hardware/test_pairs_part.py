"""The kit's part `pairs`: what is slowed has to be named, by answers that came in time over those wires."""

from itertools import cycle, pairwise
from pathlib import Path

import pytest

from proof.fleet.pairs.faults import Slowed
from proof.hardware.kit import Report
from proof.hardware.pairs import NODES, RATE, ROUND, SLOW, judge, slowed
from wirewatch_fleet.pairs.document import RoundsDocument, rounds_document
from wirewatch_fleet.pairs.model import MeasuredRound, PairEnd, PairFleet, PairMember, PairRun
from wirewatch_fleet.pairs.plan import PlannedRound, next_step

SOCKET = "NET/Socket"
FULL = RATE / 8


def rate(source: str, destination: str, slow: frozenset[tuple[str, ...]], part: float) -> float:
    """Bytes per second, by what is slowed and a spread of 0.2 %."""
    held = (source, "sends") in slow or (destination, "receives") in slow
    return FULL * (SLOW if held else 1) * (1 + 0.002 * part)


def measured(slow: frozenset[tuple[str, ...]], transport: str = SOCKET) -> RoundsDocument:
    """Rounds as the planner wants them, until its verdict."""
    parts = cycle([0.3, -0.5, 1.0, 0.1, -1.0, 0.6, -0.2, 0.9, -0.7, 0.4, -0.1])
    fleet = PairFleet(tuple(PairMember(name) for name in NODES))
    rounds: list[MeasuredRound] = []
    while isinstance(step := next_step(fleet, rounds), PlannedRound):
        runs = [
            PairRun(
                a, b, rate(a, b, slow, next(parts)), rate(b, a, slow, next(parts)),
                ends={a: PairEnd(transport), b: PairEnd(transport)},
            )
            for a, b in step.round.pairs
        ]  # fmt: skip
        rounds.append(MeasuredRound(step.round, runs))
    return rounds_document(0.0, fleet, rounds)


def failing(
    folder: Path, title: str, made: RoundsDocument, seconds: tuple[float, ...] = (9.0, 9.0, 9.0)
) -> list[str]:
    one = next(each for each in slowed(RATE) if each.title == title)
    report = Report("pairs", folder)
    judge(report, one, made, seconds, SOCKET)
    return [check["name"] for check in report.checks if not check["ok"]]


@pytest.mark.parametrize("one", slowed(RATE), ids=lambda one: one.title)
def test_what_is_slowed_and_named_passes(tmp_path: Path, one: Slowed) -> None:

    assert failing(tmp_path, one.title, measured(one.named)) == []


def test_every_slowed_way_is_asked_for(tmp_path: Path) -> None:
    for first, second in pairwise(slowed(RATE)):
        assert failing(tmp_path, second.title, measured(first.named)) == [second.title]


def test_an_answer_that_did_not_come_fails(tmp_path: Path) -> None:
    made = measured(frozenset())
    pair = made.rounds[1].runs[0]
    made.rounds[1].runs[0] = PairRun(pair.first, pair.second, failed="n3: failed: timeout: 60 s")
    assert failing(tmp_path, "nothing is slowed", made) == ["nothing is slowed"]


def test_nothing_measured_passes_no_limit(tmp_path: Path) -> None:
    made = RoundsDocument("wirewatch.fleet-rounds/1", 0.0, [PairMember(name) for name in NODES], [])
    assert len(failing(tmp_path, "nothing is slowed", made, ())) == 3


def test_a_round_that_takes_too_long_fails(tmp_path: Path) -> None:
    late = (9.0, ROUND + 1, 9.0)
    assert len(failing(tmp_path, "nothing is slowed", measured(frozenset()), late)) == 1


def test_another_way_than_the_slowed_wires_fails(tmp_path: Path) -> None:
    made = measured(frozenset(), "P2P/CUMEM")
    assert len(failing(tmp_path, "nothing is slowed", made)) == 1
