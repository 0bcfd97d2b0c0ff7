"""`status`, `explain` and `top` play a recording in one way: they answer alike about each bundled one."""

import json
import re
from collections.abc import Sequence

import pytest

from tests.processes import run_wirewatch
from wirewatch.hw.recording import bundled_names

NO_JOB = 64
QUIET = frozenset({"repaired", "suppressed"})
DEMO = "demo-dgx-h200"
FAULTS = ("nvlink-link-down", "job-hang-stopped", "gpu-busy")
PLAYS = [(name, ()) for name in bundled_names()] + [(DEMO, ("--overlay", fault)) for fault in FAULTS]


@pytest.mark.parametrize(("recording", "overlay"), PLAYS)
def test_three_commands_give_one_answer_about_a_recording(recording: str, overlay: Sequence[str]) -> None:
    words = ("--replay", recording, *overlay)
    node = json.loads(run_wirewatch("status", *words, "--json").stdout)
    jobs = [(one["job"], one["wall"]) for one in node["jobs"]]

    for job, wall in jobs:
        answer = json.loads(run_wirewatch("explain", job, *words, "--json").stdout)
        assert (answer["name"], answer["answer"]["wall"]) == (job, wall)
        assert answer["source"] == node["source"]
    if not jobs:
        assert run_wirewatch("explain", *words).returncode == NO_JOB

    title, *lines = run_wirewatch("top", *words, "--once").stdout.splitlines()
    counted = [len(jobs), sum(one["stage"] not in QUIET for one in node["findings"])]
    assert title.startswith(f"wirewatch, {node['source']}: {node['health'].upper()}, ")
    assert ("no job may start" not in title) is node["job_ready"]
    assert [int(number) for number in re.findall(r"(\d+) (?:job|finding)", title)] == counted
    shown = [" ".join(line.split()) for line in lines]
    for one in node["findings"]:
        assert any(line.startswith(f"{one['health'].upper()} {one['rule']} ") for line in shown)
    for job, wall in jobs:
        assert any(line.startswith(f"{job} ") and line.endswith(f" {wall}") for line in shown)
