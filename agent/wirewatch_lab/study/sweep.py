"""Runs a sweep: a worker for each configuration in each repeat, each measurement on disk at once.

A sweep is a series of probes: the same gate, runner and guard. When a job comes, the worker is killed and the
sweep stops, to be resumed. A failing configuration is given up, and the others continue.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from wirewatch.core.account import Account
from wirewatch.core.ports import Hardware, Order
from wirewatch.core.probe import Case, Cost, Plan, Probed, Timed
from wirewatch.core.statistics import grouped
from wirewatch.nccl.log import logged_size
from wirewatch_lab.study.curve import AUTO, Configuration
from wirewatch_lab.study.environment import bare_plan
from wirewatch_lab.study.grid import ALGORITHMS, EAGER, GRAPH, PROTOCOLS
from wirewatch_lab.study.records import GivenUp, Key, Measurement, RanAs, SweepFile, SweepHeader

WARMUP = 5
"""Untimed runs before the timed runs, as in nccl-tests until 2.17."""
STARTS = 3
"""The sweep stops after this many different configurations whose worker does not start."""
START_SECONDS, CASE_SECONDS, SLOWER = 120.0, 30.0, 100.0
"""Seconds for a worker's start, and for each measurement; a measurement may also take SLOWER times its usual
time on a healthy machine."""
_NAMES = {name.lower().replace("_", ""): name for name in (*ALGORITHMS, *PROTOCOLS)}


@dataclass(frozen=True, slots=True)
class EngineSpeed:
    """Usual speed of an engine: seconds to start, seconds of a launch, bytes a second of an operation."""

    start: float
    launch: float
    rate: float


SPEEDS: Mapping[str, EngineSpeed] = {"gloo": EngineSpeed(3.0, 1e-3, 0.2e9)}
USUAL = EngineSpeed(5.0, 20e-6, 100e9)


@dataclass(frozen=True, slots=True)
class Batch:
    """Measurements of one worker: all curves of a configuration, which is given with eager launch."""

    repeat: int
    configuration: Configuration
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class SweepEnd:
    """The end of a sweep, and why, in words. A sweep that is not `complete` can be resumed."""

    how: Literal["complete", "stopped", "gave_way", "failed"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class SweepView:
    """Observers of a sweep.

    `began` gets each batch as its worker starts. `measured` gets the usual seconds of each part, once it is
    done or given up. `stop` returns why to stop, None to continue.
    """

    began: Callable[[Batch], None]
    measured: Callable[[float], None]
    stop: Callable[[], str | None]


def batches(header: SweepHeader, left: Iterable[Key]) -> tuple[Batch, ...]:
    """Return the remaining batches in the order of the header's seed: repeats in turn, each in its own order.

    A resumed sweep keeps this order.
    """
    shared = [replace(curve.configuration, launch=EAGER) for curve in header.curves]
    found = grouped(((key[1], shared[key[0]]), key) for key in left)
    every = sorted(set(shared))
    order: list[tuple[int, Configuration]] = []
    for repeat in range(header.options.repeats):
        drawn = [(repeat, configuration) for configuration in every]
        random.Random(f"{header.seed}.{repeat}").shuffle(drawn)  # noqa: S311 - an order, no secret
        order += drawn
    return tuple(Batch(*name, tuple(found[name])) for name in order if name in found)


def usual_seconds(header: SweepHeader, keys: Iterable[Key]) -> float:
    """Return the usual seconds of these keys, by launches and bytes, without worker starts."""
    speed = _speed(header.options.engine)
    return sum(_usual(_case(header, key), speed) for key in keys)


def start_seconds(engine: str) -> float:
    """Return the usual seconds of a worker's start."""
    return _speed(engine).start


