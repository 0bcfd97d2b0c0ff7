"""Names by which a listener may be asked, against pages that make a browser ask it (DNS rebinding)."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

_LOCAL = "localhost"


@dataclass(frozen=True, slots=True)
class Hosts:
    """Host headers that are answered.

    A page of a stranger can make the name of its own server mean this machine, and then read what a browser
    here is answered; but the browser still says that name. On a loopback address only this machine's own
    names are answered, and those of `names`; elsewhere any, unless `names` are given. An address is no name:
    it cannot be made to mean something else.
    """

    names: frozenset[str] = frozenset()
    loopback: bool = False

    @classmethod
    def of(cls, names: Sequence[str], address: str) -> "Hosts":
        """For a listener at a numeric address."""
        return cls(frozenset(name.lower() for name in names), is_loopback(address))

    def answers(self, header: bytes | None) -> bool:
        """Whether a request with this Host header is answered; None for a request without one."""
        if header is None or not (self.loopback or self.names):
            return True
        name = _name(header.decode("latin-1"))
        return name == _LOCAL or name in self.names or _is_address(name)


def is_loopback(address: str) -> bool:
    """Whether a numeric address is of this machine alone."""
    return ip_address(address.partition("%")[0]).is_loopback


def _name(header: str) -> str:
    """The name in `NAME`, `NAME:PORT`, `[V6]` and `[V6]:PORT`."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
