"""Standard output of nccl-tests, line by line: its runs, and lines that were not understood.

Columns are found by the header of their table. Launchers may prefix each line with a rank or a host, so that
output of several ranks is mixed; NCCL's log may have torn rows into pieces. A piece is joined with later text
when the figures of the whole row prove it. Any other line that looks like a row is counted, and the first few
are kept. Forms: nccl-tests 1.0 to 2.19, src/common.cu and src/util.cu.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from wirewatch_lab.study.runs import (
    KNOWN_TESTS,
    MOST_RANKS,
    MOST_ROWS,
    NAMELESS,
    WHOLE,
    BenchmarkRow,
    BenchmarkRun,
    RankGpu,
    RowTiming,
    contradiction,
    settle,
    timing,
)
from wirewatch_lab.study.sources import SourceLines

SHOWN = 5
"""Lines kept of the lines not understood, and of each run's failures."""
_PIECES = 2000
"""Most characters of a torn row; a whole row has some 200."""
_SHORT = 200
"""Characters kept of a line."""
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(
    r"""
    (?:\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)\s)?         # kubectl logs --timestamps
    (?:[A-Z][a-z]{2}\ [A-Z][a-z]{2}\ [\d ]\d\ [\d:]{8}\ \d{4})?  # mpirun --timestamp-output
    (?:(?P<key>
        \[[^\]\s]{0,80}\d+[,.]\d+\](?=[<:])                      # mpirun --tag-output
      | [ ]{0,6}\d{1,7}:[ ]                                      # srun --label
      | \[\d{1,7}\][ ]                                           # mpiexec -l of Hydra
    )(?:<std(?:out|err|diag)>:?)?:?)?
    """,
    re.VERBOSE | re.ASCII,
)
_OTHER_PREFIX = re.compile(
    r"(?P<key>\S[^#]{0,120}?)#\s+"
    r"(?:nccl-tests version|Collective test starting|nThread \d|Using devices|size\s+count\s|bytes\s+N\s)"
)
_MARK = re.compile(r"\] (?:\S{1,255}:\d{1,9} )?NCCL (?:INFO|WARN|TRACE|ERROR|VERSION|ABORT)\b", re.ASCII)
_MESSAGE = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] )?"
    r"(?P<host>[A-Za-z0-9][\w.-]{0,254}):\d{1,9}:\d{1,9} \[-?\d{1,9}" + _MARK.pattern,
    re.ASCII,
)
_BEFORE_MARK = 320
"""Most characters before a message's mark."""
_COMMENT = ("#", "nThread ", "Using devices", "Rank ")
"""Beginnings of comments; pages made from Markdown lose a heading's mark."""
_DEVICE = re.compile(
    r"#\s+Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?(?:Pid\s+(\d{1,12})\s+)?on\s+(\S+)\s+device\s+(\d{1,9})"
    r"\s+\[([0-9a-fA-Fx:.]{1,32})\]\s*(.*)",
    re.ASCII,
)
_COMMAND = re.compile(r"\b([a-z]+(?:_[a-z]+)?)_perf\b", re.ASCII)
_WORDS = re.compile(r"([A-Za-z][A-Za-z ]{0,40}?):? {1,40}(-?\d{1,18})\b", re.ASCII)
_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*(\d{1,18})\s+(OK|FAILED)", re.ASCII)
_AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s*:\s*(\S{1,32})\s*(OK|FAILED)?", re.ASCII)
_REDUCED = re.compile(r"#\s*Reducing maxBytes to (\d{1,18}) ", re.ASCII)
_FAILURE = re.compile(
    r"Test (?:CUDA |NCCL )?failure|Test timeout|\[KERNEL_LAUNCH_ERROR\]|[Ss]egmentation fault|Bus error"
    r"|\(core dumped\)|process received signal|exited on signal|Exited with exit code [1-9]"
    r"|non-zero (?:exit )?(?:code|status)|terminate called|MPI_ABORT was invoked|CANCELLED AT"
    r"|Invalid number of GPUs|invalid sizes? |(?:^|\s)(?:Killed|Aborted)$|undefined symbol:"
    r"|error while loading shared libraries"
)
_ROOT = re.compile(r"-?\d{1,9}", re.ASCII)
_WORD = re.compile(r"[A-Za-z]\w{0,31}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
_NAMES = {"bytes": "size", "n": "count", "op": "redop", "res": "error"}
"""Columns of version 1 by their later names."""
_TIMES = frozenset({"time", "cputime"})
_WRONG = ("#wrong", "error")
_LOOKS_LIKE_A_ROW = 6
"""A line with this many numbers looks like a row."""


@dataclass(frozen=True, slots=True)
class NotUnderstoodLine:
    """A line that looks like a row and is not one, and why."""

    line: int
    text: str
    why: str


class _PlacementColumns(NamedTuple):
    """Positions of a placement's figures: time, algbw, busbw and wrong, -1 if absent."""

    in_place: bool
    time: int
    algbw: int
    busbw: int
    wrong: int


@dataclass(frozen=True, slots=True)
class Columns:
    """A table's columns by its header. `unit`: of times in seconds, None for processors' time."""

    names: tuple[str, ...]
    blocks: tuple[_PlacementColumns, ...]
    unit: float | None
    deltas: bool

    def row(self, text: str) -> BenchmarkRow | None:
        """Return the row in a line, None if the line is not a row."""
        words = text.split()
        if len(words) == len(self.names) - 1 and "redop" in self.names:
            # Until 2.17 tests that reduce nothing leave that column empty.
            words.insert(self.names.index("redop"), "")
        if len(words) != len(self.names):
            return None
        named = dict(zip(self.names[: self.blocks[0].time], words, strict=False))
        size, count, dtype = named["size"], named.get("count", ""), named.get("type", "")
        redop, root = named.get("redop", ""), named.get("root", "")
        placed: dict[bool, RowTiming | None] = {False: None, True: None}
        for block in self.blocks:
            wrong = words[block.wrong] if block.wrong >= 0 else None
            one = timing(words[block.time], words[block.algbw], words[block.busbw], wrong, self.unit)
            if one is None:
                return None
            placed[block.in_place] = one
        good = WHOLE.fullmatch(size) and WHOLE.fullmatch(count) and _WORD.fullmatch(dtype)
        if not good or (redop and not _WORD.fullmatch(redop)) or (root and not _ROOT.fullmatch(root)):
            return None
        moment = self.names.index("timestamp") if "timestamp" in self.names else -1
        if moment >= 0 and not _DATE.fullmatch(" ".join(words[moment : moment + 2])):
            return None
        return BenchmarkRow(int(size), int(count), dtype, redop, root, placed[False], placed[True])


class _Table(NamedTuple):
    """A table with rows to follow."""

    run: BenchmarkRun
    columns: Columns


@dataclass(slots=True)
class _Stream:
    """Lines with the same prefix: their run, its table, and a row that is not yet whole."""

    run: BenchmarkRun | None = None
    table: _Table | None = None
    in_place_first: bool = False
    torn: str = ""
    torn_at: int = 0


@dataclass(slots=True)
class Reader:
    """Reads lines as they come; `finish` completes them.

    `given`: the operation of runs that do not name theirs. `runs` are complete after `finish`. `failures`:
    failures printed outside every run. `row_lines`: lines that gave a row, for repaired rows each piece.
    `places`: the input files.
    """

    given: str = ""
    runs: list[BenchmarkRun] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    lines: int = 0
    rows: int = 0
    messages: int = 0
    others: int = 0
    not_understood: int = 0
    first: list[NotUnderstoodLine] = field(default_factory=list)
    places: SourceLines = field(default_factory=SourceLines)
    _streams: dict[str, _Stream] = field(default_factory=dict)
    _prefixes: list[str] = field(default_factory=list)
    _hosts: set[str] = field(default_factory=set)
    _commands: set[str] = field(default_factory=set)

    def feed(self, line: str, *, whole: bool = True) -> None:
        """Read a line without its end, `whole` if not cut. Raises ValueError: too many rows."""
        self.lines += 1
        text = _ESCAPES.sub("", line).rstrip() if "\x1b" in line else line.rstrip()
        key, text = self._split(text)
        if not whole:
            self._miss(self.lines, text, "a line that is too long")
            return
        if not text:
            return
        stream = self._stream(key)
        message = _message(text)
        if message is not None:
            self._logged(stream, text, message)
        elif text.lstrip().startswith(_COMMENT):
            self._comment(stream, "# " + text.lstrip(" #"))
        else:
            # Some launchers write their tag before each piece of a row.
            self._plain(stream, text.replace(key, " ") if key.startswith("[") else text)

    def finish(self) -> None:
        """Finish after the last line."""
        for stream in self._streams.values():
            self._drop(stream)
            stream.run = None
        self._streams.clear()
        self.runs = [run for run in self.runs if run.begun or run.table]
        for run in self.runs:
            settle(run, self.given)

    def add(self, run: BenchmarkRun) -> None:
        """Add a run from another reader."""
        self._count(len(run.rows))
        self.runs.append(run)
        for _ in range(run.unread):
            self._miss(run.line, "", "a result in its JSON document that cannot be read")

    def pass_over(self, lines: int) -> None:
        """Count lines of other kinds."""
        self.lines += lines
        self.others += lines

    def _split(self, text: str) -> tuple[str, str]:
        """Return the prefix of a program's text, and that text."""
        match = _PREFIX.match(text)
        if match is not None and match.end():
            return (match["key"] or "").strip(), text[match.end() :]
        for known in self._prefixes:
            if text.startswith(known):
                return known, text[len(known) :]
        if "#" in text and not text.lstrip().startswith("#"):
            found = _OTHER_PREFIX.match(text)
            if found and len(self._prefixes) < MOST_RANKS:
                self._prefixes.append(found["key"])
                return found["key"], text[found.end("key") :]
        return "", text

    def _stream(self, key: str) -> _Stream:
        if key not in self._streams and len(self._streams) >= MOST_RANKS:
            key = ""
        return self._streams.setdefault(key, _Stream())

    def _logged(self, stream: _Stream, text: str, message: "re.Match[str]") -> None:
        """Take a line of NCCL's log, which may begin in the middle of a row."""
        self.messages += 1
        host, start = message["host"], message.start()
        if start == 0:
            self._know(host)
            return
        # The last figure of a row and a host's name may stand together: only a known name parts them.
        glued = message.start("host") == start
        ends = [start + len(host) - len(known) for known in self._hosts if host.endswith(known)]
        ends = ends if glued else [start]
        before = text[: max(ends, default=start)]
        if stream.table is None or not before.strip():
            return
        if not ends:
            self._miss(self.lines, text, "torn by a host whose name is not known")
        elif not self._whole(stream, before):
            self._piece(stream, stream.table, before)

    def _comment(self, stream: _Stream, text: str) -> None:
        device = _DEVICE.match(text)
        if device is not None:
            self._device(self._begun(stream), device)
            return
        columns = _columns(text, in_place_first=stream.in_place_first)
        if columns is not None:
            self._table(stream, columns)
            return
        body = text.lstrip("# ")
        for begins, read in _COMMENTS.items():
            if body.startswith(begins):
                read(self, stream, body)
                return
        if "in-place" in body and "out-of-place" not in body:
            stream.in_place_first = True
        elif "(GB/s)" in body and stream.table is not None and "(ms)" in body:
            columns = stream.table.columns
            stream.table = _Table(stream.table.run, replace(columns, unit=1e-3))
        reduced = _REDUCED.match(text)
        if reduced is not None and stream.run is not None:
            stream.run.parameters["maxBytes"] = reduced[1]
        self._footer(stream, text)

    def _plain(self, stream: _Stream, text: str) -> None:
        if self._whole(stream, text) or self._footer(stream, text):
            return
        if "algbw" in text and (columns := _columns(text, in_place_first=False)) is not None:
            self._table(stream, columns)
            return
        failure = _FAILURE.search(text)
        if failure is not None:
            self._failed(stream, text)
            return
        # Only whole rows may follow the end of a table, where those of several programs are mixed.
        if stream.table is None or stream.table.run.ended:
            self._outside(text)
        else:
            self._piece(stream, stream.table, text)

    def _piece(self, stream: _Stream, table: _Table, text: str) -> None:
        """Take a part of a row, or other text."""
        run, columns = table
        if stream.torn:
            joined = stream.torn + text
            whole = columns.row(joined)
            if whole is not None:
                at, stream.torn = stream.torn_at, ""
                run.repaired += self._row(run, whole, joined, at)
                return
            if len(joined) <= _PIECES and len(joined.split()) < len(columns.names):
                stream.torn = joined
                return
            self._drop(stream)
        words = text.split()
        if len(words) < len(columns.names) and _begins_row(words):
            stream.torn, stream.torn_at = text, self.lines
        elif _numbers(words) >= 2 and words[0][:1].isdigit():  # noqa: PLR2004
            self._miss(self.lines, text, "not a row of this table")
        else:
            self.others += 1

    def _whole(self, stream: _Stream, text: str) -> bool:
        """Return whether the line is a row of the stream's table, whatever its figures."""
        if stream.table is None:
            return False
        row = stream.table.columns.row(text)
        if row is None:
            return False
        self._drop(stream)
        self._row(stream.table.run, row, text, self.lines)
        return True

    def _row(self, run: BenchmarkRun, row: BenchmarkRow, text: str, line: int) -> bool:
        """Return whether all figures of a row can be true, so that it is kept."""
        why = contradiction(row, run.listed, run.op)
        if why:
            self._miss(line, text, why)
            return False
        self._count(1)
        run.rows.add(row._replace(line=line))
        return True

    def _count(self, rows: int) -> None:
        self.rows += rows
        if self.rows > MOST_ROWS:
            raise ValueError(f"more than {MOST_ROWS} rows: cut it into parts")

    def _drop(self, stream: _Stream) -> None:
        """Count the rest of a torn row as not understood."""
        if stream.torn:
            self._miss(stream.torn_at, stream.torn, "a part of a row")
            stream.torn = ""

    def _miss(self, line: int, text: str, why: str) -> None:
        self.not_understood += 1
        if len(self.first) < SHOWN:
            self.first.append(NotUnderstoodLine(line, text[:_SHORT], why))

    def _outside(self, text: str) -> None:
        words = text.split()
        if len(words) >= _LOOKS_LIKE_A_ROW and _begins_row(words) and _numbers(words) >= _LOOKS_LIKE_A_ROW:
            self._miss(self.lines, text, "a row without the header of a table")
            return
        self.others += 1
        named = _COMMAND.search(text)
        if named is not None and named[1] in KNOWN_TESTS:
            self._commands.add(named[1])

    def _footer(self, stream: _Stream, text: str) -> bool:
        """Return whether the line is among the two that end a run."""
        bounds, average = _BOUNDS.match(text), _AVERAGE.match(text)
        if bounds is None and average is None:
            return False
        run = stream.run
        if run is None:
            return True
        run.ended = True
        if bounds is not None:
            run.out_of_bounds = int(bounds[1])
        if average is not None:
            one = timing("0", average[1], "0", None, None)
            run.average = one.algbw if one is not None else None
            if average[2] == "FAILED":
                run.remarks.append("the run's own bound on the average (NCCL_TESTS_MIN_BW) was not reached")
        return True

    def _failed(self, stream: _Stream, text: str) -> None:
        """Record a failure in a run that has begun and not ended, of this rank or else of any."""
        candidates = [stream.run, *(other.run for other in self._streams.values())]
        opened = next((run for run in candidates if run is not None and not run.ended), None)
        found = self.failures if opened is None else opened.failures
        if len(found) < SHOWN:
            found.append(text.strip()[:_SHORT])

    def _begun(self, stream: _Stream) -> BenchmarkRun:
        """Return the run of this header: a new run if the last has a table already."""
        if stream.run is None or stream.run.table or stream.run.ended:
            self._drop(stream)
            stream.run, stream.table = BenchmarkRun(self.lines, begun=True), None
            self.runs.append(stream.run)
        stream.run.begun = True
        return stream.run

    def _table(self, stream: _Stream, columns: Columns) -> None:
        self._drop(stream)
        run = stream.run
        if run is None or run.ended or (run.table and len(run.rows)):
            # A table that was pasted without what stands before it.
            run = stream.run = BenchmarkRun(self.lines)
            self.runs.append(run)
        stream.table, stream.in_place_first = _Table(run, columns), False
        run.table, run.cputime, run.deltas = True, columns.unit is None, columns.deltas
        if not run.op and len(self._commands) == 1:
            run.op, run.op_from = next(iter(self._commands)), "the command line"
        self._commands.clear()

    def _device(self, run: BenchmarkRun, match: "re.Match[str]") -> None:
        rank, group, pid, host, device, bus, product = match.groups()
        self._know(host)
        if len(run.devices) < MOST_RANKS:
            found = RankGpu(
                int(rank), int(group or 0), int(pid or 0), host, int(device), bus, product.strip() or NAMELESS
            )
            # Whoever keeps both outputs of a launcher has each line twice.
            run.devices = run.devices if found in run.devices else (*run.devices, found)

    def _know(self, host: str) -> None:
        if len(self._hosts) < MOST_RANKS:
            self._hosts.add(host)

    def _version(self, stream: _Stream, body: str) -> None:
        words = body.split()
        run = self._begun(stream)
        run.version = words[2]
        run.nccl = next((word.partition("=")[2] for word in words if word.startswith("nccl-library=")), "")

    def _starting(self, stream: _Stream, body: str) -> None:
        named = _COMMAND.search(body.partition(":")[2])
        run = self._begun(stream)
        if named is not None and named[1] in KNOWN_TESTS:
            run.op, run.op_from = named[1], "its header"

    def _parameters(self, stream: _Stream, body: str) -> None:
        run = self._begun(stream)
        run.parameters = {name.strip(): value for name, value in _WORDS.findall(body[:_PIECES])}
        step = re.search(r"step: \d+\((factor|bytes)\)", body)
        run.parameters["step by"] = step[1] if step else ""

    def _begins(self, stream: _Stream, _body: str) -> None:
        self._begun(stream)

    def _concluded(self, stream: _Stream, _body: str) -> None:
        stream.table = None

    def _error(self, stream: _Stream, body: str) -> None:
        if stream.run is not None and len(stream.run.remarks) < SHOWN:
            stream.run.remarks.append(f"NCCL's last message: {body[7:].strip()[:_SHORT]}")


_COMMENTS: dict[str, Callable[[Reader, _Stream, str], None]] = {
    "nccl-tests version ": Reader._version,  # noqa: SLF001
    "Collective test starting": Reader._starting,  # noqa: SLF001
    "nThread ": Reader._parameters,  # noqa: SLF001
    "Using devices": Reader._begins,  # noqa: SLF001
    "Collective test concluded": Reader._concluded,  # noqa: SLF001
    "error: ": Reader._error,  # noqa: SLF001
}


def _message(text: str) -> "re.Match[str] | None":
    """Return the first NCCL message in a line; only text near its mark is searched."""
    mark = _MARK.search(text)
    return None if mark is None else _MESSAGE.search(text, max(0, mark.start() - _BEFORE_MARK))


def _columns(text: str, *, in_place_first: bool) -> Columns | None:
    """Return the columns that a header names, None for another line."""
    words = [_NAMES.get(word.lower(), word.lower()) for word in text.lstrip("# ").split()]
    starts = [at for at, word in enumerate(words) if word in _TIMES]
    if not starts or not {"size", "count", "type"} <= set(words[: starts[0]]):
        return None
    if not words.count("algbw") == words.count("busbw") == len(starts):
        return None
    blocks = []
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(words)], strict=True)):
        part = words[start:end]
        if part.count("algbw") != 1 or part.count("busbw") != 1:
            return None
        wrong = next((start + part.index(name) for name in _WRONG if name in part), -1)
        in_place = number > 0 or (len(starts) == 1 and in_place_first)
        algbw, busbw = start + part.index("algbw"), start + part.index("busbw")
        blocks.append(_PlacementColumns(in_place, start, algbw, busbw, wrong))
    if len(blocks) > 2:  # noqa: PLR2004
        return None
    # A moment is printed in two words.
    names = tuple(part for word in words for part in ([word, ""] if word == "timestamp" else [word]))
    unit = None if words[starts[0]] == "cputime" else 1e-3 if "bytes" in text.split() else 1e-6
    return Columns(names, tuple(blocks), unit, "error" in words)


def _begins_row(words: Sequence[str]) -> bool:
    return len(words) > 1 and all(WHOLE.fullmatch(word) for word in words[:2])


def _numbers(words: Sequence[str]) -> int:
    return sum(word[:1].isdigit() or word[:2] == "-1" for word in words)
