"""Judge RDMA ports beside their siblings: ports that are made alike and serve the same parts of a node."""

from collections.abc import Iterator, Mapping, Sequence

from wirewatch.collectors.infiniband.model import (
    InfinibandMemory,
    InfinibandPolicy,
    InfinibandReading,
    PortKey,
    PortMemory,
    RdmaIdentity,
)
from wirewatch.core.collector import DEGRADED, Rule
from wirewatch.core.rdma import gigabits
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Finding, Health, Subject, value_or

PORT_INACTIVE = Rule("infiniband.port_inactive", (Health.DEGRADED, Health.UNKNOWN), "PortDown")
PORT_LAYER = Rule("infiniband.port_layer", DEGRADED, "PortDown")
DOWN_ACTIONS: Mapping[str, str] = {
    "polling": "no signal from the other end: check the cable, the transceiver and the switch port",
    "disabled": "the port is switched off: enable it, here or at the switch",
    "sleep": "wake the port; check its power management",
    "training": "the link does not train: replace the cable or transceiver, then the switch port",
    "recovery": "the link keeps retraining: replace the cable or transceiver, then the switch port",
    "link_up": "the physical link is up, the port is not: check the subnet manager",
}
DOWN_ACTION = "check cable, transceiver and switch port"
LAYER_ACTION = (
    "make it InfiniBand again (`mlxconfig -d DEVICE set LINK_TYPE_P1=1`, then reset the card); if it is "
    "Ethernet on purpose, exclude the device"
)
MEANT = "if it is meant so, run `wirewatch topology accept`, or set `[expect] rdma_ports`"
LANES = 4
"""Lanes of a port of an InfiniBand card."""
_SIBLINGS, _MANY = 2, 3
"""Least active ports of one kind of card as evidence about a port that looks for a signal, and about any
other."""
Role = tuple[str, str, str, bool | None]
Beside = Mapping[PortKey, tuple[Health, str]]
"""The state of a port beside its siblings, and why. FAILED: it surely runs below its design. UNKNOWN: that
may be meant. OK: it equals the fastest of them, though with fewer lanes than it could have."""


def role(card: RdmaIdentity, port: str) -> Role:
    """Return the common key of siblings: often only the first of two ports is wired."""
    return card.board, card.pci.partition(".")[2], port, card.beside_gpu


def compare_rates(memory: InfinibandMemory, reading: InfinibandReading, policy: InfinibandPolicy) -> Beside:
    """Compare ports with the fastest of their siblings: a slow majority is no norm.

    One lane of four, or a quarter of the rate, is never meant. A smaller loss may be meant for a card for
    storage, but not where the GPUs lack a port without it.
    """
    found: dict[PortKey, tuple[Health, str]] = {}
    for board, keys in _siblings(memory, reading):
        last = {key: memory.ports[key].last for key in keys}
        for same in grouped((port.layer, key) for key, port in last.items() if port.running.lanes).values():
            speed = {key: last[key].running.bytes_per_second for key in same}
            lanes = {key: last[key].running.lanes for key in same}
            top = max(speed.values())
            whole = {key for key in same if speed[key] >= policy.slow_ratio * top}
            wide = min(LANES, max(lanes[key] for key in whole))
            whole -= {key for key in whole if lanes[key] < wide}
            odd = [key for key in same if key not in whole]
            if len(whole) >= max(_MANY, policy.sibling_ratio * len(same)):
                sure = _lacks(memory, reading, keys, odd)
                least = {key for key in odd if lanes[key] == 1 or LANES * speed[key] <= top}
                found |= dict.fromkeys(odd if sure else least, (Health.FAILED, ""))
            elif odd and _rails(memory, reading, keys):
                others = f"{len(whole)} of {len(same)} active ports of cards {board} run at {gigabits(top)}"
                ports = memory.ports
                meant = {key for key in odd if ports[key].pinned or ports[key].accepted}
                found |= dict.fromkeys(set(odd) - meant, (Health.UNKNOWN, others))
            if len(whole) >= _SIBLINGS:
                found |= {key: (Health.OK, "") for key in whole if lanes[key] > 1}
    return found


def _siblings(
    memory: InfinibandMemory, reading: InfinibandReading
) -> Iterator[tuple[str, Sequence[PortKey]]]:
    kinds = grouped((role(memory.identities[key[0]], key[1]), key) for key in reading.ports)
    return ((board, keys) for (board, *_), keys in kinds.items() if board)


