"""Workers of two nodes that meet over TCP: real torch, gloo, and the loopback interface for a network."""

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.node.worker.workerprocess import WorkerProcess, torch_python
from wirewatch.core.probe import ALL_REDUCE, SEND, Case, Document, Meeting, Plan

pytestmark = pytest.mark.system

SIZE, RANKS = 1 << 18, 2
GROUPS = ((0, 1, 2, 3), (0, 2), (2, 0), (2, 3, 0, 1))
CASES = (
    *(Case(group, SEND, SIZE, "stream", 3) for group in range(4)),
    Case(0, ALL_REDUCE, SIZE, "stream", 3),
)  # fmt: skip


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def plans(**changes: float) -> tuple[Plan, Plan]:
    meeting = Meeting("127.0.0.1", free_port(), 0, 2, changes.get("patience", 20.0))
    one = Plan(
        "gloo", ("cpu:0", "cpu:1"), GROUPS, ops=(), latency_sizes=(), bandwidth=(), copy_bytes=0, micro=False,
        cases=CASES, meeting=meeting,
    )  # fmt: skip
    return one, replace(one, meeting=replace(meeting, node=1))


def measured(given: Sequence[Plan]) -> list[Document]:
    with ExitStack() as stack:
        command = (torch_python(), "-m", "wirewatch.worker")
        workers = [stack.enter_context(WorkerProcess(one, command)) for one in given]
        return [one.document() for one in workers]


def test_both_nodes_tell_the_same_of_each_way_and_all_that_came_is_right() -> None:
    first, second = measured(plans())
    assert (first.error, second.error) == (None, None)
    asked = [(case.group, case.op, case.size_bytes) for case in CASES]
    for document in (first, second):
        assert [(one.group, one.op, one.size_bytes) for one in document.collectives] == asked
        assert all(one.wrong == 0 and one.seconds > 0 for one in document.collectives)
    assert [one.seconds for one in first.collectives] == [one.seconds for one in second.collectives]


def test_one_that_nobody_meets_says_so_in_time() -> None:
    first, second = plans(patience=1.0)
    (alone,) = measured([first])
    assert alone.error is not None
    assert alone.error.text == "rank 0 of node 1 has not come in time"
    (late,) = measured([second])
    assert late.error is not None
    assert (
        f"127.0.0.1:{second.meeting.port} has not answered within 1 s" in late.error.text
        if second.meeting
        else ""
    )


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    first, _ = plans()
    assert first.meeting is not None
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", first.meeting.port))
        taken.listen()
        (document,) = measured([first])
    assert document.error is not None
    assert f"127.0.0.1:{first.meeting.port} cannot be listened at" in document.error.text


def test_an_engine_of_one_node_refuses() -> None:
    first, _ = plans()
    (document,) = measured([replace(first, engine="torch")])
    assert document.error is not None
    assert (document.error.kind, document.error.text) == (
        "no_engine",
        "engine torch runs inside one node alone",
    )
