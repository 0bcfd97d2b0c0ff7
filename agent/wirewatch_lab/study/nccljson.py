"""JSON that nccl-tests writes with -J: a document for each run, found in any text and read as a run.

Versions 1 to 3 (nccl-tests 2.17 to 2.19, src/util.cu). They write booleans and some numbers as strings, and
list each process with its first device only. A failed test may cut its document.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from wirewatch_lab.study import runs
from wirewatch_lab.study.nccltests import Reader

LARGEST = 128 << 20
"""Most characters of a document; thousands of ranks with all iterations take some 50 million."""
_BEGIN = re.compile(r'\s*\{\s*(?:$|")')
_MARK = re.compile(r'["\\{}\[\]]')
_INFINITE = re.compile(r"(?<=[:,\[])\s*(-?)inf(?=\s*[,}\]])")
_NAME = re.compile(r"([a-z]+(?:_[a-z]+)?)_perf\b", re.ASCII)
_KNOWN = re.compile(r'"(version|args|config|env|errors|results|average_bus_bandwid\w*)"\s*:')
_HEAD = 1 << 14
"""A member's name occurs within these first characters."""
_DEEPEST = 8
"""Most nesting of a document, with a margin."""
_PARAMETERS = {
    "nthreads": "nThread", "ngpus": "nGpus", "minimum_bytes": "minBytes", "maximum_bytes": "maxBytes",
    "warmup_iters": "warmup iters", "iterations": "iters", "aggregated_iterations": "agg iters",
    "validation": "validation", "graph": "graph",
}  # fmt: skip
"""Members of `config`, by the header's names for them."""
_SHORT = 200
_SMALL = re.compile(r"\d{1,9}", re.ASCII)


class Assembler:
    """Joins a document from pieces of text.

    `text`: all pieces, without the text after the document. `foreign`: it is not from nccl-tests.
    """

    def __init__(self) -> None:
        self.foreign = False
        self._pieces: list[str] = []
        self._size = 0
        self._open: list[str] = []
        self._quoted = False
        self._escaped = -1
        self._whole_result = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def take(self, piece: str) -> str | None:
        """Take a piece; return the text after the document, None while the document goes on."""
        self._pieces.append(piece)
        for mark in _MARK.finditer(piece):
            at, what = self._size + mark.start(), mark[0]
            if at == self._escaped:
                continue
            if what == "\\":
                self._escaped = at + 1 if self._quoted else -1
            elif what == '"':
                self._quoted = not self._quoted
            elif not self._quoted and self._nested(what, at + 1):
                self._pieces[-1] = piece[: mark.end()]
                return piece[mark.end() :]
        self._size += len(piece)
        known = self._size < _HEAD or len(self._pieces) > 1 or _KNOWN.search(piece)
        if self._size > LARGEST or not known or len(self._open) > _DEEPEST:
            self.foreign = True
        return None

    def cut(self) -> str:
        """Return a cut document closed after its whole results; empty without any."""
        return self.text[: self._whole_result] + "]}" if self._whole_result else ""

    def _nested(self, what: str, size: int) -> bool:
        """Return whether this bracket closes the document."""
        if what in "{[":
            self._open.append(what)
            return False
        if self._open:
            self._open.pop()
        if what == "}" and self._open == ["{", "["]:
            self._whole_result = size
        return not self._open


def begins(line: str) -> bool:
    """Return whether a JSON document may begin with this line."""
    return _BEGIN.match(line[:_SHORT]) is not None


def read_document(text: str, line: int, *, cut: bool = False) -> runs.BenchmarkRun | None:
    """Return the run of a document; None for another document.

    `text`: one JSON document. `line`: where it begins. `cut`: the text is the rest of a cut document.
    """
    members = _members(text)
    results = members.get("results") if isinstance(members, dict) else None
    if not isinstance(members, dict) or not isinstance(results, list) or "config" not in members:
        return None
    config = _object(members["config"])
    run = runs.BenchmarkRun(line, table=True, begun=True, ended=not cut)
    named = _NAME.search(_text(_first(members.get("args"))).rpartition("/")[2])
    if named is not None and named[1] in runs.KNOWN_TESTS:
        run.op, run.op_from = named[1], "its arguments"
    run.nccl = _text(members.get("nccl_version"))
    run.version = f"JSON {_text(members.get('version'))}".strip()
    run.parameters = {ours: _text(config[name]) for name, ours in _PARAMETERS.items() if name in config}
    run.parameters["step"] = _text(config.get("step_factor", config.get("step_bytes", "")))
    run.parameters["step by"] = "factor" if "step_factor" in config else "bytes"
    run.registered = "-R" in _list(members.get("args"))
    run.settings = _settings(_list(members.get("env")))
    _devices(run, config)
    for result in results:
        _result(run, result)
    _end(run, members)
    return run


