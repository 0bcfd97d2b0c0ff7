"""Where the daemon listens, and what it says."""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from wirewatch.cli.check.answer import (
    HEALTHS,
    Grounds,
    NotUnderstood,
    Stale,
    aged,
    found,
    nothing,
    read_health,
)
from wirewatch.core.types import Subject, Unusable
from wirewatch.documents.health import CheckFinding, ProbeStatus
from wirewatch.hw.httpclient import NoAnswer, request
from wirewatch.server.sockets import default_path

SYSTEM = "/run/wirewatch/wirewatch.sock"
"""The system's daemon, which answers everybody; a caller who is not root has another default."""
VERDICTS = (200, 503)


@dataclass(frozen=True, slots=True)
class Place:
    """The daemon's socket, "" for none, and whether the policy of the configuration wants a fresh probe."""

    socket: str
    required: bool = False


PART, LONGEST = 1 / 3, 5.0
"""Part of the time that the daemon may take to answer, as long as a look of our own can follow; seconds."""
PROBE = 10.0
"""Seconds without which no probe is begun: a node's first takes so long."""
TIDY = 1.0
"""Seconds before the deadline at which a probe is killed, so that what it was can still be told."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for; `end` is the deadline in monotonic seconds, `max_age` that of a probe."""

    end: float
    config: Path | None = None
    socket: str | None = None
    max_age: float | None = None
    owner: str | None = None
    cached: bool = False
    replay: str | None = None
    overlays: tuple[str, ...] = ()


class Attempt:
    """Runs in a thread that may hang; `sofar` and `shoot` are for the one that does not."""

    def __init__(self, wanted: Wanted, settle_in: Callable[[], None]) -> None:
        """`settle_in` is called once more is to be done than to ask the daemon."""
        self._wanted = wanted
        self._settle_in = settle_in
        self._node: Node | None = None
        self.sofar: Callable[[], Grounds] = lambda: nothing("the configuration could not be read in time")

    def run(self) -> Grounds:
        """What is known at the end.

        Raises:
            Unusable: the configuration, the recording or an overlay.
        """
        grounds = self._heard()
        return grounds if self._wanted.owner is None or grounds.released else self._probed(grounds)

    def _heard(self) -> Grounds:
        wanted = self._wanted
        if wanted.replay:
            return self._looked(f"a look at recording {wanted.replay}", required=False)
        where = place(wanted.socket, wanted.config)
        self.sofar = lambda: nothing("the daemon did not answer in time", required=where.required)
        left = wanted.end - time.monotonic()
        heard = ask_daemon(where.socket, round(left if wanted.cached else min(left * PART, LONGEST), 2))
        if isinstance(heard, Grounds):
            return heard
        if wanted.cached:
            return nothing(heard, required=where.required)
        return self._looked(f"a look of our own, since {heard}", required=where.required)

    def _looked(self, why: str, *, required: bool) -> Grounds:
        self.sofar = lambda: nothing(f"{why}, has not begun in time", required=required)
        look = self._made().look()
        self.sofar = lambda: look.grounds(f"{why}, has not ended in time")
        look.run(self._wanted.end)
        return look.grounds(why)

    def _made(self) -> "Node":
        """The node, made once."""
        from wirewatch.cli.check.look import Node, Which

        if self._node is None:
            self._settle_in()
            wanted = self._wanted
            which = Which(wanted.config, wanted.replay, wanted.overlays)
            self._node = Node(which, keep=wanted.owner is not None)
        return self._node

    def _probed(self, grounds: Grounds) -> Grounds:
        """With a probe for the owner, where the last one is old and there is time for another."""
        if not self._is_old(grounds) or self._wanted.owner is None:
            return grounds
        # The daemon takes a probe of somebody else's over with its next turn; jobs may be shorter than that.
        grounds = self._recalled(grounds)
        if not self._is_old(grounds):
            return grounds
        left = self._wanted.end - TIDY - time.monotonic()
        if left < PROBE:
            return _with(grounds, f"no probe: {max(left, 0.0):.0f} s are left, it may take {PROBE:.0f} s")
        self.sofar = lambda: _with(grounds, "the probe has not ended in time")
        asked = self._made().probe(self._wanted.owner, self._wanted.end - TIDY)
        merged = _merged(grounds, asked.findings)
        if asked.probed is None or asked.probed.outcome != "ok":
            return _with(merged, f"no probe: {asked.why}")
        return replace(merged, probe=ProbeStatus(asked.at, 0.0, fresh=True, required=grounds.required))

    def _is_old(self, grounds: Grounds) -> bool:
        last = aged(grounds.probe, self._wanted.max_age)
        return last is not None and not last.fresh

    def _recalled(self, grounds: Grounds) -> Grounds:
        """With the newest probe of the history, where the daemon does not know it yet."""
        self.sofar = lambda: _with(grounds, "the history of probes could not be read in time")
        newest, findings = self._made().probed()
        if newest is None or grounds.probe is None or newest.at <= grounds.probe.at:
            return grounds
        merged = _merged(grounds, findings)
        return replace(
            merged,
            probe=replace(grounds.probe, at=newest.at, age_seconds=newest.age_seconds, fresh=newest.fresh),
        )

    def tidy(self) -> None:
        """Let go of the hardware, which may take a while."""
        if self._node is not None:
            self._node.stop()

    def shoot(self) -> None:
        """Kill what may hang, and wait for nothing."""
        if self._node is not None:
            self._node.shoot()


