from collections.abc import Iterable, Mapping
from typing import Any

from wirewatch.hw.masking import Masker


def mask(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with every secret replaced, the same secret by the same stand-in wherever it stands."""
    every, masker = list(rows), Masker()
    masker.learn(every)
    return masker.mask(every)
