"""A prober that is another process, as the agent sees it: good answers, every bad one, what comes of each."""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.node.hw.unixserver import Behaviour, Listen, drain, listening, says
from tests.node.probe.drawn import of_order
from tests.node.probe.idle import Idle
from tests.patience import HANGS
from wirewatch import __version__
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Expect, Health, Why
from wirewatch.hw.host import SystemClock
from wirewatch.probe import remote
from wirewatch.probe.collector import ASK_AGAIN_SECONDS, probe_collector
from wirewatch.probe.gate import GateFacts, Refusal, SkipReason, Stillness, no_gpus, read_facts
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.remote import (
    FactsAnswer,
    FactsRequest,
    HandleRelease,
    LostOrder,
    ProbeAnswer,
    RemoteProber,
    lost_probe,
    terms_of,
)
from wirewatch.probe.request import ProbeOverrides, probe_now
from wirewatch.probe.restore import PROBED
from wirewatch.probe.setup import ProbeRequest, ProbeTerms, Variation, prepare, read_terms

SHORT, SOON = 0.3, HANGS
OPTIONS = ProbeOptions(settle=0.0)
STUDY = Variation("int8", in_place=False, iterations=7, network=True, gpudirect=True, ops=("reduce",))
AWAY = Refusal(SkipReason.PROBER_AWAY, "no such socket")


def http(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


def facts(node: Idle) -> GateFacts:
    return read_facts(node.hardware, node.listed(), slurm=True)


def probed(node: Idle, wanted: ProbeRequest) -> Probed:
    prepared = prepare(node.hardware, wanted, Stillness())
    assert not isinstance(prepared.order, Refusal)
    return of_order(prepared.order, node.clock.now(), "ok")


# --- what crosses


def test_everything_comes_out_as_it_went_in() -> None:
    node = Idle(4)
    node.busy(1, 7, 8)
    node.answer(2, "MigMode", Absent(Why.LOST, "GPU is lost", 15))
    seen = facts(node)
    node = Idle(4)
    wanted = ProbeRequest(
        ProbeOptions(pins={"all_reduce": 1e9}), "daemon", 18, "pod:1", force=True, within=2.5
    )
    terms = read_terms(node.hardware, wanted.options, Expect(nvlink_links=18), "")
    answers: list[tuple[Any, object]] = [
        (remote.FACTS_REQUEST, FactsRequest("auto", live=True)),
        (remote.FACTS_ANSWER, FactsAnswer("nccl", seen, None)),
        (remote.FACTS_ANSWER, FactsAnswer(Absent(Why.MISSING, "none"), None, AWAY)),
        (remote.PROBE_REQUEST, wanted),
        (
            remote.PROBE_REQUEST,
            replace(wanted, variation=STUDY),
        ),
        (remote.PROBE_ANSWER, ProbeAnswer(seen, None, probed(node, wanted))),
        (remote.PROBE_ANSWER, ProbeAnswer(no_gpus(node.hardware), AWAY, None)),
        (remote.PROBE_TERMS, terms),
        (remote.PROBE_TERMS, Absent(Why.LOST, "gone")),
    ]
    for adapter, value in answers:
        assert adapter.validate_json(adapter.dump_json(value)) == value
    assert isinstance(terms, ProbeTerms)
    assert len(remote.PROBE_REQUEST.dump_json(wanted)) < 4096


def test_a_vanished_probe_can_be_kept_and_read_again() -> None:
    node = Idle(2)
    gone = lost_probe(LostOrder("no answer", 7.0), "nccl", node.listed(), 5.0)
    assert PROBED.validate_json(PROBED.dump_json(gone)) == gone
    assert (gone.outcome, gone.held_seconds, len(gone.gpus)) == ("away", 7.0, 2)


# --- over the socket


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Listen]:
    with listening(tmp_path) as start:
        yield start


def there(path: str) -> RemoteProber:
    return RemoteProber(path, SystemClock(), live=True)


def look(path: str, seconds: float = SOON) -> FactsAnswer | Refusal:
    return there(path).facts("auto", time.monotonic() + seconds)


def attempt(path: str, seconds: float = SOON) -> ProbeAnswer | Refusal | LostOrder:
    return there(path).run(ProbeRequest(OPTIONS, "daemon"), time.monotonic() + seconds)


