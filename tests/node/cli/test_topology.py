"""`wirewatch topology show | diff` as a process: on recordings, documents and a running daemon."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.cli.schemas import complaints
from tests.node.daemon.process import FAST, Daemon
from tests.processes import run_wirewatch

OK, DEGRADED, FAILED, USAGE, NO_ANSWER = 0, 1, 2, 64, 69
DEMO = "demo-dgx-h200"
DOWN = 'about = "links are down"\n[[change]]\nport = "nvml"\nmatch = "gpu2/Field(165,[67])"\nset = 0\n'


def topology(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_wirewatch("topology", *arguments)


def shown(folder: Path, recording: str, name: str = "", **changes: Any) -> str:
    """A file with the document of a recording, its GPUs' first members changed."""
    done = topology("show", "--replay", recording, "--json")
    assert (done.returncode, done.stderr) == (OK, "")
    assert complaints("wirewatch.topology.1", done.stdout) == []
    document = json.loads(done.stdout)
    document["topology"] |= changes
    file = folder / f"{name or recording}.json"
    file.write_text(json.dumps(document), "utf-8")
    return str(file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("topology")


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[Daemon]:
    (folder / "down.toml").write_text(DOWN, "utf-8")
    config = FAST.replace('socket = ""', f'socket = "{folder}/w.sock"') + "[probe]\nenabled = false\n"
    with Daemon(("--replay", DEMO, "--overlay", f"{folder}/down.toml"), folder, config) as running:
        running.ready()
        yield running


# --- show


def test_a_recording_is_shown_to_people() -> None:
    done = topology("show", "--replay", DEMO)
    assert done.returncode == OK
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "recording demo-dgx-h200: 8 GPUs, 10 NICs"
    assert "island GPUs 0-7: switch" in lines
    assert "GPU 3 (...0003) NVIDIA H200 18 to the switch 0 0000:61:00.0 mlx5_3 (PIX)" in lines
    assert "mlx5_8 MT4129 28.41.1000 0 0000:29:00.0 1 Ethernet" in lines


def test_what_is_not_known_is_reported_as_such() -> None:
    done = topology("show", "--replay", "h200x8")
    assert "shape has no name: not known: " in " ".join(done.stdout.split())
    assert "not known:" in done.stdout.splitlines()


def test_nodes_built_alike_have_one_shape_and_names_of_their_own() -> None:
    told = [topology("show", "--replay", name).stdout.split() for name in ("h200x4-idle", "h200x4-traffic")]
    first, second = ([words[words.index(key) + 1] for key in ("shape", "node")] for words in told)
    assert first == second
    assert first[0] != first[1]


@pytest.mark.parametrize(("form", "first"), [("dot", "graph topology {"), ("mermaid", "flowchart TB")])
def test_it_is_drawn(form: str, first: str) -> None:
    done = topology("show", "--replay", DEMO, f"--{form}")
    assert done.returncode == OK
    assert done.stdout.splitlines()[0] == first
    assert "mlx5_9" in done.stdout


@pytest.mark.usefixtures("daemon")
def test_the_daemon_is_asked(folder: Path) -> None:
    done = topology("show", "--socket", f"{folder}/w.sock")
    assert done.stdout.startswith("this node, as its daemon knows it: 8 GPUs, 10 NICs")
    assert "16 to the switch" in done.stdout


def test_a_socket_that_was_named_must_answer(tmp_path: Path) -> None:
    done = topology("show", "--socket", f"{tmp_path}/none.sock")
    assert done.returncode == NO_ANSWER
    assert done.stderr == f"wirewatch: {tmp_path}/none.sock: no such socket; is the daemon running?\n"


# --- diff


def test_the_same_machine_at_another_moment_has_not_changed() -> None:
    done = topology("diff", "h200x4-idle", "h200x4-traffic")
    assert done.returncode == OK
    assert done.stdout.splitlines()[0] == "recording h200x4-idle -> recording h200x4-traffic: no change"


def test_another_machine_reads_as_one() -> None:
    done = topology("diff", "h200x1-idle", DEMO)
    assert done.returncode == DEGRADED
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "recording h200x1-idle -> recording demo-dgx-h200: 21 changes"
    assert lines[1].startswith("DEGRADED pcie_place GPU 2 (...0002) moved from pci0000:00 to pci0000:4c")
    assert "information gpu_new GPU 7 (...0007) is new: NVIDIA H200 at 0000:df:00.0" in lines


@pytest.mark.usefixtures("daemon")
def test_a_lost_link_is_failed_against_what_was_written_down(folder: Path) -> None:
    before = shown(folder, DEMO)
    done = topology("diff", before, "--socket", f"{folder}/w.sock")
    assert done.returncode == FAILED
    words = " ".join(done.stdout.split())
    assert "1 change FAILED nvlink_lost GPU 2 (...0002): NVLink 18 -> 16 links up, links 6, 7 down" in words


def test_it_has_a_document(folder: Path) -> None:
    before = shown(folder, DEMO, "older", versions=[["driver", "575.57.08"], ["kernel", ""]])
    done = topology("diff", before, DEMO, "--json")
    assert done.returncode == OK
    assert complaints("wirewatch.topology-diff.1", done.stdout) == []
    document = json.loads(done.stdout)
    assert [(one["kind"], one["part"], one["text"]) for one in document["changes"]] == [
        ("version", "driver", "driver 575.57.08 -> 580.159.04")
    ]
    assert (document["health"], document["before"]) == ("ok", "older.json")
    assert "older.json: kernel: version" in document["unknown"]


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "wirewatch.state/1"}', "not JSON"])
def test_what_is_no_topology_is_reported_in_a_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(text, "utf-8")
    done = topology("diff", str(file), DEMO)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert done.stderr == f"wirewatch: {file}: not a document wirewatch.topology/1\n"


def test_what_is_not_there_is_reported_in_a_line() -> None:
    done = topology("diff", "no-such-thing", DEMO)
    assert done.returncode == USAGE
    assert done.stderr == (
        "wirewatch: no-such-thing: neither a recording nor a document: No such file or directory\n"
    )


def test_a_document_from_before_the_first_reading_says_so(tmp_path: Path) -> None:
    file = tmp_path / "early.json"
    file.write_text('{"schema": "wirewatch.topology/1", "at": 1.0, "topology": null}', "utf-8")
    done = topology("diff", str(file), DEMO)
    assert done.returncode == USAGE
    assert "before the topology was read" in done.stderr
