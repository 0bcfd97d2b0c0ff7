"""The page is made once for a state, a second and a choice, and anew when one of them is another."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from wirewatch.server import api
from wirewatch.server.api import PageCache


@dataclass(frozen=True)
class Daemon:
    """The status of a daemon at a time."""

    at: float


@pytest.mark.parametrize(
    ("at", "refresh", "other", "made"),
    [
        (10.9, "off", False, 1), (11.0, "off", False, 2), (10.9, "5", False, 2), (10.9, "off", True, 2),
    ],
)  # fmt: skip
def test_a_page_is_made_once(
    monkeypatch: pytest.MonkeyPatch, *, at: float, refresh: str, other: bool, made: int
) -> None:
    pages: list[Any] = []
    states, moments = [object(), object()], [Daemon(10.0), Daemon(at)]
    now = [0]

    def rendered(*given: Any) -> int:
        pages.append(given)
        return len(pages)

    async def scenario() -> list[Any]:
        view: Any = SimpleNamespace(
            node=lambda: states[now[0] if other else 0], daemon=lambda: moments[now[0]]
        )
        cache = PageCache(view)
        first = await cache.get("off")
        now[0] = 1
        return [first, await cache.get(refresh)]

    monkeypatch.setattr(api, "rendered", rendered)
    assert asyncio.run(scenario()) == [1, made]
    assert len(pages) == made
