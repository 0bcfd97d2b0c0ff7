"""docs/cli.md has every command; each has an example whose words are right, and says how it ends."""

import click

from tests.rows import each
from tests.tools.blocks import simple, wrong
from tools.commands import PAGE, commands, examples

EVERY = dict(commands())


@each("words", EVERY)
def test_a_command_has_an_example_and_every_option_a_meaning(words: str) -> None:
    lines = examples(EVERY[words])
    assert any(f"{line} ".startswith(f"{words} ") or f"| {words} " in line for line in lines), words
    for line in lines:
        assert not [wrong(part) for part in simple(line) if wrong(part)], line
    for one in EVERY[words].params:
        assert not isinstance(one, click.Option) or one.hidden or one.help, f"{words} {one.opts}"


def test_the_page_has_every_command() -> None:
    text = PAGE.read_text("utf-8")
    assert not [words for words in EVERY if f"\n## {words}\n" not in text]
