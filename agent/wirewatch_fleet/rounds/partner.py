"""The other node of a pair: both meet before anything is measured, and each sees at once when the other ends.

Libraries that wait for a process that is gone may wait for ever. So the two commands keep a connection of
their own, which the kernel closes however one of them ends. It says nothing but how each has ended.
"""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

from wirewatch_fleet.rounds.plan import PairPlan, encode_pair_plan

TRY_SECONDS, GREETING_SECONDS, AGAIN_SECONDS = 0.5, 2.0, 0.1
"""Seconds for one attempt to connect, for a greeting, and between two attempts."""
_KEPT = {socket.TCP_KEEPIDLE: 2, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 4}
"""A node that answers nothing for six seconds is gone."""
LONGEST = 300
"""Bytes that are read of why the other has ended."""


class NotMet(Exception):
    """The other node has not come; the text is one line for the user."""


@dataclass
class Partner:
    """The connection to the other node. `lost`: why it cannot go on, "" while it can, or once it is done."""

    name: str
    connection: socket.socket
    lost: str = ""
    _heard: bool = False

    def gone(self) -> str | None:
        """Tell whether it has ended before it was done, and why; waits for nothing."""
        if not self._heard:
            try:
                said = self.connection.recv(LONGEST)
            except BlockingIOError:
                return None
            except OSError:
                said = b""
            self._heard = True
            if said != b"\n":
                why = "".join(c for c in said.decode("utf-8", "replace") if c.isprintable())
                self.lost = f"{self.name} has ended: {why}" if why else f"{self.name} has ended"
        return self.lost or None

    def tell(self, why: str) -> None:
        """Say that this node has ended: "" for done, else why it is not."""
        with suppress(OSError):
            self.connection.sendall(f"{why}\n".encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def meet(plan: PairPlan, name: str, ended: Callable[[], str | None]) -> Partner:
    """Meet the other node of the plan; `ended`: why to give up before its patience is over.

    The first node listens where its worker will: only until the other has come. Who does not know the
    plan is sent away.

    Raises:
        NotMet: it has not come in time, or this node cannot listen.
    """
    late, greeting = time.monotonic() + plan.work.patience, _greeting(plan)
    first = name == plan.first
    try:
        listening = _listening(plan.address[1]) if first else None
    except OSError as error:
        raise NotMet(f"{plan.meet} cannot be listened at: {error.strerror}") from error
    try:
        while time.monotonic() < late and ended() is None:
            one = _come(listening, plan.address)
            if one is not None and _greeted(one, greeting):
                return Partner(plan.second if first else plan.first, one)
    finally:
        if listening is not None:
            listening.close()
    waited = f"{plan.second if first else plan.first} has not come to {plan.meet}"
    raise NotMet(ended() or f"{waited} within {plan.work.patience:g} s")


def _greeting(plan: PairPlan) -> bytes:
    return sha256(encode_pair_plan(plan).encode()).hexdigest().encode()


def _listening(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        made = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        made = socket.create_server(("", port))
    made.settimeout(TRY_SECONDS)
    return made


def _come(listening: socket.socket | None, address: tuple[str, int]) -> socket.socket | None:
    """A connection to whoever is there; None where nobody is yet."""
    try:
        if listening is not None:
            return listening.accept()[0]
        return socket.create_connection(address, TRY_SECONDS)
    except TimeoutError:
        return None
    except OSError:
        time.sleep(AGAIN_SECONDS)
        return None


def _greeted(one: socket.socket, greeting: bytes) -> bool:
    """Whether the other end has the same plan; else the connection is closed."""
    try:
        one.settimeout(GREETING_SECONDS)
        one.sendall(greeting)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEPT.items():
            one.setsockopt(socket.IPPROTO_TCP, option, value)
        if one.recv(len(greeting), socket.MSG_WAITALL) == greeting:
            one.settimeout(0.0)
            return True
    except OSError:
        pass
    one.close()
    return False
