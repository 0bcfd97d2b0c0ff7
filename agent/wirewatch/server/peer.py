"""The process at the other end of a unix socket, as the kernel knows it."""

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass

_SO_PEERGROUPS = 59
"""<asm-generic/socket.h>, Linux 4.13; Python has no name for it."""


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
        """Tell whether it is in this group."""
        return group in {self.gid, *self.groups}


def peer_of(connection: socket.socket) -> Peer:
    """The process that connected; without groups where the kernel knows none, or there are over 256."""
    pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    groups = b""
    with suppress(OSError):
        # As many bytes as Python can read.
        groups = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
    return Peer(pid, uid, gid, frozenset(struct.unpack(f"{len(groups) // 4}I", groups)))
