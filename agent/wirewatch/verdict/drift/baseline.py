"""The accepted topology of this node, by whom, and the later changes that were accepted since."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from wirewatch.core.topology import SWITCH, due_links
from wirewatch.core.types import Absent, Expect, Finding, Health, OperatorNote, Subject
from wirewatch.verdict.drift.change import TopologyChange
from wirewatch.verdict.drift.wiring import Aspect, GpuNode, Graph, Unknown, fingerprint, listed, part_name

Origin = Literal["learned", "accepted"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A change that was meant, by its lasting names; `text` as people read it then."""

    kind: str
    part: str
    before: str
    after: str
    text: str
    said: OperatorNote

    def covers(self, change: TopologyChange) -> bool:
        """Tell whether this is that change, however the parts are numbered now."""
        return (self.kind, self.part, self.before, self.after) == (
            change.kind.value, change.part, change.before, change.after,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Baseline:
    """`said`: who accepted it, why and when (Unix seconds); the agent itself where it was learned.

    `without`: what the node lacked when it was accepted as a whole, in words. `before`: the baseline that it
    replaced, for an operator who takes the order back.
    """

    graph: Graph
    said: OperatorNote
    origin: Origin
    accepted: tuple[Accepted, ...] = ()
    without: tuple[str, ...] = ()
    before: "Baseline | None" = None


NOT_POLLED = "the daemon has not polled everything yet"
BASELINE = "topology.baseline"
"""The rule of the finding that the kept baseline cannot be used; a new baseline ends it."""
_GPUS = frozenset({Aspect.NAME, Aspect.PRODUCT, Aspect.NVLINK})
_EVERYWHERE = frozenset({Aspect.PORTS})
_NUMA = frozenset({Aspect.NUMA, Aspect.NODES})
RULE = "topology.shape"
_WIRES = frozenset({Aspect.NVLINK, Aspect.PEERS})
_LESS = "see the findings of the missing parts, then check power, seating and cables"
_OTHER = "ask who worked on the node; put it back, or give its product the baseline of a node like this one"
_BLIND = "see the collectors' findings: some of the GPUs' data cannot be read"


def unread(graph: Graph) -> tuple[Unknown, ...]:
    """List what a person must see to accept it: the GPUs, their NVLink wires, the ports of NICs."""
    gpus = {gpu.key for gpu in graph.gpus}
    return tuple(
        one for one in graph.unknown if one.what in _EVERYWHERE or (one.what in _GPUS and one.part in gpus)
    )


def unlearnable(graph: Graph) -> tuple[Unknown, ...]:
    """List what forbids learning: as `unread`, and places and NVLink peers of GPUs, and NUMA nodes.

    NUMA nodes count where the machine shows any. Unknown properties of NICs matter no more than a module that
    is not loaded: software devices have no place, and many drivers give no model.
    """
    gpus = {gpu.key for gpu in graph.gpus}
    numa = any(part.spot.numa is not None for part in graph.parts)
    sure = frozenset(unread(graph))

    def matters(one: Unknown) -> bool:
        of_gpu = one.part in gpus and one.what in {Aspect.PLACE, Aspect.PEERS}
        return one in sure or of_gpu or (numa and one.what in _NUMA and one.part in {"", *gpus})

    return tuple(one for one in graph.unknown if matters(one))


def why_not(graph: Graph, expect: Expect, unlisted: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the doubts about a graph in words; `unlisted`: parts in the PCI tree that the graph lacks."""
    return (*_reasons(graph, expect), *unlisted)


def findings_hold(rules: Iterable[str]) -> tuple[str, ...]:
    """The rules of findings of other components, as one more doubt; NOT_POLLED stands for all of them."""
    wrong = sorted(set(rules) - {BASELINE})
    if NOT_POLLED in wrong:
        return (NOT_POLLED,)
    return (f"these findings must end first: {', '.join(wrong)}",) if wrong else ()


def links_up(gpu: GpuNode) -> int:
    """Return how many NVLink links of a GPU are up."""
    return sum(len(wire.links) for wire in gpu.wires)


def against_given(given: Graph, graph: Graph, lent: tuple[int, int] = (0, 0)) -> tuple[Finding, ...]:
    """One finding at most, of the node; `lent`: GPUs and NICs that a pod or a guest was given.

    FAILED where something is less than given, UNKNOWN where GPUs or their wires could not be read, DEGRADED
    where it is only different. Properties that the given graph does not know are not compared, nor are the
    wires of a GPU whose NVLink is off on purpose.
    """
    less = tuple(_less(given, graph, lent))
    if less:
        return (_finding(Health.FAILED, (*less, *_more(given, graph)), _LESS),)
    shapes = fingerprint(given), fingerprint(graph)
    known = not any(isinstance(shape, Absent) for shape in shapes)
    if known and shapes[0] == shapes[1]:
        return ()
    gpus = {gpu.key for gpu in graph.gpus if not gpu.off}
    asked = {Aspect.PRODUCT, *_WIRES} - {one.what for one in given.unknown if one.what in _WIRES}
    missing = [one for one in graph.unknown if one.part in gpus and one.what in asked]
    if missing:
        return (_finding(Health.UNKNOWN, (f"not known: {listed(graph, missing)}",), _BLIND),)
    more = tuple(_more(given, graph))
    if more:
        return (_finding(Health.DEGRADED, more, _OTHER),)
    if known and not any(lent):
        text = f"the same parts on other wires or another PCI tree: shape {shapes[1]} instead of {shapes[0]}"
        return (_finding(Health.DEGRADED, (text,), _OTHER),)
    return ()


def _reasons(graph: Graph, expect: Expect) -> Iterator[str]:
    if not graph.gpus:
        yield "no GPU is here"
    missing = unlearnable(graph)
    if missing:
        yield f"not known: {listed(graph, missing)}"
    if expect.gpus is None:
        yield from _odd_boards(graph)
    elif len(graph.gpus) < expect.gpus:
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


def _odd_boards(graph: Graph) -> Iterator[str]:
    """Yield products whose number on an NVSwitch no board has, and no virtual machine is given."""
    switched = {gpu.product for gpu in graph.gpus if any(wire.peer == SWITCH for wire in gpu.wires)}
    for product, count in sorted(_products(graph).items()):
        if product in switched and count & (count - 1):
            yield f"{count} {product or 'GPUs'} are on the NVLink switch, where boards have 1, 2, 4, 8 or 16"


def _short(gpu: GpuNode, expect: Expect) -> str:
    """Say what a GPU lacks of what its product or the operator says."""
    up = links_up(gpu)
    due = max(due_links(gpu.product, up), expect.nvlink_links or 0)
    return f"{part_name(gpu)} shows {up} of {due} links up" if up < due else ""


def _unlike(product: str, gpus: Sequence[GpuNode]) -> Iterator[str]:
    counts = sorted({links_up(gpu) for gpu in gpus}, reverse=True)
    if len(counts) > 1:
        firsts = (next(gpu for gpu in gpus if links_up(gpu) == count) for count in counts)
        shown = ", ".join(f"{part_name(gpu)} shows {links_up(gpu)} links up" for gpu in firsts)
        yield f"not all {product or 'GPUs'} are alike: {shown}"


def _finding(health: Health, texts: Sequence[str], action: str) -> Finding:
    evidence = "; ".join((*texts, "compared with the baseline given for its product"))
    return Finding(RULE, health, Subject(), evidence, action)


def _less(given: Graph, graph: Graph, lent: tuple[int, int]) -> Iterator[str]:
    gpus_away, nics_away = lent
    yield from _fewer(_products(given), _products(graph) + Counter({"": gpus_away}))
    for gpu, due in _pairs(given, graph):
        if links_up(gpu) < due:
            yield f"{part_name(gpu)} {links_up(gpu)} of {due} links"
    yield from _broken(given, graph)
    nics = tuple(_fewer(_models(given), _models(graph) + Counter({"": nics_away})))
    yield from nics or (() if nics_away else _fewer(_layers(given), _layers(graph)))


def _more(given: Graph, graph: Graph) -> Iterator[str]:
    for count in (_products, _models, _layers):
        due, here = count(given), count(graph)
        yield from (f"{here[name]} instead of {due[name]} {name}" for name in _lacking(here, due))
    for gpu, given_links in _pairs(given, graph):
        if links_up(gpu) > given_links:
            yield f"{part_name(gpu)} {links_up(gpu)} instead of {given_links} links"


def _products(graph: Graph) -> Counter[str]:
    return Counter(gpu.product for gpu in graph.gpus)


def _models(graph: Graph) -> Counter[str]:
    return Counter(f"{nic.model} NICs" if nic.model else "" for nic in graph.nics)


def _layers(graph: Graph) -> Counter[str]:
    """Ports by link layer; a NIC whose ports are not known may have as many as any other."""
    most = max((1, *(len(nic.ports) for nic in graph.nics)))
    layers = Counter(f"{layer} ports" if layer else "" for nic in graph.nics for _, layer in nic.ports)
    layers[""] += most * sum(not nic.ports for nic in graph.nics)
    return layers


def _fewer(due: Counter[str], here: Counter[str]) -> Iterator[str]:
    return (f"{here[name]} of {due[name]} {name}" for name in _lacking(due, here))


def _lacking(due: Counter[str], here: Counter[str]) -> Iterator[str]:
    """Names of which there are fewer here than due; a part without a known name might be any."""
    return (name for name in sorted(due) if name and due[name] - here[name] > here[""])


def _pairs(given: Graph, graph: Graph) -> Iterator[tuple[GpuNode, int]]:
    """Yield GPUs whose link count matches no given GPU of their product, with the count that is due."""
    gpus = sorted((gpu for gpu in graph.gpus if gpu.read), key=lambda gpu: (-links_up(gpu), gpu.index))
    for product in sorted({gpu.product for gpu in gpus} - {""}):
        due = Counter(links_up(gpu) for gpu in given.gpus if gpu.read and gpu.product == product)
        left = []
        for gpu in (gpu for gpu in gpus if gpu.product == product):
            if due[links_up(gpu)]:
                due[links_up(gpu)] -= 1
            else:
                left.append(gpu)
        yield from zip(left, sorted(due.elements(), reverse=True), strict=False)


def _broken(given: Graph, graph: Graph) -> Iterator[str]:
    """Islands that are more pieces than they were; nothing while it is not known where wires go."""
    if any(one.what in _WIRES for one in (*given.unknown, *graph.unknown)):
        return
    due, here = (sorted((len(one.gpus) for one in side.islands), reverse=True) for side in (given, graph))
    if len(here) > len(due) and sum(here) <= sum(due):
        yield f"NVLink islands of {' + '.join(map(str, here))} GPUs instead of {' + '.join(map(str, due))}"
