"""The sums of the kit: medians of two witnesses, preemptions, start-ups, ways that NCCL is sent."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proof.hardware import startup
from proof.hardware.comparing import compare, farthest, percent
from proof.hardware.faults import WAYS, judge_way
from proof.hardware.kit import KitError, Report, chosen
from proof.hardware.preemption import SLACK, Comer, Ended, Trial, freed_at, judge, trial

GIB = 1 << 30


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report("kit", tmp_path)


def failed(report: Report) -> list[str]:
    return [check["name"] for check in report.checks if not check["ok"]]


def test_medians_are_compared() -> None:
    found = compare({"a": [10.0, 11.0, 90.0], "b": [2.0], "c": [1.0]}, {"a": [11.0, 11.0, 11.22], "b": [1.9]})
    assert list(found) == ["a", "b"]
    assert found["a"].off == pytest.approx(0.0)
    assert found["a"].spread == pytest.approx(0.02)
    where, off = farthest(found) or ("", 0.0)
    assert (where, percent(off)) == ("b", "-5.00 %")
    assert percent(compare({8: [0.0]}, {8: [0.01]})[8].off) == "-"
    assert farthest({}) is None


@given(st.lists(st.floats(1.0, 1e12), min_size=1), st.floats(0.5, 2.0))
def test_a_witness_that_is_off_by_a_factor(values: list[float], factor: float) -> None:
    found = compare({1: values}, {1: [value * factor for value in values]})
    assert found[1].off == pytest.approx(factor - 1)


def test_pieces_are_those_that_are_named_and_no_other_name_is_taken() -> None:
    assert chosen(None, ("cost", "latency")) == ("cost", "latency")
    assert chosen(["latency"], ("cost", "latency")) == ["latency"]
    with pytest.raises(KitError, match="no piece 'lateness': there are cost, latency"):
        chosen(["lateness"], ("cost", "latency"))


def test_a_piece_that_cannot_be_done_is_a_limit_that_fails(report: Report) -> None:
    def impossible() -> None:
        raise KitError("no such thing")

    report.attempt("this", impossible)
    report.attempt("that", lambda: report.check("done", ok=True))
    report.attempt("a bug", lambda: 1 // len(report.part[:0]))
    assert failed(report) == ["this could be done", "a bug could be done"]
    assert "no such thing" in report.checks[0]["told"]
    assert json.loads((report.out / "kit.json").read_text("utf-8"))["ok"] is False


def test_memory_is_free_when_it_no_longer_falls() -> None:
    used = [(1.0, [3 * GIB, 3 * GIB]), (2.0, [GIB, 3 * GIB]), (3.0, [GIB, GIB]), (4.0, [GIB + SLACK, GIB])]
    assert freed_at(used) == 3.0
    assert freed_at(used[:1]) == 1.0
    assert math.isnan(freed_at([]))


COMER = Comer(pid=4321, gpu=1, moment=0.7, began=99.8, ready=100.3)
AWAY = Ended("preempted", "a process that is not the probe's came to GPU 1: 4321", document=False)
SEEN: dict[str, Any] = {
    "visible": 100.0, "unseen": 99.998, "killed": 100.012, "dead": 100.3, "slowest_look": 0.004,
    "used": [(99.0, [3 * GIB, 3 * GIB]), (100.25, [GIB, 2 * GIB])],
}  # fmt: skip


def test_a_preemption_in_seconds_since_it_could_be_seen() -> None:
    made = trial(7, COMER, AWAY, SEEN, [GIB, GIB])
    assert made.good
    told = [made.killed, made.at_most, made.dead, made.freed]
    assert told == pytest.approx([0.012, 0.014, 0.3, 0.25])
    assert made.kept == 0
    assert "killed 12.0 ms" in made.line()


@pytest.mark.parametrize(
    "ended",
    [
        Ended("ok", "", document=True),
        Ended("preempted", AWAY.why, document=True),
        Ended("preempted", "the processes on GPU 1 cannot be read", document=False),
        Ended("preempted", AWAY.why.replace("4321", "14321"), document=False),
    ],
)
def test_another_end_is_no_preemption_by_it(ended: Ended) -> None:
    assert not trial(0, COMER, ended, SEEN, [GIB, GIB]).good


def test_who_was_never_seen_ended_nothing() -> None:
    seen = {**SEEN, "visible": None}
    assert not trial(0, COMER, AWAY, seen, [GIB, GIB]).good


def test_who_could_be_seen_before_it_came_proves_nothing() -> None:
    with pytest.raises(KitError, match="before it came"):
        trial(0, COMER, AWAY, {**SEEN, "visible": 99.0}, [GIB, GIB])


def _trials(*killed: float) -> list[Trial]:
    return [
        trial(n, COMER, AWAY, {**SEEN, "killed": 100.0 + one, "dead": 100.0 + one + 0.2}, [GIB, GIB])
        for n, one in enumerate(killed)
    ]


def test_fifty_good_preemptions(report: Report) -> None:
    judge(report, _trials(*[0.02] * 49, 0.099), 50)
    assert report.ok
    rows = {row[0]: row[1:] for row in next(iter(report.data["tables"].values()))["rows"]}
    assert rows["killed"] == [pytest.approx(20.0), pytest.approx(20.0), pytest.approx(99.0)]
    assert rows["(its own context)"][0] == pytest.approx(500.0)


def test_one_that_is_late_fails(report: Report) -> None:
    judge(report, _trials(*[0.02] * 49, 0.101), 50)
    assert [name[:14] for name in failed(report)] == ["SIGKILL within"]


def test_one_that_is_missing_fails(report: Report) -> None:
    judge(report, _trials(*[0.02] * 49), 50)
    assert failed(report) == ["who comes ends the probe, without a result"]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (100 * GIB - (64 << 20), ""),
        (100 * GIB - (64 << 20) - (300 << 20), ""),
        (100 * GIB + (1 << 20), "1 MiB were given back by others"),
        (97 * GIB, "3008 MiB were taken by others"),
    ],
)
def test_what_a_server_refuses(second: int, why: str) -> None:
    assert startup.refusal(100 * GIB, second, 64 << 20) == why


def _start(number: int, second: int, *, met: bool = True) -> startup.Start:
    told = {"first": 100 * GIB, "second": second, "own": GIB, "began": 1.0, "first_at": 1.5, "second_at": 2.5}
    return startup.start(number, 0, told, met=met)


def test_the_rate_of_survivors_is_published(report: Report) -> None:
    starts = [_start(0, 99 * GIB), _start(1, 101 * GIB), _start(2, 99 * GIB, met=False)]
    startup.judge(report, starts, [startup.Turn(0.0, 2.0, "preempted")] * 2, 3)
    (table,) = report.data["tables"].values()
    assert table["rows"] == [["all", 3, 2], ["met a probe", 2, 1], ["met none", 1, 1]]
    assert failed(report) == ["every start-up survives probes back to back"]
    assert "2 of 3" in report.checks[0]["told"]


def test_start_ups_under_a_hold_stand_beside_the_others(report: Report) -> None:
    startup.judge(report, [_start(0, 101 * GIB)], [startup.Turn(0.0, 2.0, "preempted")], 1)
    startup.judge(report, [_start(0, 99 * GIB)], [startup.Turn(0.0, 2.0, "preempted")], 1, held=True)
    assert (report.data["survived"], report.data["survived_held"]) == (0, 1)
    assert failed(report) == ["every start-up survives probes back to back"]


def test_start_ups_that_met_no_probe_prove_nothing(report: Report) -> None:
    startup.judge(report, [_start(0, 99 * GIB, met=False)], [], 1)
    assert failed(report) == ["start-ups and probes did meet"]


def _document(**changes: Any) -> dict[str, Any]:
    large = {"size_bytes": 1 << 28, "ratio": 0.09, "algorithm": "ring", "protocol": "simple"}
    small = {"size_bytes": 8, "ratio": None, "algorithm": "ring", "protocol": "ll"}
    findings = [
        {"rule": rule, "evidence": "NCCL runs with NCCL_P2P_DISABLE=1"}
        for rule in ("probe.busbw", "probe.transport")
    ]
    return {"transport": "shm", "results": [small, large], "findings": findings, **changes}


def test_a_detour_that_is_named(report: Report) -> None:
    judge_way(report, WAYS[0], _document())
    assert len(report.checks) == 4
    assert report.ok


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"transport": "p2p"}, ["transport shm is named"]),
        ({"findings": []}, ["finding probe.busbw names it", "finding probe.transport names it"]),
        ({"results": []}, ["below 0.7 of what is expected"]),
    ],
)
def test_a_detour_that_is_not(report: Report, changes: dict[str, Any], wrong: list[str]) -> None:
    judge_way(report, WAYS[0], _document(**changes))
    assert [name.partition(": ")[2] for name in failed(report)] == wrong


def test_both_settings_have_to_be_named(report: Report) -> None:
    judge_way(report, WAYS[1], _document(transport="net_socket"))
    assert len(failed(report)) == 2


def test_small_messages_do_not_count_for_the_protocol(report: Report) -> None:
    judge_way(report, WAYS[3], _document())
    assert [name.partition(": ")[2] for name in failed(report)] == ["protocol ll is named"]
