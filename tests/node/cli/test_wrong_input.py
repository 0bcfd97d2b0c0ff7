"""Bad input gets one clear line and the right exit code."""

import gzip
import shutil
import socket
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.processes import run_wirewatch
from tools.options import Option, sections
from wirewatch.catalogue import discover
from wirewatch.config import ConfigError, load
from wirewatch.hw.recording import BUNDLED, MANIFEST, MOMENTS

USAGE, NO_ANSWER, CONFIG = 64, 69, 78
REPLAY = ("serve", "--replay", "h200x8")


def run(*arguments: str) -> tuple[int, str]:
    done = run_wirewatch(*arguments)
    return done.returncode, done.stderr


def refused(code: int, *arguments: str) -> str:
    """The one line that a refused command line gets."""
    status, text = run(*arguments)
    assert status == code, text
    assert "Traceback" not in text
    (line,) = text.splitlines()
    assert line.startswith("wirewatch: ")
    return line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("speling = 1", "unknown key 'speling'"),
        ("[listen]\nadress = 'x'", "unknown key 'listen.adress'"),
        ("[collectors.nvlink]\ninterval = '15x'", "collectors.nvlink.interval"),
        ("[collectors.gpu]\ninterval = 0", "must be above 0"),
        ("[collectors.nolink]\ninterval = 1", "unknown key 'collectors.nolink'"),
        ("[policy.nvlink]\nconfirm = 2.5", "policy.nvlink.confirm"),
        ("[policy.nvlink.error_limits.crc]\nevent = 1", "policy.nvlink.error_limits.crc"),
        ("[expect]\ngpus = 0", "expect.gpus"),
        ("[page]\nrunbook = 'javascript:alert(1)'", "page.runbook"),
        ("[page]\nrunbok = ''", "unknown key 'page.runbok'"),
        ("[expect]\ngpus = 2020-01-01", "dates and times"),
        ("[policy.probe]\nconfirm = 0", "policy.probe: must be above 0: 'confirm'"),
        (
            "[probe]\nprobe_interval = nan",
            "probe: must be above 0: 'probe_interval', got nan (unit: seconds)",
        ),
        ("[probe]\nevry = 60.0", "unknown key 'probe.evry'"),
        ("[probe]\nprobe_interval = '60x'", "probe.probe_interval"),
        ("[probe]\nengine = 'mpi'", "probe.engine"),
        ("[probe]\nbandwidth = [[4]]", "probe.bandwidth.0"),
        ("[policy.probe]\nratioo = 0.7", "unknown key 'policy.probe.ratioo'"),
        ("[policy.probe]\nratio = '70 %'", "policy.probe.ratio"),
        ("[policy.probe]\nconfirm = 1.5", "policy.probe.confirm"),
        ("[policy.hangs]\nafter = 0.0", "policy.hangs: must be above 0: 'after'"),
        ("[policy.hangs]\nagain = 700.0", "policy.hangs: must not be below again: 'seldom'"),
        ("[policy.hangs]\nlow_power = 30.0", "must be above 0 and at most 1: 'low_power'"),
        ("[jobs]\nras = ['localhost:28028']", "jobs.ras.0"),
        ("[jobs]\nras = ['127.0.0.1']", "not ADDRESS:PORT"),
        ("[policy.jobs]\nratio = 1.5", "policy.jobs: must be above 0 and at most 1: 'ratio'"),
        ("[policy.jobs]\nconfirm = 9", "policy.jobs: must not be below confirm, nor above 8: 'windows'"),
        ("[policy.jobs]\nfewest = 9", "policy.jobs: must not be above joined: 'fewest'"),
        ("[collectors.jobs]\nnames = 1", "collectors.jobs.names"),
        ("[policy.bursts]\nlooks = 2", "policy.bursts: must not be below confirm: 'looks'"),
        ("[policy.lockstep]\nconfirm = 0", "policy.lockstep: must be above 0: 'confirm'"),
        ("[policy.lockstep]\ngap = 8.0", "policy.lockstep: must be above 0 and at most 1: 'gap'"),
        ("[policy.lockstep]\nsettle = -1.0", "policy.lockstep: must not be below 0: 'settle'"),
        ("[policy.lockstep]\nlongest = 1.0", "policy.lockstep: must not be below shortest: 'longest'"),
        ("[policy.lockstep]\nmost_references = 2", "policy.lockstep: must not be below references"),
        ("[collectors.lockstep]\nenabled = 1", "collectors.lockstep.enabled"),
        ("[policy.hangs]\nafter = 0.0", "policy.hangs: must be above 0: 'after', got 0.0 (unit: seconds)"),
        ("[probe]\nunseen_bytes = -1", "must not be below 0: 'unseen_bytes', got -1 (unit: bytes)"),
        ("[policy.probe.straggler]\nconfirm = 0", "straggler: must be above 0: 'confirm', got 0"),
        ("[expect]\nrdma_rate_bytes_per_second = -1", "must be above 0 (unit: bytes/s), got -1"),
        ("[probe.pins]\nall_reduce = 'x'", "all_reduce: must be a number (unit: bytes/s), got 'x'"),
        (
            "[policy.nvlink.error_limits.crc]\nevents = 1\nseconds = 'x'",
            "must be a time such as '10m', or a number (unit: seconds), got",
        ),
        ("[policy.nvlink.error_limits.crc]\nseconds = 1.0", "error_limits.crc.events: is missing"),
        ("[kubernetes]\ncondition_heartbeat = 5.0", "must be 60 or more (unit: seconds), got 5.0"),
        ("[controller]\nact = 'x'", "act: must be 'taint', 'cordon', 'nvsentinel' or 'undo', got 'x'"),
        ("[controller]\nnamespace = 'X'", "{0,61}"),
        ("listen = 3", "listen: must be a table, got 3"),
        ("[[", "wirewatch.toml"),
        ("x = \x00", "wirewatch.toml"),
    ],
)
def test_a_wrong_configuration(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file, discover())
    (line,) = str(caught.value).splitlines()
    assert told in line


