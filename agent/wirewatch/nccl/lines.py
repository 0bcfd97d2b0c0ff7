"""Facts that messages of NCCL's log state: a class for each form of text.

NCCL cuts a message at 1023 characters, and a launcher or another rank may tear it. A message that only begins
like a known form gives no fact. `nccl.messages` finds the messages in a text.

Sources: NCCL 2.10 to 2.30, the files that print them; connections as 2.4 and 2.5 print them too.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from wirewatch.core.account import Channels, Multicast
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import GB

NOT_LOGGED = Absent(Why.MISSING, "not in NCCL's log")
_NO_CHANNELS = Absent(Why.UNSUPPORTED, "this version of NCCL does not log it")
About = Literal["gpudirect", "network", "p2p", "driver", "collnet"]


class Init(NamedTuple):
    """A rank begins a communicator, or is `done`; `nvml` since 2.18.3, `id` since 2.16."""

    pointer: str
    rank: int
    ranks: int
    cuda: int
    nvml: int | Absent
    bus: int
    id: str
    parent: str
    split: str
    done: bool


class Link(NamedTuple):
    """One channel between ranks, logged at its end if `received`.

    Devices by NVML, before 2.18.3 by bus, empty where 2.4 prints none.
    """

    source: int
    source_device: str
    destination: int
    destination_device: str
    received: bool
    transport: str
    lane: tuple[int, int]


class Took(NamedTuple):
    """Seconds that a rank took to set a communicator up; since 2.22."""

    seconds: float


class Spans(NamedTuple):
    """How many nodes a communicator spans, by the line of a rank; since 2.20."""

    pointer: str
    rank: int
    ranks: int
    nodes: int


class RingOrder(NamedTuple):
    """Ranks in the order of a channel's ring: all of them if `closed`, else some that follow each other.

    `channels`: how many rings there are, absent where a rank names its own neighbours alone.
    """

    channel: int
    channels: int | Absent
    order: tuple[int, ...]
    closed: bool


class Joined(NamedTuple):
    """A rank has set up its multicast buffers for NVLS."""

    pointer: str


class Chosen(NamedTuple):
    """The algorithm and protocol that run a collective: see `core.account.Call`."""

    op: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: tuple[int, int] | None


class Called(NamedTuple):
    """One rank's call (subsystem COLL): elements as the program passed them, and the communicator."""

    op: str
    elements: int
    datatype: int
    pointer: str
    ranks: int


class NicRate(NamedTuple):
    """Bytes per second of a NIC, by the number or else the name that NCCL gives it."""

    number: int | Absent
    name: str
    rate: float


class Setting(NamedTuple):
    """A variable that NCCL took from the environment or from a plugin's configuration."""

    name: str
    value: str


class Network(NamedTuple):
    """The network that carries traffic between nodes: Socket, IB, a plugin's name."""

    name: str


class Fallen(NamedTuple):
    """NCCL went on without NVLS; 2.27 and 2.28 log this as INFO, not as a warning."""

    text: str


class GdrPath(NamedTuple):
    """Whether a GPU and a NIC use GPUDirect RDMA (until 2.29); distances as src/graph/topo.h numbers them."""

    gpu: str
    nic: str
    enabled: bool
    distance: int
    most: int


class Nic(NamedTuple):
    """Whether NCCL can register GPUs' memory with a NIC: by a kernel module, or by DMA-BUF."""

    network: str
    number: int
    name: str
    direct: bool


class SearchedPaths(NamedTuple):
    """The farthest kinds of path that a search for rings or trees took, inside the node and to the NICs."""

    intra: str
    inter: str


class Remark(NamedTuple):
    """A line that is quoted as it stands, and what it is about."""

    about: About
    text: str


Fact = (
    Init | Link | Channels | Took | Spans | Joined | RingOrder | Called | Chosen | Multicast | Setting
    | Network | Fallen | GdrPath | Nic | NicRate | SearchedPaths | Remark
)  # fmt: skip


class UnknownForm(NamedTuple):
    """A message of a known kind that is torn, or whose form is new."""

    text: str


Make = Callable[[re.Match[str]], Fact | None]
ALGORITHMS: Final = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS: Final = ("ll", "ll128", "simple")
"""As 2.20 to 2.23 number them, the last since 2.23 (src/include/nccl_common.h)."""
_OPS: Mapping[str, str] = {"AlltoAll": "alltoall", "SendRecv": "sendrecv"}


