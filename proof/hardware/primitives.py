"""primitives: all nine by every engine beside nccl-tests, in every element type and form, right by value.

Some four minutes of two GPUs, and six at most: what hangs or fails is asked for once and not again.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from proof.hardware.comparing import compare, percent
from proof.hardware.kit import KitError, Report
from proof.hardware.nccltests import ITERATIONS, WARMUP, NcclTests
from proof.hardware.probing import Probing, probing
from wirewatch.busbw.formulas import busbw
from wirewatch.core.probe import (
    ALL_REDUCE,
    ALLTOALL,
    BROADCAST,
    DTYPES,
    GATHER,
    KIB,
    MIB,
    OPS,
    PRIMITIVES,
    REDUCE,
    SCATTER,
    SENDRECV,
    Case,
    Launch,
    Probed,
    Timed,
)

ROUNDS = 3
SIZE, SMALL = 256 * MIB, 16 * MIB
WITHIN = 0.03
ORACLE = "nccl-tests"
OFFERED: Mapping[str, Collection[str]] = {
    "nccl": PRIMITIVES, "torch": (*OPS, BROADCAST, REDUCE), "distributed": PRIMITIVES,
}  # fmt: skip
"""What each engine has in place."""
COPIED = frozenset({GATHER, SCATTER})
"""torch.distributed copies the root's own share in the same stream: its time is shown, and has no limit."""
OUT_OF_PLACE = frozenset({ALLTOALL, SENDRECV})
NOTHING_ELSE: Mapping[str, Any] = {
    "ops": (), "latency_sizes": (), "bandwidth": (), "copy_bytes": 0, "micro": False, "warmup": WARMUP,
}  # fmt: skip
TOO_LARGE = 1 << 44
SECONDS = 360.0
"""Of all of it."""
FIRST, DEADLINE = 150.0, 40.0
"""Seconds of the first probe of an engine, with its libraries read from a cold disk, and of any other."""

Rates = dict[str, dict[str, list[float]]]
"""Bus bandwidths in bytes per second by witness and primitive."""


@dataclass
class Asked:
    """Probes of this machine, and all that they have measured; `end`: when all is over, monotonic seconds.

    `broken`: engines and primitives that are not asked for again. `begun`: engines that were asked.
    """

    here: Probing
    end: float = float("inf")
    timed: list[tuple[str, Timed]] = field(default_factory=list)
    broken: set[tuple[str, str]] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)

    def ask(self, what: str, engine: str, cases: Sequence[Case], **plan: Any) -> list[Timed]:
        """What probes measure of these cases; where one breaks off, another goes on behind that case.

        That it breaks off is a limit that fails. What hangs is not asked for again, nor is an engine that
        does not start, hangs at once, or fails at its first two cases: that takes long and says nothing new.

        Raises:
            KitError: the time of the part is over.
        """
        found: list[Timed] = []
        failed = 0
        left = [case for case in cases if (engine, case.op) not in self.broken]
        while left:
            more, probed = self.probe(what, engine, left, **plan)
            found += more
            self.timed += [(what, one) for one in more]
            if probed.outcome == "ok":
                break
            at_fault, *left = left[len(more) :] or left[-1:]
            told = f"{at_fault.op} of {at_fault.size_bytes} B: {probed.outcome}: {probed.why}"
            self.here.report.check(f"{what}: the probe came to its end", ok=False, told=told)
            failed += 1
            hangs = probed.outcome == "timeout"
            if probed.outcome in {"no_engine", "stuck"} or (not more and hangs) or (not found and failed > 1):
                self.broken |= {(engine, op) for op in OFFERED[engine]}
            elif hangs:
                self.broken.add((engine, at_fault.op))
            left = [case for case in left if (engine, case.op) not in self.broken]
        return found

    def probe(self, what: str, engine: str, cases: Sequence[Case], **plan: Any) -> tuple[list[Timed], Probed]:
        """One probe, and what it has measured by its end, however it ended.

        Raises:
            KitError: the time of the part is over.
        """
        seconds = self.end - time.monotonic()
        if seconds <= 0:
            raise KitError(f"{what}: the {SECONDS:g} s of the part are over")
        heard: list[Timed] = []
        wanted = {**NOTHING_ELSE, **plan, "cases": tuple(cases)}
        deadline = min(DEADLINE if engine in self.begun else FIRST, max(1.0, seconds))
        self.begun.add(engine)
        return heard, self.here.run(what, engine=engine, deadline=deadline, heard=heard.append, **wanted)

    def whole(self, what: str, found: Iterable[Timed], ops: Collection[str], launch: Launch) -> None:
        """Judge that all of it was measured, launched so, and right."""
        found = list(found)
        missing = set(ops) - {one.op for one in found}
        wrong = {f"{one.op} of {one.size_bytes} B": one.wrong for one in found if one.wrong}
        other = {one.op for one in found if one.launch != launch}
        told = (
            f"{len(found)} measured; missing {sorted(missing)}, wrong {wrong}, else launched {sorted(other)}"
        )
        self.here.report.check(
            f"{what}: every value right",
            ok=bool(found) and not missing and not wrong and not other,
            told=told,
        )


