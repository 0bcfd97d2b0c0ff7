"""Recording a node, and playing what was recorded."""

import gzip
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.collectors.drawn import Jobs, Pods
from tests.hw.direct import DirectNvml
from tests.hw.playing import Time, player, recording
from tests.hw.test_tree import node
from wirewatch.core.ports import Answer, Hardware, Pod, SlurmJob
from wirewatch.core.types import Absent, Why
from wirewatch.hw.record import Recorder
from wirewatch.hw.recording import Key, Recording, load_recording, unpack
from wirewatch.hw.replay import ReplayCommand, ReplayHost, ReplayKmsg, ReplayKubelet, ReplayProbe, ReplaySlurm
from wirewatch.hw.sysfs import SystemSysfs

SECRET = re.compile(r".*/(UUID|Serial|Pdi)\(\)|.*(node_guid|address|gids/\d+)|(Hostname|BootId)\(\)")


class Stopwatch:
    """A clock that shows the time of the play."""

    def __init__(self, time: Time) -> None:
        self._time = time

    def now(self) -> float:
        return 1_700_000_000.0 + self._time.seconds

    def mono(self) -> float:
        return 5_000.0 + self._time.seconds


def hardware(source: Recording, time: Time, root: Path) -> tuple[Hardware, DirectNvml]:
    """A node whose GPUs are those of a recording and whose files are below `root`."""
    played = player(source, time, strict=False)
    nvml = DirectNvml(played)
    hardware = Hardware(
        nvml,
        SystemSysfs(root),
        ReplayHost(played, source.at_unix),
        ReplayKmsg(played),
        ReplayCommand(played),
        ReplayKubelet(played),
        ReplaySlurm(played),
        Stopwatch(time),
        ReplayProbe(played, Stopwatch(time)),
    )
    return hardware, nvml


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorder, list[int], Path]:
    """Two moments of eight H200s and a network card, written down, and how many lines each made."""
    time, root = Time(), node(tmp_path_factory.mktemp("node"))
    recorder = Recorder(hardware(load_recording("h200x8"), time, root)[0])
    counts = [recorder.take("idle")]
    time.seconds = 140.0
    counter = root / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"
    counter.write_text("1600\n", "utf-8")
    counts.append(recorder.take("after a run"))
    folder = tmp_path_factory.mktemp("recorded") / "node"
    assert recorder.write(folder, "1.2.3") == sum(counts)
    return recorder, counts, folder


def test_playing_a_recording_gives_the_answers_that_were_recorded(
    taken: tuple[Recorder, list[int], Path],
) -> None:
    original, copied = load_recording("h200x8"), load_recording(str(taken[2]))
    same = 0
    for key, answers in copied.answers.items():
        if key not in original.answers or SECRET.fullmatch(key[1]):
            continue
        for moment, _ in answers:
            before, after = original.at(key, moment), copied.at(key, moment)
            assert before is not None
            assert after is not None
            assert after.value == before.value
            same += 1
    assert same > 10_000


def test_a_recording_holds_everything_that_the_driver_was_known_to_answer(
    taken: tuple[Recorder, list[int], Path],
) -> None:
    original, copied = load_recording("h200x8"), load_recording(str(taken[2]))
    left_out = {k[1].partition("/")[2] for k in original.answers if k not in copied.answers}
    slow_or_repeated = {"InforomConfigurationChecksum()"}
    assert {q for q in left_out if q.endswith("()")} <= slow_or_repeated | {""}


def test_names_are_masked_and_keep_their_shape(taken: tuple[Recorder, list[int], Path]) -> None:
    copied = load_recording(str(taken[2]))
    guid = copied.at(("sysfs", "read /sys/class/infiniband/mlx5_0/node_guid"), 0)
    assert guid is not None
    assert guid.value != "5c25:7303:00a1:b2c4"
    assert re.fullmatch(r"[0-9a-f]{4}(:[0-9a-f]{4}){3}", str(guid.value))
    uuids = {str(a.value) for k, told in copied.answers.items() if k[1].endswith("/UUID()") for _, a in told}
    assert len(uuids) == 8


def test_a_second_moment_holds_only_what_changed(taken: tuple[Recorder, list[int], Path]) -> None:
    _, counts, folder = taken
    assert 0 < counts[1] < counts[0] / 10
    copied = load_recording(str(folder))
    for told in copied.answers.values():
        values = [a.value for _, a in told]
        assert all(a != b for a, b in pairwise(values))
    counter: Key = ("sysfs", "read /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data")
    assert [(n, a.value) for n, a in copied.answers[counter]] == [(0, "1000"), (1, "1600")]


