"""What is expected of nodes drawn by hand, and how it is derived."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.busbw.nodes import (
    A100,
    A100_CARD,
    B200,
    H100,
    H100_NVL,
    H200,
    L40S,
    bridged,
    cube,
    meshed,
    node,
    parted,
    sockets,
    switched,
)
from tests.node.busbw.tables import GIB, H100_FOUR, MIB, rows
from tests.node.busbw.tables import H200 as H200_TABLE
from tests.rows import each
from wirewatch.busbw.expected import Expectation, GroupWire, choose, expect, pcie_rate, wire, wire_lines
from wirewatch.busbw.references import LEAST_BYTES, Confidence
from wirewatch.core.hostlink import Pcie
from wirewatch.core.probe import Conditions
from wirewatch.core.topology import SWITCH, UNKNOWN_PEER, Group, Topology, WireKind, groups, islands
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import size as human
from wirewatch.nccl.settings import SLOWING, is_shown, number, slowing_settings

OFF = {"NCCL_NVLS_ENABLE": "0"}
HOPPER = 18 * 26.562e9
SIZES = (64 * MIB, 256 * MIB, GIB)


def whole(topology: Topology) -> Group:
    return groups(topology, islands(topology))[0]


def expected(
    topology: Topology, op: str = "all_reduce", size: int = 256 * MIB, settings: Mapping[str, str] = OFF
) -> Expectation:
    told = expect(Conditions(whole(topology), settings=settings), op, size)
    assert isinstance(told, Expectation), told
    return told


def rate(topology: Topology, conditions: Conditions | None = None) -> float:
    found = wire(conditions or Conditions(whole(topology)))
    assert isinstance(found, GroupWire), found
    return found.rate


def absent(conditions: Conditions, op: str = "all_reduce", size: int = 256 * MIB) -> Absent:
    told = expect(conditions, op, size)
    assert isinstance(told, Absent)
    return told


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size", SIZES)
def test_eight_h200_by_ring_within_three_per_cent_of_what_was_recorded(op: str, size: int) -> None:
    told = expected(switched(H200, 8), op, size)
    assert told.busbw == pytest.approx(rows(H200_TABLE.format(op))[size].busbw, rel=0.03)
    assert told.algorithm == "Ring"
    assert told.confidence is Confidence.MEASURED
    assert rate(switched(H200, 8)) == pytest.approx(HOPPER)
    assert isinstance(told.asymptote, float)
    assert told.busbw < told.asymptote < HOPPER


@pytest.mark.parametrize("size", SIZES)
def test_four_h100_within_three_per_cent_of_what_was_published(size: int) -> None:
    told = expected(switched(H100, 4), size=size, settings={})
    assert told.busbw == pytest.approx(rows(H100_FOUR)[size].busbw, rel=0.03)
    assert (told.algorithm, told.confidence) == ("Ring", Confidence.MEASURED)


def test_the_derivation_is_reported_line_by_line() -> None:
    told = expected(switched(H200, 8))
    wire_line, off, share, latency = told.derivation
    assert wire_line == "18 NVLink links x 26.562 GB/s = 478.1 GB/s each way"
    assert off == "NVLS is switched off: NCCL_NVLS_ENABLE=0"
    assert share.startswith("Ring over NVSwitch, 8 GPUs: 75.2 % of the wire = 359.7 GB/s (measured: ")
    assert latency == "256 MiB: 38 us latency term -> 349.5 GB/s"
    assert told.source in share
    assert told.busbw == pytest.approx(349.5e9, rel=1e-4)


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
    st.integers(2**24, 2**35),
    st.integers(1, 2**30),
)
def test_larger_messages_are_never_expected_to_be_slower(op: str, size: int, more: int) -> None:
    for topology in (switched(H200, 8), switched(H100, 4)):
        small, large = expected(topology, op, size), expected(topology, op, size + more)
        assert small.busbw <= large.busbw
        assert isinstance(large.asymptote, float)
        assert large.busbw <= large.asymptote


def test_nvls_is_expected_where_the_defaults_take_it_and_is_not_clipped() -> None:
    told = expected(switched(H100, 8), size=16 * GIB, settings={})
    ring = expected(switched(H100, 8), size=16 * GIB)
    assert told.algorithm == "NVLS"
    assert told.busbw == pytest.approx(479.9e9, rel=0.04)
    assert told.busbw > 1.25 * ring.busbw
    assert any("may exceed" in line for line in told.derivation)
    h800 = expected(switched("NVIDIA H800", 8, 8), size=8 * GIB, settings={})
    assert h800.busbw == pytest.approx(215e9)
    assert h800.busbw > rate(switched("NVIDIA H800", 8, 8))


@pytest.mark.parametrize(("size", "gbs"), [(64 * MIB, 361.67), (256 * MIB, 422.25), (GIB, 466.33)])
def test_nvls_within_three_per_cent_of_what_was_published(size: int, gbs: float) -> None:
    told = expected(switched(H100, 8), size=size, settings={})
    assert told.busbw == pytest.approx(gbs * 1e9, rel=0.03)
    assert told.confidence is Confidence.PUBLISHED


def test_of_smaller_messages_ring_is_expected_where_it_gives_more_than_nvls() -> None:
    """As recorded on 8 H200, where Ring gave 248.0 GB/s at 16 MiB, and NVLS's line gives 213.2."""
    told, ring = (expected(switched(H200, 8), size=16 * MIB, settings=s) for s in ({}, OFF))
    assert told.busbw == ring.busbw == pytest.approx(245.6e9, rel=1e-3)
    assert told.algorithm == "Ring"
    assert "NCCL's tuner takes the faster of NVLS and Ring: at 16 MiB NVLS's line gives 213.2 GB/s" in (
        told.derivation
    )
    assert told.asymptote == expected(switched(H200, 8), size=GIB, settings={}).asymptote


