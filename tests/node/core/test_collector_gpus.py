"""Folding readings that come one GPU at a time."""

from hypothesis import given
from hypothesis import strategies as st

from wirewatch.core.collector import GpuMemory, GpuReading, fold_gpus, remembered, subject, unread
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Finding, Health, Subject, Why

GPUS = tuple(Gpu(n, f"GPU-{n}") for n in range(4))
LOST = Absent(Why.LOST, "fallen off the bus", 15)
HUNG = Absent(Why.TIMEOUT, "NVML did not answer")

Memories = dict[str, GpuMemory[int]]


def _judge(seen: int, gpu: Gpu, errors: int) -> tuple[int, tuple[Finding, ...]]:
    """Remembers the sum of all errors; any error of now is a finding."""
    found = Finding("links.errors", Health.DEGRADED, subject(gpu), f"{errors} errors", "watch")
    return seen + errors, (found,) if errors else ()


def _fold(
    memories: Memories, *values: tuple[Gpu, int | Absent]
) -> tuple[Memories, dict[tuple[str, str], Finding]]:
    new, findings = fold_gpus("links", memories, [GpuReading(g, v) for g, v in values], 0, _judge)
    by_part = {(f.rule, f.subject.gpu): f for f in findings}
    assert len(by_part) == len(findings), "a finding was told twice"
    return new, by_part


def test_every_gpu_has_its_own_memory() -> None:
    memories, _ = _fold({}, (GPUS[0], 1), (GPUS[1], 20))
    memories, _ = _fold(memories, (GPUS[0], 2), (GPUS[1], 0))
    assert [remembered(memories, g, 0) for g in GPUS[:3]] == [3, 20, 0]


def test_a_gpu_that_cannot_be_read_is_blind_and_no_other_is() -> None:
    _, found = _fold({}, (GPUS[0], 0), (GPUS[1], HUNG), (GPUS[2], 5))
    assert set(found) == {("links.blind", "1"), ("links.errors", "2")}
    blind = found["links.blind", "1"]
    assert blind.health is Health.UNKNOWN
    assert blind.subject.uuid == "GPU-1"
    assert "NVML did not answer" in blind.evidence


def test_a_gpu_that_cannot_be_read_keeps_its_memory_and_what_was_wrong() -> None:
    memories, _ = _fold({}, (GPUS[0], 5))
    for _ in range(3):
        memories, found = _fold(memories, (GPUS[0], LOST))
        assert set(found) == {("links.errors", "0"), ("links.blind", "0")}
    assert remembered(memories, GPUS[0], 0) == 5


def test_a_gpu_that_is_read_again_is_judged_by_what_it_says_now() -> None:
    memories, _ = _fold({}, (GPUS[0], 5))
    memories, _ = _fold(memories, (GPUS[0], LOST))
    _, found = _fold(memories, (GPUS[0], 0))
    assert found == {}


def test_a_gpu_that_is_not_listed_any_more_keeps_its_findings_and_is_blind() -> None:
    memories, _ = _fold({}, (GPUS[0], 0), (GPUS[1], 5))
    for _ in range(3):
        memories, found = _fold(memories, (GPUS[0], 0))
        assert set(found) == {("links.errors", "1"), ("links.blind", "1")}
        assert found["links.blind", "1"].subject == Subject(gpu="1", uuid="GPU-1")


def test_a_gpu_that_comes_back_under_another_number_is_the_same_gpu() -> None:
    memories, _ = _fold({}, (GPUS[0], 1), (GPUS[1], 5))
    moved = Gpu(0, "GPU-1")
    memories, found = _fold(memories, (moved, 2), (Gpu(1, "GPU-0"), 0))
    assert remembered(memories, moved, 0) == 7
    assert set(found) == {("links.errors", "0")}


POLLS = st.lists(
    st.dictionaries(st.sampled_from(GPUS), st.one_of(st.integers(0, 3), st.just(LOST)), max_size=4),
    min_size=1,
    max_size=6,
)


@given(POLLS)
def test_one_bad_gpu_never_changes_what_is_said_of_the_others(polls: list[dict[Gpu, int | Absent]]) -> None:
    memories: Memories = {}
    alone: Memories = {}
    for values in polls:
        memories, found = _fold(memories, (GPUS[0], 1), *((g, v) for g, v in values.items() if g.index))
        alone, single = _fold(alone, (GPUS[0], 1))
        assert {k: f for k, f in found.items() if k[1] == "0"} == single
        assert memories["GPU-0"] == alone["GPU-0"]


@given(POLLS)
def test_no_gpu_is_ever_forgotten(polls: list[dict[Gpu, int | Absent]]) -> None:
    memories: Memories = {}
    known: set[str] = set()
    for values in polls:
        memories, found = _fold(memories, *values.items())
        known |= {g.key for g in values}
        assert set(memories) == known
        blind = {f.subject.uuid for (rule, _), f in found.items() if rule == "links.blind"}
        assert blind == known - {g.key for g, v in values.items() if not isinstance(v, Absent)}


def test_values_that_should_be_there_and_are_not_are_one_blind_finding() -> None:
    values = dict.fromkeys(("power", "energy", "clock", "fan", "heat"), HUNG) | {"name": "H200"}
    (finding,) = unread("gpu", GPUS[2], values)
    assert (finding.rule, finding.health, finding.subject.gpu) == ("gpu.blind", Health.UNKNOWN, "2")
    assert "power, energy, clock and 2 more" in finding.evidence
    assert "NVML did not answer" in finding.evidence


def test_values_that_a_device_does_not_support_are_no_news() -> None:
    assert unread("gpu", GPUS[0], {"fan": Absent(Why.UNSUPPORTED), "power": 70}) == ()


def test_a_gpu_that_gives_its_uuid_only_later_is_not_blind_for_ever() -> None:
    """The agent starts while GPU 3 hangs: it is known by its index until it answers."""
    nameless, named = Gpu(3, "", absent=HUNG), Gpu(3, "GPU-3")
    memories, _ = _fold({}, (GPUS[0], 0), (nameless, HUNG))
    memories, found = _fold(memories, (GPUS[0], 0), (named, 0))
    assert found == {}
