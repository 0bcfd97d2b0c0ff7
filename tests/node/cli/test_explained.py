"""The page of `wirewatch explain` part by part: what is known of a job, and what stands where nothing is."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.jobs.explain.drawn import evidence, gpus, job, late, ledger, row, spent
from tests.rows import each
from wirewatch.cli.jobs import explained
from wirewatch.cli.jobs.explained import PageLayout
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.evidence import EvidenceSource
from wirewatch.jobs.explain.words import operation
from wirewatch.jobs.times import TimesDoubt

GONE = Absent(Why.MISSING, "nobody asked")
WIDE = PageLayout(200)


def part(name: str, *values: Any) -> Any:
    return vars(explained)[f"_{name}"](*values)


def settings(pid: int, **known: str) -> Any:
    return SimpleNamespace(pid=pid, settings=known)


@each(
    ("read", "lines"),
    [
        ([], []),
        ([settings(1)], ["  none is set"]),
        ([SimpleNamespace(pid=1, settings=GONE)], ["  process 1: not read: nobody asked"]),
        ([SimpleNamespace(pid=1, settings=Absent(Why.DENIED))], ["  process 1: not read: denied"]),
        ([settings(1, NCCL_ALGO="Ring"), settings(2, NCCL_ALGO="Ring")], ["  NCCL_ALGO=Ring"]),
        (
            [settings(1, NCCL_X="1"), settings(2), SimpleNamespace(pid=3, settings=GONE)],
            ["  process 3: not read: nobody asked", "  NCCL_X=1 (process 1)"],
        ),
    ],
)
def test_the_settings_of_processes(read: Any, lines: list[str]) -> None:
    told = list(part("settings", read, WIDE))
    assert told[:2] == (["", "NCCL settings of its processes"] if read else [])
    assert [one.partition("; slows")[0] for one in told[2:]] == lines


def test_processes_that_cannot_be_read_are_named_up_to_a_number() -> None:
    many = [SimpleNamespace(pid=n, settings=GONE) for n in range(66)]
    assert len(list(part("settings", many, WIDE))) == 2 + 64


def gpu(**changes: Any) -> Any:
    known = {
        "index": "2",
        "uuid": "GPU-2",
        "plateau": GONE,
        "sent": GONE,
        "peak": 450e9,
        "short": False,
        "duty": GONE,
    }
    return SimpleNamespace(**{**known, **changes})


@each(
    ("one", "cells"),
    [
        (gpu(), None),
        (gpu(sent=45e9), ["2", "45.0", "10"]),
        (gpu(sent=45e9, index=""), ["GPU-2", "45.0", "10"]),
        (gpu(sent=45e9, peak=0.0), ["2", "45.0", "-"]),
        (gpu(sent=45e9, peak=GONE), ["2", "45.0", "-"]),
        (gpu(plateau=90e9, short=True), ["2", "-", "-", "at", "least", "90.0"]),
        (gpu(plateau=90e9), ["2", "-", "-", "90.0"]),
        (gpu(sent=45e9, short=True), ["2", "45.0", "10", "-"]),
    ],
)
def test_the_counters_of_a_gpu(one: Any, cells: list[str] | None) -> None:
    told = list(part("counters", SimpleNamespace(gpus=[one], findings=[]), WIDE))
    words = [word for word in told[-1].split() if word not in {"GB/s", "%"}] if told else []
    assert words[: len(cells or [])] == (cells or [])
    assert bool(told) is (cells is not None)


@each(
    ("changes", "column", "text"),
    [
        ({"algorithm": "", "protocol": "", "channels": 0}, 1, "-"),
        ({"algorithm": "RING", "protocol": "", "channels": 0}, 1, "RING"),
        ({"algorithm": "RING", "protocol": "LL", "channels": 16}, 1, "RING, LL, 16 channels"),
        ({"small": True, "wire_seconds": 4e-5}, 4, "40 us"),
        ({"small": False, "wire_seconds": 4e-3}, 4, "4 ms"),
        ({"small": True, "floor": 2e-5}, 7, "20 us"),
        ({"small": True, "floor": GONE}, 7, "-"),
        ({"small": False, "expected": GONE}, 7, "-"),
        ({"small": False, "expected": 450e9}, 7, "450 GB/s"),
        ({"best_ratio": 0.5}, 8, "50 %"),
    ],
)
def test_the_row_of_a_collective(changes: dict[str, Any], column: int, text: str) -> None:
    known = {name: getattr(row(), name) for name in type(row()).__dataclass_fields__}
    ratio = {"best_ratio": 0.9, "small": False}
    assert part("row", SimpleNamespace(**{**known, **ratio, **changes}))[column] == text


@each(
    ("changes", "text"),
    [
        ({}, None),
        ({"elsewhere": "on another node"}, "on another node"),
        ({"name": "tp", "captured": 3}, "3 calls in"),
        ({"doubt": TimesDoubt.FEW}, "not judged: too few"),
        ({"late": late()}, "who waits for whom: all for rank 2 on GPU 2, last in 64 of 65 collectives"),
    ],
)
def test_what_is_said_of_a_communicator(changes: dict[str, Any], text: str | None) -> None:
    told = list(part("waits", evidence(replace(job(**{"id": "c1", **changes}), late=None)), WIDE))
    assert bool(told) is (text is not None)
    assert text is None or (
        told[1].startswith(f"Communicator {changes.get('name', 'c1')}: 4") and text in told[2]
    )
    assert list(part("waits", evidence(GONE), WIDE)) == []


def test_remarks_have_their_cost_where_it_is_known() -> None:
    ones = [
        SimpleNamespace(kind=SimpleNamespace(value="k"), text=str(cost), cost=cost) for cost in (None, 0.1)
    ]
    assert list(part("remarks", SimpleNamespace(remarks=ones), WIDE)) == [
        "",
        "Remarks",
        "  k: None",
        "  k: 0.1 (costs 10 % of the time)",
    ]
    assert list(part("remarks", GONE, WIDE)) == list(part("remarks", SimpleNamespace(remarks=()), WIDE)) == []


def test_what_is_not_watched_is_said_with_the_way_to_watch_it() -> None:
    ones = [
        SimpleNamespace(watched=watched, source=SimpleNamespace(value="tap"), switch_on="do it", why="off")
        for watched in (True, False)
    ]
    assert list(part("sources", SimpleNamespace(sources=ones), WIDE)) == [
        "",
        "Not watched",
        "  tap: do it (off)",
    ]
    assert list(part("sources", SimpleNamespace(sources=ones[:1]), WIDE)) == []


@pytest.mark.parametrize(("throttled", "text"), [(GONE, "-"), ((), "no"), (("power", "heat"), "power,heat")])
def test_why_a_gpu_is_throttled(throttled: Any, text: str) -> None:
    assert part("reasons", SimpleNamespace(throttled=throttled)) == text
    assert (part("power", GONE), part("power", 699.6)) == ("-", "700 W")


def test_a_job_is_named_with_its_place() -> None:
    text = part("about", evidence(job()))
    assert " ranks on " in text
    assert f"{len(gpus())} GPUs of this node" in text
    assert part("about", evidence(GONE)).endswith("nobody asked")


def test_a_table_that_is_too_wide_goes_on_below_with_its_first_column() -> None:
    rows = [("GPU", "one", "two", "three"), ("0", "11", "22", "33")]
    assert list(PageLayout(13).titled("T", rows)) == [
        "",
        "T",
        "  GPU  one",
        "  0     11",
        "",
        "  GPU  two",
        "  0     22",
        "",
        "  GPU  three",
        "  0       33",
    ]
    assert list(PageLayout(15).titled("T", rows))[2] == "  GPU  one  two"
    assert list(PageLayout(40).titled("T", rows, left=2))[3] == "  0    11    22     33"


def test_a_column_that_is_too_wide_stands_beside_the_first_all_the_same() -> None:
    rows = [("GPU", "operation", "x"), ("0", "all_reduce", "1")]
    assert list(PageLayout(8).titled("T", rows)) == [
        "", "T", "  GPU   operation", "  0    all_reduce", "", "  GPU  x", "  0    1",
    ]  # fmt: skip


def comm(ranks: int, nodes: int) -> Any:
    return SimpleNamespace(ranks=ranks, nodes=nodes, here=[], late=None, doubt=None, elsewhere="", captured=0)


@pytest.mark.parametrize(
    ("comms", "owners", "text"),
    [
        (
            [comm(8, 1), comm(16, 2), comm(4, 4)],
            ("a",),
            "a, 16 ranks on 4 nodes, 0 GPUs of this node, user 7",
        ),
        ([], ("a", "pod:b"), "a, pod:b, no communicator yet, 0 GPUs of this node, user 7"),
    ],
)
def test_a_job_is_as_large_as_its_largest_communicator(comms: Any, owners: Any, text: str) -> None:
    running = SimpleNamespace(name="a", owners=owners, communicators=comms, since=1000.0, uid=7)
    found = part("about", SimpleNamespace(gpus=[], job=running, now=4600.0, name="a"))
    assert found == f"{text}, since 1.0 h"


def used(**changes: Any) -> Any:
    known = {
        "uuid": "GPU-2", "index": "2", "pids": (7, 8), "utilisation": 0.9, "graphics": GONE, "sm": GONE,
        "dram": GONE, "math": GONE, "thread": GONE, "power": GONE, "throttled": GONE,
    }  # fmt: skip
    return SimpleNamespace(**{**known, **changes})


@pytest.mark.parametrize(
    ("one", "watched", "cells"),
    [
        (used(), False, "2 - 7,8 - - - 90 % - - - - - -"),
        (used(), True, "2 5 7,8 20 % 10 % 0 % 90 % - - - - - -"),
        (used(index="", pids=()), False, "GPU-2 - - - - - 90 % - - - - - -"),
        (used(graphics=0.7), False, "2 - 7,8 - - - 70 % - - - - - -"),
    ],
)
def test_a_gpu_has_its_rank_its_processes_and_its_shares(one: Any, watched: bool, cells: str) -> None:  # noqa: FBT001
    share = SimpleNamespace(gpu="GPU-2", in_collectives=0.2, waiting=0.1, late=0.0)
    here = [SimpleNamespace(gpu="GPU-2", rank=5, pid=7)]
    comm = SimpleNamespace(ranks=8, nodes=1, here=here)
    running = SimpleNamespace(gpus=[share], communicators=[comm])
    told = list(part("ranks", SimpleNamespace(gpus=[one], job=running if watched else GONE), WIDE))
    assert " ".join(told[-1].split()) == cells


@pytest.mark.parametrize(
    ("cost", "source", "wall", "of"),
    [
        (GONE, "live", "x; certainty sure", ""),
        (0.0, "live", "x; certainty sure", ""),
        (0.12, "replay", "x, takes 12 % of the time; certainty sure", "; of "),
    ],
)
def test_the_page_begins_with_the_answer(
    monkeypatch: pytest.MonkeyPatch, cost: Any, source: str, wall: str, of: str
) -> None:
    for name in ("ledger", "ranks", "wires", "waits", "remarks", "counters", "settings", "sources"):
        monkeypatch.setattr(explained, f"_{name}", lambda *_: ())
    monkeypatch.setattr(explained, "_about", lambda _: "a job")
    answer = SimpleNamespace(
        cost=cost, wall=SimpleNamespace(value="x"), certainty=SimpleNamespace(value="sure"),
        because=["this", "that"], doubts=[], advice=["do"],
    )  # fmt: skip
    shown: Any = SimpleNamespace(
        answer=answer, source=source, sentence="s", host="gpu-17",
        evidence=SimpleNamespace(settings=(), job=GONE, gpus=[], findings=[], sources=[]),
    )  # fmt: skip
    lines = [" ".join(line.split()) for line in explained.page(shown, 200)]
    assert lines[:2] == ["s", ""]
    assert lines[2].startswith(f"job a job{of}")
    assert lines[2].endswith("; on gpu-17")
    assert lines[3:] == [f"wall {wall}", "because - this", "- that", "to do - do"]
    assert ("; of" in lines[2]) is bool(of)


def test_collectives_have_what_is_expected_of_them_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: getattr(row(), name) for name in type(row()).__dataclass_fields__}
    rows = [
        SimpleNamespace(**{**known, "small": False, "best_ratio": None, "derivation": steps})
        for steps in (("a", "b"), ("a", "b"), (), ("c",))
    ]
    monkeypatch.setattr(explained, "timed_rows", lambda _: rows)
    monkeypatch.setattr(explained, "MOST_ROWS", 3)
    for wire, said in ((GONE, "not known (nobody asked)"), ("NVLink", "NVLink")):
        monkeypatch.setattr(explained, "wire_in_use", lambda _, wire=wire: wire)
        told = list(part("wires", SimpleNamespace(job=None), WIDE))
        assert told[:2] == ["", f"Wire in use: {said}"]
    assert told[-2:] == [
        "  and 1 more, which take less of the time",
        f"  expected of {operation(rows[0].op, rows[0].bytes)}: a; b",
    ]
    assert rows[0].op in told[-3]
    monkeypatch.setattr(explained, "timed_rows", lambda _: rows[:3])
    assert not any("more, which" in line for line in part("wires", SimpleNamespace(job=None), WIDE))
    monkeypatch.setattr(explained, "timed_rows", lambda _: [])
    assert len(list(part("wires", SimpleNamespace(job=None), WIDE))) == 2


def test_what_slows_is_said_beside_the_setting_and_of_all_processes_in_short() -> None:
    told = list(part("settings", [settings(1, NCCL_P2P_DISABLE="1"), settings(2)], WIDE))
    assert told[2].startswith("  NCCL_P2P_DISABLE=1; slows: ")
    assert told[2].endswith(" (process 1)")


def test_the_ledger_has_both_windows_who_is_waited_for_and_what_an_idle_process_does() -> None:
    book = ledger(
        spent(0, {1: 0.5, 2: 0.001}), spent(1, idle=0.4, does="sleeps"), spent(2, {0: 0.02, 1: 0.3, 3: 0.01}),
        short=(spent(0, {1: 0.25}),),
    )  # fmt: skip
    told = [" ".join(line.split()) for line in part("ledger", evidence(job(), book=book), WIDE)]
    head = "GPU computing waiting for GPU other node wire beyond idle not attr."
    assert told == [
        "", "Where the time of the last 5 min went", head,
        "0 50 % 50 % 1 0 % 0 % 0 % 0 % 0 %",
        "1 60 % 0 % 0 % 0 % 0 % 40 % 0 %",
        "2 67 % 33 % 1, 0 and 1 more 0 % 0 % 0 % 0 % 0 %",
        "", "Where the time of the last 10 s went", head,
        "0 75 % 25 % 1 0 % 0 % 0 % 0 % 0 %",
        "GPU 1 idle: its process: sleeps",
    ]  # fmt: skip
    missing = evidence(job(), missing=[EvidenceSource.LEDGER])
    assert list(part("ledger", missing, WIDE)) == ["", "Where the time goes: not watched"]
