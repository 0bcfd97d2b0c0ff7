"""Elements as bytes, and the values that the worker should put into them, worked out in plain Python."""

import struct
from collections.abc import Sequence

from wirewatch.core.probe import DTYPES

FORMATS = {
    "float32": "f", "float64": "d", "float16": "e", "int8": "b", "uint8": "B", "int32": "i", "int64": "q"
}  # fmt: skip


def value(i: int, rank: int, modulus: int) -> int:
    """Element i of a rank."""
    return 1 + (((i % 2**32) * 2654435761 % 2**32 >> 24) + rank) % modulus


def total(i: int, ranks: int, modulus: int) -> int:
    """The sum of element i over the ranks."""
    return sum(value(i, rank, modulus) for rank in range(ranks))


def encode(numbers: Sequence[float], dtype: str) -> bytes:
    """Numbers as elements: what is too large becomes infinite, integers wrap."""
    if dtype == "bfloat16":
        return b"".join(_float32(number)[2:] for number in numbers)
    if dtype.startswith("float"):
        return b"".join(_float(number, FORMATS[dtype]) for number in numbers)
    bits, signed = 8 * DTYPES[dtype], dtype != "uint8"
    wrapped = [int(number) % 2**bits for number in numbers]
    low = [n - 2**bits if signed and n >= 2 ** (bits - 1) else n for n in wrapped]
    return struct.pack(f"<{len(low)}{FORMATS[dtype]}", *low)


def decode(data: bytes, dtype: str) -> list[float]:
    """The numbers in elements."""
    if dtype == "bfloat16":
        return [struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // DTYPES[dtype]}{FORMATS[dtype]}", data))


def _float32(number: float) -> bytes:
    return _float(number, "f")


def _float(number: float, form: str) -> bytes:
    try:
        return struct.pack(f"<{form}", number)
    except OverflowError:
        return struct.pack(f"<{form}", float("inf"))
