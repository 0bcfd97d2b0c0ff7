"""A node for tests: a recording, changes to it, a clock that stands still, and the collectors over it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from wirewatch.catalogue import components
from wirewatch.core.collector import AnyCollector, NodeState
from wirewatch.core.fold import after
from wirewatch.core.nvml import count_gpus, identify
from wirewatch.core.ports import Answer, Gpu, Hardware, NvmlCost, Question
from wirewatch.core.types import Absent, Expect, Finding, Health
from wirewatch.daemon.board import begun
from wirewatch.daemon.schedule import Job
from wirewatch.hw.overlay import AnswerChange, Overlay, Player, ReplayNvml
from wirewatch.hw.recording import Key, Recording, load_recording
from wirewatch.hw.replay import (
    ReplayCommand,
    ReplayHost,
    ReplayKmsg,
    ReplayKubelet,
    ReplayProbe,
    ReplaySlurm,
    ReplaySysfs,
)
from wirewatch.jobs.ras.recorded import ReplayRas
from wirewatch.jobs.tap.recorded import ReplayRings
from wirewatch.verdict.node import judge_node

_loaded = cache(load_recording)
LATER = ("InforomImageVersion()", "GpmSupported()")
"""Questions that some bundled recordings are too old for: GPUs of these do not answer them."""
NOT_SUPPORTED = 3
EPOCH = 1_795_223_090.0


class StillClock:
    """Moves only when a test moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return EPOCH + self.seconds

    def mono(self) -> float:
        return 1000.0 + self.seconds


class DirectNvml:
    """The NVML port without a process in between."""

    def __init__(self, answers: ReplayNvml) -> None:
        self._answers = answers
        self._known: dict[int, Gpu] = {}
        self.number = 1

    def session(self) -> int:
        return self.number

    def gpus(self) -> Sequence[Gpu] | Absent:
        count = count_gpus(self.ask)
        if isinstance(count, Absent):
            return count
        found = {i: identify(self.ask, i, self._known.get(i)) for i in range(count)}
        self._known |= found
        return tuple(found.values())

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        return self._answers.answer(gpu, questions)

    def seek(self) -> None:
        pass

    def cost(self) -> NvmlCost:
        return NvmlCost(None, 0.0, 0, 0)


@dataclass(frozen=True)
class NotingPlayer(Player):
    """A player that notes what it is asked, and whose changes may change while it plays."""

    asked: set[Key] = field(default_factory=set)
    changes: Sequence[AnswerChange] = ()
    known: list[AnswerChange] = field(default_factory=list)
    """The changes as they were at the last question."""

    def answer(self, key: Key) -> Answer:
        self.asked.add(key)
        if self.known != self.changes:
            self.known[:] = self.changes
            vars(self).pop("changes_of", None)
        return super().answer(key)


class Node:
    """The collectors that are on by default, and those of `also`, over a recording; or `only` some of them.

    A recording that is no bundled one has nothing of what it was not asked.

    `changes` may be added to while it runs.
    """

    def __init__(
        self, recording: str | Recording = "h200x8", changes: Sequence[AnswerChange] = (),
        expect: Expect | None = None, also: Sequence[str] = (), only: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.clock = StillClock()
        self.changes = list(changes)
        self.expect = expect or Expect()
        wanted = {c.name for c in components() if c.options.enabled and c.name != "agent"} | set(also)
        wanted = wanted & set(only) if only else wanted
        self.collectors: dict[str, AnyCollector] = {c.name: c for c in components() if c.name in wanted}
        self.state = NodeState({c.name: begun(c, c.start) for c in self.collectors.values()})
        overlay = Overlay("test", "", self.changes)  # type: ignore[arg-type]
        # The raw dump behind h200x8 did not ask everything; recordings of `wirewatch record` did.
        strict = isinstance(recording, str) and recording != "h200x8"
        loaded = _loaded(recording) if isinstance(recording, str) else recording
        unasked = [q for q in LATER if ("nvml", f"gpu0/{q}") not in loaded.answers]
        silent = tuple(AnswerChange("nvml", f"gpu*/{q}", "code", NOT_SUPPORTED) for q in unasked)
        older = Overlay("older", "", silent)
        player = NotingPlayer(
            loaded, lambda: self.clock.seconds, (older, overlay), strict=strict, changes=self.changes
        )
        self.asked = player.asked
        self.nvml = DirectNvml(ReplayNvml(player))
        self.hardware = Hardware(
            self.nvml, ReplaySysfs(player), ReplayHost(player, EPOCH), ReplayKmsg(player),
            ReplayCommand(player), ReplayKubelet(player), ReplaySlurm(player), self.clock,
            ReplayProbe(player, self.clock), source="replay", rings=ReplayRings(player, self.clock),
            ras=ReplayRas(player),
        )  # fmt: skip

    def options(self, name: str, **values: Any) -> None:
        collector = self.collectors[name]
        self.collectors[name] = replace(collector, options=replace(collector.options, **values))

    def policy(self, name: str, **values: Any) -> None:
        collector = self.collectors[name]
        self.collectors[name] = replace(collector, policy=replace(collector.policy, **values))

    def change(self, match: str, action: str, argument: Any) -> AnswerChange:
        """AnswerChange an NVML answer from now on; returns what `undo` takes back."""
        made = AnswerChange("nvml", match, action, argument)
        self.changes.append(made)
        return made

    def undo(self, made: AnswerChange) -> None:
        self.changes.remove(made)

    def poll(self, *names: str, times: int = 1, every: float = 15.0) -> NodeState:
        """Run the collectors named, or all, so many times, `every` seconds apart."""
        for _ in range(times):
            for name in names or self.collectors:
                component = self.state.components[name]
                step = Job(self.collectors[name], self.hardware, self.expect).run(component.memory)
                # A golden cannot hold CPU times.
                self.state = self.state.with_component(after(component, replace(step, cpu=0.0)))
            self.clock.seconds += every
        return self.state

    def health(self) -> Health:
        return judge_node(self.state).health

    def health_of(self, name: str) -> Health | None:
        return self.state.components[name].health

    def findings(self) -> tuple[Finding, ...]:
        return judge_node(self.state).findings

    def shown(self) -> tuple[Finding, ...]:
        """The findings that count and those of running jobs, which stand aside."""
        return tuple(one.finding for one in judge_node(self.state).standings if one.has_series)

    def rules(self) -> set[tuple[str, str, str, Health]]:
        """Rule, GPU, link and health of each finding."""
        return {(f.rule, f.subject.gpu, f.subject.link, f.health) for f in self.findings()}

    def series(self, metric: str, **labels: str) -> list[float]:
        """Values of the series of a metric that carry these labels."""
        return [
            s.value
            for c in self.state.components.values()
            for s in c.samples
            if s.metric.name == metric
            and labels.items() <= dict(zip(s.metric.labels, s.labels, strict=True)).items()
        ]
