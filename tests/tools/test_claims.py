"""A claim is the sum of all its runs; a page says of it what the ledger does."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.rows import each
from tools import claims
from tools.claims import Claim, Limit, Result, Run, Sum, wilson


def run(date: str, *results: Result, cards: tuple[str, ...] = ("2 H200",)) -> Run:
    return Run(date=date, commit="0" * 8, cards=cards, results=results, path=f"runs/{date}.json")


def result(right: int, tries: int, lost: str = "") -> Result:
    return Result(claim="late", shape="two GPUs", right=right, tries=tries, lost=lost)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A ledger of its own with a claim and a run."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "claims.toml").write_text(
        "[limits]\n[claims.late]\nsays = 'named in {right} of {tries}'\nabout = 'Words.'\n"
        "[claims.mutants]\nsays = '{right} of {tries} noticed'\nabout = 'Words.'\n"
    )
    for name, value in (
        ("ROOT", tmp_path), ("FOLDER", tmp_path), ("CLAIMS", tmp_path / "claims.toml"),
        ("RUNS", tmp_path / "runs"), ("MUTANTS", tmp_path / "mutants"),
    ):  # fmt: skip
        monkeypatch.setattr(claims, name, value)
    _forget()
    add(tmp_path, "2026-11-21", {"claim": "late", "shape": "two GPUs", "tries": 20, "right": 20})
    yield tmp_path
    _forget()


def _forget() -> None:
    claims.book.cache_clear()
    claims.runs.cache_clear()


def add(folder: Path, date: str, *results: dict[str, object]) -> None:
    made = {"date": date, "commit": "0" * 8, "cards": ["2 H200"], "results": results}
    (folder / "runs" / f"{date}.json").write_text(json.dumps(made))
    _forget()


def test_a_file_more_changes_what_a_page_says(ledger: Path) -> None:
    page = "It was [named](proof/claims/claims.md#late)."
    assert claims.linked(page) == "It was [named in 20 of 20](proof/claims/claims.md#late)."

    add(ledger, "2026-11-22", {"claim": "late", "shape": "four", "tries": 10, "right": 8, "lost": "two"})

    assert claims.linked(page) == "It was [named in 28 of 30](proof/claims/claims.md#late)."
    assert "| 2026-11-22 | 00000000 | 2 H200 | four | 8 of 10 | 49 % to 94.3 % | two |" in claims.page()


@pytest.mark.usefixtures("ledger")
def test_a_link_that_is_wrapped_is_found() -> None:
    assert claims.linked("[named in\n1 of 1](claims.md#late)") == "[named in 20 of 20](claims.md#late)"


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("name", ["nothing", "mutants"])
def test_a_claim_without_runs_is_not_said(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        claims.linked(f"[x](claims.md#{name})")


def test_a_run_of_no_claim_is_an_error(ledger: Path) -> None:
    add(ledger, "2026-11-22", {"claim": "other", "shape": "", "tries": 1, "right": 1})
    with pytest.raises(ValueError, match=r"runs/2026-11-22.json: no claim is named 'other'"):
        claims.sums()


def test_the_score_of_mutants_is_a_run_with_its_rooms(ledger: Path) -> None:
    (ledger / "mutants").mkdir()
    rooms = {"jobs": {"tried": 150, "killed": 141}, "page": {"tried": 40, "killed": 40}}
    score = {"seed": 7, "date": "2026-11-28", "commit": "abc", "rooms": rooms}
    (ledger / "mutants" / "7.json").write_text(json.dumps(score))
    _forget()
    assert claims.said("mutants") == "181 of 190 noticed"
    assert "| 2026-11-28 | abc | seed 7 | jobs | 141 of 150 |" in claims.page()


def test_runs_without_figures_are_listed_and_count_nothing() -> None:
    cut = Result(claim="late", shape="cut off", note="no first result")
    assert Sum(
        [(run("2026-11-21", cut, result(3, 4, "one")), one) for one in (cut, result(3, 4, "one"))]
    ).tries == (4, 3)


@each(
    "wrong",
    [
        {"tries": 20, "right": 19},
        {"tries": 20, "right": 21, "lost": "x"},
        {"tries": 20},
        {"right": 20},
        {},
        {"tries": 20, "right": 20, "unread": 1},
    ],
)
def test_a_result_says_how_tries_were_lost_or_why_there_are_none(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Result.model_validate({"claim": "late", "shape": "x", **wrong})


def test_a_limit_that_moves_in_the_code_ends_the_making() -> None:
    limit = claims.book().limits["siege-unanswered"]
    assert limit.in_code() == limit.now
    moved = Limit.model_validate({**limit.model_dump(), "now": 5})
    with pytest.raises(ValueError, match="belongs to `was` now"):
        claims.kept({"siege-unanswered": moved})


def test_every_limit_says_old_and_new() -> None:
    assert {name: claims.said(name) for name in claims.book().limits} == {
        "late-rank-cost": "5 % (3 % until 2026-11-27)",
        "siege-unanswered": "10 s (5 s until 2026-11-22)",
        "siege-blind": "15 s (5 s until 2026-11-22)",
    }


@pytest.mark.parametrize(
    ("right", "tries", "low", "high"),
    [(20, 20, 0.839, 1.0), (0, 20, 0.0, 0.161), (61, 91, 0.568, 0.758), (0, 0, 0.0, 1.0)],
)
def test_intervals_by_wilson(right: int, tries: int, low: float, high: float) -> None:
    assert wilson(right, tries) == pytest.approx((low, high), abs=1e-3)


def test_each_claim_fits_its_runs_and_each_file_of_runs_is_of_its_day() -> None:
    for name, total in claims.sums().items():
        assert "nan" not in claims.said(name), name
        assert claims.book().claims[name].unit or not any(one.values for _, one in total.found), name
    assert all(Path(one.path).stem.startswith(one.date) for one in claims.runs() if "runs" in one.path)
    assert isinstance(claims.book().claims["late-rank"], Claim)


def test_ranges_and_cards() -> None:
    found = [
        (run("2026-11-21", cards=("4 H200", "1 H200")), Result(claim="x", shape="", values=(0.5, 0.25))),
        (run("2026-11-22", cards=("2 H100",)), Result(claim="x", shape="", values=(1.25,), amount=(10, 65))),
    ]
    of = Sum(found).fields()
    assert (of["low"], of["high"], of["least"], of["most"]) == ("0.25", "1.25", "10", "65")
    assert of["cards"] == "1 and 4 H200, 2 H100"
