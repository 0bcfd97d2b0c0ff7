"""What one log of NCCL says: communicators, connections, the collectives started, and warnings."""

from collections.abc import Mapping
from dataclasses import dataclass

from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class Device:
    """A rank's GPU: numbers of CUDA and NVML (told since 2.18.3), and PCI address, empty for what is none."""

    cuda: int
    nvml: int | Absent
    bus: str


@dataclass(frozen=True, slots=True)
class Connection:
    """How many channels lead from one rank to another over a transport, in NCCL's words."""

    source: int
    destination: int
    transport: str
    channels: int


@dataclass(frozen=True, slots=True)
class Channels:
    """How many channels of each use; `collnet` told since 2.20, `nvls` since 2.17."""

    coll: int
    collnet: int | Absent
    nvls: int | Absent
    p2p: int
    p2p_per_peer: int


@dataclass(frozen=True, slots=True)
class Comm:
    """One communicator as far as the log tells: often only the ranks of one process.

    `id` is NCCL's commId; before 2.16 a pointer, for one split off since 2.23 its parent's with the split and
    color behind it, empty for what belongs to none in the log. `ranks`: how many. `finished`: those whose
    set-up is told to be complete; `init_seconds` is the slowest's, told since 2.22. `nvls`: ranks that
    have set up NVLS. `nodes` told since 2.20.
    """

    id: str
    ranks: int | Absent
    devices: Mapping[int, Device]
    finished: tuple[int, ...]
    init_seconds: float | Absent
    nodes: int | Absent
    channels: Channels | Absent
    connections: tuple[Connection, ...]
    nvls: tuple[int, ...]


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
