"""Letting go of NVML: every process dead on return, nothing asked meanwhile, and back as if nothing was."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.node.hw.children import NAME, POWER, SOON, Rig, is_dead, until
from tests.node.hw.recordings import one_change, overlay_file
from tests.patience import HANGS
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Why
from wirewatch.hw.nvml.client import Limits, NvmlClient
from wirewatch.hw.nvml.process import Child
from wirewatch.hw.nvml.protocol import Source

WHY = "released until noon"
RELEASED = Absent(Why.RELEASED, WHY)
WITHIN = HANGS
"""Seconds; eight times what is promised, since a busy machine may delay anything."""
LONG = Limits(job=600.0, start=600.0)
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
        for child in one.children:
            if not child.gone():
                os.kill(child.pid, signal.SIGKILL)
        one.nvml.resume()
        one.end()


def _release(node: Rig) -> tuple[int, ...]:
    began = time.monotonic()
    left = node.nvml.release(WHY)
    assert time.monotonic() - began < WITHIN
    return left


class Asking:
    """Something that is asked in another thread, where it hangs."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.told: object = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.told = self._work()

    def answer(self) -> object:
        """What was told in the end."""
        self._thread.join(SOON)
        assert not self._thread.is_alive()
        return self.told


def _cannot_kill(_pid: int, _signal: int) -> None:
    """What SIGKILL does to a process in uninterruptible sleep."""


def test_an_idle_process_is_dead_on_return_and_none_is_started_meanwhile(rig: Start) -> None:
    node = rig()
    gpus = node.gpus()
    pid = node.pid()
    assert _release(node) == ()
    assert is_dead(pid)
    assert node.nvml.gpus() == RELEASED
    assert [a.value for a in node.ask(gpus[3].key, NAME, POWER)] == [RELEASED, RELEASED]
    assert node.ask(None, NAME)[0].value == RELEASED
    assert node.nvml.cost().pid is None
    assert len(node.children) == 1


def test_it_comes_back_at_once_in_a_new_session_with_the_same_gpus(rig: Start) -> None:
    node = rig()
    gpus = node.gpus()
    _release(node)
    node.nvml.resume()
    assert node.gpus() == gpus
    assert node.name(gpus[3].key) == "NVIDIA H200"
    assert (node.nvml.session(), len(node.children)) == (2, 2)


def test_one_that_was_never_asked_is_released_and_comes_back(rig: Start) -> None:
    node = rig()
    assert _release(node) == ()
    assert node.nvml.gpus() == RELEASED
    assert node.children == []
    node.nvml.resume()
    assert len(node.gpus()) == 8


def test_a_second_release_gives_its_own_reason(rig: Start) -> None:
    node = rig()
    node.gpus()
    _release(node)
    assert node.nvml.release("until one") == ()
    assert node.nvml.gpus() == Absent(Why.RELEASED, "until one")
    node.nvml.resume()
    assert len(node.gpus()) == 8


def test_a_question_that_hangs_dies_with_the_process_and_no_gpu_is_left_out_for_it(
    rig: Start, tmp_path: Path
) -> None:
    overlay = one_change(tmp_path, "hang = true", "gpu3/PowerUsage()")
    node = rig(overlay, limits=LONG)
    key, pid = node.key(3), node.pid()
    asking = Asking(lambda: node.ask(key, POWER)[0].value)
    time.sleep(0.2)
    assert _release(node) == ()
    assert is_dead(pid)
    assert asking.answer() == RELEASED
    overlay_file(tmp_path, "change = []")
    node.nvml.resume()
    assert isinstance(node.ask(key, POWER)[0].value, int)
    assert [gpu.absent for gpu in node.gpus()] == [None] * 8


def test_an_enumeration_in_the_middle_reports_the_release_and_no_gpu_that_cannot_be_read(
    rig: Start, tmp_path: Path
) -> None:
    node = rig(one_change(tmp_path, "hang = true", "gpu3/UUID()"), limits=LONG)
    asking = Asking(node.nvml.gpus)
    until(lambda: node.nvml.session() == 1)
    time.sleep(0.2)
    assert _release(node) == ()
    assert asking.answer() == RELEASED


def test_others_who_wait_behind_a_question_that_hangs_are_told_at_once(rig: Start, tmp_path: Path) -> None:
    node = rig(one_change(tmp_path, "hang = true", "gpu3/PowerUsage()"), limits=LONG)
    keys = [gpu.key for gpu in node.gpus()]
    asked = [Asking(lambda key=key: node.ask(key, POWER)[0].value) for key in keys[3:]]  # type: ignore[misc]
    time.sleep(0.2)
    assert _release(node) == ()
    assert {asking.answer() for asking in asked} == {RELEASED}
    assert len(node.children) == 1


