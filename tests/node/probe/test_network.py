"""Probes over the network inside one node: what the log proves, what is expected, and what is judged."""

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.busbw.ports import rails
from tests.node.probe.drawn import probe_findings
from tests.node.probe.overnetwork import GDR, IB, P2P, SHM, SOCKET, over_network
from tests.rows import each
from wirewatch.cli.hardware import play
from wirewatch.core.probe import Conditions, LinkBytes, Probed, RdmaPort
from wirewatch.core.types import Absent, Expect, Health
from wirewatch.documents.probed import probe as documented
from wirewatch.probe.launcher import environment
from wirewatch.probe.measurement import NOT_NVLINK, crossings, health_of, measure
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.network import NETWORK_ONLY, Gpudirect, by_network, gpudirect, unproven
from wirewatch.probe.request import ProbeOverrides, probe_now
from wirewatch.probe.setup import Variation

DEMO = "demo-dgx-h200"
OTHERS = ("NET/IBext_v10/1(2)/GDRDMA(PCI)", "NET/AWS Libfabric/0/GDRDMA")


def healths(probed: Probed) -> dict[str, Health]:
    return {one.rule: one.worst for one in probe_findings(probed, ProbePolicy())}


# --- what NCCL's log proves


@each(
    ("transports", "found"),
    [
        ((GDR,), Gpudirect.PROVEN), ((OTHERS[0],), Gpudirect.PROVEN), ((OTHERS[1],), Gpudirect.PROVEN),
        ((IB,), Gpudirect.REFUTED), ((SOCKET,), Gpudirect.REFUTED), ((GDR, IB), Gpudirect.PARTLY),
        ((P2P,), Gpudirect.NOT_KNOWN), ((SHM,), Gpudirect.NOT_KNOWN), ((), Gpudirect.NOT_KNOWN),
        ((P2P, GDR), Gpudirect.PROVEN), (("P2P/GDRDMA",), Gpudirect.NOT_KNOWN),
    ],
)  # fmt: skip
def test_only_connections_that_say_so_prove_gpudirect(transports: tuple[str, ...], found: Gpudirect) -> None:
    probed = over_network(*transports)
    assert gpudirect(probed.account) is found
    document = documented(probed, measure(probed), ())
    assert document.network is not None
    assert document.network.gpudirect == found.value


def test_without_a_log_nothing_is_known() -> None:
    probed = replace(over_network(GDR), account=None)
    assert gpudirect(None) is Gpudirect.NOT_KNOWN
    assert unproven(probed) == "NCCL's log names no connection: whether a network carried it is not known"
    assert health_of(probed, ()) is Health.UNKNOWN


@each(
    ("transports", "ports", "why"),
    [
        ((GDR,), 8, ""), ((IB,), 8, ""), ((IB, GDR), 8, ""), ((SOCKET,), 0, ""), ((OTHERS[1],), 8, ""),
        ((P2P,), 8, f"it did not go over the network: {P2P}"),
        ((GDR, SHM), 8, f"it did not go over the network: {GDR}, {SHM}"),
        ((SOCKET,), 8, "NCCL took TCP sockets: the RDMA ports carried nothing"),
        ((GDR, SOCKET), 8, "NCCL took TCP sockets: the RDMA ports carried nothing"),
    ],
)  # fmt: skip
def test_what_did_not_go_over_the_nics_shows_nothing_of_them(
    transports: tuple[str, ...], ports: int, why: str
) -> None:
    probed = over_network(*transports, ports=rails(8, ports) if ports else ())
    assert unproven(probed) == why
    assert health_of(probed, ()) is (Health.UNKNOWN if why else Health.OK)


def test_sockets_are_right_where_no_group_has_an_rdma_port() -> None:
    with_ports, without = over_network(SOCKET), over_network(SOCKET, ports=())
    conditions = (*without.conditions, *with_ports.conditions)
    assert unproven(without) == ""
    assert unproven(replace(without, conditions=conditions)).startswith("NCCL took TCP sockets")


