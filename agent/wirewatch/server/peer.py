"""The process at the other end of a unix socket, as the kernel knows it."""

import socket
import struct
from dataclasses import dataclass

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


def peer_of(connection: socket.socket) -> Peer:
    """The process that connected."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(found)
    return Peer(pid, uid, gid, _groups(connection))


def _groups(connection: socket.socket) -> frozenset[int]:
    """Its groups beside the first; none where the kernel does not know the option, or there are over 256."""
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUP_BYTES)
    except OSError:
        return frozenset()
    return frozenset(struct.unpack(f"{len(found) // 4}I", found))
