"""The account of one log of NCCL: communicators, connections, the collectives started, and warnings."""

from collections.abc import Mapping
from dataclasses import dataclass

from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class Device:
    """A rank's GPU: its numbers in CUDA and NVML (since 2.18.3), and its PCI address, empty if not logged."""

    cuda: int
    nvml: int | Absent
    bus: str


@dataclass(frozen=True, slots=True)
class Connection:
    """The number of channels from one rank to another over a transport, in NCCL's words."""

    source: int
    destination: int
    transport: str
    channels: int


@dataclass(frozen=True, slots=True)
class Channels:
    """The number of channels of each use; NCCL logs `collnet` since 2.20, `nvls` since 2.17."""

    coll: int
    collnet: int | Absent
    nvls: int | Absent
    p2p: int
    p2p_per_peer: int


@dataclass(frozen=True, slots=True)
class Comm:
    """One communicator as far as the log shows it: often only the ranks of one process.

    `id`: NCCL's commId, before 2.16 a pointer. Since 2.23 the id of a split is its parent's id with split and
    color. Lines without a communicator have an empty `id`. `ranks`: their number. `finished`: ranks whose
    set-up is complete; `init_seconds`: of the slowest, since 2.22. `nvls`: ranks with NVLS set up. `nodes`:
    since 2.20.
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

    `op`: nccl-tests' name, empty from 2.20 to 2.22, whose lines have none. `size_bytes`: NCCL's own count
    (see `nccl.log.logged_size`). Since 2.27 `algorithm` may be `symmetric` with the kernel as `protocol`,
    since 2.29 `copy_engine` with none. `channels`: first and last, None where the line has none. Logs before
    2.20 have no such lines.
    """

    op: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: tuple[int, int] | None
    count: int


@dataclass(frozen=True, slots=True)
class Multicast:
    """NVLS of a device, by CUDA's number: whether it is supported, and its channels (NCCL 2.27 to 2.29)."""

    device: int
    available: bool
    channels: int | Absent


@dataclass(frozen=True, slots=True)
class Account:
    """Everything that was understood of one log.

    `settings`: NCCL's variables with the values from the environment; NCCL first adds the values of
    nccl.conf. `warnings`: each once. They include runs without NVLS, which 2.27 and 2.28 log as INFO.
    `not_understood`: the number of lines of a known kind that are torn or of a new form. `network`: carrier
    of traffic between nodes (Socket, IB, a plugin's name), several with commas, empty if not logged. `nics`:
    RDMA ports (`mlx5_0:1`) or network interfaces that NCCL says it uses, empty if it does not say so.
    """

    version: str | Absent
    comms: tuple[Comm, ...]
    calls: tuple[Call, ...]
    settings: tuple[tuple[str, str], ...]
    nvls: tuple[Multicast, ...]
    warnings: tuple[str, ...]
    not_understood: int
    network: str
    nics: tuple[str, ...] = ()
