"""The RAS port: NCCL's health socket in every job, asked over short connections.

An answer makes all processes of a job talk, on all of its nodes: it is asked on suspicion alone (ADR 0051).
The client sends only `STATUS`, which changes no job. Any local user may listen here: an answer is bounded in
bytes, pieces and seconds, and names the user of its socket.

Processes of one user share the address, and the kernel gives a connection to any of them. It may be a stopped
process, which never answers, or a process of another job of that user. Hence several connections.
"""

import errno
import ipaddress
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wirewatch.core.jobs import RasListener, RasReport
from wirewatch.core.types import Absent, Why, whole
from wirewatch.hw.files import absent_errno
from wirewatch.jobs.ras.answer import LIMIT, parse_ras_json, parse_ras_text

PORT = 28028
ADDRESSES = (f"[::1]:{PORT}", f"127.0.0.1:{PORT}")
"""NCCL binds what `localhost` gives first, which is either."""
LEGS = 5
"""Seconds that RAS gives a process of the job to answer the others, its own default."""
_LINE = 256
"""Bytes of a line that answers a command."""
_PIECES = LIMIT // 512
"""Pieces in which an answer may come."""
_TABLE = 1 << 20
"""Bytes read of a table of sockets, in which listening sockets come first."""
_LISTEN = "0A"
_FIELDS, _LOCAL, _STATE, _UID, _INODE = 10, 1, 3, 7, 9
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RasLimits:
    """`connections` to one address; seconds for `greeting`, which live peers answer at once, and `status`.

    `ranks`: once the answers list so many, nobody else is asked.
    """

    connections: int = 8
    ranks: int = 10_000
    greeting: float = 0.5
    status: float = 12.0


