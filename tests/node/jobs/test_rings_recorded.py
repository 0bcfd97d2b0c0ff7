"""Rings of jobs, recorded, masked and played."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.cli.test_recorder import Stopwatch, hardware
from tests.node.hw.masks import mask
from tests.node.hw.recordings import Time, one_change, overlay_file, player, recording
from tests.node.jobs.ringfiles import RingWriter, Written, later
from tests.rows import each
from wirewatch.cli.recorder import Recorder
from wirewatch.core.jobs import RefusedRing, Ring, RingCounts, RingReading, RingsReading, RingState
from wirewatch.core.ports import Rings
from wirewatch.core.types import Absent, Why
from wirewatch.hw.files import SystemSysfs
from wirewatch.hw.overlay import Player
from wirewatch.hw.recording import Recording, load_recording
from wirewatch.hw.replay import ReplaySysfs
from wirewatch.jobs.tap import recorded
from wirewatch.jobs.tap.recorded import RINGS, ReplayRings, record_rings, record_settings
from wirewatch.jobs.tap.rings import FileRings
from wirewatch.nccl.settings import settings_of_environ

GPU = "GPU-5d8fa1c2-0000-4000-8000-000000000001"
TIMES = (0.0, 10.0, 20.0, 30.0)
NEW = (3, 0, 2, 4)
"""Records that come by each moment."""
MONO = 5_000.0
"""Monotonic seconds of the machine that is recorded, at the first moment."""


def made(folder: Path) -> Recording:
    """Two ranks that write as many records before each moment, recorded as the recorder does."""
    told: dict[int, object] = {}
    with (
        RingWriter(folder / "a.ring") as zero,
        RingWriter(folder / "b.ring", rank=1) as one,
        closing(FileRings(folder)) as port,
    ):
        after: Mapping[str, int] = {}
        for moment, (seconds, count) in enumerate(zip(TIMES, NEW, strict=True)):
            for ring in (zero, one):
                for _ in range(count):
                    enqueued = int((MONO + seconds) * 1e9)
                    ring.put(replace(later(Written(), ring.written), enqueued=enqueued))
                ring.counter(2, ring.written * 10)
                ring.counter(4, int((MONO + seconds) * 1e9))
                ring.by_function(0, 2, ring.written * 10)
            taken = record_rings(port, after, MONO)
            after = taken.after
            told[moment] = json.loads(json.dumps(taken.value))
    return recording(TIMES, {RINGS: told})  # type: ignore[dict-item]


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return made(tmp_path_factory.mktemp("jobs"))


def read(port: Rings, after: Mapping[str, int] | None = None) -> RingsReading:
    found = port.poll(after or {})
    assert isinstance(found, RingsReading)
    return found


def numbers(one: RingReading) -> list[int]:
    return [call.number for call in one.calls]


def followed(played: Player, time: Time, at: Sequence[float]) -> list[RingReading]:
    """Of the first ring, what each poll finds new."""
    port, last, found = ReplayRings(played, Stopwatch(time)), 0, []
    for seconds in at:
        time.seconds = seconds
        one = read(port, {"a.ring": last}).rings[0]
        last = one.last
        found.append(one)
    return found


def test_each_moment_plays_what_had_come_by_then(taken: Recording) -> None:
    time = Time()
    found = followed(player(taken, time), time, TIMES)
    assert [numbers(one) for one in found] == [[1, 2, 3], [], [4, 5], [6, 7, 8, 9]]
    assert [one.ring.counts.enqueued for one in found] == [30, 30, 50, 90]
    assert found[-1].ring.state is RingState.LIVE


def test_a_poll_that_skips_moments_gets_the_records_of_all(taken: Recording) -> None:
    time = Time(25.0)
    (zero, one) = read(ReplayRings(player(taken, time), Stopwatch(time))).rings
    assert numbers(zero) == numbers(one) == [1, 2, 3, 4, 5]
    assert (zero.ring.rank, one.ring.rank, zero.last) == (0, 1, 5)


def test_a_number_beyond_what_was_written_is_of_a_ring_that_had_this_name_before(taken: Recording) -> None:
    time = Time(25.0)
    (zero, one) = read(ReplayRings(player(taken, time), Stopwatch(time)), {"a.ring": 6, "b.ring": 5}).rings
    assert (numbers(zero), zero.last, numbers(one), one.last) == ([1, 2, 3, 4, 5], 5, [], 5)


def test_what_was_missed_at_a_moment_is_missed_once(taken: Recording) -> None:
    told: dict[int, Any] = {
        number: deepcopy(answer.value) for number, (_, answer) in enumerate(taken.answers[RINGS])
    }
    told[0]["rings"][0] |= {"missed": 2, "implausible": 1}
    time = Time()
    found = followed(player(recording(TIMES, {RINGS: told}), time), time, TIMES)
    assert [(one.missed, one.implausible) for one in found] == [(2, 1), (0, 0), (0, 0), (0, 0)]


@given(
    at=st.lists(st.integers(0, 400).map(lambda n: n / 10), min_size=1, max_size=12).map(sorted),
    loop=st.booleans(),
)
def test_whenever_it_is_polled_each_record_comes_once(
    taken: Recording, at: list[float], *, loop: bool
) -> None:
    time = Time()
    found = followed(player(taken, time, loop=loop), time, [0.0, *at])
    every = [number for one in found for number in numbers(one)]
    assert every == list(range(1, found[-1].last + 1))


def test_a_loop_goes_on_counting(taken: Recording) -> None:
    time = Time()
    found = followed(player(taken, time, loop=True), time, [0.0, 29.0, 31.0, 41.0, 55.0, 61.0])
    assert [numbers(one) for one in found] == [
        [1, 2, 3],
        [4, 5],
        [6, 7, 8, 9],
        [],
        [10, 11],
        [12, 13, 14, 15],
    ]
    counts = [one.ring.counts for one in found]
    assert [one.enqueued for one in counts] == [30, 50, 90, 90, 110, 150]
    assert [one.calls["all_reduce"] for one in counts] == [30, 50, 90, 90, 110, 150]
    sequences = [call.sequence for one in found for call in one.calls]
    assert sequences == sorted(set(sequences))


def test_times_are_those_of_the_play(taken: Recording) -> None:
    """The collector compares the last event with the clock of whoever plays."""
    time = Time(100.0)
    port = ReplayRings(player(taken, time), Stopwatch(time))
    # Played for 100 s, so that the play began at 5,000 of the player's clock.
    (one, _) = read(port).rings
    assert one.ring.counts.event == pytest.approx(5_000.0 + TIMES[-1])
    assert [call.enqueued for call in one.calls] == pytest.approx(
        [5_000.0 + TIMES[moment] for moment, count in enumerate(NEW) for _ in range(count)]
    )
    assert one.calls[0].started == 1e6, "the clock of the GPU is nobody else's"


def test_an_overlay_changes_what_comes_while_it_holds(taken: Recording, tmp_path: Path) -> None:
    line = 'at = "rings/0/calls/*/seconds"\nscale = 2\nfrom = 15\nuntil = 25'
    overlay = one_change(tmp_path, line, match="Rings()", port="rings")
    time = Time(40.0)
    zero, one = read(ReplayRings(player(taken, time, overlay), Stopwatch(time))).rings
    assert [round(call.seconds * 1e3) for call in zero.calls] == [1, 1, 1, 2, 2, 1, 1, 1, 1]
    assert {round(call.seconds * 1e3) for call in one.calls} == {1}


def test_an_overlay_takes_the_folder_away(taken: Recording, tmp_path: Path) -> None:
    overlay = one_change(tmp_path, 'errno = "EACCES"\nfrom = 15', match="Rings()", port="rings")
    time = Time()
    port = ReplayRings(player(taken, time, overlay), Stopwatch(time))
    assert len(read(port).rings) == 2
    time.seconds = 20.0
    found = port.poll({})
    assert isinstance(found, Absent)
    assert found.why is Why.DENIED


def test_an_overlay_makes_rings_where_none_were_recorded(taken: Recording, tmp_path: Path) -> None:
    answer = taken.at(RINGS, 0)
    assert answer is not None
    text = f'[[change]]\nport = "rings"\nmatch = "Rings()"\nset = {_inline(answer.value)}\n'
    time = Time()
    bare = recording(TIMES, {("host", "Hostname()"): {0: "a"}})
    port = ReplayRings(player(bare, time, overlay_file(tmp_path, text)), Stopwatch(time))
    assert numbers(read(port).rings[0]) == [1, 2, 3]
    assert numbers(read(port, {"a.ring": 2}).rings[0]) == [3]


def _inline(value: object) -> str:
    """A value as TOML writes it on one line; what is null is left out."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {_inline(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value)