def test_the_manifest_tells_what_was_recorded(taken: tuple[Recorder, list[int], Path]) -> None:
    _, counts, folder = taken
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["wirewatch"] == "1.2.3"
    assert manifest["masked"] is True
    assert manifest["lines"] == sum(counts)
    assert (manifest["product"], manifest["gpus"], manifest["driver"]) == ("NVIDIA H200", 8, "580.159.04")
    assert manifest["source"] == "live"
    assert [(m["seconds"], m["note"]) for m in manifest["moments"]] == [(0.0, "idle"), (140.0, "after a run")]


def test_a_moment_in_which_nothing_changed_adds_nothing(tmp_path: Path) -> None:
    recorder = Recorder(hardware(load_recording("h200x8"), Time(), node(tmp_path))[0])
    assert recorder.take() > 0
    assert recorder.take() == 0


def test_what_a_gpu_does_not_support_is_not_asked_again(tmp_path: Path) -> None:
    ports, nvml = hardware(load_recording("h200x8"), Time(), node(tmp_path))
    recorder = Recorder(ports)
    recorder.take()
    asked = nvml.asked
    told = (unpack(row).value for row in recorder.rows if row["question"].startswith("gpu"))
    refused = sum(isinstance(value, Absent) and value.why is Why.UNSUPPORTED for value in told)
    assert refused > 1_000
    recorder.take()
    assert nvml.asked - asked == asked - refused


def test_who_holds_gpus_is_recorded_without_names_and_the_files_of_pods_are_not(tmp_path: Path) -> None:
    root = node(tmp_path / "node")
    for path in ("var/log/pods/ml_train-0_8c4f2d6b", "sys/fs/cgroup/kubepods.slice"):
        (root / path).mkdir(parents=True)
    given = (("nvidia.com/gpu", "GPU-0"),)
    ports = replace(
        hardware(load_recording("h200x8"), Time(), root)[0],
        kubelet=Pods([Pod("research", "llama-train-0", given), Pod("research", "other-job-1", given)]),
        slurm=Jobs([SlurmJob("1234", "RUNNING", (0, 3)), SlurmJob("1235", "COMPLETING", None)]),
    )
    recorder = Recorder(ports)
    recorder.take()
    recorder.write(tmp_path / "recorded", "1.2.3")
    copied = load_recording(str(tmp_path / "recorded"))
    jobs = ReplaySlurm(player(copied, Time())).jobs()
    assert jobs == (SlurmJob("1234", "RUNNING", (0, 3)), SlurmJob("1235", "COMPLETING", None))
    pods = ReplayKubelet(player(copied, Time())).pods()
    assert not isinstance(pods, Absent)
    assert [pod.devices for pod in pods] == [given, given]
    assert len({pod.namespace for pod in pods}) == 1
    assert len({pod.name for pod in pods}) == 2
    text = gzip.decompress((tmp_path / "recorded/moments.jsonl.gz").read_bytes()).decode()
    assert [word for word in ("llama", "research", "other-job", "/var/log", "kubepods") if word in text] == []


def test_a_node_without_a_driver_is_recorded_too(tmp_path: Path) -> None:
    nothing = recording([0.0], {("host", "Hostname()"): {0: "node-with-a-name"}})
    recorder = Recorder(hardware(nothing, Time(), node(tmp_path / "node"))[0])
    recorder.take()
    recorder.write(tmp_path / "recorded", "1.2.3")
    copied = load_recording(str(tmp_path / "recorded"))
    assert copied.manifest["gpus"] == 0
    count = copied.at(("nvml", "Count()"), 0)
    assert count is not None
    assert isinstance(count.value, Absent)
    assert count.value.why is Why.MISSING
    state = copied.at(("sysfs", "read /sys/class/infiniband/mlx5_0/ports/1/state"), 0)
    assert isinstance(state, Answer)
    assert state.value == "4: ACTIVE"
    assert "node-with-a-name" not in (tmp_path / "recorded/manifest.json").read_text("utf-8")
    host = copied.at(("host", "Hostname()"), 0)
    assert host is not None
    assert host.value != "node-with-a-name"
