"""Workers that behave, and workers that do not, as one program: the environment says which to be.

The standard library alone, so that they start at once.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WHICH, PID_FILE = "OUR_WORKER", "OUR_PID_FILE"
"""Variables: the name of a worker, and the file for its process id."""
COMMAND = ("-I", "-S", str(Path(__file__).resolve()))
"""What Python is to be given to become such a worker."""
DELAYS = {"slow_reader": 0.3, "deaf": 3600.0}
"""Seconds before a worker listens."""
FOR_EVER, STRAY = 3600, 20.0
_WAYS = ("to_device", "from_device", "to_device_low", "from_device_low", "all_to_device", "all_from_device")
HOST_TIMES = dict.fromkeys((*_WAYS, "both"), 1e-3)
CASE = 0.005
"""Seconds that `reporting` takes for a case."""
TALK = 10_000_000
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, -1
"""prctl(2)."""


class Ends:
    """What a worker is given: its plan, and where to write."""

    def __init__(self, document: int, marks: int) -> None:
        self.plan: dict[str, Any] = json.loads(sys.stdin.readline())
        self.document, self.marks = document, marks

    def mark(self, name: bytes, *, waits: bool = True) -> None:
        os.write(self.marks, name + b"\n")
        if waits and not sys.stdin.readline():
            os._exit(1)

    def all_marks(self, *, waits: bool = True) -> None:
        groups = range(len(self.plan["groups"]))
        for name in (
            *(f"{op}.{group}" for group in groups for op in self.plan["ops"]),
            "copies",
            "micros",
            *(["hosts"] if self.plan["host_bytes"] else []),
            "end",
        ):
            self.mark(name.encode(), waits=waits)

    def tell(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.document, data) :]

    def tell_all(self, **changes: Any) -> None:
        self.tell(json.dumps(document(self.plan) | changes).encode())


def document(plan: dict[str, Any]) -> dict[str, Any]:
    """A document that is all of this plan; every size takes a millisecond."""
    sizes = [*plan["latency_sizes"], *(size for size, _ in plan["bandwidth"])]
    places = range(len(plan["gpus"]))
    timed = {"launch": "stream", "iterations": 5, "runs": 8, "seconds": 1e-3, "low": 1e-3, "median": 1e-3}
    return {
        "schema": "wirewatch.worker/1",
        "engine": plan["engine"],
        "collectives": [
            {"group": group, "op": op, "size_bytes": size, **timed, "high": 1e-3, "wrong": 0}
            for group in range(len(plan["groups"]))
            for op in plan["ops"]
            for size in sizes
        ],
        "copies": [
            {"source": a, "destination": b, "size_bytes": 4, "seconds": 1e-3, "runs": 3, "direct": True}
            for a in places
            for b in places
            if a != b
        ],
        "hosts": [
            {"gpu": gpu, "size_bytes": plan["host_bytes"], "runs": 20, "near": None, **HOST_TIMES}
            for gpu in (places if plan["host_bytes"] else ())
        ],
        "cost": {"imported": 0.01, "done": 0.02},
    }


def good(ends: Ends) -> None:
    ends.all_marks()
    ends.tell_all()


def reporting(ends: Ends) -> None:
    """Reports the cases of its plan one by one; all of them take a while."""
    ends.mark(b"cases")
    done = []
    for case in ends.plan["cases"]:
        time.sleep(CASE)
        times = dict.fromkeys(("seconds", "low", "median", "high"), 1e-5 + case["size_bytes"] / 1e11)
        done.append({**case, **times, "runs": case["iterations"], "wrong": 0})
        os.write(ends.marks, f"timed {json.dumps(done[-1])}\n".encode())
    ends.mark(b"end")
    ends.tell_all(collectives=done)


def rushed(ends: Ends) -> None:
    """Does not wait at its marks."""
    ends.all_marks(waits=False)
    ends.tell_all()


def latin(ends: Ends) -> None:
    """A mark that is no UTF-8."""
    ends.mark(b"all_reduce\xff.0")
    ends.all_marks()
    ends.tell_all()


def lingering(ends: Ends) -> None:
    good(ends)
    time.sleep(FOR_EVER)


def traced(ends: Ends) -> None:
    """Tells all and hangs; whoever wants to may trace it."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
    lingering(ends)


def traced_silent(_ends: Ends) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
    time.sleep(FOR_EVER)


def parent(ends: Ends) -> None:
    """Leaves a child behind, which has the descriptors still open."""
    if os.fork() == 0:
        time.sleep(FOR_EVER)
    good(ends)


def straying(ends: Ends) -> None:
    """Leaves a child behind in a session of its own, whose id is a mark."""
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(STRAY)
        os._exit(0)
    ends.mark(str(child).encode())
    good(ends)


def ranks(ends: Ends) -> None:
    """Has a second process, whose id is in a file beside its own, and which ends before it does.

    Each has its own log of NCCL's.
    """
    Path(ends.plan["log"]).write_text("vm:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n", "utf-8")
    Path(f"{ends.plan['log']}.1").write_text(
        "vm:2:2 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n", "utf-8"
    )
    second = os.fork()
    if second == 0:
        time.sleep(FOR_EVER)
    Path(os.environ[PID_FILE]).with_suffix(".second").write_text(f"{second}\n", "utf-8")
    ends.all_marks()
    os.kill(second, signal.SIGKILL)
    os.waitpid(second, 0)
    ends.mark(b"over")
    ends.tell_all()


