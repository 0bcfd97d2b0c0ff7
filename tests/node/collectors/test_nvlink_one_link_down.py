"""One of 18 links of a GPU is down: its state says so at the next poll, which no measured speed does."""

from tests.node.probe.drawn import LINKS, drawn, on_switch, probe_findings
from tests.node.verdict.straggler.nodes import POLICY, history, probe
from tests.support import Node
from wirewatch.core.types import Health
from wirewatch.probe.model import ProbePolicy
from wirewatch.verdict.straggler.naming import name_stragglers

LEFT = (LINKS - 1) / LINKS
GPU, LINK = 2, 7


def test_the_links_state_gives_it_in_the_first_poll() -> None:
    node = Node()
    node.poll("nvlink", times=3)
    assert node.findings() == ()
    node.change(f"gpu{GPU}/Field(165,{LINK})", "set", 0)
    node.poll("nvlink")
    assert node.rules() == {("nvlink.link_down", str(GPU), str(LINK), Health.DEGRADED)}
    (finding,) = node.findings()
    assert finding.evidence == f"inactive; {LINKS - 1} of {LINKS} links up"


def test_busbw_does_not() -> None:
    for settings in ({"NCCL_NVLS_ENABLE": "0"}, {}):
        assert probe_findings(drawn(on_switch(8, settings=settings), speed=LEFT), ProbePolicy()) == ()
    # That of a probe which it would find.
    assert {one.rule for one in probe_findings(drawn(on_switch(8), speed=0.6), ProbePolicy())} == {
        "probe.busbw"
    }


def test_nor_do_the_copies_of_that_gpu() -> None:
    lost = probe(8, {f"source {GPU}": LEFT, f"destination {GPU}": LEFT})
    assert name_stragglers(lost, history(8), POLICY).slow == ()
    two = (LINKS - 2) / LINKS
    more = name_stragglers(probe(8, {f"source {GPU}": two, f"destination {GPU}": two}), history(8), POLICY)
    assert {one.unit.resource.value for one in more.slow} == {"source", "destination"}