@each("value", [1, [], {"rings": [{}]}, {"rings": 3}, "text"])
def test_what_is_no_reading_is_malformed(value: object) -> None:
    time = Time()
    port = ReplayRings(player(recording(TIMES, {RINGS: {0: value}}), time), Stopwatch(time))  # type: ignore[dict-item]
    found = port.poll({})
    assert isinstance(found, Absent)
    assert found.why is Why.MALFORMED


def test_a_recording_from_before_has_no_rings() -> None:
    time = Time()
    found = ReplayRings(player(load_recording("h200x8"), time), Stopwatch(time)).poll({})
    assert isinstance(found, Absent)
    assert found.why is Why.MISSING


class Drawn:
    """A port that answers the same reading whatever is asked."""

    def __init__(self, reading: RingsReading | Absent) -> None:
        self.reading = reading
        self.asked: list[Mapping[str, int]] = []

    def poll(self, after: Mapping[str, int]) -> RingsReading | Absent:
        self.asked.append(dict(after))
        return self.reading


RING = Ring(
    "0123456789abcdef.ring", 77, 2, 0, 1, GPU, 4242, 4242, 1007, 1.7e9, RingState.LIVE, RingCounts(written=2),
    "secret-project",
)  # fmt: skip


def test_names_and_users_are_masked_and_processes_stay() -> None:
    other = replace(RING, name="b.ring", uid=0, comm_name="", gpu=Absent(Why.MISSING, "none"))
    again = replace(RING, name="c.ring", uid=2001)
    refused = (RefusedRing("secret-file", Absent(Why.MALFORMED, "secret-file: no")),)
    reading = RingsReading(tuple(RingReading(ring) for ring in (RING, other, again, RING)), refused)
    value = record_rings(Drawn(reading), {}, 0.0).value
    rows = [
        {"moment": 0, "port": "nvml", "question": "gpu0/UUID()", "answer": GPU, "us": 1.0},
        {"moment": 0, "port": "rings", "question": "Rings()", "answer": value, "us": 0.0},
    ]
    uuid, masked = (row["answer"] for row in mask(rows))
    assert "secret" not in json.dumps(masked)
    rings = [one["ring"] for one in masked["rings"]]
    assert [ring["uid"] for ring in rings] == [1000, 0, 1001, 1000]
    assert [ring["pid"] for ring in rings] == [4242] * 4
    assert rings[0]["gpu"] == uuid != GPU
    assert rings[0]["comm_name"] == rings[2]["comm_name"] == rings[3]["comm_name"] != ""
    assert rings[1]["comm_name"] == ""


