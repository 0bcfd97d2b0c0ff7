"""What is wrong with the settings that a job has: what fails, slows, does nothing, or is not a setting.

What cannot be seen is not known, and never right. NCCL silently reads most values that it does not expect as
other ones: src/misc/param.cc (strtoll), src/graph/paths.cc (levels), src/graph/tuning.cc (threads),
src/debug.cc and the user guide, environment variables.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch.core.types import Absent, Health
from wirewatch.documents import health
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
    GDR_LEVEL,
    NVLS_ENABLE,
    TOPOLOGY,
    gdr_level,
    is_number,
    number,
    slowing_settings,
)
from wirewatch.nccl.variables import NEWEST, PREFIX, Variable, meant, reader, variable, version_text
from wirewatch_lab.advice.settings.candidates import GUIDE
from wirewatch_lab.advice.settings.finding import SettingFinding, Surroundings, Trouble, found
from wirewatch_lab.advice.settings.measured import MeasuredSetting
from wirewatch_lab.advice.settings.network import missing_gid_index, paths_hidden, port_findings
from wirewatch_lab.advice.settings.node import NcclNode
from wirewatch_lab.advice.settings.sources import NCCL, SettingsSource, WrittenSetting, effective
from wirewatch_lab.study.spread import Regime

FIGURES = "measured on 4 H200 at 256 MiB, where 340 GB/s are healthy"
_PARAM, _TUNING = "src/misc/param.cc", "src/graph/tuning.cc"
_TABLE = f"NCCL's source, 2.3.5 to {version_text(NEWEST)}"
_ALIASES: Mapping[str, tuple[str, str]] = {
    "NCCL_MAX_NRINGS": ("NCCL_MAX_NCHANNELS", "2.5"), "NCCL_MIN_NRINGS": ("NCCL_MIN_NCHANNELS", "2.5"),
    "NCCL_MAX_NCHANNELS": ("NCCL_MAX_CTAS", "2.17"), "NCCL_MIN_NCHANNELS": ("NCCL_MIN_CTAS", "2.17"),
    "NCCL_CHECK_POINTERS": ("NCCL_CHECK_MODE", "2.29.7"),
}  # fmt: skip
"""Names that still work, what replaces them, and since when."""


_MARK = "\ufeff"
_WITHOUT_NVLINK = frozenset({"NCCL_SHM_DISABLE", "NCCL_NVB_DISABLE"})
"""Settings that concern GPUs without NVLink between them."""


P2P_LEVEL, MERGE_LEVEL, DEBUG, SUBSYSTEMS = (
    "NCCL_P2P_LEVEL", "NCCL_NET_MERGE_LEVEL", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS",
)  # fmt: skip
LEVELS = frozenset({GDR_LEVEL, P2P_LEVEL, MERGE_LEVEL})
_QUOTES = frozenset("\"'")
_ON, _OFF = frozenset({"yes", "true", "on", "y", "t", "enable", "enabled"}), frozenset({"no", "false", "off"})
_UNITS: Mapping[str, int] = {"k": 10, "m": 20, "g": 30}
_WARP, _LEAST_THREADS, _MOST_THREADS = 32, 64, 512
_RANGES: Mapping[str, tuple[int, int]] = {
    "NCCL_CROSS_NIC": (0, 2), "NCCL_NVLS_ENABLE": (0, 2), "NCCL_MNNVL_ENABLE": (0, 2),
    "NCCL_IB_TIMEOUT": (0, 31), "NCCL_IB_RETRY_CNT": (0, 7), "NCCL_IB_SL": (0, 15), "NCCL_IB_TC": (0, 255),
    "NCCL_IB_FIFO_TC": (0, 255), "NCCL_IB_PCI_RELAXED_ORDERING": (0, 2),
    "NCCL_IB_QPS_PER_CONNECTION": (1, 128), "NCCL_IB_ROCE_VERSION_NUM": (1, 2), "NCCL_P2P_PXN_LEVEL": (0, 2),
    "NCCL_CGA_CLUSTER_SIZE": (0, 8), "NCCL_MAX_CTAS": (1, 64), "NCCL_MIN_CTAS": (1, 64),
    "NCCL_MAX_NCHANNELS": (1, 64), "NCCL_MIN_NCHANNELS": (1, 64), "NCCL_SOCKET_NTHREADS": (1, 16),
    "NCCL_MEM_SYNC_DOMAIN": (0, 1),
}  # fmt: skip
"""The lowest and the highest value that the user guide accepts."""
_UNSET = frozenset({-1, -2})
"""What NCCL itself takes for a setting that is not made."""
_WORDS: Mapping[str, Sequence[str]] = {
    DEBUG: ("VERSION", "WARN", "INFO", "ABORT", "TRACE"),
    "NCCL_SOCKET_FAMILY": ("AF_INET", "AF_INET6"),
    "NCCL_IB_ADDR_FAMILY": ("AF_INET", "AF_INET6"),
    "NCCL_LAUNCH_MODE": ("PARALLEL", "GROUP"),
    "NCCL_CHECK_MODE": ("DEFAULT", "DEBUG_LOCAL", "DEBUG_GLOBAL"),
    "NCCL_NET_MERGE_POLICY": ("ALL", "RAIL"),
}
_SUBSYSTEMS = frozenset(
    {
        "INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST", "CALL", "PROXY",
        "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NotRead:
    """A place whose settings cannot be read, and why."""

    origin: str
    why: str


@dataclass(frozen=True, slots=True)
class NcclCheckDocument:
    """What is wrong, the worst first. `at`: Unix seconds. `of`: whose settings. `nccl`: null: not known.

    `settings`: those that count, as written. `not_read`: places that may hold more.
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


