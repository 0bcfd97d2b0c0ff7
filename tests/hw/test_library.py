"""NVML's own values as plain ones; on a machine without the library, that it is missing."""

import ctypes

import pytest

from tests.hw.machine import NO_NVML
from wirewatch.hw.nvml.library import Library, plain
from wirewatch.hw.nvml.protocol import LibraryError


class Inner(ctypes.Structure):
    _fields_ = (("raw", ctypes.c_ubyte * 3), ("numbers", ctypes.c_uint * 2))


class Outer(ctypes.Structure):
    _fields_ = (("inner", Inner), ("name", ctypes.c_char * 8), ("ratio", ctypes.c_double))


def test_a_structure_becomes_an_object_with_byte_arrays_in_hexadecimal() -> None:
    inner = Inner((ctypes.c_ubyte * 3)(0xDE, 0, 0xFF), (ctypes.c_uint * 2)(1, 2))
    assert plain(Outer(inner, b"H200", 0.5)) == {
        "inner": {"raw": "de00ff", "numbers": [1, 2]},
        "name": "H200",
        "ratio": 0.5,
    }


def test_an_object_of_our_own_stays_one() -> None:
    """As drained events are, and what a GPU did since the last look."""
    events = [{"number": 1, "uuid": "GPU-1", "xid": ctypes.c_uint(79)}]
    assert plain(events) == [{"number": 1, "uuid": "GPU-1", "xid": 79}]
    assert plain({"seconds": 7.5, "metrics": {"2": 93.4}}) == {"seconds": 7.5, "metrics": {"2": 93.4}}


@pytest.mark.parametrize("value", [None, True, 7, 2**64 - 1, 0.25, "text"])
def test_a_plain_value_stays(value: object) -> None:
    assert plain(value) is value


def test_bytes_become_a_text_and_numbers_of_c_numbers() -> None:
    assert plain([b"GPU-\xff", ctypes.c_uint(3), (1, 2)]) == ["GPU-\ufffd", 3, [1, 2]]


def test_a_pointer_is_nothing() -> None:
    assert plain(ctypes.pointer(ctypes.c_int(1))) is None


@NO_NVML
def test_a_missing_library_is_told_with_nvml_s_own_code() -> None:
    with pytest.raises(LibraryError, match=r"libnvidia-ml\.so\.1") as caught:
        Library()
    assert caught.value.code == 12
