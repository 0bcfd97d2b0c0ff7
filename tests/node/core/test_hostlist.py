"""Slurm's short form of host names: what scontrol reads and writes, and any set of names there and back."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.rows import each
from wirewatch.core.hostlist import HostlistError, compact, expanded, natural

NAMES = st.from_regex(r"[a-z]{1,3}-?[0-9]{0,4}(n[0-9]{1,2})?(-ib|\.x)?", fullmatch=True)


@each(
    ("text", "names"),
    [
        ("gpu[001-003,007],a.b", "gpu001 gpu002 gpu003 gpu007 a.b"),
        ("rack[1-2]node[01-02]", "rack1node01 rack1node02 rack2node01 rack2node02"),
        ("a[1-2][3-4]", "a13 a14 a23 a24"),
        ("n[9-11]", "n9 n10 n11"),
        ("n[09-11]", "n09 n10 n11"),
        ("n[001-3]", "n001 n002 n003"),
        ("login", "login"),
    ],
)
def test_lists_are_read_as_scontrol_reads_them(text: str, names: str) -> None:
    assert " ".join(expanded(text)) == names


@each(
    ("names", "text"),
    [
        ("gpu9 gpu10 gpu11 gpu8", "gpu[8-11]"),
        ("gpu099 gpu100 gpu1000 gpu1001 gpu0999", "gpu[099-100,0999-1001]"),
        ("gpu1-ib gpu2-ib", "gpu1-ib,gpu2-ib"),
        ("gpu1.a gpu1 gpu2", "gpu[1-2],gpu1.a"),
        ("r1n1 r1n2 r2n1", "r1n[1-2],r2n1"),
        ("n1 n01 n2 n02", "n[01,1,02,2]"),
        ("gpu7", "gpu7"),
        ("", ""),
    ],
)
def test_lists_are_written_with_their_padding(names: str, text: str) -> None:
    assert compact(names.split()) == text


@each(
    "text",
    ["", "a,,b", "a b", "gpu[1-3]-ib", "n[3-1]", "n[]", "n[1-", "a[1-99999]", "x[1-999][1-999]", "ä1", "-a"],
)
def test_what_is_no_list_is_one_line(text: str) -> None:
    with pytest.raises(HostlistError) as caught:
        expanded(text)
    assert str(caught.value).isprintable()


@settings(max_examples=examples(100), deadline=None)
@given(st.sets(NAMES, max_size=12))
def test_any_names_come_back(names: set[str]) -> None:
    text = compact(names)
    assert set(expanded(text) if names else ()) == names
    assert compact(sorted(names, reverse=True)) == text
    assert sorted(names, key=natural) == sorted(sorted(names), key=natural)


def test_names_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["mlx5_10", "mlx5_9", "ibp1"], key=natural) == ["ibp1", "mlx5_9", "mlx5_10"]


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="Slurm is not installed")
def test_scontrol_agrees(tmp_path: Path) -> None:
    config = tmp_path / "slurm.conf"
    nodes = "NodeName=a NodeAddr=127.0.0.1\nPartitionName=p Nodes=ALL\n"
    config.write_text(f"ClusterName=t\nSlurmctldHost=localhost(127.0.0.1)\nAuthType=auth/none\n{nodes}")
    several = expanded("gpu[099-100,0999,1000-1001],r1n[1-2],gpu1-ib,gpu2-ib,n1,n01,x[9-11]")
    asked = ("scontrol", "show", "hostnames", compact(several))
    done = subprocess.run(asked, env={"SLURM_CONF": str(config)}, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(several)
    assert done.stdout.split() == list(expanded(compact(several)))
