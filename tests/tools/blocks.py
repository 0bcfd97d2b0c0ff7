"""The commands of the pages: what they are, and what of them can be known to be right without running them.

A block of commands is marked `bash` (a script) or `console` (lines with `$ ` and what they print, in which
`...` stands for anything). A comment before it says how it is tried: `<!-- not run: WHY -->` leaves it to the
check of its words, as does `<!-- drawn: JOB -->` (tools/explained.py); `<!-- beside: serve ... -->` runs it
beside a daemon with these arguments. Without a comment it is run as it stands.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import yaml

from wirewatch.cli import cli
from wirewatch.cli.groups import CommandGroup

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"<!-- (not run|beside|drawn): (.+?) -->\s*\Z")
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`((?:\.venv/bin/)?wirewatch [a-z][^`:]*)`(?!`)")
SHELLS = ("bash", "console")
PROGRAMS = """
all_reduce_perf amtool apt apt-get ar awk cat cd cosign curl cut dmesg docker dot dpkg dpkg-deb echo env
ethtool exec export git gpg grep gunzip head helm ibdiagnet ibstat install ip journalctl jq kubectl ls
lsmod lsof lspci mkdir mlnx_qos mlxlink modprobe mount nvidia-smi perfquery podman printf promtool
python3 reboot rm salloc sbatch scontrol scp sed setpci sh sha256sum sinfo skopeo smpquery sort source squeue
srun ssh sudo systemctl systemd-sysusers systemd-tmpfiles tail tar tee test touch xargs zgrep
"""
OTHERS = frozenset(PROGRAMS.split())
"""Programs that are not ours: of these only the name is known here."""
ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INNER = re.compile(r"\$\(([^()]*)\)")
_ENDS = {"|", "||", "&&", ";", "&", "(", ")", "|&"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page. `mark`: `not run`, `beside`, `drawn` or nothing; `about`: what follows it."""

    page: str
    line: int
    kind: str
    text: str
    mark: str
    about: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Each command with what the page says that it prints; nothing for a script."""
        if self.kind == "bash":
            return [(text, "") for text in _scripts(self.text)]
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)
        assert not parts[0].strip(), f"{self}: output without a command"
        return [(head, tail) for head, _, tail in (part.partition("\n") for part in parts[1:])]


def pages() -> list[Path]:
    """Pages for users; reports of runs and decisions stay as they were written."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    names = [name for name in listed.stdout.split("\0") if name]
    left = re.compile(r"(proof/hardware/2|docs/adr/0)|CHANGELOG|.*\.in\.md|.*page\.md$|tests/")
    return [ROOT / name for name in names if not left.match(name)]


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """The fenced blocks of a page."""
    text, found = page.read_text("utf-8"), []
    for one in FENCE.finditer(text):
        before = text[: one.start()]
        mark = MARK.search(before)
        body = "".join(line.removeprefix(one["indent"]) for line in one["body"].splitlines(keepends=True))
        name = str(page.relative_to(ROOT))
        told = (mark[1], mark[2]) if mark else ("", "")
        found.append(Block(name, before.count("\n") + 1, one["kind"], body, *told))
    return tuple(found)


def spans(page: Path) -> list[str]:
    """Commands of ours that stand in a line of text."""
    return [" ".join(one.split()) for one in SPAN.findall(FENCE.sub("", page.read_text("utf-8")))]


def _scripts(text: str) -> Iterator[str]:
    """The lines of a script, those together that go on."""
    lines: list[str] = []
    for line in text.splitlines():
        lines.append(line)
        whole = "\n".join(lines)
        if line.endswith("\\") or not _closed(whole):
            continue
        lines = []
        if whole.strip() and not whole.lstrip().startswith("#"):
            yield whole
    assert not lines, f"a command does not end: {lines}"


