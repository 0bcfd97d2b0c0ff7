"""docs/config.md has every option, with its unit and an example that the daemon takes."""

import re
import tomllib
from functools import cache
from pathlib import Path

from tools.options import COMMON, EXAMPLES, PAGE, Option, sections
from wirewatch.catalogue import discover
from wirewatch.config import load

EXAMPLE = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def tables() -> list[tuple[str, str, list[Option]]]:
    return list(sections())


def options() -> list[Option]:
    return [one for _, _, own in tables() for one in own]


@cache
def examples() -> list[str]:
    """The blocks of the page."""
    return EXAMPLE.findall(PAGE.read_text("utf-8"))


def test_every_option_has_a_sentence_and_every_measure_a_unit() -> None:
    for one in options():
        assert re.match(r"[A-Z].*[.](?: \[[a-z/ ]+\])?$", one.text), one.path
        assert one.kind is not float or one.text.endswith("]"), one.path


def test_every_example_is_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "wirewatch.toml"
    for text in examples():
        path.write_text(text, "utf-8")
        load(path, discover())


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
