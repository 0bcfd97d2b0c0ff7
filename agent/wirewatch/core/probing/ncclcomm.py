"""One communicator of NCCL: a group of GPUs, one rank each, and the connections between them."""

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
