"""docs/config.md and docs/config-expert.md: every option, from the model of a file: `make generated`.

What an option means is the text below it in the code, with its unit in brackets at the end. The text around
the tables is in docs/config.in.md and docs/config-expert.in.md. Which options are for experts, the command
says: `wirewatch config show` leaves them out.
"""

import ast
import inspect
import json
import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from tools.prose import formatted
from wirewatch.catalogue import discover
from wirewatch.cli.configuration import is_expert, written
from wirewatch.config import RESTART, model, type_at
from wirewatch.core.amounts import Amount
from wirewatch.core.collector import Options
from wirewatch.core.types import ErrorLimit

DOCS = Path(__file__).parents[1] / "docs"
PAGE, EXPERTS = DOCS / "config.md", DOCS / "config-expert.md"
MARK = "<!-- options -->"
LIMITS = {"ge": "at least", "gt": "above", "le": "at most"}
COMMON = tuple(field.name for field in fields(Options))
EXAMPLES: Mapping[str, object] = {
    "listen.socket": "/run/wirewatch/wirewatch.sock",
    "listen.web_config": "/etc/wirewatch/web.yml",
    "listen.hosts": ["gpu-017.example.org"],
    "state.directory": "/var/lib/wirewatch",
    "expect.gpus": 8,
    "expect.nvlink_links": 18,
    "expect.rdma_ports": 8,
    "expect.rdma_rate_bytes_per_second": 50e9,
    "expect.gpudirect": True,
    "probe.pins": {"all_reduce": 470e9, "all_reduce@268435456": 430e9},
    "probe.prober": "/run/wirewatch/prober.sock",
    "drift.baseline": "/etc/wirewatch/product.json",
    "slurm.node": "gpu-017",
    "slurm.conf": "/etc/slurm/slurm.conf",
    "kubernetes.node": "gpu-017",
    "kubernetes.api_server": "10.0.0.1:6443",
    "page.runbook": "https://docs.example.org/wirewatch/runbook.html",
    "controller.selector": "nvidia.com/gpu.present=true",
    "controller.namespace": "wirewatch",
    "collectors.gpudirect.exclude": ["mlx5_8"],
    "collectors.infiniband.exclude": ["mlx5_8", "mlx5_9"],
    "policy.infiniband.error_limits": {"symbol": {"events": 120, "seconds": 3600.0}},
    "policy.nvlink.error_limits": {"crc": {"events": 6000, "seconds": 60.0}},
}
"""Values for options whose default is nothing. All other options are shown with their default."""
_TEXT = re.compile(r"[A-Z].*[.](?: \[[a-z/ ]+\])?")


@dataclass(frozen=True)
class Option:
    """One key of the file. `section` is the table that it stands in, `default` as Python has it."""

    section: str
    name: str
    kind: Any
    default: Any
    text: str
    limits: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        number = self.kind is float or getattr(self.kind, "__origin__", None) is float
        if not _TEXT.fullmatch(self.text):
            raise ValueError(f"{self.path}: write a sentence below it, and a unit behind it in brackets")
        if number and not self.text.endswith("]"):
            raise ValueError(f"{self.path}: write its unit behind the sentence, such as [seconds]")
        if self.default is None and self.path not in EXAMPLES:
            raise ValueError(f"{self.path}: give it a default that a file can hold, in place of None")

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def expert(self) -> bool:
        return is_expert(self.path)

    @property
    def example(self) -> object:
        return written(self.kind, EXAMPLES.get(self.path, self.default))


def page(*, expert: bool) -> str:
    """The whole page for everybody, or for experts."""
    around = (EXPERTS if expert else PAGE).with_suffix(".in.md")
    head, _, tail = around.read_text("utf-8").partition(MARK)
    return formatted(head + "\n".join(_parts(expert=expert)) + tail)


def sections() -> Iterator[tuple[str, str, list[Option]]]:
    """Name, meaning and options of every table of the file, in the order of the model."""
    config = model(discover())()
    for name in type(config).model_fields:
        yield from _below(name, getattr(config, name))


def _below(section: str, value: Any) -> Iterator[tuple[str, str, list[Option]]]:
    texts, keys = _texts(type(value)), list(_keys(type(value), value))
    plain = [key for key in keys if not _table(key[2])]
    own = [Option(section, n, kind, v, texts.get(n, ""), limits) for n, kind, v, limits in plain]
    yield section, " ".join((inspect.getdoc(type(value)) or "").split()), own
    for name, _, part, _ in keys:
        if _table(part):
            yield from _below(f"{section}.{name}", part)


def _table(value: object) -> bool:
    return isinstance(value, BaseModel) or is_dataclass(value)


def _keys(kind: Any, value: Any) -> Iterator[tuple[str, Any, Any, tuple[str, ...]]]:
    """Name, type, default and limits of each key of a table."""
    names = kind.model_fields if issubclass(kind, BaseModel) else [one.name for one in fields(kind)]
    for name in names:
        found = type_at(kind, (name,))
        parts = getattr(found, "__metadata__", ())
        bounds = ((word, getattr(one, key, None)) for one in parts for key, word in LIMITS.items())
        number = next((one for one in parts if isinstance(one, Amount)), None)
        limits = tuple(
            f"{word} {written(Annotated[float, number], at) if number else f'{at:g}'}"
            for word, at in bounds
            if at is not None
        )
        yield name, found, getattr(value, name), limits


