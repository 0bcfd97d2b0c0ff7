"""The process that talks to NVML: reads jobs on standard input, writes replies, knows nothing else.

It may be killed at any moment. It dies with its parent, also when it hangs in a call.
"""

import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import BinaryIO, Protocol

from wirewatch.core.ports import Answer, Question
from wirewatch.hw.nvml import protocol
from wirewatch.hw.nvml.protocol import LibraryError

LAST_WORDS = 0.5
"""Seconds that the running job may still take once the parent is gone."""


class Answerer(Protocol):
    """NVML or something that stands for it; `seconds` is the time spent inside so far."""

    seconds: float

    def answer(self, scope: str | None, questions: Sequence[Question]) -> list[Answer]: ...


def _open(source: protocol.Source) -> Answerer:
    if source.replay:
        from wirewatch.hw.overlay import ReplayNvml, open_player

        return ReplayNvml(open_player(source))
    from wirewatch.hw.nvml.library import Library

    return Library()


def _die_with_parent() -> None:
    """Kill ourselves soon after the parent let go of our input, also while a call into the driver hangs.

    The kernel's parent-death signal comes when the thread that started us ends, not the process.
    """
    watch = select.poll()
    watch.register(0, 0)
    watch.poll()
    time.sleep(LAST_WORDS)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    threading.Thread(target=_die_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The pipe to the parent, out of reach of whatever a library prints.
    pipe = os.dup(1)
    os.dup2(2, 1)
    serve(sys.stdin.buffer, pipe)


def serve(jobs: BinaryIO, pipe: int) -> None:
    """Answer jobs until there are no more; the first line names the source."""
    try:
        source = protocol.decode_source(jobs.readline())
        library = _open(source)
    except LibraryError as error:
        _write(pipe, protocol.encode_hello(protocol.Hello(error.code, str(error))))
        return
    gc.freeze()
    _write(pipe, protocol.encode_hello(protocol.Hello()))
    for line in jobs:
        scope, questions = protocol.decode_job(line)
        before = library.seconds
        try:
            answers = tuple(library.answer(scope, questions))
            reply = protocol.Reply(answers, library.seconds - before)
        except RuntimeError as error:
            reply = protocol.Reply((), library.seconds - before, str(error))
        _write(pipe, protocol.encode_reply(reply, timed=source.timed))


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


if __name__ == "__main__":
    main()
