"""Text as one word of a shell."""

import re
import shlex

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+-]+", re.ASCII)


def quoted(text: str) -> str:
    """The text as one word of bash, whatever is in it; quoted wherever a reader could be in doubt."""
    plain = bool(_PLAIN.fullmatch(text)) and not text.startswith("-")
    return text if plain else f"'{text}'" if "'" not in text else shlex.quote(text)