@dataclass
class Oracle:
    """nccl-tests: a program for each primitive, of which any may be missing."""

    here: Probing
    folder: Path | None

    def busbw(self, op: str, *more: str) -> float:
        """Bus bandwidth, in place where nccl-tests has that; raises KitError when there is none."""
        program = NcclTests(self.folder, len(self.here.gpus), (op,))
        row = program.sizes(op, SIZE, more=more).row(SIZE)
        self.here.report.data["nccl_tests"] += program.ran
        return (row.out_of_place if op in OUT_OF_PLACE else row.in_place).busbw


def run(report: Report, options: argparse.Namespace) -> None:
    with probing(report) as here:
        report.note(gpus=[gpu.uuid for gpu in here.gpus], nccl_tests=[])
        asked, oracle = Asked(here, time.monotonic() + SECONDS), Oracle(here, options.nccl_tests)
        for name, work in (
            ("the comparison with nccl-tests", partial(parity, asked, oracle)),
            ("the element types", partial(types, asked)),
            ("the graphs", partial(graphs, asked)),
            ("the registered buffers", partial(registered, asked, oracle)),
            ("the sizes without room", partial(without_room, asked)),
        ):
            report.attempt(name, work)


def every(
    ops: Collection[str], size: int = SIZE, launch: Launch = "stream", runs: int = ITERATIONS
) -> list[Case]:
    """A case for each primitive, on all GPUs."""
    return [Case(0, op, size, launch, runs) for op in PRIMITIVES if op in ops]


def parity(asked: Asked, oracle: Oracle) -> None:
    """Rounds in which nccl-tests and the engines take turns, so that a slow drift favours none."""
    report, found = asked.here.report, defaultdict[str, dict[str, list[float]]](lambda: defaultdict(list))
    turns: dict[str, Callable[[int], None]] = {
        ORACLE: lambda _: _ask_oracle(report, oracle, found[ORACLE]),
        **{engine: partial(_ask_engine, asked, engine, found[engine]) for engine in OFFERED},
    }
    names = list(turns)
    for number in range(ROUNDS):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            report.progress(f"parity: round {number + 1} of {ROUNDS}, {name}")
            report.attempt(f"round {number + 1} by {name}", partial(turns[name], number))
    for engine, ops in OFFERED.items():
        judge(report, engine, ops, found)


def _ask_oracle(report: Report, oracle: Oracle, into: dict[str, list[float]]) -> None:
    for op in PRIMITIVES:
        try:
            into[op].append(oracle.busbw(op))
        except KitError as error:
            report.check(f"nccl-tests' {op}", ok=False, told=str(error))


def _ask_engine(asked: Asked, engine: str, into: dict[str, list[float]], number: int) -> None:
    what = f"{engine}, round {number + 1}"
    found = asked.ask(what, engine, every(OFFERED[engine]))
    asked.whole(what, found, OFFERED[engine], "stream")
    for one in found:
        into[one.op].append(busbw(one.op, len(asked.here.gpus), one.size_bytes, one.seconds))


