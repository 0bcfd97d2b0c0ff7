"""Commands are imported when they are called, and no way to end reads as a verdict that was not given."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from tests.node.cli.checks import COMMAND
from tests.patience import HANGS
from tests.rows import each
from wirewatch.cli import COMMANDS, PACKAGES, added, cli
from wirewatch.cli.groups import LazyGroup, Listed

UNKNOWN, INTERNAL = 3, 70
MODULE = (sys.executable, "-m", "wirewatch")
HEAVY = (
    "pydantic",
    "fastapi",
    "jinja2",
    "asyncio",
    "subprocess",
    "psutil",
    "http",
    "logging",
    "wirewatch.hw",
)
ASKING = {"wirewatch.hw", "wirewatch.client"}
"""What the daemon is asked with: a socket and h11."""
SLOW_CLICK = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
NAMING_CLICK = f"""
class Slow:
  def __set_name__(self, *_):
{textwrap.indent(SLOW_CLICK, "    ")}
class Owner:
  slow = Slow()
"""
"""Python makes a RuntimeError of each exception that is raised there."""
ASKING_CLICK = "print('importing', flush=True)\ninput()\nraise SystemExit(3)\n"


@each("name", COMMANDS)
def test_every_command_of_the_table_is_there_and_says_what_it_does(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str()


def test_the_help_lists_them_all() -> None:
    done = subprocess.run([*MODULE, "--help"], capture_output=True, text=True, check=True)
    listed = done.stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    shown = sorted(name for name, one in {**COMMANDS, **added()}.items() if not one.hidden)
    assert [line.split()[0] for line in listed if line[2:3].isalpha()] == shown


def test_a_check_by_the_daemons_word_imports_nothing_heavy() -> None:
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], "--cached", "--socket", ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == UNKNOWN
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "wirewatch.cli.check.answer" in imported
    assert [
        m for m in imported - ASKING if any(m == heavy or m.startswith(f"{heavy}.") for heavy in HEAVY)
    ] == []


@contextmanager
def importing(
    folder: Path, module: str, text: str, *arguments: str, **how: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that imports this module first, and is in the middle of it."""
    (folder / f"{module}.py").write_text(text, "utf-8")
    with subprocess.Popen(
        [*MODULE, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(folder)}, **how,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        yield process


@pytest.mark.parametrize("click", [SLOW_CLICK, NAMING_CLICK], ids=["module", "name"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("serve",), 0), (("-v", "serve", "--demo"), 0), (("check",), INTERNAL), (("probe",), INTERNAL),
        (("check", "--socket", "serve"), INTERNAL), ((), INTERNAL),
    ],
)  # fmt: skip
def test_stopped_before_anything_has_begun(
    tmp_path: Path, arguments: tuple[str, ...], code: int, click: str
) -> None:
    """A daemon has done what it was told to; any other command has given no verdict."""
    with importing(tmp_path, "click", click, *arguments) as process:
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=HANGS) == (b"", b"")
        assert process.returncode == code


def test_a_bug_before_anything_has_begun_is_reported(tmp_path: Path) -> None:
    with importing(tmp_path, "click", "print('importing', flush=True)\n1 / 0\n", "check") as process:
        assert b"ZeroDivisionError" in process.communicate(timeout=HANGS)[1]
        assert process.returncode == INTERNAL


def test_a_command_that_ignores_ctrl_c_from_its_start_goes_on_ignoring_it(tmp_path: Path) -> None:
    """As under `nohup`, and as what a script starts in its background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with importing(tmp_path, "click", ASKING_CLICK, "check") as process:
            process.send_signal(signal.SIGINT)
            assert process.communicate(b"go on\n", timeout=HANGS) == (b"", b"")
            assert process.returncode == UNKNOWN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "command",
    [
        (*COMMAND, "--cached", "--socket", ""), (*COMMAND, "--cached", "--socket", "", "--json"),
        (*MODULE, "--help"), (*MODULE, "probe", "--replay", "h200x4-idle"),
    ],
)  # fmt: skip
def test_where_no_reader_is_left_there_is_no_verdict(command: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert (
            subprocess.run(command, stdout=writer, stderr=subprocess.DEVNULL, check=False).returncode
            == INTERNAL
        )
    finally:
        os.close(writer)


def test_a_full_disk_is_no_verdict() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "--cached", "--socket", ""], stdout=full, capture_output=False, check=False
        )
    assert done.returncode == INTERNAL


def test_ctrl_c_in_the_very_first_moment_leaves_no_traceback(tmp_path: Path) -> None:
    """What listens to signals imports `select`."""
    with importing(tmp_path, "select", SLOW_CLICK, "check") as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=HANGS) == (b"", b"")
        assert process.returncode == -signal.SIGINT


def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*MODULE, "recordings", "list"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == INTERNAL
    assert done.stderr == b"wirewatch: the output cannot be written: No space left on device\n"


def test_closed_outputs_leave_the_exit_code() -> None:
    """As a service manager or a careless script may start it."""
    script = f"{sys.executable} -m wirewatch check --replay h200x1-idle --deadline 20s <&- >&- 2>&-"
    assert subprocess.run(["bash", "-c", script], check=False).returncode == 0


def test_a_name_of_the_nodes_own_table_asks_no_other_package() -> None:
    def never() -> dict[str, Listed]:
        raise AssertionError("asked")

    group = LazyGroup(name="x", table={"check": COMMANDS["check"]}, more=never)
    assert group.get_command(click.Context(group), "check") is not None


def test_packages_add_commands_and_one_that_is_not_there_adds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = added()
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{PACKAGES}]\nhere = wirewatch.cli:COMMANDS\ngone = wirewatch_gone.cli:COMMANDS\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert added() == {**before, **COMMANDS}
