"""Orders of an operator on a board without a daemon: what is done, and what is refused and why."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rows import each
from tests.support import EPOCH, Node, StillClock
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.pairs import Measure, PartKind, Way
from wirewatch.core.types import Absent, Failed, Health, Why
from wirewatch.daemon import operator, pairsresult
from wirewatch.daemon.baselines import BaselineStore
from wirewatch.daemon.board import Board
from wirewatch.daemon.operator import FindingOrders, TopologyOrders
from wirewatch.daemon.pairsresult import PairsOrders, PairsResultStore
from wirewatch.documents.drift import AcceptOrder
from wirewatch.documents.judged import gate_orders
from wirewatch.documents.pairsorder import PairsOrder
from wirewatch.server.control import FindingOrder
from wirewatch.verdict.drift.baseline import NOT_POLLED
from wirewatch.verdict.drift.change import severity
from wirewatch.verdict.drift.component import DriftMemory
from wirewatch.verdict.drift.watch import DriftPolicy, DriftWatch, fold_drift, name_of, standing
from wirewatch.verdict.orders import OrderError
from wirewatch.verdict.pairs import NAME as PAIRS
from wirewatch.verdict.pairs import HeldResult, PairsLoss, PairsMemory, PairsPart, PairsResult

ALL = AcceptOrder("ann", "moved")
DOWN = ("gpu2/Field(165,7)", "set", 0)


@pytest.fixture(scope="module")
def well() -> Node:
    node = Node("demo-dgx-h200")
    node.poll(times=3)
    return node


@pytest.fixture(scope="module")
def broken() -> Node:
    node = Node("demo-dgx-h200")
    node.change(*DOWN)
    node.poll(times=4)
    return node


def board_of(node: Node) -> Board:
    made = Board((), node.clock)
    for component in node.state.components.values():
        made.publish(component)
    return made


class Orders:
    """Orders about a topology, with what they have done."""

    def __init__(self, node: Node, reading: Callable[[], Any] = lambda: None, **drift: Any) -> None:
        self.done: list[str] = []
        self.board, self.store = board_of(node), BaselineStore(None, node.clock)
        if drift:
            component = node.state.components["drift"]
            self.board.publish(replace(component, **drift))
        self.orders = TopologyOrders(self.store, node.clock)

        async def read(name: str) -> None:
            self.done.append(name)
            await asyncio.sleep(0)
            if (wait := reading()) is not None:
                await wait

        self.orders.attach(
            self.board, lambda: self.done.append("poll"), read, lambda: self.done.append("forget")
        )

    def accept(self, order: AcceptOrder = ALL) -> str:
        """The refusal, empty for none."""
        try:
            asyncio.run(self.orders.accept(order))
        except OrderError as error:
            return str(error)
        return ""


def test_a_topology_is_accepted_as_it_is_read_after_the_order(well: Node) -> None:
    orders = Orders(well)
    assert orders.accept() == ""
    assert orders.done == ["drift", "forget", "poll"]
    assert orders.store.baseline is not None
    assert (orders.store.baseline.said.by, orders.store.baseline.said.why) == ("ann", "moved")


def test_a_fault_speaks_against_it_unless_it_is_meant(broken: Node) -> None:
    orders = Orders(broken)
    assert "nvlink.link_down" in orders.accept()
    assert orders.accept().endswith("if it is meant, order it with --yes")
    assert (orders.store.baseline, orders.done) == (None, ["drift", "drift"])
    assert orders.accept(replace(ALL, yes=True)) == ""


@pytest.mark.parametrize(("count", "more"), [(3, ""), (4, " and 1 more")])
def test_three_doubts_are_named_and_the_others_counted(well: Node, count: int, more: str) -> None:
    memory = well.state.components["drift"].memory
    assert isinstance(memory, DriftMemory)
    doubts = tuple(f"doubt {n}" for n in range(count))
    told = Orders(well, memory=replace(memory, doubts=doubts)).accept()
    assert told.startswith(f"doubt 0, doubt 1, doubt 2{more}; with this order what the node lacks now keeps")


def test_one_change_is_accepted_by_its_name_whatever_else_is_wrong(well: Node, broken: Node) -> None:
    orders = Orders(broken)
    assert orders.accept(replace(ALL, change="d1f")).startswith("there is no baseline yet")
    first = Orders(well)
    assert first.accept() == ""
    baseline = first.store.baseline
    assert baseline is not None
    memory = broken.state.components["drift"].memory
    assert isinstance(memory, DriftMemory)
    held = Orders(broken, memory=replace(memory, baseline=baseline, read=baseline))
    assert held.store.put(baseline, None)
    changes = list(standing(memory.watch, baseline))
    assert "nothing" in held.accept(replace(ALL, change="0000")) or held.accept(replace(ALL, change="0000"))
    for one in changes:
        order = replace(ALL, change=name_of(one.change), yes=True)
        assert held.accept(order) == ""
    assert "forget" not in held.done


def lacking(well: Node, broken: Node) -> Orders:
    """Orders about a node that lost a link since its baseline."""
    first = Orders(well)
    assert first.accept() == ""
    baseline, memory = first.store.baseline, broken.state.components["drift"].memory
    assert isinstance(memory, DriftMemory)
    assert baseline is not None
    assert memory.watch.graph is not None
    watch = DriftWatch()
    for _ in range(2):
        watch, _ = fold_drift(watch, baseline, memory.watch.graph, EPOCH, (), DriftPolicy())
    held = Orders(broken, memory=DriftMemory(watch, baseline, baseline))
    assert held.store.put(baseline, None)
    return held


def accepted(orders: Orders) -> list[tuple[str, str]]:
    """The orders of `topology accept` that `check` would show, each with what takes it back."""
    component = orders.board.node.state.components["drift"]
    assert isinstance(component.memory, DriftMemory)
    memory = replace(component.memory, baseline=orders.store.baseline)
    state = orders.board.node.state.with_component(replace(component, memory=memory))
    given = gate_orders(replace(orders.board.node, state=state))
    return [(one.by, one.undo) for one in given if one.order == "accept"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_loss_is_accepted_when_it_is_meant_and_can_be_taken_back(
    well: Node, broken: Node, *, whole: bool
) -> None:
    held = lacking(well, broken)
    baseline, memory = held.store.baseline, held.orders.node()
    assert memory is not None
    assert baseline is not None
    (lost,) = (
        name_of(one.change)
        for one in standing(memory.state.components["drift"].memory.watch, baseline)
        if severity(one.change).health is Health.FAILED
    )
    order = replace(ALL, change="" if whole else lost)
    refused = held.accept(order)
    assert "is FAILED" in refused.partition("; with this order")[0]
    assert "keeps no job away any more; `wirewatch topology accept" in refused
    assert refused.endswith("if it is meant, order it with --yes")
    assert (held.store.baseline, accepted(held)) == (baseline, [])
    assert held.accept(replace(order, yes=True)) == ""
    undo = "wirewatch topology accept --undo" if whole else f"wirewatch topology accept {lost} --undo"
    assert accepted(held) == [("ann", undo)]
    assert held.accept(replace(order, undo=True)) == ""
    assert held.store.baseline is not None
    assert replace(held.store.baseline, before=None) == replace(baseline, before=None)
    assert accepted(held) == []


@pytest.mark.parametrize(
    ("change", "refused"), [("", "no baseline is known"), ("0000", "no change 0000 was")]
)
def test_there_may_be_nothing_to_take_back(well: Node, change: str, refused: str) -> None:
    """Its baseline was learned."""
    assert refused in Orders(well).accept(replace(ALL, change=change, undo=True))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"outcome": Failed(Absent(Why.TIMEOUT, "the driver hangs"), 0.0, 0.0)},
            "cannot be read now: timeout: the",
        ),
        ({"memory": None}, "is switched off"),
    ],
)
def test_what_cannot_be_read_is_not_accepted(well: Node, changes: dict[str, Any], words: str) -> None:
    assert words in Orders(well, **changes).accept()


def test_a_reading_that_hangs_is_not_waited_for(well: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "WITHIN", 0.01)
    assert Orders(well, lambda: asyncio.sleep(60)).accept() == "the topology could not be read within 0.01 s"


def test_without_a_board_nothing_is_known_and_nothing_done(well: Node) -> None:
    orders = TopologyOrders(BaselineStore(None, well.clock), well.clock)
    assert (orders.troubles(), orders.node()) == ((NOT_POLLED,), None)
    with pytest.raises(OrderError, match="is switched off"):
        asyncio.run(orders.accept(ALL))


def test_troubles_are_the_findings_of_others_once_all_have_been_read(well: Node, broken: Node) -> None:
    assert Orders(well).orders.troubles() == ()
    assert "nvlink.link_down" in Orders(broken).orders.troubles()
    orders = Orders(well)
    orders.board.publish(Component("nvlink", None))
    assert orders.orders.troubles() == (NOT_POLLED,)


@pytest.mark.parametrize(
    ("order", "refused"),
    [
        (FindingOrder("suppress", "ann", "x", EPOCH + 9e4), "yes"),
        (FindingOrder("suppress", "ann", "x"), "until when"),
        (FindingOrder("suppress", "ann", "x", EPOCH + 9e4, yes=True), ""),
        (FindingOrder("repaired", "ann", "x", yes=True), "measured"),
    ],
)
def test_orders_about_a_finding(broken: Node, order: FindingOrder, refused: str) -> None:
    board, told = board_of(broken), list[Any]()
    (name,) = (one.id for one in board.node.verdict.standings if one.finding.rule == "nvlink.link_down")
    orders = FindingOrders(board, broken.clock, told.append)
    if refused:
        with pytest.raises(OrderError, match=refused):
            orders.carry_out(name, order)
    else:
        orders.carry_out(name, order)
        assert board.node.ledger.suppressions
        orders.carry_out(name, replace(order, order="unsuppress"))
        assert not board.node.ledger.suppressions
    assert told == []


def test_seen_changes_the_ledger_and_no_verdict(broken: Node) -> None:
    board, told = board_of(broken), list[Any]()
    (name,) = (one.id for one in board.node.verdict.standings if one.finding.rule == "nvlink.link_down")
    orders, before = FindingOrders(board, broken.clock, told.append), board.node.verdict.health
    said = orders.carry_out(name, FindingOrder("ack", "ann", "seen"))
    assert (board.node.verdict.health, len(board.node.ledger.seen)) == (before, 1)
    assert said.said.startswith(f"{name} is acknowledged as seen")
    assert [one.acknowledged.by for one in said.findings if one.acknowledged] == ["ann"]
    orders.carry_out(name, FindingOrder("unack", "ann", "x"))
    assert (board.node.ledger.seen, told) == ({}, [])


RESULT = PairsResult(EPOCH, "node-7", 1, judged=True, parts=(), measured=(), partners=())


class Told:
    """Results that are told, one after the other."""

    def __init__(self, memory: Any = None, reading: Callable[[], Any] = lambda: None) -> None:
        self.readings, self._wait = 0, reading
        self.store = PairsResultStore(None, StillClock())
        memory = PairsMemory(lasts=3600.0) if memory is None else memory
        node = SimpleNamespace(components={PAIRS: SimpleNamespace(memory=memory)})
        made: Any = SimpleNamespace(state=node, node=SimpleNamespace())
        self.orders = PairsOrders(self.store, made, StillClock(), self._read)

    async def _read(self, _name: str) -> None:
        self.readings += 1
        if (wait := self._wait()) is not None:
            await wait

    def tell(self, result: PairsResult) -> str:
        try:
            asyncio.run(self.orders.tell(PairsOrder("ann", result)))
        except OrderError as error:
            return str(error)
        return ""


@pytest.fixture(autouse=True)
def no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairsresult, "findings", lambda *_: None)


@each(
    ("later", "refused"),
    [
        (0.0, ""),
        (300.0, ""),
        (301.0, "301 s in the future"),
        (-3599.0, ""),
        (-3600.0, "older than 1 hours"),
    ],
)
def test_a_result_is_of_now(later: float, refused: str) -> None:
    told = Told()
    said = told.tell(replace(RESULT, at=EPOCH + later))
    assert refused in said
    assert bool(refused) is bool(said)
    assert told.readings == (0 if refused else 1)
    assert (told.store.result is None) is bool(refused)


def test_an_older_result_is_refused_and_the_same_one_changes_nothing() -> None:
    told = Told()
    assert [told.tell(RESULT), told.tell(RESULT)] == ["", ""]
    assert told.readings == 1
    assert "10 s later" in told.tell(replace(RESULT, at=EPOCH - 10))
    assert told.tell(replace(RESULT, at=EPOCH + 10)) == ""
    assert told.readings == 2


def test_a_name_that_cannot_be_printed_is_refused() -> None:
    assert "cannot be printed" in Told().tell(replace(RESULT, member="a\x1b"))


@pytest.mark.parametrize("memory", [object(), DriftMemory()])
def test_a_node_that_takes_none_says_so(memory: object) -> None:
    assert "is switched off" in Told(memory).tell(RESULT)


def test_a_node_without_the_component_takes_none() -> None:
    told = Told()
    vars(told.orders)["_board"].state.components.clear()
    assert "is switched off" in told.tell(RESULT)


def test_what_was_told_is_read_again_and_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    path, store = tmp_path / "pairs.json", Told().store
    assert pairsresult.read_result(path) == HeldResult()
    assert vars(store)["_writer"]
    assert store._save(path) == ""  # noqa: SLF001 - nothing was told
    assert not path.exists()
    vars(store)["_held"] = HeldResult(RESULT)
    assert store._save(path) == ""  # noqa: SLF001
    assert pairsresult.read_result(path) == HeldResult(RESULT)
    path.write_text("nonsense", "utf-8")
    assert str(path) in pairsresult.read_result(path).trouble
    assert path.exists()
    assert "kept as" in pairsresult.read_result(path, EPOCH).trouble
    assert not path.exists()


@pytest.mark.parametrize(("parts", "said"), [(0, "nothing is slow"), (2, "2 parts are slow")])
def test_what_was_told_is_written_soon_and_said_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, parts: int, said: str
) -> None:
    caplog.set_level("INFO")
    loss = PairsLoss(next(iter(Way)), 0.5, 0.4, 0.6, 2, 2, 2)
    slow = tuple(
        PairsPart(
            PartKind.NODE,
            f"node-{n}",
            "",
            "",
            across=False,
            measure=next(iter(Measure)),
            losses=(loss,),
            at=EPOCH,
        )
        for n in range(parts)
    )
    result, path = replace(RESULT, parts=slow), tmp_path / "pairs.json"
    told = Told()

    async def story() -> None:
        vars(told.orders)["_store"] = store = PairsResultStore(path, StillClock())
        await told.orders.tell(PairsOrder("ann", result))
        await store.flush()

    asyncio.run(story())
    assert f"ann: pairs of nodes: as node-7, {said}" in caplog.text
    assert pairsresult.read_result(path).result == result


def test_what_is_not_judged_in_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairsresult, "WITHIN", 0.01)
    told = Told(reading=lambda: asyncio.sleep(60))
    assert told.tell(RESULT) == "it is kept, but was not judged within 0.01 s"
    assert told.store.result is not None


@pytest.mark.parametrize(
    ("collector", "known", "changed"), [(PAIRS, True, True), ("nvlink", True, False), (PAIRS, False, False)]
)
def test_a_repaired_finding_of_pairs_is_forgotten(collector: str, *, known: bool, changed: bool) -> None:
    told = Told()
    if known:
        told.store.put(RESULT)
    before = told.store.result
    standing: Any = SimpleNamespace(collector=collector, key=("pairs.slow", None))
    told.orders.repaired(standing)
    assert (told.store.result is not before) is changed


def test_a_store_says_what_it_was_given() -> None:
    assert PairsResultStore(None, StillClock(), HeldResult(None, "broken")).trouble == "broken"
    assert NodeState({}).components == {}
