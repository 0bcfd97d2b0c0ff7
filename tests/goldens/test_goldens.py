"""What /metrics says for each bundled recording, byte for byte, at its first and its last moment.

After a change that was meant: `make goldens`, and read the difference before committing it.
"""

import os
from pathlib import Path

import pytest

from tests.support import Node
from wirewatch.export.prometheus import Exposition
from wirewatch.hw.recording import bundled_names, load_recording
from wirewatch.verdict.node import judged

HERE = Path(__file__).parent


def exposition(name: str) -> str:
    node = Node(name)
    node.options("probe", settle=0.0)
    parts = []
    for seconds in (0.0, load_recording(name).times[-1]):
        node.clock.seconds = seconds
        node.poll(every=0.0)
        text, _ = Exposition("replay").render(judged(node.state), "")
        parts.append(f"# at {seconds:g} s of {name}\n{text.decode()}")
    return "\n".join(parts)


@pytest.mark.parametrize("name", bundled_names())
def test_metrics_of_a_recording_are_the_golden_ones(name: str) -> None:
    golden = HERE / f"{name}.prom"
    text = exposition(name)
    if os.environ.get("WIREWATCH_GOLDENS") == "write":
        golden.write_text(text, "utf-8")
    assert golden.is_file(), f"no golden for {name}: `make goldens`"
    assert text == golden.read_text("utf-8")


@pytest.mark.parametrize("name", bundled_names())
def test_a_bundled_recording_is_of_a_healthy_node(name: str) -> None:
    node = Node(name)
    node.options("probe", settle=0.0)
    for seconds in load_recording(name).times:
        node.clock.seconds = seconds
        node.poll(every=0.0)
        assert node.findings() == (), (name, seconds)


def test_no_golden_is_left_without_its_recording() -> None:
    assert {p.stem for p in HERE.glob("*.prom")} == set(bundled_names())
