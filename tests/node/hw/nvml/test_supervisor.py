"""The supervisor and the client over children that are no processes: each row differs in one thing."""

import io
import logging
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.node.hw.recordings import Time
from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw.nvml import process, protocol
from wirewatch.hw.nvml.client import Limits, NvmlClient
from wirewatch.hw.nvml.process import (
    NODE,
    Child,
    ChildDied,
    ChildGone,
    ChildHung,
    Delay,
    NvmlChild,
    Quarantine,
    Supervisor,
)
from wirewatch.hw.nvml.protocol import Hello, Reply, absent_code

RELEASED = Absent(Why.RELEASED, "a driver upgrade")
NAME, UUID = Question("Name"), Question("UUID")
Says = Callable[[str | None, Sequence[Question]], list[Answer]]


def well(scope: str | None, questions: Sequence[Question]) -> list[Answer]:
    """Two GPUs, by index or UUID."""
    index = (scope or "").removeprefix("index:").removeprefix("GPU-")
    values: Mapping[str, Json] = {"Count": 2, "UUID": f"GPU-{index}", "Name": "H200", "PciInfo": {}}
    return [Answer(values.get(one.call, 1), 1.0) for one in questions]


@dataclass
class Drawn:
    """A child that says what a test wants, and dies if it can be killed."""

    says: Says = well
    hello_: Hello | Exception = field(default_factory=Hello)
    pid: int = 7
    kills: bool = True
    ends: bool = True
    lives: bool = True
    broken: str = ""
    heard: list[str] = field(default_factory=list)

    def hello(self, deadline: float) -> Hello:
        self.heard.append(f"hello {deadline:g}")
        if isinstance(self.hello_, Exception):
            raise self.hello_
        return self.hello_

    def ask(self, job: bytes, deadline: float) -> Reply:
        scope, questions = protocol.decode_job(job)
        self.heard.append(f"ask {deadline:g}")
        return Reply(tuple(self.says(scope, questions)), 0.5, self.broken)

    def close(self, patience: float = 1.0) -> bool:
        self.heard.append(f"close {patience:g}")
        self.lives = self.lives and not self.ends
        return not self.lives

    def kill(self) -> bool:
        self.shoot()
        return not self.lives

    def shoot(self) -> None:
        self.heard.append("shoot")
        self.lives = self.lives and not self.kills

    def alive(self) -> bool:
        return self.lives

    def gone(self) -> bool:
        return not self.lives


class Node:
    """A supervisor with these children, one after the other."""

    def __init__(self, *children: Drawn) -> None:
        self.time, self.children, self.started = Time(), children, 0
        self.backoff = Quarantine(Delay(10.0, 100.0), self.time)
        self.supervisor = Supervisor(self.start, 3.0, self.backoff)

    def start(self) -> NvmlChild:
        self.started += 1
        return self.children[self.started - 1]


def job() -> bytes:
    return protocol.encode_job(None, (NAME,))


def test_a_child_that_is_ready_is_started_once() -> None:
    node = Node(Drawn())
    assert (node.supervisor.pid, node.supervisor.ready(), node.supervisor.ready()) == (None, None, None)
    assert (node.started, node.supervisor.session, node.supervisor.pid) == (1, 1, 7)
    assert node.children[0].heard == ["hello 3"]
    assert node.supervisor.ask(job(), 5.0).answers == (Answer("H200", 1.0),)
    assert node.supervisor.living() == (7,)
    assert node.supervisor.close(0.5)
    assert (node.children[0].heard[-1], node.supervisor.pid, node.supervisor.living()) == (
        "close 0.5", None, (),
    )  # fmt: skip
    assert node.supervisor.close()


def test_a_child_that_has_ended_is_replaced() -> None:
    node = Node(Drawn(), Drawn(pid=8))
    node.supervisor.ready()
    node.children[0].lives = False
    assert node.supervisor.living() == ()
    assert (node.supervisor.ready(), node.supervisor.pid, node.supervisor.session) == (None, 8, 2)


