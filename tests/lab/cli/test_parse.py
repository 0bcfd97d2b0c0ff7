"""`wirewatch parse`: what it says of nccl-tests' output, its exit codes, and inputs that are none."""

import json
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.examples import examples
from tests.fuzzing import damaged
from tests.lab.study import printed
from tests.lab.study.jobs import DrawnJob
from tests.lab.study.printed import Job, Written
from tests.lab.study.test_judge import of_busbw
from tests.lab.study.test_nccljson import FORMS
from tests.lab.study.test_nccltests import torn
from tests.lab.study.topologies import gpu, nic, system
from tests.node.cli.checks import noted
from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import refused
from tests.processes import run_wirewatch
from tests.recorded import PUBLISHED
from tests.rows import each
from wirewatch.core.probe import MIB
from wirewatch.core.types import Absent, Health, Why
from wirewatch_lab.cli import parse as module
from wirewatch_lab.cli.parse import parse

OK, LOW, FAILED, NOT_JUDGED, USAGE = 0, 1, 2, 3, 64
RING = ("--env", "NCCL_NVLS_ENABLE=0")


def invoke(text: str, *arguments: str) -> tuple[int, str]:
    """Exit code and standard output of a command that reads the text from its standard input."""
    done = CliRunner().invoke(parse, ["-", *arguments], input=text.encode("utf-8", "surrogatepass"))
    if isinstance(done.exception, click.ClickException | SystemExit) or done.exception is None:
        return done.exit_code, done.stdout
    raise done.exception


