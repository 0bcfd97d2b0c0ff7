"""How NCCL reads a value that it does not expect: most are silently read as another one.

Sources: NCCL's src/misc/param.cc (strtoll), src/graph/paths.cc (levels), src/graph/tuning.cc (threads),
src/debug.cc, and its user guide, environment variables.
"""

from collections.abc import Mapping, Sequence

from wirewatch.nccl.settings import GDR_LEVEL, gdr_level, is_number, number
from wirewatch.nccl.variables import Variable

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