def test_nvls_is_no_network() -> None:
    probed = over_network(GDR)
    assert probed.account is not None
    comms = tuple(replace(comm, nvls=(0, 1)) for comm in probed.account.comms)
    comms = (*probed.account.comms, *comms)
    switched = replace(probed, account=replace(probed.account, comms=comms))
    assert unproven(switched) == f"it did not go over the network: {GDR}, NVLS"


@each(
    ("level", "transports", "proven"),
    [
        ("SYS", (GDR,), True), ("SYS", (IB,), False), ("SYS", (GDR, IB), False),
        ("LOC", (IB,), True), ("LOC", (GDR,), False), ("LOC", (GDR, IB), False),
    ],
)  # fmt: skip
def test_gpudirect_is_what_the_log_shows_and_not_what_was_set(
    level: str, transports: tuple[str, ...], *, proven: bool
) -> None:
    why = unproven(over_network(*transports, level=level))
    assert (why == "") is proven
    if not proven:
        assert why.startswith(f"GPUDirect {'on' if level == 'SYS' else 'off'} is not what NCCL's log shows: ")


def test_over_the_network_nothing_is_due_on_nvlink() -> None:
    probed = over_network(GDR, op="all_gather")
    assert crossings(probed, measure(probed)) == ()
    here = replace(probed, plan=replace(probed.plan, environment=()))
    assert {one.part for one in crossings(here, measure(here))} == {"all_gather.0"}


@pytest.mark.parametrize("level", ["SYS", "LOC"])
def test_sockets_prove_neither(level: str) -> None:
    probed = over_network(SOCKET, ports=(), level=level)
    assert unproven(probed) == f"GPUDirect RDMA takes an RDMA port, and this went over {SOCKET}"


def test_a_probe_that_left_nccl_its_ways_is_none_of_the_network_s() -> None:
    probed = over_network(P2P)
    usual = replace(probed, plan=replace(probed.plan, environment=()))
    half = replace(probed, plan=replace(probed.plan, environment=NETWORK_ONLY[:1]))
    for one in (usual, half):
        assert not by_network(one.plan)
        assert unproven(one) == ""
        assert documented(one, measure(one), ()).network is None


