"""Whether what was read may be learned as the topology that this node has when nothing is wrong."""

from collections.abc import Iterator, Sequence

from wirewatch.core.topology import due_links
from wirewatch.core.types import Expect
from wirewatch.verdict.drift.graph import GpuNode, Graph, Unknown, What
from wirewatch.verdict.drift.words import part_name, unknown_text

BASELINE = "topology.baseline"
"""The rule that says that the baseline that was kept cannot be used; a new one ends it."""

_GPUS = frozenset({What.NAME, What.PRODUCT, What.NVLINK})
_EVERYWHERE = frozenset({What.PORTS})
_TOLD_OF_ALL = frozenset({What.NUMA, What.NODES})


def unread(graph: Graph) -> tuple[Unknown, ...]:
    """What a person cannot accept unseen: who the GPUs are, their NVLink wires, the ports of NICs."""
    gpus = {gpu.key for gpu in graph.gpus}
    return tuple(
        one for one in graph.unknown if one.what in _EVERYWHERE or (one.what in _GPUS and one.part in gpus)
    )


def unlearnable(graph: Graph) -> tuple[Unknown, ...]:
    """The same, and the places and NVLink peers of GPUs, and NUMA nodes where the machine tells any.

    What NICs do not tell of themselves matters no more than a module that is not loaded: software devices
    have no place, and many drivers tell no model.
    """
    gpus = {gpu.key for gpu in graph.gpus}
    numa = any(part.spot.numa is not None for part in graph.parts)
    sure = frozenset(unread(graph))

    def matters(one: Unknown) -> bool:
        of_gpu = one.part in gpus and one.what in {What.PLACE, What.PEERS}
        return one in sure or of_gpu or (numa and one.what in _TOLD_OF_ALL and one.part in {"", *gpus})

    return tuple(one for one in graph.unknown if matters(one))


def listed(graph: Graph, missing: Sequence[Unknown]) -> str:
    """`GPU 3 (...0003): NVLink links and 2 more`."""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"{unknown_text(graph, missing[0])}{more}"


def why_not(graph: Graph, troubles: Sequence[str], expect: Expect) -> tuple[str, ...]:
    """What speaks against learning it, in words; empty when nothing does."""
    return tuple(_reasons(graph, troubles, expect))


def _reasons(graph: Graph, troubles: Sequence[str], expect: Expect) -> Iterator[str]:
    wrong = sorted(set(troubles) - {BASELINE})
    if wrong:
        yield f"findings hold: {', '.join(wrong)}"
    if not graph.gpus:
        yield "no GPU is here"
    missing = unlearnable(graph)
    if missing:
        yield f"not known: {listed(graph, missing)}"
    if expect.gpus is not None and len(graph.gpus) < expect.gpus:
        yield f"{len(graph.gpus)} of {expect.gpus} expected GPUs are here"
    ports = sum(len(nic.ports) for nic in graph.nics)
    if expect.rdma_ports is not None and ports < expect.rdma_ports:
        yield f"{ports} of {expect.rdma_ports} expected RDMA ports are here"
    gpus = sorted((gpu for gpu in graph.gpus if gpu.read), key=lambda gpu: (gpu.index, gpu.key))
    short = {gpu.key: text for gpu in gpus if (text := _short(gpu, expect))}
    yield from short.values()
    for product in sorted({gpu.product for gpu in gpus}):
        alike = [gpu for gpu in gpus if gpu.product == product]
        if not any(gpu.key in short for gpu in alike):
            yield from _unlike(product, alike)


def links_up(gpu: GpuNode) -> int:
    return sum(len(wire.links) for wire in gpu.wires)


def _short(gpu: GpuNode, expect: Expect) -> str:
    """What a GPU lacks of what its product or the operator says."""
    up = links_up(gpu)
    due = max(due_links(gpu.product, up), expect.nvlink_links or 0)
    return f"{part_name(gpu)} shows {up} of {due} links up" if up < due else ""


def _unlike(product: str, gpus: Sequence[GpuNode]) -> Iterator[str]:
    counts = sorted({links_up(gpu) for gpu in gpus}, reverse=True)
    if len(counts) > 1:
        firsts = (next(gpu for gpu in gpus if links_up(gpu) == count) for count in counts)
        told = ", ".join(f"{part_name(gpu)} shows {links_up(gpu)} links up" for gpu in firsts)
        yield f"not all {product or 'GPUs'} are alike: {told}"
