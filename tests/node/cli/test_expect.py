"""`wirewatch topology expect`: an [expect] section of a node on which all is well."""

import tomllib
from pathlib import Path

import pytest

from tests.processes import run_wirewatch
from tests.support import Node
from wirewatch.cli.topology import expect_section
from wirewatch.core.collector import NodeState
from wirewatch.core.types import Unusable

OK, FAILED, USAGE, CONFIG = 0, 2, 64, 78
DEMO = "demo-dgx-h200"


def test_a_good_node_says_what_nodes_like_it_have(tmp_path: Path) -> None:
    done = run_wirewatch("topology", "expect", "--replay", DEMO)
    assert (done.returncode, tomllib.loads(done.stdout)) == (
        OK, {"expect": {"gpus": 8, "nvlink_links": 18, "rdma_ports": 10}},
    )  # fmt: skip
    file = tmp_path / "pool.toml"
    file.write_text(done.stdout)
    again = run_wirewatch("topology", "expect", "--replay", DEMO, "--config", str(file))
    assert (again.returncode, again.stdout) == (OK, done.stdout)


def test_a_node_that_is_not_well_says_nothing_but_why(tmp_path: Path) -> None:
    (tmp_path / "down.toml").write_text(
        'about = "a link is down"\n[[change]]\nport = "nvml"\nmatch = "gpu2/Field(165,7)"\nset = 0\n'
    )
    done = run_wirewatch("topology", "expect", "--replay", DEMO, "--overlay", f"{tmp_path}/down.toml")
    assert (done.returncode, done.stdout) == (FAILED, "")
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("wirewatch: ")]
    assert line.startswith("wirewatch: no [expect] is made of a node that is FAILED: nvlink.link_down:")


def test_an_overlay_without_its_recording_is_refused() -> None:
    done = run_wirewatch("topology", "expect", "--overlay", "nvlink-link-down")
    assert (done.returncode, done.stdout) == (USAGE, "")


def test_ports_of_one_rate_have_it_and_counts_that_differ_are_left_out() -> None:
    node = Node(DEMO)
    node.change("gpu3/Field(165,[0-9])", "set", 0)
    node.poll("inventory", "topology")
    assert expect_section(node.state) == ("[expect]", "gpus = 8")


def test_without_gpus_there_is_nothing_to_expect() -> None:
    with pytest.raises(Unusable):
        expect_section(NodeState())
