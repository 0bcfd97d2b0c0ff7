"""The terminal of `wirewatch top`: parts that scroll. The only importer of textual."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from wirewatch.cli.jobs.topprocesses import HostProcesses, host_processes
from wirewatch.cli.jobs.topview import CHOSEN, ORDERS, SORTS, LinkRates, TopLine, help_lines, view
from wirewatch.core.words import printable, utc
from wirewatch.documents.status import NodeSnapshot

PARTS = ("gpus", "jobs", "findings", "processes")
STYLES = {
    "head": "bold", "ok": "", "degraded": "yellow", "unknown": "magenta", "failed": "bold red",
    "quiet": "dim",
}  # fmt: skip


class HelpScreen(ModalScreen[None]):
    """All keys; any key goes back."""

    DEFAULT_CSS = (
        "HelpScreen { align: center middle; } #help { width: 78; padding: 1 2; background: $panel; }"
    )

    def compose(self) -> ComposeResult:
        """A text."""
        yield Static(_text(help_lines()), id="help", markup=False)

    def on_key(self, event: Key) -> None:
        """Go back."""
        event.stop()
        self.dismiss()


class TopApp(App[None]):
    """GPUs, jobs, processes and findings of a node, looked at again and again.

    Args:
    look: gives a snapshot, or why there is none; it may take seconds, and is called in a thread.
    first: the first snapshot.
    every: seconds between two looks.
    read: this machine's facts about the processes, after its earlier facts.
    """

    ENABLE_COMMAND_PALETTE = False
    TITLE = "wirewatch top"
    CSS = """
    #title, #state { height: 1; }
    #gpus { height: auto; max-height: 40%; }
    #jobs { height: auto; max-height: 25%; }
    #findings { height: auto; max-height: 15%; min-height: 2; }
    #processes { height: 1fr; min-height: 3; }
    #wanted { display: none; height: 1; border: none; padding: 0; }
    VerticalScroll { scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "end"),
        Binding("s", "sort", "sort GPUs"),
        Binding("o", "order", "order processes"),
        Binding("f,slash", "filter", "filter"),
        Binding("escape", "unfilter", show=False),
        Binding("p", "pause", "pause"),
        Binding("h,question_mark", "help", "help"),
    ]

    def __init__(
        self, look: Callable[[], NodeSnapshot | str], first: NodeSnapshot, every: float,
        read: Callable[[HostProcesses, NodeSnapshot], HostProcesses] = host_processes,
    ) -> None:  # fmt: skip
        super().__init__(ansi_color=True)
        self._look, self._every, self._read = look, every, read
        self._snapshot = first
        self._rates = LinkRates().after(first.state)
        self._choice, self._paused, self._lost = CHOSEN, False, ""
        self._host = read(HostProcesses(), first)

    def compose(self) -> ComposeResult:
        """The parts from top to bottom."""
        yield Static(id="title", markup=False)
        for name in PARTS:
            with VerticalScroll(id=name):
                yield Static(id=f"{name}-lines", markup=False)
        yield Input(id="wanted", placeholder="filter: alice, slurm:4711, gpu=3, user=bob")
        yield Static(id="state", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Draw the present knowledge, and look again from now on."""
        self._draw()
        self.set_interval(self._every, self._begin)

    def on_resize(self) -> None:
        """Draw again: lines are as wide as the terminal, whose size textual itself takes after this."""
        self.call_later(self._draw)

    def action_sort(self) -> None:
        """Sort the GPUs by the next column."""
        self._choice = replace(self._choice, sort=_next(SORTS, self._choice.sort))
        self._draw()

    def action_order(self) -> None:
        """Sort the processes by the next column."""
        self._choice = replace(self._choice, order=_next(ORDERS, self._choice.order))
        self._draw()

    def action_filter(self) -> None:
        """Ask for the words of a filter."""
        line = self.query_one("#wanted", Input)
        line.value, line.display = self._choice.wanted, True
        line.focus()

    def action_unfilter(self) -> None:
        """Drop the filter, or leave its line as it was."""
        if not self.query_one("#wanted", Input).display:
            self._choice = replace(self._choice, wanted="")
        self._wanted(self._choice.wanted)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the words of the filter."""
        self._wanted(event.value)

    def _wanted(self, words: str) -> None:
        self._choice = replace(self._choice, wanted=words.strip())
        self.query_one("#wanted", Input).display = False
        self.query_one("#processes").focus()
        self._draw()

    def action_help(self) -> None:
        """Show all keys."""
        self.push_screen(HelpScreen())

    def action_pause(self) -> None:
        """Look no more, or again."""
        self._paused = not self._paused
        self._draw()

    def _begin(self) -> None:
        if not self._paused:
            self.run_worker(self._look_once, thread=True, exclusive=True, group="look")

    def _look_once(self) -> None:
        """Make one look in a thread, and pass its result to the loop."""
        found = self._look()
        host = self._host if isinstance(found, str) else self._read(self._host, found)
        self.call_from_thread(self._seen, found, host)

    def _seen(self, found: NodeSnapshot | str, host: HostProcesses) -> None:
        """Take the result of a look; without news the last snapshot stays and its age is shown."""
        if self._paused:
            return
        if isinstance(found, str):
            self._lost = found
        else:
            self._lost, self._snapshot, self._host = "", found, host
            self._rates = self._rates.after(found.state)
        self._draw()

    def _draw(self) -> None:
        screen = self.screen_stack[0] if self.screen_stack else None
        if screen is None or not screen.query("#title"):
            return  # A look may end after the screen was taken away.
        shown = view(self._snapshot, self._rates, self.size.width - 1, self._choice, self._host)
        screen.query_one("#title", Static).update(_text((shown.title,)))
        for name, lines in zip(PARTS, (shown.gpus, shown.jobs, shown.findings, shown.processes), strict=True):
            screen.query_one(f"#{name}-lines", Static).update(_text(lines))
        said = f"{utc(self._snapshot.state.at)}  sorted by {self._choice.sort}, {self._choice.order}"
        said += f"  filter: {printable(self._choice.wanted)}" if self._choice.wanted else ""
        said += "  PAUSED" if self._paused else ""
        state = TopLine(f"no answer: {self._lost}; as of {said}" if self._lost else said, "quiet")
        screen.query_one("#state", Static).update(_text((state,)))


def _next(names: Sequence[str], now: str) -> str:
    return names[(names.index(now) + 1) % len(names)]


def _text(lines: Iterable[TopLine]) -> Text:
    return Text("\n", no_wrap=True, overflow="ellipsis", end="").join(
        Text(line.text, STYLES[line.tone], no_wrap=True) for line in lines
    )
