"""What NCCL makes of values: numbers as strtoll reads them, words as they stand, and nobody is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch.nccl.variables import variable
from wirewatch_lab.advice.settings.sources import misread


def read(name: str, value: str) -> str:
    known = variable(name)
    assert known is not None
    return misread(known, value)


@each(
    ("name", "value", "words"),
    [
        ("NCCL_BUFFSIZE", "4M", "read as 4: NCCL takes the number at the start; write 4194304"),
        ("NCCL_BUFFSIZE", "64KiB", "read as 64: NCCL takes the number at the start; write 65536"),
        ("NCCL_IB_DISABLE", "yes", "read as 0: NCCL takes the number at the start; write 1"),
        ("NCCL_P2P_DISABLE", "False", "read as 0: NCCL takes the number at the start; write 0"),
        ("NCCL_IB_TIMEOUT", "on", "read as 0: NCCL takes the number at the start; write a number"),
        ("NCCL_IB_TIMEOUT", "022", "read as 18: NCCL takes the number at the start, to base 8; write 22"),
        ("NCCL_IB_TIMEOUT", "32", "not from 0 to 31"),
        ("NCCL_CROSS_NIC", "3", "not from 0 to 2"),
        ("NCCL_NTHREADS", "250", "not a multiple of 32: NCCL takes 512"),
        ("NCCL_NTHREADS", "1024", "not from 64 to 512: NCCL takes 512"),
        ("NCCL_NTHREADS", "32", "not from 64 to 512: NCCL takes 64"),
        ("NCCL_BUFFSIZE", "'1'", "the quotes are part of the value: NCCL does not remove them"),
        ("NCCL_DEBUG", '"INFO"', "the quotes are part of the value: NCCL does not remove them"),
        ("NCCL_DEBUG", "DEBUG", "not one of VERSION, WARN, INFO, ABORT, TRACE: NCCL ignores it"),
        ("NCCL_DEBUG", " INFO", "not one of VERSION, WARN, INFO, ABORT, TRACE: NCCL ignores it"),
        ("NCCL_DEBUG_SUBSYS", "INIT,NETWORK", "NCCL has no subsystem NETWORK"),
        ("NCCL_DEBUG_SUBSYS", "A,,B", "NCCL has no subsystem A, B"),
        ("NCCL_DEBUG", '"INFO', "the quotes are part of the value: NCCL does not remove them"),
        ("NCCL_DEBUG", "INFO'", "the quotes are part of the value: NCCL does not remove them"),
        ("NCCL_BUFFSIZE", "1073741823K", "read as 1073741823: NCCL takes the number at the start"),
        ("NCCL_IB_TC", "9999999K", "read as 9999999: NCCL takes the number at the start; write 10239998976"),
        ("NCCL_IB_TIMEOUT", "\u0662", "read as 0: NCCL takes the number at the start"),
        ("NCCL_BUFFSIZE", "4T", "read as 4: NCCL takes the number at the start"),
        ("NCCL_BUFFSIZE", "k", "read as 0: NCCL takes the number at the start"),
        ("NCCL_BUFFSIZE", "many", "read as 0: NCCL takes the number at the start"),
        ("NCCL_NVLS_ENABLE", "off", "read as 0: NCCL takes the number at the start; write 0"),
        ("NCCL_IB_QPS_PER_CONNECTION", "0", "not from 1 to 128"),
        ("NCCL_MAX_CTAS", "65", "not from 1 to 64"),
    ],
)  # fmt: skip
def test_a_value_that_is_read_otherwise_is_reported(name: str, value: str, words: str) -> None:
    assert read(name, value) == words


@pytest.mark.parametrize("value", ["5", "9", "4"])
def test_a_high_number_of_a_level_means_sys(value: str) -> None:
    """A public guide calls 5 the level of full GPUDirect RDMA."""
    assert read("NCCL_NET_GDR_LEVEL", value).startswith("the old number for SYS, the farthest path of all")


@pytest.mark.parametrize(("value", "near"), [("pxb", "; write PXB"), ("PXB ", "; write PXB"), ("far", "")])
def test_a_level_counts_letter_by_letter(value: str, near: str) -> None:
    assert read("NCCL_P2P_LEVEL", value) == (
        f"not a path such as PIX, PXB, PHB or SYS, in capitals and without spaces: NCCL ignores it{near}"
    )


@each(
    ("name", "value"),
    [
        ("NCCL_BUFFSIZE", "4194304"), ("NCCL_BUFFSIZE", "0x400000"), ("NCCL_BUFFSIZE", " 4194304 "),
        ("NCCL_IB_GID_INDEX", "3"), ("NCCL_IB_GID_INDEX", "-1"), ("NCCL_IB_SL", "-1"), ("NCCL_DEBUG", "info"),
        ("NCCL_NET_GDR_LEVEL", "PHB"), ("NCCL_DEBUG_SUBSYS", "^init,net"), ("NCCL_NTHREADS", "256"),
        ("NCCL_NVLS_ENABLE", ""), ("NCCL_IB_DISABLE", "0"), ("NCCL_SOCKET_IFNAME", "=eth0"),
        ("NCCL_NTHREADS", "0"), ("NCCL_NTHREADS", "-1"), ("NCCL_NTHREADS", "64"), ("NCCL_NTHREADS", "512"),
        ("NCCL_IB_TIMEOUT", "31"), ("NCCL_IB_TIMEOUT", "0"), ("NCCL_IB_TIMEOUT", "-2"),
        ("NCCL_DEBUG_SUBSYS", "ALL"),
        ("NCCL_IB_QPS_PER_CONNECTION", "128"), ("NCCL_MAX_CTAS", "1"), ("NCCL_MAX_CTAS", "64"),
    ],
)  # fmt: skip
def test_a_value_that_is_read_as_it_stands_is_not(name: str, value: str) -> None:
    assert read(name, value) == ""


@given(st.integers(-(2**62), 2**62))
def test_a_whole_number_is_read_as_it_stands(value: int) -> None:
    assert read("NCCL_BUFFSIZE", str(value)) == ""


@given(st.sampled_from(["NCCL_BUFFSIZE", "NCCL_DEBUG", "NCCL_NTHREADS", "NCCL_P2P_LEVEL"]), st.text())
def test_any_value_is_words(name: str, value: str) -> None:
    assert isinstance(read(name, value), str)
