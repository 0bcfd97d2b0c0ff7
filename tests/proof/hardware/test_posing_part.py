"""The kit's part `posing`: collectives are compared one by one, and nothing timed passes no limit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from proof.hardware.kit import Report
from proof.hardware.posing import AROUND, compare, counts, events_of, graphs, taken_of
from tests.proof.hardware.test_tap_part import SIZE, reading
from wirewatch.core.jobs import RasCommunicator, RasRank, RasReport
from wirewatch.core.probe import ALL_REDUCE

KEYS = [(rank, ALL_REDUCE, SIZE) for rank in (0, 1)]
TAKEN = [1e-3, 1.2e-3, 0.9e-3]


def checked(folder: Path, more: list[float], taken: list[float]) -> dict[str, bool]:
    report = Report("posing", folder)
    events = {key: [1e-3, *(a + b for a, b in zip(TAKEN, more, strict=True))] for key in KEYS}
    compare(report, events, dict.fromkeys(KEYS, taken))
    return {one["name"]: one["ok"] for one in report.checks}


@pytest.mark.parametrize(
    ("more", "taken", "right"),
    [
        ([5e-6] * 3, TAKEN, True),
        ([5e-6, -9e-6, 5e-6], TAKEN, False),
        ([2 * AROUND] * 3, TAKEN, False),
        ([5e-6] * 3, TAKEN[:2], False),
        ([5e-6] * 3, [], False),
    ],
)
def test_a_kernel_takes_no_longer_than_the_events_around_it(
    tmp_path: Path, more: list[float], taken: list[float], *, right: bool
) -> None:
    found = checked(tmp_path, more, taken)
    assert found
    assert all(found.values()) is right


def test_the_events_of_each_rank_and_size_are_read_beside_other_lines() -> None:
    line = {"rank": 1, "op": ALL_REDUCE, "size": SIZE, "seconds": TAKEN}
    assert events_of(["READY 1 2", f"EAGER {json.dumps(line)}", "STEADY "]) == {KEYS[1]: TAKEN}


def test_what_the_tap_timed_is_in_nccls_order() -> None:
    assert taken_of([reading(1, {3: 0.3, 2: 0.2})]) == {KEYS[1]: [0.2, 0.3]}


@pytest.mark.parametrize(("timed", "launched", "right"), [((), 50, True), ((1,), 50, False), ((), 20, False)])
def test_a_communicator_with_a_graph_launches_and_is_not_timed(
    tmp_path: Path, timed: tuple[int, ...], launched: int, *, right: bool
) -> None:
    graph = {"captured": 8, "replays": 20, "after": 30, "size": SIZE}
    readings = []
    for rank in (0, 1):
        other = reading(rank, {})
        made = replace(other.ring.counts, captured=8, calls={ALL_REDUCE: launched})
        late = reading(rank, dict.fromkeys(timed, 1e-3))
        readings += [other, replace(late, ring=replace(late.ring, counts=made))]
    report = Report("posing", tmp_path)
    graphs(report, readings, graph)
    assert [one["ok"] for one in report.checks] == [True, right]


def test_what_a_process_launched_is_of_all_its_communicators() -> None:
    def communicator(launched: int) -> RasCommunicator:
        ranks = [RasRank(n, "h", pid, 0, 0, {ALL_REDUCE: launched}) for n, pid in enumerate((71, 72))]
        return RasCommunicator("a", "b", 2, tuple(ranks))

    report = RasReport("2.28.9", (communicator(1001), communicator(90)), 0.0)
    assert counts([report]) == {71: 1091, 72: 1091}
