"""No page shows a figure that nothing stands behind."""

import pytest

from tests.rows import each
from tools import figures

README = "README.md"
PAGE = "docs/demo.md"


def test_each_figure_of_readme_and_of_a_first_paragraph_is_of_the_ledger_or_allowed() -> None:
    found = [one for name, text in figures.pages() for one in figures.loose(name, text)]
    assert found == [], "link it to proof/claims/claims.md, or see proof/claims/README.md"


def test_what_is_allowed_is_still_there() -> None:
    assert list(figures.unused()) == []


@each(
    "figure",
    ["20 of 20", "0.44 %", "99.5%", "1,234 GB/s", "-3", "12 ms", "3 times", "two minutes", "half a second",
     "ten percent", "35 MiB", "128"],
)  # fmt: skip
@each("name", [README, PAGE])
def test_a_made_up_figure_is_found(name: str, figure: str) -> None:
    assert list(figures.loose(name, f"# Title\n\nIt takes {figure} here.\n"))


@pytest.mark.parametrize(
    "place", ["| a | named in 19 of 20 |", "$ make run  # takes 19 s", "[19 s](other.md#x)"]
)
def test_a_made_up_figure_is_found_in_a_table_a_comment_and_another_link(place: str) -> None:
    text = f"Words.\n\n```console\n{place}\n```\n" if place.startswith("$") else place
    assert list(figures.loose(README, text))


def test_real_pages_fail_with_one_figure_more() -> None:
    for name, text in figures.pages():
        first = figures.first_paragraph(text).strip()
        assert list(figures.loose(name, text.replace(first, f"{first} It is 4711 s.", 1))), name


@pytest.mark.parametrize(
    "text",
    [
        "Named in [19 of 20 tries](../proof/claims/claims.md#late-rank).",
        "Eight H200, `sleep 30`, cudaGraph1, ADR 0064, of 2026-11-27, NCCL 2.28.9, Python 3.12.",
        "Words. <!-- 19 of 20 -->\n\nLater: 19 of 20.",
        "[two](2026-11-27-h200.md#after-30-s)",
    ],
)
def test_what_is_no_figure_is_left(text: str) -> None:
    assert list(figures.loose(PAGE, f"# 3 titles\n\n{text}\n")) == []


def test_of_readme_all_paragraphs_are_looked_at() -> None:
    text = "# Title\n\nWords.\n\nLater: 19 of 20.\n"
    assert len(list(figures.loose(README, text))) == 2
    assert list(figures.loose(PAGE, text)) == []
