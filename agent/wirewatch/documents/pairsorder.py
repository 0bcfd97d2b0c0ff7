"""The order that tells a daemon what pairs of nodes found out about its node."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Len

from wirewatch.verdict.pairs import PairsResult


@dataclass(frozen=True, slots=True)
class PairsOrder:
    """The order to take a result, and who gives it."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}

    by: Annotated[str, Len(1, 200)]
    result: PairsResult