@pytest.fixture
def sleepy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every Python that starts from now on hangs before anything else, until this is undone."""
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(600)\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return monkeypatch


def test_a_process_that_is_being_started_dies_too_and_comes_back_without_waiting(
    rig: Start, sleepy: pytest.MonkeyPatch
) -> None:
    node = rig(limits=LONG)
    asking = Asking(node.nvml.gpus)
    until(lambda: bool(node.children))
    assert _release(node) == ()
    assert asking.answer() == RELEASED
    assert is_dead(node.children[0].pid)
    assert len(node.children) == 1
    sleepy.undo()
    node.nvml.resume()
    assert len(node.gpus()) == 8
    assert node.nvml.session() == 1


def test_a_process_that_comes_up_only_after_the_release_is_killed_at_once() -> None:
    """The machine is so busy that starting it takes longer than the release waits."""
    children: list[Child] = []
    starting, go = threading.Event(), threading.Event()

    def start(source: Source) -> Child:
        starting.set()
        go.wait(SOON)
        children.append(Child(source))
        return children[-1]

    nvml = NvmlClient(Source("h200x8", epoch=time.monotonic()), start=start)
    asking = Asking(nvml.gpus)
    starting.wait(SOON)
    nvml.release(WHY)
    go.set()
    assert asking.answer() == RELEASED
    assert [is_dead(child.pid) for child in children] == [True]
    nvml.resume()
    assert not isinstance(nvml.gpus(), Absent)
    nvml.close()


def test_a_process_that_cannot_be_killed_is_named_and_its_gpu_is_left_out_while_it_lives(
    rig: Start, tmp_path: Path
) -> None:
    node = rig(
        one_change(tmp_path, "hang = true", "gpu3/PowerUsage()"), kill=_cannot_kill, limits=Limits(job=1.5)
    )
    key, other, pid = node.key(3), node.key(4), node.pid()
    asking = Asking(lambda: node.ask(key, POWER)[0].value)
    time.sleep(0.2)
    assert _release(node) == (pid,)
    assert node.nvml.gpus() == RELEASED
    told = asking.answer()
    assert isinstance(told, Absent)
    assert told.why is Why.TIMEOUT
    assert node.nvml.release(WHY) == (pid,)

    node.nvml.resume()
    assert node.name(other) == "NVIDIA H200"
    assert node.name(key) == told
    os.kill(pid, signal.SIGKILL)
    until(node.children[0].gone)
    assert node.nvml.release(WHY) == ()
    node.nvml.resume()
    assert node.name(key) == "NVIDIA H200"


def test_an_idle_process_that_cannot_be_killed_is_named_and_left_behind(rig: Start) -> None:
    node = rig(kill=_cannot_kill)
    node.gpus()
    pid = node.pid()
    os.kill(pid, signal.SIGSTOP)
    assert _release(node) == (pid,)
    assert node.nvml.cost().stuck == 1
    node.nvml.resume()
    assert len(node.gpus()) == 8
    assert node.pid() != pid


def test_what_was_left_out_before_is_tried_again_afterwards(rig: Start, tmp_path: Path) -> None:
    node = rig(one_change(tmp_path, "crash = true", "gpu5/PowerUsage()"))
    key = node.key(5)
    assert isinstance(node.ask(key, POWER)[0].value, Absent)
    assert isinstance(node.name(key), Absent)
    _release(node)
    node.nvml.resume()
    assert node.name(key) == "NVIDIA H200"


def test_what_waited_to_be_started_again_is_started_at_once_afterwards(rig: Start, tmp_path: Path) -> None:
    node = rig(source=Source(str(tmp_path / "nothing")))
    for _ in range(2):
        assert isinstance(node.nvml.gpus(), Absent)
    assert len(node.children) == 1
    _release(node)
    node.nvml.resume()
    assert isinstance(node.nvml.gpus(), Absent)
    assert len(node.children) == 2


def test_a_lost_gpu_is_found_again_at_once_afterwards(rig: Start, tmp_path: Path) -> None:
    lost = 'about = "GPU 2 falls off the bus"\n[[change]]\nport = "nvml"\nmatch = "gpu2/*"\ncode = 15\n'
    node = rig(overlay_file(tmp_path, lost))
    assert [gpu.index for gpu in node.gpus() if gpu.absent] == [2]
    overlay_file(tmp_path, "change = []")
    _release(node)
    node.nvml.resume()
    assert [gpu.absent for gpu in node.gpus()] == [None] * 8


def test_however_many_ask_all_the_time_nothing_lives_while_it_is_released(rig: Start) -> None:
    node = rig()
    good: list[Gpu] = node.gpus()
    over = threading.Event()
    wrong: list[object] = []

    def ask(key: str) -> None:
        while not over.is_set():
            told = {node.name(key), node.nvml.gpus()}
            wrong.extend(told - {"NVIDIA H200", RELEASED, tuple(good)})

    threads = [threading.Thread(target=ask, args=(gpu.key,), daemon=True) for gpu in good[:4]]
    for thread in threads:
        thread.start()
    for turn in range(5):
        time.sleep(0.02 * turn)
        assert _release(node) == ()
        assert [c.pid for c in node.children if not is_dead(c.pid)] == []
        time.sleep(0.02)
        assert [c.pid for c in node.children if not is_dead(c.pid)] == []
        node.nvml.resume()
        until(lambda: node.nvml.cost().pid is not None)
    over.set()
    for thread in threads:
        thread.join(SOON)
    assert wrong == []