def answer(text: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document, which is as its schema says."""
    code, out = invoke(text, "--json", *arguments)
    assert complaints("wirewatch.parse.1", out) == []
    document: dict[str, Any] = json.loads(out)
    return code, document


def text_of(*jobs: Job) -> str:
    return "\n".join(line for job in jobs for line in printed.lines(job))


SLOW = Job(rows=(of_busbw("all_reduce", 8, 16 * MIB, 100e9), *Job().rows[1:]))
WRONG = Job(rows=(Written(16 * MIB, 118.38, 116.08, ("0", "7")), *Job().rows[1:]))
SMALL, LATE = Job(rows=(Written(1024, 23.1, 23.2),)), Job(rows=(Written(1024, 100, 100),))
BETWEEN = Job(ranks=16, hosts=2, rows=(of_busbw("all_reduce", 16, 64 * MIB, 89e9),))
ONE_SLOW = Job(rows=(Job().rows[0], replace(Job().rows[1], out=587.2)))


ASKED = (
    "UNKNOWN: which network joins its 2 nodes? Say --network p5e, p5en, a3-ultra or 8xNDR; its 89.0 GB/s are "
    "42 % of p5e, 33 % of a3-ultra"
)


@each(
    ("jobs", "code", "first"),
    [
        ((Job(),), OK, "OK: the lowest is 100 % of what is expected, all_reduce of 64 MiB"),
        ((SLOW,), FAILED, "FAILED: all_reduce of 16 MiB: 100.0 of 245.6 GB/s, 41 %, and 1 more below"),
        ((ONE_SLOW,), LOW, "DEGRADED: all_reduce of 64 MiB: 200.0 of 322.3 GB/s, 62 %"),
        ((WRONG,), FAILED, "FAILED: wrong values at 16 MiB in place: 7 elements"),
        ((SLOW, WRONG), FAILED, "FAILED: wrong values at 16 MiB in place: 7 elements, and 2 more below"),
        ((SMALL,), NOT_JUDGED, "UNKNOWN: only small messages, of which too little is known"),
        ((LATE,), LOW, "DEGRADED: all_reduce of 1 KiB: 100 us instead of 23, and 1 more below"),
        ((SMALL, Job()), OK, "OK: the lowest is 100 % of what is expected, all_reduce of 64 MiB"),
        ((BETWEEN,), NOT_JUDGED, ASKED),
    ],
)
def test_the_exit_code_is_the_verdict(jobs: tuple[Job, ...], code: int, first: str) -> None:
    status, out = invoke(text_of(*jobs), *RING)
    assert (status, out.splitlines()[0]) == (code, first)


def test_eight_h200_by_nccls_defaults() -> None:
    """The tuner takes Ring at 16 MiB, where its line is above that of NVLS."""
    code, document = answer(text_of(Job()))
    (run,) = document["runs"]
    row = run["rows"][0]
    assert (code, document["health"], run["op"], run["ranks"]) == (OK, "ok", "all_reduce", 8)
    assert round(row["expected_busbw"] / 1e9, 1) == 245.6
    assert round(row["out_of_place"]["busbw"] / 1e9, 1) == 248.0
    assert round(row["out_of_place"]["ratio"], 2) == 1.01
    assert (run["nodes"], run["next"]) == (1, [])
    assert invoke(text_of(Job()), "--ratio", "1.2", *RING)[0] == FAILED


def answer_of_file(folder: Path, content: bytes, *arguments: str) -> tuple[int, dict[str, Any]]:
    """As `answer`, by a process that reads a file."""
    file = folder / "file"
    file.write_bytes(content)
    done = run_wirewatch("parse", str(file), "--json", *arguments)
    assert complaints("wirewatch.parse.1", done.stdout) == [], done.stderr
    return done.returncode, json.loads(done.stdout)


def test_this_nodes_topology_and_that_of_a_file(tmp_path: Path) -> None:
    content, topology = text_of(Job()).encode(), tmp_path / "topology.json"
    shown = run_wirewatch("topology", "show", "--replay", "h200x8", "--json")
    topology.write_text(shown.stdout, "utf-8")
    ways = (
        ("--machine", "h200x8"),
        ("--machine", "here", "--replay", "h200x8"),
        ("--machine", str(topology)),
    )
    found = [answer_of_file(tmp_path, content, *way, *RING)[1]["runs"][0]["rows"] for way in ways]
    rows = [[row["expected_busbw"] for row in one] for one in found]
    assert rows[0] == rows[1] == rows[2] != [None, None]
    code, few = answer_of_file(tmp_path, content, "--replay", "h200x4-idle")
    assert (code, few["why"]) == (NOT_JUDGED, "the topology has 4 GPUs, the run 8 ranks")


@pytest.mark.parametrize(
    ("topology", "listed", "why"),
    [
        (Absent(Why.DENIED, "no sysfs"), (), "this node cannot be read: no sysfs"),
        (Absent(Why.DENIED, "no sysfs"), Absent(Why.MISSING, "x"), "this node cannot be read: no sysfs"),
        ("topology", Absent(Why.MISSING, "x"), "this node cannot be read: no GPU is listed"),
    ],
)
def test_of_a_node_that_cannot_be_read_nothing_is_expected(
    monkeypatch: pytest.MonkeyPatch, topology: Any, listed: Any, why: str
) -> None:
    monkeypatch.setattr("wirewatch.collectors.topology.read_topology", lambda _: topology)
    hardware = SimpleNamespace(nvml=SimpleNamespace(gpus=lambda: listed))
    node: Any = SimpleNamespace(name="this node", hardware=lambda: nullcontext((None, hardware)))
    with vars(module)["_here"](node, {}) as ground:
        assert ground(None, None).detail == why


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--config", "c", "--machine", "h200x8"), "leave --machine out"),
        (("--replay", "h200x8", "--machine", "h200x8"), "leave --machine out"),
        (("--replay", "h200x8", "--overlay", "x", "--machine", "h200x8"), "leave --machine out"),
        (("--overlay", "x"), "give --replay too"),
        (("--overlay", "x", "--machine", "here"), "give --replay too"),
        (("--machine", "./nowhere"), "nowhere: neither a recording nor a document"),
        (("--machine", "h200x8"), ""),
        (("--replay", "h200x8", "--machine", "here"), ""),
        (("--replay", "h200x8", "--overlay", "gpu-busy"), ""),
        (("--config", "c"), ""),
    ],
)
def test_options_about_this_node_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c").touch()
    Path("file").write_text(text_of(Job()), "utf-8")
    here: list[str] = []
    monkeypatch.setattr(module, "_here", lambda node, _: noted(here, node.name, nullcontext()))
    monkeypatch.setattr(module, "_print", lambda *_, **__: Health.OK)
    done = CliRunner().invoke(parse, ("file", *words))
    assert (done.exit_code, why in done.output) == (2 if why else 0, True), done.output
    assert bool(here) is (not why and words != ("--machine", "h200x8"))


def test_what_is_not_understood_is_counted_and_shown_in_one_line_each() -> None:
    lines = printed.lines(Job())
    at = lines.index("# Out of bounds values : 0 OK") - 1
    code, out = invoke("\n".join([*lines[:at], lines[at][:70] + "\x1b[31m", *lines[at + 1 :]]), *RING)
    first = "OK: the lowest is 101 % of what is expected, all_reduce of 16 MiB; 1 row not understood"
    assert (code, out.splitlines()[0]) == (OK, first)
    assert "look like rows and are not: 1; the first:" in out
    assert f"line {at + 1}, a part of a row: " in out
    assert "\x1b" not in out


def test_series_are_valid_openmetrics() -> None:
    code, out = invoke(text_of(Job(), Job(), SLOW, Job("broadcast", 4)), "--openmetrics", *RING)
    read: Callable[[str], Iterable[Metric]] = text_string_to_metric_families
    families = {family.name: family for family in read(out)}
    assert code == FAILED
    busbw = families["wirewatch_parse_busbw_bytes_per_second"].samples
    assert {tuple(sorted(sample.labels)) for sample in busbw} == {("op", "placement", "ranks", "size_bytes")}
    labels = {"op": "all_reduce", "placement": "out_of_place", "ranks": "8", "size_bytes": str(16 * MIB)}
    (value,) = (sample.value for sample in busbw if sample.labels == labels)
    assert round(value / 1e9, 1) == 248.0
    health = {s.labels["health"]: s.value for s in families["wirewatch_parse_health"].samples}
    assert [name for name, value in health.items() if value] == ["failed"]


def test_a_document_and_a_torn_table_and_its_log_in_one_file() -> None:
    code, document = answer("\n".join([FORMS["sorted"], *torn(Job(), "n1")]), *RING)
    assert (code, len(document["runs"]), document["rows"]) == (OK, 2, 4)
    assert document["nccl_log"]["messages"] == document["log_lines"] == 10
    assert document["runs"][1]["remarks"][0].startswith("2 rows were torn by NCCL's log")


def test_the_settings_that_the_log_shows_are_those_of_the_run() -> None:
    log = "n1:7:9 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0."
    large = Job(rows=(of_busbw("all_reduce", 8, 1 << 30, 320e9),))
    rows = [answer(text)[1]["runs"][0]["rows"][0] for text in (text_of(large), f"{log}\n{text_of(large)}")]
    assert [row["expected_algorithm"] for row in rows] == ["NVLS", "Ring"]


def test_a_log_alone_and_a_topology_alone(tmp_path: Path) -> None:
    code, document = answer("n1:7:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n")
    assert (code, document["runs"], document["nccl_log"]["messages"]) == (NOT_JUDGED, [], 1)
    xml = system([gpu("0000:00:06.0")])
    code, document = answer_of_file(tmp_path, xml, "--replay", "h200x8")
    assert (code, document["health"]) == (LOW, "degraded")
    assert document["topology_file"]["compared"] == "recording h200x8"


@pytest.mark.parametrize(
    "option", ["--plot=a.svg", "--machine=8xH100", "--network=p5", "--op=all_reduce", "--env=NCCL_ALGO=Ring"]
)
def test_options_that_a_topology_file_alone_has_no_use_for_are_refused(tmp_path: Path, option: str) -> None:
    (tmp_path / "topo.xml").write_bytes(system([gpu("0000:00:06.0")]))
    done = run_wirewatch("parse", str(tmp_path / "topo.xml"), option)
    assert done.returncode == 64
    assert "a topology file or graphs alone take no option but" in done.stderr
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(("bus", "used"), [(0x18, True), (0xE0, False)])
def test_a_topology_file_of_another_machine_is_set_aside(tmp_path: Path, bus: int, used: bool) -> None:  # noqa: FBT001
    """Its NICs have the same names, and half the rate; the GPUs of the log have other addresses."""
    ports = [f"mlx5_{n}:1/IB" for n in range(2)]
    job = DrawnJob(gpus=2, channels=2, nics=lambda _: ports, nic=lambda _, channel, __: channel)
    rows = (of_busbw("all_reduce", 4, 1 << 30, 60e9), of_busbw("all_reduce", 4, 1 << 32, 60e9))
    table = text_of(Job(ranks=4, hosts=2, product="NVIDIA H100 80GB HBM3", rows=rows))
    each = [gpu(f"0000:{bus + 16 * n:02x}:00.0", dev=n) for n in range(2)]
    nics = [nic(f"0000:0{n}:00.0", f"mlx5_{n}").replace('dev="0"', f'dev="{n}"') for n in range(2)]
    (tmp_path / "run").write_text("\n".join([*job.log(), table]))
    (tmp_path / "xml").write_bytes(system([*each, *nics]).replace(b"400000", b"200000"))
    done = CliRunner().invoke(parse, [str(tmp_path / name) for name in ("run", "xml")])
    assert ("the topology file is of another machine, and is not used" in done.stdout) == (not used)
    assert ("over 2x400G" in done.stdout) == (not used)


def test_a_pipe_that_ends_is_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(text_of(Job()), "utf-8"))
    writer.start()
    done = run_wirewatch("parse", str(pipe), *RING)
    writer.join()
    assert done.returncode == OK


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "it is binary, not text"),
        (b"hello\nworld\n", "nothing of nccl-tests or of NCCL's log in 2 lines"),
        (b"8 2 float sum -1 23.1 0.0 0.0 0 23.1 0.0 0.0 0\n", "a row without the header of a table"),
        (b"<html><body>404</body></html>", "XML, but not of NCCL"),
        (b'{"results": []}', "nothing of nccl-tests"),
        (b"7 " * 200_000, "a line that is too long"),
    ],
)
def test_what_is_none_of_this_gets_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert said in refused(USAGE, "parse", str(file))


def test_what_cannot_be_read_gets_one_line(tmp_path: Path) -> None:
    assert "no dump is in it" in refused(USAGE, "parse", str(tmp_path))
    assert "No such file" in refused(USAGE, "parse", str(tmp_path / "nothing\n\x1b[31m"))
    assert "it is empty" in refused(USAGE, "parse", "-")
    file = tmp_path / "file"
    file.write_text(text_of(Job()), "utf-8")
    for wrong in (("--ratio", "nan"), ("--ratio", "0"), ("--env", "PATH=/bin"), ("--env", "NCCL_ALGO"),
                  ("--overlay", "gpu-lost"), ("--machine", "nowhere"), ("--op", "all_of_it")):  # fmt: skip
        refused(USAGE, "parse", str(file), *wrong)
    refused(USAGE, "parse", str(file), "--machine", "h200x8", "--replay", "h200x8")


@settings(max_examples=examples(60))
@given(damaged(text_of(Job()), text_of(SLOW, WRONG), *FORMS.values(), "\n".join(torn(Job(), "n1"))))
def test_any_damage_is_an_answer_or_the_one_error(text: str) -> None:
    code, out = invoke(text, "--json")
    assert code in {OK, LOW, FAILED, NOT_JUDGED} or (code, out) in {(1, ""), (2, "")}
    if out:
        assert complaints("wirewatch.parse.1", out) == []


def test_runs_are_drawn_with_what_is_expected(tmp_path: Path) -> None:
    table, page = tmp_path / "table", tmp_path / "page.html"
    table.write_text(text_of(SLOW))
    assert CliRunner().invoke(parse, [str(table), "--plot", str(page)]).exit_code == FAILED
    assert "expected busbw" in page.read_text()
    table.write_text("n1:7:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n")
    assert CliRunner().invoke(parse, [str(table), "--plot", str(page)]).exit_code == 2


def test_the_published_study_has_its_figures() -> None:
    """Source: waynehacking8/nccl-collectives-bench, 4 H100, all_reduce."""
    done = run_wirewatch("parse", str(PUBLISHED / "nccltests.2.18.3.h100x4.allreduce.txt"))
    assert "out of place: latency floor 23.3 us, knee 8 MiB, plateau 366.2 GB/s" in done.stdout


def test_a_table_a_log_and_a_topology_file_are_read_as_one(tmp_path: Path) -> None:
    """All channels on two of eight NICs, whose rate the topology file has: parts have the lines of files."""
    ports = [f"mlx5_{n}:1/IB" for n in range(8)]
    job = DrawnJob(gpus=8, channels=8, nics=lambda _: ports, nic=lambda _, channel, __: channel % 2)
    nics = [nic(f"0000:1{n}:00.0", f"mlx5_{n}").replace('dev="0"', f'dev="{n}"') for n in range(8)]
    rows = (of_busbw("all_reduce", 16, 1 << 30, 89e9),)
    table = text_of(Job(ranks=16, hosts=2, product="NVIDIA H100 80GB HBM3", rows=rows))
    (tmp_path / "table").write_text(f"{table}\n")
    (tmp_path / "log").write_text("\n".join([f"step 1\rstep 2\r{job.log()[0]}", *job.log()[1:]]))
    (tmp_path / "xml").write_bytes(system(nics))
    names = [str(tmp_path / name) for name in ("table", "log", "xml")]
    done = CliRunner().invoke(parse, names)
    row = next(n for n, line in enumerate(table.splitlines(), 1) if line.split()[:1] == [str(1 << 30)])
    assert f"Loss of all_reduce of 1 GiB: 89.0 of 452.2 GB/s, 363.2 lost (table:{row})" in done.stdout
    assert "252.2 GB/s: node-0: 2 of its 8 NICs of 400 Gb/s in use (log:14, xml:2)" in done.stdout
    channels = next(n for n, line in enumerate(job.log(), 1) if "coll channels" in line)
    assert f"each for 1/8 of a message (log:{channels})" in done.stdout
    assert len(done.stdout.splitlines()) <= 15
    document = json.loads(CliRunner().invoke(parse, [*names, "--json"]).stdout)
    loss = document["runs"][0]["loss"]
    assert loss["expected"] - loss["measured"] == pytest.approx(
        loss["parts"][0]["lost"] + loss["unexplained"]
    )
    named = CliRunner().invoke(parse, [*names, "--network", "p5"])
    assert named.stdout.startswith("UNKNOWN: p5 is EFA, and the log shows InfiniBand: which is right?")
    missing = CliRunner().invoke(parse, [names[0], str(tmp_path / "none")])
    assert missing.exit_code == 2