def _members(text: str) -> Any:
    """Parse with numbers as text, so that their last digit is known."""
    for form in (text, None):
        try:
            return json.loads(
                _INFINITE.sub(r'"\1inf"', text) if form is None else form,
                parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_without_iterations,
            )  # fmt: skip
        except (ValueError, RecursionError):
            continue
    return None


def _without_iterations(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if not name.endswith("_per_iter")}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _first(value: Any) -> Any:
    return next(iter(_list(value)), "")


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _settings(environment: Sequence[Any]) -> tuple[tuple[str, str], ...]:
    """Return NCCL's own settings; the rest of an environment may be secret and is left out."""
    pairs = (entry.partition("=") for entry in environment if isinstance(entry, str))
    return tuple(sorted((name, value) for name, _, value in pairs if name.startswith("NCCL_")))


def _devices(run: runs.BenchmarkRun, config: Mapping[str, Any]) -> None:
    """Add all devices: a process's others follow its first."""
    each = _whole(config.get("nthreads")) * _whole(config.get("ngpus")) or 1
    found: list[runs.RankGpu] = []
    for listed in _list(config.get("devices")):
        one = _object(listed)
        first, device = _whole(one.get("rank")), _whole(one.get("device"))
        group, pid = _whole(one.get("group")), _whole(one.get("pid"))
        host = _text(one.get("hostname"))
        product = _text(one.get("device_info")) or runs.NAMELESS
        if len(found) + each > runs.MOST_RANKS:
            break
        bus = _text(one.get("device_hex"))
        found += [
            runs.RankGpu(first + i, group, pid, host, device + i, "" if i else bus, product)
            for i in range(each)
        ]
    run.devices = tuple(found)


def _whole(value: Any) -> int:
    text = _text(value)
    return int(text) if _SMALL.fullmatch(text) else 0


def _result(run: runs.BenchmarkRun, result: Any) -> None:
    one = _object(result)
    size, count = _text(one.get("size")), _text(one.get("count"))
    placed = [_placed(run, one.get(name)) for name in ("out_of_place", "in_place")]
    if not all(map(runs.WHOLE.fullmatch, (size, count))) or placed == [None, None]:
        run.unread += 1
        return
    redop, root = _text(one.get("redop")), _text(one.get("root"))
    row = runs.BenchmarkRow(int(size), int(count), _text(one.get("type")), redop, root, placed[0], placed[1])
    if runs.contradiction(row, run.listed, run.op):
        run.unread += 1
    else:
        run.rows.add(row)


def _placed(run: runs.BenchmarkRun, value: Any) -> runs.RowTiming | None:
    one = _object(value)
    if not one:
        return None
    run.cputime = "cpu_time" in one
    time = _text(one.get("cpu_time") if run.cputime else one.get("time"))
    wrong = None if one.get("nwrong") is None else _text(one["nwrong"])
    unit = None if run.cputime else 1e-6
    return runs.timing(time, _text(one.get("alg_bw")), _text(one.get("bus_bw")), wrong, unit)


def _end(run: runs.BenchmarkRun, members: Mapping[str, Any]) -> None:
    bounds = _object(members.get("out_of_bounds"))
    average = _object(members.get("average_bus_bandwidth", members.get("average_bus_bandwidith")))
    if bounds:
        run.out_of_bounds = _whole(bounds.get("count"))
    if not bounds or "end_time" not in members:
        run.ended = False
    mean = runs.timing("0", _text(average.get("bandwidth", average.get("bandwidith"))), "0", None, None)
    run.average = mean.algbw if mean is not None else None
    if average.get("okay") == "false":
        run.remarks.append("the run's own bound on the average (NCCL_TESTS_MIN_BW) was not reached")
    errors = [_text(error)[:_SHORT] for error in _list(members.get("errors")) if _text(error)]
    run.remarks.extend(f"NCCL's last message: {error}" for error in errors[:5])


