"""Sweeps with real worker processes, to which a job comes."""

from pathlib import Path

import pytest

from tests.groups import dies
from tests.lab.study.sweeps import WorkerNode, measured, small
from wirewatch_lab.study.records import keys


@pytest.mark.parametrize("when", [1, 9, 31])
def test_a_job_ends_it_and_it_goes_on_where_it_was(tmp_path: Path, when: int) -> None:
    """Also where the job comes to a GPU that this configuration does not use."""
    node = WorkerNode(tmp_path)
    node.job = when
    end = node.sweep(small())
    assert (end.how, end.why) == ("gave_way", "a process that is not the probe's came to GPU 3: 4242")
    assert dies(int(node.pid_file.read_text("utf-8")))
    before = measured(node.folder)
    assert when <= len(before) < len(list(keys(small())))
    node.leave()
    assert node.sweep().how == "complete"
    assert measured(node.folder)[: len(before)] == before
    assert sorted(measured(node.folder)) == sorted(keys(small()))
