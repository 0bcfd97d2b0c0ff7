"""The answer line: verdict, part, cause, next command and host, in one shape for every command."""

from collections.abc import Sequence

from wirewatch.core.words import printable

LIMIT = 250
"""Bytes of the line: it becomes the reason of a drained node, which others cut anywhere when it is longer."""
KEPT = 120
"""Bytes for what is never cut to make room for a long cause, such as orders of operators."""
CUT = "…"


def answer_line(
    verdict: str, part: str = "", cause: str = "", then: str = "", *, kept: Sequence[str] = (),
    more: Sequence[str] = (), host: str = "",
) -> str:  # fmt: skip
    """Return the line, of at most LIMIT bytes, and printable; `then` is what to do next.

    The verdict stands first, where gates read it. The host stands last: whoever reads a gate's line knows it.
    The cause is as it was found: no word of it is made firmer. What is cut ends with an ellipsis.
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
    """The text on one line: what is not printable, and each run of spaces, becomes one space."""
    return " ".join(printable(text).split())


def shortened(text: str, limit: int = LIMIT) -> str:
    """The text cut to at most `limit` bytes of UTF-8, between two characters."""
    data = text.encode()
    if len(data) <= limit:
        return text
    return data[: limit - len(CUT.encode())].decode("utf-8", "ignore").rstrip() + CUT
