"""What `wirewatch findings show` prints for some bundled faults, byte for byte, but for our own version.

After a change that was meant: `make goldens`, and read the difference before committing it.
"""

import json
import os
from pathlib import Path

import pytest

from tests.collectors.test_overlays import DEMO, watch
from tests.support import Node
from wirewatch import __version__
from wirewatch.cli.ticket import ticket
from wirewatch.export.evidence import evidence
from wirewatch.export.evidencedocuments import FINDING
from wirewatch.hw.overlay import load_overlay
from wirewatch.verdict.node import judged

HERE = Path(__file__).parent
FAULTS = ("gpu-ecc-uncorrected", "nvlink-link-down", "ib-port-slow")


def shown(name: str) -> str:
    """The text of the one finding of a fault."""
    node = Node(DEMO, load_overlay(name).changes)
    watch(node)
    here = judged(node.state)
    (one,) = here.verdict.standings
    document = FINDING.dump_json(evidence(here, one.id, node.clock.now(), "synthetic"))
    text = ticket(json.loads(document))
    assert text.count(f"  {__version__}\n") == 1
    return text.replace(f"  {__version__}\n", "  VERSION\n") + "\n"


@pytest.mark.parametrize("name", FAULTS)
def test_a_finding_is_shown_as_the_golden_text(name: str) -> None:
    golden = HERE / f"finding-{name}.txt"
    text = shown(name)
    if os.environ.get("WIREWATCH_GOLDENS") == "write":
        golden.write_text(text, "ascii")
    assert golden.is_file(), f"no golden for {name}: `make goldens`"
    assert text == golden.read_text("ascii")


def test_no_golden_is_left_without_its_fault() -> None:
    assert {p.name for p in HERE.glob("*.txt")} == {f"finding-{name}.txt" for name in FAULTS}
