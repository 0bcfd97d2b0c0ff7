"""The status page in a real browser: nothing but the page is asked for, and it needs no JavaScript."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.node.collectors.test_overlays import DEMO
from tests.node.daemon.process import Daemon
from tests.node.page.pages import Strict, html_of
from tests.node.page.states import STATES, state
from tests.system.browser import Size, Visit, chromium, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.system

SHOWN = (
    "healthy",
    "degraded",
    "silent",
    "straggler",
    "gpu-lost",
    "drifted",
    "many",
    "first-seconds",
    "one-gpu",
)
LOOKED_AT = ("healthy", "silent", "straggler", "drifted", "first-seconds")
"""By axe, which takes its time."""
Scheme = Literal["light", "dark"]
PHONE, DESK = (360, 740), (1280, 900)
LIGHT, DARK = "rgb(247, 247, 245)", "rgb(18, 19, 21)"


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served({name: lambda name=name: state(name) for name in STATES}) as url:  # type: ignore[misc]
        yield url


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "dark"), (DESK, "light")], ids=["phone", "desk"])
def test_it_shows_without_script_and_asks_for_nothing_else(
    browser: "Browser", address: str, name: str, size: Size, scheme: Scheme
) -> None:
    with Visit(browser, size=size, scheme=scheme) as visit:
        visit.page.goto(f"{address}/{name}", wait_until="networkidle")
        assert {url for url in visit.asked if not url.startswith("data:")} == {f"{address}/{name}"}
        assert visit.complaints == []
        widths = visit.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert widths[0] <= widths[1], "the page scrolls sideways"
        ground = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": LIGHT, "dark": DARK}[scheme]
        word = visit.page.locator("h1").bounding_box()
        assert word is not None
        assert word["y"] + word["height"] < size[1], "the verdict is not in sight"
        assert word["height"] >= 36


@pytest.mark.parametrize("name", STATES)
def test_the_browser_reads_the_elements_that_were_written(
    browser: "Browser", address: str, name: str
) -> None:
    """It repairs nothing: no element is added, dropped or moved."""
    with Visit(browser, size=DESK, scheme="light") as visit:
        visit.page.goto(f"{address}/{name}")
        read = visit.page.evaluate(
            "[...document.querySelectorAll('*')].map(one => one.localName.toLowerCase())"
        )
        assert read == Strict(html_of(state(name))).tags()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", LOOKED_AT)
def test_axe_finds_nothing_wrong(browser: "Browser", address: str, name: str, scheme: Scheme) -> None:
    import axe_playwright_python  # noqa: PLC0415 - `make test` has none

    script = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")
    with Visit(browser, size=DESK, scheme=scheme, script=True) as visit:
        visit.page.goto(f"{address}/{name}")
        visit.page.evaluate(script)
        found = visit.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert found["passes"], "axe looked at nothing"
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]] == []


def test_axe_would_find_what_is_wrong(browser: "Browser", address: str) -> None:
    import axe_playwright_python  # noqa: PLC0415 - `make test` has none

    script = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")
    with Visit(browser, size=DESK, scheme="light", script=True) as visit:
        visit.page.goto(f"{address}/healthy")
        visit.page.evaluate(script)
        visit.page.evaluate("document.querySelector('.verdict').className = 'pale'")
        visit.page.evaluate("document.querySelector('h1').setAttribute('style', 'color: #eee')")
        visit.page.evaluate("document.documentElement.removeAttribute('lang')")
        found = visit.page.evaluate("axe.run()")
        assert "html-has-lang" in {one["id"] for one in found["violations"]}


def test_everything_is_reached_by_keyboard_and_seen_when_it_is(browser: "Browser", address: str) -> None:
    with Visit(browser, size=PHONE, scheme="light") as visit:
        page = visit.page
        page.goto(f"{address}/link-down")
        reached = []
        for _ in range(200):
            page.keyboard.press("Tab")
            told = page.evaluate(
                "(() => { const one = document.activeElement; const style = getComputedStyle(one);"
                "return [one.localName, one.textContent.trim().slice(0, 40), style.outlineStyle] })()"
            )
            if told[0] == "body":
                break
            assert told[2] != "none", told
            reached.append((told[0], told[1]))
        assert reached[0] == ("a", "Skip to the verdict")
        assert [text for _, text in reached[1:5]] == ["5 s", "15 s", "1 min", "paused"]
        assert sum(name == "div" for name, _ in reached) == page.locator(".scroll").count()
        assert sum(name == "summary" for name, _ in reached) == page.locator("summary").count()
        links = page.locator("a").count()
        assert sum(name == "a" for name, _ in reached) == links


def test_wide_tables_scroll_in_their_own_place(browser: "Browser", address: str) -> None:
    with Visit(browser, size=PHONE, scheme="light") as visit:
        visit.page.goto(f"{address}/healthy")
        place = visit.page.locator(".scroll").first
        place.focus()
        for _ in range(8):
            visit.page.keyboard.press("ArrowRight")
        # Scrolling is smooth, and a page without JavaScript waits for no function.
        for _ in range(100):
            if visit.page.evaluate("document.querySelector('.scroll').scrollLeft") > 40:
                break
            visit.page.wait_for_timeout(50)
        assert visit.page.evaluate("document.querySelector('.scroll').scrollLeft") > 40
        assert visit.page.evaluate("window.scrollX") == 0


def test_on_paper_it_has_everything_and_no_buttons(browser: "Browser", address: str) -> None:
    with Visit(browser, size=DESK, scheme="dark") as visit:
        visit.page.goto(f"{address}/link-down")
        visit.page.emulate_media(media="print")
        assert not visit.page.locator(".refresh").is_visible()
        assert visit.page.locator("h1").is_visible()
        assert visit.page.locator("#drawing-words li").first.is_visible()
        assert visit.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"


def test_it_refreshes_by_itself_until_it_is_paused(browser: "Browser", tmp_path: Path) -> None:
    config = '[listen]\nsocket = ""\n'
    with (
        Daemon(("--replay", DEMO), tmp_path, config) as daemon,
        Visit(browser, size=DESK, scheme="light") as visit,
    ):
        daemon.ready()
        page = visit.page
        page.goto(f"{daemon.url}/?refresh=5")
        with page.expect_navigation(timeout=30_000):
            pass
        assert page.url == f"{daemon.url}/?refresh=5"
        page.get_by_role("link", name="paused").click()
        assert page.url == f"{daemon.url}/?refresh=off"
        asked = len(visit.asked)
        page.wait_for_timeout(7000)
        assert len(visit.asked) == asked
        assert re.search(r"paused", page.locator("[aria-current]").inner_text())
        assert visit.complaints == []
        assert {url.partition("?")[0] for url in visit.asked if not url.startswith("data:")} == {
            f"{daemon.url}/"
        }
