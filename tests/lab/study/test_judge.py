"""Runs of nccl-tests against what their wires and networks should give."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab.study import printed
from tests.lab.study.printed import Form, Job, Written
from tests.lab.study.test_nccllog import SETUP, chosen
from tests.lab.study.test_nccltests import read
from tests.node.nccl.texts import links, pointer, say
from tests.rows import each
from wirewatch.busbw.formulas import factor
from wirewatch.cli.topologies import of_name
from wirewatch.core.probe import MIB
from wirewatch.core.topology import Topology, WireKind
from wirewatch.core.types import Absent, Health
from wirewatch_lab.study import basis as basis_module
from wirewatch_lab.study import judge as module
from wirewatch_lab.study.basis import BasisOf, RunGrounds
from wirewatch_lab.study.judge import JudgedRun, judge, of_log, overall
from wirewatch_lab.study.nccllog import read_log
from wirewatch_lab.study.parsed import ParsedSeries, parsed_run
from wirewatch_lab.study.points import Placed, RepeatedRow, library, to_study
from wirewatch_lab.study.runs import BenchmarkRow, BenchmarkRun, RankGpu

RING = {"NCCL_NVLS_ENABLE": "0"}
NODES = 2


def by_header(settings: dict[str, str]) -> BasisOf:
    return RunGrounds(settings).basis


def by_topology(topology: Topology, of: str, settings: dict[str, str]) -> BasisOf:
    return RunGrounds(settings, topology=topology, of=of).basis


def judged(job: Job, settings: dict[str, str] | None = None, ratio: float = 0.7) -> JudgedRun:
    (run,) = read(printed.lines(job)).runs
    return judge(run, by_header(RING if settings is None else settings), ratio)


def of_busbw(op: str, ranks: int, size: int, rate: float) -> Written:
    """A row with this bus bandwidth in bytes per second."""
    micro = factor(op, ranks) * size / rate * 1e6
    return Written(size, micro, micro)


def test_eight_h200_on_one_node() -> None:
    """The figures of the recording: 248.0 of 245.6 GB/s at 16 MiB."""
    found = judged(Job())
    size = found.sizes[0]
    assert (found.health, size.in_place, size.point.size_bytes) == (Health.OK, False, 16 * MIB)
    assert (round(size.busbw / 1e9, 1), round(size.expected.busbw / 1e9, 1)) == (248.0, 245.6)
    assert round(size.ratio, 2) == 1.01


def test_the_expectation_is_the_one_of_a_probe() -> None:
    """By the header, by the same GPUs of a topology, and by expect() alone."""
    job = Job(ranks=4, rows=(Written(1 << 28, 1183.48, 1186.22),))
    (run,) = read(printed.lines(job)).runs
    header = by_header({})(run)
    given = by_topology(of_name("h200x4-idle").topology, "it", {})(run)
    rates = set()
    for basis in (header, given):
        (way,) = basis.ways
        expected = way.expect("all_reduce", 1 << 28)
        assert not isinstance(expected, Absent)
        (size, _) = judge(run, lambda _run, one=basis: one).sizes  # type: ignore[misc]
        assert size.expected == expected
        rates.add(size.expected.busbw)
    assert len(rates) == 1


@pytest.mark.parametrize(("ratio", "health"), [(0.7, Health.FAILED), (0.3, Health.OK)])
def test_the_size_that_fails_is_named_and_the_average_decides_nothing(ratio: float, health: Health) -> None:
    """A footer's average that is high saves no size, and one that is low fails none."""
    slow = of_busbw("all_reduce", 8, 64 * MIB, 130e9)
    found = judged(replace(Job(), rows=(*Job().rows[:1], slow)), ratio=ratio)
    assert found.health is health
    assert {one.point.size_bytes for one in found.low} == ({64 * MIB} if health is Health.FAILED else set())


def test_wrong_values_are_worse_than_slow_ones_and_unchecked_ones_are_said() -> None:
    rows = (Written(16 * MIB, 118.38, 116.08, ("0", "3")), *Job().rows[1:])
    found = judged(replace(Job(), rows=rows))
    assert (found.health, found.checked) == (Health.FAILED, True)
    assert found.failures[0] == "wrong values at 16 MiB in place: 3 elements"
    unchecked = judged(replace(Job(), rows=tuple(replace(row, wrong=("N/A", "N/A")) for row in Job().rows)))
    assert (unchecked.health, unchecked.checked) == (Health.OK, False)
    assert "values were not checked" in unchecked.remarks


