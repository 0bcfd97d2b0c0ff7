"""The recommended NCCL settings of a job, and the faults in its present settings.

Nearly all are left to NCCL. A value is given where NCCL cannot know better. It knows neither ports that are
not for GPUs, nor the GID for an old version, nor the results of a sweep. Unseen settings never count as
right.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from wirewatch.busbw.references import Confidence
from wirewatch.core.topology import WireKind
from wirewatch.core.types import Absent, Health
from wirewatch.core.words import either
from wirewatch.documents import health
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.nccl.lists import (
    ALGO,
    CHOICES,
    FUNCTIONS,
    LL,
    NVLS,
    PROTO,
    RING,
    STRICT,
    TREE,
    ListError,
    allowed,
    ignored,
    lacks,
    left_without,
)
from wirewatch.nccl.settings import (
    IB_OFF,
    NET,
    NVLS_ENABLE,
    P2P_OFF,
    SLOWING,
    TOPOLOGY,
    is_shown,
    number,
    slowing_settings,
)
from wirewatch.nccl.variables import NEWEST, PREFIX, Variable, meant, reader, variable, version_text
from wirewatch_lab.advice.settings.candidates import GUIDE, VariableAdvice, candidates, left_alone
from wirewatch_lab.advice.settings.finding import SettingFinding, Surroundings, Trouble, found
from wirewatch_lab.advice.settings.measured import (
    JobPurpose,
    MeasuredSetting,
    Winner,
    measured_settings,
    winner,
)
from wirewatch_lab.advice.settings.network import (
    missing_gid_index,
    network_advice,
    paths_hidden,
    port_findings,
)
from wirewatch_lab.advice.settings.node import VIRTUAL_TOPOLOGY, NcclNode
from wirewatch_lab.advice.settings.plugins import NetworkPlugin, plugins
from wirewatch_lab.advice.settings.sources import (
    NCCL,
    P2P_LEVEL,
    SettingsSource,
    WrittenSetting,
    effective,
    misread,
)
from wirewatch_lab.study.curve import Study
from wirewatch_lab.study.spread import Regime
from wirewatch_lab.study.summary import span

FIGURES = "at 256 MiB, where 340 GB/s are healthy"
_PARAM, _TUNING = "src/misc/param.cc", "src/graph/tuning.cc"
_TABLE = f"NCCL's source, 2.3.5 to {version_text(NEWEST)}"
_ALIASES: Mapping[str, tuple[str, str]] = {
    "NCCL_MAX_NRINGS": ("NCCL_MAX_NCHANNELS", "2.5"), "NCCL_MIN_NRINGS": ("NCCL_MIN_NCHANNELS", "2.5"),
    "NCCL_MAX_NCHANNELS": ("NCCL_MAX_CTAS", "2.17"), "NCCL_MIN_NCHANNELS": ("NCCL_MIN_CTAS", "2.17"),
    "NCCL_CHECK_POINTERS": ("NCCL_CHECK_MODE", "2.29.7"),
}  # fmt: skip
"""Deprecated names that still work, with their replacements and versions."""


_MARK = "\ufeff"
_WITHOUT_NVLINK = frozenset({"NCCL_SHM_DISABLE", "NCCL_NVB_DISABLE"})
"""Settings for GPUs without NVLink between them."""
_BETWEEN_GPUS = frozenset({P2P_OFF, P2P_LEVEL, "NCCL_P2P_DIRECT_DISABLE", *_WITHOUT_NVLINK})


@dataclass(frozen=True, slots=True)
class NotRead:
    """A place whose settings cannot be read, and why."""

    origin: str
    why: str


@dataclass(frozen=True, slots=True)
class NcclCheckDocument:
    """What is wrong, the worst first. `at`: Unix seconds. `of`: whose settings. `nccl`: null: not known.

    `settings`: those that count, as written. `not_read`: places that may hold more. `network`: between nodes,
    null: not known. `as_wanted`: names that have the value which its plugin sets or asks for.
    """

    schema: Literal["wirewatch.advise-nccl-env-check/1"]
    at: float
    health: health.Health
    of: str
    machine: str
    nccl: str | None
    settings: dict[str, str]
    findings: tuple[SettingFinding, ...]
    not_read: tuple[NotRead, ...]
    network: str | None
    as_wanted: tuple[str, ...]


NCCL_CHECK = TypeAdapter(NcclCheckDocument)


@dataclass(frozen=True, slots=True)
class Places:
    """Settings and their owner: settings that were read, in order of precedence, and places not read."""

    of: str
    sources: tuple[SettingsSource, ...]
    not_read: tuple[NotRead, ...] = ()


def check(
    places: Places, node: NcclNode, measured: tuple[MeasuredSetting, ...], at: float
) -> tuple[NcclCheckDocument, Health]:
    """Check the settings of some places; return the faults and the worst health."""
    settings, hidden = effective(places.sources)
    values = {one.name: one.value for one in settings}
    signed = [one for one in plugins() if one.signed(values)]
    node = replace(node, signed=signed[0] if len(signed) == 1 else None)
    around = Surroundings(node, values, measured)
    findings = [
        *(one for setting in settings for one in _of_setting(setting, around)),
        *(_hidden(one, around) for one in hidden if variable(one.name)),
        *(one for source in places.sources for one in _of_source(source)),
        *missing_gid_index(around),
        *_missing(around),
    ]
    order = list(Trouble)
    findings.sort(key=lambda one: (-one.trouble.health, order.index(one.trouble)))
    worst = max((one.trouble.health for one in findings), default=Health.OK)
    if places.not_read:
        worst = max(worst, Health.UNKNOWN)
    document = NcclCheckDocument(
        schema="wirewatch.advise-nccl-env-check/1", at=at, health=health.HEALTH_NAMES[worst], of=places.of,
        machine=node.of, nccl=None if node.nccl is None else version_text(node.nccl),
        settings={name: value for name, value in values.items() if NCCL in name.upper()},
        findings=tuple(findings), not_read=places.not_read, network=node.network_name,
        as_wanted=tuple(name for name, value in values.items() if _is_wanted(name, value, node.plugin)),
    )  # fmt: skip
    return document, worst


def _is_wanted(name: str, value: str, plugin: NetworkPlugin | None) -> bool:
    return plugin is not None and plugin.takes(name, value) is True


def _missing(around: Surroundings) -> Iterator[SettingFinding]:
    """Yield settings that a plugin checks at init and the job does not set."""
    plugin = around.node.plugin
    left = [name for name in plugin.needed if not around.value(name)] if plugin else []
    if plugin and left:
        text = f"{plugin.name} checks it at init, and {', '.join(left)} are not set here: {_by_file(plugin)}"
        yield SettingFinding(left[0], "", "not set", Trouble.UNKNOWN, text, plugin.source)


def _by_file(plugin: NetworkPlugin) -> str:
    return f"{plugin.file} has the values of the plugin that is installed"


def _of_setting(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    known = variable(one.name)
    if known is None:
        yield from _of_name(one, around)
        return
    nccl = around.node.nccl
    if known.last is not None and (nccl is None or known.missing_in(nccl)):
        instead = f"; {known.instead} does its work" if known.instead else ""
        text = f"no NCCL after {version_text(known.last)} reads it{instead}"
        yield found(one, Trouble.NOTHING, text, _TABLE)
        return
    if nccl is not None and known.missing_in(nccl):
        since = version_text(known.since)
        text = f"NCCL {version_text(nccl)} does not read it; {since} is the first that does"
        yield found(one, Trouble.NOTHING, text, _TABLE)
        return
    # An empty value sets nothing.
    if one.value:
        yield from _of_value(one, known, around)


def _of_name(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    if NCCL not in one.name.upper() and not meant(one.name):
        return
    bare = one.name.removeprefix(_MARK).split()[-1:] or [""]
    if one.name != bare[0]:
        what = "a byte order mark" if one.name.startswith(_MARK) else "its spaces"
        text = f"the name is {one.name!r}, with {what}: write {bare[0]}=VALUE and nothing else"
        yield found(one, Trouble.NOTHING, text, _PARAM)
        return
    if reader(one.name):
        return
    intended = meant(one.name)
    nccl = around.node.nccl
    if intended:
        case = ", since case counts" if intended == one.name.upper() else ""
        yield found(one, Trouble.NAME, f"NCCL reads no such name{case}: is {intended} meant?", _TABLE)
    elif one.name.startswith(PREFIX) and nccl is not None and nccl > NEWEST:
        text = f"no NCCL up to {version_text(NEWEST)} reads it; {version_text(nccl)} is not known here"
        yield found(one, Trouble.UNKNOWN, text, _TABLE)
    elif one.name.startswith(PREFIX):
        text = f"no NCCL up to {version_text(NEWEST)} reads it, and no plugin that is known here"
        yield found(one, Trouble.NAME, text, _TABLE)


def _of_value(one: WrittenSetting, known: Variable, around: Surroundings) -> Iterator[SettingFinding]:
    if _is_wanted(one.name, one.value, around.node.plugin):
        return
    wrong = misread(known, one.value)
    if wrong:
        yield found(one, Trouble.VALUE, wrong, f"{_PARAM}; {GUIDE}")
    if one.name.endswith("_FILE") and one.value.startswith("~"):
        yield found(one, Trouble.VALUE, "NCCL does not replace ~: write the whole path", GUIDE)
    if one.name in CHOICES:
        lists = tuple(_of_list(one, around))
        yield from lists
        if lists:
            return
    if against := _against(one, around.node.plugin):
        yield against
        return
    port_rules = tuple(port_findings(one, around))
    yield from port_rules
    yield from _nvls(one, around)
    yield from _alias(one, around)
    if not port_rules:
        yield from _slowing(one, around)


def _against(one: WrittenSetting, plugin: NetworkPlugin | None) -> SettingFinding | None:
    """Report a value that differs from the value that a network's plugin sets or checks."""
    if plugin is None or one.name not in plugin.wants or one.name == NET or plugin.how == "asks":
        return None
    if plugin.how == "sets":
        text = f"{plugin.name} sets {either(plugin.wants[one.name])} where this is unset: leave it unset"
    else:
        usual = f"its own, {either(plugin.wants[one.name])} by its version"
        text = f"{plugin.name} ends init on a value other than {usual}: {_by_file(plugin)}"
    return found(one, Trouble.UNKNOWN, text, plugin.source)


