"""Playing a recording."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.node.hw.recordings import Time, Told, one_change, player, recording
from tests.node.probe.drawn import drawn, on_switch
from tests.rows import each
from wirewatch.core.ports import ALL_LINKS, Answer, Gpu, Order, Pod, Question, SlurmJob
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.nvml.protocol import Source, absent_code
from wirewatch.hw.overlay import NotRecorded, OverlayError, Player, ReplayNvml, is_counter, open_player
from wirewatch.hw.recording import Key, RecordingError, load_recording
from wirewatch.hw.replay import (
    ReplayCommand,
    ReplayHost,
    ReplayKmsg,
    ReplayKubelet,
    ReplayProbe,
    ReplaySlurm,
    ReplaySysfs,
)

POWER: Key = ("nvml", "gpu0/PowerUsage()")
BYTES: Key = ("nvml", "gpu0/Field(138,all)")
STATE: Key = ("sysfs", "read /sys/class/net/eth0/operstate")
LATE: Key = ("nvml", "gpu0/Temperature(0)")
SMALL = recording(
    [0.0, 10.0, 30.0],
    {
        POWER: {0: 100, 1: 200, 2: 150},
        BYTES: {0: 1_000, 1: 1_500, 2: 4_000},
        STATE: {0: "up", 1: "down"},
        LATE: {1: 40},
    },
)


def at(played: Player, time: Time, key: Key, seconds: float) -> Json | Absent:
    time.seconds = seconds
    return played.answer(key).value


def test_each_moment_answers_until_the_next_begins() -> None:
    time = Time()
    played = player(SMALL, time)
    assert [at(played, time, POWER, s) for s in (0, 9.9, 10, 29.9, 30)] == [100, 100, 200, 200, 150]


def test_past_the_last_moment_it_holds() -> None:
    time = Time()
    played = player(SMALL, time)
    assert [at(played, time, BYTES, s) for s in (30, 31, 1e6)] == [4_000] * 3


def test_what_did_not_change_since_is_answered_as_before() -> None:
    time = Time()
    played = player(SMALL, time)
    assert [at(played, time, STATE, s) for s in (0, 10, 30)] == ["up", "down", "down"]


@pytest.mark.parametrize("key", [LATE, ("nvml", "gpu0/NoSuchCall()"), ("host", "Hostname()")])
def test_an_unrecorded_question_is_missing_in_service_and_an_error_in_tests(key: Key) -> None:
    absent = player(SMALL, Time(), strict=False).answer(key).value
    assert isinstance(absent, Absent)
    assert absent.why is Why.MISSING
    assert key[1] in absent.detail
    with pytest.raises(NotRecorded) as caught:
        player(SMALL, Time(), strict=True).answer(key)
    assert key[1] in str(caught.value)


TIMES = st.lists(st.integers(0, 3_000), min_size=2, max_size=30).map(sorted)


@given(TIMES)
def test_a_loop_continues_counters_and_never_turns_one_back(times: list[int]) -> None:
    time = Time()
    played = player(SMALL, time, loop=True)
    values = [at(played, time, BYTES, s) for s in times]
    for (_, before), (_, after) in pairwise(zip(times, values, strict=True)):
        assert isinstance(before, int)
        assert isinstance(after, int)
        assert before <= after


@given(st.integers(0, 29), st.integers(0, 1_000))
def test_a_loop_adds_to_counters_what_they_grew_in_a_whole_cycle(seconds: int, cycles: int) -> None:
    time = Time()
    played = player(SMALL, time, loop=True)
    first, later = (at(played, time, BYTES, s) for s in (seconds, seconds + 30 * cycles))
    assert isinstance(first, int)
    assert later == first + 3_000 * cycles


@given(st.integers(0, 29), st.integers(0, 1_000), st.sampled_from([POWER, STATE]))
def test_a_loop_repeats_everything_else(seconds: int, cycles: int, key: Key) -> None:
    time = Time()
    played = player(SMALL, time, loop=True)
    first, later = (at(played, time, key, s) for s in (seconds, seconds + 30 * cycles))
    assert first == later


def test_a_loop_continues_no_counter_that_failed() -> None:
    lost = absent_code(15)
    time = Time()
    played = player(recording([0.0, 10.0], {BYTES: {0: 5, 1: lost}, LATE: {0: lost}}), time, loop=True)
    assert at(played, time, BYTES, 20) == 5
    assert at(played, time, LATE, 20) == lost


def test_a_loop_of_one_moment_holds_it() -> None:
    time = Time()
    played = player(recording([0.0], {POWER: {0: 100}}), time, loop=True)
    assert at(played, time, POWER, 1e6) == 100


@pytest.mark.parametrize("cycles", [1, 2, 7])
def test_a_loop_of_the_bundled_recording_continues_everything_that_counts_on_the_links(cycles: int) -> None:
    bundled, time = load_recording("h200x8"), Time()
    length = bundled.times[-1]
    once, looped = player(bundled, time), player(bundled, time, loop=True)
    moved = 0
    for gpu in range(8):
        for field in (138, 139):
            key = ("nvml", f"gpu{gpu}/Field({field},all)")
            first, last = at(once, time, key, 0), at(once, time, key, length)
            assert isinstance(first, int)
            assert isinstance(last, int)
            assert at(looped, time, key, cycles * length + 1) == first + cycles * (last - first)
            moved += last > first
    assert moved == 16


@each(
    ("port", "question", "counts"),
    [
        ("nvml", f"gpu3/{Question('Field', (138, ALL_LINKS))}", True),
        ("nvml", "gpu3/TotalEnergyConsumption()", True),
        ("nvml", "gpu3/PcieReplayCounter()", True),
        ("nvml", "gpu3/NvLinkErrorCounter(4,0)", True),
        ("nvml", "gpu3/Field(164,2)", False),
        ("nvml", "gpu3/PowerUsage()", False),
        ("nvml", "Count()", False),
        ("sysfs", "read /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", True),
        ("sysfs", "read /sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", True),
        ("sysfs", "read /sys/class/infiniband/mlx5_0/ports/1/rate", False),
        ("host", "CpuCount()", False),
    ],
)
def test_what_only_ever_grows_is_known(port: str, question: str, *, counts: bool) -> None:
    assert is_counter((port, question)) is counts


def test_a_loop_continues_the_counters_in_files_too() -> None:
    key = ("sysfs", "read /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data")
    time = Time()
    played = player(recording([0.0, 10.0], {key: {0: "1000", 1: "1600"}}), time, loop=True)
    assert [at(played, time, key, s) for s in (0, 10, 20)] == ["1000", "1600", "2200"]


def test_a_loop_never_turns_a_counter_back_that_was_reset_in_the_recording() -> None:
    """A driver reload in the middle: the counter shrinks once a cycle and is never below zero."""
    time = Time()
    played = player(recording([0.0, 10.0], {BYTES: {0: 5_000, 1: 10}}), time, loop=True)
    for seconds in range(0, 100, 10):
        value = at(played, time, BYTES, seconds)
        assert isinstance(value, int)
        assert value >= 0


def _nvml(**changes: bool) -> ReplayNvml:
    return ReplayNvml(player(load_recording("h200x8"), Time(), strict=False, **changes))


def test_a_gpu_is_asked_by_index_or_by_uuid_and_says_the_same() -> None:
    nvml = _nvml()
    questions = [Question("UUID"), Question("PciInfo"), Question("Field", (138, ALL_LINKS))]
    by_index = nvml.answer("index:5", questions)
    uuid = by_index[0].value
    assert isinstance(uuid, str)
    assert nvml.answer(uuid, questions) == by_index


def test_a_gpu_that_the_recording_does_not_know_is_lost() -> None:
    (answer,) = _nvml().answer("GPU-ffffffff-0000-4000-8000-000000000000", [Question("Name")])
    assert isinstance(answer.value, Absent)
    assert answer.value.why is Why.LOST


def test_the_system_is_asked_without_a_gpu() -> None:
    assert [a.value for a in _nvml().answer(None, [Question("Count")])] == [8]


def test_time_inside_the_library_is_that_of_the_recorded_calls() -> None:
    nvml = _nvml()
    answers = nvml.answer("index:0", [Question("Name"), Question("PowerUsage")])
    assert nvml.seconds == pytest.approx(sum(a.us for a in answers) * 1e-6)
    assert nvml.seconds > 0


FILES = recording(
    [0.0],
    {
        ("sysfs", "read /sys/class/net/eth0/mtu"): {0: "9000"},
        ("sysfs", "list /sys/class/net"): {0: ["eth0", "lo"]},
        ("sysfs", "link /sys/class/net/eth0"): {0: "/sys/devices/pci0000:00/net/eth0"},
        ("sysfs", "read /sys/class/net/lo/mtu"): {0: [1]},
        ("sysfs", "list /sys/class/net/eth0"): {0: "no list"},
        ("sysfs", "link /sys/class/net/lo"): {0: 3},
        ("host", "CpuCount()"): {0: 192},
    },
)


def test_files_folders_and_links_are_answered_from_the_recording() -> None:
    sysfs = ReplaySysfs(player(FILES, Time()))
    assert sysfs.read("/sys/class/net/eth0/mtu") == "9000"
    assert sysfs.entries("/sys/class/net") == ["eth0", "lo"]
    assert sysfs.link("/sys/class/net/eth0") == "/sys/devices/pci0000:00/net/eth0"


def test_a_recorded_answer_of_the_wrong_kind_is_malformed() -> None:
    sysfs = ReplaySysfs(player(FILES, Time()))
    for absent in (
        sysfs.read("/sys/class/net/lo/mtu"),
        sysfs.entries("/sys/class/net/eth0"),
        sysfs.link("/sys/class/net/lo"),
    ):
        assert isinstance(absent, Absent)
        assert absent.why is Why.MALFORMED


def test_a_file_that_was_not_recorded_is_missing() -> None:
    sysfs = ReplaySysfs(player(FILES, Time(), strict=False))
    for absent in (sysfs.read("/sys/a"), sysfs.entries("/sys/b"), sysfs.link("/sys/c")):
        assert isinstance(absent, Absent)
        assert absent.why is Why.MISSING


def test_the_host_is_the_recorded_one_and_its_processes_are_ours() -> None:
    host = ReplayHost(player(FILES, Time()), 0.0)
    assert host.ask(Question("CpuCount")) == Answer(192, 1.0)
    assert not isinstance(host.process(None), Absent)


POD_ROW: Json = {
    "namespace": "ml",
    "name": "train-0",
    "devices": [["nvidia.com/gpu", "GPU-1"]],
    "claims": [["gpu.nvidia.com", "node-1", "gpu-0"]],
}
POD = Pod("ml", "train-0", (("nvidia.com/gpu", "GPU-1"),), (("gpu.nvidia.com", "node-1", "gpu-0"),))
JOB_ROWS: Json = [{"id": "7", "state": "RUNNING", "gpus": [0, 3]}, {"id": "8", "state": "NEW", "gpus": None}]


def test_pods_and_jobs_are_answered_from_the_recording() -> None:
    time = Time()
    told: dict[Key, Told] = {
        ("kubelet", "Pods()"): {0: [POD_ROW], 1: []},
        ("slurm", "Jobs()"): {0: JOB_ROWS, 1: Absent(Why.LOST, "no controller")},
    }
    played = player(recording([0.0, 10.0], told), time)
    kubelet, slurm = ReplayKubelet(played), ReplaySlurm(played)
    assert kubelet.pods() == (POD,)
    assert slurm.jobs() == (SlurmJob("7", "RUNNING", (0, 3)), SlurmJob("8", "NEW", None))
    time.seconds = 10.0
    assert kubelet.pods() == ()
    assert slurm.jobs() == Absent(Why.LOST, "no controller")


def _without(row: Any, name: str, *values: Any) -> list[Json]:
    """A row without a member, and with each of these values in its place."""
    rest = {key: value for key, value in row.items() if key != name}
    return [rest, *({**row, name: value} for value in values)]


@each(
    "answer",
    [
        "pods", 3, {"namespace": "ml"}, [None], ["train-0"],
        *([row] for row in _without(POD_ROW, "namespace", 1, None)),
        *([row] for row in _without(POD_ROW, "devices", None, "ab", [["x"]], [["a", 1]], ["ab"])),
        *([row] for row in _without(POD_ROW, "claims", 0, [["a", "b"]], [["a", "b", "c", "d"]])),
    ],
)  # fmt: skip
def test_recorded_pods_of_the_wrong_shape_are_malformed(answer: Json) -> None:
    told = ReplayKubelet(player(recording([0.0], {("kubelet", "Pods()"): {0: answer}}), Time())).pods()
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED


@each(
    "answer",
    ["jobs", 3, {"id": "7"}, [None], *([row] for row in _without(
        {"id": "7", "state": "RUNNING", "gpus": [0]}, "gpus", 0, "0", ["0"], [True], [0.5])
    ), *([row] for row in _without({"id": "7", "state": "RUNNING", "gpus": [0]}, "id", 7))],
)  # fmt: skip
def test_recorded_jobs_of_the_wrong_shape_are_malformed(answer: Json) -> None:
    told = ReplaySlurm(player(recording([0.0], {("slurm", "Jobs()"): {0: answer}}), Time())).jobs()
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED


def test_data_of_a_file_is_hexadecimal_in_the_recording() -> None:
    told: dict[Key, Told] = {
        ("sysfs", "data /a"): {0: "00ff"}, ("sysfs", "data /b"): {0: "no"}, ("sysfs", "data /c"): {0: 3},
    }  # fmt: skip
    sysfs = ReplaySysfs(player(recording([0.0], told), Time(), strict=False))
    assert sysfs.data("/a") == b"\x00\xff"
    assert [value.why for path in "bcd" if isinstance(value := sysfs.data(f"/{path}"), Absent)] == [
        Why.MALFORMED, Why.MALFORMED, Why.MISSING,
    ]  # fmt: skip


def test_only_the_time_of_the_boot_is_moved_to_the_play() -> None:
    told: dict[Key, Told] = {("host", "BootTime()"): {0: 40, 1: "odd"}, ("host", "CpuCount()"): {0: 192}}
    played, time = recording([0.0, 10.0], told), Time()
    played = replace(played, manifest={"moments": [{"at": 100.0}]})
    host = ReplayHost(player(played, time), 1000.0)
    assert (host.ask(Question("BootTime")).value, host.ask(Question("CpuCount")).value) == (940.0, 192)
    time.seconds = 10.0
    assert host.ask(Question("BootTime")).value == "odd"


@pytest.mark.parametrize(
    ("value", "records"),
    [
        (["6,7,1,-;a", "6,8,1,-;b", "no record"], ("6,8,1,-;b", "no record")),
        ([], ()),
        ("6,8,1,-;b", Absent(Why.MALFORMED, "not a list of records: '6,8,1,-;b'")),
        (Absent(Why.DENIED, "no right"), Absent(Why.DENIED, "no right")),
    ],
)
def test_the_kernel_s_log_is_what_came_after_a_record(value: Any, records: Any) -> None:
    found = ReplayKmsg(player(recording([0.0], {("kmsg", "Records()"): {0: value}}), Time())).records(7)
    assert (found if isinstance(found, Absent) else found.records) == records


PROBED = drawn(on_switch(2))
ORDER = Order(
    PROBED.plan, (Gpu(0, "GPU-0"), Gpu(1, "GPU-1")), PROBED.conditions, {"NCCL_ALGO": "Ring"}, lambda: None,
    "command", forced=True,
)  # fmt: skip


class Waits:
    """A clock that moves by what it is asked to wait."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def now(self) -> float:
        return 5000.0

    def mono(self) -> float:
        return sum(self.waited)


