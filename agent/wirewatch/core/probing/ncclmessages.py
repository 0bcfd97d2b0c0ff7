"""The messages in NCCL's log, out of whatever stands around them.

A message is `host:pid:tid [device] NCCL INFO text`; a warning has its source line before `NCCL WARN`, and
since 2.26 a time before the host. NCCL cuts one at 1023 characters. It may begin behind a piece of another
program's line or of another rank's; that one ends where it begins. Launchers put their own text before it.

Source: NCCL 2.10 to 2.30, src/debug.cc.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

Process = tuple[str, int]
"""Host and process id."""
NOWHERE: Process = ("", 0)
"""Where the text is torn before its host."""


class Message(NamedTuple):
    process: Process
    thread: int
    level: str
    text: str


_MARK = re.compile(
    r"(?P<time>\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?\] )?"
    r"(?:(?<![\w-])(?P<host>[\w-]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) "
    r"(?:\[-?\d{1,10}\] )?(?:[\d.]{1,30} )?(?:[^\s:]{1,200}:\d{1,6} )?)?"
    r"NCCL (?P<level>INFO|WARN|TRACE|CALL|ABORT)(?= |$)",
    re.ASCII | re.MULTILINE,
)
_LINE = re.compile(r"[^\r\n]*")


def messages(text: str) -> Iterator[Message]:
    """Every message whose beginning the log holds, in order."""
    marks = list(_MARK.finditer(text))
    hosts = _hosts(text, marks)
    starts = [_start(mark, host) for mark, host in zip(marks, hosts, strict=True)]
    for mark, host, end in zip(marks, hosts, [*starts, len(text)][1:], strict=True):
        line = _LINE.match(text, mark.end(), end)
        process = (host, int(mark["pid"])) if host else NOWHERE
        yield Message(process, int(mark["tid"] or 0), mark["level"], line[0].strip() if line else "")


def _start(mark: re.Match[str], host: str) -> int:
    return mark.end("host") - len(host) if host and not mark["time"] else mark.start()


def _hosts(text: str, marks: Sequence[re.Match[str]]) -> list[str]:
    """The host of each mark, empty where it is torn off, without what another text left right before it.

    Of `-1node7` that is `node7` where that process is called so elsewhere.
    """
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mark in marks:
        if mark["host"]:
            seen[mark["pid"]][mark["host"]] += 1
    known: dict[tuple[str, str, bool], str] = {}
    hosts = []
    for mark in marks:
        at, told = mark.start("host"), mark["host"]
        key = (mark["pid"], told, at > 0 and text[at - 1] not in "\r\n")
        if told and key not in known:
            known[key] = _host(told, seen[mark["pid"]], behind=key[2])
        hosts.append(known[key] if told else "")
    return hosts


def _host(told: str, seen: Mapping[str, int], *, behind: bool) -> str:
    """`behind` another text on its line, the true host need only be seen as often, else more often."""
    least = seen[told] if behind else seen[told] + 1
    ends = [host for host in seen if host != told and told.endswith(host) and seen[host] >= least]
    return max(ends, key=lambda host: (seen[host], len(host)), default=told)
