"""pairs: a GPU each, or shares of one, pose as four nodes, and a direction that is slowed is named.

Each node is a process in a network namespace. NCCL takes it for a machine, so that data goes over sockets,
at a rate that tc holds. Rounds, planner and naming are those of `wirewatch fleet probe`; the gate is not.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from proof.fleet.pairs.faults import Slowed, judged
from proof.hardware.job import NO_MULTICAST
from proof.hardware.kit import KitError, Report
from tests.system.namespaces import INTERFACE, Wires
from wirewatch.core.probe import MIB
from wirewatch_fleet.cli.probe import ShownCampaign
from wirewatch_fleet.pairs.document import PAIRS, ROUNDS, RoundsDocument, pairs_document, rounds_document
from wirewatch_fleet.pairs.model import MeasuredRound, PairFleet, PairMember
from wirewatch_fleet.rounds.campaign import CampaignOptions, run_rounds
from wirewatch_fleet.rounds.engine import PairNode, PairProgress, PairState, RoundOrder
from wirewatch_fleet.rounds.plan import PairWork, WorkEngine, encode_pair_plan, pair_plan

NODES = ("n1", "n2", "n3", "n4")
PORT = 29500
RATE, SLOW = 1e9, 0.5
"""Bits per second of a wire each way, and what is left of it where it is slowed."""
GLOO_RATE, GLOO_SIZE = 16e6, 1 * MIB
"""Of a trial on processors, which could not fill the other."""
SIZE = 8 * MIB
ROUND = 20.0
"""Seconds that a round may take, with the start of its processes."""
LIMIT = 60.0
POSED = {
    **NO_MULTICAST,
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": INTERFACE,
    "GLOO_SOCKET_IFNAME": INTERFACE,
    "NCCL_MNNVL_ENABLE": "0",
}


def run(report: Report, options: argparse.Namespace) -> None:
    if os.geteuid():
        raise KitError("network namespaces take root")
    engine: WorkEngine = options.engine
    for one in slowed(GLOO_RATE if engine == "gloo" else RATE):
        report.attempt(one.title, partial(_tried, report, one, engine))


def slowed(rate: float) -> tuple[Slowed, ...]:
    """All, with healthy wires first; `rate` in bits per second."""
    slow = rate * SLOW
    return (
        Slowed("nothing is slowed", lambda _: None, frozenset()),
        Slowed("n3 sends slowly", lambda w: w.sends("n3", slow), frozenset({("n3", "sends")})),
        Slowed("n2 receives slowly", lambda w: w.receives("n2", slow), frozenset({("n2", "receives")})),
        Slowed(
            "n4 is slow both ways", _both("n4", slow), frozenset({("n4", "sends"), ("n4", "receives")})
        ),
    )  # fmt: skip


def _both(node: str, rate: float) -> Callable[[Wires], None]:
    def slow(wires: Wires) -> None:
        wires.sends(node, rate)
        wires.receives(node, rate)

    return slow


def _tried(report: Report, one: Slowed, engine: WorkEngine) -> None:
    gloo = engine == "gloo"
    work = PairWork(
        engine, 1, GLOO_SIZE if gloo else SIZE, seconds=LIMIT, patience=LIMIT / 2, environment=POSED
    )
    fleet = PairFleet(tuple(PairMember(name) for name in NODES))
    with tempfile.TemporaryDirectory(prefix="wirewatch-pairs-") as folder:
        view = TimedCampaign(Path(folder) / "rounds.json")
        with Wires(NODES, GLOO_RATE if gloo else RATE) as wires:
            one.slow(wires)
            posing = Posing(wires, Path(folder))
            made = rounds_document(time.time(), fleet, ())
            made = run_rounds(posing, made, CampaignOptions(work, LIMIT, LIMIT), view)
    judge(report, one, made, view.rounds, "gloo" if gloo else "NET/Socket")


def judge(
    report: Report, one: Slowed, made: RoundsDocument, seconds: Sequence[float], transport: str
) -> None:
    """Whether what is slowed is named and nothing else, in time, and by the wires that were slowed."""
    found = PAIRS.dump_python(pairs_document(made), mode="json")
    runs = [run for each in ROUNDS.dump_python(made, mode="json")["rounds"] for run in each["runs"]]
    report.note(**{one.title: {"rounds": list(seconds), "result": found, "runs": runs}})
    good, words = judged(one, found)
    # Of no answer nobody is named either.
    report.check(one.title, ok=good and found["answered"] == found["runs"] > 0, told=words)
    report.check(
        f"{one.title}: each round takes {ROUND:g} s at most",
        ok=0 < max(seconds, default=0.0) <= ROUND,
        told=", ".join(f"{each:.1f} s" for each in seconds),
    )
    seen = {end["transport"] for run in runs for end in run["ends"].values()}
    report.check(f"{one.title}: all data goes by {transport}", ok=seen == {transport}, told=str(sorted(seen)))


@dataclass
class TimedCampaign(ShownCampaign):
    """Keeps the seconds of each round too."""

    rounds: list[float] = field(default_factory=list)

    def measured(self, measured: MeasuredRound) -> None:
        self.rounds.append(self.mono() - self._since)
        super().measured(measured)


class Posing:
    """A `RoundEngine` of processes, each in the network namespace of the node that it poses as."""

    def __init__(self, wires: Wires, folder: Path) -> None:
        self._wires, self._folder = wires, folder
        self._pairs: dict[tuple[str, str], list[tuple[subprocess.Popen[bytes], Path]]] = {}

    def members(self) -> Sequence[PairNode]:
        return [PairNode(name, gpus=1, address=self._wires.address(name)) for name in NODES]

    def start(self, order: RoundOrder) -> None:
        for first, second in order.pairs:
            plan = pair_plan(first, second, f"{self._wires.address(first)}:{PORT}", order.work)
            ends = [self._end(encode_pair_plan(plan), name) for name in (first, second)]
            self._pairs[first, second] = ends

    def _end(self, plan: str, name: str) -> "tuple[subprocess.Popen[bytes], Path]":
        said = self._folder / name
        position = str(NODES.index(name))
        command = (*self._wires.within(name), sys.executable, "-m", "proof.hardware.jobs.pairend")
        with said.open("wb") as out:
            process = subprocess.Popen(
                [*command, plan, name, position], stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, env={**os.environ, "NCCL_HOSTID": name},
            )  # fmt: skip
        return process, said

    def poll(self) -> Sequence[PairProgress]:
        found = []
        for pair, ends in self._pairs.items():
            running = any(process.poll() is None for process, _ in ends)
            said = "" if running else "\n".join(file.read_text("utf-8", "replace") for _, file in ends)
            found.append(PairProgress(*pair, PairState.RUNNING if running else PairState.DONE, said))
        return found

    def cancel(self) -> None:
        for ends in self._pairs.values():
            for process, _ in ends:
                process.kill()
                process.wait()
        self._pairs.clear()

    def describe(self, _order: RoundOrder) -> Sequence[str]:
        return ()
