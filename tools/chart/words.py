"""What a text must look like, said in words: a schema can only quote its pattern.

The pattern is not in values.schema.json but in the chart's files/words.json, which a template reads: so that
helm says `state.hostPath: "var/lib" is not an absolute path, such as /var/lib/wirewatch`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field
from pydantic.fields import FieldInfo

KEY = "words"
EACH = "*"
"""In a path: each item of a list, each value of an object."""


def like(pattern: str, words: str, *never: str) -> FieldInfo:
    """For a text: what it must match, as an RE2 expression, what it must not be, and both in words."""
    found: FieldInfo = Field(
        json_schema_extra={KEY: {"pattern": pattern, "not": list(never), "words": words}}
    )
    return found


def rules(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each rule of a schema that still has them, with the path of what it is for."""
    yield from _rules(schema, schema, ())


def _rules(
    schema: Mapping[str, Any], part: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        yield from _rules(schema, schema["$defs"][name], path)
    if KEY in part:
        yield {"path": list(path), **part[KEY]}
    for name, inner in part.get("properties", {}).items():
        yield from _rules(schema, inner, (*path, name))
    for word in ("items", "additionalProperties"):
        if isinstance(part.get(word), dict):
            yield from _rules(schema, part[word], (*path, EACH))
    for inner in part.get("anyOf", ()):
        yield from _rules(schema, inner, path)
