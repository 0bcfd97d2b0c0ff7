"""The answer line: verdict, part, cause, next command and host, in one shape for every command."""

from collections.abc import Sequence

from wirewatch.core.words import printable

LIMIT = 250
"""Bytes of the line. It becomes the reason of a drained node, and schedulers cut a longer reason anywhere."""
KEPT = 120
"""Bytes of text that a long cause never displaces, such as orders of operators."""
CUT = "…"


def answer_line(
    verdict: str, part: str = "", cause: str = "", then: str = "", *, kept: Sequence[str] = (),
    more: Sequence[str] = (), host: str = "",
) -> str:  # fmt: skip
    """Return the line: printable, and of at most LIMIT bytes; `then` is the next command or action.

    The verdict stands first, because gates read it. The host stands last: readers of a gate's line know it.
    The cause keeps its wording, and no word is made firmer. A shortened part ends with an ellipsis.
    """
    head = plain(f"{verdict} {part}")
    said = ". ".join(filter(None, (plain(cause).rstrip("."), plain(then))))
    end = shortened(plain(f"; on {host}"), KEPT) if host else ""
    orders = shortened("".join(f"; {plain(one)}" for one in kept), KEPT)
    room = LIMIT - len(end.encode())
    # With room for the ellipsis of what comes after the orders.
    for_orders = len(f"{orders}{CUT}".encode()) if orders else 0
    first = shortened(f"{head}: {said}" if said else head, room - for_orders) + orders
    return shortened("; ".join((first, *map(plain, more))), room) + end


def plain(text: str) -> str:
    """Return the text on one line: each unprintable character and each run of spaces becomes one space."""
    return " ".join(printable(text).split())


def shortened(text: str, limit: int = LIMIT) -> str:
    """Return the text cut between two characters to at most `limit` bytes of UTF-8."""
    data = text.encode()
    if len(data) <= limit:
        return text
    return data[: limit - len(CUT.encode())].decode("utf-8", "ignore").rstrip() + CUT
