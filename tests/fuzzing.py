"""Texts for inputs: any text, damaged good ones, and odd ones. A parser gives a value or its error."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from hypothesis import strategies as st

Damage = Callable[[str], str]


def _cut(start: int, length: int) -> Damage:
    return lambda text: text[: start % (len(text) + 1)] + text[start % (len(text) + 1) + length :]


def _twice(start: int, length: int) -> Damage:
    def damage(text: str) -> str:
        at = start % (len(text) + 1)
        return text[: at + length] + text[at : at + length] + text[at + length :]

    return damage


def _put(start: int, length: int, put: str) -> Damage:
    return lambda text: text[: start % (len(text) + 1)] + put + text[start % (len(text) + 1) + length :]


_AT, _LENGTH = st.integers(0, 10_000), st.integers(1, 40)
_DAMAGE = st.one_of(
    st.builds(_cut, _AT, _LENGTH),
    st.builds(_twice, _AT, _LENGTH),
    st.builds(_put, _AT, st.integers(0, 20), st.text(max_size=6)),
)


def damaged(*good: str) -> st.SearchStrategy[str]:
    """One of these texts with up to four pieces of it gone, twice there, or replaced."""

    def apply(text: str, steps: list[Damage]) -> str:
        for step in steps:
            text = step(text)
        return text

    return st.builds(apply, st.sampled_from(good), st.lists(_DAMAGE, max_size=4))


LONG = "9" * 5000


PIT = "[" * 5000


NAME = "input"


@dataclass(frozen=True)
class Parser:
    """One input: what reads it, good texts, and the errors that it documents."""

    read: Callable[[str], object]
    good: tuple[str, ...]
    errors: tuple[type[Exception], ...] = ()


def from_file(read: Callable[[Path], object], name: str = NAME) -> Callable[[str], object]:
    """A parser of a file, given what is in it."""

    def parser(text: str) -> object:
        with TemporaryDirectory() as folder:
            file = Path(folder) / name
            file.write_bytes(text.encode("utf-8", "surrogatepass"))
            return read(file)

    return parser


def on_bytes(read: Callable[[bytes], object]) -> Callable[[str], object]:
    return lambda text: read(text.encode("utf-8", "surrogatepass"))


def of_option(kind: click.ParamType[Any]) -> Callable[[str], object]:
    return lambda text: kind.convert(text, None, None)


DEEP = (PIT, '{"a":' * 5000, f"a = {PIT}", f"detail: {PIT}", f'{{"message": {PIT}', f"[0, 0, {PIT}")


ODD = (
    "", "null", "0", "[]", "{}", '"x"', "[null]", "NaN", "[1, 2, 3, 4]", '["x", "y", [], []]', LONG,
    f"a:{LONG}",
    f"{LONG}M", f"{LONG}s", "a:²", "²", "²M", "٣", f"a = {LONG}", f"a: {LONG}", f"[{LONG}, 0, [0], [{LONG}]]",
    f'[1, "", [0], [1{"0" * 400}]]', '[1, "", [{"absent": [[], 0, 0]}], null]', "\ud800", "\0", "\x85",
    "a = nan",
    "a = 1979-05-27", "? [a]\n: b", "&a [*a]", "!!python/object:os.system {}", "1e400", "-inf", "nan",
    "Thu, 99 Foo 99999 99:99:99", ", ,", "Mon, 01 Jan 0001 00:00:00 -9999", "0001-01-01",
)  # fmt: skip


def reads(parser: Parser, text: str) -> None:
    """A value, or one of the errors."""
    said = "a value"
    try:
        parser.read(text)
    except parser.errors as error:
        said = str(error)
    assert said.strip(), "an error says what is wrong"
