"""Overlays with an end."""

import tomllib
from pathlib import Path

import pytest

from proof.rehearsal.overlays import Span, as_toml, bundled, ending, lasting
from proof.rehearsal.squeeze import FACTOR
from wirewatch.hw.overlay import bundled_overlays, load_overlay

SPAN = Span(10.0, 90.0)
FOR_EVER = 1e9


@pytest.mark.parametrize("name", bundled_overlays())
def test_every_bundled_overlay_begins_and_ends_when_it_should(name: str, tmp_path: Path) -> None:
    span = lasting(bundled(name), SPAN.begin, SPAN.end - SPAN.begin)
    file = tmp_path / "overlay.toml"
    file.write_text(as_toml("a fault", list(ending(bundled(name), span))), "utf-8")
    changes = load_overlay(str(file)).changes
    timed = [change for change in changes if change.start >= span.begin]
    assert min(change.start for change in timed) == span.begin
    # Counters stay where they have grown to; all else is over.
    assert all(change.until <= span.end or change.action == "add" for change in timed)
    # The rest is how the node is: as it stands in the file, from the start and for ever.
    how_it_is = [change for change in changes if change not in timed]
    assert all((change.start, change.until) == (0.0, FOR_EVER) for change in how_it_is)
    assert all(change in load_overlay(name).changes for change in how_it_is)


def test_a_ramp_is_steeper_and_its_counter_stays_where_it_is_then() -> None:
    change = {"port": "nvml", "match": "x", "from": 20, "ramp": 200}
    growing, grown = ending([change], SPAN)
    assert growing == {**change, "ramp": 200 * FACTOR, "from": 10.0, "until": 90.0}
    assert grown == {"port": "nvml", "match": "x", "add": int(200 * FACTOR * 80), "from": 90.0}


def test_what_ends_by_its_file_keeps_its_rhythm() -> None:
    flaps = [
        c
        for c in ending(bundled("ib-port-flapping"), lasting(bundled("ib-port-flapping"), 10, 99))
        if "from" in c
    ]
    told = sorted({(c["from"], c["until"]) for c in flaps})
    assert told == [(10, 13), (14, 17), (18, 21)]
    assert lasting(bundled("ib-port-flapping"), 10, 99) == Span(10, 21)


def test_what_was_there_before_the_node_begins_with_it() -> None:
    span = lasting(bundled("pcie-slot"), 10.0, 80.0, from_start=True)
    assert span == Span(0.0, 90.0)
    assert {(c["from"], c["until"]) for c in ending(bundled("pcie-slot"), span)} == {(0.0, 90.0)}


def test_values_are_written_as_toml() -> None:
    change = {"port": "p", "match": 'a "b"', "set": {"a": [1, 2.5, "x\n"], "b": {}}}
    assert tomllib.loads(as_toml("é", [change])) == {"about": "é", "change": [change]}
