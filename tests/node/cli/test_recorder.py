"""Recording a node, and playing what was recorded."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.collectors.drawn import Jobs, Pods
from tests.node.core.questions import parse_question
from tests.node.hw.direct import DirectNvml
from tests.node.hw.recordings import Time, player, recording
from wirewatch.cli import recorder
from wirewatch.cli.recorder import Recorder, walk
from wirewatch.core.nvml import BURST
from wirewatch.core.ports import ALL_LINKS, Answer, Hardware, Pod, Question, SlurmJob
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.files import SystemSysfs
from wirewatch.hw.overlay import ReplayNvml
from wirewatch.hw.recording import Key, Recording, load_recording, unpack
from wirewatch.hw.replay import ReplayCommand, ReplayHost, ReplayKmsg, ReplayKubelet, ReplayProbe, ReplaySlurm

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


def test_the_manifest_says_what_was_recorded(taken: tuple[Recorder, list[int], Path]) -> None:
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


def test_the_bursts_of_a_gpu_that_computes_are_recorded_and_played_and_an_idle_one_is_not_asked(
    tmp_path: Path,
) -> None:
    source = load_recording("h200x8")
    burst = {"reads": [[0, 0, 0], [900, 12, 13], [1800, 24, 25]]}
    lists = [f"{kind}ComputeRunningProcesses()" for kind in ("", "MPS")]
    told: dict[Key, Json] = {("nvml", f"gpu{i}/{name}"): [] for i in range(8) for name in lists}
    told |= {("nvml", f"gpu{i}/GraphicsRunningProcesses()"): [] for i in range(8)}
    told |= {("nvml", f"gpu{i}/Burst(250,138,139)"): burst for i in range(8)}
    told["nvml", "gpu3/ComputeRunningProcesses()"] = [{"pid": 4711, "usedGpuMemory": 1}]
    answers = {**source.answers, **{key: ((0, Answer(value, 250_000.0)),) for key, value in told.items()}}
    recorder = Recorder(hardware(replace(source, answers=answers), Time(), node(tmp_path / "node"))[0])
    recorder.take()
    recorder.write(tmp_path / "copy", "1")
    copied = load_recording(str(tmp_path / "copy"))
    assert [key for key in copied.answers if "Burst(" in key[1]] == [("nvml", "gpu3/Burst(250,138,139)")]
    uuid = copied.at(("nvml", "gpu3/UUID()"), 0)
    assert uuid is not None
    played = ReplayNvml(player(copied, Time(), strict=True))
    assert played.answer(str(uuid.value), [BURST])[0].value == burst


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


def node(root: Path) -> Path:
    """A /sys with a GPU, a network card with one InfiniBand port, and its network device."""
    files = {
        "devices/pci0000:00/0000:00:05.0/vendor": "0x10de",
        "devices/pci0000:00/0000:00:05.0/current_link_width": "16",
        "devices/pci0000:00/0000:00:06.0/vendor": "0x15b3",
        "devices/pci0000:00/0000:00:06.0/numa_node": "1",
        "devices/pci0000:00/0000:00:06.0/net/ib0/address": "00:00:10:29:fe:80",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/node_guid": "5c25:7303:00a1:b2c4",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "1000",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence": "0",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/ports/1/gids/0": "fe80::1",
        "module/nvidia_peermem/version": "580.1",
    }
    for path, text in files.items():
        (root / "sys" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "sys" / path).write_text(f"{text}\n", "utf-8")
    links = {
        "bus/pci/devices/0000:00:05.0": "../../../devices/pci0000:00/0000:00:05.0",
        "bus/pci/devices/0000:00:06.0": "../../../devices/pci0000:00/0000:00:06.0",
        "class/net/ib0": "../../devices/pci0000:00/0000:00:06.0/net/ib0",
        "class/infiniband/mlx5_0": "../../devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0",
        "devices/pci0000:00/0000:00:06.0/infiniband/mlx5_0/device": "../../../0000:00:06.0",
    }
    for path, target in links.items():
        (root / "sys" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "sys" / path).symlink_to(target)
    return root


def test_the_walk_meets_every_part_of_a_node(tmp_path: Path) -> None:
    walked = set(walk(SystemSysfs(node(tmp_path))))
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    assert walked >= {
        ("list", "/sys/bus/pci/devices"),
        ("link", "/sys/bus/pci/devices/0000:00:05.0"),
        ("read", "/sys/bus/pci/devices/0000:00:05.0/current_link_width"),
        ("list", "/sys/class/net"),
        ("read", "/sys/class/net/ib0/address"),
        ("list", "/sys/class/infiniband"),
        ("link", "/sys/class/infiniband/mlx5_0/device"),
        ("read", "/sys/class/infiniband/mlx5_0/node_guid"),
        ("read", f"{port}/state"),
        ("list", f"{port}/counters"),
        ("read", f"{port}/counters/port_xmit_data"),
        ("read", f"{port}/hw_counters/out_of_sequence"),
        ("read", f"{port}/gids/0"),
        ("read", "/sys/module/nvidia_peermem/version"),
        ("read", "/proc/driver/nvidia/version"),
    }


def test_nothing_is_asked_twice(tmp_path: Path) -> None:
    walked = list(walk(SystemSysfs(node(tmp_path))))
    assert len(set(walked)) == len(walked)


def test_a_machine_without_any_of_it_is_walked_all_the_same(tmp_path: Path) -> None:
    walked = set(walk(SystemSysfs(tmp_path)))
    assert {("list", "/sys/class/infiniband"), ("list", "/sys/bus/pci/devices")} <= walked


def test_the_catalogue_of_a_gpu_asks_nothing_twice_and_every_question_has_a_text() -> None:
    questions = recorder.gpu_questions(["UUID", "Serial", "PowerUsage"], 8, 18)
    assert len(set(questions)) == len(questions)
    assert [parse_question(str(q)) for q in questions] == questions


def test_the_catalogue_of_a_gpu_holds_getters_links_peers_and_fields_of_every_scope() -> None:
    questions = set(recorder.gpu_questions(["UUID"], 8, 18))
    assert questions >= {
        Question("UUID"),
        Question("GpuFabricInfoV"),
        Question("Temperature", (0,)),
        Question("NvLinkState", (17,)),
        Question("P2PStatus", (7, 0)),
        Question("Field", (83,)),
        Question("Field", (138, ALL_LINKS)),
        Question("Field", (165, 17)),
    }


def test_a_job_of_nvml_has_two_hundred_questions_at_most() -> None:
    asked: list[int] = []

    def ask(_gpu: str, questions: Sequence[Question]) -> list[Answer]:
        asked.append(len(questions))
        return [Answer(1) for _ in questions]

    one = Recorder(SimpleNamespace())  # type: ignore[arg-type]
    questions = [Question("Field", (n,)) for n in range(450)]
    found = list(one._gpu(SimpleNamespace(ask=ask), SimpleNamespace(index=3, key="k"), questions))  # type: ignore[arg-type] # noqa: SLF001
    assert (asked, len(found)) == ([200, 200, 50], 450)


@pytest.mark.parametrize(
    ("last", "asked"),
    [(None, True), (7, True), (Absent(Why.DENIED), True), (Absent(Why.UNSUPPORTED), False)],
)
def test_only_what_a_gpu_does_not_have_is_not_asked_again(last: Json | Absent, asked: bool) -> None:  # noqa: FBT001
    one = Recorder(SimpleNamespace())  # type: ignore[arg-type]
    one._last = {} if last is None else {("nvml", "gpu3/Field(1)"): last}  # noqa: SLF001
    assert one._refused(("nvml", "gpu3/Field(1)")) is not asked  # noqa: SLF001


def test_what_stops_the_caller_for_long_is_not_asked() -> None:
    questions = recorder.gpu_questions(["InforomConfigurationChecksum", "UUID"], 1, 0)
    assert Question("UUID") in questions
    assert Question("InforomConfigurationChecksum") not in questions


@given(st.integers(0, 36))
def test_one_link_more_is_asked_for_than_there_are_so_that_the_end_is_recorded(links: int) -> None:
    questions = recorder.gpu_questions([], 1, links)
    asked = {q.args[0] for q in questions if q.call == "NvLinkState"}
    scopes = {q.args[1] for q in questions if q.call == "Field" and len(q.args) > 1}
    assert asked == set(range(links + 1))
    assert scopes == asked | {ALL_LINKS}
