"""An `[expect]` section made of a node on which all is well, for the nodes of its pool."""

from collections.abc import Iterator

from wirewatch.cli.check.answer import Grounds
from wirewatch.collectors.infiniband import InfinibandFacts
from wirewatch.core.collector import NodeState
from wirewatch.core.topology import Topology
from wirewatch.core.types import Unusable

SECONDS = 60.0
"""For a poll of the node, in which a driver may have to wake up."""


def expect_section(state: NodeState) -> tuple[str, ...]:
    """Lines of TOML: how many GPUs, active NVLinks of each, and active RDMA ports there are, and their rate.

    What is not the same for all of its kind is left out, since the section has one value for all.

    Raises:
        Unusable: the GPUs are not known.
    """
    topology = state.facts(Topology)
    if topology is None or not topology.gpus:
        raise Unusable("no GPU is known here, so there is nothing to expect")
    return ("[expect]", f"gpus = {len(topology.gpus)}", *_nvlink(topology), *_rdma(state))


def refusal(grounds: Grounds) -> str:
    """Why nothing is made of a node that is not well, in one line with its worst finding."""
    what = f": {grounds.findings[0].rule}: {grounds.findings[0].evidence}" if grounds.findings else ""
    return f"no [expect] is made of a node that is {grounds.health.name}{what}"


def _nvlink(topology: Topology) -> Iterator[str]:
    links = dict.fromkeys((gpu.uuid for gpu in topology.gpus), 0)
    for wires in topology.nvlink:
        links[wires.uuid] += len(wires.links)
    counts = set(links.values())
    if not topology.unread and len(counts) == 1 and counts != {0}:
        yield f"nvlink_links = {counts.pop()}"


def _rdma(state: NodeState) -> Iterator[str]:
    fabric = state.facts(InfinibandFacts)
    if fabric is None or not fabric.rates:
        return
    yield f"rdma_ports = {len(fabric.rates)}"
    rates = set(fabric.rates.values())
    if len(rates) == 1:
        yield f"rdma_rate_bytes_per_second = {rates.pop()!r}"
