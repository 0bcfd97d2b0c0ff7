"""What every part reports: limits with PASS or FAIL, tables, and a JSON file that holds it all."""

import json
import math
import subprocess
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class KitError(Exception):
    """A part cannot go on; the text says why."""


def chosen(wanted: Sequence[str] | None, known: Iterable[str]) -> Sequence[str]:
    """The pieces of a part that are wanted, in that order; all of them where none is named.

    Raises:
        KitError: there is no such piece.
    """
    names = tuple(known)
    for name in wanted or ():
        if name not in names:
            raise KitError(f"no piece {name!r}: there are {', '.join(names)}")
    return wanted or names


@dataclass
class Report:
    """Results of one part. Saved at every step, so that a part that is killed leaves what it found."""

    part: str
    out: Path
    checks: list[dict[str, Any]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def check(self, name: str, *, ok: bool, told: str = "") -> bool:
        """One limit; returns whether it holds."""
        self.checks.append({"name": name, "ok": ok, "told": told})
        line = told.strip().replace("\n", " | ")
        print(f"{'PASS' if ok else 'FAIL'} {self.part}: {name}{': ' if line else ''}{line}", flush=True)
        self.save()
        return ok

    def attempt(self, name: str, work: Callable[[], object]) -> None:
        """Do a piece; that it cannot be done is one limit that fails, and costs the other pieces nothing."""
        try:
            work()
        except (KitError, OSError, subprocess.SubprocessError) as error:
            self.check(f"{name} could be done", ok=False, told=f"{error.__class__.__name__}: {error}")
        except Exception:  # noqa: BLE001 - nor must a bug lose the results of the others
            self.check(f"{name} could be done", ok=False, told=traceback.format_exc())

    def progress(self, text: str) -> None:
        """A line for whoever waits; it is not kept."""
        print(f"  {self.part}: {text}", flush=True)

    def note(self, **values: Any) -> None:
        """Values that belong to the evidence and have no limit."""
        self.data.update(values)
        self.save()

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Printed in columns, kept as rows."""
        texts = [list(header), *([_cell(c) for c in row] for row in rows)]
        widths = [max(len(row[i]) for row in texts) for i in range(len(header))]
        print(f"\n{self.part}: {title}")
        for row in texts:
            print(
                "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            )
        print(flush=True)
        self.data.setdefault("tables", {})[title] = {"header": list(header), "rows": [list(r) for r in rows]}
        self.save()

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(c["ok"] for c in self.checks)

    def save(self) -> None:
        whole = {"part": self.part, "ok": self.ok, "checks": self.checks, **self.data}
        place = self.out / f"{self.part}.json"
        place.write_text(json.dumps(whole, indent=1, default=str) + "\n", "utf-8")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least `part` (0 to 1) of the values do not exceed; nan of nothing."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def tail(text: str, characters: int = 2000) -> str:
    return text if len(text) <= characters else "…" + text[-characters:]


def end_of(log: Path) -> str:
    """The end of what a process wrote; empty where there is no such file."""
    return tail(log.read_text("utf-8", "replace")) if log.exists() else ""
