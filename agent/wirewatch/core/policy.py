"""Thresholds as data."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """`events` or more within `seconds` are a finding."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    events: int
    seconds: float = 3600.0
