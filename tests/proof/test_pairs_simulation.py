"""Drawn fleets do not depend on who drew them, nor on when it was ended."""

from pathlib import Path

import pytest

from proof.fleet.simulation.__main__ import arguments, asked_cases, draw
from proof.fleet.simulation.cases import CASES, PairsCase
from proof.fleet.simulation.kept import FILE, known, left, write_trial


def case(name: str, trials: int) -> PairsCase:
    return next(one for one in CASES if one.name == name).of(trials)


FEW = (case("five-256", 2), case("healthy-256", 1))


def test_two_processes_draw_what_one_does(tmp_path: Path) -> None:
    draw(FEW, tmp_path / "one", processes=1)
    draw(FEW[::-1], tmp_path / "two", processes=2)

    assert known(tmp_path / "one") == known(tmp_path / "two")
    assert [len(known(tmp_path / "one")[one.name]) for one in FEW] == [2, 1]


def test_goes_on_where_it_was_ended_in_the_middle_of_a_line(tmp_path: Path) -> None:
    write_trial(tmp_path, {"case": "five-256", "number": 1})
    with (tmp_path / FILE).open("a") as file:
        file.write('{"case": "five-256", "num')

    assert list(left(FEW, known(tmp_path), 1.0)) == [(FEW[0], 0), (FEW[1], 0)]
    write_trial(tmp_path, {"case": "five-256", "number": 0})
    assert [one["number"] for one in known(tmp_path)["five-256"]] == [0, 1]


def test_a_part_of_every_case_comes_before_the_rest() -> None:
    some = [case("healthy-256", 40), case("healthy-2000", 20)]

    first = list(left(some, known(Path("nowhere")), 1.0))[:3]

    assert [one.name for one, _ in first] == ["healthy-256", "healthy-256", "healthy-2000"]
    assert len(list(left(some, known(Path("nowhere")), 0.5))) == 30


def test_cases_by_name_size_and_number() -> None:
    given = arguments().parse_args(["--size", "2000", "--trials", "healthy-2000=7"])

    asked = asked_cases(given.names, given.size, given.trials)

    assert [one.name for one in asked] == ["mixed-2000", "healthy-2000"]
    assert asked[1].trials == 7
    assert len(asked_cases([], [], [])) == len(CASES)


@pytest.mark.parametrize("text", ["healthy-256", "nothing=3", "healthy-256=x"])
def test_no_such_number_of_a_case(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments().parse_args(["--trials", text])
    assert "is not like healthy-256=10000" in capsys.readouterr().err
