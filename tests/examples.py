"""How many examples a property is tried on: a tenth for each change, all of them before a release."""

import os

SHARE = float(os.environ.get("EXAMPLES", "0.1"))


def examples(most: int) -> int:
    """Of `most` examples, as many as are tried in this run; `EXAMPLES=1` tries all."""
    return max(1, round(most * SHARE))
