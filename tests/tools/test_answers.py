"""docs/answers.md: what every product of the matrix and every input gets is as it stands there."""

import pytest

from proof.rehearsal.page import table
from tests.node.products.plays import FAULTY, HEALTHY, Answer
from tests.node.products.rows import ROWS, Row
from tools.answers import PAGE, head, inputs, line, played, reasons
from tools.prose import formatted
from wirewatch.core.types import Health

STALE = "run `make generated`"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_product_is_never_failed_while_it_is_well_and_never_ok_with_a_part_less(row: Row) -> None:
    text = PAGE.read_text("utf-8")
    cells = played(row)
    well, less = cells[: len(HEALTHY)], cells[len(HEALTHY) :]
    assert all(one.health in {Health.OK, Health.UNKNOWN} for one in well if isinstance(one, Answer))
    assert all(one.health in {Health.UNKNOWN, Health.FAILED} for one in less if isinstance(one, Answer))
    assert all(one.reasons for one in cells if isinstance(one, Answer) and one.health is not Health.OK)
    assert all(cells)
    for heads, told in zip((head(HEALTHY), head(FAULTY)), line(row, cells), strict=True):
        assert formatted(table(heads, [told])).splitlines()[-1] in text, STALE
    words = " ".join(text.split())
    assert all(" ".join(formatted(f"- {reason}").split()) in words for reason in reasons(cells)), STALE


def test_a_node_that_is_as_listed_or_whole_again_is_ok() -> None:
    """By the page, which the test above holds."""
    text = PAGE.read_text("utf-8").split("## Products with")[0]
    lines = [one.split(" | ") for one in text.splitlines() if one.startswith("| `")]
    assert len(lines) == len(ROWS)
    for cells in lines:
        told = dict(zip(head(HEALTHY), cells, strict=True))
        assert {told["as listed"], told["started"]} == {"OK"}
        assert told["MIG off"] in {"OK", "has no MIG"}
        assert told["given back"].removesuffix(" |") in {"OK", "is in one"}


def test_the_inputs_of_the_tests_are_there_each_with_its_source() -> None:
    text = PAGE.read_text("utf-8")
    for part in inputs().values():
        assert formatted(part).strip() in text, STALE
        assert not any(" |  | " in one for one in part.splitlines())
