"""Whether a change that is not to be seen now is over, or only cannot be seen."""

from collections.abc import Mapping

from wirewatch.verdict.drift.change import Change, Kind
from wirewatch.verdict.drift.graph import Graph, Unknown, What

_WIRES = frozenset({What.NVLINK, What.PEERS, What.PRODUCT})
_GPU, _NIC = frozenset({"gpu"}), frozenset({"nic"})

HIDES: Mapping[Kind, tuple[frozenset[What], frozenset[str]]] = {
    Kind.GPU_LOST: (frozenset(), _GPU),
    Kind.GPU_NEW: (frozenset(), _GPU),
    Kind.GPU_REPLACED: (frozenset({What.PLACE}), _GPU),
    Kind.GPU_PRODUCT: (frozenset({What.PRODUCT}), _GPU),
    Kind.NVLINK_LOST: (_WIRES, _GPU),
    Kind.NVLINK_NEW: (_WIRES, _GPU),
    Kind.NVLINK_PEER: (_WIRES, _GPU),
    Kind.ISLAND: (_WIRES, _GPU),
    Kind.CLIQUE: (frozenset({What.CLIQUE}), _GPU),
    Kind.NIC_LOST: (frozenset(), _NIC),
    Kind.NIC_NEW: (frozenset(), _NIC),
    Kind.NIC_REPLACED: (frozenset({What.PLACE}), _NIC),
    Kind.NIC_MODEL: (frozenset({What.PRODUCT}), _NIC),
    Kind.NIC_FIRMWARE: (frozenset({What.FIRMWARE}), _NIC),
    Kind.NIC_PORTS: (frozenset({What.PORTS}), _NIC),
    Kind.PCIE_PATH: (frozenset({What.PATHS, What.PLACE, What.NUMA, What.NODES}), _GPU | _NIC),
    Kind.PCIE_PLACE: (frozenset({What.PLACE, What.NUMA, What.NODES}), _GPU | _NIC),
    Kind.NUMA: (frozenset({What.NODES}), frozenset()),
    Kind.VERSION: (frozenset({What.VERSION}), frozenset()),
}
"""What must be known of the parts of a change to see that it is over, and of which parts all names."""


def is_hidden(change: Change, before: Graph, after: Graph) -> bool:
    """Whether something is not known now, and was before, without which the change would not be told.

    What was never known hides nothing: the change was seen without it.
    """
    new = set(after.unknown) - set(before.unknown)
    whats, names = HIDES[change.kind]
    return any(
        (one.what in whats and _of(change, one)) or (one.what is What.NAME and _sort(after, one) in names)
        for one in new
    )


def _of(change: Change, unknown: Unknown) -> bool:
    """Lasting names of other parts stand in `before` and `after`; what the node does not tell is of all."""
    return unknown.part in f"{change.part} {change.before} {change.after}"


def _sort(graph: Graph, unknown: Unknown) -> str:
    return "gpu" if any(gpu.key == unknown.part for gpu in graph.gpus) else "nic"
