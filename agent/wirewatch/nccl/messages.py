"""The messages of NCCL's log in the lines of a text, in bounded memory.

A message is `host:pid:tid [device] NCCL INFO text`; a warning has its source line before `NCCL WARN`, and
since 2.26 a time before the host. A message may begin in the middle of a line of another program or rank,
and that line then ends there. Launchers put their own text before it. Since 2.32
there is a level ATTN beside WARN.

Source: NCCL 2.10 to 2.30, src/debug.cc.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

Process = tuple[str, int]
"""Host and process id."""
NOWHERE: Process = ("", 0)
"""Where the text is torn before its host."""
BLOCK = 1 << 20
"""How many characters are looked at together, so that a torn host is known by lines that follow."""
LONGEST = 1023
"""The most text that a message keeps: NCCL cuts it there, and text behind that is another program's."""
HOSTS = 20_000
"""How many processes are remembered with their hosts: enough for a job of 20,000 GPUs."""


class Message(NamedTuple):
    """One message: the number of its line from 1, which process and thread wrote it, its level, its text."""

    line: int
    process: Process
    thread: int
    level: str
    text: str


_MARK = re.compile(
    r"(?P<time>\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?\] )?"
    r"(?:(?<![\w-])(?P<host>[\w-]{1,255}+):(?P<pid>\d{1,10}+):(?P<tid>\d{1,10}+) "
    r"(?:\[-?\d{1,10}\] )?(?:[\d.]{1,30} )?(?:[^\s:]{1,200}:\d{1,6} )?)?"
    r"NCCL (?P<level>INFO|WARN|ATTN|TRACE|CALL|ABORT)(?= |$)",
    re.ASCII | re.MULTILINE,
)
_NCCL, _LEVEL = "NCCL ", len("NCCL ABORT ")
_LINE_END = re.compile(r"[\r\n]")


class Messages:
    """Finds messages, line after line; `lines` have been read, of which `foreign` have none of NCCL's."""

    def __init__(self) -> None:
        self.lines = 0
        self.foreign = 0
        self._hosts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._known = 0

    def of(self, lines: Iterable[str]) -> Iterator[Message]:
        """Every message whose beginning is in these lines, with or without their line ends, in order."""
        block: list[str] = []
        numbers: list[int] = []
        size = 0
        for line in lines:
            self.lines += 1
            block.append(line if line.endswith("\n") else f"{line}\n")
            numbers.append(self.lines)
            size += len(line)
            if size >= BLOCK:
                yield from self._block(block, numbers)
                block, numbers, size = [], [], 0
        yield from self._block(block, numbers)

    def _block(self, lines: Sequence[str], numbers: Sequence[int]) -> Iterator[Message]:
        text, ends = "".join(lines), list(accumulate(map(len, lines)))
        marks = list(_marks(text))
        hosts = self._of(text, marks)
        starts = [_start(mark, host) for mark, host in zip(marks, hosts, strict=True)]
        places = [bisect_right(ends, mark.start()) for mark in marks]
        self.foreign += len(lines) - len(set(places))
        stops = [*starts, len(text)][1:]
        for mark, host, place, stop in zip(marks, hosts, places, stops, strict=True):
            said = _LINE_END.split(text[mark.end() : stop], 1)[0][:LONGEST].strip()
            process = (host, int(mark["pid"])) if host else NOWHERE
            yield Message(numbers[place], process, int(mark["tid"] or 0), mark["level"], said)

    def _of(self, text: str, marks: Sequence[re.Match[str]]) -> list[str]:
        """The host of each mark, empty where it is torn off, without another text right before it.

        In `-1node7` the host is `node7` if other lines of that process have that host.
        """
        for mark in marks:
            self._see(mark)

        @cache
        def whole(pid: str, host: str, before: str) -> str:
            return _host(host, self._hosts.get(pid, {}), behind=before not in "\r\n")

        # Before the first character of a block stands its last, a line end.
        return [
            whole(mark["pid"], mark["host"], text[mark.start("host") - 1]) if mark["host"] else ""
            for mark in marks
        ]

    def _see(self, mark: re.Match[str]) -> None:
        if not mark["host"]:
            return
        if mark["host"] not in self._hosts.get(mark["pid"], ()):
            if self._known >= HOSTS:
                return
            self._known += 1
        self._hosts[mark["pid"]][mark["host"]] += 1


def _marks(text: str) -> Iterator[re.Match[str]]:
    """All marks, without a search of what stands behind them, which is most of a log."""
    at = line = 0
    while (found := text.find(_NCCL, at)) >= 0:
        line = max(text.rfind("\n", line, found) + 1, line)
        mark = _MARK.search(text, line, found + _LEVEL)
        at = found + len(_NCCL)
        if mark:
            line = at = mark.end()
            yield mark


def _start(mark: re.Match[str], host: str) -> int:
    return mark.end("host") - len(host) if host and not mark["time"] else mark.start()


def _host(read: str, seen: Mapping[str, int], *, behind: bool) -> str:
    """Return the host that a mark ends with, if it was seen as often (`behind` other text) or more often."""
    times = seen.get(read, 0)
    least = times if behind else times + 1
    ends = [host for host in seen if host != read and read.endswith(host) and seen[host] >= least]
    return max(ends, key=lambda host: (seen[host], len(host)), default=read)
