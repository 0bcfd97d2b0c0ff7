"""proof/siege/siege.md: the words of page.in.md, with what came of the attacks."""

import json
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proof.siege.attack import GAP, GROWN, LOGGED, MIB, UNSEEN, Attack
from proof.siege.results import Figure, Outcome
from proof.siege.running import FASTER
from tools.prose import formatted

PAGE, TEXT = (Path(__file__).with_name(name) for name in ("siege.md", "page.in.md"))
EXPLAINED = Path(__file__).with_name("soak.in.md")
APART = ("load-plain", "load-gzip", "floor")
"""Attacks with tables of their own."""
MINUTES = 60.0
"""Of an hour."""
MOST = 5
"""Troubles of one attack that the page shows."""
SERVED = re.compile(r"^(/metrics|/livez|local) |^lanes' |^descriptors left|^memory grew|^log grew")
COLUMNS = ("p50", "p99", "errors", "connections again", "processor", "lanes' worst gap")
Row = Sequence[str]


def page(
    attacks: Mapping[str, Attack], after: Mapping[str, Outcome], before: Mapping[str, Outcome], soak: Path
) -> str:
    """The page; `soak` is the file of the day, and an attack without results was not tried."""
    listed = [one for name, one in attacks.items() if name not in APART]
    day = json.loads(soak.read_text("utf-8"))
    text = TEXT.read_text("utf-8").format(
        unseen=UNSEEN, gap=GAP,
        grown=GROWN // MIB, logged=LOGGED >> 10, before_day=before[listed[0].name].at,
        python=platform.python_version(), cores=os.cpu_count(), kernel=platform.release().split("-")[0],
        day=max((one.at for one in after.values()), default=""), attacks=_attacks(listed, after, before),
        held=sum(one.holds for one in after.values()), count=len(attacks),
        held_before=sum(before[name].holds for name in attacks if name in before),
        count_before=sum(name in before for name in attacks),
        about_load=f"{attacks['load-plain'].about}; then with gzip.",
        load=_load(after, before), about_floor=f"{attacks['floor'].about}.",
        floor=_floor(after.get("floor"), before.get("floor")),
        soak=_soak(day), last=day["samples"][-1]["hours"], grown_table=_grown(day),
        explained=EXPLAINED.read_text("utf-8"), faster=FASTER, running=_running(day),
    )  # fmt: skip
    return formatted(text)


