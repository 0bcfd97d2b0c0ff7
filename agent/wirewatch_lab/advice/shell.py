"""Text that a shell, a launcher or the kernel reads as one word."""

import re
import shlex
from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+-]+", re.ASCII)


def quoted(text: str) -> str:
    """The text as one word of bash, whatever is in it; quoted wherever a reader could be in doubt."""
    plain = bool(_PLAIN.fullmatch(text)) and not text.startswith("-")
    return text if plain else f"'{text}'" if "'" not in text else shlex.quote(text)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as the kernel and launchers list them: `0-3,6`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
