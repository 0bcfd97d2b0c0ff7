"""Overlays after public reports, each with its source and the right answer in its first lines."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.node.products.machine import draw
from tests.node.products.rows import ROWS
from tests.support import Node
from wirewatch.core.types import Health
from wirewatch.hw.overlay import load_overlay

OK, UNKNOWN, FAILED = Health.OK, Health.UNKNOWN, Health.FAILED
CASES = Path(__file__).parent / "cases"
POLLS = 24
Answer = tuple[Health, Health, set[tuple[str, str]]]
"""The worst health of six minutes, that at their end, and rule and part of what is found then."""
RIGHT: Mapping[str, Answer] = {
    "gb200-fabric-not-supported": (UNKNOWN, UNKNOWN, {("fabric.state", f"GPU {gpu}") for gpu in range(4)}),
    "gb200-links-train-at-boot": (UNKNOWN, OK, set()),
    "gpu-lent-to-vm-running": (OK, OK, set()),
    "gpu-probe-failed-aicr1858": (FAILED, FAILED, {("gpu.missing", "0000:df:00")}),
    "mig-toggle": (OK, OK, set()),
}


def test_every_case_has_its_right_answer() -> None:
    assert {path.stem for path in CASES.glob("*.toml")} == set(RIGHT)


@pytest.mark.parametrize("name", RIGHT)
def test_a_case_gets_the_right_answer(name: str) -> None:
    row = name.partition("-")[0]
    drawn = next((draw(one) for one in ROWS if one.id == row), "demo-dgx-h200")
    node = Node(drawn, load_overlay(str(CASES / f"{name}.toml")).changes)
    seen = []
    for _ in range(POLLS):
        node.poll()
        seen.append(node.health())
    assert (max(seen), seen[-1], {(f.rule, str(f.subject)) for f in node.findings()}) == RIGHT[name]