@given(st.sampled_from([(H100, 6), (H200, 8), (B200, 8)]), st.integers(2**24, 2**34), st.integers(1, 2**30))
def test_the_faster_of_nvls_and_ring_is_expected_at_any_size(
    node_: tuple[str, int], size: int, more: int
) -> None:
    """B200's Ring is known of one size alone, which is no line."""
    product, count = node_
    either = expected(switched(product, count), size=size, settings={})
    assert either.busbw <= expected(switched(product, count), size=size + more, settings={}).busbw
    ring = expected(switched(product, count), size=size)
    assert either.algorithm == ("Ring" if product != B200 and either.busbw == ring.busbw else "NVLS")
    assert product == B200 or either.busbw >= ring.busbw


@pytest.mark.parametrize("size", [64 * MIB, 256 * MIB, 512 * MIB])
@pytest.mark.parametrize(("product", "nvls"), [(H100, True), (H200, True), (B200, True), (A100, False)])
def test_at_the_sizes_of_a_daemon_s_probe_eight_gpus_take_what_they_took(
    product: str, size: int, *, nvls: bool
) -> None:
    links = 18 if nvls else 12
    assert expected(switched(product, 8, links), size=size, settings={}).algorithm == (
        "NVLS" if nvls else "Ring"
    )


@each(
    ("product", "ranks", "op", "algorithm"),
    [
        (H100, 2, "all_reduce", "Ring"), (H200, 4, "all_reduce", "Ring"), (H200, 5, "all_reduce", "Ring"),
        (H100, 6, "all_reduce", "NVLS"), (H200, 8, "all_reduce", "NVLS"),
        (H200, 8, "all_gather", "Ring"), (H200, 8, "reduce_scatter", "Ring"),
        (B200, 4, "all_reduce", "Ring"), (B200, 8, "all_reduce", "NVLS"), (B200, 8, "all_gather", "Ring"),
        (A100, 8, "all_reduce", "Ring"),
    ],
)  # fmt: skip
def test_which_algorithm_nccl_s_defaults_take(product: str, ranks: int, op: str, algorithm: str) -> None:
    links = 12 if product == A100 else 18
    assert choose(Conditions(whole(switched(product, ranks, links))), op)[0] == algorithm


