"""The connections of one listener: how many there may be, and which one makes room for another."""

import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from wirewatch.server.peer import Peer
from wirewatch.server.reload import WebCounts
from wirewatch.server.webconfig import OPEN_PATHS

HEAD_BYTES = 16 << 10
"""Bytes of a request's line and headers."""
DESCRIPTORS = 256
"""Open files that the agent itself may need: polls, children, the state folder, its own sockets."""
ENOUGH = 4096
"""Open files for all connections of all listeners, and for the agent itself, with room to spare."""
FEWEST = 8
"""Connections of a listener, however few files this process may open."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections a listener has, and how long each step of one may take, in seconds.

    `connections`: in all; `reserved` more are for the machine's own clients: root and the agent's user at a
    unix socket, the same host at a port. `of_one`: of one client. `requests`: that are answered at a time,
    beside those for open paths. `handshake`: of TLS. `head`: from a new connection, or from the first byte of
    a request, to the end of its headers. `idle`: from an answer to the next request, longer than the usual
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
"""Of the local socket, where the start of every job may connect."""


class Phase(Enum):
    """What a connection does: no request has come, the client sends a body or reads, or the agent works."""

    WAITING = auto()
    TRANSFER = auto()
    WORKING = auto()


@dataclass(frozen=True, slots=True)
class Client:
    """The client of a connection: `name` is its address, its IPv6 network, or its user.

    `own`: it belongs to the machine itself. `peer`: its process, at a unix socket.
    """

    name: str
    own: bool = False
    peer: Peer | None = None


@dataclass(eq=False, slots=True)
class Admission:
    """One connection in the list of all.

    `since`: when it began to wait for a request, or when the request came (monotonic seconds). `counted`:
    whether its request is among those that are bounded.
    """

    client: Client
    end: Callable[[], object]
    since: float
    phase: Phase = Phase.WAITING
    counted: bool = False


@dataclass(slots=True)
class Connections:
    """The connections of one listener.

    Where there is no room, the client that has most of it gives way, with its oldest connection that waits
    for a request, or else its oldest one that is slow to send or to read. A client takes from others only
    while it has less than they, so that none keeps out another by what it does not use.
    """

    counts: WebCounts
    bounds: Bounds = field(default_factory=Bounds)
    mono: Callable[[], float] = time.monotonic
    _places: dict[Admission, None] = field(default_factory=dict)

    def admit(self, client: Client, end: Callable[[], object]) -> Admission | None:
        """The place of one more connection, which `end` ends; None, and counted as refused, without room."""
        same = [place for place in self._places if place.client.name == client.name]
        group = [place for place in self._places if place.client.own == client.own]
        limit = self.bounds.reserved if client.own else self.bounds.connections
        if len(same) >= self.bounds.of_one:
            room = self._give_way(same, client)
        else:
            room = len(group) < limit or self._give_way(group, client)
        if not room:
            self.counts.refuse("connections", client.name)
            return None
        place = Admission(client, end, self.mono())
        self._places[place] = None
        return place

    def release(self, place: Admission) -> None:
        """A connection has ended."""
        self._places.pop(place, None)

    def begin(self, place: Admission, path: str) -> bool:
        """A request has come; False, and counted as refused, when too many others are answered now."""
        if path not in OPEN_PATHS and not place.client.own:
            counted = [other for other in self._places if other.counted]
            if len(counted) >= self.bounds.requests and not self._give_way(counted, place.client):
                self.counts.refuse("connections", place.client.name)
                return False
            place.counted = True
        place.phase, place.since = Phase.WORKING, self.mono()
        return True

    def enter(self, place: Admission, phase: Phase) -> None:
        """The request of a connection is in another phase from now on."""
        place.phase = phase

    def wait(self, place: Admission) -> None:
        """A connection waits for a request from now on."""
        place.phase, place.since, place.counted = Phase.WAITING, self.mono(), False

    def crowded(self) -> bool:
        """Whether connections should not be kept for a next request, since room may be needed soon."""
        return 4 * len(self._places) > 3 * self.bounds.connections

    def _give_way(self, places: Sequence[Admission], newcomer: Client) -> bool:
        """End one of these for a newcomer; False where none may be ended."""
        most = Counter(place.client.name for place in places)
        fitting = [
            place
            for place in places
            if place.phase is not Phase.WORKING
            and (place.client.name == newcomer.name or most[place.client.name] > most[newcomer.name])
        ]
        if not fitting:
            return False
        victim = min(
            fitting, key=lambda place: (-most[place.client.name], place.phase is Phase.TRANSFER, place.since)
        )
        self.counts.refuse("connections", victim.client.name)
        self.release(victim)
        victim.end()
        return True


def within_descriptors(bounds: Bounds) -> Bounds:
    """These bounds, with fewer connections where this process may open few files.

    Its limit is raised first, up to ENOUGH where that is allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    return bounds if soft == resource.RLIM_INFINITY else scaled(bounds, soft)


def scaled(bounds: Bounds, files: int) -> Bounds:
    """The bounds where all descriptors are `files`: a port, a local socket and orders share what is spare."""
    spare = max(files - DESCRIPTORS, files // 4) // 4
    connections = min(bounds.connections, max(spare, FEWEST))
    reserved = min(bounds.reserved, max(spare // 4, 2))
    return replace(
        bounds, connections=connections, of_one=min(bounds.of_one, connections), reserved=reserved,
        requests=min(bounds.requests, max(connections // 2, 1)),
    )  # fmt: skip
