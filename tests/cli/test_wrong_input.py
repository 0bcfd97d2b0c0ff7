"""Bad input gets one clear line and the right exit code."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

USAGE, CONFIG = 64, 78
REPLAY = ("serve", "--replay", "h200x8")


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "wirewatch", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
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
        ("[collectors.nvlink]\ninterval = '15'", "collectors.nvlink.interval"),
        ("[collectors.gpu]\ninterval = 0", "must be above 0"),
        ("[collectors.nolink]\ninterval = 1", "unknown key 'collectors.nolink'"),
        ("[policy.nvlink]\nconfirm = 2.5", "policy.nvlink.confirm"),
        ("[policy.nvlink.error_limits.crc]\nevent = 1", "policy.nvlink.error_limits.crc"),
        ("[expect]\ngpus = 0", "expect.gpus"),
        ("[expect]\ngpus = 2020-01-01", "dates and times"),
        ("[listen]\naddress = 'nowhere'", "not HOST:PORT"),
        ("[[", "wirewatch.toml"),
        ("x = \x00", "wirewatch.toml"),
    ],
)
def test_a_wrong_configuration(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(text, "utf-8")
    assert told in refused(CONFIG, "serve", "--replay", "h200x8", "--config", str(file))


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    line = refused(CONFIG, "serve", "--config", str(tmp_path / "none.toml"))
    assert "none.toml: No such file or directory" in line


def test_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(CONFIG, *REPLAY, "--listen", f"127.0.0.1:{port}")
    assert line == f"wirewatch: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_a_socket_where_another_agent_answers(tmp_path: Path) -> None:
    path = tmp_path / "wirewatch.sock"
    config = tmp_path / "wirewatch.toml"
    config.write_text(f"[listen]\nsocket = '{path}'\n", "utf-8")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        line = refused(CONFIG, *REPLAY, "--listen", "127.0.0.1:0", "--config", str(config))
    assert "another agent answers there" in line


def test_an_address_that_is_none() -> None:
    assert "not HOST:PORT" in refused(USAGE, "serve", "--listen", "9410")


def test_a_host_that_does_not_resolve() -> None:
    assert "cannot listen on" in refused(CONFIG, *REPLAY, "--listen", "no.such.host.invalid:1")


def test_a_recording_that_is_not_there() -> None:
    line = refused(CONFIG, "serve", "--replay", "h100x3")
    assert "no recording at 'h100x3'" in line
    assert "h200x8" in line


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


def test_help_and_version_are_no_errors() -> None:
    assert run("--help")[0] == 0
    assert run("serve", "--help")[0] == 0
    assert run("--version")[0] == 0
