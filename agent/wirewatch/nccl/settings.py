"""NCCL's settings: how it reads them, and the settings that lower bandwidth below its defaults.

They change no expectation, except NVLS switched off (busbw.expected). Sources: NCCL's user guide, environment
variables, and the source of 2.30 (src/graph/tuning.cc, paths.cc, search.cc). Effects were measured on four
H200 at 256 MiB, where 340 GB/s are healthy.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wirewatch.core.pci import Path
from wirewatch.nccl.lists import ALGO, NVLS, PROTO, RING, SIMPLE, lacks

NVLS_ENABLE = "NCCL_NVLS_ENABLE"
_NUMBER = re.compile(r"\s*([+-]?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9]\d*))", re.ASCII)
_DIGITS = 32
"""No 64-bit number has more, and Python refuses to read thousands of them."""
_MOST, _LONGEST = 64, 200
"""Settings of one process that are kept, and bytes of each."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A setting that can lower bandwidth: `slows` is true of the values that may, `effect` is what they do.

    `shown`: whether a measurement, or how NCCL works, shows it of a value that may. `of_nvlink`: its figures
    are of NVLink, and a slower wire is full with less.
    """

    slows: Callable[[str], bool]
    effect: str
    source: str = "NCCL user guide, environment variables"
    shown: Callable[[str], bool] = bool
    of_nvlink: bool = False


_NEAR = frozenset({"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB"})
_FAR = 4
_CHANNELS, _SLOW_CHANNELS = 32, 17
_MEASURED = 64 << 10
"""Bytes of NCCL_BUFFSIZE that were measured. 16 channels cost two H200 13 % of large messages, 24 nothing."""
_NOT_SHOWN = "not known whether this value slows"
_FEW = (
    f"fewer channels than {_CHANNELS}, and SMs to drive the links with (NCCL takes 24 on Hopper); "
    "4 measured 98 GB/s on 4 H200, 1 measured 25"
)
_MANY = f"more channels than {_CHANNELS}, which may cost more than they help"
_LISTS = "NCCL user guide, environment variables; src/graph/tuning.cc"
_UNDOCUMENTED = "src/graph/tuning.cc, search.cc and src/transport/nvls.cc; not in the user guide"
GDR_LEVEL, TOPOLOGY, IB_OFF = "NCCL_NET_GDR_LEVEL", "NCCL_TOPO_FILE", "NCCL_IB_DISABLE"
P2P_OFF, SHM_OFF, IB_HCA, NET = "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_HCA", "NCCL_NET"
_PORT = re.compile(r"\s*[+-]?\d+", re.ASCII)
_MOST_HCAS = 32
"""Entries of NCCL_IB_HCA that NCCL reads."""
_LEVELS: Mapping[str, Path | None] = {
    "LOC": None, "NVL": None, "NVB": None, "C2C": None, "PIX": Path.PIX, "PXB": Path.PXB,
    "P2C": Path.PXB, "PXN": Path.PXB, "PHB": Path.NODE, "SYS": Path.SYS,
    "0": None, "1": Path.PIX, "2": Path.PXB, "3": Path.NODE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NcclConf:
    """The settings, and every line that is neither a setting nor a comment."""

    settings: Mapping[str, str]
    unknown: tuple[str, ...] = ()


def number(text: str) -> int:
    """A setting as NCCL reads numbers (strtoll, base 0): the number at its start, else 0."""
    match = _NUMBER.match(text)
    if not match:
        return 0
    digits, base = (match[2], 16) if match[2] else (match[3], 8) if match[3] else (match[4], 10)
    value = int(digits[:_DIGITS], base)
    return -value if match[1] == "-" else value


def is_number(text: str) -> bool:
    """Tell whether strtoll reads the whole text, and not in base 8 where it looks like base 10."""
    match = _NUMBER.match(text)
    octal = match is not None and bool((match[3] or "").strip("0"))
    return match is not None and not text[match.end() :].strip() and not octal


def slowing_settings(settings: Mapping[str, str], *, nvlink: bool = True) -> tuple[tuple[str, str, str], ...]:
    """Name, value and effect of each setting that lowers bandwidth, or may. An empty value sets nothing.

    An effect that no figure shows of this value says so; `nvlink`: whether figures of NVLink count.
    """
    found = ((name, settings.get(name, ""), slow) for name, slow in SLOWING.items())
    return tuple(
        (name, value, slow.effect if is_shown(name, value, nvlink=nvlink) else f"{_NOT_SHOWN}: {slow.effect}")
        for name, value, slow in found
        if value and slow.slows(value)
    )


def is_shown(name: str, value: str, *, nvlink: bool = True) -> bool:
    """Return whether a measured figure, or the way NCCL works, shows that this value slows a run."""
    slow = SLOWING[name]
    return slow.shown(value) and (nvlink or not slow.of_nvlink)


def parse_nccl_conf(text: str) -> NcclConf:
    """The settings of an nccl.conf; of a name that stands twice the first value holds."""
    settings: dict[str, str] = {}
    unknown = []
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if line.startswith("#") or not line.strip():
            continue
        if equals and name.isidentifier():
            settings.setdefault(name, value)
        else:
            unknown.append(line)
    return NcclConf(settings, tuple(unknown))


def settings_of_environ(environ: bytes) -> dict[str, str]:
    """Return NCCL's settings in a /proc/PID/environ, the first of each name, and no more than NCCL's."""
    found: dict[str, str] = {}
    for entry in environ.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name.startswith(b"NCCL_") and len(found) < _MOST:
            found.setdefault(_text(name), _text(value))
    return found


def _text(raw: bytes) -> str:
    return raw[:_LONGEST].decode("utf-8", "replace")


def gdr_level(value: str) -> tuple[bool, Path | None]:
    """Tell whether a value of NCCL_NET_GDR_LEVEL is known, and the farthest path that it lets GPUDirect take.

    A path of None switches GPUDirect off: no NIC is nearer than PIX. NCCL's PHB takes in what nvidia-smi
    calls NODE; a number above the highest is the highest.
    """
    if value.isascii() and value.isdigit() and value not in _LEVELS:
        return True, Path.SYS
    return value in _LEVELS, _LEVELS.get(value)


def allows_hca(value: str, device: str, port: int) -> bool:
    """Whether a value of NCCL_IB_HCA lets NCCL use a port of an RDMA device (misc/socket.cc, matchIfList).

    The list has prefixes of names, or whole names after `=`; each has a port after `:`, or stands for all
    ports. After `^` it lists the ports to leave out.
    """
    excludes, rest = value.startswith("^"), value.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    entries = [entry.partition(":") for entry in rest.split(",") if entry.partition(":")[0]]
    named = any(
        (device == name if exact else device.startswith(name)) and (not colon or _atoi(number) in {-1, port})
        for name, colon, number in entries[:_MOST_HCAS]
    )
    return (named or not entries) != excludes


def _atoi(text: str) -> int:
    found = _PORT.match(text)
    return int(found[0][:_DIGITS]) if found else 0


def _on(value: str) -> bool:
    return number(value) != 0


def _under(least: int) -> Callable[[str], bool]:
    """Values of 0 and less leave NCCL's default."""
    return lambda value: 0 < number(value) < least


