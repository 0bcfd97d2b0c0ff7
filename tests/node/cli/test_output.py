"""What others wrote cannot command a terminal, nor begin a line of its own."""

import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.daemon.process import FAST, Daemon
from tests.processes import run_wirewatch
from wirewatch.cli.groups import is_terminal
from wirewatch.cli.output import coloured, shown, terminal_width, write_whole
from wirewatch.core.words import printable
from wirewatch.daemon.log import log_to_stderr

HOSTILE = """
[[change]]
port = "kmsg"
match = "Records()"
set = [
    "4,2000,864310000000,-;NVRM: Xid (PCI:0000:1b:00): 94, Contained: \\u001b[2J\\u001b]0;t\\u0007 end",
]
"""
COMMANDS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@given(st.lists(st.text()))
def test_there_are_as_many_lines_as_were_given_and_nothing_but_printable_ones(lines: list[str]) -> None:
    parts = shown(lines).split("\n")
    assert len(parts) == max(1, len(lines))
    assert all(part.isprintable() for part in parts)
    assert [len(part) for part in parts] == ([len(line) for line in lines] or [0])


def test_what_is_printable_stays_as_it_is() -> None:
    assert printable("GPU 3, naïve ✓") == "GPU 3, naïve ✓"


def test_a_message_of_the_log_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        log_to_stderr(verbose=False)
        logging.getLogger("a").error("name=%s", "x\n2026-01-01 INFO all is well\x1b[2J")
    finally:
        root.handlers = before
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("ERROR a: name=x 2026-01-01 INFO all is well [2J")


def test_a_hostile_kernel_log_reaches_neither_terminal_nor_log(tmp_path: Path) -> None:
    overlay, socket = tmp_path / "hostile.toml", tmp_path / "wirewatch.sock"
    overlay.write_text(HOSTILE, "utf-8")
    config = FAST.replace('socket = ""', f'socket = "{socket}"')
    with Daemon(("--replay", "demo-dgx-h200", "--overlay", str(overlay)), tmp_path, config) as daemon:
        daemon.wait("/api/v1/findings", "xid.94")
        told = run_wirewatch("findings", "list", "--socket", str(socket)).stdout
        log = daemon.log
    assert "xid.94" in told
    assert "end" in told
    for text in (told, log):
        assert COMMANDS.search(text) is None


def test_a_file_is_there_whole_or_as_before(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("old")
    write_whole(file, "new")
    assert ([one.name for one in tmp_path.iterdir()], file.read_text("utf-8")) == (["a.json"], "new")
    with pytest.raises(OSError, match="No such file"):
        write_whole(tmp_path / "none" / "a.json", "new")


@pytest.mark.parametrize(
    ("terminal", "variables", "health", "coloured_"),
    [
        (True, {}, "failed", True),
        (False, {}, "failed", False),
        (True, {"NO_COLOR": "1"}, "failed", False),
        (True, {"NO_COLOR": ""}, "failed", True),
        (True, {"TERM": "dumb"}, "failed", False),
        (True, {}, "unheard of", False),
    ],
)
def test_only_a_terminal_that_wants_them_gets_colours(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    health: str,
    *,
    terminal: bool,
    coloured_: bool,
) -> None:
    monkeypatch.setattr("wirewatch.cli.output.is_terminal", lambda _: terminal)
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert (coloured("x", health) != "x") is coloured_


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("110", 110), ("300", 110)])
def test_a_line_is_no_longer_than_can_be_read(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width


def test_an_output_that_was_closed_before_the_start_is_no_terminal() -> None:
    assert not is_terminal(None)
