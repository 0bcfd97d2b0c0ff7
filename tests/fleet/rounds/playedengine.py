"""An engine whose pairs go as they are told, on a clock of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wirewatch_fleet.pairs.document import RoundsDocument
from wirewatch_fleet.pairs.model import MeasuredRound
from wirewatch_fleet.rounds.answer import PeerAnswer, encode_answer
from wirewatch_fleet.rounds.campaign import CampaignOptions
from wirewatch_fleet.rounds.engine import PairNode, PairProgress, PairState, RoundOrder
from wirewatch_fleet.rounds.plan import PairWork

RATE = 10e9
WORK = PairWork("gloo", ranks=1, seconds=20.0, patience=5.0)
OPTIONS = CampaignOptions(WORK, seconds=30.0, patience=60.0)


def answers(first: str, second: str, sends: float = RATE, receives: float = RATE) -> str:
    """What both ends print, among other lines."""
    both = [
        PeerAnswer("wirewatch.fleet-peer/1", 1e9, name, first, second, sends=sends, receives=receives)
        for name in (first, second)
    ]
    return "prolog: hello\n" + "".join(f"{encode_answer(one)}\n" for one in both)


@dataclass
class PlayedEngine:
    """`slow`: the rate at which a node sends. `stuck`: state and words of pairs with this node, for ever.

    A pair answers `after` seconds after its start.
    """

    nodes: Sequence[PairNode]
    slow: Mapping[str, float] = field(default_factory=dict)
    stuck: Mapping[str, tuple[PairState, str]] = field(default_factory=dict)
    time: float = 0.0
    after: float = 2.0
    orders: list[RoundOrder] = field(default_factory=list)
    left: set[tuple[str, str]] = field(default_factory=set)
    cancels: int = 0
    _since: float = 0.0

    def members(self) -> Sequence[PairNode]:
        return self.nodes

    def start(self, order: RoundOrder) -> None:
        assert not self.left, "something of an earlier round still runs"
        self.orders.append(order)
        self.left = set(order.pairs)
        self._since = self.time

    def poll(self) -> Sequence[PairProgress]:
        return [self._one(*pair) for pair in self.orders[-1].pairs]

    def _one(self, first: str, second: str) -> PairProgress:
        told = self.stuck.get(first) or self.stuck.get(second)
        if told is not None:
            return PairProgress(first, second, *told)
        if self.time < self._since + self.after:
            return PairProgress(first, second, PairState.RUNNING)
        self.left.discard((first, second))
        rates = (self.slow.get(one, RATE) for one in (first, second))
        return PairProgress(first, second, PairState.DONE, answers(first, second, *rates))

    def cancel(self) -> None:
        self.cancels += 1
        self.left = set()

    def describe(self, order: RoundOrder) -> Sequence[str]:
        return [f"{a} with {b}" for a, b in order.pairs]


@dataclass
class PlayedView:
    """Passes the engine's time; `until`: ended from then on.

    `kept`: all that was kept, in order; `shown`: the numbers of rounds that began, and of those measured.
    """

    engine: PlayedEngine
    until: Callable[[PlayedEngine], bool] = lambda _: False
    kept: list[RoundsDocument] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def mono(self) -> float:
        return self.engine.time

    def wait(self, seconds: float) -> None:
        self.engine.time += seconds

    def ended(self) -> bool:
        return self.until(self.engine)

    def keep(self, made: RoundsDocument) -> None:
        self.kept.append(made)

    def began(self, order: RoundOrder) -> None:
        self.shown.append(f"began {order.number}")

    def measured(self, measured: MeasuredRound) -> None:
        self.shown.append(f"measured {measured.round.number}")
