"""The document of `wirewatch config show`: what holds, and where each value comes from."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

Origin = Literal["default", "file", "environment", "option"]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value by its dotted key, null where nothing is set.

    `where`: the line of the file, the variable, or the option; empty for a default.
    """

    key: str
    value: Any
    origin: Origin
    where: str


@dataclass(frozen=True, slots=True)
class ConfigDocument:
    """The effective configuration; `file`: the one that was read, empty for none."""

    schema: Literal["wirewatch.config/1"]
    file: str
    values: list[ConfigValue]


CONFIGURATION = TypeAdapter(ConfigDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.config.1": CONFIGURATION}