class MessageKind(NamedTuple):
    """How a kind begins, its whole form, and what makes a fact; another form is torn, or not known here."""

    begins: re.Pattern[str]
    form: re.Pattern[str]
    make: Make


_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)
_N = r"(\d{1,18})"
_POINTER = r"(?P<pointer>0x[0-9a-f]{1,16})"
_END = r"(?!\S)"
"""Text that could go on in a torn line must end, or a part of it would pass for the whole."""
_RANK = r"(\d{1,9})(?:\[(-?[0-9a-f]{1,16})\])?"
_TRANSPORT = (
    r"P2P/(?:IPC|CUMEM|MNNVL|direct pointer|indirect/\d+\[[0-9a-f]+\])(?:/read)?(?:/CE)?"
    r"|SHM/(?:direct|CE)(?:/(?:direct|CE))?|direct shared memory"
    r"|NET/[^/]{1,64}/\d+(?:\(\d+\))?(?:/GDRDMA)?(?:\(PCI\))?(?:/Shared)?"
)
_COMM = rf"(?:\[Rank \d+\] )?(?:\w+ )?comm {_POINTER} rank (?P<rank>\d{{1,9}}) nranks (?P<ranks>\d{{1,9}})"


@lru_cache(4096)
def fact(text: str) -> Fact | UnknownForm | None:
    """The fact that a message states; None for the many kinds that are not read here."""
    for kind in KINDS:
        if kind.begins.match(text):
            match = kind.form.match(text)
            return kind.make(match) if match else UnknownForm(text)
    return None


def _op(name: str | None) -> str:
    """The collective by nccl-tests' name."""
    name = name or ""
    return _OPS.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _logged(text: str | None) -> int | Absent:
    return NOT_LOGGED if text is None else int(text)


def _init(m: re.Match[str]) -> Init | None:
    """None for a communicator that is destroyed or aborted."""
    if m["step"] != "Init":
        return None
    numbers = (int(m["rank"]), int(m["ranks"]), int(m["cuda"]), _logged(m["nvml"]), int(m["bus"], 16))
    split, named = f"{m['count'] or 0}.{m['color']}" if m["parent"] else "", m.groupdict("")
    return Init(m["pointer"], *numbers, named["id"], named["parent"], split, m["state"] == "COMPLETE")


def _link(m: re.Match[str]) -> Link:
    lane = (int(m[1]), int(m[2] or 0))
    return Link(int(m[3]), m[4] or "", int(m[5]), m[6] or "", m[7] == "receive", m["transport"], lane)


def _ring(m: re.Match[str]) -> RingOrder:
    """Return the ring of all ranks; NCCL cuts a long ring, and the last number may then be torn."""
    cut = m[3].endswith("...")
    ranks = [int(rank) for rank in m[3].rstrip(".").split()]
    return RingOrder(int(m[1]), int(m[2]), tuple(ranks[:-1] if cut else ranks), closed=not cut)


def _chosen(m: re.Match[str]) -> Chosen:
    algorithm = m["algorithm"].lower() if m["algorithm"] else ALGORITHMS[int(m["algorithm_number"])]
    protocol = m["protocol"].lower() if m["protocol"] else PROTOCOLS[int(m["protocol_number"])]
    channels = (int(m["low"]), int(m["high"])) if m["low"] else None
    return Chosen(_op(m["op"]), int(m["size"]), algorithm, protocol, channels)


def _nic_rate(m: re.Match[str]) -> NicRate:
    """The speed that NCCL prints in Mb/s."""
    name = m["virtual"] or f"{m['device']}{m['port']}"
    return NicRate(_logged(m["number"]), name, int(m["speed"]) * 1e6 / 8)


def _setting(m: re.Match[str]) -> Setting:
    """The setting, without the full stop that NCCL writes behind a number."""
    name, value = m["name"] or m["other"], m["value"]
    return Setting(name, value[:-1] if re.fullmatch(r"-?\d+\.", value, re.ASCII) else value)


def version_numbers(version: str | Absent) -> tuple[int, int, int] | None:
    """A version as three numbers, None where it is not known."""
    match = _VERSION.match("" if isinstance(version, Absent) else version)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _kind(begins: str, form: str, make: Make) -> MessageKind:
    return MessageKind(re.compile(begins, re.ASCII), re.compile(form, re.ASCII), make)


def _remark(about: About, form: str) -> MessageKind:
    return _kind(form, rf"{form}.*", lambda m: Remark(about, m[0]))


