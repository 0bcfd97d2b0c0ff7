"""`wirewatch config`: whether a configuration can be used, and its values."""

import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, get_args

import click

from wirewatch.catalogue import discover
from wirewatch.cli.groups import CommandGroup, examples
from wirewatch.cli.topologies import given_graph
from wirewatch.config import RENAMED, Config, ConfigError, address, load, model, type_at
from wirewatch.core.amounts import Amount
from wirewatch.core.exits import Exit
from wirewatch.core.names import did_you_mean
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Unusable, utf8
from wirewatch.core.words import count, printable
from wirewatch.documents.installed import CONFIGURATION, ConfigDocument, ConfigValue
from wirewatch.server.reload import CurrentSettings, WebCounts
from wirewatch.server.sockets import default_path
from wirewatch.statefolder import StateError, state_directory

COLUMN = 56
"""Characters before the remark on a value's source, where the value is not longer."""
EXPERT = (
    "policy.*", "collectors.*.*interval", "collectors.*.deadline", "collectors.*.ask", "collectors.*.idle",
    "collectors.*.refused_seconds", "*.interval", "*.deadline", "kubernetes.condition_*",
    "controller.confirm", "controller.dedicated_taints", "controller.recover", "controller.stale",
    "controller.lease", "controller.period", "probe.jitter", "probe.settle", "probe.kill_after",
    "probe.bandwidth", "probe.latency_sizes", "probe.copies", "probe.micro", "probe.host_links",
    "probe.unseen_bytes", "probe.free_bytes", "probe.ranks",
)  # fmt: skip
"""Patterns of keys with which experts tune measurements and judgements."""
FOR_ALL = (
    "policy.verdict.fail_on", "policy.verdict.require_fresh_probe", "policy.verdict.longest_suppression",
    "policy.gpudirect.judge_iommu", "policy.*.error_limits*",
)  # fmt: skip
"""Patterns of keys for everybody that a pattern of experts includes."""
Key = tuple[str, ...]
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_FILE = click.Path(path_type=Path)
_FILE_HELP = "TOML file of the configuration; without it, the defaults."


@click.group(cls=CommandGroup)
def config() -> None:
    """Check a configuration, and show what holds with it."""


@config.command(epilog=examples("wirewatch config check --config /etc/wirewatch/wirewatch.toml"))
@click.option("--config", "file", type=_FILE, required=True, help="TOML file of the configuration.")
@click.pass_context
def check(context: click.Context, *, file: Path) -> None:
    """Say whether a configuration can be used.

    It is read as `serve` reads it, with the files that it names. Each fault is a line with its place.

    Exit codes: 0 it can be used; 78 it cannot.
    """
    try:
        _read_all(file)
    except Unusable as error:
        for line in _faults(file, error):
            click.echo(f"wirewatch: {printable(line)}", err=True)
        context.exit(Exit.CONFIG)
    for old in sorted(RENAMED.keys() & set(map(toml_key, key_lines(utf8(file.read_bytes()))))):
        click.echo(f"wirewatch: {file}: {old} is called {RENAMED[old]} now, and is read as that", err=True)
    number = len(list(leaves(tomllib.loads(utf8(file.read_bytes())))))
    click.echo(f"{file}: can be used; it sets {count(number, 'value')}")


