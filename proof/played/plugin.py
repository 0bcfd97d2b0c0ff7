"""NCCL's side of its profiler interface, version 5: the events that it hands to a plugin, in its order.

The layouts are facts of NCCL's binary interface, written down by their fields once more.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

COLL, KERNEL_CHANNEL, COLL_API = 1 << 1, 1 << 6, 1 << 9
CHANNEL_STOPPED = 22
_P = ctypes.c_void_p
_LISTENER = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class Collective(ctypes.Structure):
    """What NCCL says of a collective as it is enqueued."""

    _fields_ = (
        ("sequence", ctypes.c_uint64), ("function", ctypes.c_char_p), ("send", _P), ("receive", _P),
        ("count", ctypes.c_size_t), ("root", ctypes.c_int), ("datatype", ctypes.c_char_p),
        ("channels", ctypes.c_uint8), ("warps", ctypes.c_uint8), ("algorithm", ctypes.c_char_p),
        ("protocol", ctypes.c_char_p), ("group", _P),
    )  # fmt: skip


class Call(ctypes.Structure):
    """What NCCL says of the call of its interface."""

    _fields_ = (
        ("function", ctypes.c_char_p), ("count", ctypes.c_size_t), ("datatype", ctypes.c_char_p),
        ("root", ctypes.c_int), ("stream", _P), ("captured", ctypes.c_bool),
    )  # fmt: skip


class Channel(ctypes.Structure):
    """The part of a kernel that runs on one channel."""

    _fields_ = (("channel", ctypes.c_uint8), ("started", ctypes.c_uint64))


class _Of(ctypes.Union):
    _fields_ = (("collective", Collective), ("call", Call), ("channel", Channel))


class Event(ctypes.Structure):
    """An event of any kind."""

    _fields_ = (("type", ctypes.c_uint64), ("parent", _P), ("rank", ctypes.c_int), ("of", _Of))


class _Calling(ctypes.Structure):
    """What NCCL keeps of the call that a thread makes: the mask is copied before the plugin hears of it."""

    _fields_ = (
        ("depth", ctypes.c_int), ("mask", ctypes.c_int), ("state", ctypes.c_int), ("group", _P), ("p2p", _P),
        ("collective", _P),
    )  # fmt: skip


class _Profiler(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("init", ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(_P), ctypes.c_uint64, ctypes.POINTER(ctypes.c_int), ctypes.c_char_p,
            ctypes.c_int, ctypes.c_int, ctypes.c_int, _P,
        )),
        ("start", ctypes.CFUNCTYPE(ctypes.c_int, _P, ctypes.POINTER(_P), ctypes.POINTER(Event))),
        ("stop", ctypes.CFUNCTYPE(ctypes.c_int, _P)),
        ("record", ctypes.CFUNCTYPE(ctypes.c_int, _P, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))),
        ("finalize", ctypes.CFUNCTYPE(ctypes.c_int, _P)),
    )  # fmt: skip


class Plugin:
    """A profiler plugin as NCCL holds it: one mask for all communicators of a process.

    Args:
        library: the plugin's file.
        standin: what stands in for NCCL's library: it has the log and the place of a thread's call.
        log: gets each line that the plugin logs, as its format.
    """

    def __init__(self, library: Path, standin: ctypes.CDLL, log: Callable[[str], None]) -> None:
        self._profiler = _Profiler.in_dll(ctypes.CDLL(str(library)), "ncclProfiler_v5")
        self._mask = ctypes.c_int(0)
        standin.played_calling.restype = _P
        self._calling = _Calling.from_address(standin.played_calling())
        self._listener = _LISTENER(lambda text: log(text.decode()))
        standin.played_listen(self._listener)
        self._log = ctypes.cast(standin.played_log, _P)

    def init(self, communicator: int, name: str, ranks: int, rank: int) -> int | None:
        """The plugin's context for a communicator; None where it gives none.

        Raises:
            RuntimeError: it returned an error, which NCCL would take for the end of the plugin.
        """
        context = _P()
        mask = ctypes.pointer(self._mask)
        self._ok(self._profiler.init(context, communicator, mask, name.encode(), 1, ranks, rank, self._log))
        return context.value

    def start(self, context: int | None, kind: int, parent: int | None, rank: int, **of: Any) -> int | None:
        """The plugin's handle for an event; `of`: the part of the union, by its name."""
        event, handle = Event(type=kind, parent=parent, rank=rank, of=_Of(**of)), _P()
        self._ok(self._profiler.start(context, handle, event))
        return handle.value

    def call(self, context: int | None, rank: int, call: Call) -> tuple[int | None, int]:
        """The plugin's handle for a call of a collective, and the mask by which NCCL goes for it."""
        calling = self._calling
        calling.mask = self._mask.value
        if calling.mask & COLL_API:
            event = Event(type=COLL_API, parent=None, rank=rank, of=_Of(call=call))
            place = ctypes.cast(ctypes.addressof(calling) + _Calling.collective.offset, ctypes.POINTER(_P))
            self._ok(self._profiler.start(context, place, event))
        return calling.collective, calling.mask

    def stop(self, handle: int | None) -> None:
        """NCCL stops events that have a handle alone."""
        if handle:
            self._ok(self._profiler.stop(handle))

    def stopped(self, handle: int | None, clock: int) -> None:
        """A channel's kernel has stopped at a time of the GPU's clock, in nanoseconds."""
        if handle:
            self._ok(self._profiler.record(handle, CHANNEL_STOPPED, ctypes.c_uint64(clock)))

    def finalize(self, context: int | None) -> None:
        """The communicator is destroyed."""
        self._ok(self._profiler.finalize(context))

    def _ok(self, result: int) -> None:
        if result:
            raise RuntimeError(f"the plugin returned {result}")