def test_the_largest_difference_of_old_versions_is_no_count() -> None:
    rows = (Written(16 * MIB, 240.0, 240.0, ("2e-07", "0")), Written(64 * MIB, 580.0, 580.0, ("2e-07", "0")))
    lines = [
        line.replace("Out of bounds values : 2 FAILED", "Out of bounds values : 0 OK")
        for line in printed.lines(Job(rows=rows, form=Form(9), product="A100-SXM4-40GB"))
    ]
    (run,) = read(lines).runs
    found = judge(run, by_header({}))
    assert (found.health, found.failures, found.checked) == (Health.OK, (), True)
    study = to_study([run], "it", 0.0)
    assert study.curves[0].points[0].wrong == 0
    assert study.environment["hosts"] == "1"
    assert "hosts" not in to_study([replace(run, devices=())], "it", 0.0).environment


def test_the_footer_of_old_versions_says_that_values_are_wrong() -> None:
    """Their rows have only the largest difference, which a sound run has too."""
    rows = (Written(16 * MIB, 240.0, 240.0, ("2e-07", "0")), Written(64 * MIB, 580.0, 580.0, ("2e-07", "0")))
    (run,) = read(printed.lines(Job(rows=rows, form=Form(9), product="A100-SXM4-40GB"))).runs
    found = judge(run, by_header({}))
    assert found.health is Health.FAILED
    assert found.failures == ("wrong values: its footer counts 2 out of bounds",)


@pytest.mark.parametrize(
    ("repeats", "count"),
    [((("3", "0"), ("0", "0")), 3), ((("0", "0"), ("3", "0")), 3), ((("3", "0"), ("N/A", "0")), 3)],
)
def test_values_that_were_wrong_in_any_repeat_are_wrong(
    repeats: tuple[tuple[str, str], ...], count: int
) -> None:
    """The footer's own count is not said again beside them."""
    job = Job(rows=tuple(Written(16 * MIB, 118.38, 116.08, wrong) for wrong in repeats))
    found = judged(job)
    assert (found.health, len(found.points)) == (Health.FAILED, 1)
    assert found.failures == (f"wrong values at 16 MiB: {count} elements",)


def test_a_header_that_lost_ranks_is_no_count_of_them() -> None:
    """A rank in the middle is missing: the seven others are not all."""
    (run,) = read([line for line in printed.lines(Job()) if "Rank  3" not in line]).runs
    assert (run.listed, run.ranks, run.ranks_from) == (None, 8, "the ratio of its busbw to its algbw")
    assert run.remarks == []
    found = judge(run, by_header(RING))
    assert (found.health, found.reason) == (
        Health.UNKNOWN,
        "its header names 7 of 8 GPUs: say --machine",
    )
    lines = [line for line in printed.lines(Job("broadcast")) if "Rank  3" not in line]
    assert read(lines).runs[0].ranks is None


ONE_NODE = "comm {} rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0"


@each(
    ("text", "health"),
    [
        (chosen(MIB, "RING"), Health.UNKNOWN),
        (links("P2P/CUMEM"), Health.UNKNOWN),
        (links("P2P/CUMEM") + chosen(MIB, "RING"), Health.OK),
        (links("WIFI/0") + chosen(MIB, "RING"), Health.UNKNOWN),
        (links("SHM/direct/direct") + chosen(MIB, "RING"), Health.DEGRADED),
        (say(ONE_NODE.format(pointer(0))) + links("NET/Socket/0") + chosen(MIB, "RING"), Health.DEGRADED),
        (links("SHM/direct/direct"), Health.DEGRADED),
    ],
    ids=[
        "no wire",
        "no choice",
        "a wire",
        "another wire",
        "host memory",
        "network on one node",
        "host memory, no choice",
    ],
)
def test_a_log_alone_is_judged_by_its_wires(text: str, health: Health) -> None:
    assert of_log(read_log((SETUP + text).split("\n"))) is health


