"""Passwords against their bcrypt hashes, which are slow by design.

One thread checks one password at a time, off the event loop, so that guessing slows nothing else. A right
password is remembered for as long as its hash stays. A wrong one takes the thread twice as long, so that
guessing takes half a processor at most, and its address has to wait.
"""

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from ipaddress import IPv6Address, IPv6Network, ip_address

import bcrypt

REMEMBERED = 128
"""Right passwords that are remembered, as keyed hashes."""
QUEUE = 8
"""Passwords that may wait for the thread."""
LONGEST = 72
"""Bytes of a password that bcrypt reads."""
BURST = 5.0
"""Passwords of one address that are checked without a pause."""
REFILL = 2.0
"""Seconds until one more of that address is checked."""
ADDRESSES = 1024
"""Addresses that are remembered; the one that was idle for longest is forgotten first."""


class PasswordResult(Enum):
    """The result of a check; `BUSY` when the password was not checked."""

    RIGHT = "right"
    WRONG = "wrong"
    BUSY = "busy"


class Passwords:
    """Checks passwords, for one event loop."""

    def __init__(self, mono: Callable[[], float] = time.monotonic) -> None:
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._running: dict[bytes, asyncio.Future[bool]] = {}
        self._throttle = Throttle(mono)
        self._key = secrets.token_bytes(32)
        self._thread = ThreadPoolExecutor(1, "passwords")

    async def check(
        self, users: Mapping[str, bytes], user: str, password: bytes, address: str
    ) -> PasswordResult:
        """Whether `password` is that of `user`; an unknown user takes as long. `users` has at least one."""
        hashed = users.get(user)
        stored = hashed or _unmatchable(users)
        name = self._name(user, stored, password)
        if hashed and name in self._known:
            self._known.move_to_end(name)
            return PasswordResult.RIGHT
        running = self._running.get(name)
        if running is None:
            if len(self._running) > QUEUE or not self._throttle.take(address):
                return PasswordResult.BUSY
            running = self._start(name, password, stored)
            running.add_done_callback(lambda done: self._ended(name, done, address, known=bool(hashed)))
        right = await asyncio.shield(running)
        return PasswordResult.RIGHT if right and hashed else PasswordResult.WRONG

    def _start(self, name: bytes, password: bytes, stored: bytes) -> asyncio.Future[bool]:
        loop = asyncio.get_running_loop()
        running = self._running[name] = loop.run_in_executor(self._thread, _compare, password, stored)
        return running

    def _ended(self, name: bytes, done: "asyncio.Future[bool]", address: str, *, known: bool) -> None:
        del self._running[name]
        if known and not done.cancelled() and done.exception() is None and done.result():
            self._throttle.give_back(address)
            self._known[name] = None
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)

    def _name(self, user: str, stored: bytes, password: bytes) -> bytes:
        """A keyed hash of user, stored hash and password."""
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
    """A hash that matches no password, as costly as those of `users`."""
    return next(iter(users.values()))[: len(b"$2b$10$")] + b"." * 53


def _compare(password: bytes, stored: bytes) -> bool:
    """Compare in constant time; then sleep as long again where the password is wrong."""
    began = time.monotonic()
    # The library refuses longer ones; they are cut, so that they take as long as others.
    right = bcrypt.checkpw(password[:LONGEST], stored) and len(password) <= LONGEST
    if not right:
        time.sleep(time.monotonic() - began)
    return right
