"""NCCL's settings: how it reads numbers, and from which values on one slows a node down."""

import pytest

from wirewatch.nccl.settings import number, slowing_settings


@pytest.mark.parametrize(
    ("text", "value"), [("16", 16), ("0x10", 16), ("010", 8), ("-1", -1), ("+4", 4), (" 7x", 7), ("yes", 0)]
)
def test_numbers_are_read_as_strtoll_reads_them(text: str, value: int) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("name", "slow", "fine"),
    [
        ("NCCL_MAX_NCHANNELS", "31", "32"), ("NCCL_MAX_CTAS", "31", "32"), ("NCCL_MIN_NCHANNELS", "33", "32"),
        ("NCCL_NTHREADS", "511", "512"), ("NCCL_LL128_NTHREADS", "639", "640"),
        ("NCCL_BUFFSIZE", "4194303", "4194304"), ("NCCL_NVLS_NCHANNELS", "15", "16"),
        ("NCCL_P2P_DISABLE", "1", "0"), ("NCCL_NVLS_ENABLE", "0", "1"), ("NCCL_P2P_LEVEL", "PHB", "SYS"),
        ("NCCL_MAX_NCHANNELS", "0x10", "0x20"),
    ],
)  # fmt: skip
def test_a_setting_slows_on_one_side_of_its_limit_alone(name: str, slow: str, fine: str) -> None:
    assert [told for told, _, _ in slowing_settings({name: slow})] == [name]
    assert slowing_settings({name: fine}) == ()
