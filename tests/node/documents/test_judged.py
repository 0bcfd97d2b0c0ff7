"""Documents of the judged node: probe, stages and collectors; each row differs in one thing."""

from dataclasses import replace

import pytest

from tests.node.probe.drawn import drawn, on_switch
from tests.rows import each
from tests.support import EPOCH, Node
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import Absent, Failed, Finding, Health, Ok, OperatorNote, Subject, Why
from wirewatch.documents.health import ProbeStatus, SameCause
from wirewatch.documents.judged import DaemonStatus, findings, gpus, health, is_exempt, probe_status, state
from wirewatch.probe.collector import PROBE_NAME
from wirewatch.probe.gate import Refusal, SkipReason
from wirewatch.probe.model import ProbeMemory
from wirewatch.verdict.ledger import Suppression
from wirewatch.verdict.node import LIVE, REPAIRED, SUPPRESSED, Judged, Standing, Verdict

LAST = ProbeMemory(last=drawn(on_switch(2)), last_mono=90.0, fresh_until=110.0)
POINTLESS = ProbeMemory(refusal=Refusal(SkipReason.FEW_GPUS, "one GPU"))
BUSY = ProbeMemory(refusal=Refusal(SkipReason.BUSY, "by 4711"))
NEVER = ProbeStatus(0.0, None, fresh=False, required=True, no_expectation=[])


def probed(memory: ProbeMemory | None) -> NodeState:
    return NodeState() if memory is None else NodeState({PROBE_NAME: Component(PROBE_NAME, memory)})


@each(
    ("why", "memory", "required", "found", "exempt"),
    [
        ("probing is off", None, False, None, False),
        ("off, and a fresh one is required", None, True, NEVER, False),
        ("nothing can be probed", POINTLESS, True, None, True),
        ("none yet", BUSY, True, NEVER, False),
        (
            "a fresh one",
            LAST,
            True,
            ProbeStatus(EPOCH, 10.0, fresh=True, required=True, no_expectation=[]),
            False,
        ),
        (
            "not required",
            LAST,
            False,
            ProbeStatus(EPOCH, 10.0, fresh=True, required=False, no_expectation=[]),
            False,
        ),
    ],
)
def test_the_newest_probe(
    why: str, memory: ProbeMemory | None, found: ProbeStatus | None, *, required: bool, exempt: bool
) -> None:
    assert probe_status(probed(memory), 100.0, required=required) == found, why
    assert is_exempt(probed(memory), 100.0) is exempt, why


LINK = Finding("nvlink.link_down", Health.FAILED, Subject("2", "GPU-2"), "evidence", "action", EPOCH - 9)
SAID = OperatorNote("night-shift", "part is ordered", EPOCH)
SUPPRESSION = Suppression(LINK.rule, LINK.subject, Health.FAILED, EPOCH + 60, SAID)
OTHER = Standing(replace(LINK, rule="gpu.blind"), LIVE, "gpu")


def test_what_is_suppressed_or_repaired_does_not_count_and_is_listed() -> None:
    standings = (
        Standing(LINK, LIVE, "nvlink", same_cause=(OTHER,)),
        Standing(replace(LINK, rule="a.a"), REPAIRED, "a", repaired=SAID),
        Standing(replace(LINK, rule="b.b"), SUPPRESSED, "b", suppression=SUPPRESSION),
    )
    fail_on = frozenset({Health.FAILED, Health.UNKNOWN, Health.DEGRADED})
    judged = Judged(NodeState(), Verdict(Health.FAILED, (LINK,), standings, fail_on))
    document = health(judged, DaemonStatus(EPOCH, 100.0))
    assert [one.rule for one in document.findings] == ["nvlink.link_down"]
    assert [one.rule for one in document.suppressed] == ["b.b"]
    assert document.fail_on == ["degraded", "unknown", "failed"]
    every = findings(judged, EPOCH).findings
    assert [(one.stage, one.repaired, one.suppressed_until, one.suppressed) for one in every] == [
        ("live", None, 0.0, None), ("repaired", SAID, 0.0, None), ("suppressed", None, EPOCH + 60, SAID),
    ]  # fmt: skip
    assert every[0].same_cause == [
        SameCause(
            "gpu.blind", "failed", {"gpu": "2", "uuid": "GPU-2"}, "evidence", "action", EPOCH - 9, OTHER.id
        )
    ]


@pytest.mark.parametrize(
    ("why", "one", "told"),
    [
        ("it reads", Component("gpu", None, Ok(None, EPOCH, 0.0), applicable=True), ("ok", True, None)),
        (
            "it failed",
            Component("gpu", None, Failed(Absent(Why.DENIED, "no right"), EPOCH, 0.0), applicable=True),
            ("ok", False, "denied: no right"),
        ),
        (
            "it has nothing to watch",
            Component("gpu", None, Ok(None, EPOCH, 0.0), applicable=False),
            (None, True, None),
        ),
        ("it has not run", Component("gpu", None), ("unknown", False, None)),
    ],
)
def test_a_collector(why: str, one: Component, told: tuple[str | None, bool, str | None]) -> None:
    judged = Judged(NodeState({"gpu": one}), Verdict(Health.OK, ()))
    (found,) = state(judged, EPOCH, "live").collectors
    assert (found.health, found.success, found.error) == told, why


def test_a_gpu_has_all_its_names_and_keeps_them_when_it_is_lost() -> None:
    node = Node()
    assert gpus(node.state) is None
    node.change("gpu5/MinorNumber()", "set", 6)
    node.change("gpu5/MigMode()", "set", [1, 1])
    node.change("gpu6/MigMode()", "code", 10)
    node.poll("inventory")
    known = gpus(node.state) or []
    assert [(one.gpu, one.minor) for one in known[4:6]] == [("4", "4"), ("5", "6")]
    assert known[3].pci == "0000:00:09.0"
    assert known[5].uuid.endswith("000000000005")
    assert [one.split for one in known] == [False, False, False, False, False, True, None, False]
    node.change("gpu5/*", "code", 15)
    node.poll("inventory", times=3)
    assert node.findings()[0].rule == "gpu.lost"
    assert gpus(node.state) == known


def test_a_gpu_that_leaves_mig_mode_is_whole_again() -> None:
    node = Node()
    split = node.change("gpu5/MigMode()", "set", [1, 1])
    node.poll("inventory")
    node.undo(split)
    node.poll("inventory")
    assert {one.split for one in gpus(node.state) or ()} == {False}
