"""How ranks of several nodes find each other: a store at the first, and the interface that leads there."""

import os
import socket
import struct
import time
from contextlib import suppress
from datetime import timedelta
from fcntl import ioctl

import torch.distributed as dist

from wirewatch.core.probe import Meeting
from wirewatch.worker.run import EngineError

RETRY_SECONDS = 0.05
_GET_ADDRESS = 0x8915
"""SIOCGIFADDR (linux/sockios.h)."""
_INTERFACE = "GLOO_SOCKET_IFNAME"


def meet(meeting: Meeting, rank: int, ranks: int) -> dist.Store:
    """The store through which all ranks meet; rank 0 has it. It listens on all addresses, as torchrun's does.

    Where no interface is chosen for gloo, it is the one that holds our address on the way to the store: a
    node's name may lead to another, or to none.

    Raises:
        EngineError: the first node cannot be reached in time, or its port is taken.
    """
    late, first = time.monotonic() + meeting.patience, rank == 0
    try:
        made = _store(meeting, ranks, here=True) if first else None
        interface = _interface(_reached(meeting, late))
        if interface:
            os.environ.setdefault(_INTERFACE, interface)
        return made or _store(meeting, ranks, here=False)
    except (RuntimeError, OSError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        where = f"{meeting.host}:{meeting.port}"
        what = "cannot be listened at" if first else f"has not answered within {meeting.patience:g} s"
        raise EngineError("internal", f"{where} {what}: {said}") from error


def _store(meeting: Meeting, ranks: int, *, here: bool) -> dist.Store:
    within = timedelta(seconds=meeting.patience)
    return dist.TCPStore(
        meeting.host, meeting.port, ranks, is_master=here, timeout=within, wait_for_workers=False
    )


def _reached(meeting: Meeting, late: float) -> str:
    """Our address on the way to the first node, once it listens; its name may not be known before."""
    while True:
        left = max(0.1, late - time.monotonic())
        try:
            with socket.create_connection((meeting.host, meeting.port), left) as one:
                address: str = one.getsockname()[0]
                return address
        except OSError:
            if time.monotonic() > late:
                raise
        time.sleep(RETRY_SECONDS)


def _interface(address: str) -> str:
    """The interface with this IPv4 address; "" where none has it as its first."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                told = ioctl(asked, _GET_ADDRESS, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(told[20:24]) == address:
                    return name
    return ""