def test_the_worker_alone_gets_the_settings_and_over_those_of_the_node() -> None:
    plan = over_network(GDR, level="LOC").plan
    made = environment({"NCCL_P2P_DISABLE": "0", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_IB_HCA": "mlx5"}, plan)
    assert (made["NCCL_P2P_DISABLE"], made["NCCL_SHM_DISABLE"], made["NCCL_NET_GDR_LEVEL"]) == (
        "1",
        "1",
        "LOC",
    )
    assert made["NCCL_IB_HCA"] == "mlx5"
    assert "NCCL_P2P_DISABLE" not in os.environ


# --- what is expected and judged


def test_what_the_nics_should_give_is_expected_and_not_what_nvlink_would() -> None:
    (one,) = measure(over_network(GDR))
    assert not isinstance(one.expected, Absent)
    assert one.expected.busbw == 50e9
    assert one.ratio == pytest.approx(0.96)
    assert one.peak_ratio is None
    assert healths(over_network(GDR)) == {}


def test_a_slow_network_is_a_finding_that_names_the_network() -> None:
    slow = over_network(IB, gbs=20.0)
    assert healths(slow) == {"probe.busbw": Health.FAILED}
    (one,) = probe_findings(slow, ProbePolicy())
    assert "all_reduce of 256 MiB: 20.0 GB/s, 40 % of the expected 50.0 GB/s" in one.evidence
    assert "--transport net --gdr on,off" in one.action


@pytest.mark.parametrize("transports", [(P2P,), (SHM, GDR), (SOCKET,), (OTHERS[1],), ()])
@pytest.mark.parametrize("gbs", [0.4, 4.0, 300.0])
def test_what_went_another_way_is_not_judged_by_the_network(transports: Sequence[str], gbs: float) -> None:
    probed = over_network(*transports, gbs=gbs)
    (one,) = measure(probed)
    assert (one.trusted, one.ratio) == (None, None)
    assert healths(probed) == {}
    assert documented(probed, measure(probed), ()).results[0].derivation[-1] == (
        "NCCL's log does not show that the RDMA ports carried it: not judged"
    )


def test_over_sockets_without_rdma_ports_there_is_no_reference() -> None:
    probed = over_network(SOCKET, gbs=4.4, ports=())
    document = documented(probed, measure(probed), ())
    assert document.results[0].no_reference == "no reference: no RDMA port, so NCCL uses sockets"
    assert (document.health, document.findings, document.transport) == ("ok", [], "net_socket")


def test_a_wrong_value_is_as_grave_over_the_network() -> None:
    for transports in ((GDR,), (SOCKET,), (P2P,)):
        assert healths(over_network(*transports, wrong=3)) == {"probe.wrong_data": Health.FAILED}


@given(st.sampled_from([GDR, IB, SOCKET, P2P, SHM]), st.floats(0.1, 500.0), st.integers(0, 8))
def test_only_what_went_by_infiniband_can_be_slow(transport: str, gbs: float, nics: int) -> None:
    ports: Sequence[RdmaPort] = rails(8, nics) if nics in {1, 2, 4, 8} else ()
    probed = over_network(transport, gbs=gbs, ports=ports)
    slow = bool(ports) and transport in {GDR, IB} and gbs * 1e9 < 0.7 * 50e9 * len(ports) / 8
    assert healths(probed) == ({"probe.busbw": Health.FAILED} if slow else {})


# --- the ports of a node


def ports_of(*overlays: str) -> Conditions:
    """The conditions of all GPUs of the demo node, whose recorded probe did not go over the network."""
    there = play(DEMO, overlays, 1000.0)
    there.clock.move_to(there.steady)
    wish = ProbeOverrides(variation=Variation(network=True))
    found = probe_now(there.hardware, ProbeOptions(), ProbePolicy(), Expect(), wish, None)
    (conditions,) = found.conditions
    return conditions


def expected_of(*overlays: str) -> tuple[float, str]:
    probed = over_network(GDR)
    document = documented(replace(probed, conditions=(ports_of(*overlays),)), (), ())
    assert document.network is not None
    assert document.network.expected_busbw is not None
    return document.network.expected_busbw, "\n".join(document.network.derivation)


def test_the_ports_of_a_node_are_read_with_rate_slot_and_paths() -> None:
    conditions = ports_of()
    assert isinstance(conditions.network, tuple)
    first = conditions.network[0]
    assert (first.device, first.state, first.layer, first.rate) == ("mlx5_0", "active", "InfiniBand", 50e9)
    assert str(first.pcie) == "Pcie(generation=5, lanes=16)"
    assert first.paths[0] == "PIX"
    assert len(first.paths) == 8
    busbw, lines = expected_of()
    assert busbw == 50e9
    assert "not counted: mlx5_8:1, mlx5_9:1 (every GPU has others that are faster to reach" in lines


def test_a_port_that_is_down_or_slow_is_not_counted() -> None:
    """To NCCL a faster port at the same socket comes before a nearer one that has become slow."""
    busbw, lines = expected_of("ib-port-down")
    assert busbw == pytest.approx(50e9 * 7 / 8)
    assert "(down)" in lines
    busbw, lines = expected_of("ib-port-slow")
    assert busbw == pytest.approx(50e9 * 7 / 8)
    assert "(every GPU has others that are faster to reach" in lines


def test_a_slot_that_trained_too_narrow_lowers_nothing_that_is_expected() -> None:
    assert expected_of("nic-pcie-x8")[0] == 50e9


def test_over_the_network_no_link_of_nvlink_is_uneven_and_no_wire_of_it_compared() -> None:
    probed = over_network(GDR)
    amounts = (1 << 30, *[2 << 30] * 17)
    links = tuple(LinkBytes(gpu, tuple(range(18)), amounts, amounts) for gpu in range(8))
    assert "probe.uneven" not in healths(replace(probed, links=links))
    nvlink = replace(probed, links=links, plan=replace(probed.plan, environment=()))
    assert "probe.uneven" in healths(nvlink)
    assert {one.wire for one in measure(probed)} == {NOT_NVLINK}
    assert {one.peak_ratio for one in measure(probed)} == {None}
