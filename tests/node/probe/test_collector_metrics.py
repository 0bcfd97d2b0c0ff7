"""The probe's series: which there are, of what, and that no two are told apart by nothing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import get_args

import pytest

from tests.node.probe.drawn import OFF, broken, drawn, gloo, on_pcie, on_switch, two_islands
from tests.rows import each
from tests.support import EPOCH
from wirewatch.core.account import Account
from wirewatch.core.probe import Probed
from wirewatch.core.types import Finding, Health, Sample, Subject
from wirewatch.nccl.log import TransportWire
from wirewatch.probe import collector as exposed
from wirewatch.probe.collector import METRICS, OUTCOMES, WORST_FIRST, samples, transport
from wirewatch.probe.gate import GateFacts, SkipReason, Stillness
from wirewatch.probe.judge import fold_probe
from wirewatch.probe.measurement import measure
from wirewatch.probe.model import ProbeMemory, ProbePolicy, ProbeReading

LARGE = str(256 << 20)
READING = ProbeReading(GateFacts((), (), None, 0.0), Stillness(), "nccl", due=False, refusal=None)
ALL: Mapping[str, Probed] = {
    "two": drawn(on_switch(2)),
    "eight with NVLS": drawn(on_switch(8, settings={}), speed=1.2),
    "islands": drawn(two_islands(), whole="SHM/direct/direct"),
    "islands of two": drawn(two_islands(2)),
    "PCIe": drawn(on_pcie(4), transport="SHM/direct/direct"),
    "a product that is not known": drawn(on_switch(8, "NVIDIA R100")),
    "processors": gloo(),
    "without a log": replace(drawn(on_switch(2)), account=None),
    "torch": drawn(on_switch(4), engine="torch"),
}


def labels(sample: Sample) -> dict[str, str]:
    return dict(zip(sample.metric.labels, sample.labels, strict=True))


def series(told: Iterable[Sample], name: str, **wanted: str) -> dict[tuple[str, ...], float]:
    """Values by their labels, of those that carry `wanted`."""
    return {s.labels: s.value for s in told if s.metric.name == name and wanted.items() <= labels(s).items()}


def results(probed: Probed) -> Iterator[Sample]:
    return exposed.results(probed, measure(probed))


def exported(memory: ProbeMemory) -> list[Sample]:
    return list(samples(READING, memory))


def remembered(probed: Probed) -> ProbeMemory:
    return replace(fold_probe(ProbeMemory(), probed, 1000.0, ProbePolicy()), fresh=True)


@each("name", ALL)
def test_no_two_series_share_their_labels_and_all_are_declared(name: str) -> None:
    told = exported(remembered(ALL[name]))
    assert len({(s.metric.name, s.labels) for s in told}) == len(told)
    assert {s.metric for s in told} <= set(METRICS)
    assert all(isinstance(s.value, int | float) for s in told)


# --- results


def test_two_gpus_have_three_sizes_of_three_collectives() -> None:
    told = list(results(ALL["two"]))
    for name in (
        "busbw_bytes_per_second",
        "expected_busbw_bytes_per_second",
        "busbw_ratio",
        "busbw_peak_ratio",
    ):
        assert len(series(told, f"probe_{name}", ranks="2", gpus="all")) == 9
    assert set(series(told, "probe_expected_known").values()) == {1.0}
    (value,) = series(told, "probe_busbw_bytes_per_second", op="all_reduce", size_bytes=LARGE).values()
    assert value == pytest.approx(298.6e9, rel=1e-3)
    assert series(told, "probe_latency_seconds") == {
        (op, "2", "all"): 6.8e-6 for op in ("all_reduce", "all_gather", "reduce_scatter")
    }


def test_the_whole_and_both_islands_are_told_apart_by_gpus() -> None:
    told = list(results(ALL["islands"]))
    found = series(told, "probe_busbw_bytes_per_second", op="all_reduce", size_bytes=LARGE)
    assert {key[2:] for key in found} == {("8", "all"), ("4", "0-3"), ("4", "4-7")}
    ways = {key[2]: key[3] for key in series(told, "probe_path_info", op="all_reduce")}
    assert ways == {"all": "shm", "0-3": "p2p", "4-7": "p2p"}
    assert len(series(told, "probe_latency_seconds")) == 9


def test_nvls_may_exceed_the_wire() -> None:
    told = list(results(ALL["eight with NVLS"]))
    largest = {"op": "all_reduce", "size_bytes": str(512 << 20)}
    for name in ("probe_busbw_ratio", "probe_busbw_peak_ratio"):
        (value,) = series(told, name, **largest).values()
        assert value > 1
    assert ("all_reduce", "8", "all", "p2p", "nvls", "simple", "nccl") in series(told, "probe_path_info")


def test_without_a_reference_there_is_no_ratio_and_that_is_reported() -> None:
    told = list(results(ALL["a product that is not known"]))
    assert len(series(told, "probe_busbw_bytes_per_second")) == 9
    assert set(series(told, "probe_expected_known").values()) == {0.0}
    for name in ("expected_busbw_bytes_per_second", "busbw_ratio", "busbw_peak_ratio"):
        assert series(told, f"probe_{name}") == {}


def test_the_share_of_the_wire_is_there_without_a_reference() -> None:
    """Before: no series, since what is expected and the wire were dropped together."""
    told = list(results(drawn(on_switch(2, "NVIDIA GB200"), speed=0.1)))
    assert set(series(told, "probe_expected_known").values()) == {0.0}
    assert series(told, "probe_busbw_ratio") == {}
    shares = series(told, "probe_busbw_peak_ratio")
    assert len(shares) == 9
    busbw = series(told, "probe_busbw_bytes_per_second")
    assert shares == pytest.approx({key: value / 900e9 for key, value in busbw.items()})


def test_a_pin_alone_takes_nothing_from_the_share_of_the_wire() -> None:
    pinned = tuple(replace(one, pins={"all_gather": 300e9}) for one in on_switch(2, "NVIDIA GB200"))
    told = list(results(drawn(pinned)))
    assert len(series(told, "probe_busbw_peak_ratio")) == 9
    known = series(told, "probe_expected_known")
    assert {key[0] for key, value in known.items() if value} == {"all_gather"}


def test_gloo_has_speeds_and_nothing_to_compare_them_with() -> None:
    told = list(results(ALL["processors"]))
    assert {s.metric.name for s in told} == {
        "probe_busbw_bytes_per_second", "probe_expected_known", "probe_latency_seconds", "probe_path_info",
    }  # fmt: skip
    assert set(series(told, "probe_expected_known").values()) == {0.0}
    assert ("all_reduce", "4", "all", "", "", "", "gloo") in series(told, "probe_path_info")


def test_peers_go_by_index_in_both_directions() -> None:
    renumbered = replace(ALL["two"], gpus=tuple(replace(gpu, index=gpu.index + 4) for gpu in ALL["two"].gpus))
    found = series(results(renumbered), "peer_bandwidth_bytes_per_second")
    assert set(found) == {("4", "5"), ("5", "4")}
    assert found["4", "5"] == pytest.approx(390.1e9, rel=1e-3)


def test_a_path_is_that_of_the_largest_message() -> None:
    probed = drawn(on_switch(8, settings=OFF))
    assert isinstance(probed.account, Account)
    largest = max(call.size_bytes for call in probed.account.calls)
    calls = tuple(
        replace(call, algorithm="tree") if call.size_bytes == largest else call
        for call in probed.account.calls
    )
    told = replace(probed, account=replace(probed.account, calls=calls))
    backwards = replace(told.plan, bandwidth=told.plan.bandwidth[::-1])
    assert told.document is not None
    document = replace(told.document, collectives=told.document.collectives[::-1])
    for one in (told, replace(told, plan=backwards, document=document)):
        found = series(results(one), "probe_path_info", op="all_reduce")
        assert set(found) == {("all_reduce", "8", "all", "p2p", "tree", "simple", "nccl")}


@each(
    ("ways", "told"),
    [
        (("P2P/CUMEM", "NVLS"), "p2p"), (("P2P/CUMEM", "SHM/direct"), "shm"), (("NVLS", "NVLS"), "nvls"),
        (("NET/Socket/0", "SHM/direct"), "net_socket"), (("SHM/direct", "NET/IB/0"), "net_ib"),
    ],
)  # fmt: skip
def test_the_worst_way_of_several_is_reported(ways: tuple[str, str], told: str) -> None:
    probed = drawn(on_switch(2))
    assert isinstance(probed.account, Account)
    (comm,) = probed.account.comms
    ring = tuple(replace(c, transport=way) for c, way in zip(comm.connections, ways, strict=True))
    probed = replace(probed, account=replace(probed.account, comms=(replace(comm, connections=ring),)))
    assert transport(probed, (0,)) == told
    assert transport(replace(probed, account=None), (0,)) == ""


def test_every_wire_has_its_place_among_the_worst() -> None:
    assert sorted(WORST_FIRST) == sorted(get_args(TransportWire))


# --- counts, and what is withdrawn


def test_every_count_is_there_from_the_start() -> None:
    told = exported(ProbeMemory())
    assert series(told, "probe_runs_total") == {(outcome,): 0 for outcome in OUTCOMES}
    assert series(told, "probe_skips_total") == {(reason.value,): 0 for reason in SkipReason}
    assert series(told, "probe_last_success_timestamp_seconds") == {(): 0}
    assert series(told, "probe_gpu_seconds_total") == {(): 0.0}
    assert series(told, "probe_fresh") == {(): 0}
    assert series(told, "probe_holds") == {(): 0}
    assert len(told) == len(OUTCOMES) + len(SkipReason) + 4


def test_runs_cost_and_time_are_reported_of_every_probe() -> None:
    good = drawn(on_switch(2), at=EPOCH)
    memory = fold_probe(
        fold_probe(ProbeMemory(), good, 1000.0, ProbePolicy()), broken(good, "timeout"), 2000.0, ProbePolicy()
    )
    told = exported(memory)
    assert series(told, "probe_runs_total", result="ok") == {("ok",): 1}
    assert series(told, "probe_runs_total", result="timeout") == {("timeout",): 1}
    assert series(told, "probe_gpu_seconds_total") == {(): pytest.approx(4 * 1.1824)}
    assert series(told, "probe_last_success_timestamp_seconds") == {(): EPOCH}
    assert series(told, "probe_duration_seconds") == {(): 1.4955}


@each(
    ("rule", "uuid", "signal"),
    [
        ("probe.uneven", "GPU-1", "link"), ("straggler.memory", "GPU-1", "memory"),
        ("probe.busbw", "GPU-1", None), ("probe.uneven", "", None), ("straggler.memory", "", None),
    ],
)  # fmt: skip
def test_a_slow_part_of_a_gpu_that_is_known_has_a_series(rule: str, uuid: str, signal: str | None) -> None:
    slow = Finding(rule, Health.DEGRADED, Subject(gpu="1", uuid=uuid), "slow", "look")
    found = series(exported(ProbeMemory(held=(slow,))), "straggler")
    assert found == ({("1", uuid, signal): 1.0} if signal else {})


def test_what_is_not_fresh_is_withdrawn_but_for_its_age() -> None:
    stale = replace(remembered(ALL["two"]), fresh=False)
    told = exported(stale)
    assert series(told, "probe_fresh") == {(): 0}
    assert series(told, "probe_last_success_timestamp_seconds") == {(): EPOCH}
    gone = {s.metric.name for s in exported(remembered(ALL["two"]))} - {s.metric.name for s in told}
    assert gone == {
        "probe_busbw_bytes_per_second", "probe_expected_busbw_bytes_per_second", "probe_busbw_ratio",
        "probe_busbw_peak_ratio", "probe_expected_known", "probe_latency_seconds", "probe_path_info",
        "peer_bandwidth_bytes_per_second", "straggler_score",
    }  # fmt: skip


def test_a_broken_probe_takes_no_result_away_and_gives_none() -> None:
    good = remembered(ALL["two"])
    after = replace(fold_probe(good, broken(ALL["two"], "failed"), 2000.0, ProbePolicy()), fresh=True)
    assert series(exported(after), "probe_busbw_ratio") == series(exported(good), "probe_busbw_ratio") != {}
    assert list(results(replace(ALL["two"], outcome="failed", document=None))) == []