def _lacks(
    memory: InfinibandMemory, reading: InfinibandReading, keys: Sequence[PortKey], odd: Sequence[PortKey]
) -> bool:
    """Return whether the GPUs share these ports evenly only together with the odd ports."""
    beside = memory.identities[keys[0][0]].beside_gpu is not False and not reading.missing
    return beside and len(memory.gpus) % (len(keys) - len(odd)) > 0


def _first(memory: InfinibandMemory, keys: Sequence[PortKey]) -> bool:
    """Return whether these are the first ports of their cards."""
    return {role(memory.identities[device], port)[1:3] for device, port in keys} == {("0", "1")}


def _rails(memory: InfinibandMemory, reading: InfinibandReading, keys: Sequence[PortKey]) -> bool:
    """Return whether all GPUs share these ports evenly, so that each port is of use."""
    gpus, ports = len(memory.gpus), len(keys)
    even = gpus > 0 and ports >= _MANY and 0 in {gpus % ports, ports % gpus}
    beside = memory.identities[keys[0][0]].beside_gpu is not False and not reading.missing
    return even and beside and _first(memory, keys)


def layers(
    memory: InfinibandMemory, reading: InfinibandReading, policy: InfinibandPolicy
) -> Iterator[Finding]:
    """Find Ethernet ports where siblings are InfiniBand and the GPUs lack a port without them."""
    for board, keys in _siblings(memory, reading):
        last = {key: memory.ports[key].last for key in keys}
        sound = sum(port.layer == "InfiniBand" and port.is_active for port in last.values())
        odd = [key for key, port in last.items() if port.layer == "Ethernet"]
        if sound >= max(_MANY, policy.sibling_ratio * len(keys)) and _lacks(memory, reading, keys, odd):
            evidence = f"Ethernet, while {sound} of {len(keys)} ports of cards {board} are InfiniBand"
            for device, port in odd:
                yield PORT_LAYER.finding(Subject(device=device, port=port), evidence, action=LAYER_ACTION)


def inactive(
    memory: InfinibandMemory, reading: InfinibandReading, policy: InfinibandPolicy, *, settled: bool
) -> Iterator[Finding]:
    """Find ports that never were active while siblings are, or none at all is; a few may be unused.

    `settled`: as many are active as the operator expects.
    """
    working = any(memory.ports[key].last.is_active for key in reading.ports)
    for board, keys in _siblings(memory, reading):
        never = {key: memory.ports[key] for key in keys if memory.ports[key].never_was}
        active = sum(memory.ports[key].last.is_active for key in keys)
        due = not settled and all(port.last.layer == "InfiniBand" for port in never.values())
        due = due and _rails(memory, reading, keys)
        most = active >= max(_MANY, policy.sibling_ratio * len(keys))
        half = active >= max(_SIBLINGS, len(keys) / 2)
        if len(never) == len(keys) >= (_MANY + 1 if working else _SIBLINGS) and _first(memory, keys):
            if due or all(map(_searches, never.values())):
                names = ", ".join(f"{device}/{port}" for device, port in sorted(keys))
                others = f"so are all {len(keys)} ports of cards {board}: {names}"
                yield _never_active(Subject(), never[keys[0]], others, due=due)
            continue
        others = f"{active} of {len(keys)} ports of cards {board} are active"
        for key, port in never.items():
            if due or most or (half and _searches(port)):
                yield _never_active(Subject(device=key[0], port=key[1]), port, others, due=due)


def _searches(port: PortMemory) -> bool:
    """Return whether the port is switched on and looks for its other end."""
    return port.last.physical in {"polling", "training", "recovery"}


def _never_active(subject: Subject, port: PortMemory, others: str, *, due: bool) -> Finding:
    health = Health.UNKNOWN if due and not port.accepted else Health.DEGRADED
    action = f"{DOWN_ACTIONS.get(value_or(port.last.physical, ''), DOWN_ACTION)}; or exclude the device"
    action += f"; {MEANT}" if health is Health.UNKNOWN else ""
    evidence = f"{port.last.words}, since the agent started; {others}"
    return PORT_INACTIVE.finding(subject, evidence, health, action)
