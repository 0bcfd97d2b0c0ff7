"""Two commands of a pair as real processes: however one ends, so does the other, long before its deadline."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.fleet.rounds.test_partner import free_port
from tests.groups import dies
from tests.node.worker.workerprocess import torch_python
from tests.patience import HANGS
from wirewatch_fleet.rounds.answer import PeerAnswer, answers_in
from wirewatch_fleet.rounds.plan import PairWork, encode_pair_plan, pair_plan

pytestmark = pytest.mark.system

WORK = PairWork("gloo", ranks=1, size_bytes=1 << 24, iterations=10_000, seconds=3600.0, patience=1800.0)
"""It ends in an hour, and waits half of that, unless something ends it."""
MET = 3
"""Connections at the first node: the two commands', and those of both workers to their store."""


class Peer:
    """`wirewatch fleet peer` on one node of the pair."""

    def __init__(self, name: str, port: int, folder: Path, work: PairWork = WORK) -> None:
        state = folder / name
        state.mkdir()
        plan = encode_pair_plan(pair_plan("a", "b", f"127.0.0.1:{port}", work))
        command = str(Path(torch_python()).with_name("wirewatch"))
        self.process = subprocess.Popen(
            [command, "fleet", "peer", "--plan", plan, "--as", name], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, "STATE_DIRECTORY": str(state)},
        )  # fmt: skip

    def worker(self) -> int | None:
        """Its worker, which has a session of its own, once that runs."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(stat.read_text("utf-8").rpartition(")")[2].split()[1])
                if parent == self.process.pid and b"wirewatch.worker" in (
                    stat.with_name("cmdline").read_bytes()
                ):
                    return int(stat.parent.name)
        return None

    def answer(self) -> tuple[int, PeerAnswer | None]:
        out, _ = self.process.communicate(timeout=HANGS)
        return self.process.returncode, next(answers_in(out), None)


ESTABLISHED, LISTENING = "01", "0A"
"""States of a connection (net/tcp_states.h)."""


def sockets(port: int, state: str) -> int:
    """How many sockets of this machine are in a state at a port."""
    texts = (Path("/proc/net", name).read_text("utf-8") for name in ("tcp", "tcp6"))
    lines = [line.split() for text in texts for line in text.splitlines()]
    return sum(line[3] == state and line[1].endswith(f":{port:04X}") for line in lines)


def until(happened: Callable[[], object]) -> None:
    late = time.monotonic() + HANGS
    while not happened():
        assert time.monotonic() < late, "it has not happened in time"
        time.sleep(0.01)


@contextmanager
def running(*peers: Peer) -> Iterator[None]:
    try:
        yield
    finally:
        for one in peers:
            one.process.kill()
            one.process.communicate(timeout=HANGS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_signal_ends_one_that_waits(name: str, number: signal.Signals, tmp_path: Path) -> None:
    port = free_port()
    with ExitStack() as stack:
        calls = stack.enter_context(socket.create_server(("127.0.0.1", port))) if name == "b" else None
        one = Peer(name, port, tmp_path)
        stack.enter_context(running(one))
        if calls is None:
            until(lambda: sockets(port, LISTENING))
        else:
            calls.settimeout(HANGS)
            stack.enter_context(calls.accept()[0])
        one.process.send_signal(number)
        code, answer = one.answer()
        assert answer is not None
        assert (code, answer.cause, answer.why) == (3, "preempted", f"ended by {number.name}")


@pytest.mark.parametrize("met", [False, True])
@pytest.mark.parametrize("ended", ["a", "b"])
@pytest.mark.parametrize(("number", "why"), [
    (signal.SIGINT, " has ended: preempted: ended by SIGINT"),
    (signal.SIGTERM, " has ended: preempted: ended by SIGTERM"),
    (signal.SIGKILL, " has ended"),
    (None, " has ended: failed: the worker was ended by SIGKILL and wrote nothing"),
])  # fmt: skip
def test_however_one_ends_the_other_ends_too_and_says_why(
    number: signal.Signals | None, why: str, ended: str, met: bool, tmp_path: Path  # noqa: FBT001
) -> None:  # fmt: skip
    port = free_port()
    peers = {name: Peer(name, port, tmp_path) for name in "ab"}
    with running(*peers.values()):
        until(lambda: all(one.worker() for one in peers.values()))
        if met:
            until(lambda: sockets(port, ESTABLISHED) >= MET)
        workers = {name: one.worker() for name, one in peers.items()}
        if number is None:
            os.killpg(workers[ended] or 0, signal.SIGKILL)
        else:
            peers[ended].process.send_signal(number)
        other = "b" if ended == "a" else "a"
        code, answer = peers[other].answer()
        assert answer is not None
        # A library may notice it in the same instant, and says it in its own words.
        said = (f"{ended}{why}",) if not met else (f"{ended}{why}", "gloo says ")
        assert (code, answer.cause) == (3, "failed")
        assert any(one in answer.why for one in said), answer.why
        assert all(one is not None and dies(one) for one in workers.values())


def test_a_whole_pair_ends_by_itself(tmp_path: Path) -> None:
    port, work = free_port(), PairWork("gloo", ranks=2, size_bytes=1 << 16, seconds=3600.0, patience=1800.0)
    peers = [Peer(name, port, tmp_path, work) for name in "ab"]
    with running(*peers):
        found = [one.answer() for one in peers]
    assert [(code, answer and answer.cause) for code, answer in found] == [(0, ""), (0, "")]
