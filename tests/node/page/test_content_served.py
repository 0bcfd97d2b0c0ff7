"""The page as a running daemon serves it."""

import asyncio
import base64
import hashlib
import http.client
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.collectors.test_overlays import DEMO
from tests.node.daemon.process import FAST, Daemon
from tests.node.page.pages import Strict
from tests.node.page.states import faulty
from tests.patience import HANGS
from wirewatch.documents.judged import DaemonStatus
from wirewatch.page.html import CHOICES, RenderedPage
from wirewatch.server import api
from wirewatch.server.api import DaemonView, PageCache
from wirewatch.verdict.node import Judged, judge_state


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(("--replay", DEMO), tmp_path_factory.mktemp("daemon")) as running:
        running.ready()
        yield running


def ask(daemon: Daemon, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(daemon.url.removeprefix("http://"), timeout=HANGS)
    try:
        connection.request(method, path)
        reply = connection.getresponse()
        headers = {name.lower(): value for name, value in reply.getheaders()}
        return reply.status, headers, reply.read().decode()
    finally:
        connection.close()


def test_the_page_is_html_that_is_never_cached(daemon: Daemon) -> None:
    status, headers, text = ask(daemon, "/")
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["refresh"] == "15"
    found = Strict(text)
    assert found.all("h1")[0].text == daemon.get("/health").json()["health"].upper()
    assert "Not a real node" in text


def test_the_policy_allows_the_page_s_own_style_and_nothing_else(daemon: Daemon) -> None:
    _, headers, text = ask(daemon, "/")
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'", "style-src": f"'sha256-{digest}'", "img-src": "data:", "base-uri": "'none'",
        "form-action": "'none'", "frame-ancestors": "'none'",
    }  # fmt: skip


def test_the_page_asks_for_nothing_from_elsewhere(daemon: Daemon) -> None:
    text = ask(daemon, "/")[2]
    for one in Strict(text).elements:
        assert one.tag not in {"script", "img", "iframe", "object", "embed", "form", "base"}
        assert not {"src", "srcset", "action", "data", "xlink:href"} & set(one.attributes)
        if one.tag == "link":
            assert one.attributes["href"].startswith("data:image/svg+xml,")
    assert "url(" not in text
    assert "@import" not in text


def test_head_is_as_get_without_the_body(daemon: Daemon) -> None:
    status, headers, text = ask(daemon, "/", "HEAD")
    assert (status, text) == (200, "")
    assert int(headers["content-length"]) > 10_000
    assert headers["content-type"].startswith("text/html")
    assert ask(daemon, "/", "POST")[0] == 405


@pytest.mark.parametrize("choice", [*CHOICES, "", "1", "<b>"])
def test_how_often_it_asks_again_is_chosen_by_the_address(daemon: Daemon, choice: str) -> None:
    _, headers, text = ask(daemon, f"/?refresh={choice.replace('<', '%3C')}")
    expected = choice if choice in CHOICES else "15"
    assert headers.get("refresh", "off") == expected
    found = Strict(text)
    (chosen,) = [one for one in found.all("a") if "aria-current" in one.attributes]
    assert chosen.attributes["href"] == f"?refresh={expected}"


def test_it_is_no_part_of_the_interface_for_programs(daemon: Daemon) -> None:
    assert "/" not in daemon.get("/openapi.json").json()["paths"]
    paths = [one.attributes["href"] for one in Strict(ask(daemon, "/")[2]).all("a")]
    assert {"health", "metrics"} <= {*paths}
    for path in (one for one in paths if not one.startswith(("http", "#", "?"))):
        # Never from the root of the host: the page may be reached below a path, as by an ingress.
        assert not path.startswith("/")
        assert ask(daemon, f"/{path}")[0] in {200, 503}, path


def test_a_fault_leads_into_the_runbook_where_that_is_served(tmp_path: Path) -> None:
    fault = tmp_path / "fault.toml"
    fault.write_text(
        'about = "a link"\n[[change]]\nport = "nvml"\nmatch = "gpu2/Field(165,7)"\nset = 0\n', "utf-8"
    )
    config = f'{FAST}[page]\nrunbook = "https://docs.example.org/runbook.html"\n'
    with Daemon(("--replay", DEMO, "--overlay", str(fault)), tmp_path, config) as running:
        running.wait("/health", '"health":"failed"')
        found = Strict(ask(running, "/")[2])
        assert found.all("h1")[0].text == "FAILED"
        links = {one.attributes["href"] for one in found.all("a")}
        assert "https://docs.example.org/runbook.html#nvlinklink_down" in links
        assert "overlay fault" in found.all("main")[0].text


def test_a_page_is_made_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    node = faulty("", rounds=1)
    here, at = judge_state(node.state), [node.clock.now()]
    made, running = [], threading.Lock()

    def make(judge_state: Judged, daemon: DaemonStatus, status: DaemonView, refresh: str) -> RenderedPage:
        assert running.acquire(blocking=False), "two at a time"
        made.append(refresh)
        page = genuine(judge_state, daemon, status, refresh)
        running.release()
        return page

    genuine = api.rendered
    monkeypatch.setattr(api, "rendered", make)
    well = lambda: True  # noqa: E731
    pages = PageCache(DaemonView(lambda: here, well, well, lambda: at[0], lambda: 0.0, "live"))

    async def ask_for(*choices: str) -> None:
        await asyncio.gather(*(pages.get(choice) for choice in choices))

    asyncio.run(ask_for("15", "15", "", "junk", "off", "off"))
    assert made == ["15", "off"]
    at[0] += 1.0
    asyncio.run(ask_for("off"))
    assert made == ["15", "off", "off"]