@config.command(
    epilog=examples(
        "wirewatch config show --config /etc/wirewatch/wirewatch.toml --changed",
        "wirewatch config show probe collectors.nvlink",
    )
)
@click.argument("keys", nargs=-1)
@click.option("--config", "file", type=_FILE, help=_FILE_HELP)
@click.option("--listen", help="As of `serve`: HOST:PORT for HTTP.")
@click.option("--socket", help="As of `serve`: path of the socket for local questions.")
@click.option("--web-config", help="As of `serve`: file with TLS, users and tokens.")
@click.option("--changed", is_flag=True, help="Only values that are not the default.")
@click.option("--all", "every", is_flag=True, help="Also what experts tune, where it is the default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of TOML.")
def show(
    *, keys: tuple[str, ...], file: Path | None, listen: str | None, socket: str | None,
    web_config: str | None, changed: bool, every: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show the configuration that holds, and where each value comes from.

    That is the default, a line of the file, the environment of this command, or an option. With KEYS, such
    as `probe` or `policy.nvlink.confirm`, only these, and all of them. What is printed is TOML, and can be a
    file again. Keys for experts (docs/config-expert.md) are left out where they have their default; --all and
    --json print them too.

    Exit codes: 0 printed; 64 no such key; 78 the file cannot be used.
    """
    given = {"listen.address": ("--listen", listen), "listen.socket": ("--socket", socket),
             "listen.web_config": ("--web-config", web_config)}  # fmt: skip
    values = dict(effective(file, {key: one for key, one in given.items() if one[1] is not None}))
    known = {toml_key(path[:n]) for path in values for n in range(1, len(path) + 1)}
    for key in keys:
        if key not in known:
            listed = "`wirewatch config show` prints all"
            raise click.UsageError(f"no key {key!r}: {did_you_mean(key, sorted(known), listed)}")
    if keys:
        begins = tuple(f"{key}." for key in keys)
        values = {path: one for path, one in values.items() if f"{one.key}.".startswith(begins)}
    if changed:
        values = {path: one for path, one in values.items() if one.origin != "default"}
    if as_json:
        document = ConfigDocument("wirewatch.config/1", str(file or ""), list(values.values()))
        click.echo(CONFIGURATION.dump_json(document, indent=1).decode())
    else:
        kept = values if every or keys else {path: one for path, one in values.items() if not _left_out(one)}
        click.echo("\n".join(_toml(kept)) or "# all values are the defaults")
        if left := len(values) - len(kept):
            click.echo(f"\n# {count(left, 'key')} for experts at the default: --all prints them too")


def effective(file: Path | None, given: Mapping[str, tuple[str, Any]]) -> Iterator[tuple[Key, ConfigValue]]:
    """Return each value in force, by key; `given`: values of options. ConfigError for an unusable file."""
    loaded, _ = load(file, discover())
    lines = _lines(file) if file else {}
    around = dict(_found_out(loaded))
    for path, value in leaves(loaded.model_dump(mode="json")):
        if value == {}:
            continue
        key = toml_key(path)
        found = ConfigValue(key, value, "default", "")
        line = _line_of(path, lines)
        if line is not None:
            found = replace(found, origin="file", where=f"{file}:{line}")
        elif key in around:
            variable, text = around[key]
            found = ConfigValue(key, text, "environment" if variable else "default", variable)
        if key in given:
            found = ConfigValue(key, given[key][1], "option", given[key][0])
        yield path, found


def _line_of(path: Key, lines: Mapping[Key, int]) -> int | None:
    """Return the line of a value, or of the table in which its file sets it."""
    if path in lines:
        return lines[path]
    return next((line for key, line in lines.items() if key == path[: len(key)]), None)


def _found_out(config: Config) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield values that are found out where the file says nothing, each with its variable, or ""."""

    def giving(value: str, *variables: str) -> str:
        """Return the first variable that is in the value."""
        known = ((name, os.environ.get(name, "").partition(":")[0]) for name in variables)
        return next((name for name, text in known if text and value.startswith(text)), "")

    if config.listen.socket is None:
        path = default_path()
        yield "listen.socket", (giving(path, "RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"), path)
    if not config.state.directory:
        with suppress(StateError):
            folder = str(state_directory())
            yield "state.directory", (giving(folder, "STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"), folder)
    for key, value, name in (
        ("kubernetes.node", config.kubernetes.node, "NODE_NAME"),
        ("slurm.conf", config.slurm.conf, "SLURM_CONF"),
    ):
        if not value and os.environ.get(name):
            yield key, (name, os.environ[name])


def _read_all(file: Path) -> None:
    """Read the configuration and the files that it names; raises Unusable where any part cannot be used."""
    loaded, _ = load(file, discover())
    address(loaded.listen.address)
    if loaded.listen.web_config:
        CurrentSettings(Path(loaded.listen.web_config), WebCounts())
    if loaded.drift.baseline:
        given_graph(loaded.drift.baseline)


def _faults(file: Path, error: Exception) -> Iterator[str]:
    """Yield a line for each fault, with the line of the file if that is known."""
    problems = error.problems if isinstance(error, ConfigError) else ()
    if not problems:
        yield str(error)
        return
    lines = _lines(file)
    placed = sorted((_place(problem.key, lines), problem.text) for problem in problems)
    for line, text in placed:
        yield f"{file}:{line}: {text}" if line else f"{file}: {text}"


def _place(path: Key, lines: Mapping[Key, int]) -> int:
    """Return the line of a key, of its table, or of a key in it; 0 where the file has none."""
    inside = (line for key, line in lines.items() if key[: len(path)] == path)
    return _line_of(path, lines) or next(inside, 0)


def is_expert(key: str) -> bool:
    """Return whether only experts tune a dotted key; such a key is left out unless somebody asks for all."""
    return any(fnmatch(key, one) for one in EXPERT) and not any(fnmatch(key, one) for one in FOR_ALL)


def _left_out(one: ConfigValue) -> bool:
    return one.origin == "default" and is_expert(one.key)


def written(kind: Any, value: Any) -> Any:
    """Return a value in its readable form, by its type: `10m` for 600 seconds, `64MiB` for as many bytes."""
    for one in getattr(kind, "__metadata__", ()):
        if isinstance(one, Amount) and isinstance(value, int | float) and math.isfinite(value):
            return one.write(value)
    inner = get_args(kind)
    if isinstance(value, list | tuple) and inner:
        every = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return [written(*one) for one in zip(every, value, strict=True)]
    return value


def _toml(values: Mapping[Key, ConfigValue]) -> Iterator[str]:
    kind = model(discover())
    tables = grouped((path[:-1], (path, one)) for path, one in values.items())
    for number, (table, rows) in enumerate(tables.items()):
        if number:
            yield ""
        yield f"[{toml_key(table)}]"
        for path, one in rows:
            name = toml_key(path[-1:])
            remark = " ".join(filter(None, (one.origin, one.where)))
            text = (
                f"# {name}: not set"
                if one.value is None
                else f"{name} = {toml_value(written(type_at(kind, path), one.value))}"
            )
            yield printable(f"{text:<{COLUMN}}  # {remark}")


def leaves(data: Mapping[str, Any], path: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield every value of nested tables with its key; an empty table is a value."""
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _lines(file: Path) -> dict[Key, int]:
    """Return the line of each key of a file, by its present name."""
    found = key_lines(utf8(file.read_bytes()))
    now = {tuple(old.split(".")): tuple(new.split(".")) for old, new in RENAMED.items()}
    return {now.get(key, key): line for key, line in found.items()}


def key_lines(text: str) -> dict[Key, int]:
    """Return the line, from 1, in which each key of a TOML file is set; ValueError for any other text.

    A key that a further line adds stands in that line, or began after the last line at which the file could
    have ended. So tomllib's grammar is enough.
    """
    tomllib.loads(text)
    found: dict[Key, int] = {}
    begin, lines = 1, text.splitlines(keepends=True)
    for number in range(1, len(lines) + 1):
        try:
            now = tomllib.loads("".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue
        for key, value in leaves(now):
            # The table of a header is empty until its first key is read.
            if value != {}:
                found.setdefault(key, begin)
        begin = number + 1
    return found


def toml_key(key: Key) -> str:
    """A dotted key."""
    return ".".join(name if _BARE.fullmatch(name) else _text(name) for name in key)


def toml_value(value: Any) -> str:
    """Return a value in one line, as tomllib reads it back; raises TypeError where TOML has no such value."""
    match value:
        case int():
            return str(value).lower()
        case float():
            return repr(value) if math.isfinite(value) else str(value).replace("infinity", "inf")
        case str():
            return _text(value)
        case list() | tuple():
            return f"[{', '.join(map(toml_value, value))}]"
        case Mapping():
            inner = ", ".join(f"{toml_key((name,))} = {toml_value(one)}" for name, one in value.items())
            return f"{{ {inner} }}" if inner else "{}"
    raise TypeError(f"no value of TOML: {value!r}")


def _text(value: str) -> str:
    # JSON escapes all that TOML wants escaped but DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
