"""From the first day: slow against the reference, and most GPUs of a node slow beside a few."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from tests.node.busbw.nodes import A100, B200, H100
from tests.node.probe.drawn import bridged_pair, drawn, on_pcie, on_switch
from tests.node.verdict.drawn import Drawn
from tests.rows import each
from tests.support import EPOCH
from wirewatch.busbw.expected import Expectation
from wirewatch.busbw.references import Confidence
from wirewatch.core.probe import Conditions, Probed
from wirewatch.core.types import Health
from wirewatch.documents.probed import stragglers
from wirewatch.probe.findings import _is_low
from wirewatch.probe.judge import fold_probe
from wirewatch.probe.measurement import measure
from wirewatch.probe.model import ProbeMemory, ProbePolicy

DEGRADED, UNKNOWN, FAILED = Health.DEGRADED, Health.UNKNOWN, Health.FAILED
POLICY = ProbePolicy()
BUSBW = {"probe.busbw": DEGRADED}


def after(probes: Sequence[Probed], memory: ProbeMemory | None = None) -> ProbeMemory:
    """The memory after these probes, ten minutes apart from the last that it had."""
    new = memory or ProbeMemory()
    for probed in probes:
        mono = (new.last_mono or 0.0) + 600.0
        new = fold_probe(new, replace(probed, at=EPOCH + mono), mono, POLICY)
    return new


def healths(memory: ProbeMemory) -> dict[str, Health]:
    return {finding.rule: finding.health for finding in memory.held}


@dataclass(frozen=True)
class Band:
    """A node of which every collective gives so much of what it should, from its first probe on."""

    what: str
    source: str
    conditions: tuple[Conditions, ...]
    speed: float
    right: Mapping[str, Health] = field(default_factory=dict)


RING = "8 H200, Ring, measured: proof/hardware"
NVLS = "8 H100, NVLS: NVIDIA/dgxc-benchmarking; p5 at awslabs 1 to 5 % less"
AMPERE = "8 A100: microsoft/superbenchmark; Azure/AI-benchmarking-guide has 213.87 where 222 is expected"
BLACKWELL = "8 B200, a public acceptance test; NVIDIA/nccl#1807 has more"
NOT_SURE = "busbw/references.py: looked for and not found, or of low confidence"
PINS = dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter"), 300e9)
PINNED = tuple(replace(one, pins=PINS) for one in on_switch(8, "NVIDIA Rubin R100"))

BANDS = (
    Band("eight H200 a quarter slower", RING, on_switch(8), 0.75, BUSBW),
    Band("a fifth slower", RING, on_switch(8), 0.8, BUSBW),
    Band("eight H100 with NVLS", NVLS, on_switch(8, H100, {}), 0.75, BUSBW),
    Band("two H200", RING, on_switch(2), 0.78, BUSBW),
    Band("eight A100", AMPERE, on_switch(8, A100, links=12), 0.75, BUSBW),
    Band("eight B200", BLACKWELL, on_switch(8, B200, {}), 0.75, BUSBW),
    Band("pinned by the operator", "the operator's word", PINNED, 0.75, BUSBW),
    Band("eight H200 as fast as others", RING, on_switch(8), 0.97),
    Band("eight H100 of another cloud", NVLS, on_switch(8, H100, {}), 0.94),
    Band("eight A100 of Azure", AMPERE, on_switch(8, A100, links=12), 213.87 / 222.40),
    Band("faster than the reference", BLACKWELL, on_switch(8, B200, {}), 1.15),
    Band("a product that no table has", NOT_SURE, on_switch(8, "NVIDIA Rubin R100"), 0.75),
    Band("eight A800", NOT_SURE, on_switch(8, "NVIDIA A800-SXM4-80GB", links=8), 0.75),
    Band("eight H800", NOT_SURE, on_switch(8, "NVIDIA H800", {}, links=8), 0.75),
    Band("two A100 with bridges", NOT_SURE, bridged_pair(A100, 12), 0.75),
    Band("four L40S over PCIe", NOT_SURE, on_pcie(4), 0.75),
)  # fmt: skip


@pytest.mark.parametrize("band", BANDS, ids=lambda band: band.what)
def test_what_is_slow_from_the_first_day_is_degraded_where_the_reference_is_sure(band: Band) -> None:
    assert band.source
    memory = after([drawn(band.conditions, speed=band.speed)] * (POLICY.learn + 2))
    assert healths(memory) == band.right
    # What was found is never learned as usual.
    assert bool(memory.usual.values) == (not band.right)


def test_once_repaired_it_is_over_and_learned() -> None:
    slow = after([drawn(on_switch(8), speed=0.75)] * 3)
    well = after([drawn(on_switch(8))] * POLICY.learn, slow)
    assert healths(well) == {}
    assert well.usual.values


def test_single_fast_runs_are_noise_and_no_slow_wire() -> None:
    assert healths(after([drawn(on_switch(8), speed=0.8, fast=1.2)])) == {}


def test_of_smaller_messages_the_reference_is_not_that_sure() -> None:
    noise = (0.75, 1.0, 1.0)
    assert healths(after([drawn(on_switch(8), noise=noise)])) == {}
    assert healths(after([drawn(on_switch(8), noise=noise[::-1])])) == BUSBW


@each("confidence", Confidence)
def test_a_derived_figure_is_no_measure_of_health(confidence: Confidence) -> None:
    """Of a network the wire is known and what NCCL reaches on it is not."""
    one = next(m for m in measure(drawn(on_switch(8), speed=0.75)) if m.size_bytes == 256 << 20)
    assert isinstance(one.expected, Expectation)
    due = replace(one.expected, confidence=confidence)
    assert _is_low(one, due, POLICY) == (confidence is not Confidence.DERIVED)


def test_an_accepted_history_says_what_is_usual_and_the_band_is_silent() -> None:
    usual = after([drawn(on_switch(8))] * POLICY.learn)
    assert healths(after([drawn(on_switch(8), speed=0.8)] * 2, usual)) == {"probe.slower": DEGRADED}


def test_a_node_at_the_limit_of_failed_stays_found() -> None:
    """Before: found below 70 % and not found above it, so FAILED and probation in turn."""
    usual = after([drawn(on_switch(8))] * POLICY.learn)
    low, high = (drawn(on_switch(8), speed=speed) for speed in (0.69, 0.705))
    memory = after([low, low], usual)
    assert healths(memory) == {"probe.busbw": FAILED}
    for _ in range(3):
        memory = after([high], memory)
        assert healths(memory) == BUSBW
        memory = after([low], memory)
        assert set(healths(memory)) == {"probe.busbw"}
    assert healths(after([drawn(on_switch(8), speed=0.75)], memory)) == {"probe.slower": DEGRADED}


def test_a_history_below_the_reference_that_was_accepted_has_only_the_limit() -> None:
    """Of a version that knew no band."""
    one = next(m for m in measure(drawn(on_switch(8), speed=0.71)) if m.size_bytes == 256 << 20)
    history = after([drawn(on_switch(8))] * POLICY.learn).usual
    usual = history.of(next(iter(history.values)), "", POLICY.learn)
    assert usual is not None
    assert isinstance(one.expected, Expectation)
    for rate, low in ((1.0, True), (0.71, False)):
        beside = replace(one, usual=replace(usual, rate=rate * one.expected.busbw))
        assert _is_low(beside, one.expected, POLICY) == low


# --- most GPUs slow beside a few, from the first probe on


@dataclass(frozen=True)
class Few:
    """What is left of the speed of GPUs by position: `slow` are named, or `right` is what is known."""

    what: str
    left: Mapping[str, float]
    slow: Sequence[int] = ()
    gpus: int = 8
    resource: str = "compute"
    right: Mapping[str, Health] = field(default_factory=dict)


def part(resource: str, *left: float) -> dict[str, float]:
    return {f"{resource} {n}": speed for n, speed in enumerate(left)}


FIVE = range(5)
NOT_KNOWN = {"straggler.node": UNKNOWN}
FEWS = (
    Few("five of eight, as a power cap of 500 W makes them", part("compute", *[0.8] * 5), FIVE),
    Few("five of eight, each by another part", part("compute", 0.7, 0.75, 0.78, 0.82, 0.85), FIVE),
    Few("six of eight", part("compute", *[0.8] * 6), range(6)),
    Few("four of six", part("compute", *[0.8] * 4), range(4), gpus=6),
    Few("five of eight in their memory", part("memory", *[0.85] * 5), FIVE, resource="memory"),
    Few("half of them, as before", part("compute", *[0.8] * 4), range(4)),
    Few("one of two, as before", part("compute", 0.8), [0], gpus=2),
    Few("seven of eight beside one", part("compute", *[0.8] * 7), right=NOT_KNOWN),
    Few("two of three", part("compute", *[0.8] * 2), gpus=3, right=NOT_KNOWN),
    Few("three of four in their memory", part("memory", *[0.85] * 3), gpus=4, right=NOT_KNOWN),
    Few(
        "GPUs differ by a stable few per cent", part("compute", 1.0, 0.96, 0.98, 1.02, 0.97, 1.03, 0.99, 1.01)
    ),
    Few("a lucky one", part("compute", *[0.95] * 7)),
    Few("in steps", part("compute", 0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0)),
)


@pytest.mark.parametrize("few", FEWS, ids=lambda few: few.what)
def test_the_fast_ones_say_that_the_others_are_slow(few: Few) -> None:
    memory = after([drawn(on_switch(few.gpus), left=few.left)] * 3)
    named = {int(f.subject.gpu) for f in memory.held if f.rule == f"straggler.{few.resource}"}
    assert named == set(few.slow)
    assert {rule: health for rule, health in healths(memory).items() if not few.slow} == few.right
    assert bool(memory.stragglers.references.values) == (not few.slow and not few.right)


def test_who_is_right_beside_one_fast_gpu_is_not_known_and_said() -> None:
    probed = drawn(on_switch(8), left=part("compute", *[0.8] * 7))
    memory = after([probed] * 2)
    assert stragglers(memory.stragglers.named, probed) == []
    (found,) = memory.held
    assert found.evidence == (
        "7 GPUs are 20 % or more slower in matrix products than GPU 7: which of them are well is not known"
    )


def test_a_slow_node_is_told_before_what_is_not_known() -> None:
    usual = after([drawn(on_switch(8))] * 6)
    left = {**part("memory", *[0.8] * 8), **part("compute", *[1.0] * 7, 1.3)}
    memory = after([drawn(on_switch(8), left=left)] * 2, usual)
    assert healths(memory)["straggler.node"] is DEGRADED


def test_the_five_are_failed_where_they_lost_so_much() -> None:
    memory = after([drawn(on_switch(8), left=part("compute", *[0.6] * 5))] * 3)
    assert {finding.health for finding in memory.held} == {FAILED}


@pytest.mark.parametrize("learned", [0, POLICY.learn], ids=["from the first day", "with a history"])
def test_a_node_that_hovers_at_the_limit_is_failed_once_and_stays_so(learned: int) -> None:
    """Before: FAILED and probation in turn, as noise of 1 % takes it."""
    random = Random(3)  # noqa: S311
    node = Drawn()
    memory = after([drawn(on_switch(8))] * learned)
    course: list[Health] = []
    for _ in range(30):
        memory = after([drawn(on_switch(8), speed=random.gauss(0.7, 0.007))], memory)
        for rule, part in list(node.found):
            node.clear(rule, part)
        for finding in memory.held:
            node.find(finding.rule, finding.subject, finding.health)
        node.probed(clean=memory.clean)
        health = node.look(times=6).health
        if not course or course[-1] is not health:
            course.append(health)
    assert course[-1] is FAILED
    assert course in ([DEGRADED, FAILED], [FAILED])