def unit_of(kind: type, name: str) -> str:
    """Return the unit of a key of this class; empty for none."""
    return _texts(kind)[name].partition(" [")[2].rstrip("]")


def _texts(kind: type) -> Mapping[str, str]:
    """What the code says of each key, below it; what a class above says holds where it says nothing."""
    found: dict[str, str] = {}
    for part in reversed(kind.__mro__):
        found |= _own_texts(part)
    return found


@cache
def _own_texts(part: type) -> Mapping[str, str]:
    """What one class says below its own keys; nothing for a class that the model makes when it runs."""
    if (
        part.__module__ == "builtins"
        or getattr(sys.modules[part.__module__], part.__name__, None) is not part
    ):
        return {}
    (written,) = ast.parse(dedent(inspect.getsource(part))).body
    assert isinstance(written, ast.ClassDef)
    found: dict[str, str] = {}
    for first, second in pairwise(written.body):
        if isinstance(first, ast.AnnAssign) and isinstance(first.target, ast.Name):
            match second:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    found[first.target.id] = " ".join(inspect.cleandoc(text).split())
    return found


def _parts(*, expert: bool) -> Iterator[str]:
    yield from _common(expert=expert)
    for section, about, every in sections():
        own = [one for one in every if not _inherited(one) and one.expert is expert]
        if own:
            yield f"\n## [{section}]\n\n{about}\n"
            yield from _rows(own)
            yield from _example(section, own)


def _inherited(one: Option) -> bool:
    """Whether the table of what all collectors have says it."""
    return (
        one.section.startswith("collectors.") and one.name in COMMON and one.text == _texts(Options)[one.name]
    )


def _common(*, expert: bool) -> Iterator[str]:
    texts = _texts(Options)
    every = (
        Option("collectors.gpu", one.name, type_at(Options, (one.name,)), one.default, texts[one.name])
        for one in fields(Options)
    )
    own = [one for one in every if one.expert is expert]
    yield "## [collectors.NAME]\n\nEvery collector has these options. The sections below add its own.\n"
    yield from _rows(own)
    names = "".join(f" {one.name} |" for one in own)
    yield f"\n| collector | reads |{names}\n|---|---|{'---|' * len(own)}"
    for one in discover():
        values = "".join(f" {written(key.kind, getattr(one.options, key.name))} |" for key in own)
        yield f"| `{one.name}` | {one.about} |{values.replace('True', 'true').replace('False', 'false')}"
    yield from _example("collectors.gpu", own)


def _rows(own: list[Option]) -> Iterator[str]:
    yield "| option | type | unit | default | meaning |\n|---|---|---|---|---|"
    for one in own:
        text, _, unit = one.text.partition(" [")
        limits = f" {' and '.join(one.limits).capitalize()}." if one.limits else ""
        restart = " Read at the start alone." if one.name in RESTART.get(one.section, ()) else ""
        given = "not set" if one.default is None else f"`{_toml(written(one.kind, one.default))}`"
        yield f"| `{one.name}` | {_type(one.kind)} | {unit.rstrip(']')} | {given} | {text}{limits}{restart} |"


def _example(section: str, own: list[Option]) -> Iterator[str]:
    yield f"\n```toml\n[{section}]"
    later = []
    for one in own:
        value = one.example
        if isinstance(value, Mapping):
            later.append((f"{section}.{one.name}", value))
        else:
            yield f"{one.name} = {_toml(value)}"
    for name, value in later:
        tables = {key: part for key, part in value.items() if isinstance(part, Mapping)}
        for title, part in ({f"{name}.{key}": part for key, part in tables.items()} or {name: value}).items():
            yield f"\n[{title}]"
            yield from (f"{_key(key)} = {_toml(item)}" for key, item in part.items())
    yield "```\n"


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() else json.dumps(name)


def _toml(value: object) -> str:
    """A value as it stands in the file."""
    match value:
        case Enum():
            return json.dumps(value.value)
        case bool() | str():
            return json.dumps(value)
        case float() if value >= 1e6:
            return f"{value:.4g}".replace("e+", "e")
        case Mapping():
            return "{}"
        case tuple() | list():
            return f"[{', '.join(_toml(one) for one in value)}]"
    return str(value)


def _type(kind: Any) -> str:
    """A type in words."""
    plain = {str: "text", int: "whole number", float: "number", bool: "true or false", types.NoneType: ""}
    origin, inner = get_origin(kind), get_args(kind)
    words = inner if origin is Literal else ()
    if isinstance(kind, type) and issubclass(kind, Enum):
        words = tuple(one.value for one in kind)
    if words:
        return "one of " + ", ".join(f"`{one}`" for one in words)
    if origin in {Union, types.UnionType}:
        return " or ".join(filter(None, map(_type, inner)))
    if origin is tuple:
        return f"list of {_type(inner[0])}s" if inner[-1] is Ellipsis else "pair of number"
    if hasattr(kind, "__metadata__"):
        amount = next((one.name for one in kind.__metadata__ if isinstance(one, Amount)), "")
        return amount or _type(inner[0])
    tables = "tables" if inner and inner[-1] is ErrorLimit else "table of numbers"
    return tables if inner else plain[kind]


def files() -> Mapping[Path, str]:
    """Both pages."""
    return {PAGE: page(expert=False), EXPERTS: page(expert=True)}
