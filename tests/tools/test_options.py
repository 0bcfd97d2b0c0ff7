"""docs/config.md and docs/config-expert.md have every option, with unit and an example that is taken."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.rows import each
from tools.options import COMMON, EXAMPLES, EXPERTS, PAGE, Option, sections
from wirewatch.catalogue import discover
from wirewatch.config import Config, load

EXAMPLE = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def tables() -> list[tuple[str, str, list[Option]]]:
    return list(sections())


def options() -> list[Option]:
    return [one for _, _, own in tables() for one in own]


@cache
def examples() -> list[str]:
    """The blocks of both pages."""
    return [text for page in (PAGE, EXPERTS) for text in EXAMPLE.findall(page.read_text("utf-8"))]


@each(
    ("kind", "default", "text", "said"),
    [
        (float, 0.9, "", "collectors.fan_speed.least: write a sentence below it"),
        (float, 0.9, "the least speed. [ratio]", "write a sentence below it"),
        (int, 3, "Polls in a row", "write a sentence below it"),
        (float, 0.9, "Least speed.", "write its unit behind the sentence"),
        (int | None, None, "Polls in a row.", "give it a default that a file can hold"),
    ],
)
def test_an_option_is_refused_without_what_the_page_says_of_it(
    kind: Any, default: object, text: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Option("collectors.fan_speed", "least", kind, default, text)


def test_an_option_with_a_sentence_a_unit_and_a_default_is_taken() -> None:
    assert Option("collectors.fan_speed", "least", float, 0.9, "Least speed. [ratio]").example == 0.9
    assert len(options()) > 50


def test_every_example_is_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "wirewatch.toml"
    for text in examples():
        path.write_text(text, "utf-8")
        assert isinstance(load(path, discover())[0], Config)


def test_the_examples_set_every_option() -> None:
    given = set()
    for text in examples():
        for section, _, own in tables():
            table = tomllib.loads(text)
            for key in section.split("."):
                table = table.get(key, {})
            given |= {one.path for one in own if one.name in table}
    common = {one.path for one in options() if one.section.startswith("collectors.") and one.name in COMMON}
    assert {one.path for one in options()} - common <= given


def test_what_is_an_example_alone_is_an_option_without_a_default() -> None:
    empty = {one.path for one in options() if one.default in (None, "", (), {})}
    assert set(EXAMPLES) - {"expect.gpudirect"} <= empty
    assert PAGE.name == "config.md"


def test_an_option_is_on_one_page() -> None:
    rows = [re.findall(r"^\| `(\w+)` \|", page.read_text("utf-8"), re.MULTILINE) for page in (PAGE, EXPERTS)]
    assert "require_fresh_probe" in rows[0]
    assert "kill_after" in rows[1]
    assert not {"kill_after", "ratio"} & set(rows[0])
    experts = sum(one.expert for one in options())
    assert 140 <= experts < len(options()) - 70
