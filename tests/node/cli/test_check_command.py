"""`wirewatch check` in this process: its options, and what it does on the way to an answer."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.patience import HANGS
from wirewatch.cli import cli
from wirewatch.cli.check import command, polling
from wirewatch.cli.check.answer import CONFIGURED, GatePolicy, Grounds, Terms
from wirewatch.cli.check.command import Attempt, CheckRequest, Healths, Work
from wirewatch.cli.check.daemon import OF_DEMO, DaemonAddress
from wirewatch.cli.check.gpus import JobGpus
from wirewatch.core.types import Finding, Health, Subject
from wirewatch.documents.health import CheckFinding, ProbeStatus

LATE = 1e12
"""A deadline that no test reaches."""


# --- options


@pytest.mark.parametrize(
    ("given", "healths"),
    [
        ("failed", {Health.FAILED}),
        ("Unknown , degraded", {Health.FAILED, Health.UNKNOWN, Health.DEGRADED}),
        (frozenset({Health.OK}), {Health.OK}),
    ],
)
def test_healths_are_names_and_failed_always_belongs_to_them(given: Any, healths: set[Health]) -> None:
    assert Healths().convert(given, None, None) == healths


@pytest.mark.parametrize("given", ["", "ok", "failed,,unknown", "bad"])
def test_what_is_no_health_is_refused(given: str) -> None:
    with pytest.raises(click.BadParameter, match="is not one of"):
        Healths().convert(given, None, None)


def checked(patch: pytest.MonkeyPatch, *words: str, began: float | None = None) -> tuple[Any, str]:
    """What the command would do, and what it prints; it ends with 2 where it refuses."""
    noted: list[Any] = []

    def answer(*given: Any, **more: bool) -> int:
        noted.append((*given, more))
        return 3

    patch.setattr(command, "_answer", answer)
    done = CliRunner().invoke(cli, words, obj=began)
    assert done.exit_code == (3 if noted else 2), done.output
    return (noted[0] if noted else None), done.output


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ((), 2.55), (("--replay", "h200x8"), 59.5), (("--deadline", "1s"), 0.85),
        (("--deadline", "10s"), 9.5), (("--replay", "h200x8", "--deadline", "2s"), 1.7),
    ],
)  # fmt: skip
def test_the_deadline_counts_from_when_the_process_began(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], seconds: float
) -> None:
    (request, *_), _ = checked(monkeypatch, "check", *words, began=1000.0)
    assert request.end == pytest.approx(1000.0 + seconds)
    before = time.monotonic()
    (request, *_), _ = checked(monkeypatch, "check", *words)
    assert request.end >= before + seconds


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("--overlay", "gpu-lost"), "--overlay changes a recording"),
        (("--overlay", "gpu-lost", "--replay", "h200x8"), ""),
        (("--cached", "--replay", "h200x8"), "--cached polls nothing"),
        (("--cached", "--owner", "slurm:7"), "--cached polls nothing"),
        (("--owner", "slurm:7", "--replay", "h200x8"), ""),
        (("--cached",), ""),
    ],
)
def test_what_cannot_be_meant_together_is_refused(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], refused: str
) -> None:
    noted, text = checked(monkeypatch, "check", *words)
    assert (noted is None, refused in text) == (bool(refused), True)


def test_all_options_reach_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--fail-on", "degraded", "--max-age", "2h", "--require-fresh-probe", "--json")
    node = (
        "--owner",
        "slurm:7",
        "--replay",
        "h200x8",
        "--overlay",
        "gpu-lost",
        "--config",
        "w",
        "--socket",
        "s",
        "--gpus",
        "0-3",
        "--of",
        "8",
    )
    (request, terms, job, more), _ = checked(monkeypatch, "-v", "check", *words, *node)
    assert replace(request, end=0.0) == CheckRequest(
        0.0, Path("w"), "s", 7200.0, "slurm:7", cached=False, replay="h200x8", overlays=("gpu-lost",)
    )
    assert terms == Terms(frozenset({Health.FAILED, Health.DEGRADED}), 7200.0, require=True)
    assert (job, more) == (JobGpus("0-3", 8), {"as_json": True, "verbose": True})
    (_, terms, job, more), _ = checked(monkeypatch, "check")
    assert (terms, job, more) == (Terms(), None, {"as_json": False, "verbose": False})


# --- an attempt


class Node:
    """A node that can be polled: what it knows, and what was done with it."""

    def __init__(self, patch: pytest.MonkeyPatch, **known: Any) -> None:
        self.done: list[Any] = []
        self._known = known
        patch.setattr(polling, "CheckedNode", self._opened)

    def _opened(self, source: Any, *, keep: bool) -> "Node":
        self.done.append((source.replay, keep))
        return self

    def poll(self) -> "Node":
        return self

    def run(self, end: float) -> None:
        self.done.append(("run", end))

    def grounds(self, why: str) -> Grounds:
        return Grounds(Health.OK, "own", why, probe=self._known.get("known"))

    def last_probe(self) -> Any:
        return self._known.get("last", (None, ()))

    def probe(self, owner: str, end: float) -> Any:
        self.done.append((owner, end))
        return self._known["asked"]

    def stop(self) -> None:
        self.done.append("stopped")

    def kill(self) -> None:
        self.done.append("killed")


def attempt(**request: Any) -> Attempt:
    return Attempt(CheckRequest(**{"end": LATE, **request}), lambda: None)


def daemon(
    patch: pytest.MonkeyPatch, answer: Grounds | str, demo: bool = False, policy: GatePolicy = CONFIGURED  # noqa: FBT001, FBT002
) -> list[Any]:  # fmt: skip
    """A daemon that answers so; returns the seconds that it was given."""
    given: list[Any] = []

    def ask(_socket: str, seconds: float, _hear: Callable[[str], None]) -> Grounds | str:
        given.append(seconds)
        return answer

    patch.setattr(command, "ask_daemon", ask)
    patch.setattr(DaemonAddress, "demo", property(lambda _: demo))
    patch.setattr(command, "daemon_address", lambda *_, **_gate: DaemonAddress("/s", policy))
    return given


STRICT = GatePolicy(True, frozenset({Health.FAILED}))  # noqa: FBT003


@pytest.mark.parametrize(
    ("answer", "demo", "cached", "source", "why"),
    [
        (Grounds(Health.OK, "daemon", "fine"), False, False, "daemon", "fine"),
        (Grounds(Health.OK, "daemon", "fine"), True, False, "demo", OF_DEMO),
        ("no answer", False, True, "none", "no answer"),
        ("no answer", False, False, "own", "a poll without the daemon, since no answer"),
    ],
)
def test_who_gives_the_verdict(
    monkeypatch: pytest.MonkeyPatch,
    answer: Grounds | str,
    demo: bool,  # noqa: FBT001
    cached: bool,  # noqa: FBT001
    source: str,
    why: str,
) -> None:
    Node(monkeypatch)
    daemon(monkeypatch, answer, demo, STRICT)
    grounds = attempt(cached=cached).run()
    assert (grounds.source, grounds.why) == (source, why)
    assert (source == "none") is grounds.required


def test_a_recording_is_polled_without_asking_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    node, given = Node(monkeypatch), daemon(monkeypatch, "x")
    grounds = attempt(replay="r").run()
    assert (grounds.why, node.done, given) == ("a poll of recording r", [("r", False), ("run", LATE)], [])


@pytest.mark.parametrize(
    ("cached", "left", "seconds"), [(True, 60.0, 60.0), (False, 60.0, 5.0), (False, 3.0, 1.0)]
)
def test_a_daemon_has_all_the_time_where_nothing_else_can_follow(
    monkeypatch: pytest.MonkeyPatch,
    cached: bool,  # noqa: FBT001
    left: float,
    seconds: float,
) -> None:
    Node(monkeypatch)
    given = daemon(monkeypatch, "x")
    attempt(cached=cached, end=time.monotonic() + left).run()
    assert given == [pytest.approx(seconds, abs=0.3)]


def status(at: float, age: float | None, fresh: bool) -> ProbeStatus:  # noqa: FBT001
    return ProbeStatus(at, age, fresh=fresh, required=False)


OLD, FRESH = status(100.0, 9000.0, fresh=False), status(900.0, 5.0, fresh=True)
FOUND = Finding("probe.busbw", Health.FAILED, Subject(), "slow", "look")


def probed(outcome: str = "ok", *findings: Finding) -> Any:
    made = None if not outcome else SimpleNamespace(outcome=outcome)
    return SimpleNamespace(probed=made, why=f"it is {outcome}", findings=findings, at=1000.0)


@pytest.mark.parametrize(
    ("case", "known", "request_", "why", "fresh"),
    [
        ("no owner asks for it", {"known": OLD}, {"owner": None}, "", False),
        ("the last one is fresh", {"known": FRESH}, {}, "", True),
        ("nothing can be probed", {}, {}, "", None),
        ("it is fresh by the limit of the caller", {"known": OLD}, {"max_age": 9e9}, "", False),
        (
            "it is old by the limit of the caller",
            {"known": FRESH, "asked": probed()},
            {"max_age": 1.0},
            "",
            True,
        ),
        ("the history has a newer one", {"known": OLD, "last": (FRESH, (FOUND,))}, {}, "", True),
        ("it is probed", {"known": OLD, "asked": probed()}, {}, "", True),
        ("the history has but that one", {"known": OLD, "last": (OLD, ()), "asked": probed()}, {}, "", True),
        ("the probe failed", {"known": OLD, "asked": probed("failed")}, {}, "no probe: it is failed", False),
        ("there was no probe", {"known": OLD, "asked": probed("")}, {}, "no probe: it is ", False),
    ],
)
def test_a_probe_is_run_for_an_owner_where_the_last_one_is_old(
    monkeypatch: pytest.MonkeyPatch, case: str, known: dict[str, Any], request_: dict[str, Any], why: str,
    fresh: bool | None,  # noqa: FBT001
) -> None:  # fmt: skip
    node = Node(monkeypatch, **known)
    grounds = attempt(**{"replay": "r", "owner": "slurm:7", **request_}).run()
    assert grounds.why == "; ".join(filter(None, ("a poll of recording r", why))), case
    assert (None if grounds.probe is None else grounds.probe.fresh) is fresh, case
    assert (("slurm:7", LATE - 1.0) in node.done) is ("asked" in known), case
    assert (node.done[0][1], node.done.count(node.done[0])) == ("owner" not in request_, 1), case


def test_a_node_whose_daemon_knows_a_fresh_probe_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, known=FRESH)
    daemon(monkeypatch, Grounds(Health.OK, "daemon", probe=FRESH))
    assert attempt(owner="slurm:7").run().probe == FRESH
    assert node.done == []


def test_a_probe_of_the_history_counts_with_its_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    Node(monkeypatch, known=OLD, last=(FRESH, (FOUND,)))
    grounds = attempt(replay="r", owner="slurm:7").run()
    assert grounds.probe == FRESH
    assert (grounds.health, [one.rule for one in grounds.findings]) == (Health.FAILED, ["probe.busbw"])


@pytest.mark.parametrize(
    ("found", "health", "fresh"),
    [(probed("ok", FOUND), Health.FAILED, True), (probed("failed", FOUND), Health.FAILED, False)],
)
def test_what_a_probe_finds_counts_whether_or_not_it_ended_well(
    monkeypatch: pytest.MonkeyPatch,
    found: Any,
    health: Health,
    fresh: bool,  # noqa: FBT001
) -> None:
    Node(monkeypatch, known=replace(OLD, required=True), asked=found)
    grounds = attempt(replay="r", owner="slurm:7").run()
    assert grounds.probe is not None
    assert (grounds.health, grounds.probe.fresh) == (health, fresh)
    if fresh:
        assert grounds.probe == ProbeStatus(1000.0, 0.0, fresh=True, required=grounds.required)


@pytest.mark.parametrize(
    ("left", "why"), [(10.5, "no probe: 9 s are left, it may take 10 s"), (-5.0, "no probe: 0 s")]
)
def test_a_probe_for_which_there_is_no_time_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, left: float, why: str
) -> None:
    node = Node(monkeypatch, known=OLD)
    grounds = attempt(replay="r", owner="slurm:7", end=time.monotonic() + left).run()
    assert f"; {why}" in grounds.why
    assert len(node.done) == 2


def test_a_released_node_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon(monkeypatch, Grounds(Health.UNKNOWN, "daemon", "released", probe=OLD, released=True))
    node = Node(monkeypatch)
    assert attempt(owner="slurm:7").run().why == "released"
    assert node.done == []


def test_only_a_node_that_was_opened_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    node, settled = Node(monkeypatch), []
    one = Attempt(CheckRequest(LATE, replay="r"), lambda: settled.append(1))
    one.tidy()
    one.kill()
    assert (node.done, settled) == ([], [])
    one.run()
    one.tidy()
    one.kill()
    assert (node.done[2:], settled) == (["stopped", "killed"], [1])


# --- findings of a probe beside the others


def finding(rule: str, health: Any, **subject: Any) -> CheckFinding:
    return CheckFinding("", "", rule, health, subject, "old", "", 0.0)


def test_what_a_probe_finds_takes_the_place_of_the_same_and_stands_by_its_health() -> None:
    before = Grounds(
        Health.DEGRADED, "daemon",
        findings=(finding("a.b", "degraded"), finding("probe.busbw", "degraded"), finding("c.d", "unknown")),
    )  # fmt: skip
    found = vars(command)["_merged"](before, (FOUND,))
    assert [(one.rule, one.evidence) for one in found.findings] == [
        ("probe.busbw", "slow"), ("c.d", "old"), ("a.b", "old"),
    ]  # fmt: skip
    assert found.health is Health.FAILED
    assert vars(command)["_merged"](before, ()).health is Health.DEGRADED
    worse = replace(before, health=Health.FAILED)
    assert vars(command)["_merged"](worse, (replace(FOUND, health=Health.DEGRADED),)).health is Health.FAILED


@pytest.mark.parametrize(("why", "both"), [("", "late"), ("slow", "slow; late")])
def test_a_reason_stands_behind_the_ones_before(why: str, both: str) -> None:
    assert vars(command)["_with"](Grounds(Health.OK, "own", why), "late").why == both


# --- work in a thread


def test_work_gives_its_result_or_what_it_raised_and_then_does_the_rest() -> None:
    rest = threading.Event()
    work = Work(lambda: 7, rest.set)
    assert (work.outcome(HANGS), work.ended(HANGS), rest.is_set()) == (7, True, True)

    def wrong() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Work(wrong, lambda: None).outcome(HANGS)
    hold = threading.Event()
    held = Work(hold.wait, lambda: None)
    with pytest.raises(TimeoutError):
        held.outcome(-1.0)
    assert held.ended(-1.0) is False
    hold.set()


@pytest.mark.parametrize(("hangs", "killed"), [("", False), ("work", True), ("tidying", True)])
def test_what_hangs_is_killed_and_the_answer_is_given_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hangs: str,
    killed: bool,  # noqa: FBT001
) -> None:
    hold, kills = threading.Event(), []

    class One(Attempt):
        def run(self) -> Grounds:
            self.so_far = lambda: Grounds(Health.UNKNOWN, "own", "so far")
            if hangs == "work":
                hold.wait()
            return Grounds(Health.DEGRADED, "own", "done")

        def tidy(self) -> None:
            if hangs == "tidying":
                hold.wait()

        def kill(self) -> None:
            kills.append(1)

    monkeypatch.setattr(command, "Attempt", One)
    end = time.monotonic() + (0.3 if hangs else HANGS)
    terms = Terms(frozenset({Health.FAILED, Health.UNKNOWN, Health.DEGRADED}))
    code = vars(command)["_answer"](CheckRequest(end), terms, None, as_json=False, verbose=False)
    hold.set()
    assert (code, bool(kills)) == (3 if hangs == "work" else 1, killed)
    assert capsys.readouterr().out == ("UNKNOWN; so far\n" if hangs == "work" else "DEGRADED; done\n")
    hangs, soon = "", CheckRequest(time.monotonic() + HANGS)
    assert vars(command)["_answer"](soon, terms, None, as_json=True, verbose=False) == 1
    assert capsys.readouterr().out.startswith("{")
