"""proof/rehearsal/rehearsal.md: the words of page.in.md, with what came of it."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from proof.rehearsal.day import NODES
from proof.rehearsal.expected import Row
from proof.rehearsal.faults import Played
from proof.rehearsal.fleet import shipped_rules
from proof.rehearsal.pace import Pace
from proof.rehearsal.results import Results
from proof.rehearsal.squeeze import FACTOR, squeezed
from proof.rehearsal.table import ALL, HARMLESS, OTHERS, TABLE
from tools.alerting import made_alerts
from tools.prose import formatted
from wirewatch.hw.overlay import load_overlay

PAGE, TEXT = (Path(__file__).with_name(name) for name in ("rehearsal.md", "page.in.md"))
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
SQUEEZED = (15.0, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, DAY, 7 * DAY, 14 * DAY)
HEAD = (
    "fault", "alert", "fires after", "in service, at most", "is over", "clears after", "in service, at most",
)  # fmt: skip


def page(results: Results, pace: Pace) -> str:
    """The page; `pace` is that of service."""
    played = {one.name: one for one in results.played}
    text = TEXT.read_text("utf-8").format(
        overlays=len(TABLE), others=len(OTHERS), harmless=len(HARMLESS), factor=f"{FACTOR:g}",
        seconds=f"{results.seconds:.0f}", troubles=len(results.every_trouble()) or "none",
        squeezed=table(("in service", "here"), ((spoken(s), f"{squeezed(s):.0f} s") for s in SQUEEZED)),
        faults=table(HEAD, (line for name in TABLE for line in rows_of(played[name], pace))),
        quiet=", ".join(f"`{name}`" for name in HARMLESS), week=f"{squeezed(7 * DAY):.0f}",
        more=table(HEAD, (line for name in OTHERS for line in rows_of(played[name], pace))),
        day=table(("step", "seconds here"), ((one.about, f"{one.seconds:.0f}") for one in results.day.steps)),
        nodes=len(NODES), unheard=", ".join(f"`{name}`" for name in unheard()),
    )  # fmt: skip
    return formatted(text)


def rows_of(played: Played, pace: Pace) -> Iterator[Sequence[str]]:
    """A line for each alert of a fault: seconds here, and at most in service."""
    row = played.row
    for alert, told in zip(row.every, played.judged.told, strict=True):
        later = alert in row.later
        yield (
            "" if alert != row.every[0] else f"`{played.name}`: {about(played.name, row)}",
            str(alert),
            f"{_seconds(told.fired)}{' after its end' if later else ''}",
            spoken(pace.fires(row, alert)),
            row.ending.value,
            _seconds(told.cleared),
            spoken(pace.clears(row, alert)),
        )


def about(name: str, row: Row) -> str:
    return row.about or load_overlay(name).about


def unheard() -> list[str]:
    """Alerts that nothing here raises, but for those that are made, as their tests are."""
    raised = {alert.name for row in ALL.values() for alert in row.every}
    every = {rule["alert"] for file in shipped_rules() for rule in file.rules() if "alert" in rule}
    return sorted(every - raised - set(made_alerts()))


def spoken(seconds: float) -> str:
    """A length of time as people say it."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 1.5 * unit or seconds == unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.0f} s"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ("---",) * len(head), *lines))


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f} s"