@each(
    ("job", "reason"),
    [
        (Job(product="NVIDIA R100"), "how NVIDIA R100 are joined"),
        (Job(product="NVIDIA H200 NVL", ranks=4), "NVIDIA H200 NVL may be joined in several ways"),
        (Job("sendrecv"), "no reference for pairwise sendrecv of 8 Hopper GPUs over NVSwitch"),
        (Job(ranks=1), "one GPU alone has no wire to another"),
        (Job("scatter", ranks=16, hosts=NODES), "which network joins its 2 nodes? Say --network p5e"),
    ],
)
def test_where_nothing_is_expected_nothing_is_judged(job: Job, reason: str) -> None:
    found = judged(job)
    assert (found.health, found.sizes) == (Health.UNKNOWN, ())
    assert found.reason.startswith(reason)


def test_a_table_alone_is_judged_by_a_topology_that_is_given() -> None:
    lines = printed.lines(Job())
    (run,) = read(lines[lines.index("# Using devices") + 10 :]).runs
    assert judge(run, by_header({})).reason.startswith("no header names its GPUs: say --machine")
    found = judge(run, by_topology(of_name("h200x8").topology, "it", RING))
    assert (found.health, found.sizes[0].expected.algorithm) == (Health.OK, "Ring")


def test_more_ranks_than_a_topology_has_are_not_judged() -> None:
    (run,) = read(printed.lines(Job())).runs
    found = judge(run, by_topology(of_name("h200x4-idle").topology, "it", {}))
    assert found.reason == "the topology has 4 GPUs, the run 8 ranks"


def test_a_run_on_one_gpu_of_a_topology_is_not_judged() -> None:
    (run,) = read(printed.lines(Job(ranks=1))).runs
    found = judge(run, by_topology(of_name("h200x4-idle").topology, "it", {}))
    assert (found.reason, found.health) == ("one GPU alone has no wire to another", Health.UNKNOWN)


def test_a_run_that_was_judged_outweighs_those_that_could_not_be() -> None:
    assert overall([Health.UNKNOWN, Health.OK], []) is Health.OK
    assert overall([Health.UNKNOWN, Health.DEGRADED, Health.OK], []) is Health.DEGRADED
    assert overall([Health.UNKNOWN], []) is Health.UNKNOWN
    assert overall([Health.OK], ["Segmentation fault"]) is Health.FAILED


def test_runs_of_one_configuration_are_repeats_of_a_curve() -> None:
    runs = read(printed.lines(Job()) * 3).runs
    study = to_study(runs, "it", 5.0)
    assert [(curve.op, curve.in_place, len(curve.points)) for curve in study.curves] == [
        ("all_reduce", False, 2),
        ("all_reduce", True, 2),
    ]
    point = study.curves[0].points[0]
    assert (point.size_bytes, point.wrong) == (16 * MIB, 0)
    assert point.seconds == pytest.approx((118.38e-6,) * 3)
    assert study.environment["gpus"] == "NVIDIA H200"
    assert study.environment["nccl"] == "2.28.9"


def test_a_header_that_is_cut_in_the_name_of_a_gpu_says_so() -> None:
    rows = [line for line in printed.lines(Job()) if "#  Rank " in line]
    (run,) = read([*rows[:-1], rows[-1].rpartition("]")[0] + "] "]).runs
    assert (
        "how GPUs without a name, NVIDIA H200 are joined is not in its header" in by_header(RING)(run).reason
    )


def test_a_run_without_ranks_or_operation_is_in_no_curve_and_says_which() -> None:
    runs = [BenchmarkRun(3, "broadcast"), BenchmarkRun(7, ranks=8)]
    assert to_study(runs, "it", 0.0).problems == (
        "line 3: number of ranks not known: it is in no curve",
        "line 7: operation not known: it is in no curve",
    )


def test_a_row_without_a_size_or_a_time_is_in_no_curve_and_counted() -> None:
    (run,) = read(printed.lines(Job(rows=Job().rows[:1]))).runs
    (good,) = run.rows
    assert good.out_of_place is not None
    no_time = good._replace(out_of_place=good.out_of_place._replace(seconds=0.0), in_place=None)
    run.rows.add(no_time._replace(size_bytes=64 * MIB))
    run.rows.add(good._replace(size_bytes=0, in_place=None))
    study = to_study([run], "it", 0.0)
    assert [[point.size_bytes for point in curve.points] for curve in study.curves] == [[16 * MIB]] * 2
    assert study.problems == (f"line {run.line}: 2 rows without a size or time are in no curve",)


@each(
    ("code", "version"),
    [("22809", "2.28.9"), ("10000", "1.0.0"), ("9999", "9.9.99"), ("2804", "2.8.4"), ("999999", "99.99.99")],
)
def test_a_version_has_one_digit_or_two_for_each_part(code: str, version: str) -> None:
    assert library(code) == version


