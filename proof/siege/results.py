"""Figures of an attack, and the files that keep them: an entry for each, replaced when it is run again."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OUT, SHORT = Path("build/siege/results.json"), Path("build/siege/short.json")
SOAK = OUT.with_name("soak.json")
BEFORE, AFTER = (Path(__file__).with_name(name) for name in ("before.json", "after.json"))
"""The same attacks on the tree as it was before it was hardened, and what the page was made of; committed."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its unit, "" for a count."""

    name: str
    value: float
    unit: str = ""

    def __str__(self) -> str:
        number = f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.3g}"
        return f"{self.name} {number}{f' {self.unit}' if self.unit else ''}"


@dataclass(slots=True)
class Outcome:
    """What came of an attack; it holds where there are no troubles."""

    name: str
    seconds: float = 0.0
    at: str = ""
    figures: list[Figure] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.troubles


def load(path: Path) -> dict[str, Outcome]:
    """The outcomes of a file by name; none where there is no file."""
    if not path.exists():
        return {}
    entries: Mapping[str, Any] = json.loads(path.read_text("utf-8"))["attacks"]
    return {
        name: Outcome(name, **{**entry, "figures": [Figure(**one) for one in entry["figures"]]})
        for name, entry in entries.items()
    }


def save(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write all of them, so that a run that is broken off loses nothing that it has found."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = {name: asdict(outcomes[name]) for name in sorted(outcomes)}
    for entry in entries.values():
        del entry["name"]
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"schema": "wirewatch.siege/1", "attacks": entries}, indent=1) + "\n", "utf-8")
    new.rename(path)