LINE = 1 << 16
"""Bytes read at once, and kept of a line; lines of nccl-tests and NCCL have some hundred."""
_CUT = "its JSON document stops in the middle"


def mixed_lines(file: BinaryIO, reader: Reader, name: str = "") -> Iterator[str]:
    """Yield the lines of a text, without their ends, after the reader has read them.

    The text may hold tables of nccl-tests, its JSON documents and NCCL's log, in any order. The reader takes
    the documents, and their lines become empty. At the end it finishes the reader. Raises OSError: the file
    cannot be read. Raises ValueError: it exceeds the memory limits.
    """
    given = reader.lines
    reader.places.begin(name, given + 1)
    for line in _mixed_lines(file, reader):
        yield from [""] * (reader.lines - given - 1)
        yield line
        given = reader.lines
    yield from [""] * (reader.lines - given)
    reader.finish()


def _mixed_lines(file: BinaryIO, reader: Reader) -> Iterator[str]:
    document: Assembler | None = None
    starts = True
    for piece, number in _pieces(file):
        begun, starts = starts, piece.endswith("\n")
        if document is None:
            if not begun:
                continue
            reader.places.note(reader.lines + 1, number)
            if not begins(piece):
                yield _read(piece, reader, whole=starts or len(piece) < LINE)
                continue
            document = Assembler()
        rest = document.take(piece)
        while rest is not None and not document.foreign:
            _add(document, reader)
            document, again = Assembler(), begins(rest)
            if not again:
                break
            rest = document.take(rest)
        if document.foreign:
            rest = document.text
        if rest is not None:
            document = None
            yield from _lines(rest, reader)
    if document is not None:
        yield from _lines(_unfinished(document, reader), reader)


_CONTAINER = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) std(?:out|err) ([FP]) ", re.ASCII)
"""Prefix of a container runtime (CRI) before a line, or before a part of a continued line."""
_LINES = ("log", "message", "msg", "MESSAGE", "textPayload", "line", "text", "body", "_raw")
"""Members that hold the program's line in JSON logs with an object for each line."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m", re.ASCII)


def _pieces(file: BinaryIO) -> Iterator[tuple[str, int]]:
    """Yield the text in parts that end with a line or have `LINE` bytes, without a runtime's wrapping.

    Each part has the number of its line in the file.
    """
    begun, start, number = "", "\ufeff", 1
    while part := file.readline(LINE):
        here, number = number, number + part.endswith(b"\n")
        text = _COLOUR.sub("", part.decode("utf-8", "replace").removeprefix(start))
        start = ""
        if wrapped := _CONTAINER.match(text):
            text = text[wrapped.end() :]
            if wrapped[1] == "P" and len(begun) < LINE:
                begun += text.rstrip("\r\n")
                continue
        elif text.startswith("{") and text.endswith("}\n"):
            text = _line_in(_members(text)) or text
        yield from ((line, here) for line in (begun + text).splitlines(keepends=True))
        begun = ""
    if begun:
        yield begun, number


def _line_in(value: Any, depth: int = 3) -> str:
    """Return the program's line in a log object; empty for others, such as a document of nccl-tests."""
    members = _object(value)
    found = [text for name in _LINES if isinstance(text := members.get(name), str)]
    if found or depth == 0 or "results" in members:
        return f"{found[0].rstrip()}\n" if found else ""
    return next(filter(None, (_line_in(one, depth - 1) for one in members.values())), "")


def _read(text: str, reader: Reader, *, whole: bool = True) -> str:
    line = text.rstrip("\r\n")
    reader.feed(line, whole=whole)
    return line


def _lines(text: str, reader: Reader) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip():
            yield _read(line[:LINE], reader, whole=len(line) <= LINE)


def _add(document: Assembler, reader: Reader) -> None:
    """Add a whole document."""
    lines = document.text.count("\n") + 1
    run = read_document(document.text, reader.lines + 1)
    if run is None:
        reader.pass_over(lines)
    else:
        reader.lines += lines
        reader.add(run)


def _unfinished(document: Assembler, reader: Reader) -> str:
    """Return an unfinished document at the end of the text as an incomplete run, else as text."""
    run = read_document(document.cut(), reader.lines + 1, cut=True)
    if run is None:
        return document.text
    run.failures.append(_CUT)
    reader.lines += document.text.count("\n") + 1
    reader.add(run)
    return ""
