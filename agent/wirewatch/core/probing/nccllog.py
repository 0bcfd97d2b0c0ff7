"""What NCCL says of itself: which wires it found, what it chose, what it was told, what it warns of.

That is its log of `NCCL_DEBUG=INFO` with the subsystems INIT, GRAPH, ENV, TUNING, NET, P2P, SHM and NVLS,
from its own file (`NCCL_DEBUG_FILE`) or from the midst of another program's output. A line that is cut tells
nothing and, where it still shows what it was, is counted. Sources and versions: ncclmessages, nccllines.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from wirewatch.core.probing.ncclcomm import Comm
from wirewatch.core.probing.ncclcomms import Told, gather
from wirewatch.core.probing.ncclfacts import Chosen, Fallen, Network, NotUnderstood, Offered, Setting
from wirewatch.core.probing.nccllines import fact
from wirewatch.core.probing.ncclmessages import messages
from wirewatch.core.types import Absent, Why

Wire = Literal["p2p", "shm", "net_socket", "net_ib", "net_ib_gdr", "net_other", "nvls", "unknown"]
_DIRECT = frozenset({"p2p", "nvls"})
_VERSION = re.compile(r"NCCL version (\d{1,4}\.\d{1,4}\.\d{1,4}[\w.]*)\+cuda\d", re.ASCII)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Call:
    """A collective that rank 0 started `count` times in this way.

    `op` as nccl-tests has it; empty from 2.20 to 2.22, which do not tell. `size_bytes` as NCCL tells it: see
    `size_told`. Since 2.27 `algorithm` may be `symmetric` with the kernel as `protocol`, since 2.29
    `copy_engine` with none. `channels` first and last, None where not told. Before 2.20 nothing is told.
    """

    op: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: tuple[int, int] | None
    count: int


@dataclass(frozen=True, slots=True)
class Multicast:
    """Whether a device by CUDA's number can do NVLS, and in how many channels, told from 2.27 to 2.29."""

    device: int
    available: bool
    channels: int | Absent


@dataclass(frozen=True, slots=True)
class Account:
    """All that is understood of one log.

    `settings`: NCCL's variables and values that it says it took from the environment, where it first puts
    those of nccl.conf. `warnings`: each once, and where 2.27 and 2.28 went on without NVLS, which those told
    as no warning. `not_understood`: lines of kinds read here that are torn, or whose form is new. `network`:
    what carries traffic between nodes (Socket, IB, a plugin's name); several with commas, empty if not told.
    """

    version: str | Absent
    comms: tuple[Comm, ...]
    calls: tuple[Call, ...]
    settings: tuple[tuple[str, str], ...]
    nvls: tuple[Multicast, ...]
    warnings: tuple[str, ...]
    not_understood: int
    network: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """A connection that goes neither from GPU to GPU nor through a multicast."""

    source_rank: int
    destination_rank: int
    transport: str
    wire: Wire


def parse_nccl_log(text: str) -> Account:
    """The account that any text holds; an empty one for one that holds none."""
    facts, warnings, torn = [], [], 0
    for at, (process, thread, level, said) in enumerate(messages(text)):
        told = fact(said) if level == "INFO" else None
        if level == "WARN" or isinstance(told, Fallen):
            warnings.append(said)
        elif isinstance(told, NotUnderstood):
            torn += 1
        elif told is not None:
            facts.append(Told(at, process, thread, told))
    said_first = _VERSION.search(text)
    return Account(
        said_first[1] if said_first else Absent(Why.MISSING, "NCCL's log does not tell its version"),
        gather(facts),
        _calls(facts),
        _once((t.fact.name, t.fact.value) for t in facts if isinstance(t.fact, Setting)),
        _once(_multicast(t.fact) for t in facts if isinstance(t.fact, Offered)),
        _once(filter(None, warnings)),
        torn,
        ",".join(_once(t.fact.name for t in facts if isinstance(t.fact, Network))),
    )


def _once(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))


def _multicast(offered: Offered) -> Multicast:
    channels = offered.channels
    not_told = Absent(Why.UNSUPPORTED, "this version of NCCL does not tell")
    return Multicast(offered.device, offered.available, not_told if channels is None else channels)


def _calls(facts: Iterable[Told]) -> tuple[Call, ...]:
    counted = Counter(told.fact for told in facts if isinstance(told.fact, Chosen))
    return tuple(Call(*chosen, count) for chosen, count in counted.items())


def wire(transport: str) -> Wire:
    """What a transport in NCCL's words goes over.

    `p2p` is NVLink or PCIe from GPU to GPU, `shm` the host's memory; `net_ib_gdr` reaches the GPU's memory at
    the end that tells it. External plugins for InfiniBand and RoCE have names that begin with IB.
    """
    family, _, rest = transport.partition("/")
    name = rest.partition("/")[0]
    if family == "NET" and name.startswith("IB"):
        return "net_ib_gdr" if "/GDRDMA" in rest else "net_ib"
    if family in {"NET", "COLLNET"}:
        return "net_socket" if name == "Socket" else "net_other"
    known: Mapping[str, Wire] = {"P2P": "p2p", "SHM": "shm", "direct shared memory": "shm", "NVLS": "nvls"}
    return known.get(family, "unknown")


def fallbacks(account: Account) -> tuple[Fallback, ...]:
    """Connections that do not go from GPU to GPU. Between nodes that is as it should be: see `Comm.nodes`."""
    found = ((c, wire(c.transport)) for comm in account.comms for c in comm.connections)
    return _once(Fallback(c.source, c.destination, c.transport, w) for c, w in found if w not in _DIRECT)


def algorithms(account: Account) -> Mapping[tuple[str, int], tuple[str, str]]:
    """By op and size as NCCL tells them: the algorithm and protocol that ran most often."""
    counted: defaultdict[tuple[str, int], Counter[tuple[str, str]]] = defaultdict(Counter)
    for call in account.calls:
        counted[call.op, call.size_bytes][call.algorithm, call.protocol] += call.count
    return {key: counter.most_common(1)[0][0] for key, counter in counted.items()}


def size_told(op: str, size_bytes: int, ranks: int, version: str | Absent) -> int:
    """The size under which NCCL tells of a collective of nccl-tests' message size, both in bytes.

    Since 2.24 it tells of an all-gather and a reduce-scatter what one rank contributes or gets; before that,
    and of all other collectives, the whole (src/enqueue.cc). A version that is not known counts as new.
    """
    numbers = re.match(r"(\d{1,4})\.(\d{1,4})", "" if isinstance(version, Absent) else version, re.ASCII)
    old = numbers is not None and (int(numbers[1]), int(numbers[2])) < (2, 24)
    return size_bytes // ranks if op in {"all_gather", "reduce_scatter"} and not old else size_bytes
