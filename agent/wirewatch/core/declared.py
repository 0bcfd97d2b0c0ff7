"""Find faults of a declared metric, rule or collector, in sentences that say what to write instead.

Names become series, alerts, pages, files and keys of the configuration, and texts become cells of tables. So
the constructors refuse a name or text that any of these cannot hold.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirewatch.core.collector import AnyCollector, Rule
    from wirewatch.core.types import Metric

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
RULE = re.compile(rf"{NAME.pattern}\.[a-z0-9_*]+")
UNITS: Mapping[str, str] = {
    "bytes_per_second": "Bps", "bytes": "bytes", "seconds": "s", "watts": "watt", "celsius": "celsius",
    "ratio": "percentunit", "hertz": "hertz", "volts": "volt", "amperes": "amp", "joules": "joule",
}  # fmt: skip
"""Base units, with which metrics' names end, and Grafana's names of them."""
PLAIN = frozenset((
    "action", "active", "applicable", "ber", "drift", "due", "elements", "expected", "failed", "findings",
    "fresh", "frozen", "generation", "hang", "health", "hint", "known", "leader", "lifetime", "limit",
    "links", "nodes", "out", "parts", "pending", "processes", "ready", "refused", "remapped", "run",
    "saturated", "score", "severity", "state", "status", "straggler", "success", "understood",
    "unparsed", "up", "used", "width",
))  # fmt: skip
"""Last words of gauges without a unit: a count, or a flag that is 0 or 1."""
BASE: Mapping[str, str] = {
    **dict.fromkeys(("ns", "us", "ms", "nanoseconds", "microseconds", "milliseconds"), "seconds"),
    **dict.fromkeys(("minutes", "hours", "days"), "seconds"),
    **dict.fromkeys(("bits", "kb", "mb", "gb", "kib", "mib", "gib", "megabytes", "gigabytes"), "bytes"),
    **dict.fromkeys(("bps", "mbps", "gbps"), "bytes_per_second"),
    **dict.fromkeys(("percent", "percentage"), "ratio"),
    **dict.fromkeys(("khz", "mhz", "ghz", "megahertz"), "hertz"),
    **dict.fromkeys(("mw", "milliwatts", "kilowatts"), "watts"),
    **dict.fromkeys(("mv", "millivolts"), "volts"),
}
"""The base unit to use in place of another unit."""
TAKEN: Mapping[str, str] = {
    **dict.fromkeys(
        ("cluster", "node", "rack", "leaf", "host", "hostname", "instance", "job"), "the scrape adds it"
    ),
    "pid": "its values have no end",
    "type": "the word is kind",
}
"""Labels that no metric may have, with the reason."""
LANES: Mapping[str, str] = {
    "nvml": "asks NVML, one question at a time",
    "files": "reads sysfs",
    "kernel": "reads the kernel log",
    "host": "measures the agent itself",
    "probe": "runs the probe",
    "jobs": "reads the tap of running jobs, and their processes",
    "hangs": "asks jobs, which takes seconds",
}
"""The threads in which collectors run; a collector that must work while the driver hangs is not in `nvml`."""
RESERVED = frozenset({"daemon", "verdict"})
"""Names that the configuration and the golden texts use for other things than collectors."""
GPUS = 8
"""GPUs of the node for which collectors say how many series they make."""
LONGEST_ACTION = 300
"""Characters of advice that a table of the dashboards shows."""
LONGEST_ALERT = 40 - len("-critical")
"""Letters of an alert's full name: Grafana's uid holds 40, with the severity."""
_ALERT = re.compile(r"(?!Wirewatch)[A-Z][A-Za-z0-9]*")
_HOLD = re.compile(r"[1-9][0-9]*[smhd]")


def refuse(faults: Iterator[str]) -> None:
    """Raise a ValueError with the first fault, if there is one."""
    if fault := next(faults, ""):
        raise ValueError(fault)


def unit_of(metric: "Metric") -> str:
    """The unit that a metric declares or that its name ends with; empty for a plain number."""
    end = f"_{metric.name.removesuffix('_total')}"
    return metric.unit or next((unit for unit in UNITS if end.endswith(f"_{unit}")), "")


def metric_faults(metric: "Metric") -> Iterator[str]:
    """Return the faults of a metric's name, unit, labels, text and panel."""
    name, kind = f"metric {metric.name!r}", metric.kind.value
    if not NAME.fullmatch(metric.name) or metric.name.startswith("wirewatch_"):
        yield f"{name}: write lower-case words joined by _, without wirewatch_ in front"
    for one, end in (("counter", "_total"), ("info", "_info")):
        if (kind == one) != metric.name.endswith(end):
            yield f"{name}: let the name of each {one}, and no other name, end with {end}"
    yield from _unit_faults(name, metric)
    yield from _label_faults(name, metric.labels)
    if not _is_line(metric.help) or not metric.help.endswith("."):
        yield f"{name}: let its help be one line that ends with a full stop and has no |"
    limits = [value for value, _ in metric.panel.limits]
    if len(limits) == 1 or limits != sorted(set(limits)):
        yield f"{name}: give its panel no limit, or two and more that rise"
    if metric.core and (metric.tier.value != "core" or not metric.labels):
        yield f"{name}: name values for tier core only where it is of tier core and has a label"
    if metric.undrawn and (metric.panel.title or limits):
        yield f"{name}: give it a panel or a reason in undrawn, and not both"


