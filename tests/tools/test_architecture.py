"""The page on the architecture is that of the code, and names what is there."""

from tools.architecture import crossings, missing, picture, rooms_in_layers
from tools.imports import ROOT
from tools.way import WAY, Value, placed
from tools.way import picture as way


def test_the_prose_names_files_that_are_there() -> None:
    assert missing() == []


def test_every_room_is_drawn_and_no_import_goes_up() -> None:
    layers = rooms_in_layers(ROOT)
    rooms = [name for layer in layers for name in layer]
    agent = ROOT / "agent" / "wirewatch"
    there = {path.parent.name for path in agent.glob("*/__init__.py")} | {p.stem for p in agent.glob("*.py")}
    assert set(rooms) == there - {"__init__"} | {"wirewatch_lab", "wirewatch_fleet"}
    places = {name: number for number, layer in enumerate(layers) for name in layer}
    assert all(places[one] < places[other] for one, other in crossings(ROOT))


def test_an_import_that_goes_up_is_red() -> None:
    layers = (("cli",), ("hw", "collectors"), ("core",))
    down = picture(layers, {("cli", "core"): 3, ("hw", "core"): 12})
    assert [down.count(f">{text}<") for text in ("cli", "collectors", "3", "12")] == [1, 1, 1, 1]
    assert "#c0392b" not in down
    assert "#c0392b" in picture(layers, {("core", "cli"): 1})
    assert "#c0392b" in picture(layers, {("collectors", "hw"): 1})


def test_every_room_has_one_place_on_the_way_or_beside_it() -> None:
    rooms = [name for layer in rooms_in_layers(ROOT) for name in layer]
    assert sorted(placed()) == sorted(rooms)
    assert [name for name in rooms if way().count(f">{name}<") != 1] == []


def test_the_way_is_the_one_of_the_rules() -> None:
    names = [step.names for step in WAY if isinstance(step, Value)]
    words = " -> ".join(one[0] if len(one) == 1 else f"({', '.join(one)})" for one in names)
    assert f"```\n{words}\n```" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