UNITS = [
    pytest.param(one, unit.removesuffix("]"), id=one.path)
    for _, _, every in sections()
    for one in every
    for _, _, unit in [one.text.partition(" [")]
    if unit and not one.path.startswith("controller.budget.")
]


@pytest.mark.parametrize(("option", "unit"), UNITS)
def test_the_error_of_a_value_with_a_unit_says_the_unit(option: Option, unit: str, tmp_path: Path) -> None:
    file = tmp_path / "wirewatch.toml"
    forms: dict[type, str] = {tuple: "['much']", MappingProxyType: "{x = 'much'}", dict: "{x = 'much'}"}
    value = forms.get(type(option.default), "'much'")
    file.write_text(f"[{option.section}]\n{option.name} = {value}", "utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file, discover())
    assert f"number (unit: {unit}), got 'much'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[collectors.nvlink]\ninterval = 5.0", "nvlink (every 5 s) and probe (every 30 s)"),
        ("[collectors.nvlink]\ninterval = 6.9\n[probe]\nenabled = false", "nvlink (every 6.9 s), and"),
        ("[collectors.nvlink]\nenabled = false\n[probe]\ninterval = 6.0", "probe (every 6 s), and"),
        ("[collectors.nvlink]\ninterval = 10.0\n[probe]\ninterval = 20.0", "and probe (every 20 s)"),
    ],
)
def test_a_collector_that_gets_no_gap_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(f"[collectors.lockstep]\nenabled = true\n{text}\n", "utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file, discover())
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{file}: collectors.lockstep: it must run 3 s apart from ")
    assert told in line


def test_a_collector_that_gets_no_gap_ends_the_command(tmp_path: Path) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text("[collectors.lockstep]\nenabled = true\n[collectors.nvlink]\ninterval = 5.0\n", "utf-8")
    assert refused(CONFIG, *REPLAY, "--config", str(file)) == (
        f"wirewatch: {file}: collectors.lockstep: it must run 3 s apart from nvlink (every 5 s) and probe "
        "(every 30 s), and they leave no time for that: let them run less often"
    )


@pytest.mark.parametrize(
    "text",
    [
        "[collectors.lockstep]\nenabled = true",
        "[collectors]\nlockstep.enabled = true\nnvlink.interval = 7.0\n[probe]\nenabled = false",
        "[collectors.lockstep]\nenabled = true\n[collectors.nvlink]\nenabled = false",
        "[collectors.lockstep]\nenabled = false\n[collectors.nvlink]\ninterval = 0.3",
        "[collectors.nvlink]\ninterval = 7.0\n[probe]\nenabled = false",
    ],
)
def test_a_gap_that_is_there_or_not_needed_is_not_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(text, "utf-8")
    ready = load(file, discover())[1]
    assert ("lockstep" in {c.name for c in ready}) == ("lockstep]\nenabled = false" not in text)


def test_a_collector_that_nobody_named_gives_way_where_no_gap_is_left(tmp_path: Path) -> None:
    """An older configuration stays right: its intervals switch the default off, as `config show` has it."""
    file = tmp_path / "wirewatch.toml"
    file.write_text("[collectors.nvlink]\ninterval = 5.0", "utf-8")
    config, ready = load(file, discover())
    assert "lockstep" not in {c.name for c in ready}
    assert not config.collectors.lockstep.enabled
    assert "lockstep" in {c.name for c in load(None, discover())[1]}


@pytest.mark.parametrize("text", ["[[", "[listen]\nadress = 'x'", "[policy.probe]\nconfirm = 0"])
def test_a_wrong_configuration_is_reported_by_the_command_as_by_its_reader(tmp_path: Path, text: str) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file, discover())
    assert refused(CONFIG, *REPLAY, "--config", str(file)) == f"wirewatch: {caught.value}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ops = ['all_reduce', 'all_to_all']", ("ops are all_reduce", "'all_to_all'")),
        ("ops = ['all_reduce', 'all_reduce']", ("ops are all_reduce", "'all_reduce'")),
        ("ops = []", ("ops are all_reduce", "'none'")),
        ("interval = 0.0", ("must be above 0: ", "(unit: seconds)", "'interval'")),
        ("every = -1.0", ("must be above 0: ", "(unit: seconds)", "'probe_interval'")),
        ("kill_after = 0.0", ("must be above 0: ", "(unit: seconds)", "'kill_after'")),
        ("fresh = 0.0", ("must be above 0: ", "(unit: seconds)", "'fresh'")),
        ("deadline = 0.0", ("must be above 0: ", "(unit: seconds)", "'deadline'")),
        ("jitter = 1.0", ("jitter must be from 0 to below 1", "1.0")),
        ("jitter = -0.1", ("jitter must be from 0 to below 1", "-0.1")),
        ("budget = 0.0", ("budget must be above 0 and at most 1", "0.0")),
        ("budget = 1.1", ("budget must be above 0 and at most 1", "1.1")),
        ("settle = -1.0", ("must not be below 0: 'settle', got -1.0 (unit: seconds)",)),
        ("latency_sizes = [8, 6]", ("multiples of 4 B", "6")),
        ("latency_sizes = [0]", ("multiples of 4 B", "0")),
        ("bandwidth = [[4096, 5], [1022, 5]]", ("multiples of 4 B", "1022")),
        ("bandwidth = [[4096, 0]]", ("runs are above 0", "[4096, 0]")),
        ("bandwidth = [[4096, 5], [4096, 6]]", ("each once", "4096")),
        ("latency_sizes = [1024]\nbandwidth = [[1024, 5]]", ("each once", "1024")),
        ("ranks = 0", ("ranks must be above 0", "0")),
        ("pins = {all_reduces = 1e9}", ("pins are named OP or OP@BYTES", "'all_reduces'")),
        ("pins = {'all_reduce@big' = 1e9}", ("pins are named OP or OP@BYTES", "'all_reduce@big'")),
        ("pins = {all_reduce = 0.0}", ("above 0 B/s", "'all_reduce'")),
        ("kill_after = 120.0", ("must be above kill_after: 'deadline', got 120.0 (unit: seconds)",)),
    ],
)
def test_an_impossible_probe_is_refused(tmp_path: Path, text: str, told: tuple[str, str]) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(f"[probe]\n{text}\n", "utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file, ())
    assert str(caught.value).startswith(f"{file}: probe: ")
    for words in told:
        assert words in str(caught.value)


def test_what_is_possible_of_a_probe_is_not_refused(tmp_path: Path) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(
        "[probe]\nops = ['all_gather']\njitter = 0.0\nbudget = 1.0\nsettle = 0.0\nlatency_sizes = []\n"
        "bandwidth = [[4, 1]]\nranks = 1\npins = {all_reduce = 1.0, 'all_gather@8' = 0.1}\n", "utf-8",
    )  # fmt: skip
    options = load(file, ())[0].probe
    assert (options.ops, options.bandwidth, options.latency_sizes) == (("all_gather",), ((4, 1),), ())
    assert options.pins == {"all_reduce": 1.0, "all_gather@8": 0.1}


LATIN = '{"schema": "wirewatch.sweep/1",\n"a": "caf\xe9"}'.encode("latin-1")


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (CONFIG, ("serve", "--replay", "h200x8", "--config", "FILE")),
        (CONFIG, ("check", "--config", "FILE")),
        (CONFIG, ("config", "check", "--config", "FILE")),
        (CONFIG, ("config", "show", "--config", "FILE")),
        (CONFIG, ("serve", "--replay", "h200x8", "--listen", "127.0.0.1:0", "--web-config", "FILE")),
        (CONFIG, ("serve", "--replay", "h200x8", "--overlay", "FILE")),
        (USAGE, ("topology", "diff", "FILE", "FILE")),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else str(one),
)
def test_a_file_that_is_not_utf8(code: int, arguments: tuple[str, ...], tmp_path: Path) -> None:
    refuses_latin(code, arguments, tmp_path)


