"""`wirewatch demo`: the daemon on a recorded node with a fault, in seconds, and commands to type."""

import os
import shutil
import stat
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.bundled import overlays, recordings
from wirewatch.cli.completion import PROGRAM, overlay_names
from wirewatch.cli.groups import CommandGroup, examples
from wirewatch.cli.output import coloured, terminal_width
from wirewatch.client import listens
from wirewatch.core.types import Subject
from wirewatch.core.words import printable
from wirewatch.server.sockets import ListenError, demo_path

if TYPE_CHECKING:
    from wirewatch.daemon.board import ReportSource
    from wirewatch.documents.health import HealthDocument, NodeFinding
    from wirewatch.hw.overlay import Overlay

DEMO = "demo-dgx-h200"
CONFIG = Path(__file__).with_name("demo.toml")
LISTEN = "127.0.0.1:9410"
LEAD = 3.0
"""Seconds for which the node is well before the fault begins."""
AGAIN = 0.2
"""Seconds between two checks of the verdict."""
ENOUGH = 12.0
"""Seconds from the first polls until the next commands are printed, whatever is found."""
MARGIN, LEAST = " " * 18, 40
"""The mark before text in a line, and the least characters of text in a line."""
NEXT = (
    ("check", "may a job start on this node?"),
    ("status", "the node on one screen"),
    ("findings list", "what is wrong, since when, what to do"),
    ("topology show", "GPUs, links, the PCI tree and NICs"),
    ("explain", "why a job is as fast as it is{no_job}"),
    ("top", "GPUs, jobs and findings, live; q ends it"),
)
"""Commands to type into another terminal."""
NOT_LIVE = ("top --once", "GPUs, jobs and findings")
"""Replaces the last command where the package of the live view is not installed."""


@click.group(cls=CommandGroup, alone="run", commands=[overlays, recordings])
def demo() -> None:
    """Show wirewatch at work on a recorded node with a FAULT."""


@demo.command(
    "run", hidden=True,
    epilog=examples("wirewatch demo", "wirewatch demo nvlink-link-down", "wirewatch demo overlays nvlink"),
)  # fmt: skip
@click.argument("fault", required=False, shell_complete=overlay_names)
@click.option("--here", is_flag=True, help="Run the daemon on this machine's GPUs, where it has some.")
@click.option("--listen", default=LISTEN, show_default=True, help="HOST:PORT of the status page and metrics.")
@click.pass_context
def run(context: click.Context, *, fault: str | None, here: bool, listen: str) -> None:
    """Show wirewatch at work on a recorded node with a FAULT.

    The node is a recording of eight H200. Without FAULT it stays healthy, and the faults to try are listed.
    What takes minutes elsewhere takes seconds here. While the demo runs, all commands of this user ask it
    without an option, unless a real daemon runs. It needs no GPU, touches none, and leaves nothing behind.

    Exit codes: 0 ended by Ctrl-C; 64 wrong usage; 78 no such fault, or the port is in use.
    """
    if here:
        from wirewatch.cli.serve import serve

        if fault is not None:
            raise click.UsageError("--here watches this machine: it plays no FAULT")
        context.invoke(serve, demo=True, listen=listen)
        return
    from wirewatch.hw.overlay import load_overlay

    began = context.find_object(float) or time.monotonic()
    report = DemoReport(load_overlay(fault) if fault is not None else None, began, click.echo)
    from wirewatch.cli.serve import ServeOptions, run_serve
    from wirewatch.config import ConfigError, address
    from wirewatch.daemon.notify import Reporters

    try:
        address(listen, "--listen")
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    with demo_folder() as socket:
        given = ServeOptions(
            CONFIG, listen, None, DEMO, (fault,) if fault else (), loop=True, socket=socket, lead=LEAD
        )
        report.begin()
        run_serve(given, Reporters(demo=report), report.answers_at)


@contextmanager
def demo_folder() -> Iterator[str]:
    """Make the folder in which this user's demo listens, and remove it at the end.

    Raises ListenError where another demo listens, or the folder cannot be made or is another user's.
    """
    socket = demo_path()
    if listens(socket):
        raise ListenError("a demo runs already: `wirewatch status` shows it, Ctrl-C in its terminal ends it")
    with private_folder(Path(socket).parent):
        yield socket


