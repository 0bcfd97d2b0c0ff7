"""Probes that other processes of this node ran, as a running daemon finds them in the history."""

import logging
from dataclasses import dataclass

from wirewatch.core.ports import Clock, Hardware
from wirewatch.core.probing.result import Probed
from wirewatch.core.types import Absent, Expect
from wirewatch.probes.elsewhere import Elsewhere, own_of
from wirewatch.probes.history import History, SetAside
from wirewatch.probes.news import News, Place
from wirewatch.probes.own import Own, unlike
from wirewatch.probes.policy import ProbeOptions
from wirewatch.probes.records import Record
from wirewatch.probes.understood import understood

log = logging.getLogger(__name__)

MOST = 200
"""Probes that are looked at in one turn, the newest; more there are only after days without a daemon."""


@dataclass(frozen=True, slots=True)
class Found:
    """Probes of others with when each ended (monotonic seconds), in their order; the last row looked at."""

    probes: tuple[tuple[Probed, float], ...]
    seen: Place | None


def ended(record: Record, clock: Clock) -> float:
    """When (monotonic seconds) a kept probe ended; Unix time may have been set back since."""
    return clock.mono() - max(0.0, clock.now() - record.at)


class Others:
    """Looks for them; for one thread."""

    def __init__(
        self, history: History, boot_id: str, expect: Expect, prober: Elsewhere | None = None
    ) -> None:
        self._history, self._boot_id, self._expect, self._prober = history, boot_id, expect, prober
        self._said: dict[str, Absent | SetAside | None] = {"set aside": history.set_aside}
        self._unmarked: tuple[Place, ...] = ()

    def look(self, hardware: Hardware, seen: Place | None, options: ProbeOptions) -> Found:
        """Those added after `seen` that are as the daemon's own; None where it is not known what was seen.

        While it cannot be known what an own one would be, nothing is seen: none can run either.
        """
        news = self._history.since(seen, MOST)
        self._say("the history of probes cannot be read", news if isinstance(news, Absent) else None)
        self._say("set aside", self._history.set_aside)
        if isinstance(news, Absent):
            return Found((), seen)
        if not news.rows:
            self._mark(())
            return Found((), news.newest)
        own = own_of(hardware, options, self._expect, self._boot_id, self._prober)
        return Found((), seen) if isinstance(own, Absent) else self._take(news, own, hardware.clock)

    def _take(self, news: News, own: Own, clock: Clock) -> Found:
        probes, places = [], []
        for place, record in news.rows:
            probed = understood(record)
            if probed is None:
                continue
            # What is marked as taken has been looked at, in a turn that came to nothing.
            why = "" if record.by == "taken" else unlike(probed, record.boot_id, own)
            if why:
                log.info("a probe that another process ran does not count here: it ran %s", why)
                continue
            log.info("probe %s taken over from another process", probed.outcome)
            probes.append((probed, ended(record, clock)))
            places.append(place)
        self._mark(tuple(places))
        return Found(tuple(probes), news.newest)

    def _mark(self, places: tuple[Place, ...]) -> None:
        """Note in the history what was taken over, so that the next daemon knows without asking again."""
        places = (*self._unmarked, *places)
        if not places:
            return
        failed = self._history.mark(places)
        self._unmarked = () if failed is None else places
        self._say("which probes were taken over cannot be kept", failed)

    def _say(self, what: str, wrong: Absent | SetAside | None) -> None:
        """What is wrong with the history, a line when it changes."""
        if wrong is not None and wrong != self._said.get(what):
            log.warning("%s: %s", what, wrong)
        self._said[what] = wrong
