"""The NVML port over a real child process: hangs, crashes, kills, and coming back."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.hw.children import HEAT, LIMITS, NAME, POWER, SOON, Rig, is_dead, until
from tests.node.hw.machine import NO_NVML
from tests.node.hw.recordings import one_change, overlay_file
from wirewatch.cli import recorder
from wirewatch.core.ports import Question
from wirewatch.core.types import Absent, Why
from wirewatch.hw.nvml.client import Limits, NvmlClient
from wirewatch.hw.nvml.process import Child
from wirewatch.hw.nvml.protocol import Source

Start = Callable[..., Rig]


@pytest.fixture
def rig() -> Iterator[Start]:
    """Makes a client of the bundled recording with the given overlays."""
    rigs: list[Rig] = []

    def start(*overlays: str, **options: object) -> Rig:
        source = options.pop("source", Source("h200x8", overlays, loop=False, epoch=time.monotonic()))
        rigs.append(Rig(source, **options))  # type: ignore[arg-type]
        return rigs[-1]

    yield start
    for one in rigs:
        one.end()


def _absent(value: object, why: Why) -> Absent:
    assert isinstance(value, Absent)
    assert value.why is why, str(value)
    return value


def test_a_poll_names_every_gpu_and_answers_in_order(rig: Start) -> None:
    node = rig()
    gpus = node.gpus()
    assert [g.index for g in gpus] == list(range(8))
    assert len({g.key for g in gpus}) == 8
    assert {(g.name, g.absent) for g in gpus} == {("NVIDIA H200", None)}
    power, name = node.ask(gpus[5].key, POWER, NAME)
    assert isinstance(power.value, int)
    assert name.value == "NVIDIA H200"
    assert node.ask(None, Question("Count"))[0].value == 8


def test_one_process_answers_all_polls_and_says_what_it_cost(rig: Start) -> None:
    node = rig()
    for gpu in node.gpus():
        node.name(gpu.key)
    assert len(node.children) == 1
    assert node.nvml.session() == 1
    cost = node.nvml.cost()
    assert (cost.pid, cost.restarts, cost.stuck) == (node.children[0].pid, 0, 0)
    assert cost.seconds > 0


@pytest.mark.parametrize("timed", [True, False])
def test_an_answer_says_how_long_its_call_took_when_that_is_wanted(rig: Start, *, timed: bool) -> None:
    node = rig(source=Source("h200x8", epoch=time.monotonic(), timed=timed))
    (answer,) = node.ask(node.key(0), POWER)
    assert (answer.us > 0) is timed


def test_nothing_is_started_before_something_is_asked(rig: Start) -> None:
    node = rig()
    assert node.ask("index:0") == []
    assert node.children == []
    assert node.nvml.cost().pid is None


def test_a_job_far_larger_than_a_pipe_is_answered(rig: Start) -> None:
    node = rig()
    questions = recorder.gpu_questions(["UUID"], 8, 18) * 3
    assert len(node.ask(node.key(0), *questions)) == len(questions)


def test_a_slow_answer_within_the_deadline_is_an_answer(rig: Start, tmp_path: Path) -> None:
    node = rig(one_change(tmp_path, "slow = 0.2", "gpu3/Name()"))
    assert node.name(node.key(3)) == "NVIDIA H200"
    assert node.nvml.session() == 1


def test_a_gpu_that_hangs_is_left_out_alone_and_comes_back_by_itself(rig: Start, tmp_path: Path) -> None:
    node = rig(one_change(tmp_path, "hang = true", "gpu3/*"))
    assert node.ask(None, Question("Count"))[0].value == 8
    # The process that runs hangs; the next one finds a driver that does not.
    overlay_file(tmp_path, "change = []")
    gpus = node.gpus()
    assert [g.index for g in gpus if g.absent] == [3]
    hung = _absent(gpus[3].absent, Why.TIMEOUT)
    assert f"{LIMITS.job:g} s" in hung.detail
    assert [node.name(g.key) for g in gpus if g.index != 3] == ["NVIDIA H200"] * 7

    assert node.nvml.session() == 2
    assert node.nvml.cost().restarts == 1
    assert is_dead(node.children[0].pid)
    assert node.name(gpus[3].key) == hung
    assert node.gpus()[3].absent == hung
    assert len(node.children) == 2, "a GPU that is left out was asked"

    node.wait(11.0)
    back = node.gpus()[3]
    assert (back.index, back.name, back.absent) == (3, "NVIDIA H200", None)
    assert node.name(back.key) == "NVIDIA H200"
    assert len(node.children) == 2


def test_a_gpu_that_goes_on_hanging_keeps_its_name_and_waits_longer_each_time(
    rig: Start, tmp_path: Path
) -> None:
    node = rig(one_change(tmp_path, "hang = true", "gpu3/PowerUsage()"))
    key = node.key(3)
    _absent(node.ask(key, POWER)[0].value, Why.TIMEOUT)
    node.wait(11.0)
    _absent(node.ask(key, POWER)[0].value, Why.TIMEOUT)
    node.wait(11.0)
    node.gpus()
    assert len(node.children) == 3, "it was asked again before its time, which has doubled"
    gpu = node.gpus()[3]
    assert gpu.key == key
    assert gpu.absent is not None
    node.wait(11.0)
    assert node.name(key) == "NVIDIA H200"
    assert node.gpus()[3].absent is None


def test_a_crash_costs_one_job_and_names_the_signal(rig: Start, tmp_path: Path) -> None:
    node = rig(one_change(tmp_path, "crash = true", "gpu5/Temperature(0)"))
    gpus = node.gpus()
    power, heat = node.ask(gpus[5].key, POWER, HEAT)
    assert "SIGSEGV" in _absent(power.value, Why.LOST).detail
    assert heat.value == power.value
    assert node.name(gpus[4].key) == "NVIDIA H200"
    assert node.nvml.session() == 2
    assert node.name(gpus[5].key) == heat.value
    node.wait(11.0)
    assert node.name(gpus[5].key) == "NVIDIA H200"
    assert node.nvml.session() == 2


def test_a_gpu_that_has_answered_again_begins_anew_with_the_shortest_wait(rig: Start, tmp_path: Path) -> None:
    node = rig(one_change(tmp_path, "crash = true", "gpu5/Temperature(0)"))
    key = node.key(5)
    for _ in range(3):
        _absent(node.ask(key, HEAT)[0].value, Why.LOST)
        _absent(node.name(key), Why.LOST)
        node.wait(11.0)
        assert node.name(key) == "NVIDIA H200"


def test_a_process_killed_from_outside_between_two_jobs_blames_no_gpu(rig: Start) -> None:
    node = rig()
    gpus = node.gpus()
    pid = node.pid()
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_dead(pid))
    assert [node.name(g.key) for g in gpus] == ["NVIDIA H200"] * 8
    assert node.gpus() == gpus
    assert node.nvml.session() == 2
    assert node.pid() != pid


def test_an_interrupt_from_the_terminal_is_not_for_the_process_that_talks_to_nvml(rig: Start) -> None:
    node = rig()
    key = node.key(0)
    os.kill(node.pid(), signal.SIGINT)
    assert node.name(key) == "NVIDIA H200"
    assert node.nvml.session() == 1


def _cannot_kill(_pid: int, _signal: int) -> None:
    """What SIGKILL does to a process in uninterruptible sleep."""


def test_a_process_that_cannot_be_killed_is_left_behind_and_its_gpu_is_not_asked_while_it_lives(
    rig: Start, tmp_path: Path
) -> None:
    node = rig(one_change(tmp_path, "hang = true", "gpu3/PowerUsage()"), kill=_cannot_kill)
    gpus = node.gpus()
    hung = node.ask(gpus[3].key, POWER)[0].value
    _absent(hung, Why.TIMEOUT)
    assert node.nvml.cost().stuck == 1

    assert node.name(gpus[2].key) == "NVIDIA H200"
    assert node.nvml.cost().pid == node.children[1].pid
    node.wait(3_600.0)
    assert node.name(gpus[3].key) == hung
    assert node.nvml.session() == 2

    os.kill(node.children[0].pid, signal.SIGKILL)
    until(node.children[0].gone)
    assert node.nvml.cost().stuck == 0
    assert node.name(gpus[3].key) == "NVIDIA H200"


def test_never_more_than_two_processes_that_cannot_be_killed(rig: Start, tmp_path: Path) -> None:
    text = "".join(f'[[change]]\nport = "nvml"\nmatch = "gpu{n}/PowerUsage()"\nhang = true\n' for n in (3, 4))
    node = rig(overlay_file(tmp_path, text), kill=_cannot_kill)
    gpus = node.gpus()
    for index in (3, 4):
        _absent(node.ask(gpus[index].key, POWER)[0].value, Why.TIMEOUT)
    assert node.nvml.cost().stuck == 2
    for gpu in gpus:
        _absent(node.name(gpu.key), Why.TIMEOUT)
    assert len(node.children) == 2

    os.kill(node.children[0].pid, signal.SIGKILL)
    until(node.children[0].gone)
    assert node.name(gpus[0].key) == "NVIDIA H200"
    assert node.nvml.cost().stuck == 1


def test_a_reply_that_is_broken_breaks_the_one_who_asked_and_nothing_else(rig: Start, tmp_path: Path) -> None:
    node = rig(one_change(tmp_path, 'raise = "a bug of ours"', "gpu3/PowerUsage()"))
    key = node.key(3)
    with pytest.raises(RuntimeError, match="a bug of ours"):
        node.ask(key, POWER)
    assert node.name(key) == "NVIDIA H200"
    assert node.nvml.session() == 1


def test_an_nvml_that_hangs_as_a_whole_is_left_out_and_tried_again(rig: Start, tmp_path: Path) -> None:
    overlay = one_change(tmp_path, "hang = true", "Count()")
    node = rig(overlay)
    hung = _absent(node.nvml.gpus(), Why.TIMEOUT)
    assert node.nvml.gpus() == hung
    assert len(node.children) == 1
    overlay_file(tmp_path, "change = []")
    node.wait(11.0)
    assert len(node.gpus()) == 8


def _runs_first(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every Python that starts from now on run a line before anything else."""
    (folder / "sitecustomize.py").write_text(f"{code}\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("code", "why", "named"),
    [
        ("import time; time.sleep(600)", Why.TIMEOUT, "did not initialise within 4 s"),
        ("import os; os._exit(3)", Why.LOST, "exit status 3"),
        ("import os, time; os.close(1); time.sleep(600)", Why.LOST, "closed its pipe"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGBUS)", Why.LOST, "SIGBUS"),
    ],
)
def test_a_process_that_hangs_or_dies_while_it_starts_is_tried_again_after_a_while(
    rig: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: Why, named: str
) -> None:
    _runs_first(tmp_path, code, monkeypatch)
    node = rig(limits=Limits(start=4.0 if why is Why.TIMEOUT else 30.0))
    absent = _absent(node.nvml.gpus(), why)
    assert named in absent.detail
    assert node.nvml.gpus() == absent
    assert len(node.children) == 1
    monkeypatch.undo()
    node.wait(2.0)
    assert len(node.gpus()) == 8
    assert node.nvml.session() == 1