@contextmanager
def private_folder(folder: Path) -> Iterator[None]:
    """Make a folder of this user alone, or raise ListenError; it is removed with its sockets at the end."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        told = folder.lstat()
    except OSError as error:
        raise ListenError(f"cannot make {folder}: {error.strerror or error}") from error
    if not stat.S_ISDIR(told.st_mode) or told.st_uid != os.geteuid() or told.st_mode & 0o022:
        raise ListenError(f"{folder} is not a folder of this user alone: remove it")
    try:
        yield
    finally:
        with suppress(OSError):
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()


class DemoReport:
    """Reports the demo in the terminal that it was started from.

    `overlay` is the fault, None for a healthy node. `began`: monotonic seconds when the command was typed.
    """

    def __init__(self, overlay: "Overlay | None", began: float, say: Callable[[str], None]) -> None:
        self._overlay, self._began, self._say = overlay, began, say
        self._url, self._health, self._told = "", "", False
        self._shown: dict[tuple[str, Subject], str] = {}

    def begin(self) -> None:
        """Print the subject of the demo."""
        fault = f"fault {self._overlay.name}: {self._overlay.about}" if self._overlay else "nothing is wrong"
        text = printable(f"A recorded node of eight H200, not this machine; {fault}.")
        self._say("\n".join((*textwrap.wrap(text, terminal_width(), break_on_hyphens=False), "")))

    def answers_at(self, url: str) -> None:
        """Take the URL of the status page."""
        self._url = url

    async def run(self, source: "ReportSource") -> None:
        """Print changes, and once the next commands, until cancelled."""
        import asyncio

        from wirewatch.documents.judged import jobs as known_jobs

        while not source.ready():  # noqa: ASYNC110 - no event is set when that changes
            await asyncio.sleep(AGAIN)
        patient = self._seconds() + ENOUGH
        while True:
            document = source.health()
            self._changes(document)
            if not self._told and (self._seconds() > patient or self._is_over(document)):
                self._told = True
                node = source.node()
                self._next_steps(jobs=bool(known_jobs(node.state, document.at, "synthetic").jobs))
            await asyncio.sleep(AGAIN)

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _changes(self, document: "HealthDocument") -> None:
        ready = "a job may start" if document.job_ready else "no job may start"
        changed = [
            one for one in (*document.findings, *document.aside) if self._shown.get(_key(one)) != one.health
        ]
        if document.health != self._health or changed:
            self._health = document.health
            word = coloured(f"{document.health.upper():<8}", document.health)
            self._paragraph(f"{self._seconds():4.0f} s  {word}  ", ready)
        for one in changed:
            known = _key(one) in self._shown
            self._shown[_key(one)] = one.health
            what = f"{one.rule} {Subject.of(one.subject)}"
            if known:
                self._paragraph(MARGIN, f"{what}: confirmed, {one.health.upper()}")
            else:
                self._paragraph(MARGIN, f"{what}: {one.evidence}")
                self._paragraph(MARGIN, f"-> {one.action}")

    def _paragraph(self, head: str, text: str) -> None:
        wrapped = textwrap.wrap(printable(text), max(terminal_width() - len(MARGIN), LEAST)) or [""]
        self._say(head + f"\n{MARGIN}".join(wrapped))

    def _is_over(self, document: "HealthDocument") -> bool:
        """Return whether the fault has come to the verdict in its file; True without a fault."""
        if self._overlay is None:
            return True
        found = {(one.rule, one.health) for one in (*document.findings, *document.aside)}
        wanted = {(one.rule, one.health.name.lower()) for one in self._overlay.findings}
        return bool(wanted) and wanted <= found

    def _next_steps(self, *, jobs: bool) -> None:
        self._say("\nNow look at it from another terminal:\n")
        no_job, program = "" if jobs else "; none runs here", own_name(sys.argv[0])
        shown = NEXT if find_spec("textual") else (*NEXT[:-1], NOT_LIVE)
        rows = [(f"{program} {words}", text.format(no_job=no_job)) for words, text in shown]
        rows += [(f"{self._url}/", "the status page, for a browser")]
        rows += [(f"{self._url}/metrics", "what Prometheus scrapes")]
        wide = max(len(words) for words, _ in rows)
        self._say("\n".join(f"  {words:<{wide}}  {text}" for words, text in rows) + "\n")
        if self._overlay is None:
            self._say(f"Then end this demo with Ctrl-C, and try a fault: {program} demo FAULT\n")
            self._say("\n".join(fault_names(terminal_width())))
            self._say(f"\n`{program} demo overlays` has a sentence about each.")
        else:
            self._say("Ctrl-C ends the demo; it leaves nothing behind.")


def own_name(called: str) -> str:
    """The command of this program: `wirewatch` where the shell finds it, else the path that was typed."""
    return called if Path(called).name == PROGRAM and not shutil.which(PROGRAM) else PROGRAM


def fault_names(width: int) -> Sequence[str]:
    """Return the names of the bundled faults, wrapped into lines."""
    from wirewatch.hw.overlay import bundled_overlays

    text = "  ".join(bundled_overlays())
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _key(one: "NodeFinding") -> tuple[str, Subject]:
    return one.rule, Subject.of(one.subject)
