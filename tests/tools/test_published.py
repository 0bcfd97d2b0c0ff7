"""The published figures beside those of a sweep."""

from dataclasses import replace
from random import Random

import pytest

from tests.lab.study.drawn import FULL, Noise, curve, study
from tests.recorded import PUBLISHED
from tools.published import figures, merged, page, published_of_two
from wirewatch.core.types import Absent
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study

SAMPLE = PUBLISHED / "nccltests.2.18.3.h100x4.allreduce.txt"


def rows(text: str) -> dict[str, list[str]]:
    cells = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line)
    return {one[0]: one[1:] for one in cells}


def test_what_was_not_measured_is_said_of_each_figure() -> None:
    found = rows(page(Study(0.0, "nothing", {}, ())))
    assert found["all_reduce, plateau"] == ["366 GB/s", "-", "-", "not measured"]
    assert found["all_reduce, NVLS, 8 GiB"][3] == "not repeated: NVLink multicast is off on our machines"
    assert set(found) >= {figure.name for figure in figures()}


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
    assert len(names) == len(set(names)) == 29
    assert all(isinstance(figure.of(Study(0.0, "", {}, ())), Absent) for figure in figures())


def test_what_nccl_would_choose_stands_for_its_choice_and_is_named() -> None:
    drawn = study(Random(2), Noise(0.001), 1, FULL).curves[0]  # noqa: S311 - noise
    ring = replace(drawn, configuration=Configuration(4, "Ring", "Simple"))
    found = rows(page(Study(0.0, "drawn, not measured", {}, [ring])))
    assert found["all_reduce, plateau"][1].endswith(", Ring Simple")
    assert found["all_reduce, Ring, 8 GiB"][1].endswith(", Ring Simple")
    assert found["all_reduce, Simple, 256 MiB"][1].endswith(", Ring Simple")
    assert found["all_reduce, latency floor"] == ["22.7 us", "-", "-", "not measured"]


MIB = 1 << 20
TWO = {8: 20.0, 4096: 20.0, 16 * MIB: 77.0, 256 * MIB: 894.0, 8192 * MIB: 24_617.0}
"""Microseconds of two H200, by NCCL's own choice."""


def of_two(launch: str = "eager", ran: str = "Ring Simple") -> Curve:
    made = curve(
        {n: us if launch == "eager" or n > MIB else 7.0 for n, us in TWO.items()},
        Configuration(2, launch=launch),
    )
    return replace(made, points=tuple(replace(one, ran=(ran,)) for one in made.points))


def test_two_gpus_are_held_to_the_published_run_of_two_and_shown_beside_four() -> None:
    text = page(Study(0.0, "made up", {}, [of_two(), of_two("graph")]))
    found = rows(text)
    assert "Found are figures of 2 GPUs" in text
    assert found["all_reduce of 2 GPUs, 8 GiB"] == ["347 GB/s", "349 GB/s", "+0.6%", "the same within 3 %"]
    assert found["all_reduce of 2 GPUs, 1 GiB"][1:] == ["-", "-", "not measured"]
    assert found["all_reduce, plateau"][1:] == [
        "349 GB/s, 2 GPUs", "-4.7%", "the published run of 2 GPUs has 347 GB/s: +0.6%"
    ]  # fmt: skip
    assert found["all_reduce, latency floor"][3].endswith(
        "65% of ours is the host's launches: as a graph 7.0 us"
    )
    assert found["all_gather, plateau"][3] == "not measured"
    assert found["all_reduce, NVLS, 8 GiB"][3] == "not repeated: NVLink multicast is off on our machines"


def test_four_gpus_are_never_explained_by_two() -> None:
    four = replace(of_two(), configuration=Configuration(4))
    text = page(Study(0.0, "made up", {}, [of_two(), four]))
    assert "Found are figures" not in text
    assert "GPUs" not in rows(text)["all_reduce, plateau"][1]


@pytest.mark.parametrize(("ran", "ring", "simple"), [
    ("Ring Simple", "300 GB/s, 2 GPUs, auto", "300 GB/s, 2 GPUs, auto"),
    ("Tree Simple", "-", "300 GB/s, 2 GPUs, auto"),
    ("Ring LL", "300 GB/s, 2 GPUs, auto", "-"),
    ("", "-", "-"),
])  # fmt: skip
def test_nccls_own_choice_stands_for_what_its_log_says_that_ran(ran: str, ring: str, simple: str) -> None:
    found = rows(page(Study(0.0, "made up", {}, [of_two(ran=ran)])))
    assert (found["all_reduce, Ring, 256 MiB"][1], found["all_reduce, Simple, 256 MiB"][1]) == (ring, simple)
    assert found["all_reduce, Tree, 256 MiB"][1].startswith("300" if "Tree" in ran else "-")


def test_the_nearest_size_stands_for_one_that_was_not_measured_and_is_named() -> None:
    tree = curve({128 * MIB: 450.0, 512 * MIB: 1650.0, 4096 * MIB: 12_000.0}, Configuration(2, "Tree"))
    found = rows(page(Study(0.0, "made up", {}, [tree])))
    assert found["all_reduce, Tree, 256 MiB"][1].endswith("2 GPUs, at 128 MiB")
    assert found["all_reduce, Tree, 1 GiB"][1].endswith("2 GPUs, at 512 MiB")
    assert found["all_reduce, Tree, 8 GiB"][1].endswith("2 GPUs, at 4 GiB")
    far = curve({32 * MIB: 140.0}, Configuration(2, "Tree"))
    assert rows(page(Study(0.0, "made up", {}, [far])))["all_reduce, Tree, 256 MiB"][1] == "-"


def test_of_several_sweeps_the_first_has_a_curve_and_all_have_the_machine() -> None:
    slow = replace(of_two(), points=(CurvePoint(8192 * MIB, (1.0,)),))
    tree = replace(slow, configuration=Configuration(2, "Tree"))
    one = Study(5.0, "one", {"NCCL": "2.28.9", "gpus": "GPU-1"}, [of_two()])
    two = Study(6.0, "two", {"NCCL": "2.28.9", "gpus": "GPU-2"}, [slow, tree])
    both = merged([one, two], ["a", "b"])
    assert (both.source, both.environment) == ("a b", {"NCCL": "2.28.9"})
    assert list(both.curves) == [of_two(), tree]


def test_the_published_run_of_two_is_the_one_that_references_have() -> None:
    assert published_of_two()[256 * MIB] == pytest.approx(300.56e9)
    assert published_of_two()[8192 * MIB] == pytest.approx(346.86e9)