def _never(_value: str) -> bool:
    """Of a setting of which nothing was measured."""
    return False


def _more_channels(value: str) -> bool:
    return number(value) > _CHANNELS


def _short_reach(value: str) -> bool:
    """Tell whether a level of NCCL_P2P_LEVEL is nearer than the farthest; NCCL does not heed other text."""
    return value in _NEAR or (value[:1].isdigit() and number(value) < _FAR)


SLOWING: Mapping[str, Slowdown] = {
    "NCCL_P2P_DISABLE": Slowdown(
        lambda value: number(value) == 1,
        "GPUs do not reach each other: through host memory, measured 26 GB/s on 4 H200",
    ),
    "NCCL_P2P_LEVEL": Slowdown(
        _short_reach,
        "GPUs farther apart than this go through host memory; LOC: all do, measured 23 GB/s on 4 H200",
    ),
    "NCCL_P2P_DIRECT_DISABLE": Slowdown(_on, "GPUs of one process copy through buffers"),
    "NCCL_SHM_DISABLE": Slowdown(
        _on, "where GPUs do not reach each other: sockets, measured 4.4 GB/s on 4 H200"
    ),
    "NCCL_NVB_DISABLE": Slowdown(_on, "no NVLink by way of a third GPU"),
    ALGO: Slowdown(
        lambda value: lacks(ALGO, value, RING, NVLS),
        "not every algorithm: without NVLS 8 H100 reach 366 of 460 to 480 GB/s; 4 H200 by Tree alone 234",
        _LISTS,
        of_nvlink=True,
    ),
    PROTO: Slowdown(
        lambda value: lacks(PROTO, value, SIMPLE),
        "not the Simple protocol; on 4 H200 LL alone measured 150 GB/s, LL128 alone 312",
        _LISTS,
    ),
    NVLS_ENABLE: Slowdown(lambda value: number(value) == 0, "no NVLink SHARP: Ring instead"),
    "NCCL_NVLS_NCHANNELS": Slowdown(
        _under(16), "fewer channels for NVLS than it takes", _UNDOCUMENTED, _never
    ),
    "NCCL_MAX_NCHANNELS": Slowdown(_under(_CHANNELS), _FEW, shown=_under(_SLOW_CHANNELS), of_nvlink=True),
    "NCCL_MAX_NRINGS": Slowdown(_under(_CHANNELS), _FEW, shown=_under(_SLOW_CHANNELS), of_nvlink=True),
    "NCCL_MAX_CTAS": Slowdown(_under(_CHANNELS), _FEW, shown=_under(_SLOW_CHANNELS), of_nvlink=True),
    "NCCL_MIN_NCHANNELS": Slowdown(_more_channels, _MANY, shown=_never),
    "NCCL_MIN_CTAS": Slowdown(_more_channels, _MANY, shown=_never),
    "NCCL_CTA_POLICY": Slowdown(
        lambda value: value.upper() not in {"0", "DEFAULT"}, "fewer SMs rather than more speed", shown=_never
    ),
    "NCCL_NTHREADS": Slowdown(
        _under(512),
        "fewer threads a channel than the 512 of recent GPUs; 64 with 2 channels measured 20 GB/s on 4 H200",
        shown=_never,
    ),
    "NCCL_LL128_NTHREADS": Slowdown(
        _under(640), "fewer threads a channel for LL128 than its 640", _UNDOCUMENTED, _never
    ),
    "NCCL_BUFFSIZE": Slowdown(
        _under(4 << 20),
        "smaller buffers than 4 MiB: more and shorter steps; 64 KiB measured 131 GB/s on 4 H200",
        shown=_under(_MEASURED + 1),
        of_nvlink=True,
    ),
    "NCCL_TOPO_FILE": Slowdown(bool, "NCCL believes this file about the machine", shown=_never),
    "NCCL_GRAPH_FILE": Slowdown(bool, "rings and trees come from this file", _UNDOCUMENTED, _never),
    "NCCL_NET": Slowdown(
        lambda value: value.lower() == "socket", "sockets where GPUs do not reach each other"
    ),
    "NCCL_IB_DISABLE": Slowdown(_on, "no InfiniBand or RoCE: sockets between nodes"),
}
