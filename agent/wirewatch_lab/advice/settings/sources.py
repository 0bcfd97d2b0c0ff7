"""NCCL settings as written in an environment, an nccl.conf, a script or a YAML file. Pure.

NCCL takes its environment first, then $NCCL_CONF_FILE or else ~/.nccl.conf, then /etc/nccl.conf. Of repeated
names it takes the first (src/misc/param.cc). NCCL silently reads most unexpected values as other values.
Sources are src/misc/param.cc (strtoll), src/graph/paths.cc (levels), src/graph/tuning.cc (threads),
src/debug.cc and the user guide, environment variables.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from wirewatch.core.types import Absent, Why
from wirewatch.nccl.settings import GDR_LEVEL, gdr_level, is_number, number
from wirewatch.nccl.variables import Variable

NCCL, LIBFABRIC = "NCCL", "FI_"
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
_SHELL = re.compile(r"\s*(export|declare|unset|setenv|ENV)\s", re.ASCII)
_NAMING = frozenset({"setenv", "ENV"})
"""Words of csh and of a Dockerfile that may precede a name and its value as two words."""
_SBATCH = "#SBATCH"
_PASSED = re.compile(r"--(?:export|env)=(.*)", re.DOTALL)
_YAML = re.compile(r"^\s*(- +)?[\"']?name[\"']?: +[\"']?NCCL_", re.MULTILINE)
_YAML_NAMES = (".yaml", ".yml", ".json")
_ENTRY = re.compile(rb"[^\0-\x1f=]+=")
_NO_TEXT = re.compile(r"[\0-\x08\x0e-\x1f]")
_FILLED = re.compile(r"[$`]")
_MOST_CHARACTERS = 1023
"""Most characters of a value that NCCL takes from a file."""
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
"""The lowest and highest values that the user guide accepts."""
_UNSET = frozenset({-1, -2})
"""Values that NCCL itself treats as unset."""
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
class WrittenSetting:
    """A name with its value, as written, and its place."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """A place with settings, the first of each name first.

    `literal`: quotes and spaces belong to the value, as in nccl.conf. `not_understood`: lines that set
    nothing. `repeated`: names with several different values. `filled`: names with a value from a shell, which
    is not known here.
    """

    origin: str
    settings: tuple[WrittenSetting, ...] = ()
    literal: bool = False
    not_understood: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()


def of_environ(data: bytes, origin: str) -> SettingsSource:
    """Read the bytes of /proc/PID/environ."""
    pairs = [part.decode("utf-8", "replace").partition("=") for part in data.split(b"\0") if part]
    return _source(origin, [(name, value) for name, equals, value in pairs if equals], literal=False)


def of_conf(text: str, origin: str) -> SettingsSource:
    """Read an nccl.conf as NCCL does: the text before the first `=` of a line is the name."""
    pairs, unknown = [], []
    for line in text.replace("\r\n", "\n").split("\n"):
        name, equals, value = line.partition("=")
        if line.startswith("#") or not line.strip():
            continue
        if equals:
            pairs.append((name, value[:_MOST_CHARACTERS]))
        else:
            unknown.append(line)
    return _source(origin, pairs, literal=True, unknown=unknown)


def of_shell(text: str, origin: str) -> SettingsSource:
    """Read exports and commands of sh, csh, a Dockerfile and Slurm's --export; the last of a name counts."""
    last: dict[str, str] = {}
    unknown, filled = [], set[str]()
    for line in text.replace("\\\r\n", "").replace("\\\n", "").splitlines():
        try:
            words = _words(line.removeprefix(_SBATCH))
        except ValueError:
            words = []
            if NCCL in line:
                unknown.append(line)
        if "=" in words and NCCL in line:
            unknown.append(line)
        for name, value in _assigned(words):
            last[name] = value
            (filled.add if _FILLED.search(value) else filled.discard)(name)
        if words[:1] == ["unset"]:
            for name in words[1:]:
                last.pop(name, None)
    settings = [(name, value) for name, value in last.items() if name not in filled]
    return _source(origin, settings, literal=False, unknown=unknown, filled=sorted(filled & set(last)))


