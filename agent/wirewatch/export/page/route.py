"""The page over HTTP: made off the event loop, one at a time, and once for all who ask within a second."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import FastAPI, Response

from wirewatch.export.documents import Daemon
from wirewatch.export.page.build import page
from wirewatch.export.page.html import Made, choice, render
from wirewatch.export.page.told import Place, told
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.node import Judged


@dataclass(frozen=True, slots=True)
class About:
    """What does not change while the daemon runs; `source` is live, replay or synthetic."""

    source: str
    policy: VerdictPolicy = field(default_factory=VerdictPolicy)
    place: Place = field(default_factory=Place)


def make(judged: Judged, daemon: Daemon, about: About, refresh: str) -> Made:
    """The page of a state at a time; `refresh` as the address has it."""
    return render(page(told(judged, daemon, about.source, about.policy, about.place)), refresh)


class Pages:
    """Makes pages in a thread: milliseconds in which /livez and /metrics are to be answered too.

    Args:
        node: the published state.
        daemon: what the daemon says of itself now.
        about: the rest.
    """

    def __init__(self, node: Callable[[], Judged], daemon: Callable[[], Daemon], about: About) -> None:
        self._node = node
        self._daemon = daemon
        self._about = about
        self._one = asyncio.Lock()
        self._last: tuple[Judged, int, str, Made] | None = None

    async def get(self, refresh: str) -> Made:
        """The page now; ages are in whole seconds, so that one made in this second is as good."""
        chosen = choice(refresh)
        async with self._one:
            judged, daemon = self._node(), self._daemon()
            second, last = int(daemon.at), self._last
            if last is not None and last[0] is judged and last[1:3] == (second, chosen):
                return last[3]
            made = await asyncio.to_thread(make, judged, daemon, self._about, chosen)
            self._last = (judged, second, chosen, made)
            return made


def add_page(app: FastAPI, pages: Pages) -> None:
    """The page at `/`, which is for people and no part of the interface for programs."""

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def status(refresh: str = "") -> Response:
        made = await pages.get(refresh)
        return Response(made.text, headers=dict(made.headers))
