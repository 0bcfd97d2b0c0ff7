"""The node condition told to a real HTTPS server, on a clock that is moved by hand."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.daemon.conditionrig import Rig, played, rig
from tests.node.kubernetes.apiserver import NODE, ApiServer
from tests.node.kubernetes.views import FAILED, OK, UNKNOWN
from tests.support import EPOCH, StillClock
from wirewatch.core.words import stamp
from wirewatch.daemon.nodecondition import ConditionOptions, ConditionWriter
from wirewatch.kubernetes import apiserver
from wirewatch.kubernetes.apiserver import ApiEndpoint, RequestResult
from wirewatch.kubernetes.condition import Condition, ConditionMemory, ConditionStatus, Holds
from wirewatch.verdict.node import Judged

TRUE, FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE


def test_a_new_node_gets_the_condition_and_a_heartbeat_every_five_minutes(api: ApiServer) -> None:
    told = played(api, lambda it: it.go(OK, 1000))
    assert api.nodes[NODE][0] == {"type": "Ready"}
    mine = api.condition()
    assert (mine["status"], mine["reason"]) == ("True", "Healthy")
    assert mine["lastTransitionTime"] == stamp(EPOCH + 60)
    assert mine["lastHeartbeatTime"] == stamp(EPOCH + 965)
    # Asked once what is there; written at 65, and at each heartbeat.
    assert api.requests[0].body == {}
    assert [one["status"]["conditions"][0]["lastHeartbeatTime"] for one in api.patched()] == [
        stamp(EPOCH + at) for at in (65, 365, 665, 965)
    ]
    assert told.counted() == {"ok": 5}
    assert told.writer.report.updated_at == EPOCH + 965


def test_a_fault_is_written_soon_after_it_held(api: ApiServer) -> None:
    async def story(it: Rig) -> None:
        await it.go(OK, 100)
        await it.go(FAILED, 80)

    played(api, story)
    mine = api.condition()
    assert (mine["status"], mine["reason"]) == ("False", "NvlinkLinkDown")
    assert "GPU 2 link 7" in mine["message"]
    assert mine["lastTransitionTime"] == stamp(EPOCH + 160)


def test_an_agent_that_starts_again_moves_nothing(api: ApiServer) -> None:
    played(api, lambda it: it.go(FAILED, 100))
    before = dict(api.condition())

    async def story(it: Rig) -> None:
        it.clock.seconds = 200
        await it.go(UNKNOWN, 60)
        await it.go(FAILED, 400)

    api.requests.clear()
    again = played(api, story)
    assert [one["status"]["conditions"][0]["status"] for one in api.patched()] == ["False"] * len(
        api.patched()
    )
    assert len(api.patched()) == 2
    after = api.condition()
    assert after["lastTransitionTime"] == before["lastTransitionTime"] == stamp(EPOCH + 60)
    assert after["lastHeartbeatTime"] > before["lastHeartbeatTime"]
    assert again.writer.report.condition is not None


def test_conditions_of_others_are_not_touched(api: ApiServer) -> None:
    others = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]
    api.nodes[NODE] = [dict(one) for one in others]
    played(api, lambda it: it.go(OK, 400))
    assert api.nodes[NODE][:2] == others
    assert [set(one["status"]["conditions"][0]) for one in api.patched()] == [
        {"type", "status", "reason", "message", "lastHeartbeatTime", "lastTransitionTime"}
    ] * len(api.patched())


def test_metrics_are_there_from_the_start(api: ApiServer) -> None:
    made = rig(api)
    found = {(s.metric.name, s.labels): s.value for s in apiserver.samples(made.writer.report)}
    assert found["node_condition_last_update_timestamp_seconds", ()] == 0
    assert found["node_condition_last_transition_timestamp_seconds", ()] == 0
    updates = {
        labels: value for (name, labels), value in found.items() if name == "node_condition_updates_total"
    }
    assert updates == {(result.value,): 0 for result in RequestResult}
    states = {labels: value for (name, labels), value in found.items() if name == "node_condition_status"}
    assert states == {("true",): 0, ("false",): 0, ("unknown",): 0}


def test_metrics_tell_what_is_reported(api: ApiServer) -> None:
    told = played(api, lambda it: it.go(FAILED, 100)).writer.report
    found = {(s.metric.name, s.labels): s.value for s in apiserver.samples(told)}
    assert found["node_condition_status", ("false",)] == 1
    assert found["node_condition_status", ("true",)] == 0
    assert found["node_condition_last_transition_timestamp_seconds", ()] == EPOCH + 60
    assert found["node_condition_last_update_timestamp_seconds", ()] == EPOCH + 65


def test_a_daemon_that_does_not_turn_does_not_vouch(api: ApiServer) -> None:
    async def story(it: Rig) -> None:
        await it.go(OK, 100)
        await it.go(OK, 400, turning=False)

    played(api, story)
    assert (api.condition()["status"], api.condition()["reason"]) == ("Unknown", "AgentStuck")


def of(status: ConditionStatus, reason: str) -> Condition:
    return Condition(status, reason, "words", 0.0)


@pytest.mark.parametrize(
    ("before", "mine", "noticed", "said"),
    [
        (None, None, None, False),
        (None, of(TRUE, "Healthy"), {"status": True}, True),
        (of(TRUE, "Healthy"), of(TRUE, "Healthy"), None, False),
        (of(TRUE, "Healthy"), of(TRUE, "Degraded"), {"status": False}, False),
        (of(TRUE, "Healthy"), of(FALSE, "Healthy"), {"status": True}, True),
        (of(TRUE, "Healthy"), None, None, False),
    ],
)  # fmt: skip
def test_a_change_of_status_or_reason_brings_the_next_write_and_a_status_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, before: Condition | None,
    mine: Condition | None, noticed: dict[str, bool] | None, *, said: bool,
) -> None:  # fmt: skip
    told: list[dict[str, bool]] = []

    def changed(pace: object, _now: float, _chance: float, **how: bool) -> object:
        told.append(how)
        return pace

    monkeypatch.setattr(apiserver, "changed", changed)
    caplog.set_level("INFO")
    writer = ConditionWriter(ApiEndpoint("host", 1, Path("/nowhere"), NODE), ConditionOptions(), StillClock())
    vars(writer).update(_noticed=before, _memory=ConditionMemory(mine))
    writer._schedule_write()  # noqa: SLF001
    assert told == ([] if noticed is None else [noticed])
    assert vars(writer)["_noticed"] == (before if noticed is None else mine)
    assert (writer.report.condition, bool(caplog.records)) == (mine, said)


class Seen(ConditionWriter):
    """A writer that says what it is asked to do."""

    def __init__(self, enough: int) -> None:
        options = ConditionOptions(holds=Holds(failed=0.002))
        super().__init__(ApiEndpoint("host", 1, Path("/nowhere"), NODE), options, StillClock())
        self.asked, self._enough = list[object](), enough

    def observe(self, judged: Judged, *, turning: bool) -> None:
        self.asked.append((judged, turning))

    async def write(self) -> None:
        self.asked.append("write")
        if len(self.asked) >= self._enough:
            raise EOFError


def test_from_the_first_polls_on_it_looks_and_writes_at_each_tick() -> None:
    polls = [False, True, True]
    source: Any = SimpleNamespace(ready=lambda: polls.pop(0), node=lambda: OK, turning=lambda: True)
    seen = Seen(enough=4)
    with pytest.raises(EOFError):
        asyncio.run(seen.run(source))
    assert (seen.asked, polls) == ([(OK, True), "write"] * 2, [])


def test_a_tick_is_short_enough_for_what_must_hold() -> None:
    assert [ConditionOptions(holds=Holds(failed=seconds)).tick for seconds in (4.0, 60.0)] == [2.0, 5.0]
