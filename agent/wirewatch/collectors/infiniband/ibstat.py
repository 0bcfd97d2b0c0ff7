"""Output of ibstat beside sysfs, for the same ports."""

from collections.abc import Iterator

from wirewatch.collectors.infiniband.model import IbstatCheck, InfinibandReading, PortKey, PortReading
from wirewatch.core.collector import DEGRADED, REST, Rule
from wirewatch.core.ports import Output
from wirewatch.core.rdma import Ibstat, PortFacts, gigabits, parse_ibstat
from wirewatch.core.types import Absent, Finding, Subject, Why

IBSTAT_DISAGREES = Rule("infiniband.ibstat_disagrees", DEGRADED, REST)  # no wire is broken by that alone
IBSTAT_ACTION = (
    "run `ibstat` and compare with /sys/class/infiniband; agent and tool may see different mounts or "
    "network namespaces, or the RDMA libraries do not fit the kernel's modules"
)
_ROUNDING = 1e9 / 8
"""Bytes per second; ibstat prints whole Gb/s."""
_LISTED = "MT"
"""Models that ibstat lists; others, such as EFA, have no management interface that it could open."""


def compare(before: IbstatCheck, reading: InfinibandReading, mono: float) -> IbstatCheck:
    """The check after this reading; the same as before when ibstat was not run."""
    output = reading.ibstat
    if output is None:
        return before
    if isinstance(output, Absent):
        if output.why in {Why.MISSING, Why.UNSUPPORTED}:
            return IbstatCheck(mono, {}, repeated=False, unparsed=before.unparsed)
        # It could not be run this time: what it printed before stands.
        stood = before.disagreements if before.repeated else {}
        again = bool(stood) or ("", "") in before.disagreements
        return IbstatCheck(mono, {**stood, ("", ""): str(output)}, again, before.unparsed)
    parsed = parse_ibstat(output.out)
    differs = dict(_differences(parsed, output, reading))
    # Texts carry numbers that move; the places show whether it is the same disagreement.
    repeated = set(differs) == set(before.disagreements)
    return IbstatCheck(mono, differs, repeated, before.unparsed + len(parsed.unknown))


def ibstat_findings(check: IbstatCheck) -> Iterator[Finding]:
    """One finding for each device and port of which two comparisons in a row found the same difference."""
    if check.repeated:
        for (device, port), words in sorted(check.disagreements.items()):
            subject = Subject(device=device, port=port)
            yield IBSTAT_DISAGREES.finding(subject, words, action=IBSTAT_ACTION)


def _differences(parsed: Ibstat, output: Output, reading: InfinibandReading) -> Iterator[tuple[PortKey, str]]:
    for name in sorted(set(parsed.devices) - set(reading.devices)):
        yield (name, ""), "ibstat lists it, sysfs does not"
    yield from _unlisted(parsed, output, reading)
    for key in [key for key in parsed.ports if key in reading.ports]:
        words = "; ".join(_differing(parsed.ports[key], reading.ports[key]))
        if words:
            yield key, words


def _unlisted(parsed: Ibstat, output: Output, reading: InfinibandReading) -> Iterator[tuple[PortKey, str]]:
    """Return devices that ibstat should list and does not; where it lists none, that is a single fault."""
    should = [name for name in reading.devices if reading.identities[name].model.startswith(_LISTED)]
    said = f": {output.err.strip().splitlines()[-1]}" if output.err.strip() else ""
    if should and not parsed.devices:
        yield ("", ""), f"ibstat (exit status {output.status}) lists none of {len(should)} devices{said}"
        return
    for name in should:
        if name not in parsed.devices:
            yield (name, ""), f"ibstat (exit status {output.status}) does not list it{said}"


def _differing(facts: PortFacts, port: PortReading) -> Iterator[str]:
    """Compare one port; values that either side leaves out cannot differ."""
    for name, printed, kernel in (
        ("state", facts.state, port.state),
        ("physical state", facts.physical, port.physical),
        ("link layer", facts.link_layer, port.layer),
    ):
        if printed and not isinstance(kernel, Absent) and printed != kernel:
            yield f"{name}: ibstat {printed}, sysfs {kernel}"
    if facts.rate is not None and not isinstance(port.rate, Absent):
        kernel_rate = port.rate.bytes_per_second
        if abs(facts.rate - kernel_rate) >= _ROUNDING:
            yield f"rate: ibstat {gigabits(facts.rate)}, sysfs {gigabits(kernel_rate)}"
