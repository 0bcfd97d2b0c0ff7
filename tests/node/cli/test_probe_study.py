"""`wirewatch probe` asked for more than a daemon measures: usage, recordings, and what people read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.node.busbw.ports import rails
from tests.node.cli.test_probe import FAILED, OK, SLURM, UNKNOWN, answer, config, probe
from tests.node.cli.test_wrong_input import USAGE, refused
from tests.node.probe.overnetwork import GDR, IB, SOCKET
from tests.node.probe.recordings import DEMO, with_probe
from tests.node.probe.test_study import asked as probed_now
from tests.node.probe.test_study import document as documented
from tests.node.probe.test_study import gpudirect, node_with
from tests.rows import each
from wirewatch.cli import hardware
from wirewatch.cli import probe as module
from wirewatch.cli.probe import probe as command
from wirewatch.cli.tables import probe_tables
from wirewatch.probe import request, workfolder
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.request import ProbeOverrides
from wirewatch.probe.setup import Variation

NODE = str(DEMO)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The demo node, whose recorded probe ends at once."""
    return with_probe(tmp_path_factory.mktemp("recorded") / "node")


@each(
    ("arguments", "words"),
    [
        (("--op", "allreduce"), "'allreduce' is not one of"),
        (("--dtype", "float99"), "'float99' is not one of 'float32'"),
        (("--iterations", "0"), "'0' is not a whole number from 1 to 10000"),
        (("--iterations", "1.5"), "'1.5' is not a whole number from 1 to 10000"),
        (
            ("--dtype", "float64", "--size", "12"),
            "--size 12 is not a multiple of 8 bytes, an element of float64",
        ),
        (("--transport", "shm"), "'shm' is not"),
        (("--gdr", "on,off"), "--gdr is about the NICs: give --transport net too"),
        (("--transport", "net", "--gdr", "maybe"), "'maybe' is not on, off, or on,off"),
        (("--transport", "net", "--gdr", "on,on"), "'on,on' is not on, off, or on,off"),
        (("--transport", "net", "--gdr", ""), "'' is not on, off, or on,off"),
        (("--transport", "net", "--gdr", "on", "--replay", NODE), "--gdr cannot be played"),
        (("--transport", "net", "--engine", "gloo"), "the engine gloo does not use it"),
        (("--engine", "nccl", "--engine", "auto"), "--engine auto is one engine"),
        (("--engine", "nccl", "--engine", "torch", "--replay", NODE), "several --engine cannot be played"),
        (
            ("--engine", "nccl", "--engine", "torch", "--transport", "net", "--gdr", "on"),
            "--gdr compares runs of one engine",
        ),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(arguments: tuple[str, ...], words: str) -> None:
    ended = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert isinstance(ended.exception, click.UsageError)
    assert words in ended.exception.format_message()


@each(
    "case",
    [
        ((8,), "float64", (), None, None, None),
        ((4,), None, ("auto",), None, None, None),
        ((), None, ("nccl", "torch"), None, None, None),
        ((), None, ("nccl",), None, None, NODE),
        ((), None, ("nccl",), "net", (True,), None),
        ((), None, ("nccl",), "net", None, NODE),
        ((), None, ("gloo",), None, None, None),
    ],
)
def test_what_can_be_meant_is_not_refused(case: Any) -> None:
    assert vars(module)["_check"](*case) is None


def wish(transport: bool = False, engine: str | None = None, engines: Any = (), sizes: Any = ()) -> Any:  # noqa: FBT001, FBT002
    variation = Variation("int64", network=transport)
    return ProbeOverrides(sizes=sizes, engine=engine, engines=engines, variation=variation)


@each(
    ("asked", "options", "words"),
    [
        (wish(), ProbeOptions(latency_sizes=(12,)), "the configured size 12"),
        (wish(), ProbeOptions(bandwidth=((12, 1),)), "the configured size 12"),
        (wish(sizes=(8,)), ProbeOptions(latency_sizes=(12,)), ""),
        (wish(), ProbeOptions(latency_sizes=(8,)), ""),
        (wish(transport=True), ProbeOptions(engine="gloo"), "the configured engine gloo"),
        (wish(), ProbeOptions(engine="gloo"), ""),
        (wish(transport=True), ProbeOptions(engine="nccl"), ""),
        (wish(transport=True, engine="nccl"), ProbeOptions(engine="gloo"), ""),
        (wish(transport=True, engines=("nccl", "torch")), ProbeOptions(engine="gloo"), ""),
    ],
)
def test_only_what_the_command_leaves_to_the_configuration_must_fit_it(
    asked: Any, options: ProbeOptions, words: str
) -> None:
    if not words:
        vars(module)["_check_configured"](asked, options)
        return
    with pytest.raises(click.UsageError, match=words):
        vars(module)["_check_configured"](asked, options)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((), ProbeOverrides()),
        (("--op", "all_to_all", "--op", "alltoall", "--size", "4", "--size", "4"),
         ProbeOverrides(("alltoall",), (4,))),
        (("--engine", "nccl", "--engine", "nccl", "--force", "--owner", "slurm:7"),
         ProbeOverrides(engine="nccl", owner="slurm:7", force=True)),
        (("--engine", "nccl", "--engine", "torch"), ProbeOverrides(engines=("nccl", "torch"))),
        (("--transport", "net", "--gdr", "off,on"),
         ProbeOverrides(variation=Variation(network=True), gpudirect=(False, True))),
        (("--dtype", "int8", "--in-place", "--iterations", "9"),
         ProbeOverrides(variation=Variation("int8", True, 9))),  # noqa: FBT003
    ],
)  # fmt: skip
def test_options_are_what_is_asked_of_a_probe(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], asked: ProbeOverrides
) -> None:
    noted: list[Any] = []

    class Enough(Exception):
        pass

    def ask(_config: Any, wish: ProbeOverrides, replay: Any, overlays: Any) -> Any:
        noted.append((wish, replay, overlays))
        raise Enough

    monkeypatch.setattr(module, "_ask", ask)
    with pytest.raises(Enough):
        CliRunner().invoke(command, words, standalone_mode=False, catch_exceptions=False)
    assert noted == [(asked, None, ())]
    refused = CliRunner().invoke(command, ("--overlay", "gpu-lost"), standalone_mode=False)
    assert "give --replay too" in str(refused.exception)


