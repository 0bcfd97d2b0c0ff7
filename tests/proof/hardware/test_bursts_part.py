"""The sums of the kit's part `bursts`: what passes, and what fails."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proof.hardware.bursts import LOOKS, SIZES, Look, Seen, TimedCase, judge
from proof.hardware.kit import Report

RATE = 290e9
PERIOD = 20e-3


def case(size: int, launch: str) -> TimedCase:
    """On two GPUs an all-reduce's busbw is its bytes over its time."""
    return TimedCase(launch, size, 2, 100.0, 104.0, 200, PERIOD, size / RATE)


def looks(one: TimedCase) -> list[Look]:
    long = one.seconds >= 3e-3
    look = Look(0, 101.0, 101.3, 270, 0.97 * RATE, long, one.seconds / PERIOD, PERIOD, 0.25, 0.004)
    return [look] * LOOKS


def good() -> Seen:
    cases = [case(size, launch) for size in SIZES for launch in ("eager", "graph")]
    return Seen(cases, {number: looks(one) for number, one in enumerate(cases)})


def failing(folder: Path, seen: Seen) -> set[str]:
    report = Report("bursts", folder)
    judge(report, seen)
    return {check["name"] for check in report.checks if not check["ok"]}


def test_what_agrees_with_the_events_passes(tmp_path: Path) -> None:
    assert failing(tmp_path, good()) == set()


def test_nothing_measured_passes_no_limit(tmp_path: Path) -> None:
    assert failing(tmp_path, Seen()) == {"every case", "a look each 60 s costs at most 0.5% of a core"}


CHANGES: dict[str, tuple[int, Callable[[Look], Look]]] = {
    "2048 MiB eager: the plateau of every look within 10%": (
        4,
        lambda one: replace(one, plateau=0.88 * RATE),
    ),
    "4096 MiB graph: the plateau of every look within 10%": (7, lambda one: replace(one, plateau=None)),
    "4096 MiB eager: the step's period within 3%": (6, lambda one: replace(one, period=2 * PERIOD)),
    "1024 MiB graph: the step's period within 3%": (3, lambda one: replace(one, period=None)),
    "1024 MiB eager: duty within 10%": (2, lambda one: replace(one, duty=0.5)),
    "2048 MiB graph: looks are of its steps": (5, lambda one: replace(one, ended=104.5)),
    "512 MiB eager (1.85 ms): at most a lower bound": (0, lambda one: replace(one, plateau=1.2 * RATE)),
    "512 MiB graph (1.85 ms): at most a lower bound": (1, lambda one: replace(one, long=True)),
    "a look each 60 s costs at most 0.5% of a core": (0, lambda one: replace(one, cpu=0.31)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_limit_fails_by_itself(tmp_path: Path, name: str) -> None:
    number, change = CHANGES[name]
    seen = good()
    seen.looks[number] = [change(one) for one in seen.looks[number]]
    assert failing(tmp_path, seen) == {name}


def test_one_look_off_of_many_fails_the_plateau_and_not_the_medians(tmp_path: Path) -> None:
    seen = good()
    seen.looks[4] = [replace(seen.looks[4][0], plateau=0.8 * RATE), *seen.looks[4][1:]]
    assert failing(tmp_path, seen) == {"2048 MiB eager: the plateau of every look within 10%"}


def test_too_few_looks_fail(tmp_path: Path) -> None:
    seen = good()
    seen.looks[6] = seen.looks[6][:3]
    assert "4096 MiB eager: looks are of its steps" in failing(tmp_path, seen)