def test_a_look_is_asked_with_our_version(listen: Listen) -> None:
    node, asked = Idle(2), list[bytes]()

    def behave(client: Any) -> None:
        asked.append(drain(client))
        client.sendall(http(200, remote.FACTS_ANSWER.dump_json(FactsAnswer("nccl", facts(node), None))))

    assert look(listen(behave)) == FactsAnswer("nccl", facts(node), None)
    assert asked[0].startswith(b"POST /look HTTP/1.1\r\n")
    assert f"{remote.VERSION}: {__version__}\r\n".encode() in asked[0]


BAD: list[tuple[Behaviour, str]] = [
    (says(http(200, b"")), "is not understood: Invalid JSON"),
    (says(http(200, b"[]")), "is not understood: "),
    (says(http(200, bytes(range(256)) * 9)), "is not understood: "),
    (
        says(http(200, b'{"engine": "nccl", "facts": null, "refusal": null, "more": 1}')),
        "is not understood: ",
    ),
    (says(http(200, b"[" * 100_000)), "is not understood: "),
    (says(http(404, b"nothing here")), "HTTP status 404"),
    (says(http(500, b"{}")), "HTTP status 500"),
    (says(http(409, b'{"detail": "start both\\u001b[31m again"}')), "start both[31m again"),
    (says(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n"), "what answers there is not wirewatch"),
    (says(b"SSH-2.0-OpenSSH\r\n\r\n"), "what answers there is not wirewatch"),
    (lambda _: None, ""),
    (says(b""), "the prober closed the connection without an answer"),
]


@pytest.mark.parametrize(("behave", "told"), BAD)
def test_a_look_that_comes_to_nothing_is_a_refusal_in_words(
    listen: Listen, behave: Behaviour, told: str
) -> None:
    path = listen(behave)
    refusal = look(path)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is SkipReason.PROBER_AWAY
    assert told in refusal.detail
    assert refusal.detail.startswith(path)
    assert refusal.detail.isprintable()


@pytest.mark.parametrize(("behave", "told"), BAD)
def test_an_order_that_comes_to_nothing_has_vanished_or_was_refused(
    listen: Listen, behave: Behaviour, told: str
) -> None:
    came = attempt(listen(behave))
    assert isinstance(came, Refusal if "HTTP" in told or "both" in told else LostOrder)
    assert told in (came.detail if isinstance(came, Refusal) else came.why)


@pytest.mark.parametrize(
    "behave",
    [lambda _: time.sleep(3), says(http(200, b"x" * 99), piece=1, pause=0.05)],
    ids=["silent", "trickles"],
)
def test_no_answer_holds_us_longer_than_its_time(listen: Listen, behave: Behaviour) -> None:
    path = listen(behave)
    refusal = look(path, SHORT)
    assert isinstance(refusal, Refusal)
    assert "no answer within" in refusal.detail
    assert isinstance(gone := attempt(path, SHORT), LostOrder)
    assert gone.seconds > SHORT / 2
    assert there(path).terms(OPTIONS, Expect(), SHORT).__class__ is Absent


def test_a_result_that_does_not_fit_together_is_none(listen: Listen) -> None:
    node = Idle(2)
    good = probed(node, ProbeRequest(OPTIONS, "daemon"))
    bad = replace(good, plan=replace(good.plan, groups=((0, 7),)))
    came = attempt(
        listen(says(http(200, remote.PROBE_ANSWER.dump_json(ProbeAnswer(facts(node), None, bad)))))
    )
    assert isinstance(came, LostOrder)
    assert "does not fit together" in came.why


def test_one_that_is_not_there_was_never_asked(tmp_path: Path) -> None:
    came = attempt(str(tmp_path / "none"))
    assert isinstance(came, Refusal)
    assert came.detail.endswith("no such socket; is the prober running?")


def test_it_goes_and_comes_in_one_line_each(
    listen: Listen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    answer = http(200, remote.FACTS_ANSWER.dump_json(FactsAnswer("nccl", None, AWAY)))
    path = tmp_path / "0.sock"
    prober = there(str(path))
    for _ in range(3):
        prober.facts("auto", time.monotonic() + SOON)
    listen(says(answer))
    for _ in range(3):
        prober.facts("auto", time.monotonic() + SOON)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


# --- giving way


def let_go(path: str, within: float = SOON) -> HandleRelease:
    prober = there(path)
    prober.give_way("released until noon", 60.0, within)
    told = prober.left(within)
    assert prober.facts("auto", time.monotonic() + SOON) == Refusal(
        SkipReason.PROBER_AWAY, "released until noon"
    )
    return told


def test_what_it_says_of_its_handles_is_passed_on(listen: Listen, tmp_path: Path) -> None:
    assert let_go(listen(says(http(200, b'{"stuck": [], "more": 1}')))) == HandleRelease()
    assert let_go(listen(says(http(200, b'{"stuck": [12, 13]}')))) == HandleRelease((12, 13))
    # Where nobody is, nobody holds anything; where somebody is and says nothing, it is not known.
    assert let_go(str(tmp_path / "none")) == HandleRelease()
    for behave in (
        says(http(200, b"[]")),
        says(http(500, b"{}")),
        says(b""),
        says(http(200, b'{"stuck": 1}')),
    ):
        told = let_go(listen(behave))
        assert (told.stuck, told.unsure != "") == ((), True)
    assert "no answer within" in let_go(listen(lambda _: time.sleep(3)), SHORT).unsure


def test_after_a_release_it_is_asked_again(listen: Listen, tmp_path: Path) -> None:
    answer = http(200, remote.FACTS_ANSWER.dump_json(FactsAnswer("nccl", None, AWAY)))
    prober = there(listen(says(answer)))
    prober.give_way("released", 60.0, SOON)
    prober.left(SOON)
    prober.resume()
    assert prober.facts("auto", time.monotonic() + SOON) == FactsAnswer("nccl", None, AWAY)
    nobody_there = there(str(tmp_path / "none"))
    nobody_there.resume()


# --- the component


@dataclass
class Beside(RemoteProber):
    """A prober that sees what a drawn node shows; `comes` and `sees` change what it answers."""

    node: Idle
    sees: Callable[[FactsAnswer], FactsAnswer | Refusal] = lambda looked: looked
    comes: Callable[[ProbeAnswer], ProbeAnswer | Refusal | LostOrder] = lambda came: came
    wanted: list[ProbeRequest] = field(default_factory=list)
    patience: float = 0.0
    """Seconds for which the newest order was to be waited for."""

    def facts(self, engine: str, until: float) -> FactsAnswer | Refusal:
        assert until > self.node.clock.mono()
        return self.sees(FactsAnswer(self.node.hardware.probe.engine(engine), facts(self.node), None))

    def run(self, wanted: ProbeRequest, until: float) -> ProbeAnswer | Refusal | LostOrder:
        assert wanted.within in {None, 1000.0} or wanted.within < until - self.node.clock.mono()
        self.wanted.append(wanted)
        self.patience = until - self.node.clock.mono()
        # Its own clock stands still.
        now = replace(wanted, options=replace(wanted.options, settle=0.0))
        prepared = prepare(self.node.hardware, now, Stillness())
        if isinstance(prepared.order, Refusal):
            return self.comes(ProbeAnswer(prepared.facts, prepared.order, None))
        return self.comes(ProbeAnswer(prepared.facts, None, self.node.hardware.probe.run(prepared.order)))

    def terms(self, options: ProbeOptions, expect: Expect, within: float = SOON) -> ProbeTerms | Absent:
        assert within > 0
        return read_terms(self.node.hardware, options, expect, "")


def blind(node: Idle) -> Idle:
    """The same node for somebody who sees nobody, has no engine and runs nothing."""
    node.busy(0, 1)
    node.probes.name = Absent(Why.MISSING, "no engine in this container")
    node.probes.result = None
    return node


def watched(count: int = 2, **options: Any) -> tuple[Idle, Beside]:
    """An agent that could probe nothing by itself, and its prober."""
    agent, seen = blind(Idle(count, settle=0.0, probe_interval=60.0, **options)), Idle(count)
    prober = Beside(seen)
    agent.collector = probe_collector(agent.made, agent.rules_used, Expect(nvlink_links=18), None, prober)
    agent.component = replace(agent.component, memory=agent.collector.start)
    return agent, prober


def test_the_prober_s_eyes_and_engine_count_and_the_agent_judges() -> None:
    agent, prober = watched(2)
    agent.poll(3)
    assert (agent.reason(), agent.memory.engine, agent.memory.runs) == ("", "nccl", {"ok": 1})
    wanted = prober.wanted[0]
    assert (wanted.by, wanted.links, wanted.owner, wanted.force) == ("daemon", 18, None, False)
    assert wanted.options == agent.made
    prober.node.knobs = {"speed": 0.5}
    agent.poll(6)
    assert agent.healths()["probe.busbw"] is Health.FAILED
    prober.node.busy(1, 77)
    agent.poll(6)
    assert agent.reason() == "busy"


def test_whoever_comes_between_look_and_order_is_the_prober_s_to_see() -> None:
    agent, prober = watched(2)
    prober.comes = lambda came: replace(came, probed=None, refusal=Refusal(SkipReason.BUSY, "GPU 1"))
    agent.poll(5)
    assert (agent.reason(), agent.memory.runs, len(prober.wanted)) == ("busy", {}, 1)
    agent.poll(1, every=ASK_AGAIN_SECONDS)
    agent.poll(1)
    assert len(prober.wanted) == 2


def test_a_prober_that_is_away_costs_probes_and_nothing_else() -> None:
    agent, prober = watched(2)
    agent.poll(3)
    prober.sees = lambda _: AWAY
    findings = agent.poll(20)
    assert (findings, agent.component.succeeding) == ((), True)
    assert (agent.reason(), agent.memory.engine) == ("prober_away", "nccl")
    assert agent.memory.skips == {SkipReason.PROBER_AWAY: 5}
    assert agent.series("probe_skips_total", reason="prober_away") == [5]
    assert agent.memory.still == Stillness()


def test_one_that_vanishes_is_tried_reported_and_paid_for_and_no_fault() -> None:
    agent, prober = watched(2)
    prober.comes = lambda _: LostOrder("connection reset", 9.0)
    findings = agent.poll(20)
    assert findings == ()
    count = len(prober.wanted)
    # Once in `every` seconds, and no more often: the prober may have died of it.
    assert 4 <= count <= 6
    assert (agent.memory.runs, agent.memory.failures) == ({"away": count}, 0)
    assert agent.memory.gpu_seconds == pytest.approx(2 * 9.0 * count)
    assert agent.memory.past[-1].why == "the prober went away in the middle of it: connection reset"
    agent, prober = watched(2, budget=0.01)
    prober.comes = lambda _: LostOrder("connection reset", 9.0)
    agent.poll(40)
    assert agent.reason() == "budget"


def test_other_gpus_than_ours_are_no_eyes_for_ours() -> None:
    agent, prober = watched(4)
    prober.node = Idle(2)
    agent.poll(2)
    assert agent.reason() == "blind"
    assert "the prober sees 2 GPUs, this agent 4" in (agent.memory.refusal or AWAY).detail
    assert agent.component.applicable is not False
    prober.node = Idle(0)
    agent.poll(2)
    assert (agent.reason(), agent.component.applicable) == ("blind", True)


def test_a_prober_without_an_engine_or_without_nvml_says_so() -> None:
    agent, prober = watched(2)
    prober.node.probes.name = Absent(Why.MISSING, "nothing is installed there")
    agent.poll(1)
    assert agent.reason() == "no_engine"
    prober.sees = lambda _: FactsAnswer("nccl", None, Refusal(SkipReason.BLIND, "no driver"))
    agent.poll(1)
    assert agent.reason() == "blind"


def test_still_is_what_the_agent_has_seen_to_be_still_through_the_prober() -> None:
    agent, prober = watched(2)
    agent.made = replace(agent.made, settle=100.0)
    agent.options(settle=100.0)
    agent.poll(3, every=30.0)
    assert (agent.reason(), prober.wanted) == ("settling", [])
    prober.sees = lambda _: AWAY
    agent.poll(1, every=30.0)
    prober.sees = lambda looked: looked
    agent.poll(3, every=30.0)
    assert (agent.reason(), prober.wanted) == ("settling", [])
    agent.poll(3, every=30.0)
    assert agent.memory.runs == {"ok": 1}


def test_the_agent_s_own_lock_holds_for_the_prober_too() -> None:
    agent, prober = watched(2)
    agent.probes.holder = "pid 12 (an operator)"
    agent.poll(2)
    assert (agent.reason(), prober.wanted) == ("locked", [])


# --- a command


def asked(agent: Idle, prober: Beside, **wish: Any) -> Any:
    return probe_now(
        agent.hardware, ProbeOptions(), ProbePolicy(), Expect(), ProbeOverrides(**wish), None, prober=prober
    )


def test_a_command_has_its_probes_from_the_prober_and_confirms_them() -> None:
    agent, prober = watched(4)
    told = asked(agent, prober, ops=("all_reduce",), owner=None)
    assert (told.health, told.refusal, len(prober.wanted)) == (Health.OK, None, 1)
    wanted = prober.wanted[0]
    assert (wanted.by, wanted.options.ops, wanted.options.settle) == ("command", ("all_reduce",), 0.0)
    prober.node.knobs = {"speed": 0.5}
    told = asked(agent, prober)
    assert (told.health, len(prober.wanted)) == (Health.FAILED, 3)


@pytest.mark.parametrize(
    ("left", "within", "patience"),
    [(10.0, 10.0, 10.8), (1000.0, 1000.0, 110.0), (math.inf, None, 110.0), (-0.5, 0.0, 0.3)],
    ids=["until the end", "no longer than a probe takes", "without an end", "too late"],
)
def test_a_probe_is_over_when_it_has_to_be(left: float, within: float | None, patience: float) -> None:
    agent, prober = watched(2)
    end = agent.hardware.clock.mono() + left
    probe_now(
        agent.hardware, ProbeOptions(), ProbePolicy(), Expect(), ProbeOverrides(), None, end, prober=prober
    )
    assert prober.wanted[0].within == within
    assert prober.patience == pytest.approx(patience)


def test_a_study_is_run_by_the_prober_too() -> None:
    agent, prober = watched(4)
    told = asked(
        agent, prober, ops=("alltoall",), sizes=(1 << 20,), variation=Variation(dtype="int8", network=True)
    )
    assert told.probed is not None
    plan = told.probed.plan
    assert (plan.ops, plan.dtype, plan.bandwidth) == (("alltoall",), "int8", ((1 << 20, 8),))
    assert plan.environment == (("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1"))
    assert prober.wanted[0].options.wrong() == ""
    told = asked(agent, prober, engines=("nccl", "torch"))
    assert [one.options.engine for one in prober.wanted[1:]] == ["nccl", "torch"]
    assert [run.name for run in told.runs] == ["nccl", "torch"]


def test_a_second_look_that_is_refused_takes_nothing_from_the_first() -> None:
    agent, prober = watched(4)
    prober.node.knobs = {"speed": 0.5}
    prober.comes = lambda came: came if len(prober.wanted) == 1 else AWAY
    told = asked(agent, prober)
    assert (told.health, told.refusal, len(prober.wanted)) == (Health.DEGRADED, None, 2)


@pytest.mark.parametrize(
    ("comes", "why"),
    [
        (lambda _: AWAY, "no such socket"),
        (lambda _: LostOrder("connection reset", 1.0), "it went away in the middle of it: connection reset"),
        (lambda came: replace(came, probed=None), "it gave no probe, and no reason"),
    ],
)
def test_a_command_is_told_why_there_is_no_probe(comes: Callable[[ProbeAnswer], Any], why: str) -> None:
    agent, prober = watched(4)
    prober.comes = comes
    told = asked(agent, prober)
    assert (told.health, told.probed) == (Health.UNKNOWN, None)
    assert told.refusal == Refusal(SkipReason.PROBER_AWAY, why)


def test_what_the_daemon_would_measure_is_the_prober_s_word_in_this_boot() -> None:
    agent, prober = watched(2)
    terms = terms_of(agent.hardware, OPTIONS, Expect(), "boot-7", prober)
    assert isinstance(terms, ProbeTerms)
    assert terms.boot_id == "boot-7"
    assert isinstance(terms_of(agent.hardware, OPTIONS, Expect(), "boot-7", None), Absent)


def test_documents_are_json_that_others_can_read() -> None:
    told = json.loads(remote.FACTS_ANSWER.dump_json(FactsAnswer("nccl", facts(Idle(2)), None)))
    assert told["facts"]["uses"][0]["gpu"]["uuid"] == "GPU-0"
