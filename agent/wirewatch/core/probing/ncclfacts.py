"""What a line of NCCL's log can tell, one value each. Versions are those of NCCL."""

from typing import NamedTuple


class Init(NamedTuple):
    """A rank's communicator begins, or is `done`; `nvml` None before 2.18.3, `id` empty before 2.16.

    One split off another has its parent's pointer and says which split it was, and since 2.23 has no id.
    """

    pointer: str
    rank: int
    ranks: int
    cuda: int
    nvml: int | None
    bus: int
    id: str
    parent: str
    split: str
    done: bool


class Link(NamedTuple):
    """One channel from one rank to another, as one of the two tells it: the destination if `received`.

    A device is NVML's number, before 2.18.3 its bus id in hexadecimal. `lane` is channel and connection.
    """

    source: int
    source_device: str
    destination: int
    destination_device: str
    received: bool
    transport: str
    lane: tuple[int, int]


class Counts(NamedTuple):
    """How many channels of each use; NCCL tells those of CollNet since 2.20, of NVLS since 2.17."""

    coll: int
    collnet: int | None
    nvls: int | None
    p2p: int
    p2p_per_peer: int


class Took(NamedTuple):
    """Seconds that a rank took to set a communicator up; since 2.22."""

    seconds: float


class Spans(NamedTuple):
    """How many nodes a communicator spans; since 2.20."""

    pointer: str
    nodes: int


class Joined(NamedTuple):
    """A rank has set up its multicast buffers for NVLS."""

    pointer: str


class Chosen(NamedTuple):
    """What runs a collective: see `Call` in nccllog."""

    op: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: tuple[int, int] | None


class Offered(NamedTuple):
    """Whether a device by CUDA's number has multicast; `channels` None where not told."""

    device: int
    available: bool
    channels: int | None


class Setting(NamedTuple):
    name: str
    value: str


class Network(NamedTuple):
    name: str


class Fallen(NamedTuple):
    """NCCL 2.27 and 2.28 went on without NVLS, and told so in no warning."""

    text: str


Fact = Init | Link | Counts | Took | Spans | Joined | Chosen | Offered | Setting | Network | Fallen


class NotUnderstood(NamedTuple):
    """A line of a known kind that is not whole, or whose form is new."""

    text: str
