"""Runs of nccl-tests in any printed form: devices, rows, and derived values.

Sources: nccl-tests 1.0 to 2.19, src/common.cu, src/util.cu and doc/PERFORMANCE.md.
"""

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from wirewatch.busbw.formulas import FACTORS, factor
from wirewatch.core import probe
from wirewatch.core.types import whole
from wirewatch_lab.study.curve import Settings

NOT_RECOMPUTED = frozenset({"hypercube", "alltoallv"})
"""Tests of nccl-tests whose bandwidths cannot be computed from size, time and ranks."""
KNOWN_TESTS = frozenset(FACTORS) | NOT_RECOMPUTED
TYPES: Mapping[str, tuple[str, int]] = {
    "int8": ("int8", 1), "char": ("int8", 1), "uint8": ("uint8", 1), "int32": ("int32", 4),
    "int": ("int32", 4), "uint32": ("uint32", 4), "int64": ("int64", 8), "uint64": ("uint64", 8),
    "half": ("float16", 2), "float": ("float32", 4), "double": ("float64", 8), "bfloat16": ("bfloat16", 2),
    "f8e4m3": ("float8_e4m3", 1), "f8e5m2": ("float8_e5m2", 1), "fp8_e4m3": ("float8_e4m3", 1),
    "fp8_e5m2": ("float8_e5m2", 1),
}  # fmt: skip
"""Element types by nccl-tests' names: our name, and bytes."""
REDUCTIONS = frozenset({"", "none", "sum", "prod", "max", "min", "avg", "mulsum"})
NAMELESS = "GPUs without a name"
"""Name of devices whose line in the header is cut."""
WHOLE = re.compile(r"\d{1,18}", re.ASCII)
"""A size or a count of a row, which has room for 64 bits."""
MOST_ROWS = 1_000_000
"""Most rows kept of an input, more than any study for people has."""
_WHOLES = frozenset({probe.ALL_GATHER, probe.REDUCE_SCATTER, probe.ALLTOALL, probe.GATHER, probe.SCATTER})
"""Collectives that count a single rank's part, with a size over all ranks."""
_ROOTED = frozenset({probe.BROADCAST, probe.REDUCE, probe.GATHER, probe.SCATTER})
_REDUCING = frozenset({probe.ALL_REDUCE, probe.REDUCE, probe.REDUCE_SCATTER})
MOST_RANKS = 4096
"""Most ranks of a job."""
_NUMBER = re.compile(r"[+-]?(\d{1,30})?(?:\.(\d{1,30}))?(?:[eE]([+-]?\d{1,3}))?", re.ASCII)
_NO_NUMBER = re.compile(r"[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_LARGEST = 300
_GB, _MICRO = 1e9, 1e-6
_ROUNDING = 1e-6
"""Relative error of a number's decimal form."""


class Printed(NamedTuple):
    """A printed number, and half a unit of its last digit; nan or inf with 0."""

    value: float
    half: float


class RowTiming(NamedTuple):
    """Figures of a row's placement: seconds, bytes per second, and wrong elements.

    `seconds` nan: the row has the processors' time instead. `wrong` None: values were not checked. The
    halves are of the last printed digit.
    """

    seconds: float
    seconds_half: float
    algbw: float
    algbw_half: float
    busbw: float
    busbw_half: float
    wrong: float | None


class BenchmarkRow(NamedTuple):
    """A row: nccl-tests' size in bytes, elements of a rank, and the figures of each placement.

    `redop` and `root` are as printed, empty where the table does not have them. `line` 0: not of a text.
    """

    size_bytes: int
    elements: int
    dtype: str
    redop: str
    root: str
    out_of_place: RowTiming | None
    in_place: RowTiming | None
    line: int = 0

    def placed(self) -> Iterator[tuple[bool, RowTiming]]:
        """Yield whether in place, and the figures, for each placement of the row."""
        if self.out_of_place is not None:
            yield False, self.out_of_place
        if self.in_place is not None:
            yield True, self.in_place


class RankGpu(NamedTuple):
    """A rank's GPU as the header of a run names it; `group` of communicators that were split."""

    rank: int
    group: int
    pid: int
    host: str
    device: int
    bus_id: str
    product: str


_NAN = math.nan
_NONE = RowTiming(_NAN, _NAN, _NAN, _NAN, _NAN, _NAN, None)


class BenchmarkRows:
    """The rows of a run in order, in 140 bytes each."""

    def __init__(self) -> None:
        self._sizes = array("Q")
        self._names: list[tuple[str, str, str]] = []
        self._known: dict[tuple[str, str, str], int] = {}
        self._which = array("L")
        self._lines = array("L")
        self._figures = array("d")

    def __len__(self) -> int:
        return len(self._which)

    def add(self, row: BenchmarkRow) -> None:
        """Add a row."""
        names = (row.dtype, row.redop, row.root)
        if names not in self._known:
            self._known[names] = len(self._names)
            self._names.append(names)
        self._sizes.extend((row.size_bytes, row.elements))
        self._which.append(self._known[names])
        self._lines.append(row.line)
        for timing in (row.out_of_place, row.in_place):
            present = timing is not None
            *figures, wrong = _NONE if timing is None else timing
            self._figures.extend(figures)
            self._figures.extend((_NAN if wrong is None else wrong, present))

    def __iter__(self) -> Iterator[BenchmarkRow]:
        width = 8
        for number, which in enumerate(self._which):
            start = number * 2 * width
            out = _timing(self._figures[start : start + width])
            inside = _timing(self._figures[start + width : start + 2 * width])
            size, count = self._sizes[2 * number], self._sizes[2 * number + 1]
            yield BenchmarkRow(size, count, *self._names[which], out, inside, self._lines[number])


@dataclass(slots=True)
class BenchmarkRun:
    """A run of an nccl-tests program, as far as the input has it.

    `line`: where it begins. `op` empty: not known; `op_from`: its source. `ranks` of one communicator, None
    where not known. `parameters`: the header's words with their values. `settings`: NCCL's, where the input
    has the environment. `table`: the columns of rows were seen; `begun`: a header came before them; `ended`:
    the footer was seen. `deltas`: `wrong` is the largest difference, and `out_of_bounds` decides. `average`
    in bytes per second. `repaired`: rows put together from pieces; `unread`: results of a document that are
    no rows; `differing`: rows whose busbw contradicts their other figures. `failures` and `remarks` in words.
    """

    line: int
    op: str = ""
    op_from: str = ""
    ranks: int | None = None
    ranks_from: str = ""
    devices: tuple[RankGpu, ...] = ()
    version: str = ""
    nccl: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    settings: Settings = ()
    rows: BenchmarkRows = field(default_factory=BenchmarkRows)
    table: bool = False
    begun: bool = False
    ended: bool = False
    cputime: bool = False
    deltas: bool = False
    registered: bool = False
    out_of_bounds: int | None = None
    average: float | None = None
    repaired: int = 0
    unread: int = 0
    differing: int = 0
    failures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def communicator(self) -> tuple[RankGpu, ...]:
        """Return the devices of the first communicator."""
        first = self.devices[0].group if self.devices else 0
        return tuple(device for device in self.devices if device.group == first)

    @property
    def mixed(self) -> str:
        """Describe how the header shows several communicators with the same ranks; empty for one."""
        at: dict[tuple[int, int], RankGpu] = {}
        for one in self.devices:
            other = at.setdefault((one.group, one.rank), one)
            if other is not one and len({device.rank for device in self.devices}) > 1:
                where = " and on ".join(f"{gpu.host} (process {gpu.pid})" for gpu in (other, one))
                return f"rank {one.rank} is on {where}: separate runs, as of nccl-tests without MPI"
        return ""

    @property
    def listed(self) -> int | None:
        """Return the ranks of the communicator by the header, None without any or where some are missing."""
        ranks = {device.rank for device in self.devices}
        if ranks != set(range(len(ranks))):
            return None
        return len({device.rank for device in self.communicator}) or None

    @property
    def hosts(self) -> dict[str, int]:
        """Return how many GPUs of the communicator each host has."""
        found: dict[str, int] = {}
        for device in self.communicator:
            found[device.host] = found.get(device.host, 0) + 1
        return found

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the communicator's GPUs, 0 where unknown; nodes may share a name."""
        found = Counter((one.host, one.device, one.bus_id) for one in self.communicator)
        most: dict[str, int] = {}
        for (host, *_), times in found.items():
            most[host] = max(times, most.get(host, 0))
        return sum(most.values())

    @property
    def launch(self) -> str:
        """Return the launch of operations: one at a time (`eager`), or in a CUDA graph (`graph`)."""
        return "graph" if self.parameters.get("graph", "0") not in {"", "0"} else "eager"


def printed(text: str) -> Printed | None:
    """Return the number that a program printed, None for other text."""
    match = _NUMBER.fullmatch(text)
    if match and (match[1] or match[2]):
        exponent = int(match[3] or 0)
        if abs(exponent) > _LARGEST:
            return None
        return Printed(float(text), 0.5 * 10.0 ** (exponent - len(match[2] or "")))
    return Printed(float(text), 0.0) if _NO_NUMBER.fullmatch(text) else None


def timing(time: str, algbw: str, busbw: str, wrong: str | None, unit: float | None) -> RowTiming | None:
    """Return the figures of a placement, with bandwidths in GB/s; None where any of them is not a number.

    `wrong` is None or `N/A` where values were not checked. `time` is in `unit` seconds, None for the
    processors' time.
    """
    numbers = (printed(time), printed(algbw), printed(busbw))
    seconds, algorithm, bus = numbers
    if seconds is None or algorithm is None or bus is None:
        return None
    checked = None
    if wrong is not None and wrong.upper() != "N/A":
        checked = printed(wrong)
        if checked is None:
            return None
    count = None if checked is None else math.inf if math.isnan(checked.value) else checked.value
    scale = _NAN if unit is None else unit
    return RowTiming(
        seconds.value * scale, seconds.half * scale, algorithm.value * _GB, algorithm.half * _GB,
        bus.value * _GB, bus.half * _GB, count,
    )  # fmt: skip


def contradiction(row: BenchmarkRow, ranks: int | None, op: str) -> str:
    """Return why the figures of a row cannot all be true, empty if they can."""
    if op in NOT_RECOMPUTED:
        return ""
    if row.dtype not in TYPES or row.redop not in REDUCTIONS:
        return "its type or reduction is not known"
    if not _sized(row, ranks):
        return "its size does not follow from its count"
    if op in FACTORS and (row.root not in {"", "-1"}) != (op in _ROOTED):
        return f"{op} has no such root"
    for _, one in row.placed():
        if not _agrees(row.size_bytes, one):
            return "its bandwidth does not follow from its size and time"
    return ""


def differs(op: str, ranks: int, row: BenchmarkRow, one: RowTiming) -> bool:
    """Return whether the file's busbw contradicts size, time and ranks, beyond rounding."""
    if op not in FACTORS or not _usable(one):
        return False
    share = factor(op, ranks)
    low, high = share * row.size_bytes * (1 - _ROUNDING), share * row.size_bytes * (1 + _ROUNDING)
    if math.isnan(one.seconds):
        bottom, top = share * (one.algbw - one.algbw_half), share * (one.algbw + one.algbw_half)
    else:
        bottom = low / (one.seconds + one.seconds_half)
        top = high / (one.seconds - one.seconds_half) if one.seconds > one.seconds_half else math.inf
    return one.busbw + one.busbw_half < bottom * (1 - _ROUNDING) or one.busbw - one.busbw_half > top * (
        1 + _ROUNDING
    )


def operation_seconds(row: BenchmarkRow, one: RowTiming) -> float | None:
    """Return seconds of an operation, from an exact bandwidth if the row has the processors' time."""
    if not math.isnan(one.seconds):
        return one.seconds if math.isfinite(one.seconds) and one.seconds > 0 else None
    exact = one.algbw > 0 and one.algbw_half / one.algbw < _EXACT
    return row.size_bytes / one.algbw if exact and math.isfinite(one.algbw) else None


_EXACT = 0.001
"""Largest relative rounding of a bandwidth that may give a time."""


def bus_bandwidth(run: BenchmarkRun, row: BenchmarkRow, one: RowTiming) -> float | None:
    """Return bytes per second, from size, time and ranks where all are known, else from the file."""
    if run.op in FACTORS and run.ranks:
        seconds = operation_seconds(row, one)
        if seconds is not None:
            return factor(run.op, run.ranks) * row.size_bytes / seconds
    return one.busbw if math.isfinite(one.busbw) else None


def settle(run: BenchmarkRun, given: str) -> None:
    """Find a run's operation and ranks where its header lacks them, and count contradicting rows.

    `run`: a complete run. `given`: the operation that the user names, empty for none.
    """
    if run.ranks is None and run.devices:
        run.ranks, run.ranks_from = run.listed, "its header"
    if len(run.devices) > 1 and {device.rank for device in run.devices} == {0}:
        run.remarks.append(
            f"{len(run.devices)} processes ran alone: built without MPI, each is a job of one rank"
        )
    # A header that lost some of its lines must not hide the operation.
    fitting = None if run.op else _candidates(run) or _candidates(run, header=False)
    if fitting is not None and len(fitting) == 1:
        run.op, run.op_from = fitting[0], "its columns"
    elif fitting is not None and given in fitting:
        run.op, run.op_from = given, "--op"
    elif fitting and given:
        run.remarks.append(f"it cannot be {given}: its columns are those of {' or '.join(fitting)}")
    if run.ranks is None and run.op in FACTORS:
        counts = _ranks(run, run.op)
        if len(counts) == 1:
            run.ranks, run.ranks_from = counts[0], "the ratio of its busbw to its algbw"
    if run.ranks:
        run.differing = _differing(run, run.ranks)
        counts = _ranks(run, run.op, header=False) if run.differing else ()
        if len(counts) == 1:
            run.remarks.append(f"its header lists {run.ranks} ranks, its busbw is that of {counts[0]}")
            run.ranks, run.ranks_from = counts[0], "the ratio of its busbw to its algbw"
            run.differing = _differing(run, run.ranks)


def shortfall(run: BenchmarkRun) -> str:
    """Return the missing parts of a run in words; empty for a whole run, and for a table pasted alone."""
    if not run.begun and not run.ended:
        return ""
    if not run.table:
        return "it stops before its table"
    if not len(run.rows):
        return "its table has no rows"
    largest = _largest(run)
    last = max(row.size_bytes for row in run.rows)
    if run.ended or largest is None or largest - last < _ALIGNED * (run.ranks or 1):
        return ""
    return f"its table stops at {last} of {largest} bytes"


def _largest(run: BenchmarkRun) -> int | None:
    """Return the largest requested size of a run, in bytes, before rounding."""
    names = ("minBytes", "maxBytes", "step")
    least, most, step = (whole(run.parameters.get(name, "")) or 0 for name in names)
    if not 0 < least <= most or step < 1:
        return None
    if run.parameters.get("step by") == "bytes":
        return least + (most - least) // step * step
    while step > 1 and least * step <= most:
        least *= step
    return least


_ALIGNED = 16
"""Sizes are rounded down to multiples of these bytes of a rank's part."""


def _differing(run: BenchmarkRun, ranks: int) -> int:
    """Count rows whose busbw contradicts their other figures."""
    return sum(any(differs(run.op, ranks, row, one) for _, one in row.placed()) for row in run.rows)


def _timing(figures: "array[float]") -> RowTiming | None:
    seconds, seconds_half, algbw, algbw_half, busbw, busbw_half, wrong, present = figures
    if not present:
        return None
    checked = None if math.isnan(wrong) else wrong
    return RowTiming(seconds, seconds_half, algbw, algbw_half, busbw, busbw_half, checked)


def _usable(one: RowTiming) -> bool:
    finite = math.isfinite(one.algbw) and math.isfinite(one.busbw)
    return finite and (math.isnan(one.seconds) or (math.isfinite(one.seconds) and one.seconds > 0))


def _sized(row: BenchmarkRow, ranks: int | None) -> bool:
    """Return whether the size is the count's bytes, or all ranks' bytes."""
    part = row.elements * TYPES[row.dtype][1]
    if not part or not row.size_bytes or row.size_bytes % part:
        return row.size_bytes == part
    return ranks is None or row.size_bytes // part in {1, ranks}


def _agrees(size: int, one: RowTiming) -> bool:
    if math.isnan(one.seconds) or not _usable(one):
        return True
    low = (one.seconds - one.seconds_half) * (one.algbw - one.algbw_half)
    high = (one.seconds + one.seconds_half) * (one.algbw + one.algbw_half)
    return low * (1 - _ROUNDING) <= size <= high * (1 + _ROUNDING)


def _parts(row: BenchmarkRow) -> int:
    """Return the size over a rank's own elements, for a row that `contradiction` let pass."""
    return row.size_bytes // (row.elements * TYPES[row.dtype][1]) if row.elements else 0


def _candidates(run: BenchmarkRun, *, header: bool = True) -> tuple[str, ...]:
    """Return the operations that may print these rows. `header`: with as many ranks as it lists."""
    return tuple(op for op in FACTORS if len(run.rows) and _could_be(run, op, header=header))


def _could_be(run: BenchmarkRun, op: str, *, header: bool) -> bool:
    for row in run.rows:
        rooted = row.root not in {"", "-1"}
        if rooted != (op in _ROOTED):
            return False
        # In its newer versions sendrecv prints a reduction, which it does not do; in its older ones none.
        reduces = row.redop not in {"", "none"}
        if op != probe.SENDRECV and reduces != (op in _REDUCING):
            return False
        if op not in _WHOLES and _parts(row) > 1:
            return False
    return bool(_ranks(run, op, header=header))


def _ranks(run: BenchmarkRun, op: str, *, header: bool = True) -> tuple[int, ...]:
    """Return the rank counts that explain all busbw. `header`: only the header's, if any."""
    low, high = 0.0, math.inf
    parts = set()
    for row in run.rows:
        if row.elements and op in _WHOLES:
            parts.add(_parts(row))
        for _, one in row.placed():
            if _usable(one) and one.algbw > one.algbw_half:
                low = max(low, (one.busbw - one.busbw_half) / (one.algbw + one.algbw_half))
                high = min(high, (one.busbw + one.busbw_half) / (one.algbw - one.algbw_half))
    if len(parts) > 1:
        return ()
    asked = parts or ({run.ranks} if run.ranks and header else range(2, MOST_RANKS + 1))
    fits = (ranks for ranks in asked if low <= factor(op, ranks) * (1 + _ROUNDING))
    return tuple(ranks for ranks in fits if factor(op, ranks) * (1 - _ROUNDING) <= high)
