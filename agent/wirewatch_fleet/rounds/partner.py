"""The other node of a pair: both meet before measuring, and each sees at once when the other ends.

Libraries may wait for ever for a dead process. So the two commands keep their own connection, which the
kernel closes however either command ends. It carries nothing except how each has ended.
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
"""A node without an answer for six seconds is gone."""
LONGEST = 300
"""Most bytes of the other's reason for ending."""


class NotMet(Exception):
    """The other node has not come; the text is one line for the user."""


@dataclass
class Partner:
    """The link to the other node. `lost`: why it cannot continue, "" while it can, or once done."""

    name: str
    connection: socket.socket
    lost: str = ""
    _heard: bool = False

    def gone(self) -> str | None:
        """Return whether and why it ended before it was done; does not wait."""
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
        """Send that this node has ended: "" for done, else the reason."""
        with suppress(OSError):
            self.connection.sendall(f"{why}\n".encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def meet(plan: PairPlan, name: str, ended: Callable[[], str | None]) -> Partner:
    """Meet the other node of the plan; `ended`: returns a reason to give up early.

    The first node listens at its worker's address, only until the other has come. A visitor without the plan
    is refused.

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
    """Return a connection to a visitor; None while nobody is there."""
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
    """Return whether the other end has the same plan; else close the connection."""
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
