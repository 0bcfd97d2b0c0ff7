"""How many links GPUs should have where bridges decide, or where our table has no such product."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewatch.collectors.nvlink.model import START, NvlinkMemory, NvlinkReading
from wirewatch.collectors.nvlink.siblings import seen_active
from wirewatch.core.collector import Memories, remembered
from wirewatch.core.ports import Gpu
from wirewatch.core.topology import due_links, nvlink_product
from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class DueLinks:
    """How many links should be active, by GPU's key, and by product which those are of GPUs that have all."""

    counts: Mapping[str, int] = field(default_factory=dict)
    patterns: Mapping[str, frozenset[int]] = field(default_factory=dict)


def find_due(reading: NvlinkReading, memories: Memories[NvlinkMemory]) -> DueLinks:
    """By the links that GPUs have active now, or had before; GPUs split by MIG are left out."""
    known = [(i.gpu, i.value) for i in reading if not isinstance(i.value, Absent) and not i.value.mig]
    seen = {g.key: seen_active(remembered(memories, g, START), value) for g, value in known if value.links}
    counts: dict[str, int] = {}
    patterns: dict[str, frozenset[int]] = {}
    for name, gpus in _by_product([gpu for gpu, _ in known if gpu.key in seen]).items():
        counts |= _due(name, {gpu.key: len(seen[gpu.key]) for gpu in gpus})
        whole = [seen[gpu.key] for gpu in gpus if len(seen[gpu.key]) == counts[gpu.key]]
        patterns[name] = frozenset().union(*whole)
    return DueLinks(counts, patterns)


def _by_product(gpus: list[Gpu]) -> Mapping[str, list[Gpu]]:
    return {name: [gpu for gpu in gpus if gpu.name == name] for name in {gpu.name for gpu in gpus}}


def _due(name: str, counts: Mapping[str, int]) -> dict[str, int]:
    """How many links each GPU of a product should have: what it has, rounded up to what bridges make.

    Where bridges decide, two GPUs share each bridge and have as many links. Where the product is not known,
    most of the GPUs decide; one without any link has no bridge.
    """
    product = nvlink_product(name)
    if product is None:
        usual, share = Counter(counts.values()).most_common(1)[0]
        least = usual if 2 * share > len(counts) > 2 else 0  # noqa: PLR2004 - of two neither is usual
        return {key: max(n, least) if n else 0 for key, n in counts.items()}
    if len(product.counts) == 1:
        return dict(counts)
    return _in_pairs({key: due_links(name, n) for key, n in counts.items()})


def _in_pairs(due: Mapping[str, int]) -> dict[str, int]:
    """The numbers of links once a GPU without a partner has found one among those with fewer.

    That is done only where one GPU alone can be that partner; a GPU's partner may also be a guest's.
    """
    counts = Counter(due.values())
    lone = sorted((n for n, gpus in counts.items() if gpus % 2), reverse=True)
    raised = {less: more for more, less in zip(lone[::2], lone[1::2], strict=False) if counts[less] == 1}
    return {key: raised.get(n, n) for key, n in due.items()}
