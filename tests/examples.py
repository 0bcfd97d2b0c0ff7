"""How many examples a property is tried on: a twentieth for a change, a tenth with `RELEASE=1`, else all."""

import os

SHARE = float(os.environ.get("EXAMPLES") or ("0.1" if os.environ.get("RELEASE") else "0.05"))


def examples(most: int) -> int:
    """Of `most` examples, as many as are tried in this run; `EXAMPLES=1` tries all."""
    return max(1, round(most * SHARE))
