"""Documents of probes, from results drawn by hand: what was not measured is null and never 0."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.node.probe.drawn import broken, drawn, gloo, on_switch
from tests.node.probe.overnetwork import over_network
from tests.rows import each
from tests.support import EPOCH
from wirewatch.busbw.expected import Expectation
from wirewatch.busbw.references import Confidence
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.probe import Copy, Probed
from wirewatch.core.statistics import UsualRate
from wirewatch.core.types import Absent, Failed, Finding, Health, Ok, Subject, Why
from wirewatch.documents import probed as documents
from wirewatch.documents.probed import INSTEAD, WIRE_ALONE, gate, on_request, probes, probes_of
from wirewatch.documents.probes import ProbeDocument
from wirewatch.probe import measurement
from wirewatch.probe.collector import PROBE_NAME
from wirewatch.probe.gate import Refusal, SkipReason
from wirewatch.probe.measurement import Measured, measure
from wirewatch.probe.model import ProbeMemory
from wirewatch.probe.request import ProbeResult, ProbeRun
from wirewatch.verdict.straggler.naming import NamedStragglers, SlowNode, SlowPart
from wirewatch.verdict.straggler.signals import Loss, Resource, Unit

TWO = drawn(on_switch(2))
GONE = Absent(Why.MISSING, "gone")
BUSY = Refusal(SkipReason.BUSY, "by 4711")
ZERO, ONE = (gpu.uuid for gpu in TWO.gpus)


def document(probed: Probed, *measured: Measured, named: NamedStragglers | None = None) -> ProbeDocument:
    return documents.probe(probed, measured, (), named)


@pytest.mark.parametrize(
    ("why", "engine", "shown"),
    [("known", "nccl", "nccl"), ("not asked yet", "", None), ("none is installed", GONE, None)],
)
def test_the_gate_names_the_engine_where_there_is_one(
    why: str, engine: str | Absent, shown: str | None
) -> None:
    for refusal in (None, BUSY):
        found = probes(ProbeMemory(engine=engine, refusal=refusal), EPOCH, ())
        assert found.gate == gate(refusal, shown), why


@pytest.mark.parametrize(
    ("why", "one", "is_read"),
    [
        ("read", Component(PROBE_NAME, ProbeMemory(last=TWO), Ok(None, EPOCH, 0.0)), True),
        ("failed", Component(PROBE_NAME, ProbeMemory(last=TWO), Failed(GONE, EPOCH, 0.0)), False),
        ("not yet", Component(PROBE_NAME, ProbeMemory(last=TWO)), False),
        ("off", None, False),
    ],
)
def test_the_gate_is_shut_where_nothing_is_read(why: str, one: Component | None, *, is_read: bool) -> None:
    state = NodeState() if one is None else NodeState({PROBE_NAME: one})
    found = probes_of(state, EPOCH)
    assert (found.gate.open, found.gate.reason) == (is_read, "" if is_read else "blind"), why
    assert (found.last is None) == (one is None)


def test_the_last_probe_has_the_findings_of_the_component() -> None:
    held = Finding("probe.busbw", Health.FAILED, Subject(), "slow", "act")
    one = Component(PROBE_NAME, ProbeMemory(last=TWO), findings=(held,))
    found = probes_of(NodeState({PROBE_NAME: one}), EPOCH).last
    assert found is not None
    assert [(finding.rule, finding.health) for finding in found.findings] == [("probe.busbw", "failed")]


def test_what_a_probe_that_broke_off_cost_is_not_known() -> None:
    assert (document(TWO).cpu_seconds, document(TWO).host_bytes) == (1.69, 807_858_176)
    ended = document(broken(TWO, "timeout"))
    assert (ended.cpu_seconds, ended.host_bytes, ended.stragglers) == (None, None, [])


def test_gpus_without_a_product_or_a_clock_have_null() -> None:
    assert TWO.document is not None
    half = replace(TWO, document=replace(TWO.document, micros=TWO.document.micros[1:]), clocks=TWO.clocks[:1])
    first, second = document(half).gpus
    assert (first.gemm_seconds, first.memory_copy_bytes_per_second) == (None, None)
    assert (first.sm_clock, first.clocks_event_reasons) == (1.98e9, 0)
    assert second.gemm_seconds == 902e-6
    assert (second.sm_clock, second.clocks_event_reasons) == (None, None)
    assert second.memory_copy_bytes_per_second is not None


def test_copies_name_gpus_by_index_and_positions_where_there_are_none() -> None:
    assert TWO.document is not None
    one = replace(TWO.document, copies=(Copy(0, 1, 8, 2.0, 1, direct=True),))
    gpus = tuple(replace(gpu, index=gpu.index + 4) for gpu in TWO.gpus)
    (found,) = document(replace(TWO, document=one, gpus=gpus)).copies
    assert (found.source, found.destination, found.bytes_per_second, found.direct) == (4, 5, 4.0, True)
    (found,) = document(replace(TWO, document=one, gpus=(), parts=())).copies
    assert (found.source, found.destination) == (0, 1)


EXPECTED = Expectation(100e9, 110e9, "Ring", Confidence.MEASURED, "a source", ("how it follows",))
MEASURED = next(one for one in measure(TWO) if not one.latency)


@each(
    ("why", "change", "told"),
    [
        ("expected", {"expected": EXPECTED}, (100e9, "Ring", "measured", ["how it follows"], "")),
        (
            "of low confidence",
            {"expected": replace(EXPECTED, confidence=Confidence.LOW)},
            (100e9, "Ring", "low", ["how it follows", INSTEAD], ""),
        ),
        (
            "of nothing",
            {"expected": GONE, "wire": GONE},
            (
                None,
                None,
                None,
                [f"no expectation here: {GONE}", f"the wire is not known: {GONE}", INSTEAD],
                "gone",
            ),
        ),
        ("of latency", {"expected": GONE, "latency": True}, (None, None, None, [str(GONE)], "gone")),
        ("no GPUs", {"expected": measurement.NOT_GPUS}, (None, None, None, [str(measurement.NOT_GPUS)], "")),
        (
            "the network",
            {"expected": EXPECTED, "wire": measurement.NOT_NVLINK},
            (100e9, "Ring", "measured", ["how it follows"], ""),
        ),
        (
            "the network, of low confidence",
            {"expected": replace(EXPECTED, confidence=Confidence.LOW), "wire": measurement.NOT_NVLINK},
            (100e9, "Ring", "low", ["how it follows"], ""),
        ),
        (
            "the network, of nothing",
            {"expected": GONE, "wire": measurement.NOT_NVLINK},
            (None, None, None, ["gone"], "gone"),
        ),
    ],
)
def test_a_result_says_what_is_expected_or_why_nothing_is(
    why: str, change: Mapping[str, object], told: tuple[object, ...]
) -> None:
    one = replace(MEASURED, usual=None, **change)  # type: ignore[arg-type]
    (found,) = document(TWO, one).results
    assert (
        found.expected_busbw, found.expected_algorithm, found.confidence, found.derivation, found.no_reference
    ) == told, why  # fmt: skip
    assert found.usual_busbw is None


def test_the_usual_rate_is_shown_where_it_is_known() -> None:
    (found,) = document(TWO, replace(MEASURED, usual=UsualRate(7e9, 0.1, 3, 6e9))).results
    assert found.usual_busbw == 7e9


def part(unit: Unit, lost: float, **more: object) -> SlowPart:
    return SlowPart(unit, 1.0, Loss(lost, 0.1, 2.0), **{"own": True, **more})  # type: ignore[arg-type]


def test_stragglers_are_worst_first_then_what_is_slow_everywhere() -> None:
    pair = Unit(Resource.PAIR, ZERO, ONE)
    slow = (part(Unit(Resource.MEMORY, ONE), 0.2, follows=(pair, Unit(Resource.LINK, "away"))),
            part(Unit(Resource.COMPUTE, "away"), 0.1), part(pair, 0.3, own=False))  # fmt: skip
    named = NamedStragglers(slow, (SlowNode(Resource.MEMORY, 0.4, 2),))
    found = document(TWO, named=named).stragglers
    assert [(one.resource, one.gpu, one.uuid, one.peer, one.against) for one in found] == [
        ("pair", 0, ZERO, 1, "peers"), ("memory", 1, ONE, None, "own"),
        ("compute", None, "away", None, "own"),
        ("memory", None, "", None, "own"),
    ]  # fmt: skip
    assert [one.follows for one in found] == [[], ["pair of GPU 0 to 1", "link of GPU away"], [], []]


NETWORK = over_network("NET/IB/0/GDRDMA")


def test_only_a_probe_over_the_network_with_conditions_has_that_part() -> None:
    assert document(NETWORK).network is not None
    assert document(replace(NETWORK, conditions=())).network is None
    assert document(TWO).network is None
    sent = document(replace(NETWORK, ports={"mlx5_0/1": 8})).network
    assert sent is not None
    assert sent.sent_bytes == {"mlx5_0/1": 8}
    none = document(replace(NETWORK, ports=None)).network
    assert none is not None
    assert none.sent_bytes == {}


RUNS = (
    ProbeRun("on", NETWORK, tuple(measure(NETWORK))), ProbeRun("off", None, refusal=BUSY),
    ProbeRun("nccl", None, refusal=Refusal(SkipReason.NO_ENGINE, "no library")),
    ProbeRun("broken", broken(TWO, "timeout")), ProbeRun("near", TWO),
)  # fmt: skip


def test_runs_side_by_side_say_what_ran_and_what_did_not() -> None:
    found = on_request(ProbeResult(EPOCH, NETWORK, (), None, runs=RUNS)).runs
    assert [(one.engine, one.outcome, one.why) for one in found] == [
        ("nccl", "ok", ""), ("", "skipped", "busy: by 4711"), ("", "no_engine", RUNS[2].problem),
        ("nccl", "timeout", "as drawn"), ("nccl", "ok", ""),
    ]  # fmt: skip
    assert [one.versions for one in found] == [{"nccl": "2.28.9"}, {}, {}, {}, {"nccl": "2.28.9"}]
    assert [bool(one.gpudirect) for one in found] == [True, False, False, False, False]
    assert [bool(one.transport) for one in found] == [True, False, False, False, True]
    assert [bool(one.environment) for one in found] == [bool(NETWORK.plan.environment), *[False] * 4]
    assert found[0].results


@each(
    ("why", "result", "told"),
    [
        ("it ran", ProbeResult(EPOCH, TWO, (), None), ("ok", "", None)),
        ("refused", ProbeResult(EPOCH, None, (), BUSY), ("skipped", "busy: by 4711", None)),
        ("not recorded", ProbeResult(EPOCH, None, (), None, not_recorded=("a", "b")),
         ("skipped", "not recorded: a, b", None)),
        ("over the network", ProbeResult(EPOCH, NETWORK, (), None), ("ok", "", True)),
        ("refused over the network", ProbeResult(EPOCH, None, (), BUSY, conditions=NETWORK.conditions),
         ("skipped", "busy: by 4711", False)),
    ],
)  # fmt: skip
def test_what_was_probed_on_request(
    why: str, result: ProbeResult, told: tuple[str, str, bool | None]
) -> None:
    found = on_request(result)
    assert (found.outcome, found.why) == told[:2], why
    carried = None if found.network is None else found.network.gpudirect != "not_known"
    assert carried == told[2], why


@pytest.mark.parametrize(("study", "instead"), [((), INSTEAD), (("other sizes",), WIRE_ALONE)])
def test_a_study_is_judged_by_the_wire_alone(study: tuple[str, ...], instead: str) -> None:
    one = replace(MEASURED, expected=replace(EXPECTED, confidence=Confidence.LOW))
    found = on_request(ProbeResult(EPOCH, TWO, (), None, measured=(one,), study=study))
    assert found.results[0].derivation[-1] == instead


def test_processors_have_no_network_and_no_gpus() -> None:
    found = document(gloo())
    assert (found.network, found.gpus, found.transport) == (None, [], "")
