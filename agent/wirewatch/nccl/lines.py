"""Single lines of NCCL's log: the messages that a text holds, and the fact that a message states.

A message is `host:pid:tid [device] NCCL INFO text`; a warning has its source line before `NCCL WARN`, and
since 2.26 a time before the host. NCCL cuts a message at 1023 characters. A message may begin in the middle
of a line of another program or rank, and that line then ends there. Launchers put their own text before it.

Sources: NCCL 2.10 to 2.30, src/debug.cc; for the forms of the messages the files that print them.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

Process = tuple[str, int]
"""Host and process id."""
NOWHERE: Process = ("", 0)
"""Where the text is torn before its host."""


class Message(NamedTuple):
    """One message: which process and thread wrote it, its level (INFO, WARN), and its text."""

    process: Process
    thread: int
    level: str
    text: str


class Init(NamedTuple):
    """A rank's communicator begins, or is `done`; `nvml` None before 2.18.3, `id` empty before 2.16.

    One split off another has its parent's pointer and says which split it was, and since 2.23 has no id.
    """

    pointer: str
    rank: int
    ranks: int
    cuda: int
    nvml: int | None
    bus: int
    id: str
    parent: str
    split: str
    done: bool


class Link(NamedTuple):
    """One channel from one rank to another, logged by one of the two: by the destination if `received`.

    A device is NVML's number, before 2.18.3 its bus id in hexadecimal. `lane` is channel and connection.
    """

    source: int
    source_device: str
    destination: int
    destination_device: str
    received: bool
    transport: str
    lane: tuple[int, int]


class ChannelCounts(NamedTuple):
    """How many channels of each use; NCCL logs those of CollNet since 2.20, of NVLS since 2.17."""

    coll: int
    collnet: int | None
    nvls: int | None
    p2p: int
    p2p_per_peer: int


class Took(NamedTuple):
    """Seconds that a rank took to set a communicator up; since 2.22."""

    seconds: float


class Spans(NamedTuple):
    """How many nodes a communicator spans; since 2.20."""

    pointer: str
    nodes: int


class Joined(NamedTuple):
    """A rank has set up its multicast buffers for NVLS."""

    pointer: str


class Chosen(NamedTuple):
    """Which algorithm and protocol run a collective: see `core.account.Call`."""

    op: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: tuple[int, int] | None


class Offered(NamedTuple):
    """Whether a device by CUDA's number has multicast; `channels` None where not logged."""

    device: int
    available: bool
    channels: int | None


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


Fact = Init | Link | ChannelCounts | Took | Spans | Joined | Chosen | Offered | Setting | Network | Fallen


class UnknownForm(NamedTuple):
    """A message of a known kind that is torn, or whose form is new."""

    text: str


Make = Callable[[re.Match[str]], Fact | None]
ALGORITHMS: Final = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS: Final = ("ll", "ll128", "simple")
"""As 2.20 to 2.23 number them, the last since 2.23 (src/include/nccl_common.h)."""
_OPS: Mapping[str, str] = {"AlltoAll": "alltoall", "SendRecv": "sendrecv"}


class MessageKind(NamedTuple):
    """A kind of message: how it begins, the form of the whole, and what makes a fact of it.

    One that begins so and has another form is torn, or of a version that is not known here.
    """

    begins: re.Pattern[str]
    form: re.Pattern[str]
    make: Make


_MARK = re.compile(
    r"(?P<time>\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?\] )?"
    r"(?:(?<![\w-])(?P<host>[\w-]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) "
    r"(?:\[-?\d{1,10}\] )?(?:[\d.]{1,30} )?(?:[^\s:]{1,200}:\d{1,6} )?)?"
    r"NCCL (?P<level>INFO|WARN|TRACE|CALL|ABORT)(?= |$)",
    re.ASCII | re.MULTILINE,
)
_LINE = re.compile(r"[^\r\n]*")
_N = r"(\d{1,18})"
_POINTER = r"(?P<pointer>0x[0-9a-f]{1,16})"
_END = r"(?!\S)"
"""What could go on in a torn line must end, or a part of it would pass for the whole."""
_RANK = r"(\d{1,9})\[(-?[0-9a-f]{1,16})\]"
_TRANSPORT = (
    r"P2P/(?:IPC|CUMEM|MNNVL|direct pointer|indirect/\d+\[[0-9a-f]+\])(?:/read)?(?:/CE)?"
    r"|SHM/(?:direct|CE)(?:/(?:direct|CE))?|direct shared memory"
    r"|NET/[^/]{1,64}/\d+(?:\(\d+\))?(?:/GDRDMA)?(?:\(PCI\))?(?:/Shared)?"
)
_COMM = rf"(?:\[Rank \d+\] )?(?:\w+ )?comm {_POINTER} rank (?P<rank>\d{{1,9}}) nranks (?P<ranks>\d{{1,9}})"


def messages(text: str) -> Iterator[Message]:
    """Every message whose beginning is in the text, in order."""
    marks = list(_MARK.finditer(text))
    hosts = _hosts(text, marks)
    starts = [_start(mark, host) for mark, host in zip(marks, hosts, strict=True)]
    for mark, host, end in zip(marks, hosts, [*starts, len(text)][1:], strict=True):
        line = _LINE.match(text, mark.end(), end)
        process = (host, int(mark["pid"])) if host else NOWHERE
        yield Message(process, int(mark["tid"] or 0), mark["level"], line[0].strip() if line else "")