def refuses_latin(code: int, arguments: tuple[str, ...], folder: Path) -> None:
    """A command refuses FILE, whose second line is not UTF-8, in one line."""
    file = folder / "file"
    file.write_bytes(LATIN)
    line = refused(code, *(str(file) if one == "FILE" else one for one in arguments))
    assert line.endswith(f"{file}: it is not text in UTF-8: line 2 has the byte 0xe9")


@pytest.mark.parametrize(("name", "where"), [(MANIFEST, ": line 2 has the byte 0xe9"), (MOMENTS, "")])
def test_a_recording_that_is_not_utf8(name: str, where: str, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(BUNDLED / "h200x1-idle", folder)
    (folder / name).write_bytes(LATIN if name == MANIFEST else gzip.compress(LATIN))
    line = refused(CONFIG, "check", "--replay", str(folder))
    assert line == f"wirewatch: {folder / name}: it is not text in UTF-8{where}"


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    line = refused(CONFIG, "serve", "--config", str(tmp_path / "none.toml"))
    assert "none.toml: No such file or directory" in line


def test_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(CONFIG, *REPLAY, "--listen", f"127.0.0.1:{port}")
    assert line.startswith(f"wirewatch: cannot listen on 127.0.0.1:{port}: another program uses that port; ")


@pytest.mark.parametrize("command", ["serve", "prober"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--replay", "h100x3"), "no recording 'h100x3'"),
        (("--replay", "h200x8", "--overlay", "nvlink-link-dwn"), "did you mean 'nvlink-link-down'"),
    ],
)
def test_a_wrong_name_is_told_where_the_address_is_in_use_too(
    tmp_path: Path, command: str, words: tuple[str, ...], told: str
) -> None:
    path = str(tmp_path / "wirewatch.sock")
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen()
        port = () if command == "prober" else ("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        assert told in refused(CONFIG, command, *words, *port, "--socket", path)
        assert "cannot listen" in refused(CONFIG, command, "--replay", "h200x8", *port, "--socket", path)


def test_a_wrong_baseline_and_a_wrong_node_are_told_where_the_address_is_in_use_too(tmp_path: Path) -> None:
    config, words = tmp_path / "wirewatch.toml", ("--config", str(tmp_path / "wirewatch.toml"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for text, told in (
            ("[drift]\nbaseline = '/nowhere'\n", "/nowhere"),
            ("[kubernetes]\nnode_condition = true\n", "node"),
        ):
            config.write_text(text, "utf-8")
            line = refused(CONFIG, *REPLAY, "--listen", f"127.0.0.1:{taken.getsockname()[1]}", *words)
            assert told in line
            assert "cannot listen" not in line


def test_a_socket_where_another_agent_answers(tmp_path: Path) -> None:
    path = tmp_path / "wirewatch.sock"
    config = tmp_path / "wirewatch.toml"
    config.write_text(f"[listen]\nsocket = '{path}'\n", "utf-8")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        line = refused(CONFIG, *REPLAY, "--listen", "127.0.0.1:0", "--config", str(config))
    assert "another agent answers there" in line


@pytest.mark.parametrize(
    ("name", "told"),
    [("folder", "not a socket"), ("file", "not a socket"), ("x" * 200, "has at most 107 bytes")],
)
def test_a_socket_that_cannot_be_one(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept", "utf-8")
    path = str(tmp_path / name)
    line = refused(CONFIG, *REPLAY, "--listen", "127.0.0.1:0", "--socket", path)
    assert line.startswith(f"wirewatch: cannot listen on {path}: ")
    assert told in line
    assert told in refused(NO_ANSWER, "findings", "list", "--socket", path)
    assert (tmp_path / "file").read_text("utf-8") == "kept"


@pytest.mark.parametrize("command", [("findings", "list"), ("topology", "diff")])
def test_no_socket_at_all(command: tuple[str, ...]) -> None:
    assert refused(NO_ANSWER, *command, "--socket", "") == "wirewatch: no socket is named"


@pytest.mark.parametrize(
    "command", [("serve",), ("check",), ("status",), ("top", "--once"), ("topology", "show")]
)
def test_an_empty_name_of_a_recording_is_not_this_node(command: tuple[str, ...]) -> None:
    assert "--replay names no recording" in refused(USAGE, *command, "--replay", "")


def test_rings_beside_no_recording() -> None:
    assert "[jobs] rings" in refused(USAGE, "serve", "--rings", "/run/wirewatch-jobs")


def test_an_address_that_is_none(tmp_path: Path) -> None:
    assert "not HOST:PORT" in refused(USAGE, "serve", "--listen", "9410")
    assert refused(USAGE, "serve", "--listen", ":9410") == (
        "wirewatch: --listen: ':9410' is not HOST:PORT, such as 0.0.0.0:9410 for all addresses"
    )
    file = tmp_path / "wirewatch.toml"
    file.write_text("[listen]\naddress = 'nowhere'", "utf-8")
    assert "not HOST:PORT" in refused(CONFIG, *REPLAY, "--config", str(file))


def test_a_host_that_does_not_resolve() -> None:
    assert "cannot listen on" in refused(CONFIG, *REPLAY, "--listen", "no.such.host.invalid:1")


def test_a_recording_that_is_not_there() -> None:
    line = refused(CONFIG, "serve", "--replay", "h100x3")
    assert "no recording 'h100x3'" in line
    assert "h200x8" in line


def test_a_folder_that_is_no_recording(tmp_path: Path) -> None:
    line = refused(CONFIG, "serve", "--replay", str(tmp_path))
    assert (
        line
        == f"wirewatch: {tmp_path} is a folder without manifest.json, so no recording of `wirewatch record`"
    )


def test_an_empty_overlay(tmp_path: Path) -> None:
    file = tmp_path / "fault.toml"
    file.write_text("", "utf-8")
    line = refused(CONFIG, "serve", "--replay", "h200x8", "--overlay", str(file))
    assert line.endswith("it has no [[change]], so it changes nothing")


def test_an_overlay_that_is_not_one(tmp_path: Path) -> None:
    file = tmp_path / "fault.toml"
    file.write_text('[[change]]\nport = "nvml"\nmatch = "*"\n', "utf-8")
    assert "overlay" in refused(CONFIG, "serve", "--replay", "h200x8", "--overlay", str(file))


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--nonsense"),
        ("nonsense",),
        ("serve", "--loop"),
        ("record",),
        ("record", "x", "--moments", "0"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    refused(USAGE, *arguments)


def test_a_recording_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "keep").write_text("me", "utf-8")
    assert "not empty" in refused(USAGE, "record", str(tmp_path))
    assert (tmp_path / "keep").read_text("utf-8") == "me"


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="with a driver there may be a probe")
def test_a_probe_that_cannot_be_run_is_not_recorded(tmp_path: Path) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(f'[state]\ndirectory = "{tmp_path}/state"\n', "utf-8")
    (tmp_path / "state").mkdir()
    line = refused(USAGE, "record", str(tmp_path / "made"), "--probe", "--config", str(file))
    assert "no probe to record" in line
    assert not (tmp_path / "made").exists()


def test_help_and_version_are_no_errors() -> None:
    assert run("--help")[0] == 0
    assert run("serve", "--help")[0] == 0
    assert run("--version")[0] == 0
