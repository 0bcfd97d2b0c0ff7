"""The process at the other end of a unix socket, and the bounds of what it may send to the prober."""

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

PROBER_CONNECTIONS = 16
"""Connections at a time; uvicorn answers more of them with 503."""
REQUEST_BYTES = 256 << 10
"""Of a whole request, head and body; those of the agent take 2 KiB."""
REQUEST_SECONDS = 5.0
"""From the connection to the end of the request."""
_CREDENTIALS = struct.Struct("3i")
_SO_PEERGROUPS = 59
"""<asm-generic/socket.h>, Linux 4.13; Python has no name for it."""
_GROUP_BYTES = 1024
"""Of the list of groups; the most that Python can read."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process as it was when it connected; `pid` in our PID namespace, 0 for a process outside it."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return f"uid {self.uid} (pid {self.pid})"

    def belongs(self, group: int) -> bool:
        """Whether it is in this group."""
        return group in {self.gid, *self.groups}


def peer_of(connection: Any) -> Peer:
    """The process that connected; takes a socket, or asyncio's view of one."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(found)
    return Peer(pid, uid, gid, _groups(connection))


class ProberProtocol(H11Protocol):
    """uvicorn's protocol with these bounds; `peer` in the state of a request is its `Peer`."""

    cycle: RequestResponseCycle | None  # type: ignore[assignment]
    _taken = 0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": peer_of(transport.get_extra_info("socket"))}
        self._late = self.loop.call_later(REQUEST_SECONDS, self._too_late)

    def data_received(self, data: bytes) -> None:
        self._taken += len(data)
        if self._taken > REQUEST_BYTES:
            self.transport.abort()
            return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def _too_late(self) -> None:
        if self.cycle is None or self.cycle.more_body:
            self.transport.abort()


def _groups(connection: Any) -> frozenset[int]:
    """Its groups beside the first; none where the kernel does not know the option, or there are over 256."""
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUP_BYTES)
    except OSError:
        return frozenset()
    return frozenset(struct.unpack(f"{len(found) // 4}I", found))