@pytest.mark.parametrize(
    ("words", "configured", "kept"),
    [
        (("--replay", "h200x2-idle"), False, False),
        (("--replay", "h200x2-idle"), True, True),
        ((), False, True),
    ],
)
def test_the_state_of_a_node_is_used_for_the_node_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    configured: bool,  # noqa: FBT001
    kept: bool,  # noqa: FBT001
) -> None:
    """A recording has a state folder only where one is configured."""
    noted: list[Any] = []

    class Enough(Exception):
        pass

    def probed(*given: Any, **_: Any) -> Any:
        noted.append(given)
        raise Enough

    class Nvml:
        def stop(self) -> None:
            noted.append("stopped")

    monkeypatch.setattr(request, "probe_now", probed)
    monkeypatch.setattr(workfolder, "remove_left_folders", lambda: noted.append("removed"))
    monkeypatch.setattr(hardware, "live", lambda *_, **__: (SimpleNamespace(source="live"), Nvml()))
    monkeypatch.setattr(hardware, "replayed", lambda *_, **__: (SimpleNamespace(source="replay"), Nvml()))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    file = tmp_path / "w.toml"
    file.write_text(f'[state]\ndirectory = "{tmp_path if configured else ""}"\n')
    with pytest.raises(Enough):
        CliRunner().invoke(
            command, (*words, "--config", str(file)), standalone_mode=False, catch_exceptions=False
        )
    removed, (_, *_, state), stopped = noted
    assert (removed, state is not None, stopped) == ("removed", kept, "stopped")


def test_the_exit_code_of_a_probe_is_its_health(node: str) -> None:
    done = CliRunner().invoke(command, ("--replay", node, "--engine", "torch"))
    assert (done.exit_code, done.output.splitlines()[0]) == (UNKNOWN, "UNKNOWN")
    as_json = CliRunner().invoke(command, ("--replay", node, "--engine", "torch", "--json"))
    assert (as_json.exit_code, as_json.output[0]) == (UNKNOWN, "{")


def test_wrong_usage_gets_one_line() -> None:
    assert "--gdr is about the NICs" in refused(USAGE, "probe", "--gdr", "on,off")


