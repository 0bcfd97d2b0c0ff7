"""How a probe differs from those of a daemon: such a probe is a study, and says nothing of the verdict."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from wirewatch.core.probe import OPS, Plan
from wirewatch.nccl.settings import GDR_LEVEL
from wirewatch.probe.network import GDR_LEVELS, NETWORK_ONLY, by_network, gpudirect_asked

_PLAN = Plan("", (), ())


@dataclass(frozen=True, slots=True)
class Variation:
    """What is asked for instead of what a daemon measures; None: as the daemon.

    `iterations`: timed runs of every size. `network`: P2P and shared memory are off in the worker, so that a
    network carries everything. `gpudirect`: whether NCCL may use GPUDirect RDMA.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    dtype: str | None = None
    in_place: bool | None = None
    iterations: int | None = None
    network: bool = False
    gpudirect: bool | None = None

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
            dtype=self.dtype or plan.dtype,
            in_place=plan.in_place if self.in_place is None else self.in_place,
            latency_iterations=runs or plan.latency_iterations,
            bandwidth=tuple((size, runs or count) for size, count in plan.bandwidth),
            environment=(*plan.environment, *self.environment),
        )

    def differences(self, ops: Collection[str]) -> tuple[str, ...]:
        """In what a probe of these collectives differs from any that a daemon runs, in words."""
        plan = self.of(_PLAN)
        others = [op for op in ops if op not in OPS]
        found = (
            (bool(others), f"collectives that no daemon measures: {', '.join(others)}"),
            (plan.dtype != _PLAN.dtype, f"{plan.dtype} elements"),
            (not plan.in_place, "out of place"),
            (self.iterations is not None, f"{self.iterations} timed runs of each size"),
            (bool(self.environment), " ".join(f"{name}={value}" for name, value in self.environment)),
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
