"""Who is at the other end of a unix socket, by the kernel's word (unix(7), SO_PEERCRED)."""

import socket
import struct
from dataclasses import dataclass
from typing import Any

_CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid."""
_SO_PEERGROUPS = 59
"""<asm-generic/socket.h>, Linux 4.13; Python has no name for it."""
_MOST_GROUPS = 1024
"""Bytes of them; all that Python lets ask for."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process as it was when it connected; `pid` as we number processes, 0 for one that we cannot see."""

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
    """Who connected; takes a socket, or asyncio's view of one."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(told)
    return Peer(pid, uid, gid, _groups(connection))


def _groups(connection: Any) -> frozenset[int]:
    """Its groups beside the first; none where the kernel does not tell, or there are more than 256."""
    try:
        told = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_GROUPS)
    except OSError:
        return frozenset()
    return frozenset(struct.unpack(f"{len(told) // 4}I", told))
