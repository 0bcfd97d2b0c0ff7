"""`python -m tests.node.moments SIGNAL EVERY COMMAND...` starts a command and copies that get a signal.

It forks a copy where a function is called for the first time: at each EVERYth function (0: none), and at
those of `ALWAYS`. The copy gets the signal right there and goes on. Other copies get it at each line of the
function that takes the signals. It prints a JSON line for each: place, exit status and output.
"""

import json
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import IO, Any

from wirewatch.core.exits import Exit
from wirewatch.signals import SIGNALS

AT_ONCE = 4
ALWAYS = frozenset({"__set_name__", "_acquire_restore"})
"""An error raised there becomes another error."""
TAKES, BEGINS = "install", frozenset({"run_daemon", "serve"})
"""Functions that take the signals, and those that start threads, which cannot be forked."""


class Copies:
    """The copies that run, and what became of the others."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number
        self._running: dict[int, tuple[str, IO[bytes]]] = {}

    def fork(self, place: str) -> bool:
        """True in the copy."""
        self.wait(AT_ONCE - 1)
        out = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the copy
        pid = os.fork()
        if pid:
            self._running[pid] = place, out
            return False
        sys.settrace(None)
        self._running.clear()
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        return True

    def kill(self) -> None:
        os.kill(os.getpid(), self._number)

    def wait(self, left: int = 0) -> None:
        """Wait until so many are left."""
        while len(self._running) > left:
            pid, status = os.wait()
            place, out = self._running.pop(pid)
            out.seek(0)
            said = out.read().decode("utf-8", "replace")
            os.write(1, json.dumps([place, os.waitstatus_to_exitcode(status), said]).encode() + b"\n")


def callers(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def at_calls(copies: Copies, every: int) -> None:
    """Run the command, with a copy at every so manieth function."""
    seen: set[CodeType] = set()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        code, handler = frame.f_code, signal.getsignal(signal.SIGTERM)
        ours = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        if event != "call" or code in seen or not ours:
            return
        seen.add(code)
        if code.co_name in BEGINS and code.co_filename.endswith("daemon/service.py"):
            ended(0)
        if len(seen) % every and code.co_name not in ALWAYS:
            return
        if {"leave", TAKES, "_run"} & {one.co_name for one in callers(frame)}:
            return
        if copies.fork(f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"):
            if callable(handler):
                # The thread that listens is not in the copy.
                daemon = sys.argv[1] == "serve"
                SIGNALS.install(0 if daemon else Exit.INTERNAL, daemon=daemon)
            copies.kill()

    def ended(code: int) -> None:
        if os.getpid() == process:
            sys.settrace(None)
            copies.wait()
        leave(code)

    process, leave = os.getpid(), os._exit
    os._exit = ended  # type: ignore[assignment]
    sys.settrace(trace)
    runpy.run_module("wirewatch", run_name="__main__", alter_sys=True)


def at_lines(copies: Copies) -> None:
    """Run copies of the command that get the signal at each line of what takes it."""
    code = SIGNALS.install.__code__
    for wanted in sorted({line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}):
        if copies.fork(f"{TAKES}, line {wanted}"):

            def trace(frame: FrameType, event: str, _: Any, at: int = wanted) -> Any:
                if event == "line" and frame.f_lineno == at:
                    sys.settrace(None)
                    copies.kill()
                return trace if frame.f_code is code else None

            sys.settrace(trace)
            runpy.run_module("wirewatch", run_name="__main__", alter_sys=True)
    copies.wait()


def main() -> None:
    copies, every = Copies(signal.Signals[sys.argv[1]]), int(sys.argv[2])
    sys.argv = ["wirewatch", *sys.argv[3:]]
    at_lines(copies)
    if every:
        at_calls(copies, every)


if __name__ == "__main__":
    main()