def test_nvls_is_of_a_switch_alone() -> None:
    assert choose(Conditions(whole(node([H200] * 8, {}, sockets(8)))), "all_reduce")[0] == "Ring"


def test_a_wire_counts_the_links_that_are_up_apart() -> None:
    found = wire(Conditions(whole(switched(H200, 8, lost=3, of=2)), link_rate=26.562e9))
    assert isinstance(found, GroupWire)
    assert (found.rate, found.live) == (18 * 26.562e9, 15 * 26.562e9)
    assert len(found.lines) == 2
    assert rate(switched(H200, 2), Conditions(whole(switched(H200, 2)), links=1)) == 26.562e9


@each("value", ["0", "00", "0x0", "off", "false", " 0"])
def test_nvls_switched_off_in_any_way_that_nccl_understands(value: str) -> None:
    conditions = Conditions(whole(switched(H200, 8)), settings={"NCCL_NVLS_ENABLE": value})
    algorithm, (why,) = choose(conditions, "all_reduce")
    assert algorithm == "Ring"
    assert f"NCCL_NVLS_ENABLE={value}" in why


@each("value", ["1", "2", "", "0x1", "1 # yes"])
def test_nvls_left_on(value: str) -> None:
    conditions = Conditions(whole(switched(H200, 8)), settings={"NCCL_NVLS_ENABLE": value})
    assert choose(conditions, "all_reduce")[0] == "NVLS"


def test_nvls_is_not_expected_where_the_driver_does_not_offer_it() -> None:
    group = whole(switched(H200, 8))
    without = expect(Conditions(group, multicast=False), "all_reduce", 256 * MIB)
    offered = expect(Conditions(group, multicast=True), "all_reduce", 256 * MIB)
    not_told = expect(Conditions(group), "all_reduce", 256 * MIB)
    assert isinstance(without, Expectation)
    assert isinstance(offered, Expectation)
    assert isinstance(not_told, Expectation)
    assert (without.algorithm, offered.algorithm) == ("Ring", "NVLS")
    assert not_told.busbw == offered.busbw
    assert {*not_told.derivation} - {*offered.derivation} == {
        "that the driver offers multicast is taken as given"
    }


@pytest.mark.parametrize("settings", [{"NCCL_ALGO": "Tree"}, {"NCCL_P2P_DISABLE": "1"}, {"NCCL_PROTO": "LL"}])
def test_other_settings_that_slow_change_no_expectation(settings: Mapping[str, str]) -> None:
    assert expected(switched(H200, 4), settings=settings) == expected(switched(H200, 4), settings={})
    assert [name for name, *_ in slowing_settings(settings)] == list(settings)


@given(st.integers(1, 18), st.integers(0, 7))
def test_a_lost_link_does_not_lower_what_is_expected(lost: int, gpu: int) -> None:
    sick, well = expected(switched(H200, 8, lost=lost, of=gpu)), expected(switched(H200, 8))
    assert rate(switched(H200, 8, lost=lost, of=gpu)) == rate(switched(H200, 8))
    assert (sick.busbw, sick.confidence) == (well.busbw, well.confidence)
    (line,) = {*sick.derivation} - {*well.derivation}
    assert line.startswith(f"GPU {gpu} shows {18 - lost} of 18 links up")


def test_a_lost_link_of_a_bridge_does_not_either() -> None:
    lacking = node([H100_NVL] * 2, {0: {1: 11}, 1: {0: 11}})
    sick = expected(lacking)
    assert rate(lacking) == rate(bridged(H100_NVL, 1)) == pytest.approx(12 * 26.562e9)
    assert sum("11 of 12 links" in line for line in sick.derivation) == 2


def test_a_product_without_data_is_measured_by_its_likes() -> None:
    links = {0: {SWITCH: 17}, 1: {SWITCH: 20}}
    told = wire(Conditions(whole(node(["NVIDIA R100"] * 2, links)), link_rate=100e9))
    assert isinstance(told, GroupWire)
    assert told.rate == 2000e9
    assert "GPU 0 shows 17 of 20" in told.lines[1]


