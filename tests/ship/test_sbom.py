"""That the look at a bill of materials sees what is not in it."""

from typing import Any

import pytest

from tests.ship.locks import pins
from tests.ship.page import unnamed
from tests.ship.sbom import canonical, missing, required, wanted

NEEDED = {"click": "8.1", "pydantic-core": "2.9"}


def bill(*parts: tuple[str, str], of: str = "wirewatch") -> dict[str, Any]:
    components = [{"name": name, "version": version} for name, version in parts]
    return {"metadata": {"component": {"name": of}}, "components": components}


def test_a_whole_bill_lacks_nothing() -> None:
    assert missing(bill(("click", "8.1"), ("pydantic_core", "2.9"), ("more", "1")), NEEDED) == []


@pytest.mark.parametrize(
    ("told", "lacking"),
    [
        (bill(("click", "8.1")), ["pydantic-core 2.9"]),
        (bill(("click", "8.0"), ("pydantic-core", "2.9")), ["click 8.1"]),
        (bill(("click", "8.1"), ("pydantic-core", "2.9"), of="other"), ["it is of other, not of wirewatch"]),
        ({}, ["it is of None, not of wirewatch", "click 8.1", "pydantic-core 2.9"]),
    ],
)
def test_what_is_not_there_is_named(told: dict[str, Any], lacking: list[str]) -> None:
    assert missing(told, NEEDED) == lacking


def test_everything_that_runs_is_needed_and_nothing_that_only_tests() -> None:
    needed = required("wirewatch")
    assert {"bcrypt", "fastapi", "starlette", "pydantic-core", "pyyaml", "h11", "uvicorn"} <= set(needed)
    assert not {"pytest", "mypy", "torch", "wirewatch"} & set(needed)


def test_extras_and_other_systems_are_left_out() -> None:
    lines = [
        "click>=8",
        'pytest>=8; extra == "dev"',
        'colorama; platform_system == "Windows" and extra == "x"',
    ]
    assert wanted([*lines, 'never-there-at-all; sys_platform == "win32"', "h11"]) == ["click", "h11"]
    assert canonical("PyYAML_x.y") == "pyyaml-x-y"


@pytest.mark.parametrize("image", ["agent", "nccl", "torch"])
def test_what_a_lock_installs_and_a_bill_of_an_image_does_not_name_is_found(image: str) -> None:
    locks = ("agent", image)
    parts = {(name, version) for lock in locks for name, wanted in pins(lock).items() for version in wanted}
    assert unnamed(bill(*parts), locks) == []
    (left,) = [part for part in parts if part[0] == "h11"]
    assert set(unnamed(bill(*(parts - {left})), locks)) == {f"h11 {left[1]}"}
    assert set(unnamed(bill(*(parts - {left}), ("h11", "0.14.0")), locks)) == {f"h11 {left[1]}"}