def test_what_cannot_be_meant_with_the_configuration_gets_one_line(tmp_path: Path) -> None:
    odd = config(tmp_path, "[probe]\nlatency_sizes = [12]\n")
    words = "the configured size 12 is no multiple of int64's bytes"
    assert words in refused(USAGE, "probe", "--dtype", "int64", *odd)
    gloo = config(tmp_path, '[probe]\nengine = "gloo"\n')
    assert "the configured engine gloo does not use it" in refused(
        USAGE, "probe", "--transport", "net", *gloo
    )


def test_a_recording_plays_what_was_asked_for_and_says_what_it_does_not_hold(node: str) -> None:
    asked = ("--op", "all_reduce", "--op", "all_to_all", "--size", "256M", "--size", "1G", "--engine", "nccl")
    code, document = answer("--replay", node, *asked)
    assert (code, document["outcome"]) == (OK, "ok")
    assert [(one["op"], one["size_bytes"]) for one in document["results"]] == [("all_reduce", 256 << 20)]
    assert document["not_recorded"] == ["op alltoall", "size 1 GiB"]
    assert document["study"] == ["collectives that no daemon measures: alltoall"]
    text = probe("--replay", node, *asked).stdout
    assert "\n  not in the recording: op alltoall, size 1 GiB\n" in text


def test_a_recording_with_nothing_of_it_is_unknown(node: str) -> None:
    code, document = answer("--replay", node, "--out-of-place", "--dtype", "int8")
    assert (code, document["outcome"], document["health"]) == (UNKNOWN, "skipped", "unknown")
    assert document["not_recorded"] == ["dtype int8 (it is of float32)", "out of place"]
    assert (document["results"], document["why"]) == (
        [], "not recorded: dtype int8 (it is of float32), out of place",
    )  # fmt: skip


def test_people_read_in_one_line_that_nothing_was_recorded(node: str) -> None:
    done = probe("--replay", node, "--op", "send_recv", "--op", "gather")
    assert done.returncode == UNKNOWN
    assert done.stdout.splitlines()[1:] == ["  skipped: not recorded: op sendrecv, op gather"]


def test_an_engine_that_was_not_recorded_is_named(node: str) -> None:
    code, document = answer("--replay", node, "--engine", "torch")
    assert (code, document["not_recorded"]) == (UNKNOWN, ["engine torch"])