T = TypeVar("T")


class Work(Generic[T]):
    """Work under way in a thread of its own, which does not keep the process alive."""

    def __init__(self, work: Callable[[], T], after: Callable[[], None]) -> None:
        """Begin; `after` is done once the outcome has been told, as long as there is time."""
        self._told: queue.SimpleQueue[T | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(work, after), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], T], after: Callable[[], None]) -> None:
        try:
            self._told.put(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._told.put(error)
        after()

    def outcome(self, seconds: float) -> T:
        """What the work came to.

        Raises:
            TimeoutError: it has not within so many seconds.
            BaseException: what the work raised.
        """
        try:
            told = self._told.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(told, BaseException):
            raise told
        return told

    def ended(self, seconds: float) -> bool:
        """Whether all is done within so many seconds."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()


def place(given: str | None, config: Path | None) -> Place:
    """Where to ask: as given, as configured, or where daemons listen by default.

    Raises:
        Unusable: the configuration cannot be read, or has nonsense in these two places.
    """
    if config is None:
        return Place(_usual() if given is None else given)
    told = _toml(config)
    socket = _in(told, "listen").get("socket")
    required = _in(_in(told, "policy"), "verdict").get("require_fresh_probe", False)
    if not isinstance(socket, str | None):
        raise Unusable(f"{config}: listen.socket: not a text: {socket!r}")
    if not isinstance(required, bool):
        raise Unusable(f"{config}: policy.verdict.require_fresh_probe: not true or false: {required!r}")
    path = given if given is not None else socket
    return Place(_usual() if path is None else path, required)


def ask_daemon(path: str, deadline: float) -> Grounds | str:
    """What the daemon knows, `deadline` in seconds; or why it has not told."""
    if not path:
        return "no socket is configured to ask a daemon at"
    try:
        status, body = request(path, "GET", "/health", None, deadline)
        if status not in VERDICTS:
            return f"{path}: HTTP status {status} instead of a verdict"
        return read_health(body, time.time())
    except NoAnswer as error:
        return str(error)
    except (NotUnderstood, Stale) as error:
        return f"{path}: {error}"


def stderr_of_our_own(*, verbose: bool) -> None:
    """Keep the caller's standard error from the processes that we start, and log there.

    One that hangs in the driver outlives us, and who reads our output to its end would wait for it.
    """
    from wirewatch.cli.output import log_to_stderr

    try:
        ours, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:
        return  # closed by the caller
    os.dup2(nothing, 2)
    os.close(nothing)
    sys.stderr = open(ours, "w", buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115, PTH123
    log_to_stderr(verbose=verbose)


def leave(code: int) -> NoReturn:
    """End now: no thread is waited for, nothing is tidied up."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # gone, or closed from the start
            stream.flush()
    os._exit(code)


def _toml(config: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(config.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"{config}: {getattr(error, 'strerror', None) or error}") from error


def _in(told: dict[str, Any], name: str) -> dict[str, Any]:
    """A section; what is none is told by who reads the whole configuration."""
    value = told.get(name)
    return value if isinstance(value, dict) else {}


def _usual() -> str:
    places = [path for path in (default_path(), SYSTEM) if path]
    return next((path for path in places if os.path.exists(path)), places[0])  # noqa: PTH110 - a socket's name


def _with(grounds: Grounds, why: str) -> Grounds:
    return replace(grounds, why=f"{grounds.why}; {why}" if grounds.why else why)


def _merged(grounds: Grounds, found_by_probe: "Iterable[Finding]") -> Grounds:
    """What a probe has found counts beside what is known; it says the newest of what it finds again."""
    newer = tuple(found(finding) for finding in found_by_probe)
    again = {_key(one) for one in newer}
    others = (one for one in grounds.findings if _key(one) not in again)
    findings = sorted((*newer, *others), key=lambda one: -HEALTHS[one.health])
    health = max((grounds.health, *(HEALTHS[one.health] for one in newer)))
    return replace(grounds, health=health, findings=tuple(findings))


def _key(one: CheckFinding) -> tuple[str, Subject]:
    return one.rule, Subject.of(one.subject)


if TYPE_CHECKING:
    from collections.abc import Iterable

    from wirewatch.cli.check.look import Node
    from wirewatch.core.types import Finding
