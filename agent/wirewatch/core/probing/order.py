"""The `probe` port: what can be probed with here, and one probe from its order to what came of it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from wirewatch.core.ports import Gpu
from wirewatch.core.probing.plan import Plan
from wirewatch.core.probing.result import Probed
from wirewatch.core.probing.wire import Conditions
from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class Order:
    """What to probe, and within what.

    `allocations` tells who has been given GPUs since the probe began, asked about once a second; `withdrawn`
    why nobody wants it any more, asked some fifty times a second; `deadline` in seconds from the start to the
    kill.
    """

    plan: Plan
    gpus: tuple[Gpu, ...]
    conditions: tuple[Conditions, ...]
    settings: Mapping[str, str]
    allocations: Callable[[], str | None]
    by: Literal["daemon", "command"]
    forced: bool = False
    deadline: float = 60.0
    withdrawn: Callable[[], str | None] = lambda: None


class Probe(Protocol):
    """Runs probes where their worker would run."""

    def engine(self, wanted: str) -> str | Absent:
        """The engine that `auto` or a name comes to here."""
        ...

    def settings(self) -> Mapping[str, str]:
        """NCCL's settings in the environment of the worker."""
        ...

    def lock(self) -> AbstractContextManager[str | None]:
        """Keeps others from probing while it is held; yields who holds it instead, or None."""
        ...

    def run(self, order: Order) -> Probed:
        """Never raises for what GPUs, driver or worker do."""
        ...
