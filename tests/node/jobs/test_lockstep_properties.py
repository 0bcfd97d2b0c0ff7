"""What holds for every job in lockstep, whatever its GPUs are called and however fast they are."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.jobs.lockstepjobs import LOCKSTEP, LOST, Row, Story, measured, spread_over, use
from wirewatch.jobs.lockstep.model import GpuWindow, LockstepPolicy, WindowReason

SIZES = st.sampled_from([2, 4, 8])
NOISE = st.floats(0.995, 1.005)
SCALES = st.sampled_from([1.0, 2.0, 4.0, 64.0])
"""Powers of two: no sum is rounded another way."""


def noisy(row: Row, noise: list[float]) -> Row:
    return tuple(replace(one, sm=one.sm * n, dram=one.dram * n) for one, n in zip(row, noise, strict=True))


@st.composite
def jobs(draw: st.DrawFn) -> list[Row]:
    """Windows of a job that is healthy at first, and then has a slow GPU or an uneven one, or none."""
    shape, gpus = draw(st.sampled_from(LOCKSTEP)), draw(SIZES)
    how = draw(st.sampled_from(["healthy", "same", "more", "memory"]))
    slow = draw(st.integers(0, gpus - 1))
    later = measured(shape, how, None if how == "healthy" else 1)[1:]
    rows = [spread_over(row, gpus) for row in measured(shape)]
    rows += [spread_over(row, gpus, slow) for row in later * 5]
    return [noisy(row, draw(st.lists(NOISE, min_size=gpus, max_size=gpus))) for row in rows]


def hints_of(rows: list[Row]) -> list[tuple[WindowReason, str | None, str | None]]:
    """Of each window its reason, the slow GPU, and the one with more work."""
    story = Story(len(rows[0])).begin()
    said = []
    for row in rows:
        story.see(row)
        assert story.hint() is None or story.hint() != story.uneven()
        said.append((story.memory.reason, story.hint(), story.uneven()))
    return said


@settings(max_examples=examples(60))
@given(jobs(), st.data())
def test_gpus_in_another_order_get_the_same_answer(rows: list[Row], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(rows[0]))))
    moved = hints_of([tuple(row[i] for i in order) for row in rows])
    back = [(reason, *(gpu and str(order[int(gpu)]) for gpu in gpus)) for reason, *gpus in moved]
    assert back == hints_of(rows)


@settings(max_examples=examples(60))
@given(jobs(), SCALES, SCALES, SCALES, SCALES)
def test_a_faster_machine_gets_the_same_answer(
    rows: list[Row], wires: float, memory: float, clock: float, busy: float
) -> None:
    def faster(one: GpuWindow) -> GpuWindow:
        assert isinstance(one.clock, float | int)
        return replace(
            one, received=one.received * wires, sent=one.sent * wires, dram=one.dram / memory,
            clock=one.clock * clock, sm=one.sm / busy,
        )  # fmt: skip

    assert hints_of([tuple(faster(one) for one in row) for row in rows]) == hints_of(rows)


EVENTS = st.sampled_from(["healthy", "slow 0", "slow 1", "stall", "lost"])


def happens(story: Story, event: str) -> None:
    if event == "lost":
        story.read([LOST, use(measured("memory_bound")[2][1], 101)])
    elif event == "stall":
        story.see(measured("stalls")[0])
    elif event == "healthy":
        story.see(measured("memory_bound")[2])
    else:
        story.see(measured("memory_bound", "same", int(event[-1]))[1])


def in_a_row(events: list[str], misses: int) -> tuple[str, int]:
    """Which GPU the windows named last, and how often in a row, `misses` of nothing in a row ending that."""
    gpu, count, nothing = "", 0, 0
    for event in reversed(events):
        if event in {"stall", "lost"}:
            nothing += 1
        if (
            event == "healthy"
            or nothing >= misses
            or (event.startswith("slow") and gpu not in {"", event[-1]})
        ):
            break
        if event.startswith("slow"):
            gpu, count, nothing = event[-1], count + 1, 0
    return gpu, count


@settings(max_examples=examples(100))
@given(st.lists(EVENTS, min_size=1, max_size=25), st.integers(1, 5), st.integers(1, 3))
def test_a_hint_never_comes_from_fewer_windows_than_confirm_it(
    events: list[str], confirm: int, misses: int
) -> None:
    story = Story(policy=LockstepPolicy(confirm=confirm, misses=misses)).begin()
    for number, event in enumerate(events, 1):
        happens(story, event)
        gpu, count = in_a_row(events[:number], misses)
        assert story.hint() == (gpu if count >= confirm else None)
        if story.memory.hint is not None:
            assert story.memory.hint.windows == count
