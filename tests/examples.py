"""How many examples a property is tried on: a tenth for each change, all of them before a release."""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

SHARE = float(os.environ.get("EXAMPLES", "0.1"))


def examples(most: int) -> int:
    """Of `most` examples, as many as are tried in this run; `EXAMPLES=1` tries all."""
    return max(1, round(most * SHARE))


def sampled(cases: Sequence[T]) -> list[T]:
    """Every third of many cases of one kind, from the first on; all of them before a release."""
    return list(cases[:: 1 if SHARE >= 1 else 3])
