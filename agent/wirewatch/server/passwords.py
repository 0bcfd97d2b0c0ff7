"""Passwords against their bcrypt hashes, which are slow by design.

One thread checks one password at a time, off the event loop, so that guessing slows nothing else. A right
password is remembered for as long as its hash stays. A wrong one takes the thread twice as long, so that
guessing takes half a processor at most, and its address has to wait. An address that was right before goes
first: a flood from others does not keep out a client whose password was changed.
"""

import asyncio
import hashlib
import queue
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv6Address, IPv6Network, ip_address

import bcrypt

REMEMBERED = 128
"""Right passwords that are remembered, as keyed hashes."""
QUEUE = 8
"""Passwords that may wait for the thread."""
JOINED = 24
"""Requests of addresses that were never right that may wait for a check which another began."""
LONGEST = 72
"""Bytes of a password that bcrypt reads."""
BURST = 5.0
"""Passwords of one address that are checked without a pause."""
REFILL = 2.0
"""Seconds until one more of that address is checked."""
ADDRESSES = 1024
"""Addresses that are remembered; the address that was idle for longest is forgotten first."""


class PasswordResult(Enum):
    """The result of a check; `BUSY` when the password was not checked."""

    RIGHT = "right"
    WRONG = "wrong"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class PasswordCheck:
    """A password that waits for the thread; `result` is None when it gave way to another."""

    name: bytes
    password: bytes
    stored: bytes
    address: str
    result: "asyncio.Future[bool | None]"


class Passwords:
    """Checks passwords, for one event loop."""

    def __init__(self, mono: Callable[[], float] = time.monotonic) -> None:
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._trusted: OrderedDict[str, None] = OrderedDict()
        self._waiting: list[PasswordCheck] = []
        self._running: PasswordCheck | None = None
        self._joined = 0
        self._throttle = Throttle(mono)
        self._key = secrets.token_bytes(32)
        self._jobs: queue.SimpleQueue[tuple[bytes, bytes, Callable[[bool], None]]] = queue.SimpleQueue()
        # The end of the process does not wait for it.
        threading.Thread(target=self._compare_all, name="passwords", daemon=True).start()

    async def check(
        self, users: Mapping[str, bytes], user: str, password: bytes, address: str
    ) -> PasswordResult:
        """Whether `password` is that of `user`; an unknown user takes as long. `users` has at least one."""
        stored = users.get(user) or _unmatchable(users)
        name = self._name(user, stored, password)
        if name in self._known:
            self._known.move_to_end(name)
            self._trust(address)
            return PasswordResult.RIGHT
        under_way = (*self._waiting, *([self._running] if self._running else ()))
        same = next((one for one in under_way if one.name == name), None)
        if same is not None:
            right = await self._joining(same, address)
        else:
            check = self._enqueue(name, password, stored, address)
            right = None if check is None else await asyncio.shield(check.result)
        if right is None:
            return PasswordResult.BUSY
        return PasswordResult.RIGHT if right else PasswordResult.WRONG

    async def _joining(self, check: PasswordCheck, address: str) -> bool | None:
        """The result of a check that another request began; None where too many wait like that."""
        if address in self._trusted:
            return await asyncio.shield(check.result)
        if self._joined >= JOINED:
            return None
        self._joined += 1
        try:
            return await asyncio.shield(check.result)
        finally:
            self._joined -= 1

    def _enqueue(self, name: bytes, password: bytes, stored: bytes, address: str) -> PasswordCheck | None:
        """A new check; None when there is no room for it, or its address has to wait."""
        full = len(self._waiting) >= QUEUE
        displaced = self._displaced(address) if full else None
        if (full and displaced is None) or not self._throttle.take(address):
            return None
        if displaced is not None:
            self._waiting.remove(displaced)
            self._throttle.give_back(displaced.address)
            displaced.result.set_result(None)
        future: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        check = PasswordCheck(name, password, stored, address, future)
        self._waiting.append(check)
        self._next()
        return check

    def _displaced(self, address: str) -> PasswordCheck | None:
        """Return the waiting check that gives way to a check of this address; None for none.

        Its address was never right, and has most of the waiting checks. Among equals a lot decides: in a
        flood from ever new addresses each has a chance, whatever its moment.
        """
        waiting = Counter(check.address for check in self._waiting)
        ranks = {
            check.name: (check.address in self._trusted, -waiting[check.address]) for check in self._waiting
        }
        least = min(ranks.values())
        if least > (address in self._trusted, -waiting[address] - 1) or least[0]:
            return None
        return secrets.choice([check for check in self._waiting if ranks[check.name] == least])

    def _next(self) -> None:
        """Give the thread its next check: a trusted address first, else the check that has waited longest."""
        if self._running is not None or not self._waiting:
            return
        index = next((i for i, check in enumerate(self._waiting) if check.address in self._trusted), 0)
        check = self._running = self._waiting.pop(index)
        loop = asyncio.get_running_loop()

        def done(right: bool) -> None:  # noqa: FBT001
            # The loop may be closed by now: the daemon ends.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ended, check, right)

        self._jobs.put((check.password, check.stored, done))

    def _compare_all(self) -> None:
        while True:
            password, stored, done = self._jobs.get()
            done(_compare(password, stored))

    def _ended(self, check: PasswordCheck, right: bool) -> None:  # noqa: FBT001
        self._running = None
        if right:
            self._throttle.give_back(check.address)
            self._trust(check.address)
            self._known[check.name] = None
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        check.result.set_result(right)
        self._next()

    def _trust(self, address: str) -> None:
        self._trusted[address] = None
        self._trusted.move_to_end(address)
        if len(self._trusted) > ADDRESSES:
            self._trusted.popitem(last=False)

    def _name(self, user: str, stored: bytes, password: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._key)
        for part in (user.encode(), stored, password):
            digest.update(len(part).to_bytes(4, "big") + part)
        return digest.digest()


class Throttle:
    """A bucket of tries for each address, full at first, with one more every REFILL seconds."""

    def __init__(self, mono: Callable[[], float]) -> None:
        self._mono = mono
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Take one try; False when there is none."""
        left = self._left(address)
        if left < 1:
            return False
        self._put(address, left - 1)
        return True

    def give_back(self, address: str) -> None:
        """Return a try: the password was right."""
        self._put(address, min(BURST, self._left(address) + 1))

    def _left(self, address: str) -> float:
        left, at = self._buckets.get(address, (BURST, self._mono()))
        return min(BURST, left + (self._mono() - at) / REFILL)

    def _put(self, address: str, left: float) -> None:
        self._buckets[address] = (left, self._mono())
        self._buckets.move_to_end(address)
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)


def origin(host: str) -> str:
    """The unit of throttling of an address: itself, or the /64 network of an IPv6 address."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else str(IPv6Network((address, 64), strict=False))


def _unmatchable(users: Mapping[str, bytes]) -> bytes:
    """Return a hash that matches no password, as costly as the hashes of `users`."""
    return next(iter(users.values()))[: len(b"$2b$10$")] + b"." * 53


def _compare(password: bytes, stored: bytes) -> bool:
    """Compare in constant time; then sleep as long again where the password is wrong."""
    began = time.monotonic()
    try:
        # The library refuses longer ones; they are cut, so that they take as long as others.
        right = bcrypt.checkpw(password[:LONGEST], stored) and len(password) <= LONGEST
    except ValueError:
        right = False
    if not right:
        time.sleep(time.monotonic() - began)
    return right