def test_the_slowest_gpu_sets_the_pace_of_a_mixed_group() -> None:
    links = {0: {SWITCH: 18}, 1: {SWITCH: 8}}
    told = wire(Conditions(whole(node([H200, "NVIDIA H800"], links))))
    assert isinstance(told, GroupWire)
    assert told.rate == pytest.approx(8 * 26.562e9)
    assert told.lines == ("8 NVLink links x 26.562 GB/s = 212.5 GB/s each way", "of the slowest GPU")


def test_there_is_no_wire_for_one_gpu_without_links_or_on_a_strange_slot() -> None:
    (alone,) = islands(node([L40S], {}))
    one = wire(Conditions(Group(alone.gpus, alone.kind, alone.links, whole=True)))
    none_due = wire(Conditions(whole(switched(H200, 2)), links=0))
    strange = wire(Conditions(whole(node([L40S] * 2, {})), pcie=Pcie(9, 16)))
    untold = wire(Conditions(Group(alone.gpus, WireKind.UNKNOWN, alone.links, whole=True)))
    assert [told.detail for told in (one, none_due, strange, untold) if isinstance(told, Absent)] == [
        "one GPU alone has no wire to another",
        "GPU 0: no NVLink link is up, and none is known to be due",
        "not a PCIe link: generation 9, 16 lanes",
        "wires that are not known",
    ]


def test_how_a_wire_follows_is_said_and_that_it_is_not_known() -> None:
    assert wire_lines(GroupWire(1e9, ("one", "two"), 1e9)) == ("one", "two")
    assert wire_lines(Absent(Why.MISSING, "why")) == ("the wire is not known: missing: why",)


def test_the_operator_s_count_of_links_wins() -> None:
    told = wire(Conditions(whole(switched(H200, 8)), links=16))
    assert isinstance(told, GroupWire)
    assert told.rate == pytest.approx(16 * 26.562e9)


def test_a_driver_that_shows_another_rate_is_reported_and_the_product_s_data_are_used() -> None:
    told = wire(Conditions(whole(switched(B200, 8)), link_rate=53.125e9))
    assert isinstance(told, GroupWire)
    assert told.rate == 900e9
    assert told.lines[1:] == ("the driver shows 53.125 GB/s a link: the product's data are used",)


@pytest.mark.parametrize(("size", "gbs"), [(64 * MIB, 423.70), (256 * MIB, 659.23), (GIB, 722.20)])
def test_eight_b200_within_three_per_cent_of_what_was_published(size: int, gbs: float) -> None:
    told = expected(switched(B200, 8), size=size, settings={})
    assert told.busbw == pytest.approx(gbs * 1e9, rel=0.03)


def test_two_groups_of_four_are_expected_apart_and_together() -> None:
    topology = switched(H200, 8)
    node_, *fours = groups(topology, parted(topology, 4))
    for four in fours:
        told = expect(Conditions(four, settings=OFF), "all_reduce", 256 * MIB)
        assert isinstance(told, Expectation)
        assert told.busbw == expected(switched(H200, 4)).busbw
        assert told.confidence is Confidence.MEASURED
    whole_node = Conditions(node_, pcie=Pcie(5, 16), settings=OFF)
    together = expect(whole_node, "all_reduce", 256 * MIB)
    assert isinstance(together, Expectation)
    assert together.busbw == pytest.approx(40e9)
    assert rate(topology, whole_node) == pytest.approx(63e9, rel=1e-3)
    assert together.confidence is Confidence.LOW


