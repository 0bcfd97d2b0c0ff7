"""How often an address may be wrong."""

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from ipaddress import IPv6Address, IPv6Network, ip_address

AT_ONCE = 5.0
"""Passwords of one address that are looked at without a pause."""
PAUSE = 2.0
"""Seconds until it may have one more looked at."""
ADDRESSES = 1024
"""Addresses that are remembered; the longest quiet is forgotten first."""


class Word(Enum):
    """What became of a password; `BUSY` when it was not looked at."""

    RIGHT = "right"
    WRONG = "wrong"
    BUSY = "busy"


def origin(host: str) -> str:
    """Who is meant by an address: of IPv6 the /64, of which whoever has one address has all."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else str(IPv6Network((address, 64), strict=False))


class Throttle:
    """A bucket of tries for each address, full at first, with one more every PAUSE."""

    def __init__(self, mono: Callable[[], float]) -> None:
        self._mono = mono
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """One try less; False when there is none."""
        left = self._left(address)
        if left < 1:
            return False
        self._put(address, left - 1)
        return True

    def give_back(self, address: str) -> None:
        """That one was right."""
        self._put(address, min(AT_ONCE, self._left(address) + 1))

    def _left(self, address: str) -> float:
        left, at = self._buckets.get(address, (AT_ONCE, self._mono()))
        return min(AT_ONCE, left + (self._mono() - at) / PAUSE)

    def _put(self, address: str, left: float) -> None:
        self._buckets[address] = (left, self._mono())
        self._buckets.move_to_end(address)
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
