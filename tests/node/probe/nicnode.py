"""A node of idle GPUs and NICs on PCIe switches, with the component of NICs over it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.node.collectors.drawn import Files, Watched
from tests.node.probe.drawn import broken
from tests.node.probe.idle import idle_gpus
from tests.node.probe.overnetwork import GDR, IB, recorded_over
from wirewatch.core.collector import Component
from wirewatch.core.ports import Order
from wirewatch.core.probe import Outcome, Probed, ProbedGpu
from wirewatch.core.types import Absent, Expect, Finding, Health
from wirewatch.probe.model import NicsOptions, ProbeOptions, ProbePolicy
from wirewatch.probe.network import rail_of
from wirewatch.probe.nics import NicsMemory, nics_collector

GB = 1e9


@dataclass
class Way:
    """How the next probe of a rail goes; `gbs` each way through the port, `sent` a share of what is due."""

    gbs: float = 48.0
    transports: tuple[str, ...] | None = None
    nics: tuple[str, ...] | None = None
    sent: float | None = 1.0
    elsewhere: Mapping[str, float] | None = None
    outcome: Outcome = "ok"
    wrong: int = 0
    log: bool = True


def board(count: int, nics: int) -> Files:
    """Each GPU with its NIC below a switch of its own, and switches on roots of their own."""
    files = Files()
    for n in range(count):
        path = f"pci0000:{n + 16:02x}/0000:{n + 16:02x}:01.0/0000:{n + 32:02x}:00.0"
        files.device(f"0000:{n + 6:02x}:00.0", f"{path}/0000:{n + 32:02x}:01.0", numa=str(n * 2 // count))
        if n < nics:
            below = f"{path}/0000:{n + 32:02x}:02.0"
            files.nic(f"mlx5_{n}", f"0000:{n + 48:02x}:00.0", below, numa=str(n * 2 // count))
    return files


class NicNode(Watched):
    """`ways`: how probes go, by rail; `direct`: those with GPUDirect alone; `default` for the others."""

    def __init__(
        self, count: int = 4, nics: int = 4, *, start: NicsMemory | None = None,
        expect: Expect | None = None, probe: Mapping[str, Any] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__("nics", files=board(count, nics), gpus=idle_gpus(count), expect=expect)
        self.probes.name, self.probes.result = "nccl", self._run
        self.ways: dict[str, Way] = {}
        self.direct: dict[str, Way] = {}
        self.default = Way()
        self.during: Callable[[Order], object] = lambda _: None
        self.made = ProbeOptions(**{"nics": NicsOptions(**{"enabled": True, **options}), **(probe or {})})
        self.collector = nics_collector(self.made, ProbePolicy(), self.expect)
        self.component = Component("nics", start or self.collector.start)

    def _run(self, order: Order) -> Probed:
        at = self.clock.now()
        self.clock.seconds += 4.0
        self.during(order)
        rail = rail_of(order.plan)
        level = dict(order.plan.environment).get("NCCL_NET_GDR_LEVEL", "")
        direct = self.direct.get(rail) if level == "SYS" else None
        return carried(order, direct or self.ways.get(rail, self.default), at)

    @property
    def memory(self) -> NicsMemory:
        assert isinstance(self.component.memory, NicsMemory)
        return self.component.memory

    def probe(self, times: int = 1) -> tuple[Finding, ...]:
        """Turn until so many more probes have run."""
        wanted = len(self.probes.ordered) + times
        for _ in range(4000):
            self.poll(every=60.0)
            if len(self.probes.ordered) >= wanted:
                return self.component.findings
        raise AssertionError(f"no probe: {self.memory.gate.refusal}")

    def days(self, number: float) -> None:
        """So many days on an idle node, of which only the turns with something due are played."""
        end = self.clock.seconds + number * 86_400.0
        while self.clock.seconds < end:
            before = len(self.probes.ordered)
            self.poll(every=60.0)
            if len(self.probes.ordered) == before and not self.memory.looked:
                self.clock.seconds += 1800.0

    def healths(self) -> dict[str, Health]:
        return {str(one.subject): one.health for one in self.component.findings}

    def only(self) -> Finding:
        (found,) = self.component.findings
        return found


def carried(order: Order, way: Way, at: float) -> Probed:
    """What comes of an order: a probe of two GPUs over one port."""
    rail, (conditions, *_) = rail_of(order.plan), order.conditions
    level = dict(order.plan.environment).get("NCCL_NET_GDR_LEVEL", "")
    transports = way.transports if way.transports is not None else (GDR if level == "SYS" else IB,)
    made = recorded_over(conditions, transports, way.gbs / 2, level, way.wrong, "all_reduce")
    gpus = tuple(ProbedGpu(gpu.index, gpu.uuid) for gpu in order.gpus)
    plan = replace(made.plan, environment=order.plan.environment, gpus=order.plan.gpus)
    (timed,) = made.shown.collectives
    due = 2.0 * timed.size_bytes * timed.runs
    ports = {} if way.sent is None else {rail: int(way.sent * due)}
    ports |= {name: int(share * due) for name, share in (way.elsewhere or {}).items()}
    account = None
    if way.log and made.account is not None:
        account = replace(made.account, nics=(rail,) if way.nics is None else way.nics)
    found = replace(
        made, at=at, by=order.by, plan=plan, gpus=gpus, account=account, ports=ports, held_seconds=4.0,
        settings=dict(order.settings),
    )  # fmt: skip
    assert not isinstance(found.account, Absent)
    return found if way.outcome == "ok" else broken(found, way.outcome)
