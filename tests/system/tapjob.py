"""A job without NCCL and without a GPU: it calls the tap as NCCL does through interface 5.

Arguments: the library, how many collectives. It says `up`, and finalizes its communicator at a line of input.
Nobody knows which NCCL this is, so that it asks for times of whatever it is. libc stands in for NCCL's
library: a harmless function of it for the log, and its thread-local variables.
"""

import ctypes as c
import os
import sys
from typing import ClassVar

SIZE, CHANNELS, STEP = 1 << 20, 2, 10_000
COLL, CHANNEL, CALL, STOPPED = 1 << 1, 1 << 6, 1 << 9, 22
COMMUNICATOR = 0x1234_5678_9ABC


class Collective(c.Structure):
    _fields_: ClassVar = [
        ("sequence", c.c_uint64), ("function", c.c_char_p), ("send", c.c_void_p), ("receive", c.c_void_p),
        ("count", c.c_size_t), ("root", c.c_int), ("datatype", c.c_char_p), ("channels", c.c_uint8),
        ("warps", c.c_uint8), ("algorithm", c.c_char_p), ("protocol", c.c_char_p), ("group", c.c_void_p),
    ]  # fmt: skip


class Call(c.Structure):
    _fields_: ClassVar = [
        ("function", c.c_char_p), ("count", c.c_size_t), ("datatype", c.c_char_p), ("root", c.c_int),
        ("stream", c.c_void_p), ("captured", c.c_bool),
    ]  # fmt: skip


class Channel(c.Structure):
    _fields_: ClassVar = [("channel", c.c_uint8), ("started", c.c_uint64)]


class Of(c.Union):
    _fields_: ClassVar = [("collective", Collective), ("channel", Channel), ("call", Call)]


class Event(c.Structure):
    _fields_: ClassVar = [("type", c.c_uint64), ("parent", c.c_void_p), ("rank", c.c_int), ("of", Of)]


class State(c.Union):
    _fields_: ClassVar = [("stopped", c.c_uint64)]


INIT = c.CFUNCTYPE(
    c.c_int, c.POINTER(c.c_void_p), c.c_uint64, c.POINTER(c.c_int), c.c_char_p, c.c_int, c.c_int, c.c_int,
    c.c_void_p,
)  # fmt: skip
START = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.c_void_p), c.POINTER(Event))
STOP = c.CFUNCTYPE(c.c_int, c.c_void_p)
RECORD = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int, c.POINTER(State))


class Plugin(c.Structure):
    _fields_: ClassVar = [
        ("name", c.c_char_p), ("init", INIT), ("start", START), ("stop", STOP), ("record", RECORD),
        ("finalize", STOP),
    ]  # fmt: skip


def main(library: str, count: int) -> None:
    os.environ["WIREWATCH_TAP_UNMEASURED"] = "1"
    plugin, log = Plugin.in_dll(c.CDLL(library), "ncclProfiler_v5"), c.cast(c.CDLL(None).getpid, c.c_void_p)
    context, mask = c.c_void_p(), c.c_int()
    assert plugin.init(c.byref(context), COMMUNICATOR, c.byref(mask), b"tensor", 1, 2, 1, log) == 0
    assert mask.value & COLL, "the tap asks for collectives"
    for number in range(count):
        collective(plugin, context, number)
    print("up", flush=True)
    sys.stdin.readline()
    assert plugin.finalize(context) == 0


def collective(plugin: Plugin, context: c.c_void_p, number: int) -> None:
    """An all_gather that takes STEP ns more with each number, on its last channel longest."""
    handle, began = c.c_void_p(), 10**15 + number * 10**6
    of = Collective(
        number, b"AllGather", None, None, SIZE, 0, b"ncclBfloat16", CHANNELS, 16, b"RING", b"SIMPLE"
    )
    call, about = c.c_void_p(), Call(b"AllGather", SIZE, b"ncclBfloat16", 0, None, captured=False)
    plugin.start(context, c.byref(call), c.byref(Event(CALL, None, 1, Of(call=about))))
    plugin.start(context, c.byref(handle), c.byref(Event(COLL, call.value, 1, Of(collective=of))))
    plugin.stop(handle)
    for channel in range(CHANNELS):
        inner = c.c_void_p()
        event = Event(CHANNEL, handle.value, 1, Of(channel=Channel(channel, began)))
        plugin.start(context, c.byref(inner), c.byref(event))
        plugin.record(inner, STOPPED, c.byref(State(began + (number + channel) * STEP)))
        plugin.stop(inner)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
