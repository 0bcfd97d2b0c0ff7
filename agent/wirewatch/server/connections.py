"""The connections of one listener: how many there may be, and which one makes room for another."""

import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from wirewatch.server.reload import WebCounts
from wirewatch.server.webconfig import OPEN_PATHS

HEAD_BYTES = 16 << 10
"""Bytes of a request's line and headers."""
DESCRIPTORS, ENOUGH = 256, 4096
"""Open files that the agent itself may need, and open files that suffice for it and all connections."""
FEWEST = 8
"""Connections of a listener, however few files this process may open."""
LATELY = 10.0
"""Seconds after which all earlier arrivals of a client count half."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a listener: how many connections, and seconds for each step of a connection.

    `connections`: in all; `reserved` more are for the machine's own clients: root and the agent's user at a
    unix socket, the same host at a port. `of_one`: connections of one client. `requests`: answered at a time,
    not counting requests for open paths. `handshake`: of TLS. `head`: from a new connection, or a request's
    first byte, to the end of its headers. `idle`: from an answer to the next request, longer than the usual
    scrape intervals. `patience`: for a request's body, and for the client to read the answer. `body`: bytes.
    """

    connections: int = 128
    of_one: int = 16
    reserved: int = 16
    requests: int = 48
    handshake: float = 5.0
    head: float = 5.0
    idle: float = 150.0
    patience: float = 30.0
    body: int = 64 << 10


LOCAL = Bounds(of_one=32)
"""The bounds of the local socket, where the start of every job may connect."""


class Phase(Enum):
    """Phases of a connection: no request has come, the client sends a body or reads, or the agent works."""

    WAITING = auto()
    TRANSFER = auto()
    WORKING = auto()


@dataclass(eq=False, slots=True)
class Admission:
    """The place of one connection, which `end` ends at once.

    `client`: its address, its IPv6 network or its user; `own`: it belongs to the machine itself. `since`:
    when its request came, or its wait for one began. `counted`: the limit on requests counts it.
    """

    client: str
    own: bool
    end: Callable[[], object]
    phase: Phase = Phase.WAITING
    since: float = 0.0
    counted: bool = False


@dataclass(slots=True)
class Connections:
    """The connections of one listener.

    Where there is no room, the client with most of it gives way. It loses its oldest connection that waits
    for a request, or else its oldest that is slow to send or to read. Of clients with equally much, the
    client that came most often lately gives way. Else a scraper among hundreds that knock again and again
    would lose its place before its request is here. A client takes from others only while it has less than
    they: none keeps out another by connections that it does not use.
    """

    counts: WebCounts
    bounds: Bounds = field(default_factory=Bounds)
    mono: Callable[[], float] = time.monotonic
    open: dict[Admission, None] = field(default_factory=dict)
    _came: Counter[str] = field(default_factory=Counter)
    _counted_from: float = 0.0

    def admit(self, place: Admission) -> bool:
        """Take one more connection; False, and counted as refused, without room."""
        same = [one for one in self.open if one.client == place.client]
        group = [one for one in self.open if one.own == place.own]
        limit = self.bounds.reserved if place.own else self.bounds.connections
        full = len(same) >= self.bounds.of_one
        if (full or len(group) >= limit) and not self._give_way(same if full else group, place):
            return False
        self.open[place], place.since = None, self.mono()
        if place.since - self._counted_from > LATELY:
            halves = {client: count // 2 for client, count in self._came.items() if count > 1}
            self._came, self._counted_from = Counter(halves), place.since
        self._came[place.client] += 1
        return True

    def begin(self, place: Admission, path: str) -> bool:
        """A request has come; False, and counted as refused, when too many others are answered now."""
        if path not in OPEN_PATHS and not place.own:
            counted = [one for one in self.open if one.counted and one is not place]
            if len(counted) >= self.bounds.requests and not self._give_way(counted, place):
                return False
            place.counted = True
        place.since = self.mono()
        return True

    def enter(self, place: Admission, phase: Phase) -> None:
        """A connection is in this phase from now on."""
        if phase is Phase.WAITING and place.phase is not phase:
            place.since, place.counted = self.mono(), False
        place.phase = phase

    def crowded(self) -> bool:
        """Tell whether connections should not be kept for a next request, since room may be needed soon."""
        return 4 * len(self.open) > 3 * self.bounds.connections

    def _give_way(self, places: Sequence[Admission], newcomer: Admission) -> bool:
        """End the connection of a place for a newcomer, or refuse the newcomer."""
        most = Counter(one.client for one in places)
        fitting = (
            one
            for one in places
            if one.phase is not Phase.WORKING
            and (one.client == newcomer.client or most[one.client] > most[newcomer.client])
        )
        order = lambda one: (  # noqa: E731
            -most[one.client], one.phase is Phase.TRANSFER, -self._came[one.client], one.since
        )  # fmt: skip
        victim = min(fitting, key=order, default=None)
        self.counts.refuse("connections", (victim or newcomer).client)
        if victim is not None:
            del self.open[victim]
            victim.end()
        return victim is not None


def within_descriptors(bounds: Bounds) -> Bounds:
    """These bounds, with fewer connections where this process may open few files.

    Its limit is raised first, up to ENOUGH where that is allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Linux knows no process without a limit of open files.
    allowed = max(soft, min(ENOUGH, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return scaled(bounds, allowed)


def scaled(bounds: Bounds, files: int) -> Bounds:
    """The bounds where all descriptors are `files`: a port, a local socket and orders share what is spare."""
    spare = max(files - DESCRIPTORS, files // 4) // 4
    connections = min(bounds.connections, max(spare, FEWEST))
    return replace(
        bounds, connections=connections, of_one=min(bounds.of_one, connections),
        requests=min(bounds.requests, max(connections // 2, 1)),
        reserved=min(bounds.reserved, max(spare // 4, 2)),
    )  # fmt: skip