def table(head: Row, rows: Iterable[Row]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def _attacks(listed: Sequence[Attack], after: Mapping[str, Outcome], before: Mapping[str, Outcome]) -> str:
    rows = (
        (
            f"**{one.name}**: {one.about}",
            _told(before.get(one.name)),
            _told(after.get(one.name)),
            "" if one.name not in after else "yes" if after[one.name].holds else "**no**",
        )
        for one in listed
    )
    return table(("what was done", "before", "now", "holds"), rows)


def _told(outcome: Outcome | None) -> str:
    """What is wrong first, then the attack's own figures, then what was served."""
    if outcome is None:
        return "not tried"
    troubles = [_escaped(text) for text in outcome.troubles[:MOST]]
    more = len(outcome.troubles) - len(troubles)
    own = [str(one) for one in outcome.figures if not SERVED.match(one.name)]
    parts = ["; ".join([*troubles, *([f"{more} more"] if more else [])]), "; ".join(own)]
    return "<br>".join(part for part in (*parts, "; ".join(_served(outcome.figures))) if part)


def _served(figures: Sequence[Figure]) -> Iterator[str]:
    """The worst of each, where an attack was watched several times."""
    for label in ("/metrics", "/livez", "local"):
        p99 = [one.value for one in figures if one.name == f"{label} p99"]
        failed = [one for one in figures if one.name.startswith(f"{label} errors of ")]
        asked = sum(int(one.name.rpartition(" ")[2]) for one in failed)
        if p99:
            yield f"{label} p99 {max(p99):,.0f} ms, {sum(one.value for one in failed):.0f} of {asked} failed"
    for name, label in (("lanes' worst gap", "lanes"), ("memory grew", "memory +"), ("log grew", "log +")):
        found = [one for one in figures if one.name == name]
        if found:
            worst = max(found, key=lambda one: one.value)
            yield str(Figure(label, worst.value, worst.unit)).replace("+ ", "+")


def _escaped(text: str) -> str:
    """A trouble in one cell."""
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= 240 else f"{line[:240]}…"


def _load(after: Mapping[str, Outcome], before: Mapping[str, Outcome]) -> str:
    rows = []
    for name, coding in (("load-plain", "plain"), ("load-gzip", "gzip")):
        for label, outcomes in (("before", before), ("now", after)):
            if name in outcomes:
                rows += [(label, coding, *row) for row in _marked(outcomes[name].figures)]
    head = ("", "coding", "scrapers", "p50", "p99", "errors", "again", "processor", "lanes' worst gap")
    return table(head, rows)


def _marked(figures: Sequence[Figure]) -> Iterator[Row]:
    """A row for each number of scrapers."""
    marks = dict.fromkeys(one.name.partition(": ")[0] for one in figures if ": " in one.name)
    for mark in marks:
        mine = {one.name.partition(": ")[2]: one for one in figures if one.name.startswith(f"{mark}: ")}
        cells = []
        for column in COLUMNS:
            name = next((name for name in mine if name == column or name.startswith(f"{column} of ")), "")
            cells.append(_cell(mine[name], name) if name else "")
        yield (mark.split()[0], *cells)


def _cell(figure: Figure, name: str) -> str:
    text = str(Figure("", figure.value, figure.unit)).strip()
    return f"{text} of {name.rpartition(' ')[2]}" if " of " in name else text


def _floor(after: Outcome | None, before: Outcome | None) -> str:
    rows = []
    for label, outcome in (("before", before), ("now", after)):
        for coding in ("plain", "gzip") if outcome else ():
            assert outcome is not None
            named = {one.name: one for one in outcome.figures}
            servers = (
                ("wirewatch",) if label == "before" else ("wirewatch", "prometheus_client", "node_exporter")
            )
            for server in servers:
                prefix = f"{server}, {coding}"
                if prefix in named:
                    cells = (named[prefix], named[f"{prefix}, processor"], named[f"{prefix}, size"])
                    shown = f"{server}, before" if label == "before" else server
                    rows.append((shown, coding, *(str(Figure("", c.value, c.unit)).strip() for c in cells)))
    return table(
        ("server", "coding", "median time", "processor", "size"), sorted(rows, key=lambda row: row[1])
    )


def _soak(day: Mapping[str, Any]) -> str:
    """Holdings after the first hour, in the middle and at the end."""
    samples: Sequence[Mapping[str, Any]] = day["samples"]
    marks = sorted(
        {min(range(len(samples)), key=lambda n: abs(samples[n]["hours"] - h)) for h in (1, 6, 12, 18, 24)}
    )
    rows = (
        (
            f"{one['hours']:g}", f"{one['pss'] / MIB:.1f}", f"{one['descriptors']}", f"{one['threads']}",
            f"{one['database'] / MIB:.1f}", f"{one['findings']}", f"{one['probes']}",
        )
        for one in (samples[mark] for mark in marks)
    )  # fmt: skip
    head = ("hours", "PSS, MiB", "descriptors", "threads", "database, MiB", "findings", "probes")
    scraped = f"{day['scrapes']:,} scrapes, {day['failed']} of which failed; {day['seconds']:.0f} s."
    return f"{table(head, rows)}\n\n{scraped}"


def _running(day: Mapping[str, Any]) -> str:
    """At quarters of its time."""
    held: Sequence[Mapping[str, Any]] = day["running"]
    marks = sorted({round((len(held) - 1) * part / 4) for part in range(5)})
    rows = (
        (
            f"{one['minutes']:.0f}", f"{one['minutes'] / MINUTES * FASTER:.1f}", f"{one['daemon'] / MIB:.1f}",
            f"{one['nvml'] / MIB:.1f}", f"{one['descriptors']}", f"{one['threads']}",
        )
        for one in (held[mark] for mark in marks)
    )  # fmt: skip
    head = ("minutes", "hours of service", "daemon, MiB", "NVML process, MiB", "descriptors", "threads")
    return table(head, rows)


def _grown(day: Mapping[str, Any]) -> str:
    rows = ((f"`{place}`", f"{size / 1024:+.1f}", f"{blocks:+d}") for place, size, blocks in day["grown"])
    return table(("place", "KiB", "blocks"), rows)
