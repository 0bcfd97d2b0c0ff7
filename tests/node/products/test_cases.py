"""Overlays after public reports, each with its source and the right answer in its first lines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Case:
    """The worst health of six minutes, that at their end, and rule and part of what is found then."""

    source: str
    worst: Health
    last: Health
    found: set[tuple[str, str]] = field(default_factory=set)


RIGHT: Mapping[str, Case] = {
    "gb200-fabric-not-supported": Case(
        "leptonai/gpud#1108", UNKNOWN, UNKNOWN, {("fabric.state", f"GPU {gpu}") for gpu in range(4)}
    ),
    "gb200-links-train-at-boot": Case("NVIDIA/NVSentinel#1701", UNKNOWN, OK),
    "gpu-lent-to-vm-running": Case("NVIDIA/gpu-operator, vm-passthrough", OK, OK),
    "gpu-probe-failed-aicr1858": Case("NVIDIA/aicr#1858", FAILED, FAILED, {("gpu.missing", "0000:df:00")}),
    "mig-toggle": Case("DCGM: links of a split GPU read as down", OK, OK),
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
    found = {(f.rule, str(f.subject)) for f in node.findings()}
    assert Case(RIGHT[name].source, max(seen), seen[-1], found) == RIGHT[name]
