"""What the numbers of NVML and of the kernel mean to us."""

import errno

import pytest

from wirewatch.core.types import Why
from wirewatch.hw.nvml.protocol import CODES, SESSION_ENDED, LibraryError, absent_code
from wirewatch.hw.sysfs import absent_errno


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (3, Why.UNSUPPORTED),
        (4, Why.DENIED),
        (10, Why.TIMEOUT),
        (12, Why.MISSING),
        (13, Why.UNSUPPORTED),
        (15, Why.LOST),
        (16, Why.LOST),
        (999, Why.MALFORMED),
        (12345, Why.MALFORMED),
    ],
)
def test_an_nvml_code_becomes_a_reason_that_keeps_the_code(code: int, why: Why) -> None:
    absent = absent_code(code)
    assert (absent.why, absent.code) == (why, code)
    assert str(code) in absent.detail


def test_a_session_never_ends_for_what_only_a_field_or_a_gpu_says() -> None:
    assert {CODES[code][0] for code in SESSION_ENDED}.isdisjoint({Why.UNSUPPORTED, Why.DENIED, Why.TIMEOUT})


def test_a_library_that_cannot_be_used_says_so_in_words() -> None:
    assert "libnvidia-ml.so.1" in str(LibraryError(12))


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.ENOENT, Why.MISSING),
        (errno.ENODEV, Why.LOST),
        (errno.EACCES, Why.DENIED),
        (errno.EPERM, Why.DENIED),
        (errno.EINVAL, Why.UNSUPPORTED),
        (errno.ETIMEDOUT, Why.TIMEOUT),
        (errno.EIO, Why.MALFORMED),
        (99_999, Why.MALFORMED),
    ],
)
def test_an_errno_becomes_a_reason_that_names_the_file_and_keeps_the_number(number: int, why: Why) -> None:
    absent = absent_errno(number, "/sys/class/net/eth0/speed")
    assert (absent.why, absent.code) == (why, number)
    assert "/sys/class/net/eth0/speed" in absent.detail
