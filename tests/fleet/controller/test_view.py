"""The view of the nodes: what a list lacks, for how long, and when that is too much."""

import pytest

from tests.fleet.controller.drawn import node
from tests.rows import each
from wirewatch_fleet.controller.view import KEPT, FleetView

A, B, C = node("a"), node("b"), node("c")


def seen(*lists: tuple[float, str]) -> FleetView:
    view = FleetView()
    for now, names in lists:
        view.take([node(name) for name in names], now)
    return view


def missed(view: FleetView) -> str:
    return "".join(sorted(one.name for one in view.missed()))


@each(
    ("lists", "gone"),
    [
        ([(0.0, "abc")], ""),
        ([(0.0, "abc"), (9.0, "ab")], "c"),
        ([(0.0, "abc"), (9.0, "ab"), (20.0, "a")], "bc"),
        ([(0.0, "abc"), (9.0, "ab"), (20.0, "abc")], ""),
        ([(0.0, "abc"), (9.0, "ab"), (9.0 + KEPT - 1, "ab")], "c"),
        ([(0.0, "abc"), (9.0, "ab"), (300.0, "ab"), (9.0 + KEPT, "ab")], ""),
        ([(0.0, "abc"), (KEPT + 1, "ab")], ""),
    ],
    ids=["first", "one", "two", "back", "not long", "for long", "an old view"],
)
def test_what_a_list_lacks_counts_for_a_while(lists: list[tuple[float, str]], gone: str) -> None:
    assert missed(seen(*lists)) == gone


def test_time_passes_between_two_lists_too() -> None:
    view = seen((0.0, "abc"), (9.0, "ab"))
    view.look(9.0 + KEPT)
    assert missed(view) == ""


def test_a_change_says_that_a_node_is_here_or_was_deleted() -> None:
    view = seen((0.0, "abc"), (9.0, "a"))
    view.change(B)
    view.change(C, deleted=True)
    view.change(A, deleted=True)
    assert (missed(view), [*view.nodes]) == ("", ["b"])


@pytest.mark.parametrize(
    ("limit", "frozen"),
    [(2, ""), (1, "2 of 4 nodes are gone from the list at once; at most 1 may be"), ("50%", "")],
)
def test_a_view_is_frozen_by_more_than_may_be_out(limit: int | str, frozen: str) -> None:
    assert seen((0.0, "abcd"), (9.0, "ab")).frozen(limit) == frozen


def test_a_whole_view_is_never_frozen() -> None:
    assert FleetView().frozen(0) == seen((0.0, "ab")).frozen(0) == ""
