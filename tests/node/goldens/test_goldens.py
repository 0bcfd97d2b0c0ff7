"""The golden texts are those of the code, and the bundled recordings those of healthy nodes."""

from pathlib import Path

import pytest

from tests.node.goldens import made
from tests.node.jobs.explain.cases import CASES, printed
from tests.rows import each
from tests.support import Node
from wirewatch.hw.recording import bundled_names, load_recording


@pytest.mark.parametrize("part", [made.DAEMON, *Node().collectors])
@pytest.mark.parametrize("name", bundled_names())
def test_what_each_collector_makes_of_a_recording_is_the_golden_text(name: str, part: str) -> None:
    _same(made.HERE / name / f"{part}.txt", made.expositions(name)[part])


@pytest.mark.parametrize("name", made.FAULTS)
def test_a_finding_is_shown_as_the_golden_text(name: str) -> None:
    _same(made.HERE / f"finding-{name}.txt", made.shown(name))


@each("name", CASES)
def test_a_job_is_explained_as_the_golden_text(name: str) -> None:
    _same(made.HERE / "explain" / f"{name}.txt", printed()[name])


@pytest.mark.parametrize("name", made.PAGES)
def test_what_a_page_says_is_the_golden_text(name: str) -> None:
    _same(made.HERE / "pages" / f"{name}.txt", made.drawn(name))


@pytest.mark.parametrize("name", bundled_names())
def test_a_bundled_recording_is_of_a_healthy_node(name: str) -> None:
    node = Node(name)
    node.options("probe", settle=0.0)
    for seconds in load_recording(name).times:
        node.clock.seconds = seconds
        node.poll(every=0.0)
        assert node.findings() == (), (name, seconds)


def test_no_golden_is_left_of_what_is_no_more() -> None:
    assert made.stray() == ()


def _same(golden: Path, text: str) -> None:
    assert golden.is_file(), f"stale: {golden.relative_to(made.HERE.parents[1])}: run make generated"
    assert text == golden.read_text("utf-8"), f"stale: {golden}: run make generated"
