"""Real logs and answers of RAS of each version of NCCL that was tried, read by `parse` and by hangs."""

from pathlib import Path

import pytest

from wirewatch.core.types import Absent
from wirewatch.jobs.ras.answer import parse_ras_json
from wirewatch.nccl.log import parse_nccl_log

RECORDED = Path(__file__).parents[2] / "recorded" / "nccl"
LOGS = sorted(RECORDED.glob("*.log"))
ANSWERS = sorted(RECORDED.glob("*.ras.json"))


def test_there_are_recordings() -> None:
    assert len(LOGS) >= 4
    assert [path.name.removesuffix(".ras.json") for path in ANSWERS] == [path.stem for path in LOGS]


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.name.removesuffix(".ras.json"))
def test_an_answer_of_ras_has_its_version_and_both_ranks(path: Path) -> None:
    report = parse_ras_json(path.read_text("utf-8"))
    assert not isinstance(report, Absent)
    assert report.nccl == path.name.removesuffix(".ras.json")
    (communicator,) = report.communicators
    assert (communicator.size, [rank.rank for rank in communicator.ranks]) == (2, [0, 1])
    assert {rank.counts["all_reduce"] for rank in communicator.ranks} == {10_002}


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_has_its_version_its_ranks_and_its_wire(path: Path) -> None:
    account = parse_nccl_log(path.read_text("utf-8"))
    (comm,) = account.comms
    assert (account.version, account.network, comm.ranks) == (path.stem, "Socket", 2)
    assert {one.transport for one in comm.connections} == {"P2P/CUMEM"}
    assert {(call.op, call.size_bytes) for call in account.calls} == {("all_reduce", 8192)}
