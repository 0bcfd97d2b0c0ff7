"""Times of collectives on machines of every kind, as a table: what the model of NCCL makes of what is known.

`make generated` writes it to timetable.txt; read the difference before committing it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from tests.support import EPOCH
from wirewatch.core.probe import MIB
from wirewatch.core.types import Absent
from wirewatch_lab.advice.described import described
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.times.estimate import LAUNCHES, CollectiveTimes, Estimate, Ranks
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study

HERE = Path(__file__).with_name("timetable.txt")
KIB, GIB = 1 << 10, 1 << 30
OPS = ("all_reduce", "all_gather", "broadcast", "alltoall", "sendrecv")
SIZES = (8, 4 * KIB, 64 * KIB, 256 * KIB, 2 * MIB, 16 * MIB, 256 * MIB, 8 * GIB)
SHOWN = 64
"""Characters of a source or remark."""
NO_NVLS = {"NCCL_NVLS_ENABLE": "0"}


def curve(
    times: Mapping[int, float], ranks: int, launch: str = "eager", op: str = "all_reduce", **how: object
) -> Curve:
    """Microseconds by size, of one repeat."""
    points = tuple(CurvePoint(size, (us * 1e-6,)) for size, us in times.items())
    return Curve(op, Configuration(ranks, launch=launch, **how), points)  # type: ignore[arg-type]


def study(*curves: Curve, **environment: str) -> Study:
    return Study(EPOCH, "a sweep", environment, curves)


EAGER = {8: 24.0, 4 * KIB: 24.5, 64 * KIB: 26.0, 2 * MIB: 60.0, 64 * MIB: 420.0}
GRAPH = {8: 12.0, 64 * KIB: 15.0, 2 * MIB: 45.0, 256 * MIB: 1400.0}
SLOW = {8: 900.0, 64 * KIB: 950.0, MIB: 980.0}
MEASURED: Mapping[str, tuple[str, Sequence[Study]]] = {
    "launched by nccl-tests": ("4xH100", (study(curve(EAGER, 4), engine="nccl-tests"),)),
    "launched by our worker": ("4xH100", (study(curve(EAGER, 4), engine="nccl"),)),
    "a process for each GPU": ("4xH100", (study(curve(EAGER, 4), engine="distributed"),)),
    "in graphs": ("4xH200", (study(curve(GRAPH, 4, "graph"), engine="nccl"),)),
    "in graphs of two": ("8xH200", (study(curve(GRAPH, 2, "graph"), curve(EAGER, 2), engine="nccl"),)),
    "both": ("4xH200", (study(curve(GRAPH, 4, "graph"), curve(EAGER, 4), engine="nccl"),)),
    "on a slow host": ("4xL40S", (study(curve(SLOW, 4), engine="distributed"),)),
    "large alone": ("4xA100", (study(curve({16 * MIB: 200.0, GIB: 7000.0}, 4)),)),
    "with a setting": ("4xH100", (study(curve(EAGER, 4, settings=(("NCCL_X", "1"),))),)),
    "of processors": ("4xH100", (study(curve(EAGER, 4), engine="gloo"),)),
    "registered": ("4xH100", (study(curve(EAGER, 4, registered=True)),)),
    "by Tree": ("4xH100", (study(curve(EAGER, 4, algorithm="Tree")),)),
    "of nothing that is a time": ("4xH100", (study(curve({8: 0.0, 64: 1e13}, 4)),)),
    "over hosts": ("8xH100+8xNDR", (study(curve({MIB: 99.0, 64 * MIB: 900.0}, 16), hosts="2"),)),
}
DESCRIBED = (
    ("8xH100+8xNDR", (2, 4, 8)), ("4xH200", (2, 3, 4)), ("8xA100+4xHDR", (2, 8)), ("8xV100", (4, 8)),
    ("4xL40S", (2, 4)), ("72xGB200", (8, 72)), ("2xH100 NVL", (2,)), ("4xRTX 4090", (2, 4)),
)  # fmt: skip


def machines() -> Iterator[tuple[str, AdvisedMachine, Sequence[Ranks], Sequence[str]]]:
    """Yield each with its name, numbers of ranks and operations."""
    for text, ranks in DESCRIBED:
        machine = described(text)
        yield text, machine, [Ranks(n) for n in ranks], OPS
        quiet = tuple(replace(one, settings=NO_NVLS) for one in machine.conditions)
        yield f"{text}, no NVLS", replace(machine, conditions=quiet), [Ranks(ranks[-1])], OPS[:2]
    ports = [Ranks(4, 2), Ranks(16, 2), Ranks(16, 8), Ranks(24, 3), Ranks(2, 2)]
    yield "between nodes", described("8xH100+8xNDR"), ports, OPS
    for name, (text, studies) in MEASURED.items():
        machine = replace(described(text), measured=tuple(studies))
        spans = (Ranks(2), Ranks(4)) if name != "over hosts" else (Ranks(16, 2),)
        yield name, machine, spans, OPS[:1]


def block(name: str) -> str:
    """Return the lines of one machine."""
    found = {one: (machine, spans, ops) for one, machine, spans, ops in machines()}
    return "".join(_lines(*found[name]))


def _lines(machine: AdvisedMachine, spans: Sequence[Ranks], ops: Sequence[str]) -> Iterator[str]:
    times = CollectiveTimes(machine)
    for span, op, launch, alone in product(spans, ops, LAUNCHES, (False, True)):
        if alone and op != ops[0]:
            continue
        found = [times.estimate(op, span, size, launch, one_process=alone) for size in SIZES]
        how = f"{op} {span.ranks}/{span.domains} {launch}{' by one process' if alone else ''}"
        yield f"{how}: {' '.join(_us(one) for one in found)}\n"
        said = dict.fromkeys(_words(one) for one in found)
        yield from (f"  {words}\n" for words in said)


def _us(one: Estimate | Absent) -> str:
    return "-" if isinstance(one, Absent) else f"{one.seconds * 1e6:.4g}"


def _words(one: Estimate | Absent) -> str:
    if isinstance(one, Absent):
        return one.detail
    how = (one.taken, one.basis.value, one.confidence.value, f"{one.within:.3g}")
    parts = (*how, one.source, *one.remarks)
    return "; ".join(part[:SHOWN] for part in parts)


def text() -> str:
    """The whole table."""
    return "".join(f"# {name}\n{block(name)}" for name, *_ in machines())
