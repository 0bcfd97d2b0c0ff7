"""The node against what the operator gave as the shape of its product: another node's graph."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from wirewatch.core.types import Absent, Finding, Health, Subject
from wirewatch.verdict.drift.fingerprint import fingerprint
from wirewatch.verdict.drift.graph import GpuNode, Graph, Unknown, What
from wirewatch.verdict.drift.learning import links_up, listed
from wirewatch.verdict.drift.words import part_name

RULE = "topology.shape"
_WIRES = frozenset({What.NVLINK, What.PEERS})
_LESS = "look at the findings of the parts that are missing, then at power, seating and cables"
_OTHER = "ask who opened the node; put it back, or give its product the baseline of a node like this one"
_BLIND = "look at the findings of the collectors: something of the GPUs cannot be read"


def against_given(given: Graph, graph: Graph, lent: int = 0) -> tuple[Finding, ...]:
    """One finding at most, of the node; `lent`: NICs that are not listed since somebody was given them.

    FAILED where something is less than given, UNKNOWN where that cannot be told since GPUs or their wires
    could not be read, DEGRADED where it is only different. What the given graph does not know is not asked.
    """
    less = tuple(_less(given, graph, lent))
    if less:
        return (_finding(Health.FAILED, (*less, *_more(given, graph)), _LESS),)
    shapes = fingerprint(given), fingerprint(graph)
    known = not any(isinstance(shape, Absent) for shape in shapes)
    if known and shapes[0] == shapes[1]:
        return ()
    unread = _unread(given, graph)
    if unread:
        return (_finding(Health.UNKNOWN, (f"not known: {listed(graph, unread)}",), _BLIND),)
    more = tuple(_more(given, graph))
    if more:
        return (_finding(Health.DEGRADED, more, _OTHER),)
    if known and not lent:
        told = f"the same parts on other wires or another PCI tree: shape {shapes[1]} instead of {shapes[0]}"
        return (_finding(Health.DEGRADED, (told,), _OTHER),)
    return ()


def _finding(health: Health, texts: Sequence[str], action: str) -> Finding:
    return Finding(
        RULE, health, Subject(), "; ".join((*texts, "by the baseline given for its product")), action
    )


def _unread(given: Graph, graph: Graph) -> tuple[Unknown, ...]:
    gpus = {gpu.key for gpu in graph.gpus}
    asked = {What.PRODUCT, *_WIRES} - {one.what for one in given.unknown if one.what in _WIRES}
    return tuple(one for one in graph.unknown if one.part in gpus and one.what in asked)


def _less(given: Graph, graph: Graph, lent: int) -> Iterator[str]:
    yield from _fewer(_products(given), _products(graph))
    yield from _short_of_links(given, graph)
    yield from _broken(given, graph)
    nics = tuple(_fewer(_models(given), _models(graph) + Counter({"": lent})))
    yield from nics or (() if lent else _fewer(_layers(given), _layers(graph)))


def _more(given: Graph, graph: Graph) -> Iterator[str]:
    for count in (_products, _models, _layers):
        due, here = count(given), count(graph)
        yield from (f"{here[name]} instead of {due[name]} {name}" for name in _lacking(here, due))
    for gpu, due_links in _pairs(given, graph):
        if links_up(gpu) > due_links:
            yield f"{part_name(gpu)} {links_up(gpu)} instead of {due_links} links"


def _products(graph: Graph) -> Counter[str]:
    return Counter(gpu.product for gpu in graph.gpus)


def _models(graph: Graph) -> Counter[str]:
    return Counter(f"{nic.model} NICs" if nic.model else "" for nic in graph.nics)


def _layers(graph: Graph) -> Counter[str]:
    """A NIC that tells no port may have as many as any other."""
    most = max((len(nic.ports) for nic in graph.nics), default=0) or 1
    told = Counter(f"{layer} ports" if layer else "" for nic in graph.nics for _, layer in nic.ports)
    told[""] += most * sum(not nic.ports for nic in graph.nics)
    return told


def _fewer(due: Counter[str], here: Counter[str]) -> Iterator[str]:
    return (f"{here[name]} of {due[name]} {name}" for name in _lacking(due, here))


def _lacking(due: Counter[str], here: Counter[str]) -> Iterator[str]:
    """Names of which there are fewer here than due; a part that does not tell its name might be any."""
    return (name for name in sorted(due) if name and due[name] - here[name] > here[""])


def _short_of_links(given: Graph, graph: Graph) -> Iterator[str]:
    for gpu, due in _pairs(given, graph):
        if links_up(gpu) < due:
            yield f"{part_name(gpu)} {links_up(gpu)} of {due} links"


def _pairs(given: Graph, graph: Graph) -> Iterator[tuple[GpuNode, int]]:
    """GPUs whose links are not among those that GPUs of their product have, each with what it should have."""
    gpus = sorted((gpu for gpu in graph.gpus if gpu.read), key=lambda gpu: (-links_up(gpu), gpu.index))
    for product in sorted({gpu.product for gpu in gpus} - {""}):
        due = Counter(links_up(gpu) for gpu in given.gpus if gpu.read and gpu.product == product)
        left = []
        for gpu in gpus:
            if gpu.product == product:
                if due[links_up(gpu)]:
                    due[links_up(gpu)] -= 1
                else:
                    left.append(gpu)
        yield from zip(left, sorted(due.elements(), reverse=True), strict=False)


def _broken(given: Graph, graph: Graph) -> Iterator[str]:
    """Islands that are more pieces than they were; nothing while it is not known where wires go."""
    if any(one.what in _WIRES for one in (*given.unknown, *graph.unknown)):
        return
    due, here = _sizes(given), _sizes(graph)
    if len(here) > len(due) and sum(here) <= sum(due):
        yield f"NVLink islands of {_list(here)} GPUs instead of {_list(due)}"


def _sizes(graph: Graph) -> Sequence[int]:
    return sorted((len(one.gpus) for one in graph.islands), reverse=True)


def _list(sizes: Iterable[int]) -> str:
    return " + ".join(map(str, sizes))
