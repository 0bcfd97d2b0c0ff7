"""One cause is one finding: what cannot be read for the same reason stands under one of them."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.node.collectors.test_overlays import DEMO, watch
from tests.rows import each
from tests.support import Node
from wirewatch.core.collector import blind_finding
from wirewatch.core.types import Absent, Finding, Health, OperatorNote, Subject, Why
from wirewatch.hw.overlay import load_overlay
from wirewatch.verdict.ledger import Ledger, VerdictPolicy
from wirewatch.verdict.node import heads, judge_node
from wirewatch.verdict.orders import suppress, unsuppress

NO_LIBRARY = 12
NODE, GPU = Subject(), Subject(gpu="5", uuid="GPU-5")
GONE = Absent(Why.LOST, "GPU has fallen off the bus", 15)
OTHER = Absent(Why.DENIED, "no permission", 4)
SAID = OperatorNote("ann", "part is ordered", 100.0)


def blind(name: str, part: Subject = NODE, absent: Absent = GONE) -> Finding:
    return blind_finding(name, part, absent)


def lost(health: Health = Health.FAILED) -> Finding:
    return Finding("gpu.lost", health, GPU, "fell off", "reboot")


def without_driver() -> Node:
    node = Node(DEMO)
    node.change("Count()", "code", NO_LIBRARY)
    node.poll(times=3)
    return node


def test_a_missing_driver_is_one_finding_headed_by_the_inventory() -> None:
    """Before: eight findings, headed by drift.blind."""
    verdict = judge_node(without_driver().state)
    (head,) = verdict.standings
    assert (verdict.health, head.finding.rule) == (Health.UNKNOWN, "inventory.blind")
    assert "libnvidia-ml.so.1 not found" in head.finding.evidence
    under = {one.finding.rule for one in head.same_cause}
    assert under >= {"gpu.blind", "nvlink.blind", "pcie.blind", "drift.blind", "probe.blind"}
    assert sorted(one.finding.rule for one in verdict.every) == sorted({"inventory.blind", *under})


def test_a_lost_gpu_is_one_finding_and_its_health_is_what_it_was() -> None:
    node = Node(DEMO, load_overlay("gpu-lost").changes)
    watch(node)
    verdict = judge_node(node.state)
    (head,) = verdict.standings
    assert (verdict.health, head.finding.rule) == (Health.FAILED, "gpu.lost")
    assert {one.finding.rule for one in head.same_cause} >= {"gpu.blind", "nvlink.blind", "pcie.blind"}
    assert {one.finding.subject.gpu for one in head.same_cause} == {"5"}


@each(
    ("findings", "expected"),
    [
        ([blind("drift"), blind("gpu"), blind("inventory")], (2, 2, 2)),
        ([blind("drift"), blind("gpu"), blind("pcie")], (1, 1, 1)),
        ([blind("hangs"), blind("drift")], (1, 1)),
        ([blind("hangs"), blind("jobs")], (0, 0)),
        ([blind("gpu"), blind("pcie", absent=OTHER)], (0, 1)),
        ([blind("gpu"), blind("pcie", GPU)], (0, 1)),
        ([blind("gpu", GPU), blind("nvlink", replace(GPU, link="3"))], (0, 0)),
        ([lost(), blind("gpu", GPU, OTHER), blind("pcie", GPU)], (0, 0, 0)),
        ([lost(Health.DEGRADED), blind("gpu", GPU), blind("pcie", GPU)], (0, 1, 1)),
        ([lost(), blind("gpu", Subject(gpu="6", uuid="GPU-6"))], (0, 1)),
        ([lost(), replace(lost(), rule="xid.79")], (0, 1)),
        ([blind("infiniband", Subject(device="mlx5_0", port="1")), blind("pcie")], (0, 1)),
        ([blind("gpu", Subject(gpu="5")), blind("pcie", Subject(gpu="6"))], (0, 1)),
        ([blind("gpu", Subject(gpu="5")), blind("nvlink", Subject(gpu="5", link="3"))], (0, 0)),
        ([blind("gpu", GPU), blind("pcie", replace(GPU, gpu="6"))], (0, 0)),
        ([blind("infiniband", Subject(device="mlx5_0", port=n)) for n in "12"], (0, 1)),
        ([blind("infiniband", Subject(device=n)) for n in ("mlx5_0", "mlx5_1")], (0, 1)),
    ],
)  # fmt: skip
def test_what_comes_under_what(findings: list[Finding], expected: tuple[int, ...]) -> None:
    assert heads(findings) == expected


PARTS = st.sampled_from([Subject(), GPU, replace(GPU, link="1"), Subject(gpu="6", uuid="GPU-6")])
FINDINGS = st.lists(
    st.builds(
        blind, st.sampled_from(["inventory", "gpu", "drift", "hangs"]), PARTS, st.sampled_from([GONE, OTHER])
    )
    | st.sampled_from(list(Health)[1:]).map(lost)
)


@given(FINDINGS)
def test_none_is_lost_and_no_head_is_milder_or_under_another(findings: list[Finding]) -> None:
    found = heads(findings)
    assert len(found) == len(findings)
    for number, head in enumerate(found):
        assert found[head] == head
        assert findings[head].health >= findings[number].health


def test_who_suppresses_the_head_suppresses_what_is_under_it_and_nothing_else() -> None:
    node = without_driver()
    (head,) = judge_node(node.state).standings
    ledger = suppress(Ledger(), head, SAID.at + 60, SAID, VerdictPolicy())
    quiet = judge_node(node.state, ledger)
    assert (quiet.findings, len(quiet.standings)) == ((), 1)
    assert judge_node(node.state, unsuppress(ledger, quiet.standings[0])).findings == (head.finding,)
    one = suppress(Ledger(), head.same_cause[0], SAID.at + 60, SAID, VerdictPolicy())
    assert judge_node(node.state, one).health is Health.UNKNOWN
