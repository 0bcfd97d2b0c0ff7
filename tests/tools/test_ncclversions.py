"""The table of NCCL's versions, and the code that goes by it."""

import re
import tomllib
from typing import Any

import pytest

from tests.rows import each
from tools import ncclversions
from tools.ncclversions import LARGE, NOT, number
from tools.prose import ROOT

RESULTS = ncclversions.results()
MIXTURES = {"plain", "broadcasts", "uneven", "sends", "other", "graph"}


def trial(**more: Any) -> dict[str, Any]:
    row = {
        "how": "each call",
        "calls_between": "plain",
        "after": [],
        "calls": 9,
        "timed": 4,
        "right": 4,
        "wrong": 0,
    }
    return {"ends": True, **row, **more}


def test_the_tap_times_no_version_whose_trial_is_missing_or_failed() -> None:
    assert ncclversions.timed()
    for version in ncclversions.timed():
        trials = RESULTS[version]["tap"]
        assert {row["calls_between"] for row in trials} == MIXTURES
        assert all(row["ends"] and not row["wrong"] for row in trials), version
        assert all(row["right"] for row in trials if row["calls_between"] != "graph")


def test_the_extra_brings_no_nccl_whose_probe_was_not_measured() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    newest = max((one for one, found in RESULTS.items() if found["bandwidth"]), key=number)
    for extra in ("nccl", "nccl-cuda12"):
        (bound,) = [one for one in project["optional-dependencies"][extra] if one.startswith("nvidia-nccl")]
        assert re.fullmatch(r"nvidia-nccl-cu1[23]>=2\.28\.9,<=(.*)", bound)[1] == newest  # type: ignore[index]


@each(
    ("one", "cell"),
    [
        ({}, f"counts; {NOT}"),
        ({"tap": [trial()]}, "counts; 4 of 4 times right"),
        ({"tap": [trial(wrong=1)]}, "counts; 4 of 5 times right"),
        ({"tap": [trial(ends=False)]}, "counts; 4 of 4 times right; a job with plain did not end"),
        ({"failures": [{"what": "", "how": "ended by SIGSEGV"}]}, "counts; ended by SIGSEGV"),
    ],
)
def test_a_cell_of_the_tap_says_what_its_trial_showed(one: dict[str, Any], cell: str) -> None:
    assert ncclversions.tap("2.99.1", one) == cell


def test_a_cell_of_the_probe_says_how_far_it_is_off_and_needs_the_large_size() -> None:
    row = {"op": "all_reduce", "bytes": LARGE, "nccl_tests": 100, "probe": 98, "wrong": 0}
    told = "1 primitives, at most 2.0 % off, 0 values wrong (2 GPUs)"
    assert ncclversions.probe({"cards": "2 GPUs", "bandwidth": [row]}) == told
    assert ncclversions.probe({"cards": "2 GPUs", "bandwidth": [{**row, "bytes": 1}]}) == NOT


def test_a_version_without_results_is_not_measured() -> None:
    (line,) = [one for one in ncclversions.page({}).splitlines() if one.startswith("| 2.27.5 ")]
    assert [cell.strip() for cell in line.split("|")[2:-1]] == [NOT, f"counts; {NOT}", NOT, NOT, NOT]


@pytest.mark.parametrize(("ends", "how"), [(True, "ended"), (False, "**did not end**")])
def test_a_job_with_the_tap_as_installed_ends_or_not(*, ends: bool, how: str) -> None:
    found = {"ends": ends, "calls": 432, "timed": 30, "wrong": 1}
    assert ncclversions.installed({"installed": found}) == f"{how}; 30 of 432 calls timed, 1 wrong"


def test_a_version_that_is_counted_was_never_timed_as_installed() -> None:
    counted = {name: one for name, one in RESULTS.items() if name not in ncclversions.timed()}
    shown = [one["installed"] for one in counted.values() if "installed" in one]
    assert len(shown) >= 4
    assert all(one["ends"] and not one["timed"] and one["enqueued"] > 0 for one in shown)
