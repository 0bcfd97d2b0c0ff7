"""Writes proof/simulation/simulation.md and its picture: `make simulation`, three minutes of one core."""

from proof.simulation.healthy import healthy
from proof.simulation.page import PAGE, page
from proof.simulation.picture import draw
from proof.simulation.results import results

if __name__ == "__main__":
    told = results(healthy())
    draw(told, PAGE.with_suffix(".svg"))
    PAGE.write_text(page(told), "utf-8")
