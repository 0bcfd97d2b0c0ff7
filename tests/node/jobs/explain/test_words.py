"""Numbers of a job as people read them."""

from tests.node.jobs.explain.drawn import evidence, job, row
from tests.rows import each
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.explain.words import gpu_name, operation, rate


@each(
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


def test_a_rate_has_a_decimal_below_a_hundred() -> None:
    none = Absent(Why.MISSING, "not read")
    assert [rate(value) for value in (99.9e9, 100e9, 340.4e9, none)] == [
        "99.9 GB/s", "100 GB/s", "340 GB/s", "-",
    ]  # fmt: skip


def test_a_gpu_is_named_by_its_number_or_else_by_its_uuid() -> None:
    none = Absent(Why.MISSING, "no GPU is named")
    named = [gpu_name("2", "GPU-2"), gpu_name("", "GPU-2"), gpu_name("", none)]
    assert named == ["GPU 2", "GPU-2", "a GPU that is not known"]