def test_bridge_pairs() -> None:
    topology = bridged(A100_CARD, 2, places=sockets(4))
    node_, *pairs = groups(topology, islands(topology))
    for pair in pairs:
        told = expect(Conditions(pair), "all_reduce", 16 * GIB)
        assert isinstance(told, Expectation)
        assert told.busbw == pytest.approx(193e9)
        assert told.confidence is Confidence.PUBLISHED
        small = expect(Conditions(pair), "all_reduce", 256 * MIB)
        assert isinstance(small, Expectation)
        assert small.confidence is Confidence.LOW
        assert "no latency term is known" in small.derivation[-1]
    together = expect(Conditions(node_, pcie=Pcie(4, 16)), "all_reduce", 8 * GIB)
    assert isinstance(together, Expectation)
    assert together.busbw == pytest.approx(20e9)
    assert "a ring crosses the host bridges of one NUMA node" in together.derivation[0]


def test_pcie_only_whatever_the_product() -> None:
    topology = node([L40S] * 2, {}, sockets(2))
    told = expect(Conditions(whole(topology), pcie=Pcie(4, 16)), "all_reduce", 8 * GIB)
    assert isinstance(told, Expectation)
    assert told.busbw == pytest.approx(25.3e9, rel=1e-2)
    assert told.confidence is Confidence.LOW
    assert told.derivation[:2] == (
        "no NVLink joins all 2 GPUs: a ring crosses one PCIe switch",
        "PCIe 4 x16 = 31.5 GB/s each way",
    )
    narrow = expect(Conditions(whole(topology), pcie=Pcie(4, 8)), "all_reduce", 8 * GIB)
    assert isinstance(narrow, Expectation)
    assert narrow.busbw == pytest.approx(told.busbw / 2, rel=1e-2)


def test_between_sockets_and_without_a_slot_nothing_is_expected_of_pcie() -> None:
    far = whole(node([L40S] * 8, {}, sockets(8)))
    told = absent(Conditions(far, pcie=Pcie(4, 16)), "all_gather")
    assert "across the wire between sockets" in told.detail
    assert "PCIe generation" in absent(Conditions(whole(node([L40S] * 2, {})))).detail


@each(
    ("generation", "lanes", "rate"),
    [
        (1, 16, 4e9),
        (3, 16, 15.754e9),
        (4, 16, 31.508e9),
        (5, 16, 63.015e9),
        (5, 8, 31.508e9),
        (5, 1, 3.9385e9),
        (6, 16, 121e9),
    ],
)
def test_pcie_rates(generation: int, lanes: int, rate: float) -> None:
    assert pcie_rate(generation, lanes) == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize(("generation", "lanes"), [(0, 16), (7, 16), (5, 0)])
def test_what_is_no_pcie_link_has_no_rate(generation: int, lanes: int) -> None:
    assert isinstance(pcie_rate(generation, lanes), Absent)


@each(
    ("topology", "detail"),
    [
        (switched("NVIDIA R100", 8), "rate of a link of NVIDIA R100"),
        (switched("", 8), "rate of a link of a product without name"),
        (meshed(A100, 3, 6), "no reference for Ring all_reduce of 3 Ampere GPUs"),
        (switched(B200, 2), "no reference for Ring all_reduce of 2 Blackwell GPUs"),
        (node([H200, H200, A100], {i: {SWITCH: 12} for i in range(3)}), "several architectures"),
        (node([H200] * 2, {i: {UNKNOWN_PEER: 18} for i in range(2)}), "where its links go is not known"),
        (node([H200] * 2, {}), "none of the links is up"),
    ],
)
def test_without_reference_or_knowledge_nothing_is_expected(topology: Topology, detail: str) -> None:
    assert detail in absent(Conditions(whole(topology))).detail


def test_a_group_of_several_architectures_is_named() -> None:
    links = {i: {SWITCH: 12} for i in range(3)}
    told = absent(Conditions(whole(node([H200, H200, ""], links)), link_rate=25e9))
    assert told.detail == "GPUs of several architectures: NVIDIA H200, without a name"


@pytest.mark.parametrize(("share", "lines"), [(1.005, 1), (1.015, 2), (0.985, 2)])
def test_a_rate_within_one_per_cent_of_the_product_s_is_the_same(share: float, lines: int) -> None:
    found = wire(Conditions(whole(switched(B200, 8)), link_rate=share * 50e9))
    assert isinstance(found, GroupWire)
    assert len(found.lines) == lines


