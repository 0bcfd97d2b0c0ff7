"""Clusters in a line each, for tests of placement."""

from collections.abc import Iterator, Sequence

from wirewatch.core.types import Health
from wirewatch_lab.advice.placement.cluster import ClusterNode, wiring
from wirewatch_lab.advice.placement.jobs import Infeasible, PlacedJob
from wirewatch_lab.advice.placement.solver import place
from wirewatch_lab.advice.placement.space import Level, space_of


def node(
    name: str, *islands: int, rack: str = "", leaf: str = "", busy: Sequence[int] = (), fabric: str = "",
    product: str = "H100", health: Health | None = None, drained: bool = False, ports: str = "8xNDR",
    memory: float | None = None,
) -> ClusterNode:  # fmt: skip
    """A node with islands of these sizes; one of eight GPUs by default."""
    sizes = islands or (8,)
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    given = tuple(tuple(range(a, a + n)) for a, n in zip(starts, sizes, strict=True))
    wires = wiring(product, sum(sizes), given, memory, ports)
    return ClusterNode(name, wires, fabric, rack, leaf, frozenset(busy), health, drained)


def racks(*nodes: int, of: int = 8) -> list[ClusterNode]:
    """So many nodes in each rack."""
    names = iter(range(1, 10000))
    return [node(f"gpu{next(names):03}", of, rack=f"r{r}") for r, n in enumerate(nodes, 1) for _ in range(n)]


def placed(nodes: Sequence[ClusterNode], *jobs: object, reach: Level = Level.DOMAIN) -> tuple[PlacedJob, ...]:
    """The placement, which there has to be."""
    found = place(space_of(nodes), jobs, reach)  # type: ignore[arg-type]
    assert not isinstance(found, Infeasible), found
    return found


def refused(nodes: Sequence[ClusterNode], *jobs: object, reach: Level = Level.DOMAIN) -> Infeasible:
    """The reason, which there has to be."""
    found = place(space_of(nodes), jobs, reach)  # type: ignore[arg-type]
    assert isinstance(found, Infeasible), found
    return found


def where(job: PlacedJob) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Node and GPUs of each TP group, which is to be on one node."""
    for replica in job.replicas:
        for stage in replica.stages:
            (name,) = {gpu.node.name for gpu in stage.gpus}
            yield name, tuple(gpu.index for gpu in stage.gpus)