@pytest.mark.parametrize("text", ["1000000", "2.28.9", "", "two"])
def test_what_is_no_code_of_a_version_stays_as_it_is(text: str) -> None:
    assert library(text) == text


@each(
    ("wrong", "count"),
    [(("3", "N/A"), 3), (("N/A", "3"), 3), (("N/A", "N/A"), None), (("2", "3"), 5), (("0", "0"), 0)],
)
def test_wrong_elements_of_runs_of_one_configuration_are_summed(
    wrong: tuple[str, str], count: int | None
) -> None:
    """A run whose values were not checked adds none."""
    texts = [printed.lines(Job(rows=(Written(16 * MIB, 118.38, 116.08, (one, one)),))) for one in wrong]
    study = to_study(read([*texts[0], *texts[1]]).runs, "it", 0.0)
    assert [curve.points[0].wrong for curve in study.curves] == [count, count]


def test_rows_for_which_there_is_no_room_are_left_out_and_low_ones_last() -> None:
    slow = of_busbw("all_reduce", 8, 64 * MIB, 130e9)
    found = judged(replace(Job(), rows=(*Job().rows[:1], slow)))
    for room, sizes in ((1, [64 * MIB]), (2, [16 * MIB, 64 * MIB]), (3, [16 * MIB, 64 * MIB]), (0, [])):
        made = parsed_run(found, room)
        assert [row.size_bytes for row in made.rows] == sizes
        assert made.rows_left_out == 2 - len(sizes)


def test_of_thousands_of_repeats_and_failures_a_thousand_are_kept() -> None:
    (run,) = read(printed.lines(Job(rows=Job().rows[:1]))).runs
    (row,) = run.rows
    for _ in range(600):
        run.rows.add(row)
    (half,) = to_study([run], "it", 0.0).curves[0].points
    (both,) = to_study([run, run], "it", 0.0).curves[0].points
    for _ in range(400):
        run.rows.add(row)
    (whole,) = to_study([run], "it", 0.0).curves[0].points
    assert [len(one.seconds) for one in (half, both, whole)] == [601, 1000, 1000]
    found = judged(Job())
    many = replace(found, failures=("no",) * 1001, low=(*found.sizes, *found.sizes) * 300)
    made = parsed_run(many, 9)
    assert (len(made.failures), len(made.low)) == (1000, 1000)


def test_a_row_of_a_document_has_what_is_expected_of_it_or_nothing() -> None:
    for job, expected in ((Job(), True), (Job("sendrecv"), False)):
        found = judged(job)
        row, *_ = parsed_run(found, 9).rows
        known = (row.expected_busbw, row.expected_algorithm, row.confidence, row.derivation)
        if expected:
            due = found.sizes[0].expected
            assert known == (due.busbw, "Ring", due.confidence.value, [*due.derivation])
        else:
            assert known == (None, None, None, [])
        assert row.out_of_place is not None
        assert (row.out_of_place.ratio is not None) is expected
    without = replace(found.points[0], placed={})
    (bare,) = parsed_run(replace(found, points=[without]), 9).rows
    assert (bare.out_of_place, bare.in_place) == (None, None)


def test_series_have_what_is_known_of_a_row() -> None:
    series = ParsedSeries()
    series.add(judged(Job()))
    series.add(judged(replace(Job(), rows=tuple(replace(row, wrong=("N/A", "N/A")) for row in Job().rows))))
    series.add(judged(replace(Job(), rows=(Written(16 * MIB, 236.76, 232.16, ("2", "N/A")),))))
    unknown = read(printed.lines(Job("all_gather", form=Form(9)))).runs[0]
    series.add(judge(unknown, by_header(RING)))
    samples = list(series.samples("ok", 7))
    names = [one.metric.name for one in samples]
    assert names.count("parse_wrong_elements") == 4
    wrong = {one.labels[1:]: one.value for one in samples if one.metric.name == "parse_wrong_elements"}
    assert wrong[str(16 * MIB), "8", "out_of_place"] == 2
    assert wrong[str(16 * MIB), "8", "in_place"] == 0
    busbw = {
        one.labels[1:]: one.value for one in samples if one.metric.name == "parse_busbw_bytes_per_second"
    }
    assert busbw[str(16 * MIB), "8", "out_of_place"] == pytest.approx(248.0e9, rel=1e-3)
    assert len(busbw) == 4
    ratios = [one.value for one in samples if one.metric.name == "parse_busbw_ratio"]
    assert len(ratios) == 4
    health = {one.labels[0]: one.value for one in samples if one.metric.name == "parse_health"}
    assert [name for name, value in health.items() if value] == ["ok"]
    assert samples[-1].value == 7