def test_an_unknown_product_with_a_known_rate_is_still_not_guessed() -> None:
    told = absent(Conditions(whole(switched("NVIDIA R100", 8)), link_rate=100e9))
    assert (told.why, told.detail) == (Why.MISSING, "the architecture of NVIDIA R100 is not known")


def test_one_gpu_small_messages_and_strange_collectives_have_no_bandwidth() -> None:
    (island,) = islands(switched(H200, 1))
    alone = Group(island.gpus, island.kind, island.links, whole=True)
    assert "1 GPU" in absent(Conditions(alone)).detail
    group = whole(switched(H200, 8))
    assert "measure latency" in absent(Conditions(group), size=LEAST_BYTES - 1).detail
    assert absent(Conditions(group), op="allreduce").detail == "no bus bandwidth of allreduce with 8 GPU"
    assert "pairwise sendrecv" in absent(Conditions(group), op="sendrecv").detail


@pytest.mark.parametrize(
    ("topology", "op", "size", "doubt"),
    [
        (switched(H200, 8), "all_reduce", 16 * MIB, "that is of 64 MiB and more"),
        (switched(H200, 5), "all_reduce", GIB, "that is of 4 GPUs"),
        (switched("NVIDIA H800", 8, 8), "all_gather", GIB, "that is of a wire of 478.1 GB/s"),
        (switched(H200, 2), "all_reduce", 32 * MIB, "that is of 64 MiB and more"),
    ],
)
def test_what_the_reference_was_not_measured_for_is_said_and_trusted_little(
    topology: Topology, op: str, size: int, doubt: str
) -> None:
    told = expected(topology, op, size)
    assert doubt in told.derivation
    assert told.confidence is Confidence.LOW


def test_a_cube_of_v100() -> None:
    told = expected(cube(), size=8 * GIB)
    assert told.busbw == pytest.approx(110e9)
    assert rate(cube()) == 150e9


def test_a_pin_at_a_size_wins_and_says_so() -> None:
    pins = {"all_reduce@268435456": 333e9, "all_reduce": 350e9}
    told = expect(Conditions(whole(switched(H200, 8)), pins=pins), "all_reduce", 256 * MIB)
    assert isinstance(told, Expectation)
    assert told.busbw == 333e9
    assert told.confidence is Confidence.OPERATOR
    assert told.derivation[-1] == "256 MiB: 333.0 GB/s, pinned by the operator"
    assert isinstance(told.asymptote, Absent)


def test_a_pinned_asymptote_keeps_the_latency_term() -> None:
    conditions = Conditions(whole(switched(H200, 8)), settings=OFF, pins={"all_reduce": 350e9})
    told = expect(conditions, "all_reduce", 256 * MIB)
    assert isinstance(told, Expectation)
    assert told.asymptote == 350e9
    assert 0.95 * 350e9 < told.busbw < 350e9
    assert told.confidence is Confidence.OPERATOR
    other = expect(conditions, "all_gather", 256 * MIB)
    assert isinstance(other, Expectation)
    assert other.confidence is Confidence.MEASURED


@pytest.mark.parametrize("topology", [switched("NVIDIA R100", 8), node([L40S] * 4, {}), meshed(A100, 3, 6)])
def test_a_pin_is_enough_where_nothing_else_is_known(topology: Topology) -> None:
    told = expect(Conditions(whole(topology), pins={"all_reduce": 90e9}), "all_reduce", GIB)
    assert isinstance(told, Expectation)
    assert told.busbw == told.asymptote == 90e9
    assert "no latency term is known" in told.derivation[-1]


