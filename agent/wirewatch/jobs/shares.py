"""Fair shares of a budget among identities, their users and their rings. Pure."""

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

from wirewatch.core.statistics import grouped

K = TypeVar("K", bound=Hashable)
Path = tuple[Any, ...]
"""The groups of an asker, from the outermost inwards; all paths have one length, and steps can be ordered."""


def fair(total: int, asked: Mapping[Path, int]) -> dict[Path, int]:
    """Return the share of each path, max-min fair at every step: no group gains by having more in it.

    The whole budget is given as long as anybody asks. Where it does not divide, the first in order get more.
    """
    if () in asked:
        return {(): min(total, asked[()])}
    groups = grouped((path[0], path) for path in asked)
    shares = max_min(total, {head: sum(asked[path] for path in paths) for head, paths in groups.items()})
    return {
        (head, *rest): share
        for head, paths in groups.items()
        for rest, share in fair(shares[head], {path[1:]: asked[path] for path in paths}).items()
    }


def max_min(total: int, asked: Mapping[K, int]) -> dict[K, int]:
    """Return the share of each asker: all it asks, or as much as anybody else gets."""
    given: dict[K, int] = {}
    # Who asks for least comes first, so that what it leaves is there for the others.
    order = sorted(sorted(asked, reverse=True), key=asked.__getitem__)  # type: ignore[type-var]
    for place, one in enumerate(order):
        given[one] = min(asked[one], total // (len(order) - place))
        total -= given[one]
    return given