def _of_list(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    """Yield lists that NCCL refuses or ignores, or that leave a collective nothing."""
    nccl = around.node.nccl
    unset = " Leave it unset for NCCL to choose." if one.value.strip("\"' ").lower() == "auto" else ""
    if nccl is not None and nccl < STRICT:
        words = ignored(one.name, one.value)
        if words:
            passed = f"NCCL {version_text(nccl)} passes over {', '.join(words)}"
            text = f"{passed}; what is left may be nothing.{unset}"
            yield found(one, Trouble.VALUE, text, _TUNING)
        return
    before = "" if nccl is not None else f"; NCCL before {version_text(STRICT)} passes over it"
    try:
        without = left_without(one.name, one.value)
    except ListError as error:
        yield found(one, Trouble.FAILS, f"init fails: {error}{before}.{unset}", _TUNING)
        return
    if without:
        every = "every collective" if len(without) == len(FUNCTIONS) else ", ".join(without)
        old = "" if nccl is not None else f"; NCCL before {version_text(STRICT)} takes Ring"
        text = f"nothing is left for {every}: calling it fails{old}"
        yield found(one, Trouble.FAILS, text, f"{_TUNING}; src/enqueue.cc")


def _slowing(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    """Yield settings known to slow, unless a sweep of this node says otherwise."""
    same = [two for two in around.measured if two.name == one.name]
    mine = [two for two in same if two.value.rpartition(":")[2].lower() == one.value.lower()]
    slower = [two for two in mine if two.verdict == "slower"]
    if slower:
        worst = min(slower, key=lambda two: two.speed)
        text = (
            f"measured here {1 / worst.speed - 1:.1%} more time than NCCL's own choice ({worst.op}, "
            f"{worst.regime.value}), more than the spread"
        )
        yield found(one, Trouble.SLOWS, text, worst.source)
        return
    large = any(two.regime is Regime.BANDWIDTH for two in mine)
    if large and all(two.verdict in {"same", "faster"} for two in mine):
        return
    if one.name == TOPOLOGY:
        yield from _topology(one, around)
        return
    idle = _idle(one, around)
    if idle:
        yield found(one, Trouble.NOTHING, idle, GUIDE)
        return
    wanted = [two.name for two in plugins() if around.node.question and two.takes(one.name, one.value)]
    for text, shown, source in _slower(one, around.node):
        if wanted or (around.node.question and one.name in {NET, IB_OFF}):
            why = (
                f"; but {' and '.join(wanted)} want this value"
                if wanted
                else ", if there is no other network"
            )
            yield found(one, Trouble.UNKNOWN, f"{text}{why}: {around.node.question}", source)
        elif shown:
            yield found(one, Trouble.SLOWS, text, source)
        else:
            tried = f"sweep --vary {shlex.quote(f'{one.name}={one.value}')}"
            asked = (
                f"it may slow, and nothing was measured of this value: {text}. Measure: `wirewatch {tried}`"
            )
            yield found(one, Trouble.UNKNOWN, asked, source)


def _slower(one: WrittenSetting, node: NcclNode) -> Iterator[tuple[str, bool, str]]:
    """Yield each known slowdown by a value, whether it was shown, and its source."""
    if one.name == PROTO and lacks(PROTO, one.value, LL):
        text = "small messages go without LL, which NCCL takes for them (up to 2 MiB on 8 H200)"
        yield text, True, _TUNING
    if one.name == ALGO and node.no_nvls and not lacks(ALGO, one.value, RING):
        if lacks(ALGO, one.value, TREE):
            yield f"between nodes small messages go without Tree; {node.no_nvls}", True, _TUNING
        return
    slow = SLOWING.get(one.name)
    if slow is not None and slow.slows(one.value):
        figures = f" ({FIGURES})" if "measured" in slow.effect else ""
        nvlink = node.kind is None or node.all_nvlink
        yield f"{slow.effect}{figures}", is_shown(one.name, one.value, nvlink=nvlink), GUIDE


def _idle(one: WrittenSetting, around: Surroundings) -> str:
    """Return why a setting that slows other nodes has no effect here; empty where it has."""
    if not slowing_settings({one.name: one.value}):
        return ""
    if around.node.conditions and around.node.conditions.group.ranks == 1 and one.name in _BETWEEN_GPUS:
        return "one GPU alone has no other on its node, so it changes nothing"
    reaches = one.name == P2P_LEVEL and one.value != "LOC" and not one.value.startswith("0")
    if around.node.all_nvlink and (one.name in _WITHOUT_NVLINK or reaches):
        return "NVLink joins all GPUs here with each other, so it changes nothing"
    return around.node.no_nvls if one.name == NVLS_ENABLE else ""


def _topology(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    node = around.node
    if one.value == VIRTUAL_TOPOLOGY:
        return
    if node.conditions is None or isinstance(node.ports, Absent):
        text = "NCCL believes this file about the machine, and no machine was read to compare it with"
        yield found(one, Trouble.UNKNOWN, text, GUIDE)
    elif not node.active or not paths_hidden(node):
        text = (
            "NCCL believes this file, and can read the PCI tree here by itself: measure with and without it"
        )
        yield found(one, Trouble.UNKNOWN, text, GUIDE)


def _nvls(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    if one.name != NVLS_ENABLE or number(one.value) == 0:
        return
    source = f"{GUIDE}; src/transport/nvls.cc"
    algorithms = around.value(ALGO)
    node = around.node
    if algorithms and not _leaves_nvls(algorithms):
        yield found(one, Trouble.NOTHING, f"unused: {ALGO}={algorithms} leaves it no collective", source)
    elif number(one.value) != 1:
        return
    elif node.conditions is not None and node.conditions.multicast is False:
        yield found(one, Trouble.FAILS, "init fails: the driver offers no multicast here", source)
    elif node.no_nvls:
        yield found(one, Trouble.NOTHING, node.no_nvls, source)
    else:
        text = (
            "2, the default, takes NVLS wherever it is offered; 1 makes init fail where its resources lack, "
            "which 2 does too before 2.27 and from 2.29 on"
        )
        yield found(one, Trouble.NOTHING, text, source)


def _leaves_nvls(algorithms: str) -> bool:
    try:
        return any(NVLS in chosen for chosen in allowed(ALGO, algorithms).values())
    except ListError:
        return True


def _alias(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    if one.name not in _ALIASES:
        return
    name, since = _ALIASES[one.name]
    newer = variable(name)
    if newer is None or (around.node.nccl is not None and newer.missing_in(around.node.nccl)):
        return
    if one.name.endswith("NRINGS") and around.value(name):
        yield found(one, Trouble.NOTHING, f"{name} is set, and counts instead", GUIDE)
    else:
        yield found(one, Trouble.OLD, f"still read; {name} replaces it since {since}", GUIDE)


def _hidden(one: WrittenSetting, around: Surroundings) -> SettingFinding:
    text = f"{one.name}={around.value(one.name)} is read first, and counts"
    return found(one, Trouble.NOTHING, text, _PARAM)


def _of_source(source: SettingsSource) -> Iterator[SettingFinding]:
    first = "the first counts, and in a docker env file the last" if source.literal else "the first counts"
    for name in source.repeated:
        if NCCL in name.upper():
            value = next(one.value for one in source.settings if one.name == name)
            text = f"it stands twice with different values: {first}"
            yield SettingFinding(name, value, source.origin, Trouble.NOTHING, text, _PARAM)
    for line in source.not_understood:
        if NCCL not in line.upper():
            continue
        text = "no shell takes this for a setting" if "=" in line else "a line without = sets nothing"
        yield SettingFinding(line[:80], "", source.origin, Trouble.NOTHING, text, _PARAM)
    for name in source.filled:
        text = "its value is filled in when the file is used"
        yield SettingFinding(name, "", source.origin, Trouble.UNKNOWN, text, "the file")


UNNAMED = "it was measured here, and nothing else is known of it"
SWEPT = "a sweep of this node"


@dataclass(frozen=True, slots=True)
class NcclEnvDocument:
    """The advice for one purpose. `at`: Unix seconds. `nccl`: its version, null where that is not known.

    `network`: between nodes, null where that is not known; `remark`: what else it needs, or what is asked.
    """

    schema: Literal["wirewatch.advise-nccl-env/1"]
    at: float
    machine: str
    purpose: str
    nccl: str | None
    variables: tuple[VariableAdvice, ...]
    network: str | None
    remark: str


NCCL_ENV = TypeAdapter(NcclEnvDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {
    "wirewatch.advise-nccl-env.1": NCCL_ENV, "wirewatch.advise-nccl-env-check.1": NCCL_CHECK,
}  # fmt: skip


def advise(node: NcclNode, studies: Sequence[Study], purpose: JobPurpose, at: float) -> NcclEnvDocument:
    """Return all variables with advice, variables with a value first."""
    measured = measured_settings(studies)
    lists = node.nccl is None or node.nccl >= STRICT  # This node's NCCL reads those for single collectives.
    best = winner([one for one in measured if lists or ":" not in one.value], purpose)
    wanted = {one.name: one for one in _wanted(node.plugin)} if node.plugin else {}
    others = (*_static(purpose, node), *network_advice(node))
    found = [*(one for one in others if one.name not in wanted), *wanted.values()]
    known = {one.name for one in found}
    otherwise = "the sweep's figures below say otherwise"
    names = dict.fromkeys(one.name for one in measured if one.name not in known)
    found += [left_alone(name, UNNAMED, otherwise, confidence=Confidence.LOW) for name in names]
    made = [_with_measurements(one, measured, best, purpose) for one in found]
    return NcclEnvDocument(
        schema="wirewatch.advise-nccl-env/1", at=at, machine=node.of, purpose=purpose.value,
        nccl=None if node.nccl is None else version_text(node.nccl),
        variables=tuple(sorted(made, key=lambda one: one.value is None)),
        network=node.network_name, remark=_remark(node),
    )  # fmt: skip


def _wanted(plugin: NetworkPlugin) -> Iterator[VariableAdvice]:
    """Yield advice for each setting of a plugin, which the plugin or its file makes."""
    does = {"sets": "sets it by itself", "checks": "checks it at init", "asks": "asks for it"}[plugin.how]
    for name, values in plugin.wants.items():
        reason = f"{plugin.name} {does}: {either(values)}"
        when_not = _by_file(plugin) if plugin.file else "a value that was measured between nodes"
        yield left_alone(name, reason, when_not, plugin.source)


def _remark(node: NcclNode) -> str:
    """Return a question about the network, or the file with its settings; empty where nothing is to do."""
    if node.question:
        return f"Between nodes it depends on the network: {node.question}"
    plugin = node.plugin
    if plugin is None or plugin.how == "sets":
        return ""
    why = "which ends init on other values" if plugin.how == "checks" else "which asks for them"
    return f"Between nodes take the settings of {plugin.name}, {why}, from {plugin.file}"


def _static(purpose: JobPurpose, node: NcclNode) -> Iterator[VariableAdvice]:
    """Yield advice for each row that concerns the node."""
    own = bool(node.active) and (node.plugin is None or node.plugin.reads_ib)
    roce = set(node.for_gpus() or node.active) <= set(node.roce)
    for row in candidates():
        one = row.advice(training=purpose is JobPurpose.TRAINING, roce=roce)
        if one.name == NVLS_ENABLE and node.kind not in {None, WireKind.SWITCH, WireKind.UNKNOWN}:
            one = replace(one, reason=f"no NVSwitch joins the GPUs here: nothing to do. {one.reason}")
        if own or not row.ports:
            yield one


def _losses(best: Winner, measured: Sequence[MeasuredSetting]) -> str:
    """Return where else the winner is slower, which costs a job with such messages."""
    values = best.value.split(";")
    slower = [one for one in measured if one.verdict == "slower" and one.value in values]
    return "".join(
        f"messages of {span(one.first_bytes, one.last_bytes)}: {one.op} is {1 - one.speed:.1%} slower; "
        for one in slower
    )


def _with_measurements(
    one: VariableAdvice, measured: Sequence[MeasuredSetting], best: Winner | None, purpose: JobPurpose
) -> VariableAdvice:
    mine = tuple(found for found in measured if found.name == one.name)
    if best is None or best.name != one.name:
        return replace(one, measured=mine)
    deciding = [found for found in best.measured if found.regime is purpose.regime]
    gain = max(found.speed for found in deciding) - 1
    around = next((f" The sweep was run with {found.around}." for found in deciding if found.around), "")
    lists = " Lists for single collectives take NCCL 2.24." if ":" in best.value else ""
    return replace(
        one,
        value=best.value,
        reason=f"measured here {gain:.1%} faster than NCCL's own choice at the sizes of {purpose.value}, "
        "more than the spread, and at no heeded size slower",
        confidence=Confidence.MEASURED,
        when_not=f"{_losses(best, mine)}another node, NCCL or driver, or other sizes: measure again. Each "
        f"setting was measured alone, so set no two of them.{lists}{around}",
        source=f"{SWEPT}: {deciding[0].source}",
        measured=mine,
    )