def _closed(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def simple(command: str) -> Iterator[list[str]]:
    """The words of each program that a command line starts, without redirections."""
    for inner in _INNER.findall(command):
        yield from simple(inner)
    lexer = shlex.shlex(_INNER.sub("X", command).replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.wordchars += "@%+,:[]{}!^"
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in _ENDS:
            if words:
                yield words
            words = []
        elif word and set(word) <= set("<>&("):
            skip = "(" not in word
        elif skip:
            skip = False
        elif words or not ASSIGNED.match(word):
            words.append(word)


def wrong(words: Sequence[str]) -> str:
    """What cannot be right in a program's words; empty when nothing is known to be wrong."""
    name, rest = words[0], list(words[1:])
    if name in {"sudo", "time", "exec"}:
        return wrong(rest)
    check = _CHECKS.get(Path(name).name)
    if check is not None:
        return check(rest)
    if "/" not in name:
        return "" if name in OTHERS else f"no program {name}"
    known = name.startswith(("/", ".venv/")) or (ROOT / name.removeprefix("./")).exists()
    return "" if known else f"no file {name}"


def _of_make(words: Sequence[str]) -> str:
    lacking = {word for word in words if not ASSIGNED.match(word) and not word.startswith("-")} - targets()
    return f"no target {sorted(lacking)}" if lacking else ""


def _of_helm(words: Sequence[str]) -> str:
    return "; ".join(f"no value {key}" for key in sets(words) if not is_value(key))


def _of_pip(words: Sequence[str]) -> str:
    named = (one for word in words for found in re.findall(r"\[([\w,]+)\]", word) for one in found.split(","))
    return "; ".join(f"no extra {one}" for one in sorted(set(named) - declared()))


def wrong_of_ours(words: Sequence[str]) -> str:
    """What click would not take of `wirewatch WORDS`, but for arguments that stand for something."""
    command: click.Command = cli
    context, rest = click.Context(cli, info_name="wirewatch"), list(words)
    while isinstance(command, click.Group):
        itself = command.itself() if isinstance(command, CommandGroup) else None
        if itself is not None and not (rest and rest[0] in command.commands):
            command = itself
            break
        while rest and rest[0].startswith("-"):
            if rest.pop(0) not in {name for one in command.get_params(context) for name in one.opts}:
                return f"no option of {context.command_path}: {words}"
        if not rest or rest[0] == "...":
            return ""
        found = command.get_command(context, rest[0])
        if found is None:
            return f"no command {context.command_path} {rest[0]}"
        context = click.Context(found, parent=context, info_name=rest.pop(0))
        command = found
    try:
        values, _, _ = command.make_parser(context).parse_args([word for word in rest if word != "..."])
    except click.UsageError as error:
        return f"{context.command_path}: {error.format_message()}"
    return "; ".join(_odd(command, values))


def _odd(command: click.Command, values: dict[str, object]) -> Iterator[str]:
    """Options that are given a word which they do not take."""
    for one in command.params:
        given = values.get(one.name or "")
        # click has a value of its own for what nobody gave.
        if isinstance(one.type, click.Choice) and isinstance(given, str | list | tuple):
            for word in given if isinstance(given, list | tuple) else [given]:
                if word not in one.type.choices and not str(word).isupper():
                    yield f"{one.opts[0]} is none of {list(one.type.choices)}: {word}"


@cache
def targets() -> frozenset[str]:
    """What `make` can make."""
    text = (ROOT / "Makefile").read_text("utf-8")
    return frozenset(re.findall(r"^([a-z][\w-]*):(?!=)", text, re.MULTILINE))


@cache
def declared() -> frozenset[str]:
    """The extras of the package."""
    part = (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.optional-dependencies]")[2]
    return frozenset(re.findall(r"^(\w+) = \[", part.partition("\n[")[0], re.MULTILINE))


def sets(words: Sequence[str]) -> Iterator[str]:
    """The values that helm is told to set."""
    for option, value in pairwise(words):
        if option in {"--set", "--set-string", "--set-file", "--set-json"}:
            yield from (part.partition("=")[0] for part in re.split(r"(?<!\\),(?![^{]*})", value))


@cache
def _schema() -> dict[str, object]:
    text = (ROOT / "helm/wirewatch/values.schema.json").read_text("utf-8")
    document = yaml.safe_load(text)
    assert isinstance(document, dict)
    return document


def is_value(key: str) -> bool:
    """Whether the chart's schema has a value of this path."""
    schema = _schema()
    part: object = schema
    for name in re.split(r"(?<!\\)\.", re.sub(r"\[\d+\]", ".[]", key)):
        while isinstance(part, dict) and "$ref" in part:
            defs = schema["$defs"] if "$defs" in schema else schema["definitions"]
            assert isinstance(defs, dict)
            part = defs[str(part["$ref"]).rpartition("/")[2]]
        if not isinstance(part, dict):
            return False
        below = part.get("properties", {})
        part = part.get("items") if name == "[]" else below.get(name, part.get("additionalProperties"))
        if part is None or part is False:
            return False
        if part is True:
            return True
    return True


_CHECKS = {"wirewatch": wrong_of_ours, "make": _of_make, "helm": _of_helm, "pip": _of_pip}
