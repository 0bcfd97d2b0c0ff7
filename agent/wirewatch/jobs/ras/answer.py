"""Parse answers of NCCL's RAS: the JSON of 2.28.7 and later, and the text for people of 2.24 to 2.28.6.

Any local user may have written it. An answer is a value or an Absent; nothing here raises, and a text that is
not a report costs little memory. The text for people lists only exceptions. A rank that is like most of its
communicator has no line, and a communicator in which all is well has no hash. Of the rest only counts are
known.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, TypeVar

from wirewatch.core.jobs import RasCommunicator, RasCrowd, RasPhase, RasRank, RasReport
from wirewatch.core.types import Absent, Why

T = TypeVar("T")
LIMIT = 4 << 20
"""Bytes of an answer: a rank takes some 620, once for each communicator that it is in."""
OPS: Mapping[str, str] = {
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AllReduce": "all_reduce",
}
"""The operations that RAS counts, to the names that nccl-tests has for them."""
RESULTS = (
    "success", "unhandled CUDA error", "system error", "internal error", "invalid argument", "invalid usage",
    "remote error", "in progress",
)  # fmt: skip
"""ncclResult_t by number."""
_SUCCESS, _IN_PROGRESS = 0, 7
_DENSITY = 12
"""Least bytes to each comma or bracket: a report has 40, and what has fewer would take much memory."""
_COMMA = re.compile(r'("nvml_dev"\s*:\s*-?\d{1,10})(\s+"status"\s*:)', re.ASCII)
"""Where 2.28.7 to 2.28.9 leave a comma out, after each missing rank."""
_HASH = re.compile(r"0x[0-9a-f]{1,16}", re.ASCII)
_SECONDARY = re.compile(r"0x[0-9a-f]{1,16}:0x[0-9a-f]{1,16}", re.ASCII)
_HOST = re.compile(r"[0-9A-Za-z.:%_-]{1,64}", re.ASCII)
_VERSION = re.compile(r"[0-9A-Za-z.+_-]{1,32}", re.ASCII)
_PIDS, _RANKS, _DEVICES, _COUNT, _WORDS = 1 << 22, 1 << 20, 1 << 12, 1 << 64, 1 << 31
"""One above the greatest value of each kind."""


class _Odd(ValueError):
    """A part that is not what it should be; the text says which."""


def parse_ras_json(text: str, seconds: float = 0.0) -> RasReport | Absent:
    """A report of 2.28.7 or later; the comma that some of them leave out is put in.

    Returns:
        MALFORMED where the text is not such a report, and why not.
    """
    if len(text) > LIMIT:
        return Absent(Why.MALFORMED, f"RAS: an answer of more than {LIMIT} bytes")
    if sum(text.count(mark) for mark in ",[{") * _DENSITY > len(text) + 1024:
        return Absent(Why.MALFORMED, "RAS: too many members for a report of its length")
    mended, added = _COMMA.subn(r"\1,\2", text)
    try:
        report = json.loads(mended, parse_constant=_no_constant)
        communicators = tuple(_communicator(one) for one in _member(report, "communicators", list))
        ras = report.get("ras")
        timeouts = _number(ras, "timeouts_count", _WORDS) if isinstance(ras, dict) else 0
        return RasReport(
            _member(report, "nccl_version", str, _VERSION.fullmatch), communicators, seconds,
            repaired=added > 0, timeouts=timeouts, processes=_processes(communicators),
        )  # fmt: skip
    except (ValueError, RecursionError) as error:
        return Absent(Why.MALFORMED, f"RAS: {str(error)[:120]}")


def results(init: int, later: int) -> tuple[str, ...]:
    """The errors of a rank in words: of its start, and of what came after."""
    found = (("starting", init), ("running", later))
    return tuple(
        f"{RESULTS[code] if 0 <= code < len(RESULTS) else f'result {code}'} while {when}"
        for when, code in found
        if code not in {_SUCCESS, _IN_PROGRESS}
    )


def _no_constant(word: str) -> Any:
    raise _Odd(f"not a number: {word}")


def _communicator(value: Any) -> RasCommunicator:
    ranks = tuple(_rank(one) for one in _member(value, "ranks", list))
    missing = tuple(_missing(one) for one in _member(value, "missing_ranks", list))
    size = _number(value, "size", _RANKS)
    numbers = [one.rank for one in (*ranks, *missing)]
    if len(set(numbers)) != len(numbers) or any(number >= size for number in numbers):
        raise _Odd(f"ranks that are listed twice, or beyond a size of {size}")
    lost = sum(bool(one.missing) for one in missing)
    return RasCommunicator(
        _member(value, "hash", str, _HASH.fullmatch),
        _member(value, "secondary_hash", str, _SECONDARY.fullmatch), size, (*ranks, *missing), lost=lost,
    )  # fmt: skip


def _rank(value: Any) -> RasRank:
    status = _member(value, "status", dict)
    init, later = _number(status, "init_state", _WORDS), _number(status, "async_error", _WORDS)
    counts = _member(value, "collective_counts", dict)
    return RasRank(
        **_place(value),
        counts={op: _number(counts, name, _COUNT) for name, op in OPS.items() if name in counts},
        errors=results(init, later),
        phase=_phase(status, init),
    )


def _phase(status: Mapping[str, Any], init: int) -> RasPhase:
    if _member(status, "abort_flag", bool):
        return RasPhase.ABORTING
    if _member(status, "finalize_called", bool) or _member(status, "destroy_flag", bool):
        return RasPhase.FINALIZING
    return RasPhase.STARTING if init == _IN_PROGRESS else RasPhase.RUNNING


def _missing(value: Any) -> RasRank:
    """A rank without data: its process did not answer, or it answered and is not a member any more."""
    status = _member(value, "status", dict)
    dead, silent = _member(status, "considered_dead", bool), _member(status, "unresponsive", bool)
    why = "dead" if dead else "unresponsive" if silent else ""
    return RasRank(**_place(value), missing=why, phase=RasPhase.RUNNING if why else RasPhase.LEFT)


def _place(value: Any) -> dict[str, Any]:
    return {
        "rank": _number(value, "rank", _RANKS),
        "host": _member(value, "host", str, _HOST.fullmatch),
        "pid": _number(value, "pid", _PIDS, least=-1),
        "cuda": _number(value, "cuda_dev", _DEVICES, least=-1),
        "nvml": _number(value, "nvml_dev", _DEVICES, least=-1),
    }


def _processes(communicators: Sequence[RasCommunicator]) -> int:
    ranks = (rank for one in communicators for rank in one.ranks)
    return len({(rank.host, rank.pid) for rank in ranks if rank.pid != -1})


def _member(value: Any, name: str, kind: type[T], holds: Callable[[T], object] = lambda _: True) -> T:
    if not isinstance(value, dict) or name not in value:
        raise _Odd(f"no {name}")
    found = value[name]
    if type(found) is not kind or not holds(found):
        raise _Odd(f"a report has no valid {name}")
    return found


def _number(value: Any, name: str, below: int, least: int = 0) -> int:
    return _member(value, name, int, lambda number: least <= number < below)


ANY_OP = "collectives"
"""The op of counts before 2.26, which are of all operations together."""
_BANNER = re.compile(r"NCCL version ([0-9A-Za-z.+_-]{1,32}) compiled with CUDA [0-9.]+", re.ASCII)
_SUMMARY = re.compile(r" *\d{1,7} +\d{1,7} +\d{1,7} +(\d{1,7}) +\d{1,7}", re.ASCII)
_GROUP = re.compile(
    r" *(\d{1,5}) +(\d{1,6}) +\d{1,6} +[\d-]{1,9} +(\d{1,6}) +\d{1,7} +([A-Z]+) +([A-Z,]+)",
    re.ASCII,
)
_HEAD = re.compile(r"#(\d{1,5})-(\d{1,6}) \(([0-9a-f]{16})\) (INCOMPLETE|ERROR|MISMATCH)", re.ASCII)
_PLACE = (
    r"(?:GPU (?P<cuda>\d{1,4})(?: \(NVML (?P<nvml>\d{1,4})\))? managed by process (?P<pid>\d{1,7}) on node "
    r"(?P<host>[0-9A-Za-z.:%_-]{1,64})|\[process information not found\])"
)
_RANK = re.compile(
    r"  Rank (?P<rank>\d{1,6})(?: has status (?P<status>[A-Z]+)| has launched up to operation "
    r"(?P<launched>\d{1,19})|(?P<none> has not launched any operations)| reported (?P<error>[\w ]+?))? -- "
    + _PLACE,
    re.ASCII,
)
_MANY = re.compile(
    r"  (?P<ranks>\d{1,6}) ranks (?:have status (?P<status>[A-Z]+)|have launched up to operation "
    r"(?P<launched>\d{1,19})|(?P<none>have not launched any operations)|reported (?P<error>[\w ]{1,60}))",
    re.ASCII,
)
_COUNTS = re.compile(r"  Communicator ranks have different (\w+) operation counts", re.ASCII)
_LOST = re.compile(r"  Missing communicator data from (\d{1,6}) ranks?", re.ASCII)
_LOST_RANKS = re.compile(r"  The missing ranks?: ([\d, -]+)", re.ASCII)
_NAMES = re.compile(r"  Rank (\d{1,6}) has status [A-Z]+|  The unknown ranks: [\d, -]+", re.ASCII)
_PROCESS = re.compile(
    r"  Process (\d{1,7}) on node ([0-9A-Za-z.:%_-]{1,64}) managing GPUs? [\d,() NVML-]+", re.ASCII
)
_KNOWN = re.compile(
    r"(?:Errors|Warnings|Job summary|Communicators\.\.\. \([\d.]+s\)|INCOMPLETE|DEAD|TIMEOUT|=+|Group .*|"
    r" +# +in group.*|CUDA runtime version .*| *Nodes +Processes.*|\(total\).*|"
    r"  Missing communicator data from \d+ job process.*|  \d+ job process.*|  Encountered \d+ comm.*|"
    r"  Communicator ranks have different status|  (?:Initialization|Asynchronous) errors? on .*|"
    r"  \[could not find information on .*)"
)
_TIMEOUTS = re.compile(r"  Encountered (\d{1,6}) communication timeouts?", re.ASCII)
_PHASES: Mapping[str, RasPhase] = {
    "INIT": RasPhase.STARTING,
    "RUNNING": RasPhase.RUNNING,
    "FINALIZE": RasPhase.FINALIZING,
    "ABORT": RasPhase.ABORTING,
    "NOCOMM": RasPhase.LEFT,
    "UNKNOWN": RasPhase.LEFT,
}


@dataclass(frozen=True, slots=True)
class _RasGroup:
    """Communicators that are alike: how many, of how many ranks each, and what most are in."""

    count: int
    size: int
    phase: RasPhase


@dataclass
class _Listed:
    """A rank so far."""

    cuda: int = -1
    nvml: int = -1
    pid: int = -1
    host: str = "unknown"
    counts: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    lost: bool = False
    phase: RasPhase = RasPhase.RUNNING


@dataclass
class _Block:
    """A communicator so far; `open_crowd`: of the last line about many ranks, until a rank is listed."""

    hash: str
    kind: str = ""
    op: str = ANY_OP
    lost: int = 0
    ranks: dict[int, _Listed] = field(default_factory=dict)
    crowds: list[RasCrowd] = field(default_factory=list)
    many: Callable[[_Listed], None] | None = None
    open_crowd: RasCrowd | None = None

    def close(self) -> None:
        """The ranks of the last line that spoke of many have not been listed."""
        if self.open_crowd is not None:
            self.crowds.append(self.open_crowd)
        self.open_crowd, self.many = None, None


@dataclass
class _Reader:
    """The text so far."""

    nccl: str = ""
    processes: int = 0
    timeouts: int = 0
    odd: int = 0
    ended: bool = False
    summary: bool = False
    section: str = ""
    groups: dict[int, _RasGroup] = field(default_factory=dict)
    blocks: dict[tuple[int, int], _Block] = field(default_factory=dict)
    dead: set[tuple[str, int]] = field(default_factory=set)
    block: _Block | None = None

    def take(self, line: str) -> None:
        """One line more; each kind of line is looked for in turn."""
        steps = (self._header, self._head, self._of_block, self._process, self._known)
        self.odd += bool(line.strip()) and not any(step(line) for step in steps)

    def _header(self, line: str) -> bool:
        if match := _BANNER.fullmatch(line):
            self.nccl = match[1]
        elif line.startswith("(total)"):
            self.summary = True
        elif self.summary and (match := _SUMMARY.fullmatch(line)):
            self.processes, self.summary = int(match[1]), False
        elif match := _GROUP.fullmatch(line):
            phase = _PHASES.get(match[4], RasPhase.RUNNING)
            self.groups[int(match[1])] = _RasGroup(int(match[2]), int(match[3]), phase)
        else:
            return False
        return True

    def _head(self, line: str) -> bool:
        match = _HEAD.fullmatch(line)
        if match is None:
            return False
        self.leave()
        key = (int(match[1]), int(match[2]))
        self.block = self.blocks.setdefault(key, _Block(f"0x{int(match[3], 16):x}"))
        self.block.kind, self.block.op = match[4], ANY_OP
        return True

    def _of_block(self, line: str) -> bool:
        block = self.block
        if block is None:
            return False
        if match := _RANK.fullmatch(line):
            _of_rank(block, match)
        elif match := _MANY.fullmatch(line):
            block.close()
            _many(block, match)
        elif match := _COUNTS.fullmatch(line):
            block.op = OPS.get(match[1], ANY_OP)
        elif match := _LOST.fullmatch(line):
            block.lost = int(match[1])
        elif match := _LOST_RANKS.fullmatch(line):
            for number in re.findall(r"\d{1,6}", match[1]):
                block.ranks.setdefault(int(number), _Listed()).lost = True
        else:
            return _NAMES.fullmatch(line) is not None
        return True

    def _process(self, line: str) -> bool:
        match = _PROCESS.fullmatch(line)
        if match is not None and self.section == "DEAD":
            self.dead.add((match[2], int(match[1])))
        return match is not None

    def _known(self, line: str) -> bool:
        if not _KNOWN.fullmatch(line):
            return False
        if match := _TIMEOUTS.match(line):
            self.timeouts = int(match[1])
        if not line.startswith((" ", "=")):
            self.section = line
            self.ended |= line == "Warnings"
        return True

    def leave(self) -> None:
        """The communicator that was read of has ended."""
        if self.block is not None:
            self.block.close()
        self.block = None


def parse_ras_text(text: str, seconds: float = 0.0) -> RasReport | Absent:
    """A report of NCCL before 2.28.7.

    Returns:
        MALFORMED where it is not a report, or its end is missing.
    """
    if len(text) > LIMIT:
        return Absent(Why.MALFORMED, f"RAS: an answer of more than {LIMIT} bytes")
    reader = _Reader()
    for line in text.splitlines():
        reader.take(line.rstrip())
    reader.leave()
    if not reader.nccl or not reader.ended:
        return Absent(Why.MALFORMED, "RAS: no report, or one without its end")
    unknown = [key for key in reader.blocks if key[0] not in reader.groups]
    if unknown:
        return Absent(Why.MALFORMED, f"RAS: a communicator of a group that is not listed: {unknown[0]}")
    named = [
        _of_text(block, reader.groups[key[0]], reader.dead) for key, block in sorted(reader.blocks.items())
    ]
    seen = Counter(number for number, _ in reader.blocks)
    left = ((group, group.count - seen[number]) for number, group in reader.groups.items())
    rest = [
        RasCommunicator("", "", group.size, (), listed=False, alike=alike, phase=group.phase)
        for group, alike in left if alike > 0
    ]  # fmt: skip
    return RasReport(
        reader.nccl, (*named, *rest), seconds, timeouts=reader.timeouts, processes=reader.processes,
        odd=reader.odd,
    )  # fmt: skip


def _of_rank(block: _Block, match: re.Match[str]) -> None:
    """A line of one rank: what it says itself, or what the line above says of many."""
    rank = block.ranks.setdefault(int(match["rank"]), _Listed())
    if match["pid"] is not None:
        rank.cuda, rank.pid, rank.host = int(match["cuda"]), int(match["pid"]), match["host"]
        rank.nvml = rank.cuda if match["nvml"] is None else int(match["nvml"])
    if block.kind == "INCOMPLETE":
        rank.lost = True
        return
    own = _applied(block.op, match)
    if own is not None:
        own(rank)
    elif block.many is not None:
        block.open_crowd = None
        block.many(rank)


def _many(block: _Block, match: re.Match[str]) -> None:
    block.many = _applied(block.op, match)
    if match["launched"] is not None or match["none"] is not None:
        launched = int(match["launched"] or 0)
        block.open_crowd = RasCrowd(block.op, int(match["ranks"]), launched)


def _applied(op: str, match: re.Match[str]) -> Callable[[_Listed], None] | None:
    """Return how a line changes each rank that it is about."""
    if match["launched"] is not None or match["none"] is not None:
        launched = int(match["launched"] or 0)
        return lambda rank: rank.counts.update({op: launched})
    if match["status"] is not None:
        phase = _PHASES.get(match["status"], RasPhase.RUNNING)
        return lambda rank: setattr(rank, "phase", phase)
    if match["error"] is not None:
        error = match["error"]
        return lambda rank: rank.errors.append(error)
    return None


def _of_text(block: _Block, group: _RasGroup, dead: AbstractSet[tuple[str, int]]) -> RasCommunicator:
    ranks = []
    for number, one in sorted(block.ranks.items()):
        why = "" if not one.lost else "dead" if (one.host, one.pid) in dead else "unresponsive"
        place = (number, one.host, one.pid, one.cuda, one.nvml)
        ranks.append(RasRank(*place, one.counts, tuple(one.errors), why, one.phase))
    lost = max(block.lost, sum(one.lost for one in block.ranks.values()))
    return RasCommunicator(
        block.hash, "", group.size, tuple(ranks), tuple(block.crowds), listed=False, lost=lost,
        phase=group.phase,
    )  # fmt: skip
