"""Changing members deep inside a structured answer."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from wirewatch.core.types import Json


def within(value: Json, path: Sequence[str], change: Callable[[Json], Json]) -> Json:
    """The value with every member changed that a path leads to; `*` and `?` stand for names and places."""
    if not path:
        return change(value)
    name, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        return {k: within(v, rest, change) if fnmatchcase(k, name) else v for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [within(v, rest, change) if fnmatchcase(str(n), name) else v for n, v in enumerate(value)]
    return value
