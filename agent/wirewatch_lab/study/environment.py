"""Means of a sweep: an order's GPUs and wires, its software, and NCCL's statements about both."""

from collections.abc import Mapping
from dataclasses import replace

from wirewatch import __version__
from wirewatch.busbw.references import architecture
from wirewatch.collectors.inventory import SYSTEM
from wirewatch.collectors.topology import read_topology
from wirewatch.core.account import Account
from wirewatch.core.ports import Hardware, Order, Question
from wirewatch.core.probe import KIB, OUT_OF_PLACE, Plan, Probed
from wirewatch.core.topology import NVLINK, WireKind
from wirewatch.core.types import Absent
from wirewatch.nccl.settings import NVLS_ENABLE
from wirewatch.probe.gate import GateFacts
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.wiring import fingerprint
from wirewatch_lab.study.grid import Capabilities, SweepOptions

SCOUT_SECONDS = 120.0
"""Seconds that a worker without measurements may take."""
_BY_CHANCE = frozenset({"failed", "timeout", "garbage"})


def scout(hardware: Hardware, order: Order, options: SweepOptions) -> Probed:
    """Run a worker without measurements: whether it starts, its versions, its operations, and NCCL's log."""
    bare = bare_plan(order.plan, len(order.plan.gpus))
    plan = replace(bare, ops=options.ops, dtype=options.dtype, in_place=options.in_place)
    asked = replace(order, plan=plan, conditions=(), deadline=SCOUT_SECONDS)
    probed = hardware.probe.run(asked)
    # What fails once may have been chance, such as a connection between ranks that was late.
    return hardware.probe.run(asked) if probed.outcome in _BY_CHANCE else probed


def bare_plan(plan: Plan, ranks: int) -> Plan:
    """Return a plan without measurements for the first GPUs alone, as one group."""
    return replace(
        plan, gpus=plan.gpus[:ranks], groups=(tuple(range(ranks)),), ops=(), latency_sizes=(), bandwidth=(),
        copy_bytes=0, micro=False, host_bytes=0, near=(),
    )  # fmt: skip


def capabilities(
    hardware: Hardware, order: Order, facts: GateFacts, scouted: Probed, options: SweepOptions, reserve: int
) -> Capabilities:
    """Return the means of a sweep; `reserve`: bytes of each GPU's memory that messages must not use."""
    nvlink, switch = _nvlink(order)
    names = (gpu.name for one in order.conditions for gpu in one.group.gpus)
    known = {name for name in map(architecture, names) if not isinstance(name, Absent)}
    return Capabilities(
        engine=order.plan.engine, gpus=len(order.plan.gpus),
        memory=_memory(hardware, order, facts, options, reserve), nvlink=nvlink, switch=switch,
        architectures=frozenset(known), multicast=_multicast(scouted.account),
        settings=tuple(sorted(order.settings.items())),
        without=frozenset(scouted.document.not_offered if scouted.document else ()),
    )  # fmt: skip


def environment(hardware: Hardware, order: Order, scouted: Probed) -> dict[str, str]:
    """Return machine and software by name, for people and to recognise sweeps of the same machine."""
    host = hardware.host.ask(Question("Hostname")).value
    found = {"wirewatch": __version__, "engine": order.plan.engine, "gpus": " ".join(order.plan.gpus)}
    found["host"] = _text(host)
    if order.gpus:
        found["product"] = ", ".join(sorted({gpu.name for one in order.conditions for gpu in one.group.gpus}))
        found["driver"] = _text(hardware.nvml.ask(None, (SYSTEM["driver"],))[0].value)
        whole = read_topology(hardware)
        found["topology"] = _text(whole if isinstance(whole, Absent) else fingerprint(graph_of(whole)))
        groups = ((conditions.group.kind, conditions.group.gpus) for conditions in order.conditions)
        wires = (f"GPUs {','.join(str(gpu.index) for gpu in gpus)}: {kind.value}" for kind, gpus in groups)
        found["wires"] = "; ".join(wires)
        found["nvls"] = _nvls(order, scouted)
    versions = scouted.document.versions if scouted.document else {}
    settings = " ".join(f"{name}={value}" for name, value in sorted(order.settings.items()))
    return {**found, **versions, "nccl_settings": settings or "none"}


def differences(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return differences that make measurements of now and then incomparable; empty for none.

    GPUs identify the machine, since a container changes its name at each start.
    """
    names = [name for name in sorted({*then, *now}) if name != "host" or "driver" not in then]
    found = [
        f"{name} is {now.get(name, 'not known')}, it was {then.get(name, 'not known')}"
        for name in names if then.get(name) != now.get(name)
    ]  # fmt: skip
    return "; ".join(found)


def _text(value: object) -> str:
    return "not known" if isinstance(value, Absent) or value is None else str(value)


def _nvlink(order: Order) -> tuple[int, bool]:
    """Count the first GPUs that all reach each other over NVLink, and whether a switch joins them."""
    for positions, conditions in zip(order.plan.groups, order.conditions, strict=False):
        if positions[:1] == (0,) and conditions.group.kind in NVLINK:
            together = next((n for n, place in enumerate(positions) if n != place), len(positions))
            return together, conditions.group.kind is WireKind.SWITCH
    return 0, False


def _multicast(account: Account | None) -> bool | None:
    """Return whether all GPUs have multicast, by NCCL's log; None where it does not say."""
    return all(device.available for device in account.nvls) if account and account.nvls else None


def _nvls(order: Order, scouted: Probed) -> str:
    setting = order.settings.get(NVLS_ENABLE)
    offered = _multicast(scouted.account)
    said = "multicast not known" if offered is None else f"multicast is {'' if offered else 'not '}offered"
    return f"{NVLS_ENABLE}={setting}, {said}" if setting else said


def _memory(hardware: Hardware, order: Order, facts: GateFacts, options: SweepOptions, reserve: int) -> int:
    """Return the bytes of a buffer; engine `nccl` needs a single buffer for in-place operations."""
    engine = order.plan.engine
    twice = engine != "nccl" or not options.in_place or bool(OUT_OF_PLACE & set(options.ops))
    if engine == "gloo":
        free = _available(hardware) // (2 * len(order.plan.gpus))
    else:
        known = [use.free for use in facts.uses if not isinstance(use.free, Absent)]
        free = min(known, default=0) - reserve
    return max(0, free // (2 if twice else 1))


def _available(hardware: Hardware) -> int:
    """Return bytes of this machine's memory that programs can have."""
    text = hardware.sysfs.read("/proc/meminfo")
    lines = () if isinstance(text, Absent) else text.splitlines()
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * KIB if found else 0
