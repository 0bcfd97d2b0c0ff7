"""Comparing what ibstat prints with what sysfs says: two ways to the same kernel that must agree."""

from collections.abc import Iterator

from wirewatch.collectors.infiniband.values import Check, Port, PortKey, Reading
from wirewatch.core.ibstat import Ibstat, PortFacts, parse_ibstat
from wirewatch.core.ports import Output
from wirewatch.core.rdma import gigabits
from wirewatch.core.types import Absent, Finding, Health, Subject, Why

ROUNDING = 1e9 / 8
"""Bytes per second; ibstat prints whole Gb/s."""
LISTED = "MT"
"""Models that ibstat lists; others, such as EFA, have no management interface that it could open."""
ACTION = (
    "run `ibstat` and compare with /sys/class/infiniband; agent and tool may see different mounts or "
    "network namespaces, or the RDMA libraries do not fit the kernel's modules"
)


def compare(before: Check, reading: Reading, mono: float) -> Check:
    """The check after this reading; the same as before when ibstat was not run."""
    told = reading.ibstat
    if told is None:
        return before
    if isinstance(told, Absent):
        trouble = {} if told.why in {Why.MISSING, Why.UNSUPPORTED} else {("", ""): str(told)}
        if not trouble:
            return Check(mono, {}, repeated=False, unparsed=before.unparsed)
        # It said nothing this time: what it said before stands.
        stood = before.disagreements if before.repeated else {}
        again = set(trouble) <= set(before.disagreements)
        return Check(mono, {**stood, **trouble}, bool(stood) or again, before.unparsed)
    parsed = parse_ibstat(told.out)
    differs = dict(_differences(parsed, told, reading))
    # Texts carry numbers that move; the places tell whether it is the same disagreement.
    repeated = bool(differs) and set(differs) == set(before.disagreements)
    return Check(mono, differs, repeated, before.unparsed + len(parsed.unknown))


def _differences(parsed: Ibstat, told: Output, reading: Reading) -> Iterator[tuple[PortKey, str]]:
    for name in sorted(set(parsed.devices) - set(reading.devices)):
        yield (name, ""), "ibstat lists it, sysfs does not"
    yield from _unlisted(parsed, told, reading)
    for key, facts in parsed.ports.items():
        port = reading.ports.get(key)
        if port is not None:
            words = "; ".join(_differing(facts, port))
            if words:
                yield key, words


def _unlisted(parsed: Ibstat, told: Output, reading: Reading) -> Iterator[tuple[PortKey, str]]:
    """Devices that ibstat should list and does not; where it lists none, that is one trouble of its own."""
    should = [name for name in reading.devices if reading.identities[name].model.startswith(LISTED)]
    said = f": {told.err.strip().splitlines()[-1]}" if told.err.strip() else ""
    if should and not parsed.devices:
        yield ("", ""), f"ibstat (exit status {told.status}) lists none of {len(should)} devices{said}"
        return
    for name in should:
        if name not in parsed.devices:
            yield (name, ""), f"ibstat (exit status {told.status}) does not list it{said}"


def _differing(facts: PortFacts, port: Port) -> Iterator[str]:
    """What differs of one port; what either side does not tell cannot."""
    for name, printed, kernel in (
        ("state", facts.state, port.state),
        ("physical state", facts.physical, port.physical),
        ("link layer", facts.link_layer, port.layer),
    ):
        if printed and not isinstance(kernel, Absent) and printed != kernel:
            yield f"{name}: ibstat {printed}, sysfs {kernel}"
    if facts.rate is not None and not isinstance(port.rate, Absent):
        kernel_rate = port.rate.bytes_per_second
        if abs(facts.rate - kernel_rate) >= ROUNDING:
            yield f"rate: ibstat {gigabits(facts.rate)}, sysfs {gigabits(kernel_rate)}"


def findings(check: Check) -> Iterator[Finding]:
    if check.repeated:
        for (device, port), words in sorted(check.disagreements.items()):
            subject = Subject(device=device, port=port)
            yield Finding("infiniband.ibstat_disagrees", Health.DEGRADED, subject, words, ACTION)
