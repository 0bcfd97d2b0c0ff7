"""What came of a rehearsal, for people and for machines."""

import json
from dataclasses import dataclass
from typing import Any

from proof.rehearsal.day import Lived
from proof.rehearsal.faults import Played

SCHEMA = "wirewatch.rehearsal/1"


@dataclass(frozen=True, slots=True)
class Results:
    """`troubles`: of Prometheus, of the web hook, and of nodes that were well all the time."""

    played: tuple[Played, ...]
    day: Lived
    troubles: tuple[str, ...]
    seconds: float

    def every_trouble(self) -> list[str]:
        of_faults = [f"{one.name}: {trouble}" for one in self.played for trouble in one.judged.troubles]
        return [*of_faults, *(f"the healthy day: {trouble}" for trouble in self.day.troubles), *self.troubles]


def as_json(results: Results) -> str:
    """One document; seconds are those of the rehearsal."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "passed": not results.every_trouble(),
        "seconds": round(results.seconds, 1),
        "faults": [_fault(one) for one in results.played],
        "day": [{"step": one.about, "seconds": round(one.seconds, 1)} for one in results.day.steps],
        "troubles": results.every_trouble(),
    }
    return json.dumps(document, indent=1) + "\n"


def _fault(played: Played) -> dict[str, Any]:
    return {
        "name": played.name,
        "passed": not played.judged.troubles,
        "alerts": [
            {
                "alert": one.alert,
                "fired_seconds": _rounded(one.fired),
                "cleared_seconds": _rounded(one.cleared),
            }
            for one in played.judged.told
        ],
        "troubles": list(played.judged.troubles),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