def fact(text: str) -> Fact | UnknownForm | None:
    """The fact that a message states; None for the many kinds that are not read here."""
    for kind in KINDS:
        if kind.begins.match(text):
            match = kind.form.match(text)
            return kind.make(match) if match else UnknownForm(text)
    return None


def _start(mark: re.Match[str], host: str) -> int:
    return mark.end("host") - len(host) if host and not mark["time"] else mark.start()


def _hosts(text: str, marks: Sequence[re.Match[str]]) -> list[str]:
    """The host of each mark, empty where it is torn off, without another text right before it.

    In `-1node7` the host is `node7` if other lines of that process have that host.
    """
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mark in marks:
        if mark["host"]:
            seen[mark["pid"]][mark["host"]] += 1
    known: dict[tuple[str, str, bool], str] = {}
    hosts = []
    for mark in marks:
        at, host = mark.start("host"), mark["host"]
        key = (mark["pid"], host, at > 0 and text[at - 1] not in "\r\n")
        if host and key not in known:
            known[key] = _host(host, seen[mark["pid"]], behind=key[2])
        hosts.append(known[key] if host else "")
    return hosts


def _host(read: str, seen: Mapping[str, int], *, behind: bool) -> str:
    """The true host of one read from a mark: another host of the process that it ends with, if seen often.

    `behind` another text on its line that host must be seen as often, else more often.
    """
    least = seen[read] if behind else seen[read] + 1
    ends = [host for host in seen if host != read and read.endswith(host) and seen[host] >= least]
    return max(ends, key=lambda host: (seen[host], len(host)), default=read)


def _op(name: str | None) -> str:
    """The collective by nccl-tests' name."""
    name = name or ""
    return _OPS.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _maybe(text: str | None) -> int | None:
    return None if text is None else int(text)


def _init(m: re.Match[str]) -> Init | None:
    """None for a communicator that is destroyed or aborted."""
    if m["step"] != "Init":
        return None
    numbers = (int(m["rank"]), int(m["ranks"]), int(m["cuda"]), _maybe(m["nvml"]), int(m["bus"], 16))
    split = f"{m['count'] or 0}.{m['color']}" if m["parent"] else ""
    return Init(m["pointer"], *numbers, m["id"] or "", m["parent"] or "", split, m["state"] == "COMPLETE")


def _link(m: re.Match[str]) -> Link:
    lane = (int(m[1]), int(m[2] or 0))
    return Link(int(m[3]), m[4], int(m[5]), m[6], m[7] == "receive", m["transport"], lane)


def _counts(m: re.Match[str]) -> ChannelCounts:
    return ChannelCounts(int(m[1]), _maybe(m[2]), _maybe(m[3]), int(m[4]), int(m[5]))


def _chosen(m: re.Match[str]) -> Chosen:
    algorithm = m["algorithm"].lower() if m["algorithm"] else ALGORITHMS[int(m["algorithm_number"])]
    protocol = m["protocol"].lower() if m["protocol"] else PROTOCOLS[int(m["protocol_number"])]
    channels = (int(m["low"]), int(m["high"])) if m["low"] else None
    return Chosen(_op(m["op"]), int(m["size"]), algorithm, protocol, channels)


def _special(m: re.Match[str]) -> Chosen:
    return Chosen(_op(m[1]), int(m[3]), m[2].lower().replace(" ", "_"), m[4] or "", None)


def _offered(m: re.Match[str]) -> Offered:
    return Offered(int(m[2]), not m[1], _maybe(m[3]))


def _setting(m: re.Match[str]) -> Setting:
    """The setting, without the full stop that NCCL writes behind a number."""
    name, value = m["name"] or m["other"], m["value"]
    return Setting(name, value[:-1] if re.fullmatch(r"-?\d+\.", value, re.ASCII) else value)


def _plugin(m: re.Match[str]) -> Setting:
    return Setting(f"NCCL_{m[1] or 'NET'}_PLUGIN", m[2])


def _kind(begins: str, form: str, make: Make) -> MessageKind:
    return MessageKind(re.compile(begins, re.ASCII), re.compile(form, re.ASCII), make)


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
        _special,
    ),
    _kind(
        r"Channel \d+(?:/\d+)? : \d+\[",
        rf"Channel (\d{{1,9}})(?:/(\d{{1,9}}))? : {_RANK} -> {_RANK} (?:\[(send|receive)\] )?"
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
        _counts,
    ),
    _kind(
        r"Init timings",
        r"Init timings(?: - \w+)?: rank \d+ nranks \d+ total (\d{1,9}\.\d{1,9}) \(",
        lambda m: Took(float(m[1])),
    ),
    _kind(
        r"comm \S+ rank \d+ nRanks \d+ nNodes",
        rf"comm {_POINTER} rank \d+ nRanks \d+ nNodes (\d{{1,9}}) localRanks ",
        lambda m: Spans(m["pointer"], int(m[2])),
    ),
    _kind(r"NVLS comm ", rf"NVLS comm {_POINTER} (?:headR|r)ank \d+ ", lambda m: Joined(m["pointer"])),
    _kind(
        r"NVLS multicast support",
        rf"NVLS multicast support is (not )?available on dev {_N}(?: \(NVLS_NCHANNELS {_N}\))?{_END}",
        _offered,
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
        _plugin,
    ),
    _kind(r"Using network", r"Using network (\S.*)", lambda m: Network(m[1])),
    _kind(
        r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory",
        r"Failed to bind NVLink SHARP .*",
        lambda m: Fallen(m[0]),
    ),
)
