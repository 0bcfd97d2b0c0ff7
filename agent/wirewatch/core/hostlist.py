"""Slurm's short form of many host names, such as gpu[001-016,020]: read and written. Pure.

The form is scontrol's (22.05): a number in brackets keeps its width, and the last brackets end a name. Names
that go on after their number stand alone. Source: `scontrol show hostnames` and `scontrol show hostlist`.
tests/node/core/test_hostlist.py compares with both where they are installed.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

MOST_HOSTS = 65536
"""Most names in a list; Slurm's own limit (MAX_RANGE)."""
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_DIGITS = 12
_NUMBER = re.compile(r"(\d{1,18})", re.ASCII)
_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_PART = re.compile(r"\[([^\[\]]*)\]|[^\[\]]+")
_RANGE = re.compile(rf"(\d{{1,{_DIGITS}}})(?:-(\d{{1,{_DIGITS}}}))?", re.ASCII)
_NUMBERED = re.compile(rf"(.*?)(\d{{1,{_DIGITS}}})", re.ASCII)
_FIELD = re.compile(r"(\w+)=(\S+)", re.ASCII)


class HostlistError(Exception):
    """A text is not a list of hosts; the message is one line for people."""


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key to sort names by: gpu10 comes after gpu9, and numbers before words."""
    pieces = _NUMBER.split(name)
    # A number by its value, then by its text: n1 and n01 are two hosts.
    return tuple((int(one), one) if place % 2 else (-1, one) for place, one in enumerate(pieces))


def expanded(text: str) -> tuple[str, ...]:
    """Return the names of a list in its order; HostlistError for any other text, or above MOST_HOSTS."""
    items = _ITEM.findall(text.strip())
    if not items or ",".join(items) != text.strip():
        raise HostlistError(f"{_shown(text)} is not a list of hosts such as gpu[001-016]")
    names: list[str] = []
    for item in items:
        names += _of_item(item, MOST_HOSTS - len(names))
    return tuple(names)


def topology_places(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return each node's leaf (switch of level 0) and block, as `scontrol show topology` has them.

    Raises HostlistError where the nodes of a line are not a list of hosts.
    """
    leafs: dict[str, str] = {}
    blocks: dict[str, str] = {}
    for line in text.splitlines():
        fields: dict[str, str] = dict(_FIELD.findall(line))
        known = blocks if "BlockName" in fields else leafs
        name = fields.get("BlockName") or fields.get("SwitchName", "")
        if name and "Nodes" in fields and fields.get("Level", "0") == "0":
            known.update(dict.fromkeys(expanded(fields["Nodes"]), name))
    return leafs, blocks


def compact(names: Iterable[str]) -> str:
    """Return the list of these names: natural order, each once, numbers of one width in ranges."""
    ordered = sorted(set(names), key=natural)
    ranges: dict[str, list[tuple[int, int, int]]] = {}
    for name in ordered:
        found = _NUMBERED.fullmatch(name)
        prefix, digits = (found[1], found[2]) if found else (name, "")
        runs = ranges.setdefault(prefix if digits else f"{prefix}\0", [])
        if not digits:
            continue
        number, width = int(digits), len(digits)
        if runs and runs[-1][1] + 1 == number and len(str(number).zfill(runs[-1][2])) == width:
            runs[-1] = (runs[-1][0], number, runs[-1][2])
        else:
            runs.append((number, number, width))
    return ",".join(_written(prefix, runs) for prefix, runs in ranges.items())


def _written(prefix: str, runs: list[tuple[int, int, int]]) -> str:
    if not runs:
        return prefix.removesuffix("\0")
    padded = [(str(first).zfill(width), str(last).zfill(width)) for first, last, width in runs]
    texts = [first if first == last else f"{first}-{last}" for first, last in padded]
    alone = len(texts) == 1 and runs[0][0] == runs[0][1]
    return f"{prefix}{texts[0]}" if alone else f"{prefix}[{','.join(texts)}]"


def _of_item(item: str, most: int) -> Iterator[str]:
    if "[" in item and not item.endswith("]"):
        raise HostlistError(f"{_shown(item)}: brackets end a name; give names that go on one by one")
    choices = [_of_part(part[0], part[1], most) for part in _PART.finditer(item)]
    if prod(map(len, choices)) > most:
        raise HostlistError(f"{_shown(item)}: more than {MOST_HOSTS} hosts")
    for pieces in product(*choices):
        name = "".join(pieces)
        if not HOST.fullmatch(name):
            raise HostlistError(f"{_shown(name)} is not a host name")
        yield name


def _of_part(text: str, inside: str | None, most: int) -> list[str]:
    if inside is None:
        return [text]
    numbers: list[str] = []
    for piece in inside.split(","):
        found = _RANGE.fullmatch(piece)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if found is None or last < first:
            raise HostlistError(f"{_shown(text)}: {_shown(piece)} is not a range such as 001-016")
        if last - first >= most:
            raise HostlistError(f"{_shown(text)}: more than {MOST_HOSTS} hosts")
        numbers += [str(number).zfill(len(found[1])) for number in range(first, last + 1)]
    return numbers


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else f"{text[:59]}…")  # noqa: PLR2004
