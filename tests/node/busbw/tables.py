"""Rows of tables that nccl-tests printed on real machines."""

import re
from typing import NamedTuple

from tests.recorded import HERE

H200 = "h200x8/nccl-tests_{}.txt"
H100_FOUR = "published/nccltests.2.18.3.h100x4.allreduce.txt"
H100_TWO = "published/nccltests.2.18.3.h100x2.ring.tuning_log.txt"
A100 = "published/nccltests.v2.10era.superbench.allreduce.txt"
MIB, GIB = 1 << 20, 1 << 30
# Size, count, type, then operation and root as the version has them, then time, algbw, busbw out of place.
_ROW = re.compile(r"\s+(\d+)\s+\d+\s+float\s+\S+(?:\s+-?\d+(?=\s))?\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s.*")
_TORN = re.compile(r"\s+(\d+)\s+\d+\s+float\s+sum\s+-1\S.*NCCL INFO.*")
_REST = re.compile(r"\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+0\s*")


class Row(NamedTuple):
    """Seconds; bytes per second."""

    seconds: float
    algbw: float
    busbw: float


def rows(name: str) -> dict[int, Row]:
    """Rows out of place by size in bytes; a row torn by NCCL's log goes on at the next bare numbers."""
    found: dict[int, Row] = {}
    torn = 0
    for line in (HERE / name).read_text("utf-8").splitlines():
        if match := _ROW.fullmatch(line):
            size, numbers = int(match[1]), match.groups()[1:]
        elif match := _TORN.fullmatch(line):
            torn = int(match[1])
            continue
        elif torn and (match := _REST.fullmatch(line)):
            size, numbers, torn = torn, match.groups(), 0
        else:
            continue
        time, algbw, busbw = map(float, numbers)
        found.setdefault(size, Row(time * 1e-6, algbw * 1e9, busbw * 1e9))
    assert found
    return found
