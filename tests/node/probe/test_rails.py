"""Which ports are rails, what NCCL is given for one, and what a probe of one proves."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.busbw.ports import on_switch, port, rails
from tests.node.probe.nicnode import NicNode, Way, carried
from tests.node.probe.overnetwork import GDR, IB, P2P, SOCKET
from wirewatch.core.ports import Order
from wirewatch.core.probe import Plan, Probed
from wirewatch.core.types import Absent, Why
from wirewatch.nccl.log import parse_nccl_log
from wirewatch.nccl.settings import allows_hca
from wirewatch.probe.network import (
    RailResult,
    Unmeasured,
    examine,
    is_rdma,
    nearest,
    rail_of,
    rail_settings,
    rdma_rails,
)
from wirewatch.probe.setup import Variation

# --- which ports are rails


def test_each_port_that_nccl_takes_is_a_rail() -> None:
    assert rdma_rails(on_switch(4, rails(4, 4))).names == ("mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1")


@pytest.mark.parametrize(
    ("ports", "settings", "names", "why"),
    [
        (
            (port(0, ["PIX", "SYS"]), port(1, ["SYS", "PIX"], state="down")), {}, ("mlx5_0:1",),
            "mlx5_1:1 (down)",
        ),
        (
            (port(0, ["PIX", "PIX"]), port(1, ["SYS", "SYS"])), {}, ("mlx5_0:1",),
            "mlx5_1:1 (every GPU has others that are faster to reach, or as fast and nearer)",
        ),
        (
            (port(0, ["PIX", "PIX"]), port(1, ["PIX", "PIX"])), {"NCCL_IB_HCA": "=mlx5_1"}, ("mlx5_1:1",),
            "mlx5_0:1 (NCCL_IB_HCA==mlx5_1)",
        ),
        ((port(0, ["PIX", "PIX"]),), {"NCCL_NET": "Socket"}, (), "NCCL_NET=Socket leaves NCCL sockets"),
        ((port(0, ["PIX", "PIX"]),), {"NCCL_NET": "FasTrak"}, (), "names a network plugin"),
        ((port(0, ["PIX", "PIX"]),), {"NCCL_IB_DISABLE": "1"}, (), "NCCL_IB_DISABLE=1 leaves NCCL sockets"),
        ((), {}, (), "no RDMA port, so NCCL uses sockets"),
        # A port of EFA has no link layer that NCCL's own network takes.
        ((port(0, ["PIX", "PIX"], layer="Unspecified"),), {}, (), "link layer Unspecified"),
        # A NIC that no GPU is near to is a rail where there is no other, and so is one of a flat guest.
        ((port(0, ["SYS", "SYS"]),), {}, ("mlx5_0:1",), ""),
        ((port(0, ["", ""]),), {}, ("mlx5_0:1",), ""),
        (
            (port(0, ["PIX", "PIX"]), port(0, ["PIX", "PIX"], port="2")), {}, ("mlx5_0:1", "mlx5_0:2"), "",
        ),
    ],
)  # fmt: skip
def test_ports_that_are_no_rails_are_left_out_with_the_reason(
    ports: Any, settings: Mapping[str, str], names: tuple[str, ...], why: str
) -> None:
    found = rdma_rails(on_switch(2, ports, settings))
    assert found.names == names
    assert why in "; ".join(found.left_out)
    assert bool(found.left_out) is bool(why)


def test_ports_that_cannot_be_listed_are_no_rails() -> None:
    conditions = replace(on_switch(2, ()), network=Absent(Why.DENIED, "sysfs"))
    assert rdma_rails(conditions).names == ()
    assert nearest(conditions, "mlx5_0:1") == ()


def test_the_two_nearest_gpus_use_a_rail() -> None:
    conditions = on_switch(4, (port(0, ["SYS", "PXB", "", "PIX"]), port(1, ["", "", "", ""])))
    every = [gpu.uuid for gpu in conditions.group.gpus]
    assert nearest(conditions, "mlx5_0:1") == (every[3], every[1])
    assert nearest(conditions, "mlx5_1:1") == (every[0], every[1])


@given(st.from_regex(r"[a-z][a-z0-9_]{0,14}(:[1-9])?", fullmatch=True), st.booleans())
def test_a_plan_names_its_rail_and_nccl_takes_no_other(rail: str, direct: bool) -> None:  # noqa: FBT001
    plan = Variation(network=True, gpudirect=direct, rail=rail).of(_plan())
    assert rail_of(plan) == rail
    settings = dict(rail_settings(rail))
    if is_rdma(rail):
        device, _, number = rail.partition(":")
        assert allows_hca(settings["NCCL_IB_HCA"], device, int(number))
        assert not allows_hca(settings["NCCL_IB_HCA"], f"{device}0", int(number))
        assert not allows_hca(settings["NCCL_IB_HCA"], device, int(number) + 1)
    else:
        assert settings == {
            "NCCL_NET": "Socket",
            "NCCL_SOCKET_IFNAME": f"={rail}",
            "GLOO_SOCKET_IFNAME": rail,
        }


def test_a_plan_that_leaves_nccl_its_ways_is_of_no_rail() -> None:
    assert rail_of(Variation(network=True).of(_plan())) == ""
    assert rail_of(Variation(rail="mlx5_0:1").of(_plan())) == ""
    assert Variation(rail="mlx5_0:1").missing_in(_plan()) == ("the NIC mlx5_0:1",)


def _plan() -> Plan:
    return Plan("nccl", ("GPU-0", "GPU-1"), ((0, 1),))


# --- what proves that this NIC carried it


@cache
def _order() -> Order:
    node = NicNode(count=2, nics=2)
    node.probe()
    return node.probes.ordered[0]


def _probed(**way: Any) -> Probed:
    return carried(_order(), Way(**way), 1.0)


def _shown(**way: Any) -> RailResult:
    found = examine(_probed(**way))
    assert isinstance(found, RailResult), found
    return found


def test_a_proven_probe_has_rate_ports_and_gpus() -> None:
    found = _shown(gbs=48.0)
    assert (found.job.rail, found.job.direct) == ("mlx5_0:1", True)
    assert found.rate == pytest.approx(48e9)
    assert (found.crossed, found.wrong, found.between) == (True, 0, "GPU 0 (PIX) and GPU 1 (SYS)")
    # One GPU is on the other socket: nothing is known of what that path carries.
    assert found.due is None
    assert str(found.job.subject) == "mlx5_0 port 1"


@pytest.mark.parametrize(
    ("paths", "due"), [(("PIX", "PXB"), True), (("PIX", "PHB"), False), (("", ""), False)]
)
def test_the_ports_rate_is_due_over_switches_alone(paths: tuple[str, ...], due: bool) -> None:  # noqa: FBT001
    probed = _probed()
    ports = (port(0, paths), port(1, paths))
    settings = {"NCCL_IB_HCA": "=mlx5_0:1"}
    conditions = tuple(replace(one, network=ports, settings=settings) for one in probed.conditions)
    found = examine(replace(probed, conditions=conditions))
    assert isinstance(found, RailResult)
    assert found.due == (pytest.approx(50e9) if due else None)


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ({"log": False}, "NCCL's log names no connection"),
        ({"transports": ()}, "NCCL's log names no connection"),
        ({"transports": (SOCKET,)}, f"NCCL took {SOCKET} (network IB)"),
        ({"transports": (GDR, P2P)}, f"NCCL took {GDR}, {P2P} (network IB)"),
        ({"transports": ("NET/AWS Libfabric/0/GDRDMA",)}, "NCCL took NET/AWS Libfabric/0/GDRDMA"),
        ({"transports": ("NET/FasTrak/0",)}, "NCCL took NET/FasTrak/0"),
        ({"transports": (GDR, IB)}, "GPUDirect on is not what NCCL's log shows: some connections"),
        ({"nics": ("mlx5_0:1", "mlx5_1:1")}, "NCCL took mlx5_1:1"),
        ({"nics": (), "sent": None}, "NCCL's log does not name the NIC"),
        ({"nics": (), "sent": 0.0}, "NCCL's log does not name the NIC"),
        ({"sent": 1.3}, "others use it"),
        ({"sent": 0.0, "elsewhere": {"mlx5_1:1": 1.0}}, "mlx5_1:1 sent as many bytes"),
        ({"outcome": "timeout"}, "timeout: as drawn"),
    ],
)  # fmt: skip
def test_what_is_not_proven_is_no_result(way: Mapping[str, Any], why: str) -> None:
    found = examine(_probed(**way))
    assert isinstance(found, Unmeasured)
    assert why in found.why
    assert found.ill is ("others use it" not in why)


def test_bytes_alone_prove_the_nic_where_the_log_does_not_name_it() -> None:
    assert _shown(nics=()).crossed is True


def test_what_a_card_turns_around_inside_is_measured_and_said() -> None:
    assert _shown(sent=0.01).crossed is False
    assert _shown(sent=None).crossed is None


def test_the_log_decides_whether_gpudirect_was_used() -> None:
    assert _shown(transports=(IB,)).job.direct is False


def test_off_that_was_on_is_no_result() -> None:
    probed = _probed()
    off = tuple((n, "LOC" if n == "NCCL_NET_GDR_LEVEL" else v) for n, v in probed.plan.environment)
    found = examine(replace(probed, plan=replace(probed.plan, environment=off)))
    assert found == Unmeasured(
        "GPUDirect off is not what NCCL's log shows: all connections are NET/.../GDRDMA"
    )


def test_a_warning_of_nccl_stands_beside_a_probe_that_broke_off() -> None:
    probed = _probed()
    assert probed.account is not None
    account = replace(probed.account, warnings=("NET/IB : Got completion with status=12",))
    found = examine(replace(probed, outcome="failed", why="ncclRemoteError", account=account))
    assert found == Unmeasured("failed: ncclRemoteError: NET/IB : Got completion with status=12")


def test_sockets_inside_a_node_cross_no_nic() -> None:
    probed = _probed(transports=(SOCKET,), sent=None)
    environment = Variation(network=True, rail="eth1").environment
    probed = replace(probed, plan=replace(probed.plan, environment=environment))
    assert probed.account is not None
    named = replace(probed, account=replace(probed.account, nics=("eth1",)))
    why = Unmeasured("the kernel turned its sockets around: no NIC carried it", ill=False)
    assert examine(named) == examine(replace(named, ports={"eth1": 4096})) == why
    crossed = examine(replace(named, ports={"eth1": 16 << 30}))
    assert crossed == Unmeasured("it carried 16 GiB beside 5632 MiB: others use it", ill=False)
    half = examine(replace(named, ports={"eth1": 3 << 30}))
    assert isinstance(half, RailResult)
    # Of an interface each rank has an end: what goes by one of them is the bus bandwidth.
    assert (half.job.rail, half.job.direct) == ("eth1", None)
    assert half.rate == pytest.approx(24e9)


@given(st.text(), st.booleans())
def test_any_recorded_probe_shows_something_or_why_not(text: str, ok: bool) -> None:  # noqa: FBT001
    probed = _probed()
    assert examine(replace(probed, outcome="ok" if ok else "failed", why=text, document=None))


# --- the NICs that NCCL names


@pytest.mark.parametrize(
    ("line", "nics"),
    [
        ("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>", ("mlx5_0:1",)),
        ("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_bond_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
         ("mlx5_0:1", "mlx5_bond_0:1")),
        ("NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:2/IB; OOB ib0:10.0.0.1<0>", ("mlx5_0:1", "mlx5_1:2")),
        ("NET/IB : Using [0]mlx5_0:1 [1]mlx5_1:1 [RO]; OOB eth0:10.0.0.1<0>", ("mlx5_0:1", "mlx5_1:1")),
        ("NET/Socket : Using [0]eth0:10.0.0.7<0> [1]eth1.12:fe80::1%eth1<0>", ("eth0", "eth1.12")),
        ("NET/Socket : Using [0]eth0:2001:db8::7<0>", ("eth0",)),
        ("NET/IB : No device found.", ()),
    ],
)  # fmt: skip
def test_nccl_names_its_nics(line: str, nics: tuple[str, ...]) -> None:
    assert parse_nccl_log(f"host:1:2 [0] NCCL INFO {line}\n").nics == nics
