"""Pages of proof/grafana in Debian's Chromium: a dashboard's panels, and what became of each."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import Error, sync_playwright

from tests.system.browser import CHROMIUM, OPTIONS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE = Path(__file__).parent / "page.html"
WIDTH = 1464
SOON = 240_000
SETTLED = """() => {
  const panels = [...document.querySelectorAll('[data-panel]')];
  return panels.length > 0 && panels.every((one) => one.dataset.state !== 'loading');
}"""
PANELS = """(found) => found.map((one) => ({
  id: Number(one.dataset.panel), state: one.dataset.state, told: one.dataset.told ?? '',
  columns: JSON.parse(one.dataset.columns ?? '[]'),
}))"""


@dataclass(frozen=True)
class Job:
    """A dashboard whose variables have values; `chosen` stands at its top. `picture`: where it is kept."""

    name: str
    board: Mapping[str, Any]
    prometheus: str
    mode: str
    chosen: Mapping[str, str]
    time: Mapping[str, float]
    picture: Path | None = None


@dataclass(frozen=True)
class Drawn:
    """`state`: ok, nodata, error, unsupported or crash; `told`: why. `columns` of a table."""

    state: str
    told: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """Panels by id, and what the browser complained of."""

    panels: Mapping[int, Drawn]
    complaints: tuple[str, ...]


def draw(jobs: Sequence[Job]) -> dict[str, Page]:
    """All of them, by name."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*OPTIONS, "--allow-file-access-from-files"]
        )
        try:
            return {job.name: _drawn(browser, job) for job in jobs}
        finally:
            browser.close()


def _drawn(browser: "Browser", job: Job) -> Page:
    complaints: list[str] = []
    tab = browser.new_page(viewport={"width": WIDTH, "height": 900})
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    page = {
        "board": job.board, "prometheus": job.prometheus, "mode": job.mode, "chosen": job.chosen,
        "time": job.time,
    }  # fmt: skip
    tab.add_init_script(f"window.PAGE = {json.dumps(page)};")
    tab.goto(PAGE.as_uri(), timeout=SOON)
    try:
        tab.wait_for_function(SETTLED, timeout=SOON)
    except Error as error:
        complaints.append(str(error))
    height = tab.evaluate("() => document.querySelector('.board')?.scrollHeight ?? 900") + 12
    # Tables draw only what is in view.
    tab.set_viewport_size({"width": WIDTH, "height": height})
    tab.wait_for_timeout(800)
    if job.picture is not None:
        tab.screenshot(path=job.picture)
    panels = dict(_panels(tab.eval_on_selector_all("[data-panel]", PANELS)))
    tab.close()
    return Page(panels, tuple(complaints))


def _panels(told: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Drawn]]:
    for one in told:
        yield one["id"], Drawn(one["state"], one["told"], tuple(one["columns"]))