@each(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC"), ("NCCL_P2P_LEVEL", "NVL"),
        ("NCCL_P2P_LEVEL", "1"), ("NCCL_SHM_DISABLE", "1"),
        ("NCCL_ALGO", "Tree"), ("NCCL_ALGO", "^NVLS"), ("NCCL_ALGO", "allreduce:tree"),
        ("NCCL_ALGO", "^nvls;allreduce:ring"), ("NCCL_PROTO", "LL"), ("NCCL_PROTO", "^Simple"),
        ("NCCL_MAX_NCHANNELS", "2"), ("NCCL_MAX_CTAS", "8"), ("NCCL_MIN_CTAS", "64"), ("NCCL_NTHREADS", "64"),
        ("NCCL_BUFFSIZE", "65536"), ("NCCL_NVLS_ENABLE", "0"), ("NCCL_NET", "Socket"),
        ("NCCL_IB_DISABLE", "1"), ("NCCL_TOPO_FILE", "/etc/topo.xml"),
        ("NCCL_GRAPH_FILE", "/g.xml"), ("NCCL_CTA_POLICY", "EFFICIENCY"),
    ],
)  # fmt: skip
def test_a_setting_that_lowers_bandwidth_is_named(name: str, value: str) -> None:
    ((told, same, effect),) = slowing_settings({name: value, "NCCL_DEBUG": "INFO", "PATH": "/bin"})
    assert (told, same) == (name, value)
    own = SLOWING[name].effect
    assert effect == (own if is_shown(name, value) else f"not known whether this value slows: {own}")
    assert own
    assert SLOWING[name].source


@each(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "0"), ("NCCL_P2P_LEVEL", "SYS"), ("NCCL_P2P_LEVEL", "4"),
        ("NCCL_P2P_LEVEL", "far"), ("NCCL_ALGO", "Ring,Tree,NVLS"), ("NCCL_ALGO", "^Tree"), ("NCCL_ALGO", ""),
        ("NCCL_PROTO", "LL,Simple"), ("NCCL_PROTO", "^LL128"),
        ("NCCL_MAX_NCHANNELS", "32"), ("NCCL_MAX_CTAS", "-1"), ("NCCL_MIN_CTAS", "16"),
        ("NCCL_NTHREADS", "512"), ("NCCL_BUFFSIZE", "8388608"), ("NCCL_NVLS_ENABLE", "2"), ("NCCL_NET", "IB"),
        ("NCCL_NET", "AWS Libfabric"), ("NCCL_CTA_POLICY", "DEFAULT"), ("NCCL_DEBUG", "INFO"),
        ("NCCL_NVLS_ENABLE", ""),
    ],
)  # fmt: skip
def test_a_setting_that_lowers_nothing_is_not(name: str, value: str) -> None:
    assert slowing_settings({name: value}) == ()


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(["", " ", "\t"]),
    st.sampled_from(["", "k", " # x", "."]),
)
def test_numbers_are_read_as_strtoll_reads_them(value: int, before: str, after: str) -> None:
    sign, plain = "-" if value < 0 else "", abs(value)
    for text in (str(plain), hex(plain), f"0{plain:o}"):
        assert number(before + sign + text + after) == value


@given(st.text())
def test_any_text_is_some_number_and_names_no_crash(text: str) -> None:
    assert isinstance(number(text), int)
    assert {name for name, *_ in slowing_settings(dict.fromkeys(SLOWING, text))} <= set(SLOWING)


@each(
    ("size", "text"),
    [(16 * MIB, "16 MiB"), (GIB, "1 GiB"), (1536 * MIB, "1536 MiB"), (8, "8 B"), (2048, "2 KiB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human(size) == text


def test_every_kind_has_a_name_for_people() -> None:
    assert len({kind.value for kind in WireKind}) == len(WireKind)


@pytest.mark.parametrize(
    ("op", "found"),
    [("broadcast", (303.10, 345.78, 359.13)), ("alltoall", (266.24, 312.21, 330.19))],
)
def test_what_eight_h200_gave_is_expected_of_them_within_one_percent(
    op: str, found: tuple[float, ...]
) -> None:
    """The recorded tables, out of place, at 64 MiB, 256 MiB and 1 GiB."""
    sizes = (64 * MIB, 256 * MIB, GIB)
    given = [expected(switched(H200, 8), op, size).busbw / 1e9 for size in sizes]
    assert given == pytest.approx(found, rel=0.01)
