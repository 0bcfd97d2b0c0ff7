"""Cells of probes by their results, in tables; in each row a single value decides."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.node.page.states import state
from tests.rows import each
from tests.support import EPOCH
from wirewatch.core.probe import PastProbe
from wirewatch.documents.health import Gate, ProbeStatus
from wirewatch.documents.probes import CollectiveResult, PeerCopy, Straggler
from wirewatch.documents.state import Series
from wirewatch.page.content import PageContent
from wirewatch.page.model import Cell, Sentence, Table
from wirewatch.page.probes import matrix_section, nothing, probes_section, slow_section
from wirewatch.page.tables import GpuName, Readings

WHY = Sentence("why")
RESULT = CollectiveResult(
    "all_reduce", 1 << 28, 8, "all", 1.0, 90e9, 90e9, 90e9, 0, "Ring", "Simple", 100e9, 0.9, None, None,
    "low", ["how it follows"], None, "",
)  # fmt: skip
SLOW = Straggler("compute", 3, "GPU-3", None, 0.2, 9.0, "own", 1.0, 1.0, 1.0, 12, [])
PAST = PastProbe(EPOCH, "ok", "", forced=False, engine="nccl", seconds=3.0, worst_ratio=0.9)


def content(past: Sequence[PastProbe] = (), **last: Any) -> PageContent:
    """A node whose last probe gave this."""
    told = state("straggler")
    assert told.probes.last is not None
    probes = replace(told.probes, last=replace(told.probes.last, **last), past=list(past))
    return replace(told, probes=probes)


def cells(table: Table) -> list[tuple[Cell, ...]]:
    return [row.cells for row in table.rows]


def said(cell: Cell) -> tuple[str, str, bool]:
    return (cell.text, cell.tone, cell.strong)


def test_copies_are_shown_beside_their_median() -> None:
    rates = {
        (0, 1): 100.0,
        (1, 0): 100.0,
        (0, 2): 96.0,
        (2, 0): 93.0,
        (1, 2): 85.0,
        (2, 1): 106.0,
        (0, 3): 70.0,
    } | {(3, n): 100.0 for n in range(3)}
    copies = [PeerCopy(*ends, rate * 1e9, direct=ends != (1, 2)) for ends, rate in rates.items()]
    (table,) = matrix_section(content(copies=copies), WHY).tables
    rows = cells(table)
    assert [head.text for head in table.columns] == ["GPU", "to 0", "to 1", "to 2", "to 3"]
    assert [said(cell) for cell in rows[0]] == [
        ("·", "quiet", False), ("100.0", "", False), ("96.0", "", False), ("70.0", "slow3", True),
    ]  # fmt: skip
    assert [said(cell) for cell in rows[2][:2]] == [("93.0", "slow1", False), ("106.0", "fast", False)]
    assert (said(rows[1][2]), rows[1][2].note) == (("85.0", "slow2", True), "through the host")
    assert [cell.aside for cell in (rows[0][1], rows[0][3], rows[2][1])] == [
        "", "30 % below the median", "6 % above the median",
    ]  # fmt: skip
    assert rows[1][3].text == "not known"


@each(
    ("change", "place", "cell"),
    [
        ({}, 3, ("100.0", "", False)),
        ({"expected_busbw": None, "ratio": None}, 3, ("not known", "unknown", False)),
        ({}, 4, ("90 %", "good", False)),
        ({"ratio": 0.7}, 4, ("70 %", "good", False)),
        ({"ratio": 0.69}, 4, ("69 %", "bad", True)),
        ({}, 5, ("Ring/Simple", "", False)),
        ({"protocol": ""}, 5, ("Ring", "", False)),
        ({"algorithm": "", "protocol": ""}, 5, ("not known", "unknown", False)),
        ({}, 6, ("0", "quiet", False)),
        ({"wrong": 2}, 6, ("2", "bad", True)),
    ],
)
def test_a_result_is_shown_beside_what_is_expected(
    change: dict[str, Any], place: int, cell: tuple[str, str, bool]
) -> None:
    table = probes_section(content(results=[replace(RESULT, **change)]), WHY).tables[0]
    assert said(cells(table)[0][place]) == cell


LAST = "Last complete probe: engine nccl"


@pytest.mark.parametrize(
    ("why", "change", "words"),
    [
        ("all is known", {"versions": {"nccl": "2.28"}, "transport": "p2p"},
         f"{LAST} (nccl 2.28), between GPUs over p2p, run by daemon."),
        ("no version", {"versions": {}, "transport": "p2p"},
         f"{LAST}, between GPUs over p2p, run by daemon."),
        ("no way", {"versions": {"nccl": "2.28"}, "transport": ""}, f"{LAST} (nccl 2.28), run by daemon."),
    ],
)  # fmt: skip
def test_the_last_probe_says_what_ran(why: str, change: dict[str, Any], words: str) -> None:
    told = content(**{"engine": "nccl", "by": "daemon", "slowing": [], **change})
    asked = replace(told.health, probe=None)
    first, second = probes_section(replace(told, health=asked), WHY).lines
    assert first.text == f"{words} It began", why
    assert second.text == "A probe may run now."
    slowed = probes_section(content(slowing=["a", "b"]), WHY).lines[-2]
    assert (slowed.text, slowed.tone) == ("NCCL settings that lower bandwidth: a; b.", "warn")


def test_the_age_of_the_last_probe_and_of_what_nothing_is_expected() -> None:
    told = content(slowing=[])
    asked = ProbeStatus(EPOCH, 90.0, fresh=True, required=False, no_expectation=["all_reduce", "broadcast"])
    first, second, _ = probes_section(replace(told, health=replace(told.health, probe=asked)), WHY).lines
    assert first.text.endswith(" It ended 1 min 30 s ago. It began")
    assert second.text.startswith("Nothing is expected of all_reduce, broadcast here: ")
    never = replace(asked, age_seconds=None, no_expectation=[])
    first, _ = probes_section(replace(told, health=replace(told.health, probe=never)), WHY).lines
    assert "ended" not in first.text


def test_a_gate_that_is_shut_says_why() -> None:
    told = content()
    shut = Gate(open=False, reason="busy", meaning="a process uses a GPU", detail="4711", engine="nccl")
    told = replace(told, probes=replace(told.probes, gate=shut))
    line = probes_section(told, WHY).lines[-1]
    assert (line.text, line.tone) == ("No probe may run now: a process uses a GPU (4711).", "quiet")


def test_holds_are_named_whatever_else_keeps_probes_off() -> None:
    told = content()
    for one in (told.probes.gate, Gate(open=False, reason="busy", meaning="m", detail="d", engine=None)):
        held = replace(one, holds=["slurm:7", "slurm:8"])
        line = probes_section(replace(told, probes=replace(told.probes, gate=held)), WHY).lines[-1]
        assert (line.text, line.tone) == ("Probes are held off by slurm:7, slurm:8.", "quiet")


def test_copies_that_moved_nothing_are_their_own_median() -> None:
    copies = [PeerCopy(0, 1, 0.0, direct=True), PeerCopy(1, 0, 0.0, direct=True)]
    (table,) = matrix_section(content(copies=copies), WHY).tables
    assert said(cells(table)[0][1]) == ("0.0", "", False)


def test_small_messages_are_not_shown_and_what_follows_is() -> None:
    small = replace(RESULT, size_bytes=(1 << 20) - 1)
    unsure = replace(RESULT, op="reduce", confidence=None)
    results = [
        replace(RESULT, size_bytes=1 << 20), small, replace(RESULT, op="broadcast", derivation=[]), unsure,
    ]  # fmt: skip
    section = probes_section(content(results=results), WHY)
    assert [row.head.text for row in section.tables[0].rows] == ["all_reduce", "broadcast", "reduce"]
    (details,) = section.details
    assert [(one.text, one.under) for one in details.points] == [
        ("all_reduce of 1 MiB, GPUs: all", ("how it follows", "confidence: low")),
        ("reduce of 256 MiB, GPUs: all", ("how it follows",)),
    ]
    assert probes_section(content(results=[]), WHY).tables == ()
    assert probes_section(content(results=[small]), WHY).details == ()


@each(
    ("change", "expected"),
    [
        ({}, [("ok", ""), ("90 %", ""), ("counts", "quiet")]),
        ({"outcome": "failed", "why": "w"}, [("failed", "unknown"), ("90 %", ""), ("counts", "quiet")]),
        ({"worst_ratio": 0.69}, [("ok", ""), ("69 %", "bad"), ("counts", "quiet")]),
        ({"worst_ratio": 0.7}, [("ok", ""), ("70 %", ""), ("counts", "quiet")]),
        ({"worst_ratio": None}, [("ok", ""), ("not known", "unknown"), ("counts", "quiet")]),
        ({"forced": True}, [("ok", ""), ("90 %", ""), ("forced: no verdict", "quiet")]),
    ],
)
def test_the_newest_probes(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    past = [replace(PAST, **change)] * 9
    table = probes_section(content(past, results=[]), WHY).tables[0]
    (outcome, ratio, _, counts), *more = cells(table)
    assert [(cell.text, cell.tone) for cell in (outcome, ratio, counts)] == expected
    assert len(more) == 7


@each(
    ("change", "head", "expected"),
    [
        ({}, "GPU 3", ["compute", "20 %", "its own history", "9", "nothing else"]),
        ({"peer": 5}, "GPU 3 to 5", ["compute", "20 %", "its own history", "9", "nothing else"]),
        ({"gpu": None}, "GPU-3", ["compute", "20 %", "its own history", "9", "nothing else"]),
        ({"gpu": None, "uuid": ""}, "the whole node",
         ["compute", "20 %", "its own history", "9", "nothing else"]),
        ({"against": "peers", "score": None, "follows": ["a", "b"]}, "GPU 3",
         ["compute", "20 %", "its peers", "not known", "a, b"]),
    ],
)  # fmt: skip
def test_what_is_slow_by_the_last_probe(change: dict[str, Any], head: str, expected: list[str]) -> None:
    here = Readings({}, {}, EPOCH)
    section = slow_section(content(stragglers=[replace(SLOW, **change)]), here, (), WHY)
    (row,) = section.tables[0].rows
    assert (row.head.text, [cell.text for cell in row.cells]) == (head, expected)
    assert section.lines[-1].text.startswith("Scores are not known")


def test_scores_are_shown_by_gpu_and_resource() -> None:
    labels = {"gpu": "0", "uuid": "GPU-0"}
    values = {"compute": 4.0, "memory": 3.9, "source": -0.01}
    series = [Series("straggler_score", {**labels, "signal": name}, at) for name, at in values.items()]
    here = Readings({"straggler_score": series}, {}, EPOCH)
    section = slow_section(content(stragglers=[]), here, (GpuName("0", "GPU-0"),), WHY)
    assert [line.text for line in section.lines] == ["The last probe found no straggler."]
    (row,) = section.tables[0].rows
    assert [said(cell) for cell in row.cells[:3]] == [
        ("4.0", "warn", True), ("3.9", "", False), ("0.0", "", False),
    ]  # fmt: skip
    assert row.cells[3].text.startswith("not known: the last probe did not measure it")


def test_without_a_probe_the_reason_is_said() -> None:
    told = content()
    none = replace(told, probes=replace(told.probes, last=None))
    here = Readings({}, {}, EPOCH)
    assert matrix_section(none, WHY).lines == probes_section(none, WHY).lines == (WHY,)
    assert slow_section(none, here, (), WHY).lines == (WHY,)
    assert (
        matrix_section(content(copies=[]), WHY).lines[0].text.startswith("Not known: the last probe made no")
    )
    assert nothing(told, here).text == "Probing is switched off."
