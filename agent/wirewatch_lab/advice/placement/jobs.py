"""A job before and after placement: its numbers, and the GPUs of each group, stage and replica."""

from dataclasses import dataclass

from wirewatch_lab.advice.placement.cluster import ClusterNode
from wirewatch_lab.advice.placement.space import Level


@dataclass(frozen=True, slots=True)
class PlacementJob:
    """`replicas` of a model in `pp` stages of `tp` GPUs each. `memory`: bytes that each GPU needs."""

    tp: int
    pp: int = 1
    replicas: int = 1
    memory: float = 0.0

    @property
    def groups(self) -> int:
        """Return the number of TP groups."""
        return self.pp * self.replicas

    @property
    def gpus(self) -> int:
        """Return the number of GPUs."""
        return self.tp * self.groups


@dataclass(frozen=True, slots=True)
class PlacedGpu:
    """A GPU by its node and index."""

    node: ClusterNode
    index: int

    @property
    def rail(self) -> int | None:
        """Return its rail; None where not known."""
        return self.index % self.node.rails if self.node.rails else None


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """The GPUs of a TP group by rank. `level`: how far apart they are.

    `shares`: GPUs in each of its domains.
    """

    gpus: tuple[PlacedGpu, ...]
    level: Level
    shares: tuple[int, ...]
    domains: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Replica:
    """TP groups by stage. `level`: the narrowest that has all of its GPUs."""

    stages: tuple[TensorGroup, ...]
    level: Level


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job with its replicas; `mixed`: whether its GPUs are of several products."""

    job: PlacementJob
    replicas: tuple[Replica, ...]
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No placement exists or was found. `proven`: there is none, else none was found."""

    reason: str
    proven: bool = True