def test_the_gpu_of_a_ring_is_masked_though_nvml_did_not_name_it() -> None:
    value = record_rings(Drawn(RingsReading((RingReading(RING),))), {}, 0.0).value
    (row,) = mask([{"moment": 0, "port": "rings", "question": "Rings()", "answer": value, "us": 0.0}])
    assert GPU not in json.dumps(row)


def test_of_too_many_records_the_newest_are_kept(taken: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(40.0)
    whole = read(ReplayRings(player(taken, time), Stopwatch(time)))
    monkeypatch.setattr(recorded, "MOST", 8)
    value = record_rings(Drawn(whole), {}, 0.0).value
    assert isinstance(value, Mapping)
    kept = value["rings"]
    assert isinstance(kept, list)
    assert [(len(one["calls"]), one["missed"], one["last"]) for one in kept] == [(4, 5, 9)] * 2


def test_the_recorder_asks_for_what_is_new_and_plays_it(tmp_path: Path) -> None:
    time, jobs = Time(), tmp_path / "jobs"
    jobs.mkdir()
    ports, _ = hardware(load_recording("h200x8"), time, tmp_path)
    with RingWriter(jobs / "a.ring", name="secret") as ring, closing(FileRings(jobs)) as port:
        recorder = Recorder(replace(ports, rings=port))
        ring.put(Written())
        recorder.take()
        time.seconds = 5.0
        ring.put(later(Written(), 1))
        recorder.take()
        recorder.write(tmp_path / "node", "1.2.3")
    loaded = load_recording(str(tmp_path / "node"))
    rows = [answer.value for _, answer in loaded.answers[RINGS]]
    assert [len(row["rings"][0]["calls"]) for row in rows] == [1, 1]  # type: ignore[index,call-overload,arg-type]
    assert "secret" not in json.dumps(rows)
    time.seconds = 0.0
    found = followed(player(loaded, time), time, [0.0, 5.0])
    assert [numbers(one) for one in found] == [[1], [2]]


def test_of_a_jobs_environment_what_slows_it_is_recorded_and_nothing_else(tmp_path: Path) -> None:
    """A host, a path or a token may stand in any other variable, NCCL's own among them."""
    lines = ("HOME=/home/anna", "NCCL_P2P_DISABLE=1", "NCCL_SOCKET_IFNAME=anna0", "NCCL_ALGO=Tree",
             "NCCL_TOPO_FILE=/home/anna/t.xml")  # fmt: skip
    environ = "".join(f"{line}\0" for line in lines).encode()
    process = tmp_path / "proc" / "7"
    process.mkdir(parents=True)
    (process / "environ").write_bytes(environ)
    rows = dict(record_settings(SystemSysfs(tmp_path), [7, 8]))
    assert isinstance(rows[("sysfs", "data /proc/8/environ")].value, Absent)
    told = {key: {0: one.value} for key, one in rows.items()}
    found = ReplaySysfs(player(recording((0.0,), told), Time())).data("/proc/7/environ")
    assert isinstance(found, bytes)
    assert settings_of_environ(found) == {
        "NCCL_P2P_DISABLE": "1", "NCCL_ALGO": "Tree", "NCCL_TOPO_FILE": "masked",
    }  # fmt: skip
    assert b"anna" not in found


def test_a_node_without_the_folder_is_recorded_so(tmp_path: Path) -> None:
    taken = record_rings(FileRings(tmp_path / "none"), {}, 0.0)
    assert isinstance(taken.value, Absent)
    assert taken.value.why is Why.MISSING
