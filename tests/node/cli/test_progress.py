"""What is under way is shown on a terminal, after a second, and leaves no trace."""

import io
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from tests.node.cli.terminal import in_terminal
from tests.patience import HANGS
from wirewatch.cli import progress

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


class Flushed(io.StringIO):
    """A terminal that shows what was flushed."""

    shown = ""

    def flush(self) -> None:
        self.shown = self.getvalue()


class Ended:
    """An event that is not set before the last of so many waits, in each of which all is shown."""

    def __init__(self, waits: int, terminal: Flushed) -> None:
        self.left, self.waited, self.terminal = waits, list[float](), terminal

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        assert self.terminal.shown == self.terminal.getvalue()
        self.left -= 1
        return self.left <= 0

    def is_set(self) -> bool:
        return self.left <= 0


@pytest.mark.parametrize(("waits", "shown"), [(1, 0), (2, 1), (4, 3)])
def test_it_is_written_again_until_the_end(monkeypatch: pytest.MonkeyPatch, waits: int, shown: int) -> None:
    written = Flushed()
    ended = Ended(waits, written)
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=written))
    vars(progress)["_show"](["reading"], ended)
    assert ended.waited == [progress.SOON, *[progress.OFTEN] * shown]
    erase = ERASE.decode()
    assert written.shown == f"{erase}reading, 0 s" * shown + erase * bool(shown)


@pytest.mark.parametrize(
    ("terminal", "kind", "shown"),
    [(True, "xterm", True), (True, "dumb", False), (True, "", False), (False, "xterm", False)],
)
def test_only_a_terminal_that_can_erase_sees_it(
    monkeypatch: pytest.MonkeyPatch, *, terminal: bool, kind: str, shown: bool
) -> None:
    begun, over = threading.Event(), list[bool]()

    def show(_shown: list[str], ended: threading.Event) -> None:
        begun.set()
        over.append(ended.wait(HANGS))

    monkeypatch.setattr(progress, "is_terminal", lambda _: terminal)
    monkeypatch.setattr(progress, "_show", show)
    monkeypatch.setattr(progress, "OFTEN", HANGS)
    monkeypatch.setenv("TERM", kind) if kind else monkeypatch.delenv("TERM", raising=False)
    with progress.under_way("x") as say:
        say("y")
        assert not shown or begun.wait(HANGS)
    assert (over, begun.is_set()) == ([True] * shown, shown)
