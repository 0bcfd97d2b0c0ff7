"""The matrix of runs: where each point is, its colour and size, and what is written beside it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from wirewatch.core.pairs import Measure, PartKind
from wirewatch_fleet.pairs.document import (
    PairsDocument,
    RoundEntry,
    RoundsDocument,
    SlowEntry,
    pairs_document,
)
from wirewatch_fleet.pairs.model import PairMember, PairRun
from wirewatch_fleet.pairs.picture import draw_matrix, figure_of

SIX = [PairMember(name, name[0].strip("?")) for name in ("b1", "a1", "a2", "?1", "b2", "a3")]
"""In the drawing ?1 comes first, then the members of a and of b."""


def made(*runs: PairRun, members: list[PairMember] = SIX) -> RoundsDocument:
    rounds = [RoundEntry(number, [run]) for number, run in enumerate(runs, 1)]
    return RoundsDocument("wirewatch.fleet-rounds/1", 1764e6, members, rounds)


def slow(kind: PartKind, name: str, peer: str = "", rail: str = "") -> SlowEntry:
    return SlowEntry(kind, name, peer, rail, False, Measure.SEND, [], [], "")  # noqa: FBT003


def result(document: RoundsDocument, *named: SlowEntry) -> PairsDocument:
    return replace(pairs_document(document), named=list(named), suspects=list(named[:1]))


def axes_of(document: RoundsDocument, *named: SlowEntry) -> Any:
    return figure_of(document, result(document, *named)).axes[0]


def points(figure: Figure) -> dict[tuple[int, int], tuple[float, float]]:
    """By the places of receiver and sender: percent slower, and the size."""
    drawn: Any = figure.axes[0].collections[0]
    places = [(round(x), round(y)) for x, y in drawn.get_offsets()]
    sizes = drawn.get_sizes()
    return {
        place: (round(float(slower), 6), round(float(sizes[n]), 3))
        for n, (place, slower) in enumerate(zip(places, drawn.get_array(), strict=True))
    }


ALIKE = [PairRun("a1", other, 10.0, 10.0) for other in ("a2", "a3", "b2", "?1")]
LARGE = 300.0
"""The size of a point where there are few."""


@pytest.mark.parametrize(
    ("run", "sent", "received"),
    [
        (PairRun("a3", "a2", 8.0, 5.0), 20.0, 40.0),
        (PairRun("a3", "a2", 20.0, None), 0.0, None),
        (PairRun("a3", "a2", None, None, 9.0), 10.0, 10.0),
        (PairRun("a3", "a2", 8.0, 5.0, 1.0), 20.0, 40.0),
        (PairRun("a3", "a2", 1.0, 1.0, rails={"0": (9.0, None), "1": (7.0, None)}), 30.0, 90.0),
        (PairRun("a3", "a2", failed="no answer"), None, None),
    ],
    ids=["both ways", "one way", "a collective", "not by a collective", "the slowest rail", "no answer"],
)
def test_each_direction_is_a_point_by_what_measured_it(
    run: PairRun, sent: float | None, received: float | None
) -> None:
    """Beside the median of those of its kind; more than 40 % slower is drawn as 40 %."""
    document = made(*ALIKE, *ALIKE, run)
    found = points(figure_of(document, result(document)))
    for place, slower in (((2, 3), sent), ((3, 2), received)):
        told = found.get(place)
        assert (told[0] if told else None) == (slower if slower is None else min(slower, 40.0))


def test_runs_of_each_kind_have_their_own_median() -> None:
    """Inside a leaf, across leafs, and where a leaf is not known."""
    runs = [
        PairRun("a1", "a2", 10.0, 10.0), PairRun("a1", "b1", 5.0, 5.0), PairRun("a2", "?1", 4.0, 4.0),
        PairRun("?1", "b2", 4.0, 4.0),
    ]  # fmt: skip
    document = made(*runs)
    assert {slower for slower, _ in points(figure_of(document, result(document))).values()} == {0.0}


def test_a_fleet_is_drawn_in_the_order_of_leafs_with_a_line_between_them() -> None:
    document = made(*ALIKE)
    axes = axes_of(document)
    names = ["?1", "a1", "a2", "a3", "b1", "b2"]
    assert [one.get_text() for one in axes.get_xticklabels()] == names
    assert [one.get_text() for one in axes.get_yticklabels()] == names
    across = [one.get_xdata()[0] for one in axes.lines if one.get_xdata()[0] == one.get_xdata()[1]]
    down = [one.get_ydata()[0] for one in axes.lines if one.get_ydata()[0] == one.get_ydata()[1]]
    assert across == down == [0.5, 3.5]
    assert (axes.get_xlim(), axes.get_ylim(), axes.get_aspect()) == ((-0.5, 5.5), (5.5, -0.5), 1.0)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("receives", "sends")
    assert axes.get_title(loc="left") == "6 nodes, 4 rounds: 0 named, 0 suspected"


def test_a_drawing_has_a_bar_of_its_colours() -> None:
    document = made(*ALIKE)
    figure = figure_of(document, result(document))
    assert [one.get_ylabel() for one in figure.axes[1:]] == ["slower than typical (%; 40 and more alike)"]
    assert tuple(figure.get_size_inches()) == (8.7, 7.5)


@pytest.mark.parametrize(("size", "names"), [(40, 40), (41, 0)])
def test_forty_members_have_their_names_at_the_axes(size: int, names: int) -> None:
    members = [PairMember(f"n{n:02}") for n in range(size)]
    document = made(PairRun("n00", "n01", 1.0, 1.0), members=members)
    axes = axes_of(document)
    shown = [one.get_text() for one in axes.get_xticklabels() if one.get_text().startswith("n")]
    assert len(shown) == names


@pytest.mark.parametrize(
    ("size", "lost", "drawn"),
    [
        (6, 0.0, LARGE), (100, 0.0, 20.25), (500, 0.0, 2.0), (500, 0.06, 14.0), (500, 0.04, 2.0),
        (100, 0.06, 20.25),
    ],
)  # fmt: skip
def test_what_is_slow_is_large_enough_to_be_seen(size: int, lost: float, drawn: float) -> None:
    """From five percent on, however many members there are."""
    members = [PairMember(f"n{n:03}") for n in range(size)]
    runs = [PairRun(f"n{n:03}", f"n{n + 1:03}", 10.0, 10.0) for n in (0, 2, 4)]
    document = made(*runs, PairRun("n001", "n004", 10.0 * (1 - lost)), members=members)
    assert points(figure_of(document, result(document)))[4, 1][1] == drawn


def texts(*named: SlowEntry, members: list[PairMember] = SIX) -> list[str]:
    document = made(PairRun(members[0].name, members[1].name, 1.0, 1.0), members=members)
    axes = axes_of(document, *named)
    return [one.get_text() for one in axes.texts]


@pytest.mark.parametrize(
    ("named", "labels"),
    [
        ((), []),
        ((slow(PartKind.NODE, "a1"),), ["a1"]),
        ((slow(PartKind.NODE, "a1", rail="2"), slow(PartKind.NODE, "a1", rail="3")), ["a1 rail 2, rail 3"]),
        ((slow(PartKind.PAIR, "a1", "b1"), slow(PartKind.NODE, "a1")), ["a1 to b1"]),
        ((slow(PartKind.PAIR, "a1", "b1", rail="2"),), ["a1 to b1"]),
        ((slow(PartKind.LEAF, "a"), slow(PartKind.RAIL, "1", rail="1")), []),
        ((slow(PartKind.NODE, "b2"), slow(PartKind.NODE, "a2")), ["a2", "b2"]),
    ],
)
def test_nodes_and_pairs_that_are_named_have_a_label(named: tuple[SlowEntry, ...], labels: list[str]) -> None:
    assert texts(*named) == labels


def test_a_pair_has_a_circle_at_its_place() -> None:
    document = made(*ALIKE)
    axes = axes_of(document, slow(PartKind.PAIR, "a1", "b1"))
    (_, circle) = axes.collections
    assert circle.get_offsets().tolist() == [[4.0, 1.0]]
    axes = axes_of(document, slow(PartKind.NODE, "a1"))
    assert len(axes.collections) == 1


def test_twelve_labels_are_written_apart_from_each_other() -> None:
    members = [PairMember(f"n{n:03}") for n in range(100)]
    document = made(PairRun("n000", "n001", 1.0, 1.0), members=members)
    named = [slow(PartKind.NODE, f"n{n:03}") for n in (*range(14), 90)]
    axes = axes_of(document, *named)
    heights = [round(one.xyann[1], 6) for one in axes.texts]
    assert heights == [round(2.8 * n, 6) for n in range(12)]
    axes = axes_of(document, named[0], named[-1])
    assert [one.xyann[1] for one in axes.texts] == [0, 90]


def test_a_name_of_signs_that_no_font_has_is_drawn_all_the_same() -> None:
    members = [PairMember("n\n\u4e2d" + "x" * 60), PairMember("m")]
    (label,) = texts(slow(PartKind.NODE, members[0].name), members=members)
    assert label == "n??" + "x" * 33


def test_the_same_rounds_are_the_same_file(tmp_path: Path) -> None:
    document = made(*ALIKE)
    for name in ("one.svg", "other.svg"):
        draw_matrix(document, result(document), tmp_path / name)
    text = (tmp_path / "one.svg").read_text("utf-8")
    assert text == (tmp_path / "other.svg").read_text("utf-8")
    assert "<dc:date>" not in text
    assert ">receives</text>" in text
