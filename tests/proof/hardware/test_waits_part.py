"""The kit's part `waits`: how it judges first lines, and that silence is not right."""

from typing import Any

import pytest

from proof.hardware.waits import CASES, WaitCase, WaitLine, WaitRun, changes, judged, line_of

LATE = WaitCase("late", "ddp", "more {rank} 18", right=(("{gpu}",),))
HEALTHY = WaitCase("healthy", "ddp")


def ran(case: WaitCase) -> WaitRun:
    return WaitRun(case, (2, 3), ready=0.0, ordered=20.0 if case.order else 0.0, ended=60.0)


def line(at: float, wall: str, sentence: str, gpus: tuple[str, ...] = ("2", "3")) -> WaitLine:
    return WaitLine(at, gpus, wall, "medium", sentence)


@pytest.mark.parametrize(
    ("guard", "lines", "first", "false"),
    [
        ("right", [line(30, "late rank", "all wait for GPU 3")], 10.0, 0),
        ("right after it was not known", [line(25, "not known", "?"), line(31, "host", "GPU 3")], 11.0, 0),
        ("another GPU", [line(30, "late rank", "all wait for GPU 2")], None, 1),
        ("a GPU of other jobs", [line(30, "late rank", "all wait for GPU 3", ("0", "1"))], None, 0),
        ("before the order", [line(10, "late rank", "all wait for GPU 3")], None, 1),
        ("denied", [line(55, "nothing", "nobody waits")], None, 1),
        ("denied, but not yet", [line(49, "nothing", "nobody waits")], None, 0),
        ("silence", [], None, 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_line_alone_decides(guard: str, lines: list[WaitLine], first: float | None, false: int) -> None:
    said = judged(ran(LATE), lines)
    assert (said["first_right"], said["false_lines"]) == (first, false), guard


def test_a_healthy_job_is_accused_by_any_wall() -> None:
    said = judged(ran(HEALTHY), [line(30, "host", "Host: nothing runs"), line(31, "nothing", "nobody waits")])
    assert (said["first_right"], said["false_lines"], said["lines"]) == (None, 1, 2)


def test_only_changes_are_kept() -> None:
    same = "Collectives: 1 of 2 ranks wait for "
    lines = [line(1, "late rank", f"{same}{n}") for n in range(3)]
    assert [at for at, *_ in changes([*lines, line(5, "nothing", "none")], 0.0)] == [1, 5]


def test_a_line_has_the_gpus_of_its_job() -> None:
    job: dict[str, Any] = {
        "answer": {"wall": "host", "certainty": "low", "sentence": "Host."},
        "evidence": {"gpus": [{"index": "3"}, {"index": "2"}]},
    }
    assert line_of(7.0, job) == WaitLine(7.0, ("2", "3"), "host", "low", "Host.")


def test_every_case_has_a_name_of_its_own_and_ends() -> None:
    names = [case.name for lane in CASES.values() for case in lane]
    assert len(names) == len(set(names))
    assert all(case.watch >= case.within for lane in CASES.values() for case in lane)
