"""docs/cli.md: every command with its options, exit codes and examples, from the commands: `make generated`.

The text around it is in docs/cli.in.md.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import groupby
from pathlib import Path

import click

from tools.prose import formatted
from wirewatch.cli import cli
from wirewatch.cli.groups import CommandGroup, whole_sentence
from wirewatch.cli.options import span

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "cli.md"
MARK = "<!-- commands -->"
EXITS = re.compile(r"^Exit codes?:|\bExit codes(?: then)?:|[Ee]nds with 0|exit code is", re.MULTILINE)
PLAIN = "Exit codes: 0 done; the others as above."
ALONE = re.compile(
    r"(source <\()?wirewatch (completion bash|demo (recordings|overlays)|config show probe|topology diff h200"
    r"|advise bench-script|(?!serve|prober|fleet).*(--replay [a-z0-9]|--machine )(?!.*\|))"
)
"""Examples that run on any machine."""
BESIDE = re.compile(
    r"wirewatch (check|status|top|release --end|findings (list|show)|topology (show|diff|baseline))"
)
"""Examples that run beside a daemon, with nothing else."""
DAEMON = "beside: serve --replay demo-dgx-h200 --overlay nvlink-link-down"
WORDS = (
    "not run: it needs a node, a cluster or a file of yours; tests/tools/test_commands.py checks its words"
)


def page() -> str:
    """The whole page."""
    head, _, tail = (DOCS / "cli.in.md").read_text("utf-8").partition(MARK)
    return formatted(head + "\n".join((*_contents(), *_parts())) + tail)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its words, in the order of the help."""
    yield from _below("wirewatch", cli)


def _below(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    itself = command.itself() if isinstance(command, CommandGroup) else None
    if itself is not None:
        yield words, itself
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from _below(f"{words} {name}", found)


def examples(command: click.Command) -> list[str]:
    """The lines of a command's epilog that are to be typed."""
    return [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")]


def _parts() -> Iterator[str]:
    for words, command in commands():
        context = click.Context(command, info_name=words)
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"\n## {words}\n\n```text\n{words} {usage}\n```\n\n{_help(command)}\n"
        yield from _options(command, context)
        for mark, lines in groupby(examples(command), _mark):
            yield f"\n<!-- {mark} -->\n" if mark else ""
            yield "\n".join(["```bash", *lines, "```\n"])


def _contents() -> Iterator[str]:
    """A row for each command, with a link to it."""
    yield "| command | does |\n|---|---|"
    for words, command in commands():
        yield f"| [{words}](#{words.replace(' ', '-')}) | {_safe(whole_sentence(command))} |"


def _mark(example: str) -> str:
    """How tests/tools/test_blocks.py tries an example; "" where it runs as it stands."""
    if ALONE.match(example):
        return ""
    known = BESIDE.match(example)
    rest = example[known.end() :].split() if known else ["?"]
    return DAEMON if rest in ([], ["d1fac7e2"]) else WORDS


def _help(command: click.Command) -> str:
    """The help in paragraphs, with its exit codes."""
    text = inspect.cleandoc(command.help or "").partition("\f")[0].replace("\b\n", "")
    safe = _safe(text)
    return safe if EXITS.search(text) else f"{safe}\n\n{PLAIN}"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    rows = [one for one in command.get_params(context) if isinstance(one, click.Option) and not one.hidden]
    rows = [one for one in rows if "--help" not in one.opts]
    if not rows:
        return
    yield "| option | takes | default | meaning |\n|---|---|---|---|"
    for one in rows:
        names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        yield f"| {names} | {_cell(_takes(one, context))} | {_cell(_default(one))} | {_cell(_meaning(one))} |"


def _takes(one: click.Option, context: click.Context) -> str:
    if one.is_flag:
        return ""
    if isinstance(one.type, click.Choice):
        return ", ".join(f"`{_word(choice)}`" for choice in one.type.choices)
    if isinstance(one.type, click.IntRange | click.FloatRange):
        return f"{'whole number' if isinstance(one.type, click.IntRange) else 'number'}{span(one.type)}"
    plain = {"TEXT": "text", "INTEGER": "whole number", "FLOAT": "number", "PATH": "path"}
    metavar = one.make_metavar(context)
    return plain.get(metavar, metavar)


def _default(one: click.Option) -> str:
    value = one.default
    if one.required:
        return "required"
    if (
        one.is_flag
        or "default" in (one.help or "").lower()
        or callable(value)
        or value in (None, (), "")
        or repr(value).startswith("Sentinel")
    ):
        return ""
    return f"`{_word(value)}`"


def _word(value: object) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _meaning(one: click.Option) -> str:
    again = " Repeatable." if one.multiple and "repeatable" not in (one.help or "") else ""
    variable = f" Also by `{one.envvar}`." if one.envvar else ""
    return f"{one.help or ''}{again}{variable}"


def _cell(text: str) -> str:
    return _safe(text).replace("|", r"\|")


def _safe(text: str) -> str:
    """The text with what Markdown would take for its own escaped, but for what stands in backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<>*_])", r"\\\1", part) for part in parts)


def files() -> Mapping[Path, str]:
    """The page."""
    return {PAGE: page()}