def fallen_parent(ends: Ends) -> None:
    if os.fork() == 0:
        time.sleep(FOR_EVER)
    crash(ends)


def garbage(ends: Ends) -> None:
    ends.all_marks()
    ends.tell(bytes(range(256)) * 20)


def half(ends: Ends) -> None:
    ends.all_marks()
    text = json.dumps(document(ends.plan)).encode()
    ends.tell(text[: len(text) // 2])


def stalled(ends: Ends) -> None:
    """Half a document, and no more for ever."""
    half(ends)
    time.sleep(FOR_EVER)


def nan(ends: Ends) -> None:
    ends.all_marks()
    ends.tell_all(cost={"done": float("nan")})


def long(ends: Ends) -> None:
    ends.all_marks()
    ends.tell_all(engine="x" * TALK)


def strange(ends: Ends) -> None:
    """All of its document is right, but for a GPU that the plan does not have."""
    ends.all_marks()
    micro = {"gemm_seconds": 1e-3, "gemm_low": 1e-3, "gemm_high": 1e-3, "copy_bytes": 8}
    copies = {"copy_seconds": 1e-3, "copy_low": 1e-3, "copy_high": 1e-3}
    ends.tell_all(micros=[{"gpu": 2, **micro, **copies}])


def flood(ends: Ends) -> None:
    """Marks without end, and never listens."""
    while True:
        ends.mark(b"all_reduce.0", waits=False)


def wordy(ends: Ends) -> None:
    """One mark that is too long, with its end."""
    ends.mark(b"x" * 5000)
    good(ends)


def many(ends: Ends) -> None:
    """As many marks as there may be, the longest that there may be among them."""
    ends.mark(b"x" * 4096, waits=False)
    for _ in range(1000 - 1 - len(ends.plan["groups"]) * len(ends.plan["ops"]) - 3):
        ends.mark(b"more", waits=False)
    rushed(ends)


def halting(ends: Ends) -> None:
    """Takes a while in the middle of its document."""
    ends.all_marks()
    text = json.dumps(document(ends.plan)).encode()
    ends.tell(text[: len(text) // 2])
    time.sleep(0.2)
    ends.tell(text[len(text) // 2 :])


def endless_mark(ends: Ends) -> None:
    while True:
        os.write(ends.marks, b"x" * 1000)


def silent(_ends: Ends) -> None:
    sys.stderr.write("waiting for a driver\n")
    sys.stderr.flush()
    time.sleep(FOR_EVER)


def stubborn(ends: Ends) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    silent(ends)


def mute(ends: Ends) -> None:
    """Closes all that it has, and hangs."""
    os.close(ends.document)
    os.close(ends.marks)
    time.sleep(FOR_EVER)


def crash(_ends: Ends) -> None:
    sys.stderr.write("libcuda: bad things\nFatal error: wires crossed\n\n")
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV)


def exit3(_ends: Ends) -> None:
    sys.stderr.write("loading\nlibnccl.so.2: cannot open \x1b[31mshared object file\n")
    sys.exit(3)


def empty(_ends: Ends) -> None:
    """Ends well, without a word."""


def talkative(_ends: Ends) -> None:
    """Prints a lot, by both ways, before it fails."""
    for stream in (sys.stdout, sys.stderr):
        stream.write("chatter " * (TALK // 16))
        stream.flush()
    sys.stderr.write("\nthe last of many words\n")
    sys.exit(1)


def out_of_memory(ends: Ends) -> None:
    ends.mark(b"all_reduce.0")
    ends.tell_all(error={"kind": "out_of_memory", "text": "GPU 1: 512 MiB cannot be had"})


def environment(ends: Ends) -> None:
    """Its mark tells what it was given; it takes no part in anything."""
    open_fds = []
    for fd in range(256):
        try:
            os.fstat(fd)
        except OSError:
            continue
        open_fds.append(fd)
    told = {
        "environment": {
            name: value for name, value in os.environ.items() if name.startswith(("NCCL_", "OUR_"))
        },
        "descriptors": open_fds,
        "given": [0, 1, 2, ends.document, ends.marks],
        "session": os.getsid(0) == os.getpid(),
        "plan": ends.plan,
    }
    ends.mark(json.dumps(told).encode())


def slow_reader(ends: Ends) -> None:
    """Listens late, to a plan that no pipe holds."""
    ends.mark(str(len(ends.plan["gpus"])).encode())


def deaf(_ends: Ends) -> None:
    """Never listens at all."""


WORKERS: dict[str, Callable[[Ends], None]] = {
    made.__name__: made
    for made in (
        good, reporting, rushed, latin, lingering, traced, traced_silent, parent, fallen_parent, straying,
        garbage, half, stalled, nan, long, strange, flood, endless_mark, silent, stubborn, mute, crash,
        exit3, empty, talkative, out_of_memory, environment, slow_reader, deaf, ranks, wordy, many,
        halting,
    )
}  # fmt: skip


def write_pid() -> None:
    """Put our process id where whoever started us looks for it, in one step: nobody reads half of it."""
    file = Path(os.environ[PID_FILE])
    file.with_suffix(".new").write_text(str(os.getpid()), "utf-8")
    file.with_suffix(".new").rename(file)


def main() -> None:
    name, (document_fd, marks_fd) = os.environ[WHICH], sys.argv[1:3]
    if PID_FILE in os.environ:
        write_pid()
    time.sleep(DELAYS.get(name, 0.0))
    WORKERS[name](Ends(int(document_fd), int(marks_fd)))


if __name__ == "__main__":
    main()
