"""NCCL's settings: /etc/nccl.conf as NCCL itself reads it, numbers, and the values that slow a node down."""

import pytest

from tests.rows import each
from wirewatch.core.pci import Path
from wirewatch.nccl.settings import (
    GDR_LEVEL,
    IB_OFF,
    TOPOLOGY,
    allows_hca,
    gdr_level,
    is_number,
    number,
    parse_nccl_conf,
    settings_of_environ,
    slowing_settings,
)

CONF = f"""\
# written by the site's tool

{GDR_LEVEL}=PXB
{TOPOLOGY}=/etc/nccl/topo.xml
#{IB_OFF}=1
NCCL_SOCKET_IFNAME==eth0
NCCL_DEBUG=
"""


def test_settings_are_read_and_comments_and_empty_lines_are_not() -> None:
    told = parse_nccl_conf(CONF)
    assert told.settings == {
        GDR_LEVEL: "PXB",
        TOPOLOGY: "/etc/nccl/topo.xml",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NCCL_DEBUG": "",
    }
    assert told.unknown == ()


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "#"])
def test_a_file_without_settings_sets_nothing(text: str) -> None:
    told = parse_nccl_conf(text)
    assert told.settings == {}
    assert told.unknown == ()


def test_a_file_may_end_without_a_line_end() -> None:
    assert parse_nccl_conf(CONF.rstrip("\n")).settings == parse_nccl_conf(CONF).settings


@each("line", ["NCCL_DEBUG INFO", "=1", "export NCCL_DEBUG", "[nccl]", "1NCCL=2", "A B=1"])
def test_a_line_that_sets_nothing_is_reported(line: str) -> None:
    told = parse_nccl_conf(f"NCCL_DEBUG=INFO\n{line}\n{GDR_LEVEL}=PHB\n")
    assert told.unknown == (line,)
    assert told.settings == {"NCCL_DEBUG": "INFO", GDR_LEVEL: "PHB"}


def test_of_two_settings_of_one_name_nccl_takes_the_first() -> None:
    """It sets its environment without overwriting."""
    assert parse_nccl_conf(f"{GDR_LEVEL}=PIX\n{GDR_LEVEL}=SYS\n").settings == {GDR_LEVEL: "PIX"}


def test_a_hash_inside_a_value_belongs_to_the_value() -> None:
    """Only a line that begins with one is a comment."""
    assert parse_nccl_conf("NCCL_TOPO_FILE=/etc/a#b.xml\n").settings == {TOPOLOGY: "/etc/a#b.xml"}


@each(
    ("value", "path"),
    [
        ("LOC", None), ("PIX", Path.PIX), ("PXB", Path.PXB), ("PHB", Path.NODE), ("SYS", Path.SYS),
        ("0", None), ("1", Path.PIX), ("2", Path.PXB), ("3", Path.NODE), ("4", Path.SYS),
    ],
)  # fmt: skip
def test_a_level_is_the_farthest_path_that_gpudirect_may_take(value: str, path: Path | None) -> None:
    assert gdr_level(value) == (True, path)


@pytest.mark.parametrize("value", ["5", "9", "100"])
def test_a_number_above_the_highest_is_the_highest(value: str) -> None:
    assert gdr_level(value) == (True, Path.SYS)


@each(("value", "path"), [("NVL", None), ("NVB", None), ("C2C", None), ("P2C", Path.PXB), ("PXN", Path.PXB)])
def test_a_path_that_only_nccl_knows_is_a_level_between_the_others(value: str, path: Path | None) -> None:
    """LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS (topoPathTypeStr): a NIC is never nearer than PIX."""
    assert gdr_level(value) == (True, path)


@pytest.mark.parametrize("value", ["pix", "Sys", "pHb"])
def test_a_level_in_small_letters_is_none_to_nccl(value: str) -> None:
    """It compares names letter by letter, and keeps its default for what it does not find."""
    assert gdr_level(value) == (False, None)


@each("value", ["", "NODE", "FAR", "-1", "PIX,PXB", "PIX ", "\u00b2"])
def test_what_is_no_level_is_not_known(value: str) -> None:
    assert gdr_level(value) == (False, None)


@each(
    ("text", "value"), [("16", 16), ("0x10", 16), ("010", 8), ("-1", -1), ("+4", 4), (" 7x", 7), ("yes", 0)]
)
def test_numbers_are_read_as_strtoll_reads_them(text: str, value: int) -> None:
    assert number(text) == value


