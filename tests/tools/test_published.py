"""The published figures beside those of a sweep."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.study.drawn import FULL, Noise, curve, study
from tools.published import figures, page
from wirewatch.core.types import Absent
from wirewatch.study.curve import Configuration, Study

SAMPLE = Path(__file__).parents[3] / "shared/samples/nccltests.2.18.3.h100x4.allreduce.txt"


def rows(text: str) -> dict[str, list[str]]:
    cells = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line)
    return {one[0]: one[1:] for one in cells}


def test_what_was_not_measured_is_said_of_each_figure() -> None:
    found = rows(page(Study(0.0, "nothing", {}, ())))
    assert found["all_reduce, plateau"] == ["366 GB/s", "-", "-", "not measured"]
    assert found["all_reduce, NVLS, 8 GiB"][3] == "not repeated: NVLink multicast is off on our machines"
    assert set(found) >= {figure.name for figure in figures()}


@pytest.mark.skipif(not SAMPLE.exists(), reason="the published sample is not part of the tree")
def test_the_published_table_against_the_published_figures() -> None:
    lines = [line.split() for line in SAMPLE.read_text("utf-8").splitlines() if line.strip()[:1].isdigit()]
    measured = curve({int(line[0]): float(line[5]) for line in lines})
    found = rows(page(Study(0.0, "the sample", {"Driver": "580.1"}, [measured])))
    assert found["all_reduce, plateau"] == ["366 GB/s", "366 GB/s", "+0.0%", "the same within 3 %"]
    assert found["all_reduce, latency floor"][:3] == ["22.7 us", "23.3 us", "+2.5%"]
    assert found["all_reduce, half of the plateau from"][:2] == ["8 MiB", "8 MiB"]
    assert found["driver"] == ["580.159.03", "580.1"]


def test_a_difference_has_its_reason_or_is_not_explained() -> None:
    drawn = study(Random(1), Noise(0.001), 3, FULL).curves  # noqa: S311 - noise
    how = (Configuration(4, protocol="LL"), Configuration(4, launch="graph"), Configuration(4, "Ring"))
    curves = [replace(one, configuration=kind) for one, kind in zip(drawn, how, strict=True)]
    found = rows(page(Study(0.0, "drawn, not measured", {}, curves)))
    assert found["all_reduce, LL, 256 MiB"][0] == "147 GB/s"
    assert found["all_reduce, LL, 256 MiB"][1].endswith(" GB/s)")
    assert found["all_reduce, LL, 256 MiB"][3] == "not explained"
    assert "PyTorch" in found["all_reduce, graph, small messages"][3]
    assert float(found["all_reduce, graph, small messages"][2].removesuffix("%")) == pytest.approx(82, abs=2)


def test_each_figure_is_published_once_and_found_in_one_place() -> None:
    names = [figure.name for figure in figures()]
    assert len(names) == len(set(names)) == 24
    assert all(isinstance(figure.of(Study(0.0, "", {}, ()))[0], Absent) for figure in figures())


def test_what_nccl_would_choose_stands_for_its_choice_and_is_named() -> None:
    drawn = study(Random(2), Noise(0.001), 1, FULL).curves[0]  # noqa: S311 - noise
    ring = replace(drawn, configuration=Configuration(4, "Ring", "Simple"))
    found = rows(page(Study(0.0, "drawn, not measured", {}, [ring])))
    assert found["all_reduce, plateau"][1].endswith(", Ring Simple")
    assert found["all_reduce, Ring, 8 GiB"][1].endswith(", Ring Simple")
    assert found["all_reduce, Simple, 256 MiB"][1].endswith(", Ring Simple")
    assert found["all_reduce, latency floor"] == ["22.7 us", "-", "-", "not measured"]
