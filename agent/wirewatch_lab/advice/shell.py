"""Text that a shell, a launcher or the kernel reads as a single word."""

import re
import shlex
from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+-]+", re.ASCII)


def quoted(text: str) -> str:
    """Return the text as a single word of bash, quoted where needed."""
    plain = bool(_PLAIN.fullmatch(text)) and not text.startswith("-")
    return text if plain else f"'{text}'" if "'" not in text else shlex.quote(text)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in the list format of the kernel and launchers: `0-3,6`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
