"""Writes docs/simulation.md and docs/simulation.svg: `make simulation`, some three minutes of one core."""

from tests.simulation.healthy import healthy
from tests.simulation.page import page
from tests.simulation.picture import draw
from tests.simulation.results import results
from tests.tools.pages import DOCS

if __name__ == "__main__":
    told = results(healthy())
    draw(told, DOCS / "simulation.svg")
    (DOCS / "simulation.md").write_text(page(told), "utf-8")
