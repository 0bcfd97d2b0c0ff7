"""GIDs of a port, and which of them NCCL takes by itself."""

from ipaddress import IPv6Address

import pytest

from tests.rows import each
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.settings.gids import V1, V2, Gid, common_index, read_gids, usual_gid

LOCAL, MAPPED, GLOBAL = "fe80::1", "::ffff:10.0.0.1", "fd00::1"


class Files:
    """Files of one port, by their name below it; GIDs need neither bytes nor links."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def read(self, path: str) -> str | Absent:
        return self.files.get(
            path.removeprefix("/sys/class/infiniband/mlx5_0/ports/1/"), Absent(Why.UNSUPPORTED)
        )

    def data(self, path: str) -> bytes | Absent:
        pytest.fail(f"a GID is text, and {path} was read as bytes")

    def entries(self, path: str) -> list[str] | Absent:
        return [name.rpartition("/")[2] for name in self.files if name.startswith("gids/")] or Absent(
            Why.DENIED, path
        )

    def link(self, path: str) -> str | Absent:
        pytest.fail(f"a GID is no link, and {path} was followed")


def table(*gids: tuple[str, str]) -> dict[int, Gid]:
    return {n: Gid(n, IPv6Address(text), kind) for n, (text, kind) in enumerate(gids) if text}


USUAL = table((LOCAL, V1), (LOCAL, V2), (MAPPED, V1), (MAPPED, V2))


def test_a_table_has_the_gids_that_are_not_empty() -> None:
    files = {
        "gids/0": LOCAL, "gids/1": "0000:0000:0000:0000:0000:0000:0000:0000", "gids/10": MAPPED,
        "gid_attrs/types/0": V1, "gid_attrs/types/10": V2, "gid_attrs/ndevs/10": "eth2",
    }  # fmt: skip
    found = read_gids(Files(files), "mlx5_0", "1")
    assert not isinstance(found, Absent)
    assert {n: (gid.version, gid.is_link_local, gid.is_ipv4) for n, gid in found.items()} == {
        0: (1, True, False), 10: (2, False, True),
    }  # fmt: skip
    assert (found[10].interface, str(found[10])) == ("eth2", "RoCE v2, IPv4 10.0.0.1")


@pytest.mark.parametrize("odd", ["²", "x", "-1", ""])
def test_what_is_no_number_is_no_index(odd: str) -> None:
    found = read_gids(Files({"gids/0": LOCAL, f"gids/{odd}": MAPPED}), "mlx5_0", "1")
    assert not isinstance(found, Absent)
    assert list(found) == [0]


def test_what_cannot_be_read_is_absent() -> None:
    assert isinstance(read_gids(Files({}), "mlx5_0", "1"), Absent)
    assert isinstance(read_gids(Files({"gids/0": "no address"}), "mlx5_0", "1"), Absent)


@each(
    ("gids", "index"),
    [
        (USUAL, 3), (table((LOCAL, V1), (LOCAL, V2)), 0), ({}, 0),
        (table((LOCAL, V1), (MAPPED, V2), (MAPPED, V1)), 1), (table((LOCAL, V1), ("", ""), (MAPPED, V1)), 2),
        (table((LOCAL, V1), (GLOBAL, V2)), 0), (table(("", ""), (MAPPED, V1)), 1),
        (table((MAPPED, V2), (MAPPED, V2)), 0),
    ],
)  # fmt: skip
def test_nccl_takes_version_2_of_an_ipv4_address(gids: dict[int, Gid], index: int) -> None:
    assert usual_gid(gids) == index


def test_an_index_is_common_where_it_is_right_on_every_port() -> None:
    moved = table((LOCAL, V1), (LOCAL, V2), (MAPPED, V2), (MAPPED, V2))
    assert common_index([USUAL, moved]) == 3
    assert common_index([moved]) == 2
    assert common_index([USUAL, table((LOCAL, V1))]) is None
    assert common_index([]) is None
