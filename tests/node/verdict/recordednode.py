"""The collectors over a recording, and the board that remembers what they found, over restarts and boots."""

from collections.abc import Collection
from pathlib import Path

from tests.support import Node
from wirewatch.core.fold import after
from wirewatch.core.types import Health
from wirewatch.daemon.board import Board
from wirewatch.daemon.persistence import read_ledger, save_ledger
from wirewatch.daemon.schedule import Job
from wirewatch.hw.overlay import AnswerChange, load_overlay
from wirewatch.probe.restore import boot_id
from wirewatch.verdict.ledger import Ledger, Stage
from wirewatch.verdict.node import Verdict

DEMO = "demo-dgx-h200"


class RecordedNode:
    """A node whose overlay may be taken away, whose daemon may be restarted, whose machine may be booted.

    `only` these collectors are there; all when none is named.
    """

    def __init__(
        self, folder: Path, overlay: str = "", recording: str = DEMO, only: Collection[str] = ()
    ) -> None:
        self.path = folder / "latches.json"
        self.node = Node(recording, load_overlay(overlay).changes if overlay else ())
        self.only = only or tuple(self.node.collectors)
        self.path.unlink(missing_ok=True)
        self.board = self._board()

    def _board(self) -> Board:
        clock = self.node.clock
        ledger = read_ledger(self.path, boot_id(self.node.hardware), clock.now(), own=True)
        return Board([c for n, c in self.node.collectors.items() if n in self.only], clock, ledger=ledger)

    @property
    def verdict(self) -> Verdict:
        return self.board.node.verdict

    @property
    def health(self) -> Health:
        return self.verdict.health

    @property
    def ledger(self) -> Ledger:
        return self.board.node.ledger

    def poll(self, *names: str, times: int = 1, every: float = 15.0) -> Verdict:
        """As `Node.poll`; what each collector found is published before the next one reads."""
        node = self.node
        for _ in range(times):
            for name in names or self.only:
                component = self.board.state.components[name]
                step = Job(node.collectors[name], node.hardware, node.expect).run(component.memory)
                self.board.publish(after(component, step))
            node.clock.seconds += every
        return self.verdict

    def stages(self) -> dict[str, Stage]:
        """By rule; of several with one rule the last."""
        return {entry.rule: entry.stage for entry in self.ledger.entries.values()}

    def repair(self) -> None:
        """What the overlay did is undone."""
        self.node.changes.clear()

    def change(self, match: str, action: str, argument: object, port: str = "nvml") -> None:
        self.node.changes.append(AnswerChange(port, match, action, argument))

    def restart(self, seconds: float = 20.0) -> None:
        """The daemon ends, and starts again: what its collectors knew is gone."""
        assert save_ledger(self.path, self.ledger, self.node.clock.now()) == ""
        self.node.clock.seconds += seconds
        self.board = self._board()

    def boot(self, name: str = "another boot") -> None:
        """The machine starts again."""
        self.change("BootId()", "set", name, port="host")
        self.restart(180.0)
