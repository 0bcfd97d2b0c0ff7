"""Writes docs/simulation.md and docs/simulation.svg: `make simulation`, some three minutes of one core."""

from proof.simulation.healthy import healthy
from proof.simulation.page import page
from proof.simulation.picture import draw
from proof.simulation.results import results
from tools.pages import DOCS

if __name__ == "__main__":
    told = results(healthy())
    draw(told, DOCS / "simulation.svg")
    (DOCS / "simulation.md").write_text(page(told), "utf-8")