def _unit_faults(name: str, metric: "Metric") -> Iterator[str]:
    end = metric.name.removesuffix("_total")
    last = end.removesuffix("_per_second").rpartition("_")[2]
    if last in BASE:
        yield f"{name}: write {BASE[last]} in place of {last}"
    if metric.unit and not f"_{end}".endswith(f"_{metric.unit}"):
        yield f"{name}: let it end with its unit, as in speed_{metric.unit}"
    counted = end.removesuffix("_max").removesuffix("_expected").rpartition("_")[2] in PLAIN
    if metric.kind.value == "gauge" and not counted and not unit_of(metric):
        yield f"{name}: let it end with a unit ({', '.join(UNITS)}), or declare its own: unit={last!r}"


def _label_faults(name: str, labels: Collection[str]) -> Iterator[str]:
    for label, count in Counter(labels).items():
        if label in TAKEN:
            yield f"{name}: leave out the label {label}, since {TAKEN[label]}"
        if not NAME.fullmatch(label):
            yield f"{name}: write the label {label!r} as lower-case words joined by _"
        if count > 1:
            yield f"{name}: name the label {label} once"
    if ("gpu" in labels) != ("uuid" in labels):
        yield f"{name}: give it both labels of a GPU, gpu and uuid"


def rule_faults(rule: "Rule") -> Iterator[str]:
    """Return the faults of a rule's name, healths, alert and texts."""
    name = f"rule {rule.name!r}"
    if not RULE.fullmatch(rule.name):
        yield f"{name}: write family.fault, both of lower-case words joined by _"
    healths = [one.value for one in rule.healths]
    if not healths or healths != sorted(set(healths)) or not min(healths):
        yield f"{name}: list the healths of its findings from mild to grave, without OK"
        return
    if bool(rule.means) != bool(rule.do):
        yield f"{name}: give it both means and do, or an entry in docs/runbook.md by hand"
    if not all(_is_line(text, "|", "{{") for text in (rule.means, rule.look, rule.do, rule.rehearse)):
        yield f"{name}: write each of its texts as one line without | and {{{{"
    if len(rule.do) > LONGEST_ACTION:
        yield f"{name}: say what to do in {LONGEST_ACTION} characters; it has {len(rule.do)}"
    if not _HOLD.fullmatch(rule.hold):
        yield f"{name}: write hold as a number and s, m, h or d, such as 2m"
    yield from _alert_faults(name, rule)


def _alert_faults(name: str, rule: "Rule") -> Iterator[str]:
    if rule.alert and not _ALERT.fullmatch(rule.alert):
        yield f"{name}: write its alert as FanSlow, without Wirewatch in front"
    if not rule.alert and rule.worst.name != "UNKNOWN":
        if "*" in rule.name:
            yield f"{name}: name the alert that reports this pattern"
        if not rule.means:
            yield f"{name}: give it means and do, or name the alert that reports it"
    if len(rule.reported) > LONGEST_ALERT:
        yield f"{name}: name an alert; {rule.reported} has more than {LONGEST_ALERT} letters"


def collector_faults(collector: "AnyCollector") -> Iterator[str]:
    """Return the faults of a collector by itself, apart from its metrics and rules."""
    name = f"collector {collector.name!r}"
    if not NAME.fullmatch(collector.name):
        yield f"{name}: write lower-case words joined by _"
    if collector.name in RESERVED:
        yield f"{name}: choose another name, since wirewatch uses this one"
    if not _is_line(collector.about) or not collector.about or collector.about.endswith("."):
        yield f"{name}: let about be one line without | and without a full stop"
    if collector.lane not in LANES:
        yield f"{name}: choose its lane among {', '.join(LANES)}; it has {collector.lane!r}"
    least = GPUS if any("gpu" in metric.labels for metric in collector.metrics) else 1
    if collector.series < least:
        yield f"{name}: let series be {least} or more, for a node of {GPUS} GPUs and {GPUS} ports"
    if any(rule.name == f"{collector.name}.blind" for rule in collector.rules):
        yield f"{name}: leave out the rule {collector.name}.blind, which every collector has"
    if isinstance(collector.start, Mapping) and collector.forget is None:
        yield f"{name}: give it forget=forget_gone, so that it forgets GPUs which were taken out"
    for values in (collector.options, collector.policy):
        if getattr(type(values), "__pydantic_config__", {}).get("extra") != "forbid":
            yield f"{name}: derive {type(values).__name__} from Strict, so that it refuses unknown keys"


def faults_together(every: Collection["AnyCollector"]) -> Iterator[str]:
    """Return names that collectors claim twice, and default options that cannot hold."""
    for kind, names in (
        ("collector", [one.name for one in every]),
        ("metric", [metric.name for one in every for metric in one.metrics]),
        ("rule", [rule.name for one in every for rule in one.rules]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{kind} {name!r}: declare it once, and not {count} times"
    for one in every:
        # A turn of the probe is a look, or now and then a look and a probe; that of hangs may ask RAS.
        between = getattr(one.options, "longest", one.options.interval)
        if not 0 < one.options.deadline <= between:
            yield f"collector {one.name!r}: let its deadline be above 0 and at most {between:g}"


def _is_line(text: str, *never: str) -> bool:
    return not any(part in text for part in ("\n", *(never or ("|",))))
