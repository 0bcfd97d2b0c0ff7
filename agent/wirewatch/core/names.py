"""Suggestions for a name that does not exist: the most similar known names."""

import re
from collections.abc import Collection

CLOSE = 0.6
"""Least similarity of two names, 0 to 1, at which the first may be a slip of the other."""


def nearest(name: str, names: Collection[str]) -> tuple[str, ...]:
    """Return at most three similar names, in any case; names that contain the text come first."""
    # Only where something is wrong already: it takes longer to import than `check` takes.
    from difflib import get_close_matches  # noqa: PLC0415

    low, known = name.lower(), {one.lower(): one for one in names}
    like = get_close_matches(low, known, cutoff=CLOSE)
    begins = {one: [word.start() for word in re.finditer(r"[^-_.]+", one)] for one in known if low}
    inside = [one for one, words in begins.items() if any(one.startswith(low, at) for at in words)]
    return tuple(known[one] for one in dict.fromkeys((*like[:1], *inside, *like)))[:3]


def did_you_mean(name: str, names: Collection[str], otherwise: str) -> str:
    """Return a question with the nearest names; `otherwise` where no name is similar."""
    found = " or ".join(map(repr, nearest(name, names)))
    return f"did you mean {found}?" if found else otherwise
