"""`wirewatch fleet pairs`: text, JSON, picture and exit codes, on rounds of a drawn fleet."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.fleet.pairs.drawn import BOTH, DrawnFault, DrawnFleet, FabricNoise
from wirewatch.core.pairs import PartKind, Way
from wirewatch_fleet.cli.pairs import pairs
from wirewatch_fleet.pairs.document import (
    PAIRS,
    ROUNDS,
    RoundsDocument,
    RoundsWork,
    pairs_document,
    rounds_document,
)
from wirewatch_fleet.pairs.model import SlowPlace

CALM = FabricNoise(transient=0.001, rail_transient=0.0002)


@cache
def measured(*faults: DrawnFault, rounds: int = 8, pace: float = 1.0) -> RoundsDocument:
    fleet = DrawnFleet(32, rails=2, leaf=8, noise=CALM, faults=faults, pace=pace)
    _, every = fleet.verdict()
    return rounds_document(1764e6, fleet.fleet, every[:rounds])


SLOW = DrawnFault(SlowPlace(PartKind.NODE, "n0003"), frozenset({Way.SENDS}), 0.2)
WORSE = DrawnFault(SlowPlace(PartKind.NODE, "n0003"), BOTH, 0.5)


def ran(folder: Path, made: RoundsDocument, *options: str) -> Result:
    path = folder / "results.json"
    path.write_bytes(ROUNDS.dump_json(made))
    return CliRunner().invoke(pairs, [str(path), *options])


def test_healthy_ends_with_0(tmp_path: Path) -> None:
    result = ran(tmp_path, measured())
    assert result.exit_code == 0, result.output
    assert result.output.startswith("OK: 0 named, 0 open")
    assert "sends on one rail across leafs: 4" in result.output


def test_a_slow_direction_ends_with_1_and_has_its_line(tmp_path: Path) -> None:
    result = ran(tmp_path, measured(SLOW))
    assert result.exit_code == 1, result.output
    (line,) = [line for line in result.output.splitlines() if line.strip().startswith("n0003")]
    assert "sends" in line
    assert "sends on one rail" in line


def test_30_percent_end_with_2(tmp_path: Path) -> None:
    assert ran(tmp_path, measured(WORSE)).exit_code == 2


def test_rounds_that_are_not_finished_say_what_to_measure_next(tmp_path: Path) -> None:
    result = ran(tmp_path, measured(SLOW, rounds=2))
    assert result.exit_code == 3
    assert "measure next, as round 3 (across): " in result.output


def test_no_more_rounds_are_asked_for_than_are_allowed(tmp_path: Path) -> None:
    result = ran(tmp_path, measured(rounds=1), "--rounds", "1")
    assert "in 1 rounds" in result.output
    assert "measure next" not in result.output


def test_json_is_the_document(tmp_path: Path) -> None:
    made = measured(SLOW)
    result = ran(tmp_path, made, "--json")
    found = PAIRS.validate_json(result.output)
    assert found == pairs_document(made)
    (part,) = found.named
    assert (part.name, part.members, [one.way for one in part.losses]) == ("n0003", ["n0003"], [Way.SENDS])


def test_slow_all_alike_is_named_beside_the_past(tmp_path: Path) -> None:
    past = tmp_path / "past.json"
    past.write_bytes(PAIRS.dump_json(pairs_document(measured())))
    result = ran(tmp_path, measured(pace=0.8), "--past", str(past))
    assert result.exit_code == 1, result.output
    assert "all alike: sends on one rail across leafs are 2" in result.output
    assert ran(tmp_path, measured(pace=0.8)).exit_code == 0


@pytest.mark.parametrize("form", ["svg", "png"])
def test_the_picture_is_drawn_with_the_names(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"matrix.{form}"
    assert ran(tmp_path, measured(SLOW), "--picture", str(path)).exit_code == 1
    assert form == "png" or "n0003" in path.read_text("utf-8")
    assert path.stat().st_size > 5000


def test_a_fleet_without_members_is_an_empty_picture(tmp_path: Path) -> None:
    path = tmp_path / "matrix.svg"
    made = RoundsDocument("wirewatch.fleet-rounds/1", 1764e6, [], [])
    assert ran(tmp_path, made, "--picture", str(path)).exit_code == 3
    assert "0 nodes, 0 rounds" in path.read_text("utf-8")


def test_nothing_measured_is_not_healthy(tmp_path: Path) -> None:
    made = replace(measured(), rounds=[])
    assert ran(tmp_path, made).exit_code == 3


def _twice(made: dict[str, Any]) -> None:
    made["members"].append(made["members"][0])


def _stranger(made: dict[str, Any]) -> None:
    made["rounds"][0]["runs"][0]["first"] = "nobody"


def _itself(made: dict[str, Any]) -> None:
    made["rounds"][0]["runs"][0]["first"] = made["rounds"][0]["runs"][0]["second"]


def _number(made: dict[str, Any]) -> None:
    made["rounds"][0]["number"] = 2


def _rate(made: dict[str, Any]) -> None:
    made["rounds"][0]["runs"][0]["sends"] = 0


def _at(at: float) -> Callable[[dict[str, Any]], None]:
    return lambda made: made.update(at=at)


def _clique(*nodes: str) -> Callable[[dict[str, Any]], None]:
    return lambda made: made["members"][0].update(nodes=nodes)


def _schema(made: dict[str, Any]) -> None:
    made["schema"] = "wirewatch.sweep/1"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_twice, "n0000 is there twice"), (_stranger, "nobody is not a member"), (_itself, "with itself"),
        (_at(1e300), "at: "), (_at(-1e14), "at: "), (_at(1e12), "at: "), (_at(float("nan")), "at: "),
        (_clique("tray0", "n0001"), "n0001 is there twice"), (_clique("tray0", "tray0"), "tray0 is there"),
        (_number, "a number is there twice"), (_rate, "rounds.0.runs.0.sends"), (_schema, "schema"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_clear_line(tmp_path: Path, damage: Any, words: str) -> None:
    made = json.loads(ROUNDS.dump_json(measured()))
    damage(made)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(made), "utf-8")
    result = CliRunner().invoke(pairs, [str(path)], standalone_mode=False)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)


def _rates(rate: float) -> Callable[[dict[str, Any]], None]:
    return lambda past: past["typical"][0].update(rate=rate)


def _members(past: dict[str, Any]) -> None:
    for one in past["members"]:
        one["name"] = f"other-{one['name']}"


def _work(**changed: Any) -> Callable[[dict[str, Any]], None]:
    return lambda past: past["work"].update(changed)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_rates(float("inf")), "typical.0.rate"), (_rates(float("nan")), "typical.0.rate"),
        (_rates(-1), "typical.0.rate"), (_rates(1e308), "typical.0.rate"), (_rates(0), "typical.0.rate"),
        (lambda past: past.update(spread=float("nan")), "spread"), (_at(1764e6 + 60), "60 s after these"),
        (_members, "none of these nodes took part"), (_schema, "schema"),
        (_work(engine="gloo"), "engine gloo there, distributed here"), (_work(ranks=4), "4 ranks a node"),
        (_work(size_bytes=1 << 20), "1,048,576 bytes at a time there, 268,435,456 here"),
    ],
)  # fmt: skip
def test_an_earlier_result_that_cannot_be_compared_is_one_clear_line(
    tmp_path: Path, damage: Any, words: str
) -> None:
    made = replace(measured(), work=RoundsWork("distributed", 8, 256 << 20))
    earlier = json.loads(PAIRS.dump_json(pairs_document(made)))
    damage(earlier)
    past = tmp_path / "past.json"
    past.write_text(json.dumps(earlier), "utf-8")
    results = tmp_path / "results.json"
    results.write_bytes(ROUNDS.dump_json(made))
    result = CliRunner().invoke(pairs, [str(results), "--past", str(past)], standalone_mode=False)
    assert str(result.exception).startswith(f"{past}: ")
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_least_loss_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    result = ran(tmp_path, measured(WORSE), "--least", "nan")
    assert result.exit_code == 2
    assert "'nan' is not a number from 1 to 50" in result.output


@pytest.mark.parametrize("text", ["", "no json", "[]", "{", "null", '{"schema": 1}'])
def test_any_other_file_is_one_clear_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text, "utf-8")
    result = CliRunner().invoke(pairs, [str(path)], standalone_mode=False)
    assert str(result.exception).startswith(f"{path}: not a document of rounds")


def test_a_picture_is_svg_or_png(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        pairs, [__file__, "--picture", str(tmp_path / "x.gif")], standalone_mode=False
    )
    assert "ends in .svg or .png" in str(result.exception)


def test_a_picture_takes_a_library_and_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = ran(tmp_path, measured(), "--picture", str(tmp_path / "no" / "x.svg"))
    assert (result.exit_code, "x.svg: No such file or directory" in result.output) == (2, True)
    monkeypatch.setattr("wirewatch_fleet.cli.pairs.find_spec", lambda _name: None)
    result = ran(tmp_path, measured(), "--picture", str(tmp_path / "x.svg"))
    assert (result.exit_code, "--picture takes matplotlib" in result.output) == (2, True)
    assert ran(tmp_path, measured()).exit_code == 0


def test_each_member_has_its_partners_and_a_clique_its_nodes() -> None:
    made = measured()
    members = [replace(made.members[0], nodes=("tray0", "tray1")), *made.members[1:]]
    first, *others = pairs_document(replace(made, members=members)).members
    met = {r.second if r.first == first.name else r.first for one in made.rounds for r in one.runs
           if first.name in (r.first, r.second) and not r.failed}  # fmt: skip
    assert first.nodes == ["tray0", "tray1"]
    assert set(first.partners) == met
    assert not any(one.nodes for one in others)
