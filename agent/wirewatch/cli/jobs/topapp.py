"""The terminal of `wirewatch top`: three parts that scroll. The only importer of textual."""

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from wirewatch.cli.jobs.topview import SORTS, LinkRates, TopLine, view
from wirewatch.core.words import utc
from wirewatch.documents.status import NodeSnapshot

STYLES = {
    "head": "bold", "ok": "", "degraded": "yellow", "unknown": "magenta", "failed": "bold red",
    "quiet": "dim",
}  # fmt: skip


class TopApp(App[None]):
    """GPUs, jobs and findings of a node, looked at every so many seconds.

    Args:
        look: gives a snapshot, or why there is none; it may take seconds, and is called in a thread.
        first: the first snapshot.
        every: seconds between two looks.
    """

    ENABLE_COMMAND_PALETTE = False
    TITLE = "wirewatch top"
    CSS = """
    #title, #state { height: 1; }
    #gpus { height: auto; max-height: 50%; }
    #jobs { height: auto; max-height: 30%; }
    #findings { height: 1fr; }
    VerticalScroll { scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "end"),
        Binding("s", "sort", "sort GPUs"),
        Binding("p", "pause", "pause"),
    ]

    def __init__(self, look: Callable[[], NodeSnapshot | str], first: NodeSnapshot, every: float) -> None:
        super().__init__(ansi_color=True)
        self._look, self._every = look, every
        self._snapshot = first
        self._rates = LinkRates().after(first.state)
        self._sort, self._paused, self._lost = SORTS[0], False, ""

    def compose(self) -> ComposeResult:
        """The parts from top to bottom."""
        yield Static(id="title", markup=False)
        for name in ("gpus", "jobs", "findings"):
            with VerticalScroll(id=name):
                yield Static(id=f"{name}-lines", markup=False)
        yield Static(id="state", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Draw what is known, and look again from now on."""
        self._draw()
        self.set_interval(self._every, self._begin)

    def on_resize(self) -> None:
        """Lines are as wide as the terminal, whose size textual itself takes after this."""
        self.call_later(self._draw)

    def action_sort(self) -> None:
        """Sort the GPUs by the next column."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._draw()

    def action_pause(self) -> None:
        """Look no more, or again."""
        self._paused = not self._paused
        self._draw()

    def _begin(self) -> None:
        if not self._paused:
            self.run_worker(self._look_once, thread=True, exclusive=True, group="look")

    def _look_once(self) -> None:
        """In a thread: one look, and its result to the loop."""
        found = self._look()
        self.call_from_thread(self._seen, found)

    def _seen(self, found: NodeSnapshot | str) -> None:
        """What a look gave; while there is nothing new, the last snapshot stays and its age is said."""
        if self._paused:
            return
        if isinstance(found, str):
            self._lost = found
        else:
            self._lost, self._snapshot = "", found
            self._rates = self._rates.after(found.state)
        self._draw()

    def _draw(self) -> None:
        if not self.query("#title"):
            return  # A look may end after the screen was taken away.
        shown = view(self._snapshot, self._rates, self.size.width - 1, self._sort)
        self.query_one("#title", Static).update(_text((shown.title,)))
        for name, lines in (("gpus", shown.gpus), ("jobs", shown.jobs), ("findings", shown.findings)):
            self.query_one(f"#{name}-lines", Static).update(_text(lines))
        said = f"{utc(self._snapshot.state.at)}  sorted by {self._sort}"
        said += "  PAUSED" if self._paused else ""
        state = TopLine(f"no answer: {self._lost}; as of {said}" if self._lost else said, "quiet")
        self.query_one("#state", Static).update(_text((state,)))


def _text(lines: tuple[TopLine, ...]) -> Text:
    return Text("\n", no_wrap=True, overflow="ellipsis", end="").join(
        Text(line.text, STYLES[line.tone], no_wrap=True) for line in lines
    )
