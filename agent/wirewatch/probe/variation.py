"""How a probe differs from those of a daemon: such a probe is a study, and says nothing of the verdict."""

from dataclasses import dataclass, replace
from typing import ClassVar

from wirewatch.core.probe import DTYPES, OPS, PRIMITIVES, Plan
from wirewatch.nccl.settings import GDR_LEVEL
from wirewatch.probe.network import GDR_LEVELS, NETWORK_ONLY, by_network, gpudirect_asked

ITERATIONS = range(1, 10_001)
"""Timed runs of a size; a CUDA graph of small messages has as many nodes."""
_PLAN = Plan("", (), ())


@dataclass(frozen=True, slots=True)
class Variation:
    """What is asked for instead of what a daemon measures; None and empty: as the daemon.

    `ops`: any primitives in place of the configured collectives. `iterations`: timed runs of every size.
    `network`: P2P and shared memory are off in the worker, so that a
    network carries everything. `gpudirect`: whether NCCL may use GPUDirect RDMA.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    dtype: str | None = None
    in_place: bool | None = None
    iterations: int | None = None
    network: bool = False
    gpudirect: bool | None = None
    ops: tuple[str, ...] = ()

    def wrong(self) -> str:
        """What cannot be meant, in words; empty when all can."""
        checks = (
            (set(self.ops) <= set(PRIMITIVES), f"ops are {', '.join(PRIMITIVES)}"),
            (self.dtype is None or self.dtype in DTYPES, f"dtypes are {', '.join(DTYPES)}"),
            (self.iterations in {None, *ITERATIONS}, f"iterations are 1 to {ITERATIONS[-1]}"),
        )
        return next((text for good, text in checks if not good), "")

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """NCCL's settings that the worker gets over those that it inherits."""
        level = () if self.gpudirect is None else ((GDR_LEVEL, GDR_LEVELS[self.gpudirect]),)
        return (*(NETWORK_ONLY if self.network else ()), *level)

    def of(self, plan: Plan) -> Plan:
        """The plan with what is asked for in place of a daemon's."""
        runs = self.iterations
        return replace(
            plan,
            ops=self.ops or plan.ops,
            dtype=self.dtype or plan.dtype,
            in_place=plan.in_place if self.in_place is None else self.in_place,
            latency_iterations=runs or plan.latency_iterations,
            bandwidth=tuple((size, runs or count) for size, count in plan.bandwidth),
            environment=(*plan.environment, *self.environment),
        )

    @property
    def differences(self) -> tuple[str, ...]:
        """In what such a probe differs from any that a daemon runs, in words; empty where it does not."""
        plan = self.of(_PLAN)
        others = [op for op in self.ops if op not in OPS]
        settings = " ".join(f"{name}={value}" for name, value in self.environment)
        found = (
            (bool(others), f"collectives that no daemon measures: {', '.join(others)}"),
            (plan.dtype != _PLAN.dtype, f"{plan.dtype} elements"),
            (not plan.in_place, "out of place"),
            (self.iterations is not None, f"{self.iterations} timed runs of each size"),
            (bool(self.environment), f"{'over the network, ' if self.network else ''}{settings}"),
        )
        return tuple(text for differs, text in found if differs)

    def missing_in(self, plan: Plan) -> tuple[str, ...]:
        """What is asked for and is not what a recorded plan ran, in words; sizes and runs apart."""
        asked = (
            (self.dtype is None or self.dtype == plan.dtype, f"dtype {self.dtype} (it is of {plan.dtype})"),
            (self.in_place in {None, plan.in_place}, "in place" if self.in_place else "out of place"),
            (not self.network or by_network(plan), "transport net"),
            (self.gpudirect in {None, gpudirect_asked(plan)}, "GPUDirect on or off"),
        )
        return tuple(text for recorded, text in asked if not recorded)


DAEMONS = Variation()
"""Nothing is asked for that a daemon does not measure."""
