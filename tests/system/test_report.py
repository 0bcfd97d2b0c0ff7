"""The report of a sweep in a real browser: complete in itself, in light and dark, on a phone and on paper.

The study is drawn, not measured, and says so.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Literal

import pytest

from tests.lab.study.drawn import Noise, study
from tests.node.page.pages import Strict
from tests.system.browser import Visit, chromium
from wirewatch_lab.study.curve import KnownRates, Study
from wirewatch_lab.study.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.system

Scheme = Literal["light", "dark"]
PHONE, DESK = (320, 640), (1280, 900)
KNOWN = KnownRates("all_reduce", 4, 478e9, tuple((16 << 20 << n, 300e9) for n in range(9)))
FEW, MANY = 8, 60


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reports")
    for curves in (FEW, MANY):
        drawn = study(Random(curves), Noise(), curves)  # noqa: S311 - noise
        write_report(drawn, made / f"{curves}.html", [KNOWN])
    write_report(Study(0.0, "nothing, by hand", {}, ()), made / "0.html")
    return made


@pytest.mark.parametrize("curves", [0, FEW, MANY])
@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "dark"), (DESK, "light")], ids=["phone", "desk"])
def test_it_asks_for_nothing_and_does_not_scroll_sideways(
    browser: "Browser", folder: Path, curves: int, size: tuple[int, int], scheme: Scheme
) -> None:
    file = (folder / f"{curves}.html").as_uri()
    with Visit(browser, size=size, scheme=scheme) as visit:
        visit.page.goto(file, wait_until="networkidle")
        assert visit.asked == [file]
        assert visit.complaints == []
        visit.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        widths = visit.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert widths[0] <= widths[1]
        plots = visit.page.locator("svg.plot")
        assert plots.count() == 2 * -(-curves // 6)
        for place in range(min(plots.count(), 4)):
            box = plots.nth(place).bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= size[0]
            assert box["width"] >= size[0] * 0.25


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_and_texts_have_the_colours_of_the_scheme(
    browser: "Browser", folder: Path, scheme: Scheme
) -> None:
    with Visit(browser, size=DESK, scheme=scheme) as visit:
        visit.page.goto((folder / f"{FEW}.html").as_uri())
        line = "getComputedStyle(document.querySelector('.plot .stroke-line0')).stroke"
        assert (
            visit.page.evaluate(line) == {"light": "rgb(27, 87, 153)", "dark": "rgb(143, 192, 245)"}[scheme]
        )
        words = "[...document.querySelectorAll('.plot text')].map(one => getComputedStyle(one).fill)"
        soft = {"light": "rgb(89, 94, 102)", "dark": "rgb(164, 169, 176)"}[scheme]
        ink = {"light": "rgb(27, 29, 32)", "dark": "rgb(233, 234, 236)"}[scheme]
        assert set(visit.page.evaluate(words)) == {soft, ink}
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert visit.page.locator("svg.plot").first.is_visible()


def test_the_browser_reads_the_elements_that_were_written(browser: "Browser", folder: Path) -> None:
    file = folder / f"{FEW}.html"
    with Visit(browser, size=DESK, scheme="light") as visit:
        visit.page.goto(file.as_uri())
        read = visit.page.evaluate(
            "[...document.querySelectorAll('*')].map(one => one.localName.toLowerCase())"
        )
        assert read == [tag.lower() for tag in Strict(file.read_text("utf-8")).tags()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("curves", [0, FEW])
def test_axe_finds_nothing_wrong(browser: "Browser", folder: Path, curves: int, scheme: Scheme) -> None:
    import axe_playwright_python  # noqa: PLC0415 - `make test` has none

    script = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")
    with Visit(browser, size=DESK, scheme=scheme, script=True) as visit:
        visit.page.goto((folder / f"{curves}.html").as_uri())
        visit.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        visit.page.evaluate(script)
        found = visit.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert found["passes"], "axe looked at nothing"
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]] == []
