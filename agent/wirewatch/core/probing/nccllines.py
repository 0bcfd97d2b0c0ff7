"""What each line of NCCL's log says, version by version.

Source: NCCL, every minor version from 2.10 to 2.30: src/init.cc, enqueue.cc, collectives.cc, ce_coll.cc,
scheduler/symmetric_sched.cc, graph/paths.cc, graph/topo.cc, misc/param.cc, plugin/*.cc, transport/*.cc.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from wirewatch.core.probing.ncclfacts import (
    Chosen,
    Counts,
    Fact,
    Fallen,
    Init,
    Joined,
    Link,
    Network,
    NotUnderstood,
    Offered,
    Setting,
    Spans,
    Took,
)

Make = Callable[[re.Match[str]], Fact | None]

ALGORITHMS: Final = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS: Final = ("ll", "ll128", "simple")
"""As 2.20 to 2.23 number them, the last since 2.23 (src/include/nccl_common.h)."""
_OPS: Mapping[str, str] = {"AlltoAll": "alltoall", "SendRecv": "sendrecv"}


def _op(name: str | None) -> str:
    """The name that nccl-tests gives it."""
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


def _counts(m: re.Match[str]) -> Counts:
    return Counts(int(m[1]), _maybe(m[2]), _maybe(m[3]), int(m[4]), int(m[5]))


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
    """A value that is a number has the full stop of NCCL's sentence behind it."""
    name, value = m["name"] or m["other"], m["value"]
    return Setting(name, value[:-1] if re.fullmatch(r"-?\d+\.", value, re.ASCII) else value)


def _plugin(m: re.Match[str]) -> Setting:
    return Setting(f"NCCL_{m[1] or 'NET'}_PLUGIN", m[2])


class Kind(NamedTuple):
    """Messages that begin so are of this form; one that is not is torn, or of a version not known here."""

    begins: re.Pattern[str]
    form: re.Pattern[str]
    make: Make


def _kind(begins: str, form: str, make: Make) -> Kind:
    return Kind(re.compile(begins, re.ASCII), re.compile(form, re.ASCII), make)


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


def fact(text: str) -> Fact | NotUnderstood | None:
    """What the text of a message says; None for the many that are of no kind read here."""
    for kind in KINDS:
        if kind.begins.match(text):
            match = kind.form.match(text)
            return kind.make(match) if match else NotUnderstood(text)
    return None