def probe(value: Json | Absent, clock: Waits, *, waits: bool = True) -> ReplayProbe:
    played = player(recording([0.0], {("probe", "Run()"): {0: value}}), Time(), strict=False)
    return ReplayProbe(played, clock, clock.waited.append if waits else None)


def as_recorded(probed: Probed) -> Any:
    return json.loads(TypeAdapter(Probed).dump_json(probed))


@pytest.mark.parametrize(
    ("wanted", "engine"),
    [
        ("auto", "nccl"), ("nccl", "nccl"),
        ("torch", Absent(Why.UNSUPPORTED, "the recorded probe is not of engine torch")),
    ],
)  # fmt: skip
def test_the_engine_of_a_recorded_probe(wanted: str, engine: str | Absent) -> None:
    assert probe(as_recorded(PROBED), Waits()).engine(wanted) == engine


def test_a_recorded_probe_lasts_as_long_as_it_took() -> None:
    clock = Waits()
    found = probe(as_recorded(PROBED), clock).run(ORDER)
    assert found == replace(PROBED, at=5000.0, by="recording", forced=True)
    assert sum(clock.waited) == pytest.approx(PROBED.seconds)
    assert set(clock.waited[:-1]) == {0.02}
    assert clock.waited[-1] < 0.02
    at_once = Waits()
    assert probe(as_recorded(PROBED), at_once, waits=False).run(ORDER) == found
    assert at_once.waited == []
    with probe(as_recorded(PROBED), clock).lock() as holder:
        assert holder is None