def _gdr_path(m: re.Match[str]) -> GdrPath:
    gpu, nic = m["gpu"] or m["gpu_node"], m["nic"] or m["nic_node"]
    return GdrPath(gpu, nic, m["state"] == "En", int(m["distance"]), int(m["most"]))


KINDS: Final = (
    _kind(
        r"(?:\w+: )?\d+ Bytes ->",
        r"(?:(?P<op>\w+): )?(?P<size>\d{1,18}) Bytes -> "
        r"Algo (?:(?P<algorithm>[A-Z]\w*)|(?P<algorithm_number>[0-6])) "
        r"proto (?:(?P<protocol>[A-Z]\w*)|(?P<protocol_number>[0-2])) "
        r"(?:channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,9})\.\.(?P<high>\d{1,9})\}|time )",
        _chosen,
    ),
    _kind(
        r"\w+ \[[\w ]+\]: \d+ Bytes ->",
        rf"(\w+) \[([\w ]+)\]: {_N} Bytes -> (?:Kernel (\S+) nchannels |cudaMemcpy|RMA proxy \+ CE)",
        lambda m: Chosen(_op(m[1]), int(m[3]), m[2].lower().replace(" ", "_"), m[4] or "", None),
    ),
    _kind(
        r"Channel \d+/\d+ : +\d+(?: +\d+)+",
        r"Channel (\d{1,9})/(\d{1,9}) :((?: +\d{1,9}){2,1000}(?: ?\.{1,3})?)$",
        _ring,
    ),
    _kind(
        r"Ring \d+ : -?\d+ -> \d+ -> ",
        rf"Ring (\d{{1,9}}) : (\d{{1,9}}) -> (\d{{1,9}}) -> (\d{{1,9}}){_END}",
        lambda m: RingOrder(int(m[1]), NOT_LOGGED, (int(m[2]), int(m[3]), int(m[4])), closed=False),
    ),
    _kind(
        r"\w+: opCount [0-9a-f]+ sendbuff",
        r"(\w+): opCount [0-9a-f]{1,16} sendbuff \S+ recvbuff \S+ count (\d{1,18}) datatype (\d|1[01]) "
        rf"op \d+ root -?\d+ comm {_POINTER} \[nranks=(\d{{1,9}})\]",
        lambda m: Called(_op(m[1]), int(m[2]), int(m[3]), m["pointer"], int(m[5])),
    ),
    _kind(
        r"(?:Channel|Ring) \d+(?:/\d+)? : \d+(?:\[| ->)",
        rf"(?:Channel|Ring) (\d{{1,9}})(?:/(\d{{1,9}}))? : {_RANK} -> {_RANK} (?:\[(send|receive)\] )?"
        rf"via (?P<transport>{_TRANSPORT}){_END}",
        _link,
    ),
    _kind(
        r"(?:\[Rank \d+\] )?(?:\w+ )?comm \S+ rank \d+ nranks \d+ cudaDev",
        rf"{_COMM} cudaDev (?P<cuda>\d{{1,9}})(?: nvmlDev (?P<nvml>\d{{1,9}}))?"
        r" busId (?P<bus>[0-9a-f]{1,16})"
        r"(?: parent (?P<parent>\S+)(?: (?:splitCount|childCount) (?P<count>\d{1,9}))?"
        r" color (?P<color>-?\d{1,10}) key -?\d{1,10})?"
        r"(?: commId (?P<id>0x[0-9a-f]{1,16}))? ?- (?P<step>Init|Destroy|Abort) (?P<state>START|COMPLETE)",
        _init,
    ),
    _kind(
        r"\d+ coll channels",
        rf"{_N} coll channels,(?: {_N} collnet channels,)?(?: {_N} nvls channels,)? "
        rf"{_N} p2p channels, {_N} p2p channels per peer",
        lambda m: Channels(int(m[1]), _logged(m[2]), _logged(m[3]), int(m[4]), int(m[5])),
    ),
    _kind(
        r"Init timings",
        r"Init timings(?: - \w+)?: rank \d+ nranks \d+ total (\d{1,9}\.\d{1,9}) \(",
        lambda m: Took(float(m[1])),
    ),
    _kind(
        r"comm \S+ rank \d+ nRanks \d+ nNodes",
        rf"comm {_POINTER} rank (\d{{1,9}}) nRanks (\d{{1,9}}) nNodes (\d{{1,9}}) localRanks ",
        lambda m: Spans(m["pointer"], int(m[2]), int(m[3]), int(m[4])),
    ),
    _kind(r"NVLS comm ", rf"NVLS comm {_POINTER} (?:headR|r)ank \d+ ", lambda m: Joined(m["pointer"])),
    _kind(
        r"NVLS multicast support",
        rf"NVLS multicast support is (not )?available on dev {_N}(?: \(NVLS_NCHANNELS {_N}\))?{_END}",
        lambda m: Multicast(int(m[2]), not m[1], int(m[3]) if m[3] else _NO_CHANNELS),
    ),
    _kind(
        r"NCCL_\w+ set by |Comm config \w+ reset to ",
        r"(?:(?P<name>NCCL_\w+) set by environment to "
        r"|Comm config \w+ reset to (?:\S+ by )?(?P<other>NCCL_\w+)=)(?P<value>\S.*)",
        _setting,
    ),
    _kind(
        r"(?:\w+/Plugin: )?Plugin name set by env",
        r"(?:(\w+)/Plugin: )?Plugin name set by env to (\S.*)",
        lambda m: Setting(f"NCCL_{m[1] or 'NET'}_PLUGIN", m[2]),
    ),
    _kind(r"Using network", r"Using network (\S.*)", lambda m: Network(m[1])),
    _kind(
        r"GPU Direct RDMA (?:En|Dis)abled for GPU",
        r"GPU Direct RDMA (?P<state>En|Dis)abled for "
        r"(?:GPU (?P<gpu>[0-9a-f]{1,16}) / HCA (?P<nic>[0-9a-f]{1,16})"
        r"|(?P<gpu_node>GPU/\S{1,40} \(rank \d{1,9}\)) - (?P<nic_node>NET/\S{1,40})) "
        r"\((?: using PXN via GPU/\S{1,40} )?"
        r"distance (?P<distance>\d{1,9}) (?:<=|>) (?P<most>\d{1,9})(?:\)|, read \d)",
        _gdr_path,
    ),
    _kind(
        r"NET/[^/]{1,64} : GPU Direct RDMA",
        r"NET/([^/]{1,64}) : GPU Direct RDMA (En|Dis)abled for HCA (\d{1,9}) '([^']{1,255})'",
        lambda m: Nic(m[1], int(m[3]), m[4], m[2] == "En"),
    ),
    _kind(
        r"\+ NET\[[\d.]+\] - NET/",
        r"\+ NET\[[\d.]{1,30}\] - NET/(?:[0-9a-f]{1,16}-)?([0-9a-f]{1,16}) \((?:\S*/)?([\d.]{1,30})\)",
        lambda m: NicRate(int(m[1], 16), "", float(m[2]) * GB),
    ),
    _kind(
        r"NET/IB ?: (?:Made virtual device )?\[\d+\] \S+ .*speed=",
        r"NET/IB ?: (?:Made virtual device \[(?P<number>\d{1,9})\] name=(?P<virtual>\S{1,255})"
        r"|\[\d{1,9}\] (?P<device>[^\s:]{1,64}):[^\s:]{1,64}(?P<port>:\d{1,9})/\w+)"
        r"(?: provider=\S+)? speed=(?P<speed>\d{1,9}) ",
        _nic_rate,
    ),
    _kind(
        r"Pattern \d+, crossNic",
        r"Pattern \d{1,9}, crossNic \d{1,9}, nChannels \d{1,9}, (?:bw|speed) [\d.]{1,30}/[\d.]{1,30}, "
        r"type ([A-Z0-9]{3})/([A-Z0-9]{3}), sameChannels \d",
        lambda m: SearchedPaths(m[1], m[2]),
    ),
    _remark("gpudirect", r"Connected all rings, use ring PXN \d GDR \d"),
    _remark("gpudirect", r"DMA-BUF is available on GPU device \d+"),
    _remark("gpudirect", r"Failed to (?:get DMA-BUF handle|register memory with DMA-BUF)"),
    _remark("network", r"NET/[^/:]{1,64} ?: (?:Using |No device found)"),
    _remark("network", r"Failed to initialize NET plugin \S"),
    _remark("p2p", r"Could not enable P2P between dev \d|P2P is disabled between connected GPUs \d"),
    _remark("driver", r"cudaDriverVersion \d{4,6}(?!\S)"),
    _remark("collnet", r"CollNet \d+(?:/\d+)? : \d+ \[(?:send|receive)\] via COLLNET/[^/]{1,64}/\d+"),
    _kind(
        r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory",
        r"Failed to bind NVLink SHARP .*",
        lambda m: Fallen(m[0]),
    ),
)
