"""tap: what the tap shows of running jobs beside nccl-tests, who is late, which wire is slow, and its cost.

Some eight minutes of two GPUs; --trials for other pairs than five, --kinds for pieces. Compiles with cc.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Protocol

from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, chosen
from proof.hardware.nccltests import NcclTests
from proof.hardware.probing import probing
from wirewatch.busbw.formulas import busbw
from wirewatch.core.jobs import RingReading
from wirewatch.core.probe import MIB, OPS
from wirewatch.core.types import Absent
from wirewatch.jobs.tap.rings import FileRings

SIZES = (64 * MIB, 256 * MIB)
LIMITS: Mapping[int, float] = {64 * MIB: 0.10, 256 * MIB: 0.03}
PAIRS = 5
ALWAYS = {"WIREWATCH_TAP_BUDGET": "1000000"}
READY = 120.0
TMPFS = "/dev/shm"
"""The tap writes on a tmpfs alone."""
SLOWER: Mapping[str, float] = {"data_parallel": 0.005, "decode": 0.01}
"""By how much the median step of a job may grow."""
WIRES: Mapping[str, Mapping[str, str]] = {
    "P2P off": {"NCCL_P2P_DISABLE": "1"}, "Tree": {"NCCL_ALGO": "Tree"}, "LL": {"NCCL_PROTO": "LL"},
}  # fmt: skip
HOWS = ("more", "same")
KINDS = ("rates", "late", "wires", "graphs", "cost")
Key = tuple[str, int]
"""Op and bytes."""


@dataclass(frozen=True)
class Joined:
    """One collective that all ranks timed; `seconds` by rank."""

    key: Key
    seconds: Mapping[int, float]
    names: str

    @property
    def wire(self) -> float:
        return min(self.seconds.values())

    @property
    def late(self) -> int:
        return min(self.seconds, key=lambda rank: self.seconds[rank])


class Polled(Protocol):
    """Whatever shows what jobs have timed since the last time."""

    def poll(self) -> tuple[RingReading, ...]: ...


class Taps:
    """The library, built here, and the rings in a folder of TMPFS; `follow`: they are read all the time."""

    percent = 10
    """How much slower a rank is that must be named."""

    def __init__(self, folder: Path, *, follow: bool = True) -> None:
        self.library, self.rings = Path("build/tap/libwirewatch-tap.so").resolve(), folder / "rings"
        self.rings.mkdir()
        done = subprocess.run(["make", "-s", "tap"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise KitError(f"make tap: {done.stderr}")
        self._reader = FileRings(self.rings)
        self._seen: dict[str, int] = {}
        self._found: dict[str, RingReading] = {}
        self._turn = threading.Lock()
        self._over = threading.Event()
        if follow:
            threading.Thread(target=self._follow, daemon=True).start()

    @property
    def config(self) -> str:
        """Return the line for the agent, below `[jobs]`."""
        return f'rings = "{self.rings}"'

    def close(self) -> None:
        """No more is read."""
        with self._turn:
            self._over.set()

    def _follow(self) -> None:
        """A ring is gone with its communicator: what it holds is read while it is there."""
        while not self._over.wait(0.05):
            with self._turn:
                if not self._over.is_set():
                    self._read()

    def settings(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "NCCL_PROFILER_PLUGIN": str(self.library), "WIREWATCH_TAP_DIR": str(self.rings), **(more or {}),
        }  # fmt: skip

    def poll(self) -> tuple[RingReading, ...]:
        """What is new since the last time, of rings that are live or ended since."""
        with self._turn:
            self._read()
            found, self._found = tuple(self._found.values()), {}
        return found

    def _read(self) -> None:
        reading = self._reader.poll(self._seen)
        if isinstance(reading, Absent):
            raise KitError(f"rings: {reading}")
        for one in reading.rings:
            name, before = one.ring.name, self._found.get(one.ring.name)
            if one.calls:
                self._seen[name] = one.calls[-1].number
            calls = one.calls if before is None else (*before.calls, *one.calls)
            missed = one.missed + (0 if before is None else before.missed)
            self._found[name] = replace(one, calls=calls, missed=missed)


def join(readings: Sequence[RingReading]) -> list[Joined]:
    """The collectives that every rank of a communicator timed."""
    held: dict[tuple[int, str, int, int], dict[int, float]] = defaultdict(dict)
    names: dict[tuple[int, str, int, int], str] = {}
    ranks: dict[int, int] = {}
    for reading in readings:
        ring = reading.ring
        ranks[ring.communicator] = ring.ranks
        for call in reading.calls:
            if call.size_bytes is not None:
                key = (ring.communicator, call.op, call.size_bytes, call.sequence)
                held[key][ring.rank] = call.seconds
                names[key] = f"{call.algorithm} {call.protocol} {call.channels}"
    return [
        Joined((op, size), seconds, names[communicator, op, size, sequence])
        for (communicator, op, size, sequence), seconds in held.items()
        if len(seconds) == ranks[communicator]
    ]


def by_key(joined: Sequence[Joined]) -> dict[Key, list[Joined]]:
    found: dict[Key, list[Joined]] = defaultdict(list)
    for one in joined:
        found[one.key].append(one)
    return found


def run(report: Report, options: argparse.Namespace) -> None:
    with (
        probing(report) as here,
        tempfile.TemporaryDirectory(prefix="wirewatch-tap-", dir=TMPFS) as folder,
        closing(Taps(Path(folder))) as taps,
    ):
        gpus = len(here.gpus)
        pieces = {
            "rates": lambda: _rates(report, taps, options.nccl_tests, gpus),
            "late": lambda: report.attempt("late ranks", lambda: _late(report, taps, gpus)),
            "wires": lambda: _wires(report, taps, gpus),
            "graphs": lambda: report.attempt("graphs", lambda: _graphs(report, taps)),
            "cost": lambda: report.attempt("cost", lambda: _cost(report, taps, options.trials or PAIRS)),
        }
        for kind in chosen(options.kinds, KINDS):
            pieces[kind]()


def _rates(report: Report, taps: Taps, folder: Path, gpus: int) -> None:
    """What series of collectives get, by nccl-tests and by the tap."""
    theirs: dict[Key, float] = {}
    report.attempt("nccl-tests", lambda: theirs.update(asked(report, NcclTests(folder, gpus))))
    report.attempt("nccl-tests with the tap", lambda: _own(report, taps, folder, theirs, gpus))
    report.attempt("series", partial(_shape, report, taps, "series", theirs, gpus))


def _wires(report: Report, taps: Taps, gpus: int) -> None:
    """Jobs on slow wires, and jobs that overlap collectives with other work."""
    for what, settings in WIRES.items():
        report.attempt(what, partial(_wire, report, taps, what, settings, gpus))
    for shape in ("ddp", "fsdp"):
        report.attempt(shape, partial(_overlapped, report, taps, shape, gpus))


def asked(report: Report, oracle: NcclTests) -> dict[Key, float]:
    """Seconds an operation by nccl-tests, in place."""
    found: dict[Key, float] = {}
    for op in OPS:
        table = oracle.sizes(op, *SIZES)
        found |= {(op, size): table.row(size).in_place.seconds for size in SIZES}
    report.note(nccl_tests=oracle.ran)
    return found


def _own(report: Report, taps: Taps, folder: Path, theirs: Mapping[Key, float], gpus: int) -> None:
    """nccl-tests itself under the tap: what its kernels take beside what it prints."""
    kept = dict(os.environ)
    os.environ |= taps.settings(ALWAYS)
    try:
        inside = asked(report, NcclTests(folder, gpus))
    finally:
        os.environ.clear()
        os.environ |= kept
    rows = []
    for key, found in sorted(by_key(join(taps.poll())).items()):
        if key in theirs:
            rows.append(_row(key, [one.wire for one in found], theirs[key], gpus, inside[key]))
    report.table("nccl-tests under the tap", [*HEADER, "printed with the tap us"], rows)


HEADER = ("op", "bytes", "n", "nccl-tests us", "tap us", "more us", "GB/s", "off")


def _row(key: Key, wires: Sequence[float], theirs: float, gpus: int, *more: float) -> list[object]:
    op, size = key
    middle = median(wires)
    return [
        op, size, len(wires), 1e6 * theirs, 1e6 * middle, 1e6 * (middle - theirs),
        busbw(op, gpus, size, middle) / 1e9, f"{100 * (theirs / middle - 1):+.1f} %",
        *(1e6 * one for one in more),
    ]  # fmt: skip


@contextmanager
def running(taps: Taps, shape: str, more: Mapping[str, str] | None = None) -> Iterator[Job]:
    """The job, warm, with nothing unread."""
    with Job("shapes", shape, settings=taps.settings(more)) as job:
        job.wait("READY", READY)
        taps.poll()
        yield job
        job.must_run()


def _shape(report: Report, taps: Taps, shape: str, theirs: Mapping[Key, float], gpus: int) -> None:
    for what, more, seconds in (("always", ALWAYS, 3.0), ("sampled", {}, 8.0)):
        with running(taps, shape, more):
            time.sleep(seconds)
            readings = taps.poll()
        compare_sizes(report, f"{shape}, {what}", by_key(join(readings)), theirs, gpus)
        counts = [
            {"rank": r.ring.rank, "counts": str(r.ring.counts), "missed": r.missed, "gpu": str(r.ring.gpu)}
            for r in readings
        ]
        report.note(**{f"{shape}_{what}_rings": counts})


def compare_sizes(
    report: Report, what: str, timed: Mapping[Key, Sequence[Joined]], theirs: Mapping[Key, float], gpus: int
) -> None:
    """Hold each op and size against nccl-tests; a size that was not timed is a limit that fails."""
    rows, offs = [], {}
    for key, found in sorted(timed.items()):
        if key in theirs:
            wires = [one.wire for one in found]
            rows.append(_row(key, wires, theirs[key], gpus, min(wires)))
            offs[key] = theirs[key] / median(wires) - 1
    report.table(what, [*HEADER, "least us"], rows)
    for size, limit in LIMITS.items():
        worst = max((abs(off) for key, off in offs.items() if key[1] == size), default=None)
        told = "nothing timed" if worst is None else f"{100 * worst:.1f} %"
        name = f"{what}: {size // MIB} MiB within {100 * limit:g} % of nccl-tests"
        report.check(name, ok=worst is not None and worst <= limit, told=told)


def _late(report: Report, taps: Taps, gpus: int) -> None:
    rows = []
    with running(taps, "data_parallel") as job:
        time.sleep(4)
        rows.append(["healthy", *votes(taps)])
        for how in HOWS:
            for gpu in range(gpus):
                job.send(f"slow {gpu} 10 {how}")
                time.sleep(1)
                taps.poll()
                time.sleep(6)
                row = votes(taps)
                rows.append([f"{how} on {gpu}", *row])
                named = next(iter(row[1].most_common(1)), (None, 0))[0]
                report.check(f"late rank, 10 % {how} on {gpu}", ok=named == gpu, told=str(row))
                job.send("healthy")
                time.sleep(1)
                taps.poll()
    report.table("late ranks", ["what", "timed", "votes", "wire us", "by rank us"], rows)


def votes(taps: Polled) -> tuple[int, Counter[int], float, str]:
    joined = [one for one in join(taps.poll()) if one.key[1] > MIB]
    late = Counter(one.late for one in joined)
    ranks = {rank for one in joined for rank in one.seconds}
    each = {rank: round(1e6 * median(one.seconds[rank] for one in joined)) for rank in sorted(ranks)}
    return len(joined), late, 1e6 * median([one.wire for one in joined] or [0.0]), str(each)


def _wire(report: Report, taps: Taps, what: str, settings: Mapping[str, str], gpus: int) -> None:
    with running(taps, "data_parallel", settings):
        time.sleep(6)
        joined = [one for one in join(taps.poll()) if one.key[1] == 256 * MIB]
    votes, names = Counter(one.late for one in joined), Counter(one.names for one in joined)
    rate = busbw("all_reduce", gpus, 256 * MIB, median(one.wire for one in joined)) / 1e9 if joined else 0.0
    told = f"{len(joined)} timed, {rate:.1f} GB/s, late {dict(votes)}, {dict(names)}"
    report.check(f"{what}: timed", ok=len(joined) > 0, told=told)


def _overlapped(report: Report, taps: Taps, shape: str, gpus: int) -> None:
    with running(taps, shape):
        time.sleep(8)
        found = by_key(join(taps.poll()))
    rows = []
    for (op, size), joined in sorted(found.items()):
        votes = Counter(one.late for one in joined)
        middle = median(one.wire for one in joined)
        each = [median(one.seconds[rank] for one in joined) * 1e6 for rank in range(gpus)]
        rows.append(
            [op, size, len(joined), 1e6 * middle, busbw(op, gpus, size, middle) / 1e9, dict(votes), each]
        )
    report.table(shape, ["op", "bytes", "n", "wire us", "GB/s", "late", "by rank us"], rows)
    report.check(f"{shape}: timed", ok=bool(rows), told=f"{len(rows)} kinds")


def _graphs(report: Report, taps: Taps) -> None:
    """A job that captures its graph at a moment of timing, since there is no other: it must end."""
    with Job("costs", settings=taps.settings(ALWAYS)) as job:
        job.wait("DONE", READY)
    counts = [one.ring.counts for one in taps.poll()]
    told = f"{sum(one.captured for one in counts)} calls captured, {sum(one.written for one in counts)} timed"
    good = bool(counts) and all(one.captured and one.written for one in counts)
    report.check("a graph captured at a moment of timing: the job ends", ok=good, told=told)


def cost(
    report: Report,
    taps: Taps,
    pairs: int,
    settings: Mapping[str, str] | None = None,
    what: str = "step, ms",
    shapes: Sequence[str] = (),
) -> dict[str, float]:
    """Compare the median step of each job in turns without and with the tap: the share that it grows by."""
    taken: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for pair in range(pairs):
        for watched in (False, True) if pair % 2 == 0 else (True, False):
            variables = taps.settings(settings) if watched else {"NCCL_PROFILER_PLUGIN": "none"}
            with Job("costs", *shapes, settings=variables) as job:
                job.wait("DONE", READY)
                for line in job.lines():
                    if line.startswith("TIMED "):
                        one = json.loads(line.removeprefix("TIMED "))
                        taken[one["shape"], watched].append(one["median"])
                        report.progress(f"pair {pair + 1}, {'with' if watched else 'without'}: {line}")
    rows, found = [], {}
    for shape in sorted({shape for shape, _ in taken}):
        off, on = taken[shape, False], taken[shape, True]
        found[shape] = median(b / a - 1 for a, b in zip(off, on, strict=True))
        rows.append(
            [shape, 1e3 * median(off), 1e3 * median(on), f"{100 * found[shape]:+.2f} %", str(off), str(on)]
        )
    report.table(what, ["job", "without", "with", "slower", "without, s", "with, s"], rows)
    return found


def _cost(report: Report, taps: Taps, pairs: int) -> None:
    """The limits of what the tap may cost by default."""
    for shape, slower in cost(report, taps, pairs).items():
        if shape in SLOWER:
            name = f"{shape}: the median step grows by at most {100 * SLOWER[shape]:g} %"
            report.check(name, ok=slower <= SLOWER[shape], told=f"{100 * slower:+.2f} %")
    captured = [one.ring.counts.captured for one in taps.poll()]
    report.note(captured=captured, python=sys.version)
