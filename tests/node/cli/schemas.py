"""JSON Schema, as far as docs/schemas uses it; any other word of a schema is an error here."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.processes import ROOT

REMARKS = {"title", "description", "default", "$defs", "minItems", "maxItems"}
TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
    "number": (int, float),
}  # fmt: skip


def complaints(name: str, text: str) -> list[str]:
    """What of a document is not as the schema of this name has it; a field that it does not name, too."""
    schema = _schemas()[f"{name}.json"]
    return list(_At("$", json.loads(text), schema, schema.get("$defs", {})).complaints())


@cache
def _schemas() -> Mapping[str, Any]:
    found = (ROOT / "docs" / "schemas").glob("*.json")
    return {path.name: json.loads(path.read_text("utf-8")) for path in found}


@dataclass(frozen=True)
class _At:
    place: str
    value: Any
    schema: Mapping[str, Any]
    parts: Mapping[str, Any]

    def complaints(self) -> Iterator[str]:
        words: Mapping[str, Callable[[Any], Iterator[str]]] = {
            "$ref": lambda told: self._with("", self.value, self.parts[told.rpartition("/")[2]]),
            "type": self._type, "anyOf": self._any, "properties": self._members, "items": self._items,
            "const": lambda told: self._one_of([told]), "enum": self._one_of, "required": self._required,
            "additionalProperties": self._others, "prefixItems": self._first,
            "exclusiveMinimum": self._above, "propertyNames": self._names,
            "uniqueItems": self._unique,
        }  # fmt: skip
        for word, told in self.schema.items():
            assert word in words or word in REMARKS, f"{word} is not known here"
            if word in words:
                yield from words[word](told)

    def _with(self, step: str, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
        return _At(f"{self.place}{step}", value, schema, self.parts).complaints()

    def _type(self, told: str) -> Iterator[str]:
        if not isinstance(self.value, TYPES[told]) or (isinstance(self.value, bool) and told != "boolean"):
            yield f"{self.place}: not {told}: {self.value!r}"

    def _one_of(self, told: list[Any]) -> Iterator[str]:
        if self.value not in told:
            yield f"{self.place}: not of {told}: {self.value!r}"

    def _any(self, told: list[Any]) -> Iterator[str]:
        found = [list(self._with("", self.value, one)) for one in told]
        if all(found):
            yield from found[0]

    def _members(self, told: Mapping[str, Any]) -> Iterator[str]:
        for name, one in self.value.items() if isinstance(self.value, dict) else ():
            if name in told:
                yield from self._with(f".{name}", one, told[name])
            else:
                yield f"{self.place}: {name} is not in the schema"

    def _others(self, told: Mapping[str, Any] | bool) -> Iterator[str]:  # noqa: FBT001
        for name, one in self.value.items() if isinstance(self.value, dict) else ():
            if not isinstance(told, bool):
                yield from self._with(f".{name}", one, told)

    def _names(self, told: Mapping[str, Any]) -> Iterator[str]:
        for name in self.value if isinstance(self.value, dict) else ():
            yield from self._with(f" {name!r}", name, told)

    def _unique(self, told: bool) -> Iterator[str]:  # noqa: FBT001
        if told and isinstance(self.value, list) and len({*map(repr, self.value)}) < len(self.value):
            yield f"{self.place}: some are twice: {self.value}"

    def _first(self, told: Any) -> Iterator[str]:
        for number, (one, schema) in enumerate(zip(self.value, told, strict=False)):
            yield from self._with(f"[{number}]", one, schema)

    def _above(self, told: float) -> Iterator[str]:
        if isinstance(self.value, int | float) and self.value <= told:
            yield f"{self.place}: {self.value} is not above {told}"

    def _items(self, told: Mapping[str, Any]) -> Iterator[str]:
        for number, one in enumerate(self.value if isinstance(self.value, list) else ()):
            yield from self._with(f"[{number}]", one, told)

    def _required(self, told: list[str]) -> Iterator[str]:
        for name in told if isinstance(self.value, dict) else ():
            if name not in self.value:
                yield f"{self.place}: no {name}"