@pytest.mark.parametrize(
    ("healths", "failures", "found"),
    [
        ([], [], Health.UNKNOWN),
        ([Health.UNKNOWN, Health.FAILED, Health.DEGRADED], [], Health.FAILED),
        ([Health.UNKNOWN], ["x"], Health.FAILED),
    ],
)
def test_the_worst_of_what_was_judged(healths: list[Health], failures: list[str], found: Health) -> None:
    assert overall(healths, failures) is found


def test_remarks_say_what_is_odd_of_a_run() -> None:
    lines = printed.lines(Job())
    (run,) = read(lines[: lines.index("# Out of bounds values : 0 OK")]).runs
    assert judge(run, by_header(RING)).remarks[0] == "it has no footer, but all of its sizes"
    timed = judged(Job(form=Form(cputime=True)))
    assert "its times are the processors' (-C): those of operations follow from bandwidths" in timed.remarks
    rows = [line.replace("322.75", "222.75") for line in lines]
    (differing,) = read(rows).runs
    assert judge(differing, by_header(RING)).remarks[0] == (
        "the busbw of 1 rows is not that of all_reduce with 8 ranks: what follows from size, time and ranks "
        "is judged"
    )
    assert judged(replace(Job(), rows=())).remarks == ("incomplete: its table has no rows",)


# --- the parts of a verdict


def part(name: str, *values: Any, **more: Any) -> Any:
    return vars(module)[f"_{name}"](*values, **more)


def device(number: int, product: str = "NVIDIA H200", host: str = "n1", bus: str = "") -> RankGpu:
    return RankGpu(number, 0, 100 + number, host, number, bus, product)


def run_of(**changes: Any) -> BenchmarkRun:
    return BenchmarkRun(**{"line": 1, "op": "all_reduce", "ranks": 8, "table": True, **changes})


