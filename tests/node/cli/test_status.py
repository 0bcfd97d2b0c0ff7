"""`wirewatch status`: its document, its lines, and the command with and without a daemon."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.node.cli.schemas import complaints
from tests.node.cli.terminal import in_terminal
from tests.node.cli.topnodes import collector, finding, series, snapshot
from tests.node.daemon.process import FAST, Daemon
from tests.node.jobs.explain.drawn import NOW, evidence, job
from tests.processes import run_wirewatch
from wirewatch.cli import cli
from wirewatch.cli.status import _text, status_lines
from wirewatch.core.probe import PastProbe
from wirewatch.documents.health import Gate, StatusDocument
from wirewatch.documents.probed import refused
from wirewatch.documents.probes import CollectiveResult, ProbesDocument
from wirewatch.documents.state import Series
from wirewatch.documents.status import NodeSnapshot, status

OK, DEGRADED, FAILED, UNKNOWN, USAGE, NO_ANSWER = 0, 1, 2, 3, 64, 69
DEMO = ("--replay", "demo-dgx-h200")
OPEN = Gate(open=True, reason="", meaning="", detail="", engine="nccl")
BUSY = Gate(open=False, reason="busy", meaning="", detail="GPU 3 is used by process 4711", engine="nccl")


def result(op: str, size: int, ranks: int = 8, expected: float | None = 349.5e9) -> CollectiveResult:
    return CollectiveResult(
        op, size, ranks, "all", 0.001, 347.2e9, 348e9, 346e9, 0, "ring", "simple", expected,
        None if expected is None else 347.2e9 / expected, 0.7, "ring", "measured", [],
    )  # fmt: skip


def probes(*results: CollectiveResult, gate: Gate = OPEN) -> ProbesDocument:
    last = replace(refused(None, NOW - 240), outcome="ok", results=list(results)) if results else None
    past: list[PastProbe] = []
    return ProbesDocument("wirewatch.probes/1", NOW, gate, fresh=True, last=last, past=past)


def node(*samples: Series, base: NodeSnapshot | None = None) -> NodeSnapshot:
    """Eight GPUs and what a fabric, PCI and GPUDirect have beside them."""
    base = base or snapshot()
    more = [collector("infiniband", NOW - 5, *samples), collector("probe", NOW)]
    return replace(base, state=replace(base.state, collectors=[*base.state.collectors, *more]))


def port(number: int, state: str = "active", rate: float = 50e9, due: float = 50e9) -> list[Series]:
    place = {"device": f"mlx5_{number}", "port": "1"}
    return [
        Series("wirewatch_rdma_port_state", {**place, "state": "down"}, float(state == "down")),
        Series("wirewatch_rdma_port_state", {**place, "state": "active"}, float(state == "active")),
        Series("wirewatch_rdma_port_rate_bytes_per_second", place, rate),
        Series("wirewatch_rdma_port_rate_expected_bytes_per_second", place, due),
    ]


def texts(document: StatusDocument) -> dict[str, str]:
    """The first line of each head."""
    found: dict[str, str] = {}
    head = ""
    for line in status_lines(document):
        head = line.head or head
        found[head] = "; ".join(filter(None, (found.get(head), line.text)))
    return found


def test_eight_gpus_with_all_links() -> None:
    lines = texts(status(node(), probes(result("all_reduce", 256 << 20)), "daemon"))
    assert lines["OK"] == "a job may start"
    assert lines["NVLink"] == "144 of 144 links up"
    assert lines["GPUs"].endswith("40 C, 600 to 607 W, 93 to 100 % busy")
    assert lines["probe"] == "all_reduce of 256 MiB: 347.2 GB/s, 99 % of 349.5 expected; 4 min ago"
    assert lines["read"] == "gpu, nvlink, probe 0 s ago; infiniband 5 s ago"
    assert lines["findings"] == "none"


def test_parts_that_are_not_as_they_should_be_are_named() -> None:
    low = node(*port(0), *port(1, "down"), *port(2, rate=25e9))
    gpus = low.state.collectors[1]
    links = [replace(s, value=16.0) if s == series("nvlink_links", 2, 17, state="active") else s
             for s in gpus.samples]  # fmt: skip
    low.state.collectors[1] = replace(gpus, samples=links)
    lines = texts(status(low, probes(), "daemon"))
    assert lines["NVLink"] == "143 of 144 links up; GPU 2 has 17 of 18"
    assert lines["ports"] == (
        "2 of 3 active: 1 with 400 Gb/s, 1 with 200 Gb/s; "
        "mlx5_1 port 1 is down, mlx5_2 port 1 has 200 of 400 Gb/s"
    )
    tones = {line.head: line.tone for line in status_lines(status(low, probes(), "daemon"))}
    assert (tones["NVLink"], tones["ports"], tones["jobs"]) == ("degraded", "degraded", "quiet")


def test_many_bad_parts_are_counted() -> None:
    down = node(*(one for number in range(8) for one in port(number, "down")))
    assert texts(status(down, probes(), "daemon"))["ports"] == (
        "none active; mlx5_0 port 1 is down, mlx5_1 port 1 is down, mlx5_2 port 1 is down and 5 more"
    )


def test_pcie_lanes_and_gpudirect() -> None:
    samples = [one for n in range(8) for one in (
        series("pcie_generation", n, 5), series("pcie_generation_max", n, 5),
        series("pcie_width", n, 8 if n == 1 else 16), series("pcie_width_max", n, 16))]  # fmt: skip
    checks = [Series("wirewatch_gpudirect_check_state", {"check": check, "state": state}, 1.0)
              for check, state in (("acs", "failed"), ("iommu", "passed"))]  # fmt: skip
    checks += [Series("wirewatch_gpudirect_check_state", {"check": "iommu", "state": "failed"}, 0.0)]
    paths = [Series("wirewatch_gpu_nic_path_info",
                    {"gpu": str(n), "device": f"mlx5_{n}", "path": "PIX", "nearest": near}, 1.0)
             for n in range(8) for near in ("true", "false")]  # fmt: skip
    lines = texts(status(node(*samples, *checks, *paths), probes(), "daemon"))
    assert lines["PCIe"] == "7 with generation 5 x16, 1 with generation 5 x8; GPU 1 could have x16"
    assert lines["GPUDirect"] == "1 of 2 checks passed; acs failed"
    assert lines["paths"] == "GPU to its nearest NIC: PIX"


def test_the_headline_is_the_largest_all_reduce_of_most_gpus() -> None:
    many = (result("all_gather", 1 << 30), result("all_reduce", 8), result("all_reduce", 512 << 20, 4),
            result("all_reduce", 256 << 20, expected=None))  # fmt: skip
    document = status(node(), probes(*many, gate=BUSY), "daemon")
    assert document.probe is not None
    assert (document.probe.size_bytes, document.probe.ranks) == (256 << 20, 8)
    assert texts(document)["probe"] == (
        "all_reduce of 256 MiB: 347.2 GB/s, nothing is expected here; 4 min ago; "
        "none now: GPU 3 is used by process 4711"
    )


def test_a_node_without_values_says_so_and_has_no_zero() -> None:
    base = snapshot(gpus=0)
    blind = [replace(one, success=False, error="the driver is gone", last_success=0.0, samples=[])
             for one in base.state.collectors]  # fmt: skip
    lines = texts(status(replace(base, state=replace(base.state, collectors=blind)), probes(), "daemon"))
    assert lines["GPUs"] == "none has been read"
    assert (lines["NVLink"], lines["PCIe"], lines["ports"]) == ("not known", "not known", "no RDMA port")
    assert lines["read"] == "nothing yet; not read now: gpu, nvlink: the driver is gone"
    assert lines["probe"] == "switched off"


def test_findings_and_jobs_are_there_and_many_are_counted() -> None:
    base = snapshot(evidence(job()), findings=[finding(n % 8) for n in range(7)])
    lines = texts(status(base, probes(), "daemon"))
    assert lines["jobs"].startswith("slurm:4711 on 4 GPUs (")
    assert lines["findings"].count("FAILED nvlink.link_down GPU") == 5
    assert lines["findings"].endswith("2 more: `wirewatch findings list`")
    assert lines["FAILED"].startswith("no job may start: nvlink.link_down GPU 0")
    assert "Next: `wirewatch findings show " in lines["FAILED"]


@pytest.mark.parametrize("width", [32, 40, 80, 110])
def test_no_line_is_wider_than_the_terminal_and_none_commands_it(width: int) -> None:
    base = snapshot(findings=[finding(2, text="x\x1b[2J evidence " * 30)])
    lines = list(_text(status(base, probes(), "own", "why\nwhy " * 30), width))
    assert max(map(len, lines)) <= width
    assert all(line.isprintable() for line in lines)


# --- the command


@pytest.mark.parametrize(
    ("overlays", "code", "told"),
    [
        ((), OK, "144 of 144 links up"),
        (("nvlink-link-down",), FAILED, "143 of 144 links up; GPU 2 has 17 of 18"),
        (("gpu-throttle-thermal",), DEGRADED, "gpu.throttle GPU 3"),
        (("gpu-busy",), OK, "none now: GPU 3 is used by process 4711"),
    ],
)
def test_a_recording_is_played_to_its_verdict(overlays: tuple[str, ...], code: int, told: str) -> None:
    options = [word for name in overlays for word in ("--overlay", name)]
    done = run_wirewatch("status", *DEMO, *options)
    assert (done.returncode, done.stderr) == (code, "")
    assert told in " ".join(done.stdout.split())
    lines = done.stdout.splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 80
    heads = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert overlays or heads == [
        "OK", "GPUs", "NVLink", "PCIe", "ports", "paths", "GPUDirect", "probe", "jobs", "findings",
    ]  # fmt: skip


def test_the_document_of_a_daemon_is_as_its_schema_says(tmp_path: Path) -> None:
    path = f"{tmp_path}/w.sock"
    config = FAST.replace('socket = ""', f'socket = "{path}"')
    with Daemon(("--replay", "h200x4-idle"), tmp_path, config) as running:
        running.ready()
        told = run_wirewatch("status", "--socket", path, "--json")
        text = run_wirewatch("status", "--socket", path)
    assert (told.returncode, told.stderr) == (OK, "")
    assert complaints("wirewatch.status.1", told.stdout) == []
    document = json.loads(told.stdout)
    assert (document["by"], document["source"], len(document["gpus"])) == ("daemon", "replay", 4)
    assert "72 of 72 links up" in text.stdout
    assert re.search(r"read +.*nvlink.* \d+ s ago", text.stdout.replace("\n", " "))
    gone = run_wirewatch("status", "--socket", path)
    assert (gone.returncode, gone.stdout) == (NO_ANSWER, "")
    assert len(gone.stderr.splitlines()) == 1


def test_without_a_daemon_the_node_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text(f'[listen]\nsocket = "{tmp_path}/none.sock"\n', "utf-8")
    done = run_wirewatch("status", "--config", str(file))
    assert done.stderr == ""
    host = os.uname().nodename
    assert f"; on {host}" in " ".join(done.stdout.split())
    for command in ("status", "check"):
        document = json.loads(run_wirewatch(command, "--json", "--config", str(file)).stdout)
        assert document["host"] == host
    assert "read once by this command, since no daemon answers" in " ".join(done.stdout.split())
    if not os.path.exists("/dev/nvidiactl"):  # noqa: PTH110
        assert done.returncode == UNKNOWN
        assert "`wirewatch demo` shows a node with GPUs" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--overlay", "gpu-busy"), "give --replay too"),
        ((*DEMO, "--socket", "x"), "either --replay or --socket"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[str, ...], told: str) -> None:
    done = run_wirewatch("status", *words)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert told in done.stderr


@pytest.mark.parametrize(
    ("variables", "colour"), [({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_is_for_terminals_without_no_color(variables: dict[str, str], *, colour: bool) -> None:
    words = ["status", "--replay", "h200x2-idle"]
    program = f"import sys; from wirewatch.cli import run; sys.exit(run({words}))"
    code, out = in_terminal(program, b"", **variables)
    assert code == OK
    assert b"36 of 36 links up" in out
    # What is under way is erased without colours.
    assert (re.search(rb"\x1b\[[0-9;]*m", out) is not None) is colour


def test_the_runner_of_click_gives_the_same_as_the_process() -> None:
    done = CliRunner().invoke(cli, ["status", "--replay", "h200x2-idle"])
    assert done.exit_code == OK
    assert "36 of 36 links up" in done.output
