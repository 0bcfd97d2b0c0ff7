"""The file of a sweep: a header, then a line of JSON for each measurement, written to disk at once.

A sweep that stops at any moment keeps all lines of its file, and a torn line is measured again. A single
process may write the file at a time.
"""

import fcntl
import json
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from wirewatch.core.probe import PRIMITIVES
from wirewatch.core.statistics import grouped
from wirewatch_lab.study.curve import AUTO, Curve, CurvePoint, KnownRates, Study
from wirewatch_lab.study.grid import GridCurve, SweepOptions

NAME = "sweep.jsonl"
SCHEMA: Literal["wirewatch.sweep-records/1"] = "wirewatch.sweep-records/1"
_STRICT: dict[str, object] = {"extra": "forbid", "allow_inf_nan": False}
_Number = TypeVar("_Number")
Positive = Annotated[_Number, Field(gt=0)]
Key = tuple[int, int, int]
"""A curve by its place in the header, a repeat (both from 0), and a size in bytes."""


class RecordsError(Exception):
    """The folder cannot be used; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class SweepHeader:
    """The curves and machine of a sweep, and its start (Unix seconds). `seed`: of the order of measurement.

    `known`: expected rates of the wires and of NCCL's defaults.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    schema: Literal["wirewatch.sweep-records/1"]
    version: str
    at: float
    seed: int
    options: SweepOptions
    environment: dict[str, str]
    curves: tuple[GridCurve, ...]
    not_offered: tuple[str, ...]
    known: tuple[KnownRates, ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """A size of a curve in a repeat, as in the worker's `Timed`; seconds an operation."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    line: Literal["measured"]
    curve: int
    repeat: int
    size_bytes: int
    seconds: Positive[float]
    low: float
    median: float
    high: float
    iterations: int
    wrong: int
    at: float

    @property
    def key(self) -> Key:
        """Return the key of the measurement."""
        return self.curve, self.repeat, self.size_bytes


@dataclass(frozen=True, slots=True)
class RanAs:
    """The algorithm and protocol in NCCL's log for a size of a curve, such as `Ring Simple`."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    line: Literal["ran"]
    curve: int
    repeat: int
    size_bytes: int
    ran: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The reason why a curve is not measured from a size on, in any repeat."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    line: Literal["given_up"]
    curve: int
    size_bytes: int
    why: str


Line = Measurement | RanAs | GivenUp
_HEADER = TypeAdapter(SweepHeader)
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="line")])


@dataclass
class Records:
    """The contents of a file."""

    header: SweepHeader
    measured: dict[Key, Measurement] = field(default_factory=dict)
    ran: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    given_up: dict[int, GivenUp] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        """Add a line. Raises RecordsError: it does not belong to this sweep, or is a duplicate."""
        curves = self.header.curves
        if line.curve not in range(len(curves)) or line.size_bytes not in curves[line.curve].sizes:
            raise RecordsError("it is of no curve of the header")
        if isinstance(line, Measurement):
            if line.key in self.measured or line.repeat not in range(self.header.options.repeats):
                raise RecordsError("it is measured twice, or in a repeat that was not asked for")
            self.measured[line.key] = line
        elif isinstance(line, RanAs):
            self.ran.setdefault((line.curve, line.size_bytes), set()).update(line.ran)
        elif line.curve not in self.given_up or line.size_bytes < self.given_up[line.curve].size_bytes:
            self.given_up[line.curve] = line

    def is_left(self, key: Key) -> bool:
        """Return whether the key is still to measure."""
        given_up = self.given_up.get(key[0])
        return key not in self.measured and (given_up is None or key[2] < given_up.size_bytes)

    def left(self) -> Iterator[Key]:
        """Yield all keys still to measure."""
        return filter(self.is_left, keys(self.header))

    @property
    def complete(self) -> bool:
        """Return whether nothing is left."""
        return next(self.left(), None) is None


