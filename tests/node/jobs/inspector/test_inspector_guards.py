"""What is not known of times without starts stays unknown: joining, windows, GPUs, the answer, recordings."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.node.cli.test_recorder import Stopwatch
from tests.node.hw.recordings import Time, player, recording
from tests.node.jobs.explain.drawn import evidence, job, late, row
from tests.node.jobs.inspector.writing import Folder, InspectedNode, line, process
from tests.node.jobs.ringjobs import AROUND, P2P_OFF, TRAINING, DrawnJob, gaps_of, joined_of, slow
from tests.rows import each
from tests.support import Node
from wirewatch.cli.jobs.explained import page
from wirewatch.core.jobs import RingReading, RingsReading, TimedCollective
from wirewatch.core.types import Absent, Why
from wirewatch.documents.jobs import explain
from wirewatch.jobs.explain.evidence import Certainty, EvidenceSource, Wall
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.inspector.files import InspectorFiles
from wirewatch.jobs.running.grouping import possible, ring_groups, untimed
from wirewatch.jobs.running.join import RankRecords
from wirewatch.jobs.running.model import CommunicatorMemory, JobsPolicy, JobsReading, JoinedCollective
from wirewatch.jobs.running.windows import Shape, roll
from wirewatch.jobs.surroundings import surroundings
from wirewatch.jobs.tap.recorded import RINGS, ReplayRings, record_rings
from wirewatch.jobs.times import TimesDoubt
from wirewatch.verdict.node import judge_state

MIB, BOTH, POLICY = 1 << 20, frozenset({0, 1}), JobsPolicy()
SOURCE = "NCCL Inspector, 2.30, GPU clock"
CALL = TimedCollective(1, "all_reduce", 7, MIB, "", "", "", 0, 1e-3, None, None, 100.0)
RING = replace(DrawnJob(TRAINING).ranks[0].ring, source=SOURCE, on=0.0, period=0.0)


def test_no_gap_is_known_without_starts() -> None:
    """Though the collectives follow each other; and one rank without is enough."""
    known = replace(CALL, started=5.0, stopped=5.5)
    for other in (CALL, replace(known, started=None), replace(known, stopped=None)):
        calls = {("all_reduce", n): {0: known, 1: replace(other, sequence=n)} for n in (7, 8)}
        assert gaps_of(calls, BOTH) == {}
    assert gaps_of({("all_reduce", n): {0: known, 1: known} for n in (7, 8)}, BOTH) != {}


def test_a_collective_waits_for_a_rank_that_is_written_later() -> None:
    memory, none = CommunicatorMemory(), RankRecords(1, ())
    for poll in range(1, 15):
        memory = joined_of(memory, (RankRecords(0, (CALL,) if poll == 1 else ()), none), BOTH, poll, 15)
        assert memory.pending
    memory = joined_of(memory, (RankRecords(0, ()), RankRecords(1, (CALL,))), BOTH, 15, 15)
    assert memory.joined == 1


def window(*moments: float) -> CommunicatorMemory:
    found = tuple(
        JoinedCollective("all_reduce", n, 256 * MIB, "", "", 0, at, {0: 1e-3, 1: 1e-3})
        for n, at in enumerate(moments)
    )
    return CommunicatorMemory(begun=100.0, window=found)


def test_lines_that_were_written_at_once_make_no_window() -> None:
    """Of what time they are is not known, so that no share of it is."""
    coarse, fine = Shape(2, BOTH, coarse=True), Shape(2, BOTH)
    at_once, apart = window(*[104.0] * 8), window(*[101.0] * 4, *[103.5] * 4)
    assert roll(at_once, coarse, 106.0, POLICY).windows == ()
    assert roll(at_once, coarse, 106.0, POLICY).window == at_once.window
    ended = roll(at_once, coarse, 221.0, POLICY)
    assert (ended.windows, ended.window) == ((), ())
    assert len(roll(at_once, fine, 106.0, POLICY).windows) == 1
    assert len(roll(apart, coarse, 106.0, POLICY).windows) == 1


def test_a_communicator_without_a_window_is_not_said_to_be_switched_off() -> None:
    ((group,), _) = ring_groups([RingReading(RING), RingReading(replace(RING, rank=1, name="b"))])
    assert untimed(group) is TimesDoubt.FEW
    busy = replace(RING, counts=replace(RING.counts, enqueued=10**6))
    ((group,), _) = ring_groups([RingReading(busy)])
    assert untimed(group) is TimesDoubt.FEW


def test_the_gpu_of_a_process_is_that_on_which_it_computes_alone() -> None:
    node = Node("h200x8")
    for gpu, pids in ((2, [4000]), (3, [4001, 4002]), (4, [4002])):
        node.change(f"gpu{gpu}/ComputeRunningProcesses()", "set", [{"pid": pid} for pid in pids])
    node.poll(times=2)
    judged = judge_state(node.state)
    found = surroundings(judged.state, judged.verdict, None, {})
    assert not isinstance(found.topology, Absent)
    index = {gpu.uuid: gpu.index for gpu in found.topology.gpus}
    assert {pid: index[gpu] for pid, gpu in found.gpus.items()} == {4000: 2, 4001: 3}


@each(
    ("gpu", "host_pid", "source", "found"),
    [
        (None, 5, SOURCE, "GPU-5"), (None, 6, SOURCE, None), (None, None, SOURCE, "GPU-4"),
        ("GPU-1", 5, SOURCE, "GPU-1"), (None, None, "", None), (None, 5, "", "GPU-5"),
    ],
)  # fmt: skip
def test_a_ring_without_a_gpu_has_that_of_its_process(
    gpu: str | None, host_pid: int | None, source: str, found: str | None
) -> None:
    """Its own number of it counts only where a file is named after this machine."""
    none = Absent(Why.MISSING, "not known")
    ring = replace(RING, gpu=gpu or none, host_pid=host_pid or none, source=source)
    gpus = {0: "GPU-0", 5: "GPU-5", RING.pid: "GPU-4"}
    reading = JobsReading(RingsReading((RingReading(ring),)), around=replace(AROUND, gpus=gpus))
    (one,) = possible(reading)
    assert (one.ring.gpu == found) if found else isinstance(one.ring.gpu, Absent)


def test_what_is_expected_of_some_of_its_gpus_is_not_expected_of_all(tmp_path: Path) -> None:
    node = InspectedNode(tmp_path, P2P_OFF)
    node.around = replace(node.around, gpus=dict(list(node.around.gpus.items())[:3]))
    assert slow(node.poll(20)) == []


def test_an_answer_names_the_source_and_what_it_lacks() -> None:
    answer = decide(evidence(job(late=replace(late(), at_most=True), source=SOURCE)))
    assert (answer.wall, answer.certainty) == (Wall.LATE_RANK, Certainty.LOW)
    assert "which costs at most 12 % of the time" in answer.sentence
    assert any(one.startswith(f"timed by {SOURCE}: without starts") for one in answer.doubts)
    assert decide(evidence(job(late=late()))).certainty is Certainty.MEDIUM


def test_that_no_wall_is_found_is_never_sure_without_starts() -> None:
    healthy = decide(evidence(job(row(), share=0.05)))
    assert (healthy.wall, healthy.certainty) == (Wall.NOTHING, Certainty.HIGH)
    seen = decide(evidence(job(row(), share=0.05, source=SOURCE)))
    assert (seen.wall, seen.certainty) == (Wall.NOTHING, Certainty.MEDIUM)


@pytest.mark.parametrize(("waiting", "nobody"), [(0.029, True), (0.031, False)])
def test_a_rank_that_waits_is_not_called_nobody(waiting: float, *, nobody: bool) -> None:
    answer = decide(evidence(job(row(), share=0.2, waiting=waiting, source=SOURCE)))
    wall = Wall.NOTHING if nobody else Wall.COMPUTING
    assert (answer.wall, answer.certainty) == (wall, Certainty.MEDIUM)
    assert ("nobody waits" in answer.sentence) is nobody


@pytest.mark.parametrize(
    "of", [{"doubt": TimesDoubt.SPARSE}, {"fresh": False}], ids=["one is not judged", "one is not of now"]
)
def test_that_nobody_waits_takes_all_communicators_now(of: dict[str, Any]) -> None:
    made = job(row(), share=0.8, source=SOURCE)
    (comm,) = made.communicators
    assert "nobody waits" in decide(evidence(made)).sentence
    answer = decide(evidence(replace(made, communicators=(comm, replace(comm, **of)))))
    assert (answer.wall, "nobody waits" in answer.sentence) == (Wall.COMPUTING, False)


def test_times_of_a_job_that_stands_still_are_not_of_now() -> None:
    answer = decide(evidence(job(row(), share=0.05, fresh=False)))
    assert answer.wall is Wall.COMPUTING
    assert "GB/s" not in answer.sentence
    bare = decide(evidence(job(row(), share=0.05, fresh=False), missing=[EvidenceSource.LEDGER]))
    assert bare.sentence.startswith(
        "Not known what holds it up: its collectives are not timed, and the time is"
    )


def test_the_page_shows_no_channels_where_none_are_known() -> None:
    made = row(algorithm="", protocol="", channels=0)
    text = "\n".join(page(explain(evidence(job(made, source=SOURCE)), 0.0, "live"), 200))
    assert "channels" not in text
    assert SOURCE in text


def test_a_recording_holds_what_was_read_and_is_played(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    process(folder.proc, 4000)
    told: dict[int, object] = {}
    after: dict[str, int] = {}
    for moment in range(2):
        folder.write(line(folder.clock.now, number=moment))
        folder.clock.mono += 10.0
        taken = record_rings(folder.port, after, 1000.0)
        told[moment] = json.loads(json.dumps(taken.value))
        after = dict(taken.after)
    kept = recording((0.0, 10.0), {RINGS: told})  # type: ignore[dict-item]
    for seconds, numbers in ((10.0, [0, 1]), (25.0, [2])):
        time = Time(seconds)
        found = ReplayRings(player(kept, time, loop=True), Stopwatch(time)).poll({})
        assert not isinstance(found, Absent)
        (one,) = found.rings
        assert [call.sequence for call in one.calls] == numbers
        assert {(call.started, call.stopped, call.channels) for call in one.calls} == {(None, None, 0)}
        assert one.ring.source == SOURCE


def test_a_folder_that_becomes_a_link_while_it_is_read_is_not_followed(tmp_path: Path) -> None:
    class Swapped(InspectorFiles):
        def _read_folder(self, poll, folder, at):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            found = super()._read_folder(poll, folder, at)
            if not at:
                (tmp_path / "in" / "job").rmdir()
                (tmp_path / "in" / "job").symlink_to(tmp_path / "elsewhere")
            return found

    for name in ("in/job", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    path = tmp_path / "elsewhere" / "node1-pid4000.log"
    path.write_bytes(line(tmp_path.stat().st_mtime))
    found = Swapped(tmp_path / "in", host="node1").poll({})
    assert not isinstance(found, Absent)
    assert (found.rings, [one.name for one in found.refused]) == ((), ["job"])
    straight = InspectorFiles(tmp_path, host="node1").poll({})
    assert not isinstance(straight, Absent)
    assert len(straight.rings) == 1