def test_of_a_number_that_no_program_has_the_first_digits_are_read() -> None:
    assert number("1" * 40) == int("1" * 32)


@each("text", ["16", "0x10", "0", "00", " -7 ", "+4"])
def test_a_number_is_all_of_a_text(text: str) -> None:
    assert is_number(text)


@each("text", ["", "yes", "7x", "010", "1 2"])
def test_what_is_read_in_part_or_looks_like_another_is_no_number(text: str) -> None:
    assert not is_number(text)


@each(
    ("name", "slow", "fine"),
    [
        ("NCCL_MAX_NCHANNELS", "31", "32"), ("NCCL_MAX_CTAS", "31", "32"), ("NCCL_MIN_NCHANNELS", "33", "32"),
        ("NCCL_NTHREADS", "511", "512"), ("NCCL_LL128_NTHREADS", "639", "640"),
        ("NCCL_BUFFSIZE", "4194303", "4194304"), ("NCCL_NVLS_NCHANNELS", "15", "16"),
        ("NCCL_P2P_DISABLE", "1", "0"), ("NCCL_NVLS_ENABLE", "0", "1"), ("NCCL_P2P_LEVEL", "PHB", "SYS"),
        ("NCCL_P2P_LEVEL", "3", "4"), ("NCCL_SHM_DISABLE", "1", "0"), ("NCCL_NET", "Socket", "IB"),
        ("NCCL_CTA_POLICY", "1", "default"), ("NCCL_PROTO", "LL", "^LL"), ("NCCL_ALGO", "Tree", "Ring,NVLS"),
        ("NCCL_TOPO_FILE", "/etc/topo.xml", ""), ("NCCL_CTA_POLICY", "EFFICIENCY", ""),
        ("NCCL_MAX_NCHANNELS", "0x10", "0x20"),
    ],
)  # fmt: skip
def test_a_setting_slows_on_one_side_of_its_limit_alone(name: str, slow: str, fine: str) -> None:
    assert [told for told, _, _ in slowing_settings({name: slow})] == [name]
    assert slowing_settings({name: fine}) == ()


@each(
    ("value", "allowed"),
    [
        ("mlx5", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]), ("mlx5_1", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("=mlx5_1", ["mlx5_1:1", "mlx5_1:2"]), ("=mlx5_1:2", ["mlx5_1:2"]), ("mlx5_10", ["mlx5_10:1"]),
        ("^mlx5_10", ["mlx5_1:1", "mlx5_1:2"]), ("^=mlx5_1", ["mlx5_10:1"]), ("^mlx5", []),
        ("mlx4_0,mlx5_10:1", ["mlx5_10:1"]), ("mlx5_1:2,mlx5_1:1", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("mlx5_1:-1", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]), ("mlx5_1:x", []), (" mlx5_1", []),
        ("", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]), (",", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]), ("^", []),
        (":2", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
    ],
)  # fmt: skip
def test_a_list_of_hcas_is_read_as_nccl_reads_it(value: str, allowed: list[str]) -> None:
    """Beginnings of names, `=` for whole ones, `^` for what is left out, and a port or none."""
    every = [("mlx5_1", 1), ("mlx5_1", 2), ("mlx5_10", 1)]
    found = [f"{device}:{port}" for device, port in every if allows_hca(value, device, port)]
    assert found == allowed


def test_of_a_list_of_hcas_nccl_reads_no_more_than_it_has_room_for() -> None:
    others = ",".join(f"mlx4_{n}" for n in range(31))
    assert allows_hca(f"{others},mlx5_1", "mlx5_1", 1)
    assert not allows_hca(f"{others},mlx4_31,mlx5_1", "mlx5_1", 1)


def test_of_an_environment_nccls_settings_alone_are_kept_and_not_too_many() -> None:
    environ = b"NCCL_A=1\0PATH=/\0AWS_SECRET=x\0NCCL_A=2\0NCCL_B\0XNCCL_C=1\0\xff=\0NCCL_D=\xff\0NCCL_E=a=b"
    assert settings_of_environ(environ) == {"NCCL_A": "1", "NCCL_D": "\ufffd", "NCCL_E": "a=b"}
    kept = settings_of_environ(b"\0".join(b"NCCL_%d=%s" % (n, b"v" * 9999) for n in range(500)))
    assert len(kept) == 64
    assert max(map(len, kept.values())) == 200