@pytest.mark.parametrize("waits", [True, False])
def test_a_recorded_probe_is_withdrawn_while_it_lasts(*, waits: bool) -> None:
    clock = Waits()
    order = replace(ORDER, withdrawn=lambda: "a job came" if clock.mono() > 1.0 or not waits else None)
    found = probe(as_recorded(PROBED), clock, waits=waits).run(order)
    if not waits:
        assert found.outcome == "ok"
        return
    assert (found.outcome, found.why, found.seconds, found.document) == ("preempted", "a job came", 0.0, None)
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-0", "GPU-1"]
    assert (found.settings, found.forced, found.by) == ({"NCCL_ALGO": "Ring"}, True, "recording")
    assert 1.0 < clock.mono() < 1.1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Absent(Why.MISSING, "nothing"), "missing: nothing"),
        ({"schema": "else"}, "malformed: not a recorded probe: "),
        (as_recorded(replace(PROBED, gpus=PROBED.gpus[:1])),
         "malformed: not a recorded probe: GPUs that the plan does not have"),
    ],
)  # fmt: skip
def test_a_probe_that_is_not_recorded_fails_with_the_reason(value: Any, why: str) -> None:
    found = probe(value, Waits())
    assert isinstance(found.engine("auto"), Absent)
    assert found.settings() == {}
    assert found.run(ORDER).outcome == "failed"
    assert found.run(ORDER).why.startswith(why)
    assert probe(as_recorded(PROBED), Waits()).settings() == PROBED.settings


