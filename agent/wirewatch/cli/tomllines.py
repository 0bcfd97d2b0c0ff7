"""TOML beyond reading it: in which line a key stands, and a value as it would be written. Pure."""

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Key = tuple[str, ...]
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def leaves(data: Mapping[str, Any], path: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Every value of nested tables with its key; an empty table is a value."""
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def key_lines(text: str) -> dict[Key, int]:
    """The line, from 1, in which each key of a TOML file is set.

    Whatever is new once a line more is read stands there, or began after the last line at which the file
    could have ended. So no grammar is needed but that of tomllib.

    Raises:
        ValueError: the text is no TOML.
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
    """A value in one line, as tomllib reads it back.

    Raises:
        TypeError: TOML has no such value.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
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
