"""What is under way is shown on a terminal, after a second, and leaves no trace."""

import subprocess
import sys

import pytest

from tests.node.cli.terminal import in_terminal

RUN = (
    "import sys, time; from wirewatch.cli import progress; progress.SOON = {soon}\n"
    "with progress.under_way('reading') as say:\n"
    "    time.sleep(0.2); say('reading on'); time.sleep(1.0)\n"
    "print('done')"
)
ERASE = b"\r\x1b[K"


def test_a_terminal_sees_it_and_it_is_erased_at_the_end() -> None:
    code, out = in_terminal(RUN.format(soon=0.05), b"")
    assert code == 0
    assert ERASE + b"reading, 0 s" in out
    assert ERASE + b"reading on, " in out
    assert out.endswith(ERASE + b"done\r\n")


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {}])
def test_what_is_soon_over_or_cannot_be_erased_is_not_shown(variables: dict[str, str]) -> None:
    code, out = in_terminal(RUN.format(soon=0.05 if variables else 60.0), b"", **variables)
    assert (code, out) == (0, b"done\r\n") if variables else (0, out)
    assert b"reading" not in out


def test_without_a_terminal_nothing_is_written() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(soon=0.05)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