class SocketRas:
    """RAS at these addresses, `HOST:PORT` with an IP address each; `proc` is where processes are listed."""

    def __init__(
        self, addresses: Sequence[Address] = (), limits: RasLimits | None = None, proc: str = "/proc"
    ) -> None:
        self._addresses = tuple(addresses) or tuple(split_address(text) for text in ADDRESSES)
        self._limits = limits or RasLimits()
        self._proc = proc

    def ask(self, deadline: float) -> Sequence[RasReport] | Absent:
        """One report a job that answers within `deadline` seconds; MISSING where nobody listens."""
        end = time.monotonic() + deadline
        listening = self.listeners()
        found: list[RasReport] = []
        refused: list[Absent] = []
        for address in self._addresses:
            # Also where the table lists nobody: not every kernel has one, and to be refused costs nothing.
            sockets = () if isinstance(listening, Absent) else reached(listening, address)
            self._ask_at(address, sockets, end, found, refused)
        if found:
            return tuple(found)
        where = ", ".join(_shown(address) for address in self._addresses)
        failed = next((one for one in refused if one.why is not Why.MISSING), None)
        return failed or Absent(Why.MISSING, f"nobody listens at {where}")

    def listeners(self, pid: int | None = None) -> Sequence[RasListener] | Absent:
        """Who listens at a port of RAS, in the network namespace of a process or in our own."""
        folder = f"{self._proc}/{'self' if pid is None else pid}/net"
        ports = {port for _, port in self._addresses}
        found: list[RasListener] = []
        for name in ("tcp", "tcp6"):
            table = _table(f"{folder}/{name}")
            if isinstance(table, Absent):
                if name == "tcp6" and table.why is Why.MISSING:
                    continue  # a kernel without IPv6
                return table
            found += parse_listeners(table, ports)
        return tuple(found)

    def _ask_at(
        self, address: Address, sockets: Sequence[RasListener], end: float, found: list[RasReport],
        refused: list[Absent],
    ) -> None:  # fmt: skip
        """Ask at one address until every process that listens there is of a job that has answered."""
        here: list[RasReport] = []
        silent = 0
        for _ in range(self._limits.connections):
            if time.monotonic() >= end or (sockets and _covered(here) >= len(sockets)):
                break
            if _ranks((*found, *here)) >= self._limits.ranks:
                break
            answer = self._status(address, end)
            if isinstance(answer, Absent):
                silent += answer.why is Why.TIMEOUT
                refused.append(answer)
                continue
            uid = sockets[0].uid if sockets else Absent(Why.MISSING, "not in the table of sockets")
            here = _with_report(here, replace(answer, uid=uid))
        for report in here:
            found[:] = _with_report(found, replace(report, silent=silent))

    def _status(self, address: Address, end: float) -> RasReport | Absent:
        """One connection and its report."""
        began = time.monotonic()
        try:
            with socket.socket(_family(address), socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
                talk = _Talk(connection, min(end, began + self._limits.greeting))
                connection.settimeout(talk.left())
                connection.connect(address)
                as_json = _greet(talk)
                if isinstance(as_json, Absent):
                    return as_json
                talk.end = min(end, time.monotonic() + self._limits.status)
                talk.send("STATUS" if as_json else "VERBOSE STATUS")
                data = talk.rest()
        except TimeoutError:
            return Absent(Why.TIMEOUT, f"RAS at {_shown(address)} did not answer")
        except OSError as error:
            return _absent(error, address)
        if isinstance(data, Absent):
            return data
        text = data.decode("utf-8", "replace")
        seconds = time.monotonic() - began
        return parse_ras_json(text, seconds) if as_json else parse_ras_text(text, seconds)


def _ranks(reports: Iterable[RasReport]) -> int:
    """Return how many ranks reports list, each as often as it is listed."""
    return sum(len(one.ranks) for report in reports for one in report.communicators)


class _Talk:
    """Lines and bytes of one connection until `end`, a monotonic second."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection, self.end = connection, end
        self._buffer = b""

    def left(self) -> float:
        """Seconds that are left.

        Raises:
            TimeoutError: none is.
        """
        now = time.monotonic()
        if now >= self.end:
            raise TimeoutError
        return self.end - now

    def send(self, line: str) -> None:
        self._connection.sendall(f"{line}\n".encode("ascii"))

    def line(self) -> str | Absent:
        """The next line; MALFORMED where it is too long, LOST where the connection ended."""
        while b"\n" not in self._buffer:
            if len(self._buffer) > _LINE:
                return Absent(Why.MALFORMED, "RAS: a line without an end")
            if not self._more():
                return Absent(Why.LOST, "RAS: the connection was closed")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("ascii", "replace").strip()

    def rest(self) -> bytes | Absent:
        """All bytes until the other side closes; MALFORMED where they are too many."""
        data = bytearray(self._buffer)
        for _ in range(_PIECES):
            self._connection.settimeout(self.left())
            part = self._connection.recv(1 << 16)
            if not part:
                return bytes(data)
            data += part
            if len(data) > LIMIT:
                break
        return Absent(Why.MALFORMED, f"RAS: more than {LIMIT} bytes, or in more than {_PIECES} pieces")

    def _more(self) -> bool:
        self._connection.settimeout(self.left())
        part = self._connection.recv(_LINE)
        self._buffer += part
        return bool(part)


def split_address(text: str) -> Address:
    """IP address and port of `ADDRESS:PORT` or `[V6]:PORT`.

    Raises:
        ValueError: the text is not of that form; names are not looked up.
    """
    host, _, port = text.rpartition(":")
    number = whole(port) or 0
    if not 0 < number <= 0xFFFF:  # noqa: PLR2004
        raise ValueError(f"not ADDRESS:PORT: {text!r}")
    return str(ipaddress.ip_address(host.strip("[]"))), number


def reached(listening: Sequence[RasListener], address: Address) -> Sequence[RasListener]:
    """Return the sockets that a connection to this address may reach: bound to it, else to every address."""
    exact = [one for one in listening if one.address == _shown(address)]
    wild = {_shown(("0.0.0.0", address[1])), _shown(("::", address[1]))}  # noqa: S104 - compared, not bound
    return exact or [one for one in listening if one.address in wild]


def parse_listeners(table: str, ports: set[int]) -> Sequence[RasListener]:
    """Return the sockets that listen at any of these ports, from a table such as /proc/net/tcp."""
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < _FIELDS or fields[_STATE] != _LISTEN:
            continue
        local, _, port = fields[_LOCAL].partition(":")
        try:
            number, uid, inode = int(port, 16), int(fields[_UID]), int(fields[_INODE])
            host = _host(local)
        except ValueError:
            continue
        if number in ports:
            found.append(RasListener(_shown((str(host), number)), uid, inode, not host.is_loopback))
    return found


def _greet(talk: _Talk) -> bool | Absent:
    """Whether it can answer in JSON, which the format command itself tells: before 2.28.7 it is unknown."""
    talk.send("CLIENT PROTOCOL 2")
    hello = talk.line()
    if isinstance(hello, Absent):
        return hello
    if not hello.upper().startswith("SERVER PROTOCOL "):
        return Absent(Why.MALFORMED, "RAS: what listens there is not RAS")
    for command in (f"TIMEOUT {LEGS}", "SET FORMAT json"):
        talk.send(command)
        answer = talk.line()
        if isinstance(answer, Absent):
            return answer
    return answer == "OK"


def _with_report(known: Sequence[RasReport], new: RasReport) -> list[RasReport]:
    """Return the reports with a new report, which replaces an older report of the same job."""
    key = _identity(new)
    return [*(one for one in known if not _identity(one) & key), new]


def _identity(report: RasReport) -> frozenset[object]:
    """Return the identity of a job: its communicators; for a text, which names few, its shape."""
    if any(one.listed for one in report.communicators):
        return frozenset((one.hash, one.secondary) for one in report.communicators)
    sizes = Counter[int]()
    for one in report.communicators:
        sizes[one.size] += one.alike
    return frozenset({(report.nccl, report.processes, frozenset(sizes.items()))})


def _covered(reports: Sequence[RasReport]) -> int:
    """Return how many processes of one node the jobs that answered have at least."""
    covered = 0
    for report in reports:
        ranks = {(rank.host, rank.pid) for one in report.communicators for rank in one.ranks}
        hosts = Counter(host for host, pid in ranks if pid != -1)
        covered += max(hosts.values(), default=0)
    return covered


def _table(path: str) -> str | Absent:
    """Return the listening part of a table of sockets; such a file gives a page at each read."""
    parts, length = [], 0
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - read piece by piece
            while length < _TABLE and (part := file.read(1 << 16)):
                parts.append(part)
                length += len(part)
    except OSError as error:
        return absent_errno(error.errno, path)
    return b"".join(parts).decode("ascii", "replace")


def _host(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address as the kernel prints it: words of 32 bits in the order of this machine's bytes."""
    data = bytes.fromhex(text)
    if sys.byteorder == "little":
        data = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
    return ipaddress.ip_address(data)


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_NOBODY = (
    errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH, errno.EHOSTUNREACH,
)  # fmt: skip
_WHY: Mapping[int | None, Why] = {
    **dict.fromkeys(_NOBODY, Why.MISSING), errno.EACCES: Why.DENIED, errno.EPERM: Why.DENIED,
}  # fmt: skip


def _absent(error: OSError, address: Address) -> Absent:
    """Return why a connection failed: LOST where it was cut."""
    why = _WHY.get(error.errno, Why.LOST)
    return Absent(why, f"RAS at {_shown(address)}: {error.strerror or error}", error.errno)
