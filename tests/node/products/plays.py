"""Plays every product of the matrix for docs/answers.md: starting, split, lent, with a part less."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from tests.node.products.faults import wires
from tests.node.products.machine import OLD, draw, peer
from tests.node.products.rows import BRIDGE, MESH, Row
from tests.support import Node
from wirewatch.core.topology import nvlink_product
from wirewatch.core.types import Health
from wirewatch.hw.overlay import AnswerChange
from wirewatch.hw.recording import Recording, load_recording

PCI = "/sys/bus/pci/devices"
POLLS = 4
"""Polls after which a fault that stays is FAILED."""
LOST, NO_DRIVER = 15, 9
"""NVML's codes."""
REGISTERING = {
    "state": 2,
    "status": 0,
    "healthMask": 0,
    "healthSummary": 0,
    "cliqueId": 0,
    "clusterUuid": "0" * 32,
}
VFIO = "/sys/bus/pci/drivers/vfio-pci"


@dataclass(frozen=True, slots=True)
class Answer:
    """The node's health after a play, and the evidence of each rule that makes it."""

    health: Health
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Play:
    """A column of the page; `run` returns the node afterwards, or why this product cannot be played so."""

    name: str
    run: Callable[[Row], Node | str]


@cache
def recording(row: Row) -> Recording:
    """The row's own recording, or a drawn one."""
    return load_recording(row.recording) if row.recording else draw(row)


def slot(row: Row, gpu: int) -> str:
    """The PCI address of a GPU."""
    ((_, told),) = recording(row).answers["nvml", f"gpu{gpu}/PciInfo()"]
    assert isinstance(told.value, dict)
    return str(told.value["busId"])[4:].lower()


def answer(play: Play, row: Row) -> Answer | str:
    """Play a row, and return what the node is then."""
    node = play.run(row)
    if isinstance(node, str):
        return node
    health = node.health()
    worst = {one.rule: one.evidence for one in node.findings() if one.health is health}
    return Answer(health, worst or ({} if health is Health.OK else {"": "nothing is left to watch"}))


def nvml(match: str, action: str, argument: object) -> AnswerChange:
    return AnswerChange("nvml", match, action, argument)


def files(path: str, action: str, argument: object) -> AnswerChange:
    return AnswerChange("sysfs", path, action, argument)


def log(*lines: str) -> AnswerChange:
    told = [f"4,{900 + n},{12_000_000 + n},-;{line}" for n, line in enumerate(lines)]
    return AnswerChange("kmsg", "Records()", "set", told)


def unlisted(row: Row) -> AnswerChange:
    """NVML does not list the last GPU; without a GPU it has no driver."""
    if row.gpus == 1:
        return nvml("*", "code", NO_DRIVER)
    return nvml("Count()", "set", row.gpus - 1)


def unbound(row: Row) -> list[AnswerChange]:
    """The last GPU has no driver, and NVML does not list it."""
    last = row.gpus - 1
    missing = files(f"link {PCI}/{slot(row, last)}/driver", "errno", "ENOENT")
    return [unlisted(row), missing, *far_ends(row, last)]


def vanished(row: Row) -> list[AnswerChange]:
    """Not even the PCI tree has the last GPU."""
    ((_, told),) = recording(row).answers["sysfs", f"list {PCI}"]
    assert isinstance(told.value, list)
    last = row.gpus - 1
    left = [at for at in told.value if at != slot(row, last)]
    return [unlisted(row), files(f"list {PCI}", "set", left), *far_ends(row, last)]


def refused(at: str) -> AnswerChange:
    """NVIDIA/aicr#1858."""
    return log(
        f"NVRM: The NVIDIA GPU {at} (PCI ID: 10de:2330) installed in this system\\x0aNVRM:  is not supported"
        " by the NVIDIA 580.126.09 driver release.",
        f"nvidia {at}: probe with driver nvidia failed with error -1",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    )


def barred(row: Row) -> list[AnswerChange]:
    """The driver refused the last GPU, and the kernel log says so."""
    return [*unbound(row), refused(slot(row, row.gpus - 1))]


def up(row: Row, link: int) -> str:
    """The question whether a link is up."""
    return f"NvLinkState({link})" if row.generation in OLD else f"Field(165,{link})"


def far_ends(row: Row, gone: int) -> Iterator[AnswerChange]:
    """The links of others that lead to this GPU are down, where no switch is between."""
    if row.wires not in {MESH, BRIDGE}:
        return
    for gpu in sorted(set(range(row.gpus)) - {gone}):
        ends = [link for link in row.active if peer(row, gpu, link) == gone]
        yield from (nvml(f"gpu{gpu}/{up(row, link)}", "set", 0) for link in ends)