def test_a_process_that_writes_nonsense_instead_of_a_reply_is_started_again(
    rig: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it prints first passes for its first word, so that its first word is no reply."""
    _runs_first(tmp_path, "print('[0,\"\"]', flush=True)", monkeypatch)
    node = rig(limits=replace(LIMITS, job=30.0))
    told = node.nvml.gpus()
    assert "nonsense" in _absent(told, Why.LOST).detail
    monkeypatch.undo()
    node.wait(11.0)
    assert len(node.gpus()) == 8


def test_a_process_that_writes_nonsense_as_its_first_word_is_an_absence_and_no_exception(
    rig: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something in the environment's Python that prints a greeting is enough."""
    _runs_first(tmp_path, "print('Welcome to node 17', flush=True)", monkeypatch)
    node = rig()
    assert isinstance(node.nvml.gpus(), Absent)
    monkeypatch.undo()
    node.wait(31.0)
    assert len(node.gpus()) == 8


def test_a_recording_that_does_not_exist_is_an_absence_and_no_exception(
    rig: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    node = rig(source=Source(str(tmp_path / "nothing")))
    assert "exit status 1" in _absent(node.nvml.gpus(), Why.LOST).detail
    assert "no recording" in capfd.readouterr().err


@NO_NVML
def test_without_the_library_nothing_raises_and_it_is_tried_again_ever_more_rarely(rig: Start) -> None:
    node = rig(source=Source())
    starts = []
    for _ in range(70):
        absent = _absent(node.nvml.gpus(), Why.MISSING)
        assert "libnvidia-ml" in absent.detail
        assert node.ask("index:0", NAME)[0].value == absent
        starts.append(len(node.children))
        node.wait(1.0)
    assert starts[0] == 1
    assert [s for s in range(70) if s == 0 or starts[s] > starts[s - 1]] == [0, 1, 3, 7, 15, 31, 61]
    assert node.nvml.session() == 0
    assert node.nvml.cost().pid is None


def test_closing_ends_the_process_and_asking_starts_another(rig: Start) -> None:
    node = rig()
    gpus = node.gpus()
    pid = node.pid()
    node.nvml.close()
    assert is_dead(pid)
    assert node.nvml.cost().pid is None
    node.nvml.close()
    assert node.name(gpus[7].key) == "NVIDIA H200"
    assert node.gpus() == gpus
    assert node.nvml.session() == 2


def test_closing_a_process_that_does_not_end_leaves_it_behind_and_returns(rig: Start) -> None:
    node = rig(kill=_cannot_kill)
    gpus = node.gpus()
    os.kill(node.pid(), signal.SIGSTOP)
    node.nvml.close()
    assert node.nvml.cost().stuck == 1
    assert node.nvml.cost().pid is None
    assert node.gpus() == gpus


def test_stopping_ends_the_process_of_a_client_that_is_idle(rig: Start) -> None:
    node = rig()
    node.gpus()
    pid = node.pid()
    node.nvml.stop()
    assert is_dead(pid)
    assert node.nvml.cost().pid is None


def test_stopping_ends_the_process_also_while_a_question_hangs(rig: Start, tmp_path: Path) -> None:
    node = rig(one_change(tmp_path, "hang = true", "gpu3/PowerUsage()"), limits=Limits(job=600.0))
    asking = threading.Thread(target=node.ask, args=(node.key(3), POWER), daemon=True)
    pid = node.pid()
    asking.start()
    node.nvml.stop()
    asking.join(SOON)
    assert not asking.is_alive()
    assert is_dead(pid)


LOST = 'about = "GPU 2 falls off the bus"\n[[change]]\nport = "nvml"\nmatch = "gpu2/*"\ncode = 15\n'


def test_a_lost_gpu_keeps_its_name_and_is_found_again_once_nvml_was_initialised_again(
    rig: Start, tmp_path: Path
) -> None:
    overlay = overlay_file(tmp_path, "change = []")
    node = rig(overlay)
    before = node.gpus()
    node.nvml.close()

    Path(overlay).write_text(LOST, "utf-8")
    lost = node.gpus()
    assert [g.key for g in lost] == [g.key for g in before]
    assert [g.index for g in lost if g.absent] == [2]
    _absent(lost[2].absent, Why.LOST)

    Path(overlay).write_text("change = []", "utf-8")
    session, waited, found = node.nvml.session(), 0.0, lost
    while node.nvml.session() == session:
        assert found == lost
        assert waited < 600.0
        node.wait(10.0)
        waited += 10.0
        found = node.gpus()
    assert found == before
    assert 60.0 <= waited <= 90.0


def test_a_gpu_that_stays_lost_makes_nvml_be_initialised_ever_more_rarely(rig: Start, tmp_path: Path) -> None:
    node = rig(overlay_file(tmp_path, LOST))
    sessions = []
    for _ in range(20):
        assert [g.index for g in node.gpus() if g.absent] == [2]
        sessions.append(node.nvml.session())
        node.wait(30.0)
    assert 2 <= len(set(sessions)) <= 5
    gaps = [sessions.count(s) for s in sorted(set(sessions))[:-1]]
    assert gaps == sorted(gaps)


def test_a_driver_that_was_reloaded_is_initialised_again(rig: Start, tmp_path: Path) -> None:
    node = rig(one_change(tmp_path, "code = 1", "gpu4/PowerUsage()"))
    key = node.key(4)
    _absent(node.ask(key, POWER)[0].value, Why.LOST)
    assert node.name(key) == "NVIDIA H200"
    assert node.nvml.session() == 2


def test_answers_never_get_mixed_up_between_threads(rig: Start) -> None:
    node = rig()
    uuids = [g.key for g in node.gpus()]
    wrong: list[object] = []

    def ask(key: str) -> None:
        for _ in range(20):
            told = node.ask(key, Question("UUID"))[0].value
            if told != key:
                wrong.append(told)

    threads = [threading.Thread(target=ask, args=(key,)) for key in uuids[:4]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert wrong == []
    assert len(node.children) == 1


PARENT = """
import sys
from wirewatch.core.ports import Question
from wirewatch.hw.nvml.client import Limits, NvmlClient
from wirewatch.hw.nvml.process import Child
from wirewatch.hw.nvml.protocol import Source
nvml = NvmlClient(Source("h200x8", tuple(sys.argv[1:])), Limits(job=600))
nvml.gpus()
print(nvml.cost().pid, flush=True)
nvml.ask("index:0", [Question("PowerUsage")])
sys.stdin.read()
"""


@pytest.mark.parametrize("line", ["set = 1", "hang = true"])
def test_the_process_dies_when_its_parent_dies_whatever_it_is_doing(tmp_path: Path, line: str) -> None:
    command = [sys.executable, "-c", PARENT, one_change(tmp_path, line)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.2)
        assert not is_dead(child)
        parent.kill()
        parent.wait()
    try:
        until(lambda: is_dead(child))
    finally:
        if not is_dead(child):
            os.kill(child, signal.SIGKILL)


def test_the_process_outlives_the_thread_that_happened_to_start_it(rig: Start) -> None:
    node = rig()
    thread = threading.Thread(target=node.gpus)
    thread.start()
    thread.join(SOON)
    pid = node.pid()
    time.sleep(0.3)
    assert not is_dead(pid)


def test_a_process_that_was_killed_leaves_no_pipe_open(tmp_path: Path) -> None:
    source = Source(
        "h200x8", (one_change(tmp_path, "hang = true", "gpu3/PowerUsage()"),), epoch=time.monotonic()
    )
    nvml = NvmlClient(source, LIMITS)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _absent(nvml.ask("index:3", [POWER])[0].value, Why.TIMEOUT)
        gc.collect()
    nvml.close()
    assert [str(w.message) for w in told if w.category is ResourceWarning] == []


class _Unnoticed(Child):
    """A child whose end is not noticed before the next job is sent to it."""

    def gone(self) -> bool:
        return False


def test_a_process_that_was_gone_before_it_got_the_job_costs_nothing() -> None:
    client = NvmlClient(Source("h200x8", epoch=time.monotonic()), start=_Unnoticed)
    gpus = client.gpus()
    assert not isinstance(gpus, Absent)
    pid = client.cost().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_dead(pid))
    (answer,) = client.ask(gpus[3].key, [NAME])
    client.close()
    assert answer.value == "NVIDIA H200"


def test_a_child_that_plays_a_recording_loads_little() -> None:
    """Before: pydantic and psutil, which took two thirds of its start."""
    modules = "import sys, wirewatch.hw.nvml.child, wirewatch.hw.overlay; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", modules], capture_output=True, text=True, check=True)
    assert not {"pydantic", "psutil", "pynvml"} & set(done.stdout.split())
