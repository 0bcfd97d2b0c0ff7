"""CPU time of polling and rendering in the agent's own process, medians and spread, on the demo node.

NVML itself is left out: its answers come from a child that plays the recording. What is measured is what
this code adds to it. The cost on real GPUs is `make hardware`.
"""

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from wirewatch.catalogue import components
from wirewatch.cli.hardware import replayed
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.fold import after
from wirewatch.core.types import Expect
from wirewatch.daemon.schedule import Job
from wirewatch.server.exposition import Exposition
from wirewatch.verdict.latching import step
from wirewatch.verdict.ledger import Ledger, Now, VerdictPolicy
from wirewatch.verdict.node import Judged, judge_state

ROUNDS = 40
WARM_UP = 5
T = TypeVar("T")


class Bench:
    """Times of pieces of work, in milliseconds of this thread's CPU."""

    def __init__(self) -> None:
        self._spent: dict[str, list[float]] = {}

    def measure(self, name: str, work: Callable[[], T]) -> T:
        began = time.thread_time()
        result = work()
        self._spent.setdefault(name, []).append((time.thread_time() - began) * 1e3)
        return result

    def print(self) -> None:
        print(f"{'CPU ms, 8 GPUs, 10 ports':<28}{'median':>9}{'min':>9}{'max':>9}")
        for name, times in self._spent.items():
            kept = times[WARM_UP:]
            print(f"{name:<28}{statistics.median(kept):>9.3f}{min(kept):>9.3f}{max(kept):>9.3f}")


def poll(job: Job, component: Component) -> Component:
    return after(component, job.run(component.memory))


def decide(state: NodeState) -> Judged:
    return judge_state(state, step(Ledger(), state, Now(0.0, 0.0), VerdictPolicy()))


def one_round(bench: Bench, jobs: list[Job], text: Exposition, state: NodeState) -> NodeState:
    for job in jobs:
        name = job.collector.name
        component = state.components[name]
        state = state.with_component(bench.measure(f"poll {name}", lambda j=job, c=component: poll(j, c)))  # type: ignore[misc]
    node = bench.measure("verdict", lambda: decide(state))
    bench.measure("render after a change", lambda: text.render(node))
    bench.measure("render again", lambda: text.render(node))
    return state


def main() -> None:
    hardware, nvml = replayed("demo-dgx-h200", (), loop=True)
    jobs = [Job(c, hardware, Expect()) for c in components()]
    state = NodeState({c.name: Component(c.name, c.start) for c in components()})
    bench, text = Bench(), Exposition("replay")
    for _ in range(ROUNDS):
        state = one_round(bench, jobs, text, state)
    nvml.close()
    bench.print()


if __name__ == "__main__":
    main()
