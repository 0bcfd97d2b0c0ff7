"""Reading for the ledger: questions to GPUs and to /proc, and when; each guard of reading alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.node.collectors.drawn import Files, Gpus, Watched
from tests.rows import each
from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Absent, Json, Why
from wirewatch.jobs.ledger.model import (
    GpuSight,
    LedgerMemory,
    LedgerOptions,
    LedgerReading,
    ProcessSight,
    SpentMemory,
)
from wirewatch.jobs.ledger.read import UNUSED, process_sight, read

STAT = "4000 (pt main) thread) S 77 77 77 0 -1 4194304 0 0 0 0 150 50 0 0 20 0 9 0 12345 1 1"
IO = "rchar: 700\nwchar: 20\nsyscr: 1\nsyscw: 1\nread_bytes: 40\nwrite_bytes: 9000\n"
LOST, DENIED = Absent(Why.LOST, "lost"), Absent(Why.DENIED, "not ours")
PROCESSES, USE = "ComputeRunningProcesses()", "UtilizationRates()"
OPTIONS = LedgerOptions()


@dataclass
class Asking(Gpus):
    """GPUs that remember what they are asked."""

    asked: list[tuple[str | None, tuple[str, ...]]] = field(default_factory=list)

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        self.asked.append((gpu, tuple(map(str, questions))))
        return super().ask(gpu, questions)


def node(used: Sequence[int] = (0,)) -> Watched:
    """Two GPUs, a process on each of these."""
    gpus = Asking(["0000:01:00.0", "0000:02:00.0"])
    files = Files({})
    for number in range(2):
        pid = 4000 + number
        answers: dict[str, Json] = {
            PROCESSES: [{"pid": pid}] if number in used else [], USE: {"gpu": 97, "memory": 1},
            "PowerUsage()": 600_000, "PowerManagementDefaultLimit()": 700_000, "MigMode()": [0, 0],
        }  # fmt: skip
        gpus.table |= {(f"GPU-{number}", question): answer for question, answer in answers.items()}
        files.texts |= {f"/proc/{pid}/stat": STAT, f"/proc/{pid}/io": IO}
    return Watched("ledger", files, gpus)


def seen(watched: Watched, memory: LedgerMemory | None = None) -> LedgerReading:
    found = read(watched.hardware, memory or LedgerMemory(), OPTIONS)
    assert isinstance(found, LedgerReading)
    return found


def first(watched: Watched) -> GpuSight:
    found = seen(watched).gpus[0].value
    assert isinstance(found, GpuSight)
    return found


def test_of_a_gpu_without_processes_nothing_more_is_asked() -> None:
    watched = node()
    reading = seen(watched)
    assert isinstance(watched.gpus, Asking)
    other = [questions for gpu, questions in watched.gpus.asked if gpu == "GPU-1"]
    assert other == [(PROCESSES, "MigMode()")]
    one, two = (item.value for item in reading.gpus)
    assert isinstance(one, GpuSight)
    assert isinstance(two, GpuSight)
    assert (one.busy, one.power, one.limit) == (0.97, 600.0, 700.0)
    assert (two.processes, two.busy, two.power) == (frozenset(), UNUSED, UNUSED)
    assert list(reading.processes) == [4000]


def test_a_gpu_that_was_in_use_is_asked_all_at_once() -> None:
    watched = node()
    known = LedgerMemory(gpus={"GPU-0": SpentMemory(frozenset({(4000, 1.0)}))})
    found = seen(watched, known)
    assert isinstance(watched.gpus, Asking)
    assert [len(questions) for _, questions in watched.gpus.asked] == [5, 2]
    value = found.gpus[0].value
    assert isinstance(value, GpuSight)
    assert (value.busy, value.power, value.limit) == (0.97, 600.0, 700.0)
    # The limit does not change: it is asked once a session.
    seen(watched, replace(known, supported={"GPU-0": value.supported}))
    assert [len(questions) for _, questions in watched.gpus.asked[2:]] == [4, 2]


def test_neither_nvlink_counters_nor_gpm_are_asked() -> None:
    watched = node((0, 1))
    seen(watched)
    assert isinstance(watched.gpus, Asking)
    every = {question for _, questions in watched.gpus.asked for question in questions}
    assert not any(question.startswith(("Field", "Gpm")) for question in every)


@each(
    ("question", "answer", "expected"),
    [
        (PROCESSES, "x", {"processes": Absent(Why.MALFORMED, "not a list of processes: 'x'")}),
        (PROCESSES, [{"pid": "x"}, {"pid": 7}], {"processes": frozenset({None, 7})}),
        (USE, LOST, {"busy": LOST, "power": 600.0}),
        (USE, {"gpu": 140}, {"busy": 1.0}),
        (USE, {"gpu": -3}, {"busy": 0.0}),
        ("PowerUsage()", LOST, {"power": LOST, "busy": 0.97}),
        ("PowerManagementDefaultLimit()", LOST, {"limit": LOST, "power": 600.0}),
    ],
)
def test_a_value_that_cannot_be_read_costs_itself_alone(
    question: str, answer: Json | Absent, expected: dict[str, Any]
) -> None:
    watched = node()
    watched.gpus.table["GPU-0", question] = answer
    found = first(watched)
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_gpu_that_is_lost_and_gpus_that_cannot_be_listed() -> None:
    watched = node((0, 1))
    for question in list(watched.gpus.table):
        if question[0] == "GPU-0":
            watched.gpus.table[question] = LOST
    reading = seen(watched)
    assert reading.gpus[0].value == LOST
    assert list(reading.processes) == [4001]
    watched.gpus.absent = LOST
    assert read(watched.hardware, LedgerMemory(), OPTIONS) == LOST


@pytest.mark.parametrize(("after", "looked"), [(2.9, False), (3.0, True)])
def test_while_nothing_computes_it_looks_seldom(after: float, *, looked: bool) -> None:
    watched = node(())
    known = LedgerMemory(mono=watched.clock.mono() - after)
    assert seen(watched, known).looked == looked
    busy = replace(known, gpus={"GPU-0": SpentMemory(frozenset())})
    assert seen(watched, busy).looked


# Processes


def test_a_process_is_read_with_all_its_numbers() -> None:
    assert process_sight(STAT, IO) == ProcessSight("S", 123.45, 2.0, 700, 9000, 77)
    orphan = process_sight(STAT.replace(" S 77", " S 1"), IO)
    assert orphan is not None
    assert orphan.parent == 0


def test_a_short_text_keeps_the_state_alone() -> None:
    """As recordings have it, whose names and times are left out."""
    found = process_sight("942 (masked) T 903", IO)
    assert found is not None
    assert (found.state, found.read) == ("T", 700)
    assert isinstance(found.began, Absent)
    assert isinstance(found.cpu, Absent)
    begun = process_sight("1 (a) R 1 1 1 0 -1 4 0 0 0 0 150 x 0 0 20 0 9 0 12345", IO)
    assert begun is not None
    assert (begun.began, isinstance(begun.cpu, Absent)) == (123.45, True)


@pytest.mark.parametrize("text", ["", "77 (x)", "nothing)"])
def test_what_is_no_such_text_is_no_process(text: str) -> None:
    assert process_sight(text, IO) is None


@pytest.mark.parametrize(("text", "expected"), [(DENIED, DENIED), ("", None), ("rchar: x\nwchar: y", None)])
def test_bytes_that_cannot_be_read_are_absent(text: str | Absent, expected: Absent | None) -> None:
    found = process_sight(STAT, text)
    assert found is not None
    for value in (found.read, found.written):
        assert isinstance(value, Absent)
        assert expected is None or value == expected
    assert found.cpu == 2.0


def test_a_process_that_is_hidden_is_absent_with_its_reason() -> None:
    """As another user's under ProtectProc=invisible."""
    watched = node()
    watched.files.texts["/proc/4000/stat"] = Absent(Why.MISSING, "hidden", 2)
    assert seen(watched).processes == {4000: Absent(Why.MISSING, "hidden", 2)}
    watched.files.texts["/proc/4000/stat"] = ""
    assert seen(watched).processes == {4000: Absent(Why.MALFORMED, "/proc/4000/stat")}


def test_a_process_without_an_id_is_not_looked_for() -> None:
    watched = node()
    watched.gpus.table["GPU-0", PROCESSES] = [{"pid": None}, {"pid": 0}]
    assert seen(watched).processes == {}


def test_the_collector_runs_from_end_to_end() -> None:
    watched = node((0, 1))
    watched.poll(4, every=2.0)
    assert watched.component.applicable
    assert watched.component.findings == ()
    assert sum(watched.series("job_time_seconds_total")) == pytest.approx(2 * 6.0)
    assert not watched.collector.gates