def judge(
    report: Report, engine: str, ops: Collection[str], found: Mapping[str, Mapping[str, list[float]]]
) -> None:
    """Medians beside nccl-tests', primitive by primitive."""
    compared = compare(found[ORACLE], found[engine])
    limited = {op for op in ops if not (engine == "distributed" and op in COPIED)}
    rows = [
        [op, one.theirs / 1e9, one.ours / 1e9, percent(one.off), f"{100 * one.spread:.2f} %", op in limited]
        for op, one in compared.items()
    ]
    header = ["primitive", "nccl-tests, GB/s", "worker, GB/s", "off", "spread", "limited"]
    report.table(f"bus bandwidth of {SIZE // MIB} MiB by engine {engine}, medians of {ROUNDS}", header, rows)
    report.note(**{f"parity_{engine}": {op: list(values) for op, values in found[engine].items()}})
    report.note(parity_oracle={op: list(values) for op, values in found[ORACLE].items()})
    far = {op: percent(one.off) for op, one in compared.items() if op in limited and abs(one.off) > WITHIN}
    missing = sorted(set(ops) - set(compared))
    report.check(
        f"engine {engine} within {100 * WITHIN:g} % of nccl-tests in all it has",
        ok=not far and not missing, told=f"farther {far}, not compared {missing}",
    )  # fmt: skip


def types(asked: Asked) -> None:
    """Every element type in place, three of them out of it; two by the engine with a process a GPU, too."""
    for dtype in DTYPES:
        found = asked.ask(f"nccl, {dtype}", "nccl", every(PRIMITIVES, SMALL, runs=5), dtype=dtype)
        asked.whole(f"nccl, {dtype}", found, PRIMITIVES, "stream")
    for dtype in ("float32", "bfloat16", "int8"):
        what = f"nccl, {dtype}, out of place"
        found = asked.ask(what, "nccl", every(PRIMITIVES, SMALL, runs=5), dtype=dtype, in_place=False)
        asked.whole(what, found, PRIMITIVES, "stream")
    for engine, dtype in (("distributed", "bfloat16"), ("distributed", "int8"), ("torch", "float16")):
        what = f"{engine}, {dtype}"
        found = asked.ask(what, engine, every(OFFERED[engine], SMALL, runs=5), dtype=dtype)
        asked.whole(what, found, OFFERED[engine], "stream")


def graphs(asked: Asked) -> None:
    """Small and large messages as CUDA graphs."""
    sizes = (8, 1000, 64 * KIB, SIZE)
    cases = [case for size in sizes for case in every(PRIMITIVES, size, "graph", 10)]
    found = asked.ask("nccl, graphs", "nccl", cases)
    asked.whole("nccl, graphs", found, PRIMITIVES, "graph")
    rows = [[one.op, one.size_bytes, 1e6 * one.seconds] for one in found]
    asked.here.report.table("CUDA graphs by engine nccl", ["primitive", "bytes", "us"], rows)
    ok = len(found) == len(cases)
    asked.here.report.check("every size as a graph", ok=ok, told=f"{len(found)} of {len(cases)}")


def registered(asked: Asked, oracle: Oracle) -> None:
    """Buffers of ncclMemAlloc, registered with their communicator; all_reduce beside nccl-tests -R 1."""
    what = "nccl, registered"
    found = asked.ask(what, "nccl", every(PRIMITIVES), registered=True)
    asked.whole(what, found, PRIMITIVES, "stream")
    theirs = oracle.busbw(ALL_REDUCE, "-R", "1")
    mine = [busbw(one.op, len(asked.here.gpus), SIZE, one.seconds) for one in found if one.op == ALL_REDUCE]
    off = mine[0] / theirs - 1 if mine else float("inf")
    asked.here.report.check(
        f"all_reduce with registered buffers within {100 * WITHIN:g} % of nccl-tests -R 1",
        ok=abs(off) <= WITHIN, told=f"{percent(off)} of {theirs / 1e9:.1f} GB/s",
    )  # fmt: skip
    for engine in ("torch", "distributed"):
        _, probed = asked.probe(f"{engine}, registered", engine, (), registered=True)
        ok = probed.outcome == "no_engine" and "cannot register" in probed.why
        asked.here.report.check(f"{engine} says that it cannot register buffers", ok=ok, told=probed.why)


def without_room(asked: Asked) -> None:
    """A message that no GPU can hold is named; the worker does not crash."""
    for engine in OFFERED:
        _, probed = asked.probe(f"{engine}, no room", engine, every((ALL_REDUCE,), TOO_LARGE))
        ok = probed.outcome == "out_of_memory" and f"{ALL_REDUCE} of {TOO_LARGE} bytes" in probed.why
        asked.here.report.check(
            f"{engine} names the size without room",
            ok=ok,
            told=f"{probed.outcome}: {probed.why}",
        )
