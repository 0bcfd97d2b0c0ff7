"""One wire less: the faults that each row of the product matrix is tried with, and how they must be named."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.node.products.machine import OLD, OLD_SPEEDS, peer
from tests.node.products.rows import Row
from tests.support import Node

Named = frozenset[tuple[str, str, str]]
"""Rule, GPU and link of each finding."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What is done to a node, as (question, value), and what must be found, later and at the start.

    `session`: the driver must be opened again to see it.
    """

    name: str
    changes: tuple[tuple[str, int], ...]
    later: Named
    start: Named
    session: bool = False

    def happen(self, node: Node) -> None:
        """It happens now."""
        for question, value in self.changes:
            node.change(question, "set", value)
        node.nvml.number += self.session


def wires(row: Row) -> Iterator[Wire]:
    """Each fault of a wire that this product can have."""
    if row.watched and row.rate:
        yield _down(row)
        yield _half(row)
        if row.links - 1 in row.active:
            yield _fewer(row)
    if row.c2c:
        found = frozenset({("c2c.link_down", str(row.faulty), "0")})
        yield Wire("chip-to-chip", ((f"gpu{row.faulty}/Field(171,0)", 0),), found, found)
    lanes = frozenset({("pcie.width", str(row.faulty), "")})
    yield Wire("lanes", ((f"gpu{row.faulty}/CurrPcieLinkWidth()", 8),), lanes, lanes)


def _ends(row: Row) -> tuple[tuple[int, int], ...]:
    """GPU and number of both ends of the last link; of one to a switch, or out of a mesh, this end alone."""
    gpu, link = row.faulty, row.active[-1]
    other = peer(row, gpu, link)
    if other is None:
        return ((gpu, link),)
    back = [n for n in row.active if peer(row, other, n) == gpu]
    return ((gpu, link), *((other, n) for n in back[-1:]))


def _named(rule: str, row: Row) -> Named:
    return frozenset((rule, str(gpu), str(link)) for gpu, link in _ends(row))


def _down(row: Row) -> Wire:
    question = "NvLinkState({})" if row.generation in OLD else "Field(165,{})"
    changes = tuple((f"gpu{gpu}/{question.format(link)}", 0) for gpu, link in _ends(row))
    later = _named("nvlink.link_down", row)
    # Of links that no bridge joins and one that is down none is known by its number before it was up.
    unknown = frozenset(("nvlink.links_missing", str(gpu), "") for gpu, _ in _ends(row))
    return Wire("link down", changes, later, unknown if len(row.active) < row.links else later)


def _half(row: Row) -> Wire:
    def question(link: int) -> str:
        return f"Field({OLD_SPEEDS[link]})" if row.generation in OLD else f"Field(164,{link})"

    changes = tuple((f"gpu{gpu}/{question(link)}", row.rate // 2) for gpu, link in _ends(row))
    found = _named("nvlink.link_slow", row)
    return Wire("half rate", changes, found, found)


def _fewer(row: Row) -> Wire:
    gpu, last = str(row.faulty), row.links - 1
    later = frozenset({("nvlink.link_down", gpu, str(last))})
    start = frozenset({("nvlink.links_missing", gpu, "")})
    changes = ((f"gpu{gpu}/Field(91)", last),)
    return Wire("count less", changes, later, start, session=True)