def test_a_recorded_probe_of_all_gpus_is_none_of_some_of_them(node: str, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(SLURM.replace("[0]", "[0, 1]"), "utf-8")
    job = ("--overlay", str(tmp_path / "job.toml"), "--owner", "slurm:7")
    code, document = answer("--replay", node, *job)
    assert (code, document["outcome"]) == (UNKNOWN, "skipped")
    assert "is of 8 GPUs, not of the 2 that slurm:7 holds" in document["why"]


def test_what_the_nics_should_give_is_shown_where_nothing_was_measured(node: str) -> None:
    code, document = answer("--replay", node, "--transport", "net")
    assert (code, document["not_recorded"]) == (UNKNOWN, ["transport net"])
    assert document["network"]["expected_busbw"] == 50e9
    assert document["network"]["derivation"][-1] == "50.0 GB/s x 8 NICs / 8 GPUs = 50.0 GB/s"


def over_nics(transport: str, gbs: float) -> Any:
    """The recorded probe as one over the network, of one size, by this transport."""

    def change(probed: dict[str, Any]) -> None:
        plan, size = probed["plan"], 256 << 20
        plan |= {"ops": ["all_reduce"], "latency_sizes": [], "bandwidth": [[size, 8]], "copy_bytes": 0}
        plan |= {"micro": False, "environment": [["NCCL_P2P_DISABLE", "1"], ["NCCL_SHM_DISABLE", "1"]]}
        timed = next(t for t in probed["document"]["collectives"] if t["size_bytes"] == size)
        seconds = 1.75 * size / (gbs * 1e9)
        timed |= dict.fromkeys(("seconds", "low", "median", "high"), seconds)
        probed["document"] |= {"collectives": [timed], "copies": [], "micros": []}
        for connection in probed["account"]["comms"][0]["connections"]:
            connection["transport"] = transport
        probed["parts"], probed["links"] = [], []
        ports = [
            {**{name: getattr(one, name) for name in ("device", "port", "card", "state", "layer", "rate")},
             "pcie": {"generation": 5, "lanes": 16}, "paths": list(one.paths)} for one in rails(8, 8)
        ]  # fmt: skip
        probed["conditions"][0]["network"] = ports

    return change


def test_a_recorded_probe_over_the_nics_is_judged_by_them(tmp_path: Path) -> None:
    good = ("--replay", with_probe(tmp_path / "good", over_nics(GDR, 48.0)), "--transport", "net")
    code, document = answer(*good)
    (result,) = document["results"]
    assert (code, result["expected_busbw"], document["transport"]) == (OK, 50e9, "net_ib_gdr")
    assert (document["network"]["gpudirect"], document["unproven"]) == ("proven", "")
    slow = ("--replay", with_probe(tmp_path / "slow", over_nics(IB, 20.0)), "--transport", "net")
    code, document = answer(*slow)
    assert (code, document["network"]["gpudirect"]) == (FAILED, "refuted")
    assert [one["rule"] for one in document["findings"]] == ["probe.busbw"]


def test_one_that_took_another_way_shows_nothing_of_the_nics(tmp_path: Path) -> None:
    node = ("--replay", with_probe(tmp_path / "node", over_nics("P2P/CUMEM", 340.0)), "--transport", "net")
    code, document = answer(*node)
    assert (code, document["results"][0]["ratio"]) == (UNKNOWN, None)
    assert document["unproven"] == "it did not go over the network: P2P/CUMEM"


# --- what people read


def test_engines_stand_in_one_table() -> None:
    node, _ = node_with("nccl", "torch")
    made = documented(probed_now(node, ProbeOverrides(engines=("nccl", "torch", "distributed"))))
    lines = probe_tables(made, explain=False).splitlines()
    assert lines[0].startswith("OK (study, not kept: engines nccl, torch, distributed side by side: ")
    header = next(line for line in lines if "nccl GB/s" in line)
    assert header.split("  ")[-1] == "torch against nccl"
    (row,) = [line for line in lines if line.strip().startswith("all_gather")]
    assert row.split()[:5][1:3] == ["256", "MiB"]
    assert "+0.0 %" in row
    assert "not installed" in row
    assert "  distributed: not compared: not installed: it needs torch with CUDA" in lines


def test_gpudirect_on_and_off_stand_in_one_table() -> None:
    lines = probe_tables(gpudirect(GDR, IB), explain=False).splitlines()
    rows = [line for line in lines if line.strip().startswith("all_reduce ")]
    assert len(rows) == 6
    assert all("+20.0 % (no spread)" in row for row in rows)
    assert "  with GPUDirect: GPUDirect RDMA is proven by NCCL's log" in lines
    assert "  without GPUDirect: GPUDirect RDMA is not used, by NCCL's log" in lines
    unproven = probe_tables(gpudirect(IB, IB), explain=False).splitlines()
    assert unproven[0].startswith("UNKNOWN")
    assert any(line.startswith("  with GPUDirect: not compared: GPUDirect on is not") for line in unproven)


def test_over_sockets_it_says_at_once_that_there_is_nothing_to_compare() -> None:
    lines = probe_tables(gpudirect(SOCKET, SOCKET), explain=False).splitlines()
    assert lines[0].startswith("UNKNOWN")
    assert lines[1] == f"  nothing to compare: GPUDirect RDMA takes an RDMA port, and this went over {SOCKET}"
    rows = [line for line in lines if line.strip().startswith("all_reduce ")]
    assert len(rows) == 6
    assert all(row.endswith("no reference") for row in rows)
    assert "  all_reduce: no reference: no RDMA port, so NCCL uses sockets" in lines
    assert not any("not compared" in line for line in lines)


def test_why_nothing_is_expected_is_said_below_the_table() -> None:
    node, _ = node_with(count=8)
    wish = ProbeOverrides(ops=("reduce", "gather", "all_reduce"))
    lines = probe_tables(documented(probed_now(node, wish)), explain=False).splitlines()
    (row,) = [line for line in lines if line.strip().startswith("reduce ") and "256 MiB" in line]
    assert "no reference" in row
    assert "  reduce: no reference for Ring reduce of 8 Hopper GPUs over NVSwitch" in lines
    assert any(line.startswith("  gather: no reference for ") for line in lines)
