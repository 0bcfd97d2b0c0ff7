"""Whoever ran a probe, the daemon that folds it knows the same: own and others', among turns and restarts."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.probe.drawn import of_order
from tests.node.probe.sharednode import BOOT, SharedNode
from wirewatch.core.ports import Hardware
from wirewatch.core.probe import Outcome, Probed
from wirewatch.probe.gate import GateFacts, Stillness
from wirewatch.probe.history import History
from wirewatch.probe.judge import fold_probe
from wirewatch.probe.model import ProbeMemory, ProbeOptions, ProbePolicy, ProbeReading
from wirewatch.probe.restore import keep, persistent

Who = Literal["daemon", "command", "between", "forced", "part", "turn", "restart", "again"]
OFTEN: tuple[Who, ...] = ("daemon", "command", "command", "command", "turn", "restart")
WHO: tuple[Who, ...] = (*OFTEN, *OFTEN, "between", "forced", "part", "again")
LOOKS: tuple[dict[str, Any], ...] = ({}, {"speed": 0.5}, {"wrong": 1}, {"errors": {1: {"crc": 1}}})
ENDS: tuple[Outcome, ...] = ("ok", "ok", "ok", "failed", "preempted")


@dataclass(frozen=True)
class Move:
    """What happens, and how a probe ends and looks that is run."""

    who: Who
    look: int = 0
    end: Outcome = "ok"


MOVES = st.builds(
    Move, st.sampled_from(WHO), st.integers(0, len(LOOKS) - 1), st.sampled_from(ENDS)
)  # fmt: skip


class Played(SharedNode):
    """A daemon whose own probes run when they are told to.

    `counted` are those that should count, with when each ended; the first `folded` of these are in the
    memory, and those before `started` were when the daemon started. Before `begun` the history was another.
    """

    def __init__(self, folder: Path) -> None:
        self.own_next: Probed | None = None
        self.between: Probed | None = None
        self.counted: list[tuple[Probed, float]] = []
        self.folded = self.started = self.begun = 0
        super().__init__(folder)
        self.ordered = self.order("daemon")
        self.another = History.open(self.state.history, self.clock)

    def start(self) -> None:
        super().start()
        assert self.history is not None
        self.collector = replace(self.collector, read=self._read)
        self.collector = persistent(self.collector, self.history, BOOT, self.expect)
        self.counted = self.counted[self.begun :]
        self.started = self.folded = max(0, self.folded - self.begun)
        self.begun = 0

    def _read(self, _hardware: Hardware, _memory: ProbeMemory, _options: ProbeOptions) -> ProbeReading:
        if self.between is not None:
            self.keep(self.between)
        probed, self.own_next, self.between = self.own_next, None, None
        facts = GateFacts((), (), None, self.clock.mono())
        return ProbeReading(facts, Stillness(), "nccl", due=False, refusal=None, probed=probed)

    def draw(self, move: Move, *, by: Literal["daemon", "command"] = "command") -> Probed:
        """A probe that has ended just now."""
        self.clock.seconds += 100.0
        probed = of_order(self.ordered, self.clock.now() - 1.5, move.end, **LOOKS[move.look])
        return replace(probed, by=by)

    def count(self, probed: Probed) -> Probed:
        self.counted.append((probed, self.clock.mono()))
        return probed

    def keep(self, probed: Probed) -> None:
        keep(self.another, probed, probed.at + 1.5, BOOT)

    def turn(self) -> None:
        self.poll(every=0.0)
        self.folded = len(self.counted)

    def move(self, move: Move) -> None:
        match move.who:
            case "daemon":
                self.own_next = self.count(self.draw(move, by="daemon"))
                self.turn()
            case "between":
                self.between = self.count(self.draw(move))
                self.own_next = self.count(self.draw(Move("daemon"), by="daemon"))
                self.turn()
            case "command":
                self.keep(self.count(self.draw(move)))
            case "forced":
                self.keep(replace(self.draw(move), forced=True))
            case "part":
                probed = self.draw(replace(move, end="preempted"))
                self.keep(replace(probed, outcome="failed", plan=replace(probed.plan, ops=("all_gather",))))
            case "turn":
                self.turn()
            case "restart":
                self.start()
            case "again":
                self.turn()
                for path in self.state.directory.glob("probes.sqlite*"):
                    path.unlink()
                self.begun = len(self.counted)

    def expected(self, first: int) -> ProbeMemory:
        """What a daemon would know that had run all of them itself, from the first of these on."""
        memory = ProbeMemory()
        for probed, mono in self.counted[first:]:
            memory = fold_probe(memory, replace(probed, by="daemon"), mono, ProbePolicy())
        return memory


def believed(memory: ProbeMemory) -> dict[str, Any]:
    """All that does not begin again with a daemon, times as (monotonic) numbers of their own."""
    named = ("streaks", "held", "failures", "unconfirmed", "clean")
    newest = {name: getattr(memory, name) for name in ("last", "tried")}
    return {
        **{name: getattr(memory, name) for name in named},
        **{name: probed and replace(probed, by="daemon") for name, probed in newest.items()},
        "same": memory.tried is memory.last,
    }


def times(memory: ProbeMemory) -> list[float]:
    return [-1.0 if mono is None else mono for mono in (memory.last_mono, memory.tried_mono)]


@settings(max_examples=examples(200))
@given(st.lists(MOVES, max_size=10))
def test_own_and_others_in_any_order_give_the_memory_of_all_own(moves: Sequence[Move]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        node = Played(Path(folder))
        for move in moves:
            node.move(move)
        node.turn()
        memory = node.memory
        whole = node.expected(0)
        assert believed(memory) == believed(whole)
        assert times(memory) == pytest.approx(times(whole))
        since = node.expected(node.started)
        assert (memory.runs, memory.completed) == (since.runs, since.completed)
        assert memory.gpu_seconds == pytest.approx(since.gpu_seconds)
        if not any(move.who == "restart" for move in moves):
            assert [(past.at, past.outcome) for past in memory.past] == [
                (probed.at, probed.outcome) for probed, _ in node.counted
            ]
            assert [cost for _, cost in memory.spent] == [cost for _, cost in whole.spent]
        node.start()
        node.turn()
        assert believed(node.memory) == believed(node.expected(0))
        assert node.memory.runs == {}


def test_the_moves_of_that_test_do_what_they_say(tmp_path: Path) -> None:
    node = Played(tmp_path)
    for who in WHO[5:]:
        node.move(Move(who, look=1))
    assert node.records() == []
    node.move(Move("between", look=1))
    assert [record.started_by for record in node.records()] == ["command", "daemon"]
    assert [record.folded for record in node.records()] == [True, True]
    assert len(node.counted) == 8
