"""The rules of a configuration that types cannot say, and the words for a value that is wrong."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.rows import each
from tools.options import sections
from wirewatch import config as module
from wirewatch.catalogue import discover
from wirewatch.cli.configuration import written
from wirewatch.config import Config, ConfigError, address, expectations, load, model, reloaded, type_at
from wirewatch.core.collector import APART


def loaded(folder: Path, text: str) -> Config:
    file = folder / "wirewatch.toml"
    file.write_text(text, "utf-8")
    return load(file, discover())[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[listen]\nadress = ''", "unknown key 'listen.adress'; did you mean 'address'"),
        ("[listen]\nzzzzzz = ''", "unknown key 'listen.zzzzzz'"),
        ("[probe]\nprobe_intervl = 1", "unknown key 'probe.probe_intervl'; did you mean 'probe_interval' or"),
        ("[expect]\ngpus = 'x'", "expect.gpus: must be a whole number, got 'x'"),
        ("[expect]\ngpus = 0", "expect.gpus: must be 1 or more, got 0"),
        ("[expect]\nrdma_rate_bytes_per_second = 0", "must be above 0 (unit: bytes/s), got 0"),
        ("[kubernetes]\ncondition_heartbeat = 5", "must be 60 or more (unit: seconds), got 5"),
        (
            "[kubernetes]\ncondition_heartbeat = 'x'",
            "must be a time such as '10m', or a number (unit: seconds), got 'x'",
        ),
        ("[listen]\naddress = 1", "listen.address: must be a text in quotes, got 1"),
        ("[jobs]\nras = ['x']", "jobs.ras.0: "),
        ("a = 2000-01-01", "dates and times are not supported"),
        ("[", "wirewatch.toml: "),
        ("listen = 1", "listen: must be a table, got 1"),
        ('[jobs]\ninspector = "/x/\\u0000"', "jobs.inspector: must not hold a null byte"),
        ("[collectors.pcie]\ninterval = 0.0", "collectors.pcie: interval and deadline must be above 0"),
        ("[collectors.pcie]\ndeadline = -1.0", "collectors.pcie: interval and deadline must be above 0"),
        ("[page]\nrunbook = 'ftp://x'", "page.runbook: must match the pattern"),
        ("[policy.verdict]\nsettle = -1.0", "policy.verdict: "),
        ("[policy.pairs]\nlasts = -1.0", "policy.pairs: "),
        (
            "[controller.budget]\ncluster = 'x'",
            "cluster: must be a whole number of nodes, or a percentage such as '5%', got 'x'",
        ),
        (
            "[probe]\nlatency_sizes = ['x']",
            "latency_sizes.0: must be a size such as '64MiB', or a whole number (unit: bytes), got 'x'",
        ),
        ("[kubernetes]\ncondition_heartbeat = '5s'", "must be 60 or more (unit: seconds), got 5"),
        ("[probe]\nbandwidth = [[1, 'x']]", "probe.bandwidth.0.1: must be a whole number"),
        ("[probe]\nbandwidth = [{ size = 1 }]", "probe.bandwidth.0"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path}/wirewatch.toml: ")
    assert words in line


def test_a_complaint_of_our_own_is_said_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "[jobs]\nras = ['x']")
    assert "Value error" not in str(caught.value)
    assert ", got" not in str(caught.value)
    assert [one.key for one in caught.value.problems] == [("jobs", "ras", "0")]


def test_without_a_file_everything_has_its_default_and_what_is_off_does_not_run(tmp_path: Path) -> None:
    held, collectors = load(None, discover())
    assert held.listen.address == "127.0.0.1:9410"
    names = {one.name for one in collectors}
    file = tmp_path / "off.toml"
    file.write_text("[collectors.pcie]\nenabled = false\n[policy.pcie]\nconfirm = 7\n", "utf-8")
    assert {one.name for one in load(file, discover())[1]} == names - {"pcie"}
    file.write_text("[policy.pcie]\nconfirm = 7\n", "utf-8")
    (pcie,) = (one for one in load(file, discover())[1] if one.name == "pcie")
    assert getattr(pcie.policy, "confirm") == 7  # noqa: B009 - of this policy
    with pytest.raises(ConfigError, match="nowhere"):
        load(tmp_path / "nowhere", discover())


def test_what_needs_a_restart_stays_and_the_rest_is_taken_over(tmp_path: Path) -> None:
    running = loaded(tmp_path, "")
    probe = "[probe]\nenabled = false\nprobe_interval = '5m'\n"
    text = f"[listen]\naddress = '0.0.0.0:1'\n{probe}[expect]\ngpus = 4\n"
    kept, restart = reloaded(running, loaded(tmp_path, text))
    assert restart == ("listen.address", "probe.enabled")
    assert (kept.listen.address, kept.probe.enabled) == (running.listen.address, running.probe.enabled)
    assert (kept.probe.probe_interval, expectations(kept).gpus) == (300.0, 4)
    assert reloaded(running, running) == (running, ())


@each(
    ("text", "found"),
    [
        ("127.0.0.1:9410", ("127.0.0.1", 9410)),
        ("[::1]:65535", ("::1", 65535)),
        ("a:0", ("a", 0)),
        ("a:65536", ""),
        ("a", ""),
        ("a:x", ""),
        ("a:", ""),
        (":9410", ", such as 0.0.0.0:9410 for all addresses"),
        (":x", ""),
        (":0", ""),
        ("a:-1", ""),
    ],
)
def test_an_address(text: str, found: Any) -> None:
    if isinstance(found, tuple):
        assert address(text) == found
        return
    with pytest.raises(ConfigError) as caught:
        address(text, "prober.listen")
    assert str(caught.value) == f"prober.listen: {text!r} is not HOST:PORT{found}"


@pytest.mark.parametrize(("interval", "refused"), [(3.0, True), (60.0, False)])
def test_a_collector_that_runs_apart_needs_a_gap(interval: float, *, refused: bool) -> None:
    apart = next(one for one in discover() if one.apart)
    running = {name: replace(apart.options, interval=interval) for name in apart.apart}
    wrong = vars(module)["_no_gap"](apart, running)
    assert (wrong != "") is refused
    assert not refused or wrong.startswith("it must run ")
    assert vars(module)["_no_gap"](apart, {}) == ""
    least = {name: replace(apart.options, interval=2 * APART + 1.0) for name in apart.apart[:1]}
    assert vars(module)["_no_gap"](apart, least) == ""
    (alone,) = (one for one in discover() if one.name == "pcie")
    assert vars(module)["_no_gap"](replace(alone, apart=()), running) == ""


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("must be above 0: 'probe_interval'", "must be above 0: 'probe_interval', got 600.0 (unit: seconds)"),
        ("must be: 'unheard'", "must be: 'unheard'"),
        ("no key here", "no key here"),
        (
            "a: 'probe_interval'; b: 'enabled'",
            "a: 'probe_interval', got 600.0 (unit: seconds); b: 'enabled', got True",
        ),
    ],
)
def test_complaints_name_the_value_and_its_unit(wrong: str, text: str) -> None:
    probe = load(None, discover())[0].probe
    every = replace(probe, probe_interval=600.0, enabled=True)
    assert vars(module)["_with_values"](wrong, every) == text


@pytest.mark.parametrize(("probe", "refused"), [("", True), ("enabled = false\n", False)])
def test_a_probe_that_is_off_closes_no_gap(tmp_path: Path, probe: str, *, refused: bool) -> None:
    text = f"[probe]\n{probe}interval = 3.0\n[collectors.lockstep]\nenabled = true\n"
    with pytest.raises(ConfigError, match="lockstep: it must run") if refused else nullcontext():
        loaded(tmp_path, text)


WRITTEN = [
    (one, unit)
    for _, _, every in sections()
    for one in every
    for unit in [one.text.partition(" [")[2].rstrip("]")]
    if unit in {"seconds", "bytes"}
]


def test_every_time_and_size_is_taken_as_people_write_it() -> None:
    """A key whose unit is seconds or bytes takes `2m` or `3KiB`, and is written so."""
    assert len(WRITTEN) >= 100
    for one, unit in WRITTEN:
        text, number = ("2m", 120) if unit == "seconds" else ("3KiB", 3072)
        kind = type_at(model(discover()), one.path.split("."))
        given = [number] if isinstance(one.default, tuple) else number
        assert written(kind, given) == ([text] if isinstance(one.default, tuple) else text), one.path
        read = TypeAdapter(kind, config={"strict": True}).validate_json
        assert read(json.dumps(written(kind, given))) == read(json.dumps(given)), one.path


def test_times_and_sizes_of_a_file_are_numbers(tmp_path: Path) -> None:
    probe = 'probe_interval = "20m"\nbandwidth = [["64MiB", 8], [4096, 2]]\nfree_bytes = "1.5G"\n'
    limit = '[policy.nvlink.error_limits.crc]\nevents = 3\nseconds = "1m"\n'
    config = loaded(tmp_path, f'[probe]\n{probe}{limit}[controller]\nlease = "20s"\n')
    assert (config.probe.probe_interval, config.controller.lease) == (1200.0, 20)
    assert config.probe.bandwidth == ((64 << 20, 8), (4096, 2))
    assert config.probe.free_bytes == 3 << 29
    assert config.policy.nvlink.error_limits["crc"].seconds == 60.0


def test_a_key_of_before_is_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = loaded(tmp_path, "[probe]\nevery = 300.0\n[probe.nics]\nevery = '1h'\n")
    assert (config.probe.probe_interval, config.probe.nics.probe_interval) == (300.0, 3600.0)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "probe.every is called probe.probe_interval now, and is read as that",
        "probe.nics.every is called probe.nics.probe_interval now, and is read as that",
    ]
    caplog.clear()
    loaded(tmp_path, "[probe]\nprobe_interval = 300.0\n")
    assert not caplog.records
    with pytest.raises(ConfigError, match=r"probe\.every is 'probe_interval' now, and both are there"):
        loaded(tmp_path, "[probe]\nevery = 300.0\nprobe_interval = 300.0\n")
    with pytest.raises(ConfigError, match="probe: must be a table"):
        loaded(tmp_path, "probe = 3\n")