NCCL_CHECK = TypeAdapter(NcclCheckDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.advise-nccl-env-check.1": NCCL_CHECK}


@dataclass(frozen=True, slots=True)
class Places:
    """Whose settings they are, those that were read, the first that counts first, and those that were not."""

    of: str
    sources: tuple[SettingsSource, ...]
    not_read: tuple[NotRead, ...] = ()


def check(
    places: Places, node: NcclNode, measured: tuple[MeasuredSetting, ...], at: float
) -> tuple[NcclCheckDocument, Health]:
    """All that is wrong with the settings of some places, and how bad the worst of it is."""
    settings, hidden = effective(places.sources)
    around = Surroundings(node, {one.name: one.value for one in settings}, measured)
    findings = [
        *(one for setting in settings for one in _of_setting(setting, around)),
        *(_hidden(one, around) for one in hidden if variable(one.name)),
        *(one for source in places.sources for one in _of_source(source)),
        *missing_gid_index(around),
    ]
    order = list(Trouble)
    findings.sort(key=lambda one: (-one.trouble.health, order.index(one.trouble)))
    worst = max((one.trouble.health for one in findings), default=Health.OK)
    if places.not_read:
        worst = max(worst, Health.UNKNOWN)
    document = NcclCheckDocument(
        schema="wirewatch.advise-nccl-env-check/1", at=at, health=health.HEALTH_NAMES[worst], of=places.of,
        machine=node.of, nccl=None if node.nccl is None else version_text(node.nccl),
        settings={one.name: one.value for one in settings if NCCL in one.name.upper()},
        findings=tuple(findings), not_read=places.not_read,
    )  # fmt: skip
    return document, worst


def _of_setting(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    known = variable(one.name)
    if known is None:
        yield from _of_name(one, around)
        return
    nccl = around.node.nccl
    if known.last is not None and (nccl is None or known.missing_in(nccl)):
        instead = f"; {known.instead} does its work" if known.instead else ""
        yield found(
            one, Trouble.NOTHING, f"no NCCL after {version_text(known.last)} reads it{instead}", _TABLE
        )
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
    port_rules = tuple(port_findings(one, around))
    yield from port_rules
    yield from _nvls(one, around)
    yield from _alias(one, around)
    if not port_rules:
        yield from _slowing(one, around)


def _of_list(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    """A list that NCCL refuses, passes over, or that leaves a collective nothing."""
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
    """What slows by what is known, unless a sweep of this very node says otherwise."""
    mine = [found_one for found_one in around.measured if _is(found_one, one)]
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
    if one.name == PROTO and lacks(PROTO, one.value, LL):
        text = (
            "small messages go without LL, which NCCL takes for them (up to 2 MiB on 8 H200); right "
            "only where the network asks for it, as EFA's first plugins did"
        )
        yield found(one, Trouble.SLOWS, text, _TUNING)
    if one.name == ALGO and around.node.no_nvls and not lacks(ALGO, one.value, RING):
        if lacks(ALGO, one.value, TREE):
            text = f"between nodes small messages go without Tree; {around.node.no_nvls}"
            yield found(one, Trouble.SLOWS, text, _TUNING)
        return
    for _, _, effect in slowing_settings({one.name: one.value}):
        figures = f" ({FIGURES})" if "measured" in effect else ""
        yield found(one, Trouble.SLOWS, f"{effect}{figures}", GUIDE)


def _idle(one: WrittenSetting, around: Surroundings) -> str:
    """Why a setting that slows other nodes has nothing to do on this one; empty where it has."""
    if not slowing_settings({one.name: one.value}):
        return ""
    if around.node.all_nvlink and (one.name in _WITHOUT_NVLINK or _reaches_nvlink(one)):
        return "NVLink joins all GPUs here with each other, so it changes nothing"
    return around.node.no_nvls if one.name == NVLS_ENABLE else ""


def _reaches_nvlink(one: WrittenSetting) -> bool:
    return one.name == P2P_LEVEL and one.value != "LOC" and not one.value.startswith("0")


def _is(measured: MeasuredSetting, one: WrittenSetting) -> bool:
    return measured.name == one.name and measured.value.rpartition(":")[2].lower() == one.value.lower()


def _topology(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    node = around.node
    if node.conditions is None or isinstance(node.ports, Absent):
        text = "NCCL believes this file about the machine, and no machine was read to compare it with"
        yield found(one, Trouble.UNKNOWN, text, GUIDE)
    elif not node.active or not paths_hidden(node):
        text = "NCCL believes this file about a machine whose PCI tree it can read by itself"
        yield found(one, Trouble.SLOWS, text, GUIDE)


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


def misread(variable: Variable, value: str) -> str:
    """How NCCL reads a value if not as it seems to be meant, in words; empty where it is read as meant.

    An empty value sets nothing.
    """
    if not value:
        return ""
    if value[0] in _QUOTES or value[-1] in _QUOTES:
        return "the quotes are part of the value: NCCL does not remove them"
    if variable.name in LEVELS:
        return _level(value)
    return _number(variable.name, value) if variable.number else _word(variable.name, value)


def _word(name: str, value: str) -> str:
    if name == SUBSYSTEMS:
        unknown = [one for one in value.lstrip("^").split(",") if one and one.upper() not in _SUBSYSTEMS]
        return f"NCCL has no subsystem {', '.join(unknown)}" if unknown else ""
    words = _WORDS.get(name, ())
    return "" if not words or value.upper() in words else f"not one of {', '.join(words)}: NCCL ignores it"


def _level(value: str) -> str:
    if value != value.strip() or not gdr_level(value)[0]:
        near = value.strip().upper()
        hint = f"; write {near}" if gdr_level(near)[0] else ""
        return (
            f"not a path such as PIX, PXB, PHB or SYS, in capitals and without spaces: NCCL ignores it{hint}"
        )
    if value.isdigit():
        path = {0: "LOC", 1: "PIX", 2: "PXB", 3: "PHB"}.get(number(value), "SYS")
        far = ", the farthest path of all, which also crosses sockets" if path == "SYS" else ""
        # A number of another version may be another path.
        return f"the old number for {path}{far}; name the path, for numbers change with versions"
    return ""


def _number(name: str, value: str) -> str:
    taken = number(value)
    if not is_number(value):
        return f"read as {taken}: NCCL takes the number at the start{_hint(name, value)}"
    if name == "NCCL_NTHREADS" and taken > 0:
        return _threads(taken)
    low, high = _RANGES.get(name, (taken, taken))
    return "" if low <= taken <= high or taken in _UNSET else f"not from {low} to {high}"


def _threads(threads: int) -> str:
    if threads % _WARP:
        return f"not a multiple of {_WARP}: NCCL takes {_MOST_THREADS}"
    if not _LEAST_THREADS <= threads <= _MOST_THREADS:
        taken = min(max(threads, _LEAST_THREADS), _MOST_THREADS)
        return f"not from {_LEAST_THREADS} to {_MOST_THREADS}: NCCL takes {taken}"
    return ""


def _hint(name: str, value: str) -> str:
    word = value.strip().lower()
    if word in _ON | _OFF:
        return f"; write {int(word in _ON)}" if name.endswith(("ENABLE", "DISABLE")) else "; write a number"
    digits, unit = word.rstrip("kmgib"), word.lstrip("0123456789")[:1]
    if digits.isascii() and digits.isdigit() and unit in _UNITS and len(digits) < len(str(1 << 30)):
        return f"; write {int(digits) << _UNITS[unit]}"
    return f", to base 8; write {word.lstrip('0')}" if word.isascii() and word.isdigit() else ""
