"""The published state: what changes it, who hears of it, and what is said of those that raise."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.rows import each
from tests.support import EPOCH, StillClock
from wirewatch.catalogue import components
from wirewatch.core.collector import AnyCollector, Component
from wirewatch.core.types import Absent, Failed, Finding, Health, Ok, Subject, Why
from wirewatch.daemon.board import Board, ErrorLog
from wirewatch.verdict.ledger import Ledger, VerdictPolicy
from wirewatch.verdict.node import Judged

GPU, PCIE = (
    replace(one, start=f"start of {one.name}") for one in components() if one.name in {"pcie", "gpu"}
)
DEAD = Finding("gpu.missing", Health.FAILED, Subject("0"), "1 of 2", "look at it")
WELL = Component("pcie", "learned", Ok("reading", 0.0, 0.0), applicable=True)


class Heard:
    """A board of two collectors, and what its listeners heard."""

    def __init__(self, *, raises: bool = False, **given: Any) -> None:
        self.ledgers: list[Ledger] = []
        self.components: list[Component] = []
        self._raises = raises
        self.clock = StillClock()
        self.board = Board((PCIE, GPU), self.clock, changed=self.changed, published=self.published, **given)

    def changed(self, ledger: Ledger) -> None:
        self.ledgers.append(ledger)
        if self._raises:
            raise OSError("the disk is gone")

    def published(self, component: Component) -> None:
        self.components.append(component)
        if self._raises:
            raise OSError("the disk is gone")


def test_a_new_component_is_published_judged_and_heard_of() -> None:
    heard = Heard(ledger=Ledger("boot 7"), released_until=lambda: 99.0)
    assert [(ledger.boot, ledger.entries) for ledger in heard.ledgers] == [("boot 7", {})]
    heard.clock.seconds = 5.0
    heard.board.publish(replace(WELL, findings=(DEAD,)))
    node = heard.board.node
    assert (node.state.components["pcie"].memory, node.verdict.health) == ("learned", Health.FAILED)
    assert (node.polled_at, node.released_until) == (EPOCH + 5.0, 99.0)
    assert heard.components == [node.state.components["pcie"]]
    assert [entry.rule for entry in heard.ledgers[-1].entries.values()] == ["gpu.missing"]
    assert node.ledger == heard.ledgers[-1]


def test_a_listener_that_raises_costs_no_verdict_and_is_logged_once_until_it_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = Heard(raises=True)
    for _ in range(2):
        heard.board.publish(replace(WELL, findings=(DEAD,)))
    assert heard.board.node.verdict.health is Health.FAILED
    said = ["keeping what is known of faults raised", "keeping what is known of the machine raised"]
    assert [one.getMessage() for one in caplog.records] == said
    heard._raises = False  # noqa: SLF001
    heard.board.publish(WELL)
    assert [one.getMessage() for one in caplog.records][2:] == [
        "keeping what is known of faults raised the same 2 more times",
        "keeping what is known of the machine raised the same 1 more times",
    ]


def test_nobody_need_listen() -> None:
    board = Board((PCIE,), StillClock())
    board.publish(WELL)
    assert board.state.components["pcie"] == WELL


@each(
    ("pcie", "gpu", "done"),
    [
        ({}, {}, False),
        ({"outcome": Ok(1, 0.0, 0.0)}, {}, False),
        ({"outcome": Ok(1, 0.0, 0.0)}, {"outcome": Failed(Absent(Why.LOST), 0.0, 0.0)}, True),
        ({"outcome": Ok(1, 0.0, 0.0)}, {"overdue_since": 0.0}, True),
        ({"overdue_since": 0.0}, {"overdue_since": 1.0}, True),
    ],
)
def test_first_polls_are_done_when_each_has_ended_or_is_overdue(
    pcie: dict[str, Any], gpu: dict[str, Any], *, done: bool
) -> None:
    board = Heard().board
    for name, changes in (("pcie", pcie), ("gpu", gpu)):
        board.publish(replace(Component(name, None), **changes))
    assert board.first_polls_done() is done


def memories(board: Board) -> dict[str, object]:
    return {name: one.memory for name, one in board.state.components.items()}


def changed(board: Board, *collectors: AnyCollector) -> dict[str, object]:
    board.change(collectors, board.policy)
    return memories(board)


def test_a_component_that_is_taken_away_and_comes_back_goes_on_with_its_memory() -> None:
    board = Heard().board
    begun = {"pcie": "start of pcie", "gpu": "start of gpu"}
    assert memories(board) == begun
    board.publish(WELL)
    assert changed(board, GPU) == {"gpu": "start of gpu"}
    assert changed(board, GPU, PCIE) == begun | {"pcie": "learned"}
    assert board.state.components["pcie"].outcome is None
    board.publish(replace(WELL, memory="later"))
    assert changed(board, PCIE) == {"pcie": "later"}
    assert board.state.components["pcie"].outcome == WELL.outcome


def test_the_node_is_judged_by_the_policy_of_now() -> None:
    slow = replace(DEAD, health=Health.DEGRADED)
    strict = VerdictPolicy(fail_on=("failed", "degraded"))
    board = Board((PCIE,), StillClock(), policy=strict)
    board.publish(replace(WELL, findings=(slow,)))
    assert (board.policy, board.node.verdict.job_ready) == (strict, False)
    board.change((PCIE,), VerdictPolicy())
    assert (board.policy, board.node.verdict.job_ready) == (VerdictPolicy(), True)


def test_an_order_changes_the_ledger_and_what_it_raises_is_for_who_gave_it() -> None:
    board = Heard().board
    board.publish(replace(WELL, findings=(DEAD,)))

    def forget(node: Judged, policy: VerdictPolicy, _now: object) -> Ledger:
        assert (node, policy) == (board.node, board.policy)
        return Ledger("another")

    assert board.order(forget).ledger.boot == "another"
    assert board.node.ledger.boot == "another"
    with pytest.raises(ZeroDivisionError):
        board.order(lambda *_: 1 // 0)  # type: ignore[arg-type]
    assert board.node.ledger.boot == "another"


def test_an_error_is_logged_when_it_is_new_and_counted_while_it_is_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = ErrorLog(logging.getLogger(__name__))

    def raises(kind: type[Exception], text: str) -> None:
        def fail() -> None:
            raise kind(text)

        try:
            fail()
        except kind as error:
            errors.raised("a part", error)

    for text in ("one", "two", "three"):
        raises(ValueError, text)
    raises(TypeError, "other")
    assert [(one.getMessage(), one.exc_info is not None) for one in caplog.records] == [
        ("a part raised", True), ("a part raised the same 2 more times", False), ("a part raised", True),
    ]  # fmt: skip
    assert set(errors.failing) == {"a part"}
    errors.worked("a part")
    errors.worked("a part")
    assert (len(caplog.records), errors.failing) == (3, {})
    raises(TypeError, "again")
    assert caplog.records[-1].getMessage() == "a part raised"
