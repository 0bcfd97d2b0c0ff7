"""`wirewatch config`: what can be used, what holds, and where from."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.node.cli.schemas import complaints
from tests.processes import run_wirewatch
from tests.rows import each
from wirewatch.catalogue import discover
from wirewatch.cli import cli, configuration
from wirewatch.cli.configuration import effective, is_expert, key_lines, leaves, toml_key, toml_value
from wirewatch.config import load
from wirewatch.documents.installed import ConfigValue

OK, USAGE, CONFIG = 0, 64, 78
TEXT = """\
# a remark
[listen]
hosts = [
  "a",  # [probe]
  "b",
]
[probe]
probe_interval = "5m"
pins = { "all_reduce@268435456" = 3.0e11 }
[policy.nvlink]
confirm = 4
error_limits.crc = { events = 10, seconds = 60.0 }
"""
LINES = {
    ("listen", "hosts"): 3,
    ("probe", "probe_interval"): 8,
    ("probe", "pins", "all_reduce@268435456"): 9,
    ("policy", "nvlink", "confirm"): 11,
    ("policy", "nvlink", "error_limits", "crc", "events"): 12,
    ("policy", "nvlink", "error_limits", "crc", "seconds"): 12,
}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", "STATE_DIRECTORY", "NODE_NAME", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "wirewatch.toml"
    path.write_text(TEXT, "utf-8")
    return path


def config(*words: str) -> Result:
    return CliRunner().invoke(cli, ["config", *words])


def shown(*words: str) -> str:
    done = config("show", *words)
    assert done.exit_code == OK, done.output
    return done.output


# --- lines and values of TOML


def test_each_key_has_its_line() -> None:
    assert key_lines(TEXT) == LINES
    with pytest.raises(ValueError, match="after a key"):
        key_lines("a = 1\nb")


_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | _NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(data: dict[str, Any]) -> None:
    text = "".join(f"{toml_key(key)} = {toml_value(value)}\n" for key, value in leaves(data))
    assert tomllib.loads(text) == data
    whole = {key for key, value in leaves(data) if value != {}}
    assert {key[: len(one)] for one in key_lines(text) for key in [one]} >= whole


def test_what_toml_cannot_say_is_refused() -> None:
    with pytest.raises(TypeError):
        toml_value(None)


# --- config show


def test_every_value_is_there_with_its_default() -> None:
    values = {one.key: one for _, one in effective(None, {})}
    assert values["policy.nvlink.confirm"].value == 3
    assert values["collectors.nvlink.interval"].value == 15.0
    assert values["controller.budget.cluster"].value == "5%"
    assert {one.origin for one in values.values() if one.key.startswith("collectors.")} == {"default"}
    collectors = {c.name for c in discover()}
    assert {key.split(".")[1] for key in values if key.startswith("collectors.")} == collectors


def test_a_value_of_the_file_has_its_line(file: Path) -> None:
    found = {path: one for path, one in effective(file, {}) if one.origin == "file"}
    assert {path: one.where for path, one in found.items()} == {
        path: f"{file}:{line}" for path, line in LINES.items()
    }
    assert found["probe", "pins", "all_reduce@268435456"].value == 3e11


def test_what_is_printed_is_a_configuration_that_gives_the_same(file: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.toml"
    again.write_text(shown("--config", str(file), "--all"), "utf-8")
    before, now = (load(one, discover())[0].model_dump() for one in (file, again))
    # What was found out is written down, too.
    before["listen"]["socket"], before["state"]["directory"] = (
        now["listen"]["socket"], now["state"]["directory"],
    )  # fmt: skip
    assert now == before


@pytest.mark.parametrize(
    ("variables", "key", "value", "where"),
    [
        (
            {"RUNTIME_DIRECTORY": "/run/w:/run/x"},
            "listen.socket",
            "/run/w/wirewatch.sock",
            "RUNTIME_DIRECTORY",
        ),
        ({"STATE_DIRECTORY": "/var/lib/w"}, "state.directory", "/var/lib/w", "STATE_DIRECTORY"),
        ({"NODE_NAME": "n7"}, "kubernetes.node", "n7", "NODE_NAME"),
        ({"SLURM_CONF": "/etc/s.conf"}, "slurm.conf", "/etc/s.conf", "SLURM_CONF"),
    ],
)
def test_the_environment_is_named(
    variables: Mapping[str, str], key: str, value: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    (found,) = (one for _, one in effective(None, {}) if one.key == key)
    assert (found.value, found.origin, found.where) == (value, "environment", where)


def test_an_option_wins_over_the_file_and_the_file_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/w")
    path = tmp_path / "w.toml"
    path.write_text('[listen]\nsocket = "/a"\n', "utf-8")
    assert shown("listen.socket", "--config", str(path)).split("#")[1].strip() == f"file {path}:2"
    told = shown("listen.socket", "--config", str(path), "--socket", "/b")
    assert told.split() == ["[listen]", "socket", "=", '"/b"', "#", "option", "--socket"]


def test_keys_choose_and_a_slip_gets_the_nearest() -> None:
    text = shown("policy.nvlink.confirm")
    assert text.split() == ["[policy.nvlink]", "confirm", "=", "3", "#", "default"]
    assert set(tomllib.loads(shown("probe"))) == {"probe"}
    done = run_wirewatch("config", "show", "policy.nvlnk")
    assert done.returncode == USAGE
    assert "did you mean 'policy.nvlink'" in done.stderr


def test_nothing_changed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert shown("--changed") == "# all values are the defaults\n"


def test_the_document_is_as_its_schema_says(file: Path) -> None:
    text = shown("--config", str(file), "--json", "--changed")
    assert complaints("wirewatch.config.1", text) == []
    document = json.loads(text)
    assert document["file"] == str(file)
    found = {"key": "probe.probe_interval", "value": 300.0, "origin": "file", "where": f"{file}:8"}
    assert found in document["values"]


def test_keys_for_experts_are_left_out_where_they_are_the_default(file: Path) -> None:
    plain, every = shown("--config", str(file)), shown("--config", str(file), "--all")
    kept, whole = ({toml_key(key) for key, _ in leaves(tomllib.loads(text))} for text in (plain, every))
    left = whole - kept
    assert left == {key for key in whole if is_expert(key) and key not in kept}
    assert len(left) > 140
    # What the file sets holds, whoever tunes it.
    assert {"policy.nvlink.confirm", "probe.probe_interval", "policy.verdict.fail_on"} <= kept
    assert {"policy.gpu.confirm", "collectors.xid.interval", "probe.kill_after"} <= left
    last = plain.splitlines()[-1]
    assert last == f"# {len(left)} keys for experts at the default: --all prints them too"
    assert "for experts" not in every
    assert tomllib.loads(shown("policy.gpu.confirm"))["policy"]["gpu"]["confirm"] == 3


def test_times_and_sizes_are_shown_as_people_write_them(file: Path) -> None:
    shown_ = tomllib.loads(shown("probe", "--config", str(file)))["probe"]
    assert (shown_["probe_interval"], shown_["fresh"], shown_["free_bytes"]) == ("5m", "2h", "3GiB")
    assert shown_["bandwidth"] == [["64MiB", 8], ["256MiB", 8], ["512MiB", 5]]
    document = json.loads(shown("probe", "--config", str(file), "--json"))
    assert {one["key"]: one["value"] for one in document["values"]}["probe.fresh"] == 7200.0


# --- config check


def test_a_configuration_that_can_be_used(file: Path) -> None:
    done = config("check", "--config", str(file))
    assert (done.exit_code, done.output) == (OK, f"{file}: can be used; it sets 6 values\n")


def test_a_key_of_before_is_named(tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    path.write_text("[probe]\nevery = 300.0\n", "utf-8")
    done = run_wirewatch("config", "check", "--config", str(path))
    said = f"wirewatch: {path}: probe.every is called probe.probe_interval now, and is read as that\n"
    assert (done.returncode, done.stderr) == (OK, said)
    assert shown("probe.probe_interval", "--config", str(path)).split("#")[1].strip() == f"file {path}:2"


def test_each_fault_is_a_line_with_its_place_and_the_nearest_key(tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    path.write_text('[probe]\nbudgett = 3\njitter = "x"\n[polcy.nvlink]\nconfirm = 1\n', "utf-8")
    done = run_wirewatch("config", "check", "--config", str(path))
    assert (done.returncode, done.stdout) == (CONFIG, "")
    assert done.stderr.splitlines() == [
        f"wirewatch: {path}:2: unknown key 'probe.budgett'; did you mean 'budget'?",
        f"wirewatch: {path}:3: probe.jitter: must be a number (unit: share), got 'x'",
        f"wirewatch: {path}:5: unknown key 'polcy'; did you mean 'policy'?",
    ]


@pytest.mark.parametrize("given", ['"5"', '"101%"', "-1", "2.5", "[]"])
def test_a_budget_that_is_neither_a_number_nor_a_percentage_is_one_line(tmp_path: Path, given: str) -> None:
    path = tmp_path / "w.toml"
    path.write_text(f"[controller.budget]\npool = 1\ncluster = {given}\n", "utf-8")
    done = config("check", "--config", str(path))
    assert done.exit_code == CONFIG
    wrong = "must be a whole number of nodes, or a percentage such as '5%'"
    shown = given.replace('"', "'")
    assert done.stderr == f"wirewatch: {path}:3: controller.budget.cluster: {wrong}, got {shown}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[listen]\nweb_config = "/nowhere/web.yml"', "/nowhere/web.yml"),
        ('[listen]\naddress = "here"', "listen.address: 'here' is not HOST:PORT"),
        ('[drift]\nbaseline = "/nowhere/node.json"', "/nowhere/node.json"),
        ("[[", "Invalid initial character"),
        ("[policy.probe]\nconfirm = 0", "policy.probe: must be above 0"),
    ],
)
def test_what_it_names_is_read_too(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "w.toml"
    path.write_text(text, "utf-8")
    done = run_wirewatch("config", "check", "--config", str(path))
    assert (done.returncode, done.stdout) == (CONFIG, "")
    (line,) = done.stderr.splitlines()
    assert told in line


def test_no_file_is_one_line() -> None:
    done = run_wirewatch("config", "check", "--config", "/nowhere/w.toml")
    assert (done.returncode, done.stderr) == (
        CONFIG,
        "wirewatch: /nowhere/w.toml: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            '[probe]\nbudgett = 3\njitter = "x"\n',
            [":2: unknown key 'probe.budgett'", ":3: probe.jitter"],
        ),
        ("[policy.probe]\nconfirm = 0", [": policy.probe: must be above 0"]),
        ("[[", [": Invalid initial"]),
        ('[listen]\naddress = "here"', [": listen.address: 'here' is not"]),
        ('[listen]\nweb_config = "/nowhere/web.yml"', ["/nowhere/web.yml"]),
        ('[drift]\nbaseline = "/nowhere/node.json"', ["drift.baseline: "]),
    ],
)
def test_each_fault_is_a_line(tmp_path: Path, text: str, lines: list[str]) -> None:
    path = tmp_path / "w.toml"
    path.write_text(text, "utf-8")
    done = config("check", "--config", str(path))
    said = done.stderr.splitlines()
    assert (done.exit_code, done.stdout, len(said)) == (CONFIG, "", len(lines))
    assert all(
        line.startswith("wirewatch: ") and part in line for line, part in zip(said, lines, strict=True)
    )


def test_a_key_that_is_none_is_refused() -> None:
    done = config("show", "policy.nvlnk")
    assert done.exit_code != OK
    assert "did you mean 'policy.nvlink'" in done.output


def test_only_what_is_another_value_than_the_default_has_changed(file: Path) -> None:
    text = shown("--changed", "--config", str(file), "--listen", "0.0.0.0:1")
    assert [line.partition(" =")[0] for line in text.splitlines() if line and line[0] != "["] == [
        "address", "hosts", "probe_interval", '"all_reduce@268435456"', "confirm", "events", "seconds",
    ]  # fmt: skip
    assert "# option --listen" in text
    both = json.loads(shown("probe.probe_interval", "policy.nvlink.confirm", "--config", str(file), "--json"))
    assert [one["key"] for one in both["values"]] == ["policy.nvlink.confirm", "probe.probe_interval"] or len(
        both["values"]
    ) == 2  # fmt: skip
    assert (both["file"], json.loads(shown("probe.probe_interval", "--json"))["file"]) == (str(file), "")


@pytest.mark.parametrize(
    ("variables", "origin", "where"),
    [
        ({"RUNTIME_DIRECTORY": "/run/w"}, "environment", "RUNTIME_DIRECTORY"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, "environment", "XDG_RUNTIME_DIR"),
        ({"RUNTIME_DIRECTORY": "/run/w", "XDG_RUNTIME_DIR": "/run/w"}, "environment", "RUNTIME_DIRECTORY"),
    ],
)
def test_the_variable_that_gives_a_place_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], origin: str, where: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    (found,) = (one for _, one in effective(None, {}) if one.key == "listen.socket")
    assert (found.origin, found.where) == (origin, where)


def test_what_the_file_says_is_not_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.toml"
    path.write_text(
        '[kubernetes]\nnode = "here"\n[state]\ndirectory = "/s"\n[listen]\nsocket = ""\n', "utf-8"
    )
    for name in ("NODE_NAME", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"):
        monkeypatch.setenv(name, "/elsewhere")
    found = {one.key: one for _, one in effective(path, {}) if one.origin != "default"}
    assert {key: (one.value, one.where) for key, one in found.items()} == {
        "kubernetes.node": ("here", f"{path}:2"), "state.directory": ("/s", f"{path}:4"),
        "listen.socket": ("", f"{path}:6"),
    }  # fmt: skip


@each(
    ("value", "text"),
    [
        (True, "true"), (3, "3"), (2.5, "2.5"), (float("inf"), "inf"), (-float("inf"), "-inf"),
        ({}, "{}"), ({"a": 1, "b.c": [1, "x"]}, '{ a = 1, "b.c" = [1, "x"] }'),
        ("\x7f", '"\\u007f"'), ((), "[]"),
    ],
)  # fmt: skip
def test_values_of_toml(value: Any, text: str) -> None:
    assert toml_value(value) == text


def test_where_values_come_from_stands_in_one_column() -> None:
    values = {
        ("a", "b"): ConfigValue("a.b", 1, "default", ""),
        ("a", "c"): ConfigValue("a.c", "x" * 60, "file", "w.toml:3"),
        ("d", "e"): ConfigValue("d.e", None, "default", ""),
    }
    assert list(vars(configuration)["_toml"](values)) == [
        "[a]", f"{'b = 1':<56}  # default", 'c = "' + "x" * 60 + '"  # file w.toml:3', "", "[d]",
        f"{'# e: not set':<56}  # default",
    ]  # fmt: skip
