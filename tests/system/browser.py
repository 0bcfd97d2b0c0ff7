"""Debian's Chromium, and the status page of states of tests/node/page, each below its name."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import parse_qs, urlsplit

from wirewatch.page import html
from wirewatch.page.content import PageContent
from wirewatch.page.html import render

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Size = tuple[int, int]
CHROMIUM = Path("/usr/bin/chromium")
OPTIONS = ("--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--font-render-hinting=none")
States = Mapping[str, Callable[[], PageContent]]


class _Pages(BaseHTTPRequestHandler):
    def __init__(self, states: States, *arguments: object) -> None:
        self._states = states
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        name = asked.path.strip("/")
        if name not in self._states:
            self.send_error(404)
            return
        refresh = parse_qs(asked.query).get("refresh", ["off"])[0]
        made = render(html.page(self._states[name]()), refresh)
        self.send_response(200)
        for header, value in made.headers.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(made.text)

    def log_message(self, *_: object) -> None: ...


@contextlib.contextmanager
def served(states: States) -> Iterator[str]:
    """The address below which the states are."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, states)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def chromium() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - `make test` has none

    assert CHROMIUM.exists(), "chromium is missing: tests/system/packages installs it"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=list(OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page that is watched: what it asks for, and what the browser complains of. Sizes in CSS pixels."""

    def __init__(
        self, browser: "Browser", *, size: Size, scheme: Literal["light", "dark"], script: bool = False
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, java_script_enabled=script
        )
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.on("console", lambda one: self.complaints.append(one.text))
        self.page.on("pageerror", lambda one: self.complaints.append(str(one)))
        self.page.on("requestfailed", lambda one: self.complaints.append(f"failed: {one.url}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def at_another_place(told: PageContent, node: str, about: str, source: str) -> PageContent:
    """The same of another node."""
    place = replace(told.place, node=node, about=about, runbook="")
    return replace(told, place=place, state=replace(told.state, source=source))