def of_yaml(text: str, origin: str) -> SettingsSource | Absent:
    """Read containers' `env`, mappings and lists of YAML or JSON; Absent for other text."""
    try:
        documents = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return Absent(Why.MALFORMED, f"{origin}: not YAML")
    found = dict(_in_yaml(documents))
    settings = [(name, value) for name, value in found.items() if value is not None]
    filled = sorted(name for name, value in found.items() if value is None)
    return _source(origin, settings, literal=False, filled=filled)


def _in_yaml(documents: Sequence[object]) -> Iterator[tuple[str, str | None]]:
    """Yield names with their values, None for a value from elsewhere."""
    left, seen = list(documents[::-1]), set[int]()
    while left:
        one = left.pop()
        if isinstance(one, str) and (found := _ASSIGNED.fullmatch(one)) and NCCL in found[1]:
            yield found[1], found[2]
        if not isinstance(one, (dict, list)) or id(one) in seen:
            continue
        seen.add(id(one))
        pairs = one if isinstance(one, dict) else {}
        if _is_ours(str(pairs.get("name", ""))):
            yield str(pairs["name"]), str(pairs["value"]) if "value" in pairs else None
        for name, value in pairs.items():
            if _is_ours(str(name)) and not isinstance(value, (dict, list)):
                yield str(name), "" if value is None else str(value)
        left += list(pairs.values() if isinstance(one, dict) else one)[::-1]


def of_file(data: bytes, name: str) -> SettingsSource | Absent:
    """Read a file: a copy of an environ, a shell script, YAML, or lines of NAME=VALUE as in nccl.conf.

    Returns Absent for any other file.
    """
    strange = Absent(Why.MALFORMED, f"{name}: neither an environment nor text with settings of NCCL")
    if b"\0" in data:
        parts = [part for part in data.split(b"\0") if part]
        return of_environ(data, name) if parts and all(map(_ENTRY.match, parts)) else strange
    text = data.decode("utf-8", "replace")
    if _NO_TEXT.search(text):
        return strange
    if name.endswith(_YAML_NAMES) or _YAML.search(text):
        return of_yaml(text, name)
    shell = text.startswith("#!") or any(_SHELL.match(line) for line in text.splitlines())
    found = of_shell(text, name) if shell and not name.endswith(".conf") else of_conf(text, name)
    return found if found.settings or not found.not_understood or NCCL in text.upper() else strange


def effective(
    sources: Sequence[SettingsSource],
) -> tuple[tuple[WrittenSetting, ...], tuple[WrittenSetting, ...]]:
    """Return the effective settings, and overridden settings with another value."""
    first: dict[str, WrittenSetting] = {}
    hidden = []
    for source in sources:
        for one in source.settings:
            held = first.setdefault(one.name, one)
            if held is not one and held.value != one.value and held.origin != one.origin:
                hidden.append(one)
    return tuple(first.values()), tuple(hidden)


def _source(
    origin: str, pairs: Sequence[tuple[str, str]], *, literal: bool, unknown: Sequence[str] = (),
    filled: Sequence[str] = (),
) -> SettingsSource:  # fmt: skip
    first: dict[str, str] = {}
    repeated: dict[str, None] = {}
    for name, value in pairs:
        if first.setdefault(name, value) != value:
            repeated[name] = None
    settings = tuple(WrittenSetting(name, value, origin) for name, value in first.items())
    return SettingsSource(origin, settings, literal, tuple(unknown), tuple(repeated), tuple(filled))


def _is_ours(name: str) -> bool:
    """Return whether a name belongs to NCCL, to a plugin of it, or to libfabric, which EFA uses."""
    return NCCL in name or name.startswith(LIBFABRIC)


def _words(line: str) -> list[str]:
    """Split a shell's line; the end of a command is also a word. Raises ValueError: a quote is open."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    return list(lexer)


def _assigned(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield NAME=VALUE among the words of a line; other programs' names are ignored."""
    if len(words) > 2 and words[0] in _NAMING and "=" not in words[1] and NCCL in words[1]:  # noqa: PLR2004
        yield words[1], words[2]
    passed = [part for word in words if (one := _PASSED.fullmatch(word)) for part in one[1].split(",")]
    for word in (*words, *passed):
        found = _ASSIGNED.fullmatch(word)
        if found and _is_ours(found[1].upper()):
            yield found[1], found[2]


def misread(variable: Variable, value: str) -> str:
    """Say how NCCL misreads a value; empty where it does not."""
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
