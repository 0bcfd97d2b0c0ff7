"""Numbers of a job as people read them."""

import pytest

from tests.node.jobs.explain.drawn import evidence, job, row
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.explain.words import operation


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "a size not known"), (1, "1 B"), (1023, "1023 B"), (8192, "8 KiB"), (8200, "8.0 KiB"),
        (26214400, "25 MiB"), (98765432, "94.2 MiB"), (1 << 30, "1 GiB"), ((3 << 30) // 2, "1.5 GiB"),
        (5_000_000_001, "4.7 GiB"),
    ],
)  # fmt: skip
def test_a_message_has_the_size_that_a_person_reads(size: int, text: str) -> None:
    assert operation("all_reduce", size) == f"all_reduce of {text}"


def test_elements_without_a_type_have_no_speed_and_are_not_small() -> None:
    """NCCL does not name bytes: their size is not known, and not 0."""
    unknown = Absent(Why.MISSING, "NCCL does not name the type of its elements")
    unsized = row(size_bytes=0, bytes=0, busbw=unknown, best=unknown, expected=unknown)
    assert not unsized.small
    sentence = decide(evidence(job(unsized))).sentence
    assert "the collectives run at a speed that is not known, since NCCL does not name" in sentence
