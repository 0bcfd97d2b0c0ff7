"""The prober without a process: which question gets which answer, and when it is too late for one."""

import asyncio
import gc
import signal
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.node.hw.children import until
from tests.patience import HANGS
from tests.support import StillClock
from wirewatch.core.ports import Order
from wirewatch.core.probe import Plan
from wirewatch.core.types import Absent, Why
from wirewatch.daemon import prober
from wirewatch.daemon.prober import BUSY, ENDING, GONE, ProberService
from wirewatch.probe.gate import GateFacts, Refusal, SkipReason, Stillness
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.remote import FactsAnswer, FactsRequest, ProbeAnswer
from wirewatch.probe.setup import Prepared, ProbeRequest
from wirewatch.signals import SIGNALS

OURS = ProbeOptions(kill_after=50.0, unseen_bytes=5, free_bytes=6, ranks=3)
WANTED = ProbeRequest(ProbeOptions(kill_after=40.0), "command", live=False)
FACTS = GateFacts((), (), None, 7.0)
REFUSED = Refusal(SkipReason.BUSY, "somebody is here")


ORDER = Order(Plan("nccl", (), ()), (), (), {}, lambda: None, "command", deadline=30.0)


class Rig:
    """A prober over what a test wants; `wanted` is what the gate was asked, `order` what was run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, source: str = "a recording", **gate: Any) -> None:
        self.closed: list[str] = []
        self.order: Any = None
        self.wanted: ProbeRequest | None = None
        self.gpus: Any = gate.get("gpus", ())
        self._gate = gate
        self.why = gate.get("why", "")
        nvml = SimpleNamespace(gpus=lambda: self.gpus)
        engine = SimpleNamespace(engine=lambda wanted: f"{wanted} here", run=self.run)
        hardware: Any = SimpleNamespace(source=source, nvml=nvml, probe=engine, clock=StillClock())
        monkeypatch.setattr(prober, "prepare", self.prepare)
        monkeypatch.setattr(prober, "read_facts", lambda *_, **__: FACTS)
        monkeypatch.setattr(prober, "watch_users", lambda *_: Stillness())
        monkeypatch.setattr(prober, "read_terms", lambda *asked: asked)
        self._hardware = hardware

    def prepare(self, _hardware: object, wanted: ProbeRequest, still: Stillness) -> Prepared:
        self.wanted = wanted
        return Prepared(FACTS, still, self._gate.get("order", ORDER))

    def run(self, order: Any) -> Any:
        self.order = order
        return SimpleNamespace(outcome="ok", why=self.why, seconds=1.0)

    def told(self, ask: Callable[[ProberService], Awaitable[Any]]) -> Any:
        """The answer to one question."""

        async def main() -> Any:
            service = ProberService(self._hardware, OURS, lambda: self.closed.append("closed"))
            async with asyncio.timeout(HANGS):
                return await ask(service)

        return asyncio.run(main())

    def attempt(self, wanted: ProbeRequest = WANTED, *, gone: bool = False) -> ProbeAnswer:
        async def ask(service: ProberService) -> ProbeAnswer:
            left = asyncio.get_running_loop().create_future()
            if gone:
                left.set_result(None)
                await asyncio.sleep(0)
            return await service.attempt(wanted, left)

        return cast("ProbeAnswer", self.told(ask))


@pytest.mark.parametrize(
    ("source", "live", "engine", "refused"),
    [
        ("live", True, "auto", ""),
        ("a recording", False, "auto", ""),
        ("live", False, "auto", "the prober works on a machine, and its caller on a recording"),
        ("a recording", True, "auto", "the prober works on a recording, and its caller on a machine"),
        ("live", False, "gloo", ""),
    ],
)
def test_both_sides_look_at_the_same_node_or_at_none(
    monkeypatch: pytest.MonkeyPatch, source: str, engine: Any, refused: str, *, live: bool
) -> None:
    rig = Rig(monkeypatch, source)
    users = rig.told(lambda service: service.users(FactsRequest(engine, live=live)))
    wanted = replace(WANTED, live=live, options=replace(WANTED.options, engine=engine))
    refusal = Refusal(SkipReason.PROBER_AWAY, refused) if refused else None
    assert users.refusal == rig.attempt(wanted).refusal == refusal
    assert users.engine == ("" if refused else f"{engine} here")


@pytest.mark.parametrize(
    ("gpus", "reason"),
    [
        (Absent(Why.RELEASED, "for a reset"), SkipReason.LOCKED),
        (Absent(Why.LOST, "no driver"), SkipReason.BLIND),
    ],
)
def test_who_uses_gpus_is_said_or_why_it_is_not_known(
    monkeypatch: pytest.MonkeyPatch, gpus: Absent, reason: SkipReason
) -> None:
    def users(engine: str, gpus: object) -> object:
        asked = FactsRequest(engine, live=False)
        return Rig(monkeypatch, gpus=gpus).told(lambda service: service.users(asked))

    assert users("auto", ()) == FactsAnswer("auto here", FACTS, None)
    refusal = Refusal(reason, f"the prober lists no GPUs: {gpus}")
    assert users("auto", gpus) == FactsAnswer("auto here", None, refusal)
    unseen = replace(FACTS, mono=1000.0, holds=Absent(Why.MISSING, "no GPU is looked at"))
    assert users("gloo", gpus) == FactsAnswer("gloo here", unseen, None)


def test_a_gate_that_is_shut_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, order=REFUSED)
    assert rig.attempt() == ProbeAnswer(FACTS, REFUSED, None)
    assert rig.order is None


@pytest.mark.parametrize(
    ("within", "gone", "deadline", "why"),
    [
        (None, False, 30.0, ""),
        (20.0, False, 20.0, ""),
        (60.0, False, 30.0, ""),
        (-1.0, False, 0.0, "the checks of the gate have taken all the time"),
        (None, True, 0.0, GONE),
        (-1.0, True, 0.0, GONE),
    ],
)
def test_a_probe_ends_by_the_time_of_who_asks_and_not_without_him(
    monkeypatch: pytest.MonkeyPatch, within: float | None, deadline: float, why: str, *, gone: bool
) -> None:
    rig = Rig(monkeypatch)
    came = rig.attempt(replace(WANTED, within=within), gone=gone)
    if why:
        assert came == ProbeAnswer(FACTS, Refusal(SkipReason.PROBER_AWAY, why), None)
        assert rig.order is None
    else:
        assert came.probed is not None
        assert rig.order.deadline == pytest.approx(deadline, abs=HANGS / 10)
        assert rig.order.deadline <= deadline
        assert rig.order.withdrawn() is None


def test_limits_that_keep_jobs_safe_are_the_prober_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.attempt()
    assert rig.wanted is not None
    asked = rig.wanted.options
    assert (asked.unseen_bytes, asked.free_bytes, asked.ranks, asked.kill_after) == (5, 6, 3, 40.0)
    rig.attempt(replace(WANTED, options=ProbeOptions(kill_after=60.0)))
    assert rig.wanted.options.kill_after == 50.0
    terms = rig.told(lambda service: service.terms(replace(WANTED, links=18)))
    assert (terms[1], terms[2].nvlink_links) == (asked, 18)


@pytest.mark.parametrize(("why", "said"), [("", " s"), ("NCCL says no", " s: NCCL says no")])
def test_what_became_of_a_probe_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str, said: str
) -> None:
    caplog.set_level("INFO")
    Rig(monkeypatch, why=why).attempt()
    assert [one.getMessage() for one in caplog.records] == [f"probe ok in 1.0{said}"]


def test_a_prober_at_work_tells_others_so_and_works_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "PATIENCE", 0.01)
    rig = Rig(monkeypatch)
    asked = FactsRequest("auto", live=False)

    async def ask(service: ProberService) -> list[Any]:
        turn = vars(service)["_turn"]
        await turn.acquire()
        never = asyncio.get_running_loop().create_future()
        told: list[Any] = [await service.users(asked), await service.terms(WANTED)]
        told.append(await service.attempt(WANTED, never))
        turn.release()
        return [*told, await service.users(asked)]

    users, terms, attempt, free = rig.told(ask)
    assert users == FactsAnswer("", None, BUSY)
    assert terms == Absent(Why.TIMEOUT, BUSY.detail)
    assert attempt.refusal == BUSY
    assert free.facts == FACTS


def test_handles_are_closed_once_nobody_has_asked_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question begins the time anew; the first one's would end in the middle of the second."""
    rig = Rig(monkeypatch)
    asked = FactsRequest("auto", live=False)

    async def ask(service: ProberService) -> list[int]:
        monkeypatch.setattr(prober, "IDLE", 0.05)
        await service.users(asked)
        monkeypatch.setattr(prober, "IDLE", 60.0)
        await service.users(asked)
        await asyncio.sleep(0.1)
        counts = [len(rig.closed)]
        monkeypatch.setattr(prober, "IDLE", 0.0)
        await service.users(asked)
        await asyncio.to_thread(until, lambda: bool(rig.closed))
        return counts

    assert rig.told(ask) == [0]


class Serving:
    """A server that runs until it is stopped, while a signal comes or none does."""

    def __init__(self, number: str) -> None:
        self._stopped, self._number = asyncio.Event(), number

    async def run(self) -> None:
        if self._number:
            vars(SIGNALS)["_stop"](self._number)
            await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


@pytest.mark.parametrize(
    ("number", "done"), [(signal.SIGTERM.name, [("close", 0.0), (ENDING, None)]), ("", [(ENDING, None)])]
)
def test_at_a_signal_a_probe_ends_first_and_nothing_of_it_is_left(number: str, done: list[Any]) -> None:
    heard: list[Any] = []

    def close(why: str, seconds: float) -> None:
        assert why == ENDING
        heard.append(("close", seconds))

    litter = Serving("")
    vars(litter)["itself"] = litter
    left, litter = weakref.ref(litter), Serving(number)
    handles = SimpleNamespace(close=close, end=lambda why: heard.append((why, None)))

    async def main() -> None:
        async with asyncio.timeout(HANGS):
            await vars(prober)["_until_signal"](litter, handles)

    before = gc.get_freeze_count()
    asyncio.run(main())
    assert gc.get_freeze_count() > before + 10
    assert heard == done
    assert left() is None