def asleep(row: Row, gpus: Iterable[int]) -> Iterator[AnswerChange]:
    """GPUs in MIG mode: their links read as down."""
    for gpu in gpus:
        yield nvml(f"gpu{gpu}/MigMode()", "set", [1, 1])
        yield from (nvml(f"gpu{gpu}/{up(row, link)}", "set", 0) for link in row.active)
        yield from far_ends(row, gpu)


def lent(count: int, addresses: Iterable[str], listed: int | None = None) -> list[AnswerChange]:
    """The last GPUs of `count` are with a virtual machine; NVML lists `listed` of them all still."""
    places = tuple(addresses)
    first = count - len(places)
    return [
        nvml("Count()", "set", first if listed is None else listed),
        *(nvml(f"gpu{gpu}/*", "code", LOST) for gpu in range(first, count)),
        *(files(f"link {PCI}/{at}/driver", "set", VFIO) for at in places),
    ]


def booted(row: Row, seconds: float) -> AnswerChange:
    """The machine was started so long before the play."""
    return AnswerChange("host", "BootTime()", "set", recording(row).at_unix - seconds)


def starting(row: Row) -> Iterator[AnswerChange]:
    """A minute after the boot: no link is up, no GPU is in its fabric, the last has no driver yet."""
    yield booted(row, 60.0)
    yield from (nvml(f"gpu*/{up(row, link)}", "set", 0) for link in row.active)
    if row.fabric:
        yield nvml("gpu*/GpuFabricInfoV()", "set", REGISTERING)
    yield from unbound(row)


# --- the plays


def _as_listed(row: Row, polls: int = POLLS) -> Node:
    return _polled(Node(recording(row), [booted(row, 864_000.0)]), polls)


def _since_boot(changes: Callable[[Row], Iterable[AnswerChange]]) -> Callable[[Row], Node | str]:
    return lambda row: _polled(_changed(_as_listed(row, 0), changes(row)))


def _unseen(row: Row) -> Node | str:
    """Of cards, and of what a machine may have fewer of, nobody can tell it from a smaller node."""
    product = nvlink_product(row.name)
    boards = product.boards if product else ()
    if row.gpus > 1 and (row.gpus - 1 in boards or not boards):
        return f"is a node of {row.gpus - 1}"
    return _since_boot(vanished)(row)


def _lost(row: Row) -> Node:
    last = row.gpus - 1
    node = _changed(_as_listed(row), [nvml(f"gpu{last}/*", "code", LOST), *far_ends(row, last)])
    return _polled(_changed(node, [unlisted(row)] if last else []))


def _wire(row: Row, before: int) -> Node:
    node = _as_listed(row, before)
    next(wires(row)).happen(node)
    return _polled(node)


def _split(row: Row) -> Node | str:
    if not row.splits:
        return "has no MIG"
    whole = replace(row, mig=())
    node = _as_listed(whole, 0 if row.mig else POLLS)
    return _polled(_changed(node, asleep(whole, row.mig or [row.faulty])))


def _lent(row: Row) -> Node | str:
    if row.virtual and row.recording != "demo-dgx-h200":
        return "is in one"
    last = row.gpus - 1
    node = _as_listed(row)
    # A driver lets go of a GPU that nobody has open.
    node.nvml.number += 1
    return _polled(_changed(node, [*lent(row.gpus, [slot(row, last)]), *far_ends(row, last)]))


def _over(begun: Callable[[Row], Node | str]) -> Callable[[Row], Node | str]:
    """The same, and what was changed is as before."""

    def run(row: Row) -> Node | str:
        node = begun(row)
        if isinstance(node, str):
            return node
        del node.changes[1:]
        node.nvml.number += 1
        return _polled(node)

    return run


def _changed(node: Node, changes: Iterable[AnswerChange]) -> Node:
    node.changes.extend(changes)
    return node


def _polled(node: Node, times: int = POLLS) -> Node:
    node.poll(times=times)
    return node


HEALTHY = (
    Play("as listed", _as_listed),
    Play("all parts starting", _since_boot(starting)),
    Play("started", _over(_since_boot(starting))),
    Play("MIG on", _split),
    Play("MIG off", _over(_split)),
    Play("a GPU to a VM", _lent),
    Play("given back", _over(_lent)),
)
"""Nothing is wrong: never FAILED."""
FAULTY = (
    Play("a GPU refused since boot", _since_boot(barred)),
    Play("a GPU unbound since boot", _since_boot(unbound)),
    Play("a GPU unseen since boot", _unseen),
    Play("a GPU less later", _lost),
    Play("a wire less since boot", lambda row: _wire(row, 0)),
    Play("a wire less later", lambda row: _wire(row, POLLS)),
)
"""A part less: never OK."""
