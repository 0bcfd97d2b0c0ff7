"""How a command line ends: an exit code that is no verdict by accident, and one line for a person."""

import errno
import gc
import logging
from typing import Any

import click
import pytest
from click.testing import CliRunner

from wirewatch import cli as package
from wirewatch.cli import run
from wirewatch.cli.groups import examples
from wirewatch.core.exits import Exit
from wirewatch.core.types import Unusable
from wirewatch.signals import SIGNALS

SIZE, NAME = click.Option(["--size"]), click.Argument(["name"])


def ended(patch: pytest.MonkeyPatch, error: BaseException | None, code: int | None = None) -> int:
    def main(*_: Any, **__: Any) -> int | None:
        if error is not None:
            raise error
        return code

    patch.setattr(package.cli, "main", main)
    return run(["check"])


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (Unusable("no such file"), Exit.CONFIG, "wirewatch: no such file\n"),
        (click.UsageError("give\n  one"), Exit.USAGE, "wirewatch: give one\n"),
        (click.BadParameter("no size.", param=SIZE), Exit.USAGE, "wirewatch: --size: no size\n"),
        (click.BadParameter("no name...", param=NAME), Exit.USAGE, "wirewatch: NAME: no name...\n"),
        (click.BadParameter("no name"), Exit.USAGE, "wirewatch: Invalid value: no name\n"),
        (click.MissingParameter(param=SIZE), Exit.USAGE, "wirewatch: Missing option '--size'.\n"),
        (click.Abort(), Exit.INTERNAL, ""),
        (SystemExit(1), Exit.INTERNAL, ""),
        (
            OSError(errno.ENOSPC, "no space", "/x"),
            Exit.INTERNAL,
            "wirewatch: /x cannot be written: no space\n",
        ),
        (
            OSError(errno.EDQUOT, "no quota"),
            Exit.INTERNAL,
            "wirewatch: the output cannot be written: no quota\n",
        ),
    ],
)
def test_what_ends_a_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    text: str,
) -> None:
    assert ended(monkeypatch, error) == code
    assert capsys.readouterr() == ("", text)


@pytest.mark.parametrize("error", [ValueError("odd"), OSError(errno.EIO, "I/O", "/x")])
@pytest.mark.parametrize("raised", [False, True])
def test_a_bug_is_logged_unless_a_signal_ended_the_command(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, *, raised: bool
) -> None:
    monkeypatch.setattr(SIGNALS, "raised", raised)
    assert ended(monkeypatch, error) == Exit.INTERNAL
    assert [(one.levelno, one.getMessage()) for one in caplog.records] == (
        [] if raised else [(logging.ERROR, "this is a bug of wirewatch")]
    )


def test_a_command_that_ends_by_itself_keeps_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [ended(monkeypatch, None, code) for code in (None, 0, 3)] == [0, 0, 3]
    with pytest.raises(SystemExit) as left:
        ended(monkeypatch, SystemExit(143))
    assert left.value.code == 143


@pytest.mark.parametrize(
    ("words", "logged"),
    [(("status",), [False]), (("-v", "status"), [True]), (("check",), []), (("-v", "check"), [])],
)
def test_all_commands_but_the_quick_one_log_and_collect_garbage(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], logged: list[bool]
) -> None:
    """The process begins without a collector of garbage."""
    noted: list[bool] = []
    monkeypatch.setattr("wirewatch.daemon.log.log_to_stderr", lambda *, verbose: noted.append(verbose))
    gc.disable()
    try:
        assert CliRunner().invoke(package.cli, [*words, "--help"]).exit_code == 0
        assert (noted, gc.isenabled()) == (logged, bool(logged))
    finally:
        gc.enable()


def test_one_example_is_no_list_of_them() -> None:
    assert examples("wirewatch check").split("\n") == ["\b", "Example:", "  wirewatch check"]
    assert examples("a", "b").split("\n")[1:] == ["Examples:", "  a", "  b"]
