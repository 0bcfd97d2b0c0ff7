"""What people and scripts are told of probes: documents and tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.probe.drawn import broken, drawn, gloo, on_pcie, on_switch, probe_findings, two_islands
from tests.node.probe.idle import Idle
from tests.rows import each
from tests.support import EPOCH
from wirewatch.cli.tables import probe_tables, table
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Finding, Health, Subject, Why
from wirewatch.documents import probed as documents
from wirewatch.documents.probed import gate, probes_of, refused
from wirewatch.documents.probes import PROBE, PROBES, ProbeDocument
from wirewatch.probe.collector import ProbeSummary, probe_summary
from wirewatch.probe.gate import Refusal, SkipReason
from wirewatch.probe.judge import fold_probe
from wirewatch.probe.measurement import measure
from wirewatch.probe.model import ProbeMemory, ProbePolicy

ALL: Mapping[str, Probed] = {
    "two": drawn(on_switch(2)),
    "slow": drawn(on_switch(2), speed=0.5, errors={1: {"crc": 1}}),
    "eight with NVLS": drawn(on_switch(8, settings={}), speed=1.2),
    "islands": drawn(two_islands(), whole="SHM/direct/direct"),
    "PCIe": drawn(on_pcie(4), transport="SHM/direct/direct"),
    "a product that is not known": drawn(on_switch(8, "NVIDIA R100")),
    "processors": gloo(),
    "forced": drawn(on_switch(2), forced=True, by="command"),
    "broken off": broken(drawn(on_switch(2)), "timeout"),
}


def findings(probed: Probed) -> tuple[Finding, ...]:
    found = probe_findings(probed, ProbePolicy())
    return tuple(Finding(b.rule, b.worst, b.subject, b.evidence, b.action, EPOCH) for b in found)


def probe(probed: Probed, findings: Sequence[Finding]) -> ProbeDocument:
    return documents.probe(probed, measure(probed), findings)


def tables(probed: Probed, *, explain: bool = False) -> str:
    return probe_tables(probe(probed, findings(probed)), explain=explain)


@pytest.mark.parametrize("name", ALL)
def test_every_probe_has_a_document_that_reads_back_and_a_table(name: str) -> None:
    document = probe(ALL[name], findings(ALL[name]))
    assert PROBE.validate_json(PROBE.dump_json(document)) == document
    for explain in (False, True):
        text = tables(ALL[name], explain=explain)
        assert text.startswith(document.health.upper())
        assert all(len(line) == len(line.rstrip()) for line in text.split("\n"))


def test_the_health_is_that_of_this_probe() -> None:
    healths = {name: probe(one, findings(one)).health for name, one in ALL.items()}
    assert healths.pop("slow") == "failed"
    assert healths.pop("broken off") == "unknown"
    assert set(healths.values()) == {"ok"}
    held = (Finding("probe.busbw", Health.FAILED, Subject(), "", "", EPOCH),)
    assert probe(ALL["broken off"], held).health == "failed"


def test_numbers_of_the_document_are_those_of_the_probe() -> None:
    document = json.loads(PROBE.dump_json(probe(ALL["two"], ())))
    large = next(r for r in document["results"] if (r["op"], r["size_bytes"]) == ("all_reduce", 256 << 20))
    assert large["busbw"] == pytest.approx(298.6e9, rel=1e-3)
    assert large["ratio"] == pytest.approx(large["busbw"] / large["expected_busbw"])
    assert large["derivation"][0].startswith("18 NVLink links x 26.562 GB/s")
    assert [(p["part"], p["gpu"]) for p in document["path"]][:2] == [("all_reduce.0", 0), ("all_reduce.0", 1)]
    assert document["transport"] == "p2p"
    assert document["gpus"][1]["memory_copy_bytes_per_second"] == pytest.approx(2 * (256 << 20) / 129.6e-6)
    assert document["slowing"][0].startswith("NCCL_NVLS_ENABLE=0: ")


def test_the_document_names_the_worst_way_of_all_groups() -> None:
    assert probe(ALL["islands"], ()).transport == "shm"
    assert probe(ALL["processors"], ()).transport == ""


def test_the_table_names_what_people_look_for() -> None:
    text = tables(ALL["slow"], explain=True)
    for words in (
        "FAILED probe.busbw", "DEGRADED probe.link_errors gpu 1", "all_reduce", "256 MiB", "ring/simple",
        "copies between GPUs, GB/s (rows send):", "held the GPUs for 1.18 s", "confidence: ",
        "engine nccl (nccl 2.28.9)",
    ):  # fmt: skip
        assert words in text
    assert "uuid" not in text
    assert "forced: no verdict" in tables(ALL["forced"])
    assert "timeout: as drawn" in tables(ALL["broken off"])


def test_asymptotes_of_islands_are_told_apart() -> None:
    (line,) = [one for one in tables(ALL["islands"]).split("\n") if "ever larger" in one]
    assert " all_reduce on GPUs 0-3 " in line
    assert " all_reduce on GPUs 4-7 " in line
    (whole,) = [one for one in tables(ALL["two"]).split("\n") if "ever larger" in one]
    assert "on GPUs" not in whole


def test_what_is_not_known_is_a_dash() -> None:
    rows = [line for line in tables(ALL["processors"]).split("\n") if "256 MiB" in line]
    assert all(line.split()[-5:] == ["-", "-", "-", "?", "no"] for line in rows)
    assert len(rows) == 3


def test_columns_are_as_wide_as_their_widest_and_numbers_stand_right() -> None:
    told = list(table(("name", "GB/s"), [("a", "1.0"), ("longer", "100.5")]))
    assert told == ["  name     GB/s", "  a         1.0", "  longer  100.5"]
    assert list(table(("name",), [])) == []


@each("reason", SkipReason)
def test_a_refusal_says_which_and_what_it_means(reason: SkipReason) -> None:
    shut = gate(Refusal(reason, "as drawn"), "nccl")
    assert (shut.open, shut.reason, shut.meaning) == (False, reason.value, reason.meaning)
    told = refused(Refusal(reason, "as drawn"), EPOCH)
    assert (told.outcome, told.health, told.why) == ("skipped", "unknown", f"{reason.value}: as drawn")
    assert probe_tables(told, explain=False).split("\n") == [
        "UNKNOWN", f"  skipped: {reason.value}: as drawn",
    ]  # fmt: skip


def test_the_state_has_the_gate_the_last_probe_and_those_before() -> None:
    assert probes_of(NodeState(), EPOCH).last is None
    node = Idle(2)
    node.knobs = {"speed": 0.5}
    node.probe(2)
    node.outcome = "timeout"
    node.probe()
    node.busy(0, 4711)
    node.poll()
    told = probes_of(NodeState().with_component(node.component), node.clock.now())
    assert (told.gate.open, told.gate.reason, told.gate.engine) == (False, "busy", "nccl")
    assert [past.outcome for past in told.past] == ["timeout", "ok", "ok"]
    assert told.fresh
    assert told.last is not None
    assert told.last.health == "failed"
    assert told.past[1].worst_ratio == pytest.approx(0.5, rel=0.1)
    assert PROBES.validate_json(PROBES.dump_json(told)) == told


def test_a_probe_without_gpus_or_document_names_none() -> None:
    bare = probe(replace(ALL["broken off"], gpus=()), ())
    assert (bare.gpus, bare.results, bare.copies, bare.path, bare.cpu_seconds) == ([], [], [], [], None)


TWO = on_switch(2)
GOOD, SLOW, BAD = drawn(TWO), drawn(TWO, speed=0.5), drawn(TWO, outcome="failed")


def now(node: Idle) -> ProbeSummary:
    found = probe_summary(node.component, node.clock.mono())
    assert found is not None
    return found


def test_where_nothing_is_probed_there_is_nothing_to_tell() -> None:
    assert probe_summary(None, 1.0) is None
    assert probe_summary(Component("probe", None), 1.0) is None


def test_before_the_first_probe_it_is_never() -> None:
    assert probe_summary(Component("probe", ProbeMemory()), 1.0) == ProbeSummary()
    assert ProbeSummary() == ProbeSummary(0.0, None, fresh=False, complete=0, clean=False, watched=True)


def test_the_newest_complete_one_ages_and_is_fresh_for_a_while() -> None:
    node = Idle(2)
    node.probe()
    began = node.memory.past[-1].at
    ended = began - node.clock.now() + node.clock.mono() + 1.5
    first = now(node)
    assert (first.at, first.fresh, first.complete, first.clean) == (began, True, 1, True)
    assert first.age_seconds is not None
    assert abs(first.age_seconds - (node.clock.mono() - ended)) < 1e-6
    # Also of a component that turns no more.
    assert [probe_summary(node.component, ended + late).fresh for late in (7199.0, 7201.0)] == [True, False]  # type: ignore[union-attr]
    assert probe_summary(node.component, 0.0).age_seconds == 0.0  # type: ignore[union-attr]


def test_the_newest_that_is_complete_says_whether_it_is_clean() -> None:
    node = Idle(2)
    node.probe()
    node.knobs = {"speed": 0.5}
    node.probe()
    assert (now(node).complete, now(node).clean) == (2, False)
    node.knobs, node.outcome = {}, "timeout"
    node.probe()
    assert (now(node).complete, now(node).clean) == (2, False)
    node.outcome = "ok"
    node.probe()
    assert (now(node).complete, now(node).clean) == (3, True)


def test_mig_makes_nothing_clean() -> None:
    node = Idle(2)
    node.knobs = {"speed": 0.5}
    node.probe()
    node.answer(0, "MigMode", [1, 1])
    node.poll()
    assert node.memory.held == ()
    assert (now(node).clean, now(node).watched) == (False, False)


def test_it_is_watched_until_it_is_known_that_there_is_nothing() -> None:
    node = Idle(2)
    node.gpus.absent = Absent(Why.TIMEOUT, "no answer")
    node.poll()
    assert now(node).watched
    node.gpus.absent, node.gpus.addresses = None, node.gpus.addresses[:1]
    node.poll()
    assert not now(node).watched


@given(st.lists(st.tuples(st.sampled_from([GOOD, SLOW, BAD, gloo()]), st.booleans()), max_size=8))
def test_forced_ones_and_broken_ones_count_for_nothing(probes: list[tuple[Probed, bool]]) -> None:
    memory = ProbeMemory()
    for number, (probed, forced) in enumerate(probes):
        memory = fold_probe(memory, replace(probed, forced=forced), float(number), ProbePolicy())
    whole = [probed for probed, forced in probes if not forced and probed.outcome == "ok"]
    assert (memory.completed, memory.clean) == (len(whole), bool(whole) and whole[-1] is GOOD)