ROW = BenchmarkRow(MIB, MIB // 4, "float", "sum", "-1", None, None)


def with_rows(run: BenchmarkRun, *rows: BenchmarkRow) -> BenchmarkRun:
    for one in rows:
        run.rows.add(one)
    return run


@each(
    ("run", "checked", "remarks"),
    [
        (run_of(), True, []),
        (run_of(), False, []),
        (with_rows(run_of(), ROW), False, ["values were not checked"]),
        (with_rows(run_of(), ROW), True, []),
        (with_rows(run_of(begun=True), ROW), True, ["it has no footer, but all of its sizes"]),
        (with_rows(run_of(begun=True, ended=True), ROW), True, []),
        (run_of(begun=True), True, []),
        (run_of(repaired=2), True, ["2 rows were torn by NCCL's log and put together again"]),
        (run_of(differing=3), True, ["the busbw of 3 rows is not that of all_reduce with 8 ranks: "]),
        (run_of(cputime=True), True, ["its times are the processors' (-C): "]),
    ],
)
def test_what_is_remarked_on_a_run(run: BenchmarkRun, checked: bool, remarks: list[str]) -> None:  # noqa: FBT001
    found = part("remarks", run, checked=checked)
    assert len(found) == len(remarks)
    assert all(said.startswith(text) for said, text in zip(found, remarks, strict=True))


@each(
    ("changes", "wrong", "said"),
    [
        ({}, None, []),
        ({"out_of_bounds": 3}, None, ["wrong values: its footer counts 3 out of bounds"]),
        ({"out_of_bounds": 0}, None, []),
        ({"out_of_bounds": 3}, 2.0, ["wrong values at 1 MiB: 2 elements"]),
        ({}, 2.0, ["wrong values at 1 MiB: 2 elements"]),
        ({}, 0.0, []),
        ({"begun": True, "table": False}, None, []),
        ({"failures": ["Killed"]}, None, ["Killed"]),
    ],
)
def test_why_a_run_has_failed(changes: Any, wrong: float | None, said: list[str]) -> None:
    placed = {False: Placed(wrong=wrong)}
    found = [RepeatedRow(MIB, MIB // 4, "float", "sum", "-1", 1, placed)]
    assert list(part("failures", run_of(**changes), found)) == said


@each(
    ("product", "count", "kinds"),
    [
        ("NVIDIA H200", 2, [WireKind.SWITCH]),
        ("NVIDIA L40S", 8, [WireKind.PCIE] * 3),
        ("NVIDIA A10G", 4, [WireKind.PCIE] * 3),
        ("Tesla T4", 4, [WireKind.PCIE] * 3),
        ("Tesla V100-SXM2-16GB", 4, [WireKind.MESH]),
        ("Tesla V100-SXM2-16GB", 8, [WireKind.PARTIAL]),
        ("NVIDIA H100 PCIe", 2, [WireKind.PAIR, *[WireKind.PCIE] * 3]),
        ("NVIDIA H100 PCIe", 4, [WireKind.PCIE] * 3),
        ("NVIDIA RTX A6000", 2, [WireKind.PAIR, *[WireKind.PCIE] * 3]),
    ],
)
def test_gpus_of_a_header_are_joined_as_their_product_can_be(
    product: str, count: int, kinds: list[WireKind]
) -> None:
    devices = tuple(device(number, product) for number in range(count))
    found = basis_module.by_header(run_of(ranks=count, devices=devices), count)
    assert not isinstance(found, Absent)
    assert [one.group.kind for one in found[0]] == kinds


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ((device(0),), "one GPU alone has no wire to another"),
        ((device(0), device(1, "NVIDIA L40S")), "how NVIDIA H200, NVIDIA L40S are joined"),
        ((device(0), device(1, "GPUs without a name")), "how GPUs without a name, NVIDIA H200 are joined"),
    ],
)
def test_gpus_of_a_header_that_may_be_joined_in_any_way(devices: Any, why: str) -> None:
    found = basis_module.by_header(run_of(ranks=len(devices), devices=devices), len(devices))
    assert isinstance(found, Absent)
    assert why in found.detail


@pytest.mark.parametrize(
    ("ranks", "buses", "found"),
    [
        (None, (), [0, 1, 2, 3]),
        (4, (), [0, 1, 2, 3]),
        (2, (), [0, 1]),
        (2, (3, 2), [2, 3]),
        (2, (3,), [0, 1]),
        (5, (), "the topology has 4 GPUs, the run 5 ranks"),
    ],
)
def test_a_run_was_on_the_gpus_of_its_addresses(ranks: int | None, buses: Any, found: Any) -> None:
    topology = of_name("h200x4-idle").topology
    places = {gpu.index: gpu.place.address.rpartition(".")[0] for gpu in topology.gpus}
    devices = tuple(device(number, bus=places[number]) for number in buses)
    part_ = basis_module.chosen(topology, run_of(ranks=ranks, devices=devices))
    if isinstance(part_, Absent):
        assert part_.detail == found
        return
    assert sorted(gpu.index for gpu in part_.gpus) == found
    assert {wire.uuid for wire in part_.nvlink} == {gpu.uuid for gpu in part_.gpus}


@each(
    ("healths", "failures", "found"),
    [
        ([], [], Health.UNKNOWN),
        ([Health.UNKNOWN], [], Health.UNKNOWN),
        ([Health.UNKNOWN, Health.OK], [], Health.OK),
        ([Health.DEGRADED, Health.OK], [], Health.DEGRADED),
        ([Health.OK], ["Killed"], Health.FAILED),
    ],
)
def test_what_could_not_be_judged_counts_where_nothing_could(
    healths: Any, failures: Any, found: Health
) -> None:
    assert overall(healths, failures) is found


@each(
    ("hot", "fallback", "health"),
    [
        (None, False, Health.UNKNOWN),
        (SimpleNamespace(wires=[]), False, Health.UNKNOWN),
        (SimpleNamespace(wires=["NVLink"]), False, Health.OK),
        (SimpleNamespace(wires=["NVLink"]), True, Health.DEGRADED),
        (None, True, Health.DEGRADED),
    ],
)
def test_a_log_is_well_where_the_hot_wire_is_known_and_none_falls_back(
    hot: Any,
    fallback: bool,  # noqa: FBT001
    health: Health,
) -> None:
    comm = SimpleNamespace(wires=[SimpleNamespace(fallback=False), SimpleNamespace(fallback=fallback)])
    log: Any = SimpleNamespace(hot=hot, communicators=[comm])
    assert of_log(log) is health