class SweepRun:
    """A sweep from its file's state on, over the GPUs of an order from the gate."""

    def __init__(self, hardware: Hardware, order: Order, file: SweepFile, view: SweepView) -> None:
        self._hardware = hardware
        self._order = order
        self._file = file
        self._view = view
        self._records = file.records
        self._header = file.records.header
        self._silent: dict[Configuration, str] = {}
        self._suspects: set[Configuration] = set()
        self._failed: set[Key] = set()
        self._measured = False
        self._due = 0.0
        self._late: str | None = None

    def run(self) -> SweepEnd:
        """Measure everything that is left.

        A failure is retried once before it is given up; a worker that does not start is retried after all
        others. Raises OSError: the file cannot be written.
        """
        waiting = deque(batches(self._header, self._records.left()))
        again: set[Batch] = set()
        while waiting:
            batch = waiting.popleft()
            if keys := tuple(key for key in batch.keys if self._records.is_left(key)):
                self._view.began(batch)
                end = self._stopped() or self._batch(replace(batch, keys=keys))
                if end is not None:
                    return end
                if batch.configuration not in self._silent:
                    waiting.appendleft(batch)
                elif batch not in again:
                    again.add(batch)
                    waiting.append(batch)
        return SweepEnd("complete") if self._records.complete else SweepEnd("failed", self._no_start())

    def _stopped(self) -> SweepEnd | None:
        why = self._view.stop()
        return None if why is None else SweepEnd("stopped", why)

    def _batch(self, batch: Batch) -> SweepEnd | None:
        """Run one worker; None to continue."""
        cases = [_case(self._header, key) for key in batch.keys]
        following = list(zip(batch.keys, cases, strict=True))
        self._late, self._due = None, self._now() + START_SECONDS + self._allowed(cases[0])

        def heard(timed: Timed) -> None:
            """Record a case; the worker reports cases in order, without cases that its engine lacks."""
            while following:
                key, case = following.pop(0)
                if (timed.op, timed.size_bytes) == (case.op, case.size_bytes):
                    if timed.seconds > 0 and (timed.launch == GRAPH) == (case.launch == GRAPH):
                        self._keep(key, timed)
                    break
            self._due = self._now() + (self._allowed(following[0][1]) if following else CASE_SECONDS)

        plan = _plan_of(self._order.plan, batch, cases, self._header)
        order = replace(
            self._order, plan=plan, conditions=(), heard=heard,
            withdrawn=self._withdrawn, deadline=START_SECONDS + sum(map(self._allowed, cases)),
        )  # fmt: skip
        probed = self._hardware.probe.run(order)
        self._keep_log(batch, probed.account)
        self._file.drain()
        return self._judge(batch, probed)

    def _judge(self, batch: Batch, probed: Probed) -> SweepEnd | None:
        """Return the consequence of a worker's end for the sweep."""
        left = [key for key in batch.keys if self._records.is_left(key)]
        if len(left) < len(batch.keys):
            self._measured = True
            self._silent.clear()
        if probed.outcome == "preempted" and not self._late:
            return self._stopped() or SweepEnd("gave_way", probed.why)
        if probed.outcome in {"stuck", "away"}:
            return SweepEnd("failed", probed.why)
        if not left:
            return None
        why = self._late or probed.why or "the worker did not report it as it was asked for"
        cost = probed.document.cost if probed.document else Cost()
        nothing = len(left) == len(batch.keys)
        if probed.outcome == "out_of_memory" and not cost.communicators:
            # The buffer is as large as the largest size: without that it may fit.
            largest = max(size for _, _, size in left)
            self._give_up([key for key in left if key[2] == largest], why)
        elif left[0] in self._failed:
            self._give_up(left[:1], why)
        elif nothing and not cost.contexts:
            return self._not_started(batch, why)
        elif nothing and not cost.communicators:
            self._give_up(left, why)
        self._failed.add(left[0])
        return None

    def _not_started(self, batch: Batch, why: str) -> SweepEnd | None:
        """Blame the configuration where other workers start, else the machine."""
        self._silent[batch.configuration] = why
        if len(self._silent) >= STARTS:
            return SweepEnd("failed", self._no_start())
        if self._measured and batch.configuration in self._suspects:
            self._give_up(batch.keys, why)
        self._suspects.add(batch.configuration)
        return None

    def _no_start(self) -> str:
        *_, why = self._silent.values()
        return f"{len(self._silent)} configurations without a worker that starts; the last: {why}"

    def _give_up(self, keys: Sequence[Key], why: str) -> None:
        """Give up each of these curves from its smallest size on."""
        before = usual_seconds(self._header, self._records.left())
        for key in keys:
            if self._records.is_left(key):
                self._file.add(GivenUp("given_up", key[0], key[2], why))
        self._view.measured(before - usual_seconds(self._header, self._records.left()))

    def _keep(self, key: Key, timed: Timed) -> None:
        self._file.add(
            Measurement(
                "measured", *key, timed.seconds, timed.low, timed.median, timed.high, timed.iterations,
                timed.wrong, self._hardware.clock.now(),
            )
        )  # fmt: skip
        self._view.measured(usual_seconds(self._header, (key,)))

    def _keep_log(self, batch: Batch, account: Account | None) -> None:
        """Record NCCL's log for each measured size."""
        if account is None or not account.calls:
            return
        for key in batch.keys:
            curve = self._header.curves[key[0]]
            size = logged_size(curve.op, key[2], curve.configuration.ranks, account.version)
            ran = {
                f"{_name(call.algorithm)} {_name(call.protocol)}".strip()
                for call in account.calls if call.op in {curve.op, ""} and call.size_bytes == size
            }  # fmt: skip
            if ran and key in self._records.measured:
                self._file.add(RanAs("ran", *key, tuple(sorted(ran))))

    def _withdrawn(self) -> str | None:
        """Return why to kill the worker: a signal, a failed disk, a hanging case."""
        if self._now() > self._due:
            self._late = "it took too long; killed"
        return self._view.stop() or self._file.trouble or self._late

    def _allowed(self, case: Case) -> float:
        return CASE_SECONDS + SLOWER * _usual(case, _speed(self._header.options.engine))

    def _now(self) -> float:
        return self._hardware.clock.mono()


def _case(header: SweepHeader, key: Key) -> Case:
    return header.curves[key[0]].case(key[2], header.options.iterations)


def _plan_of(plan: Plan, batch: Batch, cases: Sequence[Case], header: SweepHeader) -> Plan:
    wanted = batch.configuration
    chosen = {"NCCL_ALGO": wanted.algorithm, "NCCL_PROTO": wanted.protocol}
    # From 2.24 on NCCL refuses `auto`: what it shall choose is not set.
    around = (*((name, value) for name, value in chosen.items() if value != AUTO), *wanted.settings)
    options = header.options
    return replace(
        bare_plan(plan, wanted.ranks), warmup=WARMUP, cases=tuple(cases), environment=around,
        dtype=options.dtype, in_place=options.in_place, registered=wanted.registered,
    )  # fmt: skip


def _speed(engine: str) -> EngineSpeed:
    return SPEEDS.get(engine, USUAL)


def _usual(case: Case, speed: EngineSpeed) -> float:
    return (WARMUP + case.iterations + 1) * (speed.launch + case.size_bytes / speed.rate)


def _name(logged: str) -> str:
    """Return NCCL's name of an algorithm or protocol, which the account has in lower case."""
    return _NAMES.get(logged.lower().replace("_", ""), logged)
