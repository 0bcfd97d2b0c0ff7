"""One rank of a played job, a process of its own: `python -m proof.played.rank RANK TAP STANDIN BEGIN SCORE`.

The enqueues come from this thread and the channels from another one, as in NCCL, which starts a channel's
events only where the call's mask asked for them. It plays until SIGTERM, or its end by signal.
"""

import ctypes
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

from proof.played.plugin import COLL, KERNEL_CHANNEL, Call, Channel, Collective, Plugin
from proof.played.score import Score, parsed

FLOAT32 = 4
AHEAD = 2
"""Collectives that a process enqueues before it waits for one of them."""
_END = frozenset({signal.SIGTERM})
Timed = tuple[int, int, int | None]
"""Handle of a collective, and its start and stop by the GPU's clock in nanoseconds; None: it never stops."""


class PlayedRank:
    """A rank with its plugin; `begin`: monotonic seconds of step 0, the same for all ranks of the job."""

    def __init__(self, rank: int, plugin: Plugin, begin: float, score: Score) -> None:
        self._rank, self._plugin, self._begin, self._score = rank, plugin, begin, score
        self._timed: queue.SimpleQueue[Timed | None] = queue.SimpleQueue()
        # Clocks of GPUs have nothing to do with each other.
        self._clock = (rank + 1) * 1_000_000_000_000
        self._progress = threading.Thread(target=self._channels)
        self._context: int | None = None
        self._graph = 0
        """The mask of the call that a graph captured: it goes for all its replays."""

    def play(self) -> None:
        """Play step after step until told to end; then finalize in good order."""
        # Before the thread starts, which is to leave the signal to this one.
        signal.pthread_sigmask(signal.SIG_BLOCK, _END)
        self._progress.start()
        self._context = self._init(0)
        number = sequence = captured = 0
        while not self._wait_for(number):
            number += 1
            if self._score.renew and number % self._score.renew == 0:
                self._plugin.finalize(self._context)
                self._context, sequence = self._init(number // self._score.renew), 0
            if number == self._score.fork:
                self._fork()
            if number == self._score.killed and self._rank == self._score.ranks - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if self._score.killed and number >= self._score.killed + AHEAD:
                signal.sigwait(_END)
                break
            graph = bool(self._score.capture) and number >= self._score.capture
            captured += graph
            if captured != 1:
                # NCCL raises the number at each replay.
                sequence += 1
            self._call(number, sequence, captured)
        self._timed.put(None)
        self._progress.join()
        self._plugin.finalize(self._context)

    def _init(self, turn: int) -> int | None:
        score = self._score
        return self._plugin.init(score.communicator + turn, "played", score.ranks, self._rank)

    def _wait_for(self, number: int) -> bool:
        """Wait for a step's moment; whether the end came before. A step that is overdue begins at once."""
        left = self._begin + number * self._score.step - time.monotonic()
        return signal.sigtimedwait(_END, max(0.0, left)) is not None

    def _call(self, number: int, sequence: int, captured: int) -> None:
        """One collective: the call, its enqueue, and its channels later; `captured`: how often a graph ran.

        The first time a graph is captured, and nothing runs; later it is replayed without a call.
        """
        call, mask = None, self._graph
        if captured <= 1:
            call, mask = self._plugin.call(self._context, self._rank, self._described(captured=captured == 1))
        if captured == 1:
            self._graph = mask
            self._plugin.stop(call)
            return
        handle = None
        if mask & COLL:
            handle = self._start(COLL, call, collective=self._collective(sequence))
            self._plugin.stop(handle)
        self._plugin.stop(call)
        if handle and mask & KERNEL_CHANNEL:
            begun = self._clock + round((number * self._score.step + self._arrival(number)) * 1e9)
            hangs = bool(self._score.killed) and number >= self._score.killed
            ended = None if hangs else begun + round(self._score.duration(number, self._rank) * 1e9)
            self._timed.put((handle, begun, ended))

    def _arrival(self, number: int) -> float:
        return self._score.arrivals(number)[self._rank]

    def _start(self, kind: int, parent: int | None, **of: object) -> int | None:
        return self._plugin.start(self._context, kind, parent, self._rank, **of)

    def _described(self, *, captured: bool) -> Call:
        count = self._score.size_bytes // FLOAT32
        return Call(function=b"AllReduce", count=count, datatype=b"ncclFloat32", root=0, captured=captured)

    def _collective(self, sequence: int) -> Collective:
        score = self._score
        return Collective(
            sequence=sequence, function=b"AllReduce", count=score.size_bytes // FLOAT32, root=0,
            datatype=b"ncclFloat32", channels=score.channels, warps=16, algorithm=score.algorithm.encode(),
            protocol=score.protocol.encode(),
        )  # fmt: skip

    def _channels(self) -> None:
        """NCCL's progress thread: the channels of collectives start together and stop together."""
        while (timed := self._timed.get()) is not None:
            parent, begun, ended = timed
            handles = []
            for channel in range(self._score.channels):
                at = Channel(channel=channel, started=begun + 32 * (channel % 4))
                handles.append(self._start(KERNEL_CHANNEL, parent, channel=at))
            if ended is None:
                continue
            time.sleep((ended - begun) * 1e-9)
            for handle in handles:
                self._plugin.stopped(handle, ended)
                self._plugin.stop(handle)

    def _fork(self) -> None:
        """As a loader does: the child has the handles of its parent, uses them, and ends."""
        child = os.fork()
        if not child:
            try:
                handle = self._start(COLL, None, collective=self._collective(1))
                self._plugin.stop(handle)
                self._plugin.finalize(self._context)
                os._exit(0)
            finally:
                os._exit(1)
        if os.waitpid(child, 0)[1]:
            raise RuntimeError("a forked child with the tap did not end well")


def main(words: list[str]) -> int:
    """Play one rank to its end."""
    rank, library, standin, begin, score = words
    nccl = ctypes.CDLL(standin, mode=ctypes.RTLD_GLOBAL)
    plugin = Plugin(Path(library), nccl, lambda text: print(text, flush=True))
    PlayedRank(int(rank), plugin, float(begin), parsed(score)).play()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