@pytest.mark.parametrize("strict", [False, True])
def test_a_recording_of_before_a_port_has_nothing_to_watch_there_and_no_holder_of_gpus(
    *, strict: bool
) -> None:
    played = player(SMALL, Time(), strict=strict)
    told = {
        "kmsg": ReplayKmsg(played).records(-1),
        "command": ReplayCommand(played).run("ibstat"),
        "kubelet": ReplayKubelet(played).pods(),
        "slurm": ReplaySlurm(played).jobs(),
    }
    assert {port: absent.why for port, absent in told.items() if isinstance(absent, Absent)} == {
        "kmsg": Why.UNSUPPORTED, "command": Why.UNSUPPORTED, "kubelet": Why.MISSING, "slurm": Why.MISSING,
    }  # fmt: skip


@pytest.mark.parametrize(("port", "question"), [("kubelet", "Pods()"), ("slurm", "Jobs()")])
def test_an_overlay_may_change_who_holds_gpus(tmp_path: Path, port: str, question: str) -> None:
    overlay = one_change(tmp_path, "set = []", question, port)
    played = player(SMALL, Time(), overlay)
    assert (ReplayKubelet(played).pods() if port == "kubelet" else ReplaySlurm(played).jobs()) == ()


def test_a_source_opens_its_recording_and_its_overlays(tmp_path: Path) -> None:
    overlay = one_change(tmp_path, "set = 1")
    opened = open_player(Source("h200x8", (overlay,), loop=True))
    assert opened.recording.name == "h200x8"
    assert [o.name for o in opened.overlays] == ["fault"]
    assert (
        ReplayNvml(open_player(Source("h200x8", (overlay,))))
        .answer("index:0", [Question("PowerUsage")])[0]
        .value
        == 1
    )


def test_a_source_that_cannot_be_played_says_why(tmp_path: Path) -> None:
    with pytest.raises(RecordingError):
        open_player(Source(str(tmp_path)))
    with pytest.raises(OverlayError):
        open_player(Source("h200x8", (str(tmp_path / "nothing.toml"),)))
