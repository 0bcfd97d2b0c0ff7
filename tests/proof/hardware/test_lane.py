"""Runs of the kit beside each other: which device files a run does not see, and what it is called with."""

import pytest

from proof.hardware.__main__ import options_of, without_gpus
from proof.hardware.lane import hidden

FILES = ["null", "nvidia0", "nvidia1", "nvidia10", "nvidia2", "nvidia-uvm", "nvidiactl", "3"]


def test_the_files_of_all_other_gpus_are_hidden() -> None:
    assert hidden([0, 10], FILES) == ["nvidia1", "nvidia2"]
    assert hidden([0, 1, 2, 10], FILES) == []


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="no /dev/nvidia3 here"):
        hidden([0, 3], FILES)


@pytest.mark.parametrize(
    "arguments",
    [
        ["tap", "--gpus", "0", "1", "--out", "here"],
        ["tap", "--out", "here", "--gpus", "0", "1"],
        ["--gpus", "2", "tap", "--out", "here"],
    ],
)
def test_the_kit_is_called_again_without_the_gpus(arguments: list[str]) -> None:
    assert without_gpus(arguments) == ["tap", "--out", "here"]


def test_what_takes_all_gpus_is_not_run_with_some(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options_of(["tap", "preempt", "--out", "here", "--gpus", "0", "1"])
    assert "preempt: not with --gpus" in capsys.readouterr().err
    assert options_of(["tap", "--out", "here", "--gpus", "0", "1"]).gpus == [0, 1]
