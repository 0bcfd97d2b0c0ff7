"""Probes over the network inside one node, drawn by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.node.busbw.ports import on_switch, rails
from tests.node.probe.drawn import drawn
from wirewatch.core.account import Connection
from wirewatch.core.probe import MIB, Conditions, Probed, RdmaPort, Timed
from wirewatch.probe.network import NETWORK_ONLY

GDR, IB, SOCKET = "NET/IB/0/GDRDMA", "NET/IB/0", "NET/Socket/0"
P2P, SHM = "P2P/CUMEM", "SHM/direct/direct"
LARGE = 256 * MIB


def over_network(
    *transports: str, gbs: float = 48.0, gpus: int = 8, ports: Sequence[RdmaPort] | None = None,
    settings: Mapping[str, str] | None = None, level: str = "", wrong: int = 0, op: str = "all_reduce",
) -> Probed:  # fmt: skip
    """One collective of 256 MiB; its ring's connections take the transports in turn."""
    conditions = on_switch(gpus, rails(gpus, gpus) if ports is None else ports, settings)
    return recorded_over(conditions, transports, gbs, level, wrong, op)


def recorded_over(
    conditions: Conditions, transports: Sequence[str], gbs: float, level: str, wrong: int, op: str
) -> Probed:
    probed = drawn((conditions,), transport="")
    assert probed.document is not None
    assert probed.account is not None
    ranks = conditions.group.ranks
    environment = (*NETWORK_ONLY, *((("NCCL_NET_GDR_LEVEL", level),) if level else ()))
    plan = replace(
        probed.plan, ops=(op,), latency_sizes=(), bandwidth=((LARGE, 8),), environment=environment,
        copy_bytes=0, micro=False,
    )  # fmt: skip
    factor = 2 * (ranks - 1) / ranks
    at = factor * LARGE / (gbs * 1e9)
    timed = Timed(0, op, LARGE, "stream", 8, 11, at, at, at, at, wrong)
    ring = tuple(
        Connection(n, (n + 1) % ranks, transports[n % len(transports)], 2)
        for n in range(ranks if transports else 0)
    )
    (comm,) = probed.account.comms
    return replace(
        probed, plan=plan,
        document=replace(probed.document, collectives=(timed,), copies=(), micros=()),
        account=replace(probed.account, comms=(replace(comm, connections=ring),), network="IB"),
    )  # fmt: skip
