"""Logs of jobs on several nodes, drawn line by line in the forms of NCCL 2.18 to 2.30."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


def ports(_node: int) -> Sequence[str]:
    return [f"mlx5_{number}:1/IB" for number in range(4)]


def own_nic(_node: int, channel: int, received: bool) -> int:  # noqa: FBT001
    """Of a rail: the same number at both ends."""
    return channel + 0 * received


def name_of(node: int) -> str:
    return f"node-{node}"


@dataclass(frozen=True)
class DrawnJob:
    """A job of `nodes` times `gpus` ranks whose rings go through all nodes in order.

    Channel n enters each node at its GPU n, and leaves it from the GPU before. `nic`: the number of the NIC
    by node, channel and whether it receives. `extra`: lines that each rank writes too.
    """

    nodes: int = 2
    gpus: int = 4
    channels: int = 4
    version: str = "2.28.9"
    network: str = "IB"
    direct: str = "/GDRDMA"
    commid: str = "0xc0ffee"
    nics: Callable[[int], Sequence[str]] = ports
    nic: Callable[[int, int, bool], int] = own_nic
    hosts: Callable[[int], str] = name_of
    extra: tuple[str, ...] = ()
    orders: bool = True

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus

    def ring(self, channel: int) -> list[int]:
        """The order of a channel's ring from rank 0 on."""
        inside = [(channel + step) % self.gpus for step in range(self.gpus)]
        order = [node * self.gpus + gpu for node in range(self.nodes) for gpu in inside]
        return order[order.index(0) :] + order[: order.index(0)]

    def of(self, rank: int) -> list[str]:
        """What one rank writes."""
        node, gpu = divmod(rank, self.gpus)
        begun = (
            f"ncclCommInitRank comm 0x5{rank:x}0 rank {rank} nranks {self.ranks} cudaDev {gpu} nvmlDev {gpu} "
            f"busId {gpu + 1}8000 commId {self.commid} - Init "
        )
        lines = [
            *([f"NCCL version {self.version}+cuda12.8"] if rank == 0 else []),
            *self._listed(node),
            f"{begun}START",
            f"comm 0x5{rank:x}0 rank {rank} nRanks {self.ranks} nNodes {self.nodes} localRanks {self.gpus} ",
            *([self._order(channel) for channel in range(self.channels)] if not rank and self.orders else []),
            f"{self.channels} coll channels, 0 nvls channels, 8 p2p channels, 1 p2p channels per peer",
            *(line for channel in range(self.channels) for line in self._links(rank, channel)),
            *self.extra,
            f"{begun}COMPLETE",
        ]
        start = f"{self.hosts(node)}:{1000 + rank}:{2000 + rank} [{gpu}] NCCL INFO "
        return [start + line for line in lines]

    def _listed(self, node: int) -> list[str]:
        names = " ".join(f"[{number}]{name}" for number, name in enumerate(self.nics(node)))
        plugin = "Socket" if self.network == "Socket" else "IB"
        return [f"NET/{plugin} : Using {names} [RO]; OOB eth0:10.0.0.{node}<0>"] if names else []

    def _order(self, channel: int) -> str:
        order = " ".join(f"{one:2}" for one in self.ring(channel))
        return f"Channel {channel:02}/{self.channels:02} : {order}"[:124] + "..." * (len(order) > 106)

    def _links(self, rank: int, channel: int) -> list[str]:
        order, node = self.ring(channel), rank // self.gpus
        at = order.index(rank)
        lines = []
        for a, b in ((order[at - 1], rank), (rank, order[(at + 1) % len(order)])):
            ends, received = f"{a}[{a % self.gpus}] -> {b}[{b % self.gpus}]", b == rank
            number = self.nic(node, channel, received)
            if a // self.gpus != b // self.gpus:
                way = "receive" if received else "send"
                ends += f" [{way}] via NET/{self.network}/{number}{self.direct}"
            elif not received:
                ends += " via P2P/CUMEM"
            if "via" in ends:
                lines.append(f"Channel {channel:02}/0 : {ends}")
        return lines

    def log(self, ranks: Sequence[int] | None = None) -> list[str]:
        """What all ranks wrote, or some, one after the other."""
        return [line for rank in (range(self.ranks) if ranks is None else ranks) for line in self.of(rank)]

    def mixed(self) -> list[str]:
        """The lines of all ranks in turn, as they come from one launcher."""
        each = [self.of(rank) for rank in range(self.ranks)]
        return [lines[n] for n in range(max(map(len, each))) for lines in each if n < len(lines)]
