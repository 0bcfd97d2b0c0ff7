"""Slow parts of the node that probes have confirmed, as findings for people. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from wirewatch.core.collector import CONFIRMED, Rule
from wirewatch.core.nvml import CLOCK_REASONS
from wirewatch.core.probe import Clocks, Probed
from wirewatch.core.types import Finding, Health, Subject
from wirewatch.verdict.straggler.naming import (
    ConfirmedStraggler,
    SlowNode,
    SlowPart,
    StragglerWatch,
)
from wirewatch.verdict.straggler.signals import Resource, StragglerPolicy, Unit

GB = 1e9
NODE = "straggler.node"
HARMLESS = frozenset({"gpu_idle"})
"""What holds back a GPU between two pieces of work."""
WHAT: Mapping[Resource, str] = {
    Resource.COMPUTE: "matrix products",
    Resource.MEMORY: "copies within its memory",
    Resource.SOURCE: "copies from it to its peers",
    Resource.DESTINATION: "copies from its peers to it",
    Resource.PAIR: "copies",
    Resource.LINK: "a link",
}
ALL: Mapping[Resource, str] = {
    Resource.COMPUTE: "matrix products on all GPUs",
    Resource.MEMORY: "copies within the memory of all GPUs",
    Resource.PAIR: "copies between all pairs of GPUs",
}
DO: Mapping[Resource, str] = {
    Resource.COMPUTE: "look at its clocks, power and temperature (`nvidia-smi -q -d PERFORMANCE,CLOCK`), "
    "then for another process on it; if nothing explains it, return the GPU: `wirewatch findings show` has "
    "what the vendor asks for",
    Resource.MEMORY: "look at its ECC counters, remapped rows and memory temperature; if nothing explains "
    "it, return the GPU: `wirewatch findings show` has what the vendor asks for",
    Resource.SOURCE: "look at its NVLink state, speed and errors, and at PCIe where there is no NVLink",
    Resource.DESTINATION: "look at its NVLink state, speed and errors, and at PCIe where there is no NVLink",
    Resource.PAIR: "look at the links between the two, and at peer access (`nvidia-smi topo -p2p r`)",
    Resource.LINK: "look at this link's errors and state",
}  # fmt: skip
STRAGGLER_RULES = (
    *(Rule(f"straggler.{part.value}", CONFIRMED, "Straggler") for part in DO if part is not Resource.LINK),
    Rule(NODE, CONFIRMED, "Straggler"),
)


def straggler_findings(watch: StragglerWatch, probed: Probed, policy: StragglerPolicy) -> tuple[Finding, ...]:
    """One finding for each part that is slow, one of a rule a part; one for the node where all are."""
    places = {gpu.uuid: gpu.index for gpu in probed.gpus}
    clocks = {probed.gpus[c.gpu].uuid: c for c in probed.clocks if c.gpu < len(probed.gpus)}
    held = watch.held(policy)
    found: dict[tuple[str, Subject], Finding] = {}
    for one in sorted(held, key=lambda one: -one.seen.lost):
        if isinstance(one.seen, SlowPart):
            made = _of_part(one, one.seen, places, clocks.get(one.seen.unit.uuid))
            # Of several pairs that a GPU sends by, only the slowest is a finding.
            found.setdefault(made.key, made)
    return (*found.values(), *_of_node([one for one in held if isinstance(one.seen, SlowNode)]))


def _of_part(
    held: ConfirmedStraggler, slow: SlowPart, places: Mapping[str, int], clock: Clocks | None
) -> Finding:
    unit = slow.unit
    parts = [f"{_name(unit, places)}: {_rate(unit, slow.rate)}, {_lost(slow)}", _beside(slow)]
    parts.append(f"seen in {held.times} of the last {held.looks} probes" if held.looks > 1 else "")
    if clock is not None and unit.resource is Resource.COMPUTE:
        parts.append(_clock(clock))
    if slow.follows:
        parts.append(f"also slow because of this: {', '.join(_name(one, places) for one in slow.follows)}")
    if slow.undecided:
        ends = " or ".join(_name(one, places) for one in slow.undecided)
        parts.append(f"it cannot be determined whether only this pair is slow, or {ends}")
    return Finding(
        f"straggler.{unit.resource.value}", Health.FAILED if held.failed else Health.DEGRADED,
        Subject(gpu=str(places.get(unit.uuid, "")), uuid=unit.uuid), "; ".join(filter(None, parts)),
        DO[unit.resource], held.since,
    )  # fmt: skip


def _clock(clock: Clocks) -> str:
    """How fast it ran while it multiplied, and what held it back."""
    bits = clock.reasons or 0
    held = [name for name, bit in CLOCK_REASONS.items() if bits & bit and name not in HARMLESS]
    back = f", held back by {', '.join(held)}" if held else ""
    return "" if clock.sm is None else f"its SM clock was {clock.sm / 1e6:.0f} MHz{back}"


def _name(unit: Unit, places: Mapping[str, int]) -> str:
    if unit.resource is Resource.PAIR:
        ends = f"GPU {places.get(unit.uuid, unit.uuid)} to GPU {places.get(unit.peer, unit.peer)}"
        return f"{WHAT[unit.resource]} from {ends}"
    return f"GPU {places.get(unit.uuid, unit.uuid)}, {WHAT[unit.resource]}"


def _rate(unit: Unit, rate: float) -> str:
    """For people: 10^9 bytes per second; a product's time means nothing but beside another's."""
    if unit.resource is Resource.COMPUTE:
        return f"{1e3 / rate:.3f} ms each"
    return f"{rate / GB:.1f} GB/s"


def _lost(slow: SlowPart) -> str:
    against = f"its own history of {slow.probes} probes" if slow.own else "its peers"
    return f"{slow.lost * 100:.0f} % slower than {against} ({_rate(slow.unit, slow.loss.usual)})"


def _beside(slow: SlowPart) -> str:
    """The other comparison, or that there is none."""
    if slow.own:
        return "" if slow.peers is None else f"its peers reach {_rate(slow.unit, slow.peers)}"
    if slow.usual is None:
        return "it has no history of its own yet"
    return f"it has always been this slow: {_rate(slow.unit, slow.usual)} in {slow.probes} probes"


def _of_node(held: Sequence[ConfirmedStraggler]) -> Iterator[Finding]:
    if not held:
        return
    texts = [
        f"{ALL[one.seen.resource]} ({one.seen.units}) are {one.seen.lost * 100:.0f} % slower than they were"
        for one in held
        if isinstance(one.seen, SlowNode)
    ]
    health = Health.FAILED if any(one.failed for one in held) else Health.DEGRADED
    yield Finding(
        NODE, health, Subject(), "; ".join(texts),
        "no single part is at fault: check what all GPUs share: power limits, cooling, clocks, the driver",
        min(one.since for one in held),
    )  # fmt: skip
