"""What NCCL's RAS answers, read: the JSON of 2.28.7 and later. Any local user may have written it.

An answer is a value or an Absent; nothing here raises, and a text that is not a report costs little memory.
`nccl.rastext` reads what older versions print.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from wirewatch.core.jobs import RasCommunicator, RasPhase, RasRank, RasReport
from wirewatch.core.types import Absent, Why

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
        communicators = tuple(_communicator(one) for one in _list(report, "communicators"))
        ras = report.get("ras")
        timeouts = _number(ras, "timeouts_count", _WORDS) if isinstance(ras, dict) else 0
        return RasReport(
            _text(report, "nccl_version", _VERSION), communicators, seconds, repaired=added > 0,
            timeouts=timeouts, processes=_processes(communicators),
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
    ranks = tuple(_rank(one) for one in _list(value, "ranks"))
    missing = tuple(_missing(one) for one in _list(value, "missing_ranks"))
    size = _number(value, "size", _RANKS)
    numbers = [one.rank for one in (*ranks, *missing)]
    if len(set(numbers)) != len(numbers) or any(number >= size for number in numbers):
        raise _Odd(f"ranks that are listed twice, or beyond a size of {size}")
    lost = sum(bool(one.missing) for one in missing)
    return RasCommunicator(
        _text(value, "hash", _HASH), _text(value, "secondary_hash", _SECONDARY), size, (*ranks, *missing),
        lost=lost,
    )  # fmt: skip


def _rank(value: Any) -> RasRank:
    status = _dict(value, "status")
    init, later = _number(status, "init_state", _WORDS), _number(status, "async_error", _WORDS)
    counts = _dict(value, "collective_counts")
    return RasRank(
        **_place(value),
        counts={op: _number(counts, name, _COUNT) for name, op in OPS.items() if name in counts},
        errors=results(init, later),
        phase=_phase(status, init),
    )


def _phase(status: Mapping[str, Any], init: int) -> RasPhase:
    if _truth(status, "abort_flag"):
        return RasPhase.ABORTING
    if _truth(status, "finalize_called") or _truth(status, "destroy_flag"):
        return RasPhase.FINALIZING
    return RasPhase.STARTING if init == _IN_PROGRESS else RasPhase.RUNNING


def _missing(value: Any) -> RasRank:
    """A rank without data: its process did not answer, or it answered and is not a member any more."""
    status = _dict(value, "status")
    dead, silent = _truth(status, "considered_dead"), _truth(status, "unresponsive")
    why = "dead" if dead else "unresponsive" if silent else ""
    return RasRank(**_place(value), missing=why, phase=RasPhase.RUNNING if why else RasPhase.LEFT)


def _place(value: Any) -> dict[str, Any]:
    return {
        "rank": _number(value, "rank", _RANKS),
        "host": _text(value, "host", _HOST),
        "pid": _number(value, "pid", _PIDS, least=-1),
        "cuda": _number(value, "cuda_dev", _DEVICES, least=-1),
        "nvml": _number(value, "nvml_dev", _DEVICES, least=-1),
    }


def _processes(communicators: Sequence[RasCommunicator]) -> int:
    ranks = (rank for one in communicators for rank in one.ranks)
    return len({(rank.host, rank.pid) for rank in ranks if rank.pid >= 0})


def _member(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise _Odd(f"no {name}")
    return value[name]


def _list(value: Any, name: str) -> Sequence[Any]:
    found = _member(value, name)
    if not isinstance(found, list):
        raise _Odd(f"{name} is not a list")
    return found


def _dict(value: Any, name: str) -> Mapping[str, Any]:
    found = _member(value, name)
    if not isinstance(found, dict):
        raise _Odd(f"{name} has no members")
    return found


def _number(value: Any, name: str, below: int, least: int = 0) -> int:
    found = _member(value, name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found < below:
        raise _Odd(f"a report has no valid {name}")
    return found


def _truth(value: Any, name: str) -> bool:
    found = _member(value, name)
    if not isinstance(found, bool):
        raise _Odd(f"a report has no valid {name}")
    return found


def _text(value: Any, name: str, form: re.Pattern[str]) -> str:
    found = _member(value, name)
    if not isinstance(found, str) or not form.fullmatch(found):
        raise _Odd(f"a report has no valid {name}")
    return found
