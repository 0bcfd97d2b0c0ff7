"""An attack: a function that besieges daemons, and what it finds by its own rules."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proof.siege.daemon import EVERY_SECOND, ROOT, USUAL, Besieged, Ground, SiegeError, Size, Start
from proof.siege.results import Figure, Outcome

MIB = 1 << 20
VERDICTS = frozenset({"run/verdict", "run/verdict-gpus"})
"""The daemon's own, a second after it is ready."""
SETTLE = 8.0
"""Seconds within which what an attack has left is gone; the server ends a silent connection after five.

Only descriptors that stay so long are left over. The kernel completes handshakes of clients that are gone
up to 15 s later, when it repeats its own part, and each of them is a new connection.
"""
SPARE = 2
"""Descriptors that the daemon may have more of than before: files that its lanes read."""
GAP = 5.0
"""Seconds between two polls of a lane that polls each second, at most."""
UNSEEN = 10.0
"""Seconds for which nobody may be answered, at most: a scrape interval is 15 s, and the kubelet gives up
after three periods of 10 s, in each of which it asks once."""
GROWN, LOGGED = 16 * MIB, 128 << 10
"""Bytes that memory and log may grow by."""


@dataclass(slots=True)
class Siege:
    """What an attack works with: `tree` whose code is tried, `short` for CI, and where its findings go."""

    tree: Path
    short: bool
    outcome: Outcome
    allowed: frozenset[str] = frozenset()
    """Rules of findings that an attack itself makes."""
    gap: float = GAP
    """Seconds between two polls that succeed, at most."""
    mark: str = ""
    """What its figures are of, where it has several of the same name."""

    def figure(self, name: str, value: float, unit: str = "") -> None:
        self.outcome.figures.append(Figure(f"{self.mark}: {name}" if self.mark else name, value, unit))

    def must(self, holds: object, trouble: str) -> None:
        """A rule of this attack; `trouble` is what is wrong where it does not hold."""
        if not holds:
            self.outcome.troubles.append(trouble)

    def most(self, name: str, value: float, unit: str, most: float) -> None:
        """A figure with a limit."""
        self.figure(name, value, unit)
        self.must(value <= most, f"{Figure(name, value, unit)}, at most {Figure('', most, unit)} allowed")

    @contextmanager
    def ground(self) -> Iterator[Ground]:
        """A folder for daemons, removed afterwards; its path is short, as that of a socket must be."""
        with tempfile.TemporaryDirectory(prefix="siege-") as name:
            Path(name).chmod(0o755)
            yield Ground(self.tree, Path(name))

    @contextmanager
    def daemon(self, start: Start = USUAL) -> Iterator[Besieged]:
        """One in a folder of its own."""
        with self.ground() as ground, Besieged(ground, start) as daemon:
            yield daemon

    @contextmanager
    def watched(self, daemon: Besieged, token: str = "", *, judged: bool = True) -> Iterator[None]:
        """Prometheus, the kubelet and jobs ask meanwhile; afterwards nothing may be left of the attack."""
        before = daemon.size()
        command = [sys.executable, "-m", "proof.siege.watch", daemon.url, str(daemon.ground.socket), token]
        watch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        assert watch.stdout is not None
        watch.stdout.readline()
        try:
            yield
        finally:
            out, _ = watch.communicate(timeout=60)
        self._served(json.loads(out), judged=judged)
        if daemon.process.poll() is not None:
            raise SiegeError(f"the daemon ended with {daemon.process.returncode}: {daemon.log[-400:]}")
        self._left(before, daemon)

    def _served(self, seen: dict[str, Any], *, judged: bool) -> None:
        for name, label in (("metrics", "/metrics"), ("livez", "/livez"), ("local", "local")):
            one = seen[name]
            self.figure(f"{label} p50", one["p50"] * 1e3, "ms")
            self.figure(f"{label} p99", one["p99"] * 1e3, "ms")
            self.figure(f"{label} errors of {one['asked']}", one["errors"])
            if judged:
                self.most(f"{label} longest without", one["gap"], "s", UNSEEN)
            if one["errors"] and name != "livez":
                self.must(
                    one["errors"] <= max(1, one["asked"] // 100),
                    f"{label}: {one['errors']} of {one['asked']} failed: {one['first']}",
                )
        polls = max((seen["gaps"].get(name, 0.0) for name in EVERY_SECOND), default=0.0)
        self.most("lanes' worst gap", polls, "s", self.gap)
        self.must(not seen["wrong"], f"wrong verdict {seen['wrong']} times: {seen['first']}")
        strange = {rule for rule in seen["beside"] if not rule.startswith(tuple(self.allowed) or ("\0",))}
        self.must(not strange, f"findings beside it: {', '.join(sorted(strange))}")

    def _left(self, before: Size, daemon: Besieged) -> None:
        end, now, most = time.monotonic() + SETTLE, daemon.size(), len(before.opened) + SPARE
        looks = [now.opened]
        while time.monotonic() < end and (_more(before, now) or len(lasting(looks)) > most):
            time.sleep(0.05)
            now = daemon.size()
            looks.append(now.opened)
        left = lasting(looks)
        self.figure("descriptors left", len(left) - len(before.opened))
        new = sorted(target for _, target in left - set(before.opened.items()))
        self.must(
            len(left) <= most, f"{len(left)} descriptors, {len(before.opened)} before: {', '.join(new)}"
        )
        self.must(now.threads <= before.threads + 6, f"{now.threads} threads, {before.threads} before")
        self.must(now.children <= before.children, f"{now.children} children, {before.children} before")
        self.most("memory grew", (now.pss - before.pss) / MIB, "MiB", GROWN / MIB)
        self.most("log grew", (now.log - before.log) / 1024, "KiB", LOGGED / 1024)
        files, end = _files(before, now), time.monotonic() + SETTLE
        while files and time.monotonic() < end:
            # The folder of a probe that runs now goes with it.
            time.sleep(0.05)
            files &= _files(before, daemon.size())
        self.must(not files, f"files left: {', '.join(sorted(files)[:5])}")
        self.must("Traceback" not in daemon.log, f"{daemon.log.count('Traceback')} tracebacks in the log")
        self.must(not (wrong := daemon.right()), f"afterwards: {wrong}")


def lasting(looks: Sequence[Mapping[int, str]]) -> set[tuple[int, str]]:
    """Return the descriptors that were open in every look, each with its target.

    A target names a socket or pipe by a number of its own, so a descriptor that is used again is another.
    """
    return set.intersection(*(set(look.items()) for look in looks))


def _files(before: Size, now: Size) -> set[str]:
    """Files that were not there, but for both files of the verdict and those of the state."""
    return {one for one in now.files - before.files - VERDICTS if not one.startswith("state/")}


def _more(before: Size, now: Size) -> bool:
    """Whether something is there that was not; a worker of a probe comes and goes."""
    return now.children != before.children or bool(_files(before, now))


@dataclass(frozen=True, slots=True)
class Attack:
    """`about`: what is done, for the page. `short`: CI runs it too, in a shorter form."""

    name: str
    about: str
    work: Callable[[Siege], None]
    short: bool = False


@dataclass(slots=True)
class Book:
    """The attacks of a module."""

    attacks: list[Attack] = field(default_factory=list)

    def attack(self, about: str, *, short: bool = False) -> Callable[[Callable[[Siege], None]], None]:
        """Add a function, by its own name."""

        def add(work: Callable[[Siege], None]) -> None:
            self.attacks.append(Attack(work.__name__.replace("_", "-"), about, work, short))

        return add


def carry_out(attack: Attack, tree: Path, *, short: bool) -> Outcome:
    """Run one attack; an error of any kind is a trouble of it, so that the others go on."""
    outcome = Outcome(attack.name, at=time.strftime("%Y-%m-%d"))
    began = time.monotonic()
    try:
        attack.work(Siege(tree, short, outcome))
    except Exception as error:  # noqa: BLE001 - what breaks one attack is its result
        text = str(error) or type(error).__name__
        outcome.troubles.append(f"{type(error).__name__}: {text[:600]}" if text else type(error).__name__)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def every(books: Sequence[Book]) -> dict[str, Attack]:
    return {attack.name: attack for book in books for attack in book.attacks}
