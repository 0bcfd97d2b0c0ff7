"""The cells of the tables that commands print: what is known, what is not, and what stands in its place."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.cli.checks import noted
from tests.rows import each
from wirewatch.cli import tables
from wirewatch.cli.tables import table
from wirewatch.core.probe import OFF


def cell(name: str, *values: Any) -> Any:
    return vars(tables)[f"_{name}"](*values)


@each(
    ("value", "right"),
    [
        ("1", True), ("1.5", True), ("12 %", True), ("3 GB/s", True), ("-", True), ("a1", False),
        ("1 2", False), ("12 gigabytes", False),
    ],
)  # fmt: skip
def test_numbers_stand_to_the_right_and_text_to_the_left(value: str, *, right: bool) -> None:
    """By the first row: its column is one of numbers or not."""
    lines = list(table(("x" * 20, "end"), [(value, "e"), ("-", "e")]))
    assert lines[1].startswith("  " + (value.rjust(20) if right else value.ljust(20)))
    assert (lines[0], lines[2].rstrip()[-1]) == ("  " + "x" * 20 + "  end", "e")
    assert list(table(("a",), [])) == []


@each(
    ("outcome", "busbw", "wrong", "text"),
    [
        ("ok", 450e9, 0, "450.0"), ("ok", 1e9, 2, "1.0, 2 wrong"), ("ok", 0.9e9, 0, "0.900"),
        ("no_engine", None, 0, "not installed"), ("ok", None, 0, "-"), ("failed", None, 0, "failed"),
    ],
)  # fmt: skip
def test_the_bandwidth_of_a_run(outcome: str, busbw: float | None, wrong: int, text: str) -> None:
    result = None if busbw is None else SimpleNamespace(busbw=busbw, wrong=wrong)
    assert cell("cell", SimpleNamespace(outcome=outcome), result) == text


@pytest.mark.parametrize(
    ("spread", "against", "beyond", "text"),
    [
        (0.01, 0.02, True, "+5.0 % (1.0 %, 2.0 %) !"), (0.01, None, False, "+5.0 % (1.0 %)"),
        (0.01, 0.02, None, "+5.0 % (no spread)"),
    ],
)  # fmt: skip
def test_the_gain_of_a_run(spread: float, against: float | None, beyond: bool | None, text: str) -> None:  # noqa: FBT001
    one = SimpleNamespace(difference=0.05, spread=spread, against_spread=against, beyond_spread=beyond)
    assert cell("gain", one) == text
    assert cell("gain", None) == "-"


def collective(**changes: Any) -> SimpleNamespace:
    known = {
        "op": "all_reduce", "size_bytes": 1 << 20, "gpus": "8", "seconds": 1e-4, "busbw": 450e9, "ratio": 0.9,
        "expected_busbw": None, "no_reference": "", "peak_ratio": None, "algorithm": "ring", "protocol": "",
        "wrong": 0,
    }  # fmt: skip
    return SimpleNamespace(**{**known, **changes})


@each(
    ("changes", "column", "text"),
    [
        ({}, 3, "100.0"), ({}, 4, "450.0"), ({"size_bytes": (1 << 20) - 1}, 4, "-"), ({}, 6, "90 %"),
        ({}, 7, "-"), ({}, 8, "ring"), ({"algorithm": "", "protocol": ""}, 8, "?"), ({}, 9, "no"),
        ({"protocol": "simple"}, 8, "ring/simple"), ({"wrong": 3}, 9, "3 elements"),
        ({"expected_busbw": 480e9}, 5, "480.0"), ({"no_reference": "x"}, 5, "no reference"), ({}, 5, "-"),
        ({"no_reference": "x", "size_bytes": 9}, 5, "-"),
        ({"no_reference": "x", "size_bytes": 10}, 5, "no reference"),
    ],
)  # fmt: skip
def test_the_cells_of_a_message(changes: dict[str, Any], column: int, text: str) -> None:
    assert cell("result", collective(**changes), 10)[column] == text


def shown(patch: pytest.MonkeyPatch, **changes: Any) -> dict[str, Any]:
    """What the template of a probe gets."""
    given: list[dict[str, Any]] = []
    patch.setattr(tables, "render", lambda *_, **values: noted(given, values, "text\n"))
    known: dict[str, Any] = {
        "network": None,
        "runs": [],
        "results": [],
        "gpus": [],
        "copies": [],
        "hosts": [],
        "differences": [],
    }
    probe: Any = SimpleNamespace(**{**known, "stragglers": [], **changes})
    assert tables.probe_tables(probe, explain=False) == "text"
    return given[0]


def run(name: str, *results: Any, problem: str = "") -> Any:
    return SimpleNamespace(name=name, results=results, problem=problem, outcome="ok")


def test_over_the_network_something_is_expected_of_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    small = collective(no_reference="x", size_bytes=9)
    for network, text in ((None, "-"), ("nics", "no reference")):
        found = shown(monkeypatch, network=network, results=[small])
        assert found["results"][0][5] == text
        assert found["without_reference"] == ([] if network is None else ["all_reduce: x"])
    beside = shown(monkeypatch, network="nics", results=[], runs=[run("a", small)])
    assert (beside["results"], beside["without_reference"]) == ([], ["all_reduce: x"])


@pytest.mark.parametrize(
    ("problems", "common"), [((), ""), (("a", "a"), "a"), (("a", "b"), ""), (("a", ""), "")]
)
def test_a_problem_of_all_runs_is_said_once(
    monkeypatch: pytest.MonkeyPatch, problems: tuple[str, ...], common: str
) -> None:
    runs = [run(str(number), problem=problem) for number, problem in enumerate(problems)]
    assert shown(monkeypatch, runs=runs)["common"] == common


def test_runs_stand_side_by_side_with_what_is_expected_of_each_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = (
        collective(busbw=400e9, expected_busbw=480e9),
        collective(op="broadcast", expected_busbw=90e9),
    )
    gain: Any = SimpleNamespace(
        op="all_reduce", size_bytes=1 << 20, gpus="8", run="b", against="a", difference=0.05, spread=None,
        against_spread=None, beyond_spread=None,
    )  # fmt: skip
    found = shown(monkeypatch, runs=[run("a", one, other), run("b", one)], differences=[gain])
    assert (found["run_heads"], found["gain_heads"]) == (("a GB/s", "b GB/s"), ("b against a",))
    assert found["beside"] == [
        ("all_reduce", "1 MiB", "8", "400.0", "400.0", "480.0", "+5.0 % (no spread)"),
        ("broadcast", "1 MiB", "8", "450.0", "-", "90.0", "-"),
    ]
    gain.against = OFF
    assert shown(monkeypatch, runs=[run("b", one)], differences=[gain])["gain_heads"] == ("gain",)


def test_each_reason_for_no_expectation_is_said_once() -> None:
    ones = [
        collective(op="a", no_reference="x", size_bytes=10), collective(op="b", no_reference="x"),
        collective(op="a", no_reference="x"), collective(op="c", no_reference="y", size_bytes=9),
        collective(op="d"),
    ]  # fmt: skip
    assert cell("unexpected", ones, 10) == ["a, b: x"]


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({}, ("GPU 2", "send", "10 %", "its peers", "3", "")),
        ({"peer": 5}, ("GPU 2 to 5", "send", "10 %", "its peers", "3", "")),
        ({"gpu": None, "score": None, "against": "own", "follows": ["all_reduce", "x"]},
         ("all GPUs", "send", "10 %", "its own history", "-", "all_reduce, x")),
    ],
)  # fmt: skip
def test_the_row_of_a_straggler(changes: dict[str, Any], row: tuple[str, ...]) -> None:
    known = {"gpu": 2, "peer": None, "resource": "send", "lost": 0.1, "against": "peers", "score": 3.0}
    assert cell("straggler", SimpleNamespace(**{**known, "follows": [], **changes})) == row


def test_copies_are_a_matrix_with_what_is_not_known() -> None:
    copies = [
        SimpleNamespace(source=a, destination=b, bytes_per_second=1e10) for a, b in ((0, 1), (1, 0), (0, 2))
    ]
    assert cell("matrix", SimpleNamespace(copies=copies)) == (
        ("0", "1"),
        [("0", "-", "10.0"), ("1", "10.0", "-")],
    )
    assert (cell("scaled", None, 2.0), cell("scaled", 1.25, 2.0, 1)) == ("-", "2.5")
