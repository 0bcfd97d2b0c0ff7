"""The process that talks to NVML: reads jobs on standard input, writes replies, knows nothing else.

It may be killed at any moment. It dies with its parent, also when it hangs in a call.
"""

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import Protocol

from wirewatch.core.ports import Answer, Question
from wirewatch.hw.nvml import wire
from wirewatch.hw.nvml.codes import LibraryError

PARENT = "WIREWATCH_PARENT"
"""Environment variable with the process id of the parent."""

_PR_SET_PDEATHSIG = 1


class Answerer(Protocol):
    """NVML or something that stands for it; `seconds` is the time spent inside so far."""

    seconds: float

    def answer(self, scope: str | None, questions: Sequence[Question]) -> list[Answer]: ...


def _open(source: wire.Source) -> Answerer:
    if source.replay:
        from wirewatch.hw.replay import open_nvml

        return open_nvml(source)
    from wirewatch.hw.nvml.library import Library

    return Library()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.environ.get(PARENT, "") != str(os.getppid()):
        sys.exit("the parent died before the NVML process was ready")


def _private_output() -> int:
    """The pipe to the parent, out of reach of whatever a library prints."""
    pipe = os.dup(1)
    os.dup2(2, 1)
    return pipe


def main() -> None:
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = _private_output()
    jobs = sys.stdin.buffer
    try:
        source = wire.decode_source(jobs.readline())
        library = _open(source)
    except LibraryError as error:
        _write(pipe, wire.encode_hello(wire.Hello(error.code, str(error))))
        return
    gc.freeze()
    _write(pipe, wire.encode_hello(wire.Hello()))
    for line in jobs:
        scope, questions = wire.decode_job(line)
        before = library.seconds
        try:
            answers = tuple(library.answer(scope, questions))
            reply = wire.Reply(answers, library.seconds - before)
        except RuntimeError as error:
            reply = wire.Reply((), library.seconds - before, str(error))
        _write(pipe, wire.encode_reply(reply, timed=source.timed))


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


if __name__ == "__main__":
    main()