@pytest.mark.parametrize(
    ("why", "hello", "absent"),
    [
        ("NVML refuses", Hello(12, "x"), absent_code(12)),
        ("no word in time", ChildHung(), Absent(Why.TIMEOUT, "NVML did not initialise within 3 s")),
        ("it died", ChildDied("it died"), Absent(Why.LOST, "it died while it started")),
    ],
)
def test_a_child_that_does_not_come_up_is_dropped_and_waited_for(
    why: str, hello: Hello | Exception, absent: Absent, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(Drawn(hello_=hello), Drawn(hello_=hello), Drawn(pid=8))
    assert node.supervisor.ready() == absent, why
    assert len(caplog.records) == 1
    assert (node.children[0].heard[-1], node.children[0].lives) == ("shoot", False)
    assert (node.supervisor.ready(), node.started, node.supervisor.session) == (absent, 1, 0)
    node.time.seconds = 11.0
    assert (node.supervisor.ready(), node.started) == (absent, 2)
    node.time.seconds = 30.0
    assert (node.supervisor.ready(), node.started) == (absent, 2)
    node.time.seconds = 32.0
    assert (node.supervisor.ready(), node.supervisor.session) == (None, 1)
    assert node.backoff.suspects(NODE) is None
    assert [one.message for one in caplog.records] == [f"NVML cannot be used: {absent}"]


def test_one_process_that_cannot_be_killed_is_left_behind_and_two_are_too_many() -> None:
    node = Node(Drawn(kills=False), Drawn(pid=8, kills=False), Drawn(pid=9))
    for _ in range(2):
        assert node.supervisor.ready() is None
        assert not node.supervisor.drop()
    assert (node.supervisor.stuck, node.supervisor.living()) == (2, (7, 8))
    absent = node.supervisor.ready()
    assert absent is not None
    assert absent.detail == "two killed NVML processes hang in the driver; not starting a third"
    node.children[0].lives = False
    assert (node.supervisor.stuck, node.supervisor.living(), node.supervisor.ready()) == (1, (8,), None)
    assert node.supervisor.caught()
    node.children[1].lives = False
    assert not node.supervisor.caught()


def gone_once(child: Drawn, *, noticed: bool = True) -> Says:
    def says(_scope: str | None, _questions: Sequence[Question]) -> list[Answer]:
        child.lives = not noticed
        raise ChildGone("the NVML process died")

    return says


def test_a_child_that_was_gone_before_the_job_is_replaced_once() -> None:
    node = Node(Drawn(), Drawn(pid=8))
    node.children[0].says = gone_once(node.children[0])
    node.supervisor.ready()
    assert node.supervisor.ask(job(), 5.0).answers == (Answer("H200", 1.0),)
    assert node.supervisor.pid == 8
    unnoticed = Node(Drawn(), Drawn(pid=8))
    unnoticed.children[0].says = gone_once(unnoticed.children[0], noticed=False)
    unnoticed.supervisor.ready()
    assert unnoticed.supervisor.ask(job(), 5.0).answers == (Answer("H200", 1.0),)
    again = Node(Drawn(), Drawn(hello_=Hello(12, "x")))
    again.children[0].says = gone_once(again.children[0])
    again.supervisor.ready()
    with pytest.raises(ChildDied, match=r"died and cannot be started again: .*libnvidia-ml"):
        again.supervisor.ask(job(), 5.0)


def test_nothing_is_started_while_it_is_withheld() -> None:
    node = Node(Drawn())
    node.supervisor.withheld = RELEASED
    assert (node.supervisor.ready(), node.started) == (RELEASED, 0)


@pytest.mark.parametrize(("kills", "failures"), [(True, None), (False, RELEASED)])
def test_a_child_that_comes_up_while_it_is_withheld_is_killed_and_blamed_for_nothing(
    failures: Absent | None, *, kills: bool
) -> None:
    node = Node(Drawn(kills=kills))

    def start() -> NvmlChild:
        node.supervisor.withheld = RELEASED
        return node.start()

    node.supervisor = Supervisor(start, 3.0, node.backoff)
    assert node.supervisor.ready() == RELEASED
    assert node.children[0].heard == ["shoot"]
    assert node.backoff.suspects(NODE) == failures


def test_a_release_during_the_first_word_is_the_reason_and_no_failure() -> None:
    child = Drawn(hello_=ChildDied("it was killed"))
    node = Node(child)
    hello = child.hello

    def withheld(deadline: float) -> Hello:
        node.supervisor.withheld = RELEASED
        return hello(deadline)

    child.hello = withheld  # type: ignore[method-assign]
    assert node.supervisor.ready() == RELEASED
    assert node.backoff.suspects(NODE) is None


@pytest.mark.parametrize(
    ("turns", "done", "shots"), [([True], True, 1), ([False, True], True, 2), ([False], False, 1)]
)
def test_a_child_is_shot_until_the_lock_is_there_or_the_time_is_over(
    turns: list[bool], shots: int, *, done: bool
) -> None:
    node, waited = Node(Drawn(kills=False)), list[float]()
    node.supervisor.ready()

    def turn(seconds: float) -> bool:
        waited.append(seconds)
        return turns.pop(0)

    assert node.supervisor.shoot(turn, 60.0 if done else -1.0) is done
    assert node.children[0].heard.count("shoot") == shots == len(waited)
    assert set(waited) == {0.05}


class Process:
    """Stands for a started program: it ends when its input is closed, if it does, or when it is killed."""

    def __init__(self, *, ends: bool) -> None:
        self.stdin, self.stdout = io.BytesIO(), io.BytesIO()
        self.pid, self.ends = 4711, ends
        self.code: int | None = None
        self.waited: list[float] = []

    def wait(self, timeout: float) -> int:
        self.waited.append(timeout)
        if self.code is None and not (self.ends and self.stdin.closed):
            raise subprocess.TimeoutExpired("x", timeout)
        self.code = 0 if self.code is None else self.code
        return self.code

    def poll(self) -> int | None:
        return self.code


class Started(Child):
    """A child over such a program."""

    def __init__(self, process: Process, *, kills: bool = True) -> None:
        self._process: Any = process
        self.sent: list[int] = []

        def kill(_pid: int, number: int) -> None:
            self.sent.append(number)
            process.code = -number if kills else None

        self._kill = kill


@pytest.mark.parametrize(
    ("why", "ends", "kills", "closed", "sent"),
    [
        ("it ends by itself", True, True, True, []),
        ("it has to be killed", False, True, True, [9]),
        ("it cannot be killed", False, False, False, [9]),
    ],
)
def test_a_child_is_killed_only_when_it_does_not_end(
    why: str, sent: list[int], *, ends: bool, kills: bool, closed: bool
) -> None:
    program = Process(ends=ends)
    child = Started(program, kills=kills)
    assert child.close(0.2) is closed, why
    assert child.sent == sent
    assert program.waited == [0.2, 1.0][: len(program.waited)]
    assert child.gone() is closed
    assert child.alive() is not closed
    assert program.stdin.closed
    assert program.stdout.closed
    child.shoot()
    assert len(child.sent) == len(sent) + (not closed)


@pytest.mark.parametrize(
    ("code", "how"),
    [(0, "died (exit status 0)"), (3, "died (exit status 3)"), (-11, "died (SIGSEGV)"),
     (None, "closed its pipe")],
)  # fmt: skip
def test_the_end_of_a_child_is_said_as_people_say_it(code: int | None, how: str) -> None:
    program = Process(ends=False)
    program.code = code
    assert Started(program)._how() == f"the NVML process {how}"  # noqa: SLF001


def test_the_pipes_of_a_child_are_closed_once_it_is_known_to_have_ended() -> None:
    killed, gone, alive = (Process(ends=False) for _ in range(3))
    assert Started(killed).kill()
    gone.code = 0
    assert Started(gone).gone()
    assert not Started(alive).gone()
    assert [one.stdin.closed and one.stdout.closed for one in (killed, gone, alive)] == [True, True, False]


# --- the client


class Asked:
    """A client with these children."""

    def __init__(self, *children: Drawn) -> None:
        self.time, self.children, self.started = Time(), children, 0
        limits = Limits(restart=Delay(1.0, 30.0), leave_out=Delay(10.0, 600.0), lost=Delay(60.0, 600.0))
        self.nvml = NvmlClient(None, limits, self.start, self.time)

    def start(self, source: protocol.Source) -> NvmlChild:
        assert source == protocol.Source()
        self.started += 1
        return self.children[self.started - 1]

    def value(self, scope: str | None, question: Question = NAME) -> object:
        (answer,) = self.nvml.ask(scope, [question])
        return answer.value


def refusing(code: int, scope: str, but: str = "") -> Says:
    """Two GPUs, of which one answers with a code, but to this question."""

    def says(where: str | None, questions: Sequence[Question]) -> list[Answer]:
        answers = well(where, questions)
        if where not in {scope, scope.replace("index:", "GPU-")}:
            return answers
        return [
            answer if question.call == but else Answer(absent_code(code))
            for question, answer in zip(questions, answers, strict=True)
        ]

    return says


def hanging(scope: str) -> Says:
    def says(where: str | None, questions: Sequence[Question]) -> list[Answer]:
        if where == scope:
            raise ChildHung
        return well(where, questions)

    return says


def test_gpus_are_listed_once_a_session_and_again_in_the_next() -> None:
    node = Asked(Drawn(), Drawn(pid=8))
    first = node.nvml.gpus()
    assert not isinstance(first, Absent)
    assert [(gpu.index, gpu.uuid) for gpu in first] == [(0, "GPU-0"), (1, "GPU-1")]
    asked = len(node.children[0].heard)
    assert node.nvml.gpus() == first
    assert len(node.children[0].heard) == asked
    node.nvml.close()
    assert node.nvml.cost().pid is None
    assert node.nvml.gpus() == first
    assert (node.nvml.session(), node.nvml.cost().restarts, node.nvml.cost().pid) == (2, 1, 8)
    assert node.nvml.cost().seconds == 3.0
    assert NvmlClient(None, Limits(), node.start).cost().restarts == 0


def test_gpus_are_listed_again_after_a_child_was_replaced_between_two_lists() -> None:
    node = Asked(Drawn(), Drawn(lambda *asked: [*map(three, well(*asked))], pid=8))
    node.nvml.gpus()
    node.children[0].lives = False
    assert node.value("index:0") == "H200"
    found = node.nvml.gpus()
    assert not isinstance(found, Absent)
    assert len(found) == 3


def three(answer: Answer) -> Answer:
    """Where there were two GPUs are three."""
    return Answer(3, answer.us) if answer.value == 2 else answer


def test_a_client_has_its_source_and_limits_or_those_of_a_machine() -> None:
    for given, limits, seconds in (
        (protocol.Source("x"), Limits(job=9.0), "9"), (None, None, "5"),
    ):  # fmt: skip
        child, sources = Drawn(), list[protocol.Source]()

        def start(source: protocol.Source, child: Drawn = child, sources: Any = sources) -> NvmlChild:
            sources.append(source)
            return child

        NvmlClient(given, limits, start).ask(None, [NAME])
        assert sources == [given or protocol.Source()]
        assert child.heard == ["hello 30", f"ask {seconds}"]


class Turns:
    """A lock that gives itself as often as a test says, and counts; `held` is done whenever it is."""

    def __init__(self, *given: bool, held: Callable[[], None] = lambda: None) -> None:
        self.given, self.held, self.taken, self.released = list(given), held, 0, 0
        self.waited: list[float] = []

    def acquire(self, _blocking: bool = True, timeout: float = -1.0) -> bool:  # noqa: FBT001, FBT002
        self.waited.append(timeout)
        return self.given.pop(0) if self.given else False

    def release(self) -> None:
        self.released += 1

    def __enter__(self) -> None:
        self.taken += 1
        self.held()

    def __exit__(self, *_: object) -> None:
        self.released += 1


def locked(node: Asked, lock: Turns) -> Turns:
    node.nvml._lock = lock  # type: ignore[assignment]  # noqa: SLF001
    return lock


def withhold(node: Asked) -> None:
    node.nvml._supervisor.withheld = RELEASED  # noqa: SLF001


@pytest.mark.parametrize("what", ["ask", "gpus", "close", "resume"])
def test_one_thread_at_a_time_talks_to_nvml(what: str) -> None:
    node = Asked(Drawn())
    lock = locked(node, Turns())
    getattr(node.nvml, what)(*((None, [NAME]) if what == "ask" else ()))
    assert (lock.taken, lock.released) == (1, 1)


def test_nobody_waits_for_a_lock_while_the_gpus_are_released() -> None:
    node = Asked(Drawn())
    withhold(node)
    lock = locked(node, Turns())
    assert (node.value("index:0"), node.nvml.gpus(), lock.taken) == (RELEASED, RELEASED, 0)


def test_who_gets_the_lock_after_a_release_asks_nothing() -> None:
    node = Asked(Drawn())
    node.nvml.gpus()
    asked = list(node.children[0].heard)
    locked(node, Turns(held=lambda: withhold(node)))
    assert node.value("index:0") == RELEASED
    node.nvml._supervisor.withheld = None  # noqa: SLF001
    assert node.nvml.gpus() == RELEASED
    assert node.children[0].heard == asked


def test_a_release_in_the_middle_of_a_list_is_the_answer_and_ends_the_questions() -> None:
    child = Drawn()
    node = Asked(child, Drawn(pid=8))

    def says(where: str | None, questions: Sequence[Question]) -> list[Answer]:
        withhold(node)
        return well(where, questions)

    child.says = says
    assert node.nvml.gpus() == RELEASED
    assert child.heard == ["hello 30", "ask 5"]
    child.says = well
    node.nvml.resume()
    found = node.nvml.gpus()
    assert not isinstance(found, Absent)
    assert [gpu.absent for gpu in found] == [None, None]


@pytest.mark.parametrize(
    ("why", "given", "heard", "living", "released"),
    [
        ("idle", [True], ["close 0.3"], (), 1),
        ("a question is out", [False, True], ["shoot", "close 0.3"], (), 1),
        ("a question hangs for ever", [False, False], ["shoot"], (7,), 0),
    ],
)
def test_a_release_waits_a_moment_then_kills(
    why: str, given: list[bool], heard: list[str], living: tuple[int, ...], released: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(process, "KILL_WAIT", 60.0 if given[-1] else -1.0)
    node = Asked(Drawn(kills=given[-1]))
    node.nvml.gpus()
    before = len(node.children[0].heard)
    lock = locked(node, Turns(*given))
    assert node.nvml.release("a driver upgrade") == living, why
    assert (node.children[0].heard[before:], lock.released) == (heard, released)
    assert lock.waited == [0.3, 0.05][: len(given)]


def test_a_gpu_that_did_not_answer_is_asked_who_it_is_at_the_next_look() -> None:
    child = Drawn(refusing(3, "index:1"))
    node = Asked(child)
    first = node.nvml.gpus()
    assert not isinstance(first, Absent)
    assert [gpu.absent is None for gpu in first] == [True, False]
    child.says = well
    found = node.nvml.gpus()
    assert not isinstance(found, Absent)
    assert [(gpu.uuid, gpu.absent) for gpu in found] == [("GPU-0", None), ("GPU-1", None)]


def test_a_gpu_goes_by_one_name_however_it_is_asked() -> None:
    node = Asked(Drawn(), Drawn(pid=8), Drawn(pid=9))
    node.nvml.gpus()
    node.children[0].says = hanging("index:1")
    hung = node.value("index:1")
    assert isinstance(hung, Absent)
    assert hung.detail == "NVML did not answer within 5 s; left out for a while"
    assert (node.value("GPU-1"), node.value("GPU-0"), node.value("index:7")) == (hung, "H200", "H200")
    node.time.seconds = 11.0
    assert node.value("GPU-1") == "H200"


def test_a_gpu_at_which_a_process_hangs_is_left_out_while_that_lives() -> None:
    node = Asked(Drawn(hanging("index:1"), kills=False), Drawn(pid=8))
    hung = node.value("index:1")
    node.time.seconds = 3600.0
    assert (node.value("index:1"), node.value("index:0")) == (hung, "H200")
    node.children[0].lives = False
    assert node.value("index:1") == "H200"
    gone = Asked(Drawn(hanging("index:1")), Drawn(pid=8))
    assert isinstance(gone.value("index:1"), Absent)
    gone.time.seconds = 11.0
    assert gone.value("index:1") == "H200"


def test_a_child_that_dies_costs_the_gpu_that_was_asked() -> None:
    def dying(_where: str | None, _questions: Sequence[Question]) -> list[Answer]:
        raise ChildDied("it died")

    node = Asked(Drawn(dying), Drawn(pid=8))
    assert node.value("index:1") == Absent(Why.LOST, "it died while it was asked; left out for a while")
    assert node.value("index:0") == "H200"


def test_who_has_answered_is_waited_for_the_shortest_time_again() -> None:
    node = Asked(Drawn(hanging("index:1")), Drawn(pid=8), Drawn(pid=9))
    assert isinstance(node.value("index:1"), Absent)
    node.time.seconds = 11.0
    assert node.value("index:1") == "H200"
    node.children[1].says = hanging("index:1")
    assert isinstance(node.value("index:1"), Absent)
    node.time.seconds = 22.0
    assert node.value("index:1") == "H200"


@pytest.mark.parametrize(("code", "session"), [(1, 2), (9, 2), (18, 2), (3, 1), (15, 1)])
def test_only_some_codes_end_the_session(code: int, session: int, caplog: pytest.LogCaptureFixture) -> None:
    node = Asked(Drawn(refusing(code, "index:1")), Drawn(pid=8))
    assert node.value("index:1") == absent_code(code)
    assert node.value("index:0") == "H200"
    assert node.nvml.session() == session
    said = [one.message for one in caplog.records if one.levelno == logging.WARNING]
    assert len(said) == session - 1


@pytest.mark.parametrize(("code", "session"), [(15, 2), (16, 2), (3, 1)])
def test_a_gpu_that_is_lost_is_looked_for_in_a_new_session_after_a_while(code: int, session: int) -> None:
    node = Asked(Drawn(refusing(code, "index:1")), Drawn(pid=8))
    node.nvml.gpus()
    node.nvml.gpus()
    node.time.seconds = 59.0
    node.nvml.gpus()
    assert node.nvml.session() == 1
    node.time.seconds = 61.0
    found = node.nvml.gpus()
    assert not isinstance(found, Absent)
    assert node.nvml.session() == session
    assert (found[1].absent is None) is (session == 2)
    node.time.seconds = 3600.0
    node.nvml.gpus()
    assert node.nvml.session() == session


def test_a_reply_that_is_broken_is_raised_and_blames_no_gpu() -> None:
    child = Drawn()
    node = Asked(child)
    child.broken = "a bug of ours"
    with pytest.raises(RuntimeError, match="a bug of ours"):
        node.value("index:1")
    child.broken = ""
    assert node.value("index:1") == "H200"


def test_no_question_starts_nothing() -> None:
    node = Asked()
    assert (list(node.nvml.ask("index:0", [])), node.started) == ([], 0)


def test_an_idle_child_ends_by_itself_when_the_gpus_are_released() -> None:
    node = Asked(Drawn(), Drawn(pid=8))
    node.nvml.gpus()
    assert node.nvml.release("a driver upgrade") == ()
    assert node.children[0].heard[-1] == "close 0.3"
    assert "shoot" not in node.children[0].heard
    assert node.value("index:0") == node.nvml.gpus() == RELEASED
    assert node.started == 1
    node.nvml.resume()
    assert node.value("index:0") == "H200"
    assert node.nvml.session() == 2


def test_one_that_does_not_end_still_holds_gpus() -> None:
    node = Asked(Drawn(ends=False, kills=False))
    node.nvml.gpus()
    assert node.nvml.release("a driver upgrade") == (7,)


def test_a_question_that_is_killed_for_a_release_leaves_no_gpu_out() -> None:
    child = Drawn()
    node = Asked(child, Drawn(pid=8))
    node.nvml.gpus()

    def released(_where: str | None, _questions: Sequence[Question]) -> list[Answer]:
        node.nvml._supervisor.withheld = RELEASED  # noqa: SLF001
        raise ChildDied("it was killed")

    child.says = released
    assert node.value("index:1") == RELEASED
    node.nvml._supervisor.withheld = None  # noqa: SLF001
    assert node.value("index:1") == "H200"


def test_after_a_release_only_what_hangs_for_ever_stays_left_out() -> None:
    node = Asked(Drawn(hanging("index:1"), kills=False), Drawn(pid=8), Drawn(pid=9))
    hung = node.value("index:1")
    node.nvml.release("a driver upgrade")
    node.nvml.resume()
    assert node.value("index:1") == hung
    node.children[0].lives = False
    node.nvml.release("a driver upgrade")
    node.nvml.resume()
    assert node.value("index:1") == "H200"


@pytest.mark.parametrize(("kills", "left_out"), [(True, False), (False, True)])
def test_a_question_that_cannot_be_killed_for_a_release_leaves_its_gpu_out(
    *, kills: bool, left_out: bool
) -> None:
    child = Drawn(kills=kills)
    node = Asked(child, Drawn(pid=8))

    def released(_where: str | None, _questions: Sequence[Question]) -> list[Answer]:
        withhold(node)
        raise ChildDied("it was killed")

    child.says = released
    node.value("index:1")
    node.nvml._supervisor.withheld = None  # noqa: SLF001
    assert isinstance(node.value("index:1"), Absent) is left_out


def looked(node: Asked, seconds: float, times: int = 1) -> int:
    """The session after some looks at that time."""
    node.time.seconds = seconds
    for _ in range(times):
        node.nvml.gpus()
    return node.nvml.session()


def test_a_gpu_that_was_found_again_is_waited_for_anew_when_it_is_lost_again() -> None:
    lost = refusing(15, "index:1")
    node = Asked(Drawn(lost), Drawn(pid=8), Drawn(pid=9))
    assert looked(node, 0.0, times=2) == 1
    assert node.value("index:0") == "H200"
    assert (looked(node, 61.0), looked(node, 200.0)) == (2, 2)
    node.children[1].says = lost
    node.value("index:1")
    assert (looked(node, 200.0), looked(node, 259.0), looked(node, 261.0)) == (2, 2, 3)


def test_a_gpu_that_is_due_and_not_listed_is_looked_for_as_one_that_is_lost() -> None:
    node = Asked(Drawn(), Drawn(pid=8), Drawn(pid=9))
    node.nvml.gpus()
    node.nvml.seek()
    assert looked(node, 0.0) == 1
    assert (looked(node, 59.0), looked(node, 61.0), looked(node, 3600.0)) == (1, 2, 2)
    node.nvml.seek()
    assert (looked(node, 3600.0), looked(node, 3661.0)) == (2, 3)


def test_a_gpu_that_is_lost_after_a_release_is_waited_for_anew() -> None:
    lost = refusing(15, "index:1")
    node = Asked(Drawn(lost), Drawn(lost, pid=8), Drawn(pid=9))
    assert looked(node, 0.0, times=2) == 1
    node.nvml.release("a driver upgrade")
    node.nvml.resume()
    assert (looked(node, 50.0, times=2), looked(node, 65.0), looked(node, 111.0)) == (2, 2, 3)


def test_after_a_release_what_was_waited_for_is_tried_at_once() -> None:
    node = Asked(Drawn(hello_=Hello(12, "x")), Drawn(refusing(15, "index:1")), Drawn(pid=9))
    assert node.nvml.gpus() == absent_code(12)
    node.nvml.release("a driver upgrade")
    node.nvml.resume()
    node.nvml.gpus()
    node.nvml.gpus()
    assert node.nvml.session() == 1
    node.nvml.release("a driver upgrade")
    node.nvml.resume()
    found = node.nvml.gpus()
    assert not isinstance(found, Absent)
    assert found[1].absent is None
    node.nvml.gpus()
    assert node.nvml.session() == 2


def test_a_kill_at_the_end_waits_for_nothing() -> None:
    node = Asked(Drawn())
    node.nvml.gpus()
    node.nvml.kill()
    assert node.children[0].heard[-1] == "shoot"
    node = Asked(Drawn())
    node.nvml.gpus()
    node.nvml.stop()
    assert node.children[0].heard[-1] == "close 0.3"