class SweepFile:
    """The file while this process may write it. `add` does not wait for the disk; `drain` does."""

    def __init__(self, path: Path, handle: int, records: Records | None, *, made: bool = False) -> None:
        self._path = path
        self._handle = handle
        self._made = made
        self._records = records
        self._waiting: deque[bytes] = deque()
        self._writer = ThreadPoolExecutor(1, "records")
        self._last: Future[None] | None = None
        self.trouble = ""

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Open a new file in a new or empty folder; any other folder raises RecordsError."""
        made = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise RecordsError(f"{folder} is not empty; --resume goes on with a sweep that is there")
            handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError as error:
            raise RecordsError(f"{folder}: another process has just begun a sweep there") from error
        except OSError as error:
            raise RecordsError(f"{folder} cannot be written: {error.strerror or error}") from error
        _lock(folder, handle)
        return cls(folder / NAME, handle, None, made=made)

    @classmethod
    def resume(cls, folder: Path) -> Self:
        """Reopen a sweep's file without a torn last line. Raises RecordsError: none, or in use."""
        try:
            handle = os.open(folder / NAME, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise RecordsError(f"{folder} holds no sweep: {NAME}: {error.strerror or error}") from error
        try:
            _lock(folder, handle)
            records, whole = _parsed(folder, (folder / NAME).read_bytes())
            os.ftruncate(handle, whole)
            os.lseek(handle, 0, os.SEEK_END)
        except (RecordsError, OSError) as error:
            os.close(handle)
            if isinstance(error, RecordsError):
                raise
            raise RecordsError(f"{folder} cannot be written: {error.strerror or error}") from error
        return cls(folder / NAME, handle, records)

    @property
    def begun(self) -> bool:
        """Return whether it has its header."""
        return self._records is not None

    @property
    def records(self) -> Records:
        """Return the contents of the file, including waiting lines."""
        assert self._records is not None  # noqa: S101 - a new file is given its header first
        return self._records

    def begin(self, header: SweepHeader) -> None:
        """Write the header of a new file to disk. Raises OSError: it cannot be written."""
        self._records = Records(header)
        self._queue(_HEADER.dump_json(header))
        self.drain()
        around = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(around)
        finally:
            os.close(around)

    def add(self, line: Line) -> None:
        """Queue a line; it counts from now on."""
        self.records.take(line)
        self._queue(json.dumps(asdict(line), allow_nan=False).encode())

    def drain(self) -> None:
        """Wait until everything is on disk. Raises OSError: a write failed; no further write follows."""
        if self._last is not None:
            self._last.result()

    def _queue(self, line: bytes) -> None:
        self._waiting.append(line + b"\n")
        self._last = self._writer.submit(self._write)

    def _write(self) -> None:
        """Write all waiting lines. After an error the file may end in a torn line, and nothing may follow."""
        if self.trouble:
            raise OSError(self.trouble)
        data = b"".join(self._waiting.popleft() for _ in range(len(self._waiting)))
        try:
            while data:
                data = data[os.write(self._handle, data) :]
            os.fsync(self._handle)
        except OSError as error:
            self.trouble = f"{self._path} cannot be written: {error.strerror or error}"
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.shutdown()
        if os.fstat(self._handle).st_size == 0:
            # Nothing was begun: the folder is as free as before.
            self._path.unlink(missing_ok=True)
            if self._made:
                with suppress(OSError):
                    self._path.parent.rmdir()
        os.close(self._handle)


def read_records(folder: Path) -> Records:
    """Read a sweep's file, also while it is written. Raises RecordsError: there is no usable file."""
    try:
        data = (folder / NAME).read_bytes()
    except OSError as error:
        raise RecordsError(f"{folder} holds no sweep: {NAME}: {error.strerror or error}") from error
    return _parsed(folder, data)[0]


def keys(header: SweepHeader) -> Iterator[Key]:
    """Yield all keys of a sweep."""
    for repeat in range(header.options.repeats):
        for place, curve in enumerate(header.curves):
            yield from ((place, repeat, size) for size in curve.sizes)


def study_of(records: Records, source: str) -> Study:
    """Return the present measurements as a study."""
    header, options = records.header, records.header.options
    same = grouped(((key[0], key[2]), records.measured[key]) for key in sorted(records.measured))
    points: dict[int, list[CurvePoint]] = {}
    for (place, size), some in sorted(same.items(), key=lambda one: one[0]):
        ran = tuple(sorted(records.ran.get((place, size), ())))
        seconds, wrong = tuple(one.seconds for one in some), sum(one.wrong for one in some)
        points.setdefault(place, []).append(CurvePoint(size, seconds, wrong, ran))
    measured = ((header.curves[place], tuple(some)) for place, some in points.items())
    curves = tuple(
        Curve(curve.op, curve.configuration, some, options.dtype, options.runs_in_place(curve.op))
        for curve, some in measured
    )
    problems = tuple(_given_up(records))
    return Study(header.at, source, header.environment, curves, header.not_offered, problems)


def _given_up(records: Records) -> Iterator[str]:
    for place, line in sorted(records.given_up.items()):
        curve = records.header.curves[place]
        wanted = curve.configuration
        names = [wanted.algorithm, wanted.protocol, *("=".join(pair) for pair in wanted.settings)]
        chosen = " ".join(name for name in names if name != AUTO)
        where = f"{curve.op} with {wanted.ranks} ranks, {wanted.launch}{chosen and f', {chosen}'}"
        yield f"{where}: not measured from {line.size_bytes} B on: {line.why}"


def _parsed(folder: Path, data: bytes) -> tuple[Records, int]:
    """Return a file's contents, and its whole bytes. Raises RecordsError: it is not a sweep's."""
    whole = data.rfind(b"\n") + 1
    first, *others = data[:whole].split(b"\n")[:-1] or [b""]
    try:
        records = Records(_HEADER.validate_json(first))
    except ValidationError as error:
        raise RecordsError(f"{folder} holds no sweep: {NAME} does not begin with its header") from error
    for curve in records.header.curves:
        if curve.op not in PRIMITIVES or curve.configuration.ranks < 1 or min(curve.sizes, default=0) < 1:
            raise RecordsError(f"{folder} holds no sweep: its header has a curve that nothing can measure")
    for number, line in enumerate(others, 2):
        try:
            records.take(_LINE.validate_json(line))
        except ValidationError as error:
            if number == len(others) + 1:
                return records, whole - len(line) - 1
            said = error.errors(include_url=False, include_context=False)[0]["msg"]
            raise RecordsError(f"{folder}/{NAME}, line {number}: not understood: {said}") from error
        except RecordsError as error:
            raise RecordsError(f"{folder}/{NAME}, line {number}: {error}") from error
    return records, whole


def _lock(folder: Path, descriptor: int) -> None:
    """Lock the file until the descriptor closes. Raises RecordsError while another process has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise RecordsError(f"{folder}: another process is writing this sweep") from error
