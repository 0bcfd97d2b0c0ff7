"""Documents of what is installed: recordings and overlays in words."""

import pytest

from wirewatch.core.types import Health, Subject
from wirewatch.documents.installed import _about, _overlay
from wirewatch.hw.overlay import Expected, Overlay

A, B, C = "rest", "traffic", ""
MANIFEST = {"gpus": 8, "product": "H200", "moments": [{"note": one} for one in (A, A, C, B)]}


@pytest.mark.parametrize(
    ("healths", "worst"),
    [
        ([], None),
        ([Health.DEGRADED, Health.FAILED], "failed"),
        ([Health.FAILED, Health.DEGRADED], "failed"),
        ([Health.OK], "ok"),
    ],
)
def test_an_overlay_has_the_worst_health_of_its_findings(healths: list[Health], worst: str | None) -> None:
    found = tuple(Expected(f"rule.{n}", one, Subject(), "", "") for n, one in enumerate(healths))
    document = _overlay(Overlay("x", "about", (), found))
    assert (document.health, document.rules) == (worst, [one.rule for one in found])


@pytest.mark.parametrize(("source", "more"), [("live", []), ("synthetic", ["part of it made up"])])
def test_a_recording_is_described_by_its_notes_and_what_was_made_up(source: str, more: list[str]) -> None:
    about = list(_about({**MANIFEST, "source": source}, 90.0))
    assert about == ["8 H200, 90 s: rest, then traffic", *more]
