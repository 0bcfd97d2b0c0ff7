"""The verdict on public and drawn runs by every way in which their ranks may be joined."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.lab.study import printed
from tests.lab.study.printed import Job, Written
from tests.lab.study.test_nccltests import read
from tests.recorded import STUDIES
from tests.rows import each
from wirewatch.busbw.formulas import factor
from wirewatch.busbw.profiles import NetworkKind
from wirewatch.core.probe import MIB
from wirewatch.core.types import Absent, Health
from wirewatch_lab.advice.described import DescriptionError, described, network_of
from wirewatch_lab.cli.parse import parse
from wirewatch_lab.study.basis import RunGrounds, logged_network, one_process
from wirewatch_lab.study.judge import JudgedRun, judge
from wirewatch_lab.study.nccllog import read_log

OK, DEGRADED, UNKNOWN, FAILED = Health.OK, Health.DEGRADED, Health.UNKNOWN, Health.FAILED
H100, H200, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-40GB"
Table = dict[float, float]
"""MiB with GB/s of busbw."""


def job(product: str, table: Table, ranks: int = 16, hosts: int = 2, op: str = "all_reduce") -> Job:
    rows = []
    for mib, gigabytes in table.items():
        size = round(mib * MIB)
        micro = factor(op, ranks) * size / gigabytes / 1e3
        rows.append(Written(size, micro, micro * 1.01))
    return Job(op, ranks, tuple(rows), hosts=hosts, product=product)


def judged(one: Job, grounds: RunGrounds | None = None) -> JudgedRun:
    (run,) = read(printed.lines(one)).runs
    return judge(run, (grounds or RunGrounds()).basis)


def log_of(*texts: str) -> RunGrounds:
    lines = [f"n0:7:9 [0] NCCL INFO {text}" for text in texts]
    return RunGrounds(logged=logged_network(read_log(lines)))


def ports(layer: str, count: int) -> str:
    return "NET/IB : Using " + " ".join(f"[{n}]mlx5_{n}:1/{layer}" for n in range(count)) + " [RO]; OOB eth0"


EFA, FASTRAK = "Using network AWS Libfabric", "Using network FasTrak"
TCPX, SOCKET, IB = "Using network GPUDirectTCPX_v7", "Using network Socket", "Using network IB"
FAST: Table = {256: 335, 1024: 441, 8192: 479}
HALF: Table = {1024: 216, 8192: 231}


@pytest.mark.parametrize(
    ("file", "code", "first"),
    [
        ("a3mega.txt", 0, "OK: "),
        ("h100x8-half.txt", 2, "FAILED: all_reduce of 8 GiB: 189.9 of 464.9 GB/s, 41 %"),
        ("h100x8-latency100us.txt", 2, "FAILED: all_reduce of 4 KiB: 100 us instead of 45"),
        ("h100x8-nompi-mixed.txt", 3, "UNKNOWN: rank 0 is on node01 (process 1234) and on node02"),
        ("issue319_16xH100_89GBs.txt", 3, "UNKNOWN: which network joins its 2 nodes? Say --network p5"),
        ("l40s.txt", 0, "OK: the lowest is 14.3 of 11.1 to 25.3 GB/s that its wires may give, all_reduce"),
        ("nccl1453.txt", 3, "UNKNOWN: incomplete: "),
        ("nccl398.log", 3, "UNKNOWN: "),
        ("table_plus_log_hidden.txt", 2, "FAILED: all_reduce of 16 GiB in place: 44.2 of "),
    ],
)
def test_recorded_and_drawn_inputs_have_the_right_verdict(file: str, code: int, first: str) -> None:
    done = CliRunner().invoke(parse, [str(STUDIES / file)])
    assert (done.exit_code, done.stdout[: len(first)]) == (code, first)
    if "[" not in file and not file.endswith(".log"):
        assert len(done.stdout.splitlines()) <= 15
    explained = CliRunner().invoke(parse, [str(STUDIES / file), "--explain"])
    assert explained.exit_code == code
    assert len(explained.stdout.splitlines()) >= len(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("words", "code", "first"),
    [
        (("issue319_16xH100_89GBs.txt", "--network", "8xNDR"), 2, "FAILED: "),
        (("issue319_16xH100_89GBs.txt", "--machine", "8xH100+8xNDR"), 2, "FAILED: "),
        (("issue319_16xH100_89GBs.txt", "--network", "a3-high"), 0, "OK: "),
        (("a3mega.txt", "--network", "a3-mega"), 0, "OK: "),
        (("l40s.txt", "--machine", "8xL40S"), 0, "OK: "),
        (
            ("h100x8-half.txt", "--machine", "8xL40S"),
            3,
            "UNKNOWN: its 189.9 GB/s of 8 GiB are more than the 31.5",
        ),
    ],
)
def test_a_machine_or_network_that_is_named_answers_the_question(
    words: tuple[str, ...], code: int, first: str
) -> None:
    done = CliRunner().invoke(parse, [str(STUDIES / words[0]), *words[1:]])
    assert (done.exit_code, done.stdout[: len(first)]) == (code, first)


@each(
    ("product", "table", "said", "health"),
    [
        (H100, FAST, (EFA,), OK),
        (H100, FAST, (ports("IB", 8), IB), OK),
        (H200, FAST, (ports("RoCE", 8), IB), OK),
        (H100, HALF, (ports("RoCE", 8), IB), FAILED),
        (H100, {1024: 280, 8192: 290}, (ports("RoCE", 8), IB), UNKNOWN),
        (H100, HALF, (EFA,), FAILED),
        (H100, {1024: 44, 8192: 45}, (ports("IB", 8), IB), FAILED),
        (H100, {1024: 302, 8192: 335}, (FASTRAK,), OK),
        (H100, {1024: 120, 8192: 150}, (FASTRAK,), FAILED),
        (H100, {1024: 83, 8192: 85}, (TCPX,), OK),
        (A100, {1024: 76, 8192: 78}, (EFA,), OK),
        (A100, {1024: 33, 8192: 34}, (EFA,), UNKNOWN),
        (A100, {1024: 15, 8192: 15}, (EFA,), FAILED),
        (H200, {1024: 3.7, 8192: 3.8}, (SOCKET,), UNKNOWN),
        (H100, {1024: 89, 8192: 89}, (IB,), UNKNOWN),
        (H100, {1024: 89, 8192: 89}, (), UNKNOWN),
        (H100, {1024: 441, 8192: 479}, (), OK),
        ("NVIDIA L4", {1024: 9, 8192: 9}, (EFA,), UNKNOWN),
    ],
)  # fmt: skip
def test_the_network_of_a_log_decides(
    product: str, table: Table, said: tuple[str, ...], health: Health
) -> None:
    found = judged(job(product, table), log_of(*said) if said else RunGrounds())
    assert found.health is health
    assert bool(found.reason) is (health is UNKNOWN)
    assert bool(found.next) is (health is FAILED)
    assert found.asks is (health is UNKNOWN)


@each(
    ("product", "ranks", "table", "health"),
    [
        ("NVIDIA L40S", 8, {16: 14, 1024: 14.3}, OK),
        ("NVIDIA L40S", 8, {16: 3, 1024: 3.1}, FAILED),
        ("NVIDIA L40S", 8, {16: 9, 1024: 9}, UNKNOWN),
        ("NVIDIA GeForce RTX 4090", 4, {16: 24, 1024: 25.3}, OK),
        ("NVIDIA GeForce RTX 4090", 4, {16: 2, 1024: 2}, UNKNOWN),
        ("NVIDIA GeForce RTX 4090", 4, {16: 200, 1024: 300}, UNKNOWN),
        ("NVIDIA A10G", 4, {16: 9, 1024: 13}, OK),
        ("Tesla T4", 4, {16: 5, 1024: 7}, OK),
        ("Tesla T4", 4, {16: 1, 1024: 1}, FAILED),
        ("NVIDIA RTX A6000", 2, {16: 30, 1024: 36}, OK),
        ("NVIDIA RTX A6000", 2, {16: 15, 1024: 15}, UNKNOWN),
        ("NVIDIA A100 80GB PCIe", 2, {16: 150, 1024: 190}, OK),
        ("NVIDIA A100 80GB PCIe", 2, {16: 60, 1024: 90}, FAILED),
        ("NVIDIA A100 80GB PCIe", 2, {16: 20, 1024: 21}, UNKNOWN),
        ("Tesla V100-SXM2-32GB", 8, {16: 70, 1024: 125}, OK),
        ("Tesla V100-SXM2-32GB", 8, {16: 20, 1024: 25}, FAILED),
        (H100, 8, {16: 234, 64: 361, 1024: 466}, OK),
        (H100, 8, {16: 22, 256: 30, 1024: 32}, FAILED),
        (H100, 8, {16: 234, 1024: 1687}, UNKNOWN),
        (A100, 8, {16: 109, 64: 166, 1024: 228}, OK),
        (A100, 8, {16: 50, 64: 70, 1024: 110}, FAILED),
    ],
)  # fmt: skip
def test_products_on_one_node(product: str, ranks: int, table: Table, health: Health) -> None:
    assert judged(job(product, table, ranks, 1)).health is health


def test_one_slow_size_is_degraded_and_two_are_failed() -> None:
    table: Table = {16: 234, 64: 361, 256: 423, 1024: 466}
    good = job(H100, table, 8, 1)
    assert judged(good).health is OK
    one = replace(good.rows[-1], out=good.rows[-1].out * 2)
    assert judged(replace(good, rows=(*good.rows[:-1], one))).health is DEGRADED
    both = replace(one, inside=one.inside * 2)
    assert judged(replace(good, rows=(*good.rows[:-1], both))).health is FAILED


@pytest.mark.parametrize(("both", "health"), [(False, OK), (True, DEGRADED)])
def test_an_outlier_of_small_messages_is_no_fault(both: bool, health: Health) -> None:  # noqa: FBT001
    """In public runs single sizes of one placement take five times as long: 68 us beside 13."""
    rows = [Written(8 << n, 20.0, 20.0) for n in range(10)] + [Written(1 << 30, 4029, 4016)]
    rows[3] = Written(64, 90.0, 90.0)
    late = Written(1 << 18, 90.0, 90.0 if both else 20.0)
    found = judged(Job(rows=(*rows, late), product=H100))
    assert found.health is health
    assert {one.point.size_bytes for one in found.low} == ({1 << 18} if both else set())


def test_what_a_plugin_enforces_is_no_cause() -> None:
    settings = {"NCCL_TOPO_FILE": "/opt/aws-ofi-nccl/p5.xml", "NCCL_P2P_DISABLE": "1"}
    for network, causes in (("p5", 1), ("8xNDR", 2)):
        grounds = RunGrounds(settings, network=network_of(network))
        found = judged(job(H100, {1024: 90, 8192: 90}), grounds)
        assert sum(line.startswith("set: ") for line in found.next) == causes
    assert judged(job(H100, HALF), RunGrounds(network=network_of("a3-mega"))).health is not OK


@pytest.mark.parametrize(
    ("product", "settings", "said"),
    [
        (H100, {"NCCL_BUFFSIZE": "65536"}, "set: NCCL_BUFFSIZE=65536: smaller buffers"),
        (H100, {"NCCL_BUFFSIZE": "2097152"}, "set: NCCL_BUFFSIZE=2097152: not known whether"),
        ("NVIDIA L40S", {"NCCL_BUFFSIZE": "65536"}, "set: NCCL_BUFFSIZE=65536: not known whether"),
        (H100, {"NCCL_ALGO": "Ring"}, "set: NCCL_ALGO=Ring: not every algorithm"),
        (A100, {"NCCL_ALGO": "Ring"}, ""),
        (H100, {"NCCL_NVLS_ENABLE": "0"}, ""),
    ],
)
def test_a_setting_slows_by_a_figure_of_its_size_and_wire_alone(
    product: str, settings: dict[str, str], said: str
) -> None:
    found = judged(job(product, {1024: 3, 8192: 3}, ranks=8, hosts=1), RunGrounds(settings))
    lines = [line for line in found.next if line.startswith("set: ")]
    assert (len(lines), lines[0].startswith(said) if lines else said) == ((1, True) if said else (0, ""))


def test_of_small_messages_alone_no_setting_has_a_cost() -> None:
    slow = replace(
        job(H100, HALF, ranks=8, hosts=1), rows=tuple(Written(8 << n, 400, 400) for n in range(10))
    )
    found = judged(slow, RunGrounds({"NCCL_P2P_DISABLE": "1"}))
    assert found.next[0] == "set, and of small messages no cost is known: NCCL_P2P_DISABLE=1"


def test_ring_between_nodes_is_followed_by_what_is_expected_and_no_other_algorithm_is() -> None:
    for algorithm, causes in (("Ring", 0), ("Tree", 1)):
        grounds = RunGrounds({"NCCL_ALGO": algorithm}, network=network_of("8xNDR"))
        found = judged(job(H100, {1024: 50, 8192: 50}), grounds)
        lines = [line for line in found.next if line.startswith("set: ")]
        assert len(lines) == causes
        assert all("not known whether" in line for line in lines)


@pytest.mark.parametrize(
    ("op", "fast", "health"),
    [("alltoall", 310, UNKNOWN), ("alltoall", 85, UNKNOWN), ("all_reduce", 479, OK)],
)
def test_on_a_network_that_is_not_known_no_run_is_faster_than_all_networks(
    op: str, fast: float, health: Health
) -> None:
    """Eight ports of 800 Gb/s give each of 8 GPUs 187 GB/s of an alltoall between two nodes."""
    found = judged(job(H100, {1024: fast, 8192: fast}, op=op))
    assert found.health is health
    assert ("more than the 187.5 GB/s that its wires carry" in found.reason) == (fast == 310)


@pytest.mark.parametrize(("busbw", "health"), [(4.2, UNKNOWN), (20, OK)])
def test_cards_without_p2p_are_not_slow_by_what_others_reach_with_it(busbw: float, health: Health) -> None:
    found = judged(job("NVIDIA GeForce RTX 4090", {1024: busbw, 4096: busbw}, ranks=8, hosts=1))
    assert found.health is health
    assert ("through host memory is not known" in found.reason) == (health is UNKNOWN)
    others = judged(job("NVIDIA L40S", {1024: busbw, 4096: busbw}, ranks=8, hosts=1))
    assert others.health is (FAILED if health is UNKNOWN else OK)


def test_ports_that_the_log_lists_name_the_network() -> None:
    for layer, kind in (("IB", NetworkKind.INFINIBAND), ("RoCE", NetworkKind.ROCE)):
        assert log_of(ports(layer, 8)).logged.kinds == (kind,)


def test_ring_alone_is_expected_to_reach_what_a_ring_does() -> None:
    """By trees two nodes reach up to twice what their NICs carry."""
    rates = []
    for settings in ({}, {"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Ring,Tree"}):
        slow = job(H100, {1024: 100, 8192: 110})
        found = judged(slow, RunGrounds(settings, network=network_of("4xNDR")))
        rates.append(found.sizes[-1].expected.busbw / 1e9)
    assert rates == [pytest.approx(371, abs=2), pytest.approx(186, abs=2), pytest.approx(371, abs=2)]


def test_a_machine_of_which_several_are_used() -> None:
    """A table without a header takes as many machines as its ranks need."""
    lines = printed.lines(job(H100, FAST))
    start = next(at for at, line in enumerate(lines) if "out-of-place" in line)
    (run,) = read(lines[start:]).runs
    assert (run.ranks, run.nodes) == (16, 0)
    run.op = "all_reduce"
    grounds = RunGrounds(machine=described("8xH100+8xNDR"))
    found = judge(run, grounds.basis)
    assert (found.health, found.remarks[-1]) == (
        OK,
        "over 8x400G: InfiniBand, 8 NICs x 400 Gb/s = 400.0 GB/s a node",
    )
    few = judge(run, RunGrounds(machine=described("4xH100")).basis)
    assert few.health is not FAILED


@pytest.mark.parametrize(
    ("name", "kind", "rate"),
    [
        ("p5", NetworkKind.EFA, 400e9),
        ("A3-Mega", NetworkKind.TCPXO, 200e9),
        ("8xNDR", NetworkKind.INFINIBAND, 400e9),
        ("8x400G", NetworkKind.ROCE, 400e9),
        ("32x100g:efa", NetworkKind.EFA, 400e9),
        ("2x100G:sockets", NetworkKind.SOCKETS, 25e9),
    ],
)
def test_networks_by_name(name: str, kind: NetworkKind, rate: float) -> None:
    found = network_of(name)
    assert (found.kind, found.rate) == (kind, rate)


@pytest.mark.parametrize("name", ["p6", "", "0xNDR", "8xNDR:wifi", "8xWIFI", "x" * 99, "8xNDR+8xNDR"])
def test_what_is_no_network_is_one_line(name: str) -> None:
    with pytest.raises(DescriptionError) as error:
        network_of(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("said", "kind", "nics"),
    [
        ((EFA,), NetworkKind.EFA, 0),
        ((ports("IB", 8), IB), NetworkKind.INFINIBAND, 8),
        ((ports("RoCE", 4), "Using network NCCL RDMA Plugin v8"), NetworkKind.ROCE, 4),
        (("Using network gIB",), NetworkKind.ROCE, 0),
        ((FASTRAK,), NetworkKind.TCPXO, 0),
        ((TCPX,), NetworkKind.TCPX, 0),
        ((SOCKET,), NetworkKind.SOCKETS, 0),
        (("NET/IB : No device found.",), None, 0),
        ((), None, 0),
    ],
)
def test_networks_of_a_log(said: tuple[str, ...], kind: NetworkKind | None, nics: int) -> None:
    found = log_of(*said).logged
    assert found.kinds == ((kind,) if kind else ())
    assert found.nics == nics


def test_whether_one_process_launches_on_all_gpus() -> None:
    (run,) = read(printed.lines(Job())).runs
    assert not one_process(run)
    assert one_process(replace(run, devices=tuple(one._replace(pid=7) for one in run.devices)))
    bare = replace(run, devices=())
    assert one_process(bare)
    assert not one_process(replace(bare, parameters={"nThread": "1", "nGpus": "1"}))


def test_a_basis_is_kept_for_runs_that_are_alike() -> None:
    grounds = RunGrounds()
    runs = read(printed.lines(Job()) * 2).runs
    first, second = (grounds.basis(run) for run in runs)
    assert first is second
    assert not isinstance(first.ways[0].expect("all_reduce", 64 * MIB), Absent)
    assert grounds.basis(replace(runs[0], settings=(("NCCL_NVLS_ENABLE", "0"),))) is not first


@pytest.mark.parametrize(
    ("grounds", "hosts"),
    [(RunGrounds(), 1), (RunGrounds(), 2), (RunGrounds(network=network_of("gb200-nvl72")), 2)],
)
def test_a_run_that_is_faster_than_its_wires_is_not_known(grounds: RunGrounds, hosts: int) -> None:
    """The last network carries it; the wires inside the nodes do not."""
    found = judged(job(H100, {64: 900, 1024: 1687}, 8 * hosts, hosts), grounds)
    assert (found.health, found.sizes, found.asks) == (UNKNOWN, (), True)
    assert "GB/s of 1 GiB are more than the " in found.reason


@pytest.mark.parametrize("op", ["hypercube", "alltoallv"])
def test_a_test_without_a_factor_is_not_judged(op: str) -> None:
    (run,) = read(printed.lines(Job())).runs
    found = judge(replace(run, op=op), RunGrounds().basis)
    assert (found.health, found.reason) == (UNKNOWN, f"nothing is known to expect of {op}")
