"""What many lines of a log are one incident, and what is another one."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from wirewatch.core.kernellog import PAUSE, Incidents

PROCESSES = st.sampled_from(["", "11", "12", "13"])


def seen(*lines: tuple[str, float]) -> Incidents:
    incidents = Incidents()
    for process, seconds in lines:
        incidents = incidents.see(process, seconds)
    return incidents


def test_a_dozen_lines_within_a_millisecond_are_one_incident() -> None:
    told = seen(*(("11", 5.0 + n * 1e-4) for n in range(12)))
    assert (told.count, told.lines) == (1, 12)


def test_lines_without_a_process_belong_to_what_is_going_on() -> None:
    assert seen(("", 5.0), ("11", 5.1), ("", 5.2), ("11", 5.3)).count == 1
    assert seen(("11", 5.0), ("12", 5.1), ("", 5.2), ("11", 5.3), ("12", 5.4)).count == 2


def test_another_process_is_another_incident_and_so_is_the_same_one_after_a_pause() -> None:
    assert seen(("11", 5.0), ("12", 5.1), ("11", 5.2)).count == 2
    assert seen(("11", 5.0), ("11", 5.0 + PAUSE), ("11", 5.5 + 2 * PAUSE)).count == 2


@given(st.lists(st.tuples(PROCESSES, st.floats(0, PAUSE)), min_size=1, max_size=60))
def test_without_a_pause_there_are_never_more_incidents_than_processes(
    lines: list[tuple[str, float]],
) -> None:
    times = [PAUSE * 0.9 / len(lines) * n for n in range(len(lines))]
    told = seen(*((process, at) for (process, _), at in zip(lines, times, strict=True)))
    assert told.count == max(1, len({process for process, _ in lines} - {""}))
    assert told.lines == len(lines)


@given(st.lists(st.tuples(PROCESSES, st.floats(PAUSE * 1.01, 1e5)), min_size=1, max_size=40))
def test_after_a_pause_each_line_is_an_incident(lines: list[tuple[str, float]]) -> None:
    times = accumulate(gap for _, gap in lines)
    assert seen(*((process, at) for (process, _), at in zip(lines, times, strict=True))).count == len(lines)
