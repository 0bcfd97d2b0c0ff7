"""Asking RAS over real sockets: who answers, who does not, two jobs behind one port, hostile listeners."""

import os
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.jobs.ras.reports import (
    HEALTHY,
    ROW,
    STOPPED,
    TEXT_HEALTHY,
    TEXT_SKIPPED,
    communicator,
    job,
    rank,
    report,
    text,
)
from tests.node.jobs.ras.server import (
    GREETED,
    RasServer,
    Turn,
    answering,
    by_turns,
    endless,
    once,
    sending,
    serving,
    silent,
)
from tests.patience import HANGS, patient
from tests.rows import each
from wirewatch.core.jobs import RasListener, RasReport
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.ras.client import RasLimits, SocketRas, parse_listeners, reached, split_address

LIMITS = RasLimits(connections=6, greeting=0.3, status=5.0)
HURRIED = RasLimits(connections=2, greeting=0.3, status=0.5)


def client(server: RasServer, limits: RasLimits = LIMITS, host: str = "127.0.0.1") -> SocketRas:
    return SocketRas([(host, server.port)], limits)


def ask(*turns: Turn, limits: RasLimits = LIMITS) -> tuple[Sequence[RasReport] | Absent, RasServer]:
    with serving(*turns) as server:
        return client(server, limits).ask(20.0), server


def test_a_healthy_job_answers_once_for_all_its_connections() -> None:
    found, server = ask(answering(HEALTHY))
    assert not isinstance(found, Absent)
    (report,) = found
    assert [each.pid for each in report.communicators[0].ranks] == [915, 916, 917, 918]
    assert (report.uid, report.silent) == (os.getuid(), 0)
    # One socket listens, and the job has as many processes and more: nobody else needs to be asked.
    assert server.heard == [["client protocol 2", "timeout 5", "set format json", "status"]]


def test_a_connection_that_lands_at_a_stopped_process_is_one_of_several() -> None:
    found, server = ask(silent, answering(STOPPED, after=0.2))
    assert not isinstance(found, Absent)
    (report,) = found
    assert (report.silent, report.repaired, report.communicators[0].lost) == (1, True, 1)
    assert report.seconds >= 0.2
    assert server.statuses == 1


def test_text_is_asked_for_where_json_is_not_known() -> None:
    found, server = ask(answering(TEXT_SKIPPED, json=False))
    assert not isinstance(found, Absent)
    assert found[0].nccl == "2.26.2"
    assert server.heard[0] == ["client protocol 2", "timeout 5", "set format json", "verbose status"]


def test_two_jobs_of_one_user_are_told_apart_by_their_communicators() -> None:
    one, other = job([11, 12], [7, 7], name=1), job([21, 22], [9, 9], name=2)
    with serving(*by_turns([one, one, other])) as server, _sharing(server, 3):
        found = client(server).ask(20.0)
    assert not isinstance(found, Absent)
    assert sorted(report.communicators[0].hash for report in found) == ["0x1", "0x2"]
    # Four sockets listen there, and both jobs together have four processes.
    assert server.statuses == 3


def test_a_later_answer_of_a_job_takes_the_place_of_an_earlier_one() -> None:
    early, late = job([11, 12], [7, 7]), job([11, 12], [8, 8])
    with serving(*by_turns([early, late])) as server, _sharing(server, 5):
        found = client(server).ask(20.0)
    assert not isinstance(found, Absent)
    assert [report.communicators[0].ranks[0].counts["all_reduce"] for report in found] == [8]


def _sharing(server: RasServer, more: int) -> "_Sharing":
    return _Sharing(server, more)


class _Sharing:
    """A table of sockets in which `more` others listen at the server's port, as processes of one user do."""

    def __init__(self, server: RasServer, more: int) -> None:
        self._server, self._more = server, more

    def __enter__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        one = RasListener(f"127.0.0.1:{self._server.port}", os.getuid(), 1, open=False)
        listening = (one,) * (1 + self._more)
        self._patch.setattr(SocketRas, "listeners", lambda _ras, _pid=None: listening)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


def test_a_port_without_a_listener_is_no_job_and_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    found = SocketRas([("127.0.0.1", port), ("::1", port)]).ask(5.0)
    assert found == Absent(Why.MISSING, f"nobody listens at 127.0.0.1:{port}, [::1]:{port}")


def test_a_job_that_does_not_answer_is_not_healthy() -> None:
    found, server = ask(silent, limits=HURRIED)
    assert isinstance(found, Absent)
    assert found.why is Why.TIMEOUT
    assert len(server.heard) == HURRIED.connections


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        (sending(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Why.MALFORMED),
        (sending(b"\xff" * 300), Why.MALFORMED),
        (sending(b""), Why.TIMEOUT),
        (sending(GREETED), Why.TIMEOUT),
        (sending(GREETED + b"{}"), Why.TIMEOUT),
        (answering("{}"), Why.MALFORMED),
        (answering(""), Why.MALFORMED),
        (answering("garbage", json=False), Why.MALFORMED),
        (answering(HEALTHY[:-200]), Why.MALFORMED),
        (endless(b"", b"x" * 65536), Why.MALFORMED),
        (endless(b"", b"x", pause=0.05), Why.TIMEOUT),
        (once(b"SERVER PROTOCOL 2\n"), Why.LOST),
        (once(b"SERVER PROTOCOL 2\nOK\n"), Why.LOST),
        (endless(GREETED, b" " * 65536), Why.MALFORMED),
        (endless(GREETED, b" ", pause=0.01), Why.TIMEOUT),
        (lambda client, _: client.close(), Why.LOST),
    ],
)
def test_whoever_else_listens_is_no_job_and_takes_little_time(turn: Turn, why: Why) -> None:
    began = time.monotonic()
    found, server = ask(turn, limits=HURRIED)
    assert isinstance(found, Absent)
    assert found.why is why
    # One that takes long leaves time for the others.
    assert len(server.heard) in {0, HURRIED.connections}
    assert time.monotonic() - began < HANGS


def test_an_answer_in_pieces_is_one_answer() -> None:
    found, _ = ask(answering(HEALTHY, pieces=700))
    assert not isinstance(found, Absent)
    assert found[0].processes == 4


def test_the_deadline_holds_whatever_connections_are_left() -> None:
    with serving(silent) as server:
        began = time.monotonic()
        found = client(server, RasLimits(connections=1000, greeting=0.2)).ask(0.6)
    assert isinstance(found, Absent)
    assert time.monotonic() - began < HANGS


def test_only_what_changes_no_job_is_said() -> None:
    _, server = ask(silent, answering(HEALTHY), answering(TEXT_SKIPPED, json=False))
    known = ("client protocol ", "timeout ", "set format ", "status", "verbose status")
    assert all(command.startswith(known) for commands in server.heard for command in commands)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_any_bytes_are_a_report_or_a_reason(parts: list[bytes]) -> None:
    """The sockets are real; each connection gets one of these and is closed."""

    def turn(data: bytes) -> Turn:
        return lambda client, _: client.sendall(data)

    with serving(*map(turn, parts)) as server:
        found = client(server, HURRIED).ask(2.0)
    assert isinstance(found, Absent)


def test_the_listener_is_found_with_its_owner_and_whether_others_can_reach_it() -> None:
    with serving(silent) as server, serving(silent, host="0.0.0.0") as wide:
        own = SocketRas([("127.0.0.1", server.port)]).listeners()
        there = SocketRas([("127.0.0.1", wide.port)]).listeners(os.getpid())
    assert not isinstance(own, Absent)
    assert not isinstance(there, Absent)
    (one,), (other,) = own, there
    assert (one.address, one.uid, one.open) == (f"127.0.0.1:{server.port}", os.getuid(), False)
    assert (other.address, other.open) == (f"0.0.0.0:{wide.port}", True)
    assert one.inode > 0


def test_a_process_that_is_gone_has_no_table() -> None:
    assert isinstance(SocketRas().listeners(1 << 30), Absent)


def test_a_kernel_without_ipv6_has_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "self" / "net"
    folder.mkdir(parents=True)
    (folder / "tcp").write_text(TABLE, "ascii")
    found = SocketRas(proc=str(tmp_path)).listeners()
    assert not isinstance(found, Absent)
    assert [one.address for one in found] == ["127.0.0.1:28028", "0.0.0.0:28028"]


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 41 1 0 100 0 0 10 0
   1: 00000000:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 42 1 0 100 0 0 10 0
   2: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 43 1 0 100 0 0 10 0
   3: 0100007F:6D7C 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 44 1 0 20 4 0 10 -1
   4: nonsense
   5: 01:6D7C 00000000:0000 0A 0:0 0:0 0 x 0 45
"""
TABLE6 = """\
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000001000000:6D7C 00000000000000000000000000000000:0000 0A 0:0 00:0 0 1000 0 51 1
   1: B80D0120000000000000000001000000:6D7C 00000000000000000000000000000000:0000 0A 0:0 00:0 0 1000 0 52 1
"""


def test_a_table_of_sockets_is_read_as_the_kernel_writes_it() -> None:
    found = [*parse_listeners(TABLE, {28028}), *parse_listeners(TABLE6, {28028})]
    assert found == [
        RasListener("127.0.0.1:28028", 1000, 41, open=False),
        RasListener("0.0.0.0:28028", 0, 42, open=True),
        RasListener("[::1]:28028", 1000, 51, open=False),
        RasListener("[2001:db8::1]:28028", 1000, 52, open=True),
    ]


@given(st.text())
def test_any_table_is_read(table: str) -> None:
    assert all(one.address.endswith(":28028") for one in parse_listeners("head\n" + table, {28028}))


@each(
    ("text", "address"),
    [
        ("127.0.0.1:28028", ("127.0.0.1", 28028)),
        ("[::1]:5", ("::1", 5)),
        ("localhost:28028", None),
        ("127.0.0.1", None),
        ("127.0.0.1:0", None),
        ("127.0.0.1:65535", ("127.0.0.1", 65535)),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:http", None),
        ("127.0.0.1:" + "9" * 5000, None),
        ("", None),
    ],
)
def test_addresses_are_ip_addresses_with_a_port(text: str, address: tuple[str, int] | None) -> None:
    if address is None:
        with pytest.raises(ValueError, match=r"ADDRESS:PORT|does not appear to be"):
            split_address(text)
    else:
        assert split_address(text) == address


@pytest.mark.parametrize(
    ("guard", "bad", "why"),
    [("IPv4", "tcp", Why.MISSING), ("IPv6", "tcp6", Why.MALFORMED)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_that_cannot_be_read_is_not_an_empty_one(
    tmp_path: Path, guard: str, bad: str, why: Why
) -> None:
    """A folder in place of the table of IPv6; no table of IPv4 at all."""
    folder = tmp_path / "self" / "net"
    folder.mkdir(parents=True)
    for name, table in (("tcp", TABLE), ("tcp6", TABLE6)):
        if name != bad:
            (folder / name).write_text(table, "ascii")
        elif why is not Why.MISSING:
            (folder / name).mkdir()
    found = SocketRas(proc=str(tmp_path)).listeners()
    assert isinstance(found, Absent), guard
    assert found.why is why


def listener(address: str) -> RasListener:
    return RasListener(address, 1000, 7, open=False)


@pytest.mark.parametrize(
    ("guard", "listening", "address", "found"),
    [
        ("its own", ["127.0.0.1:5", "0.0.0.0:5"], ("127.0.0.1", 5), ["127.0.0.1:5"]),
        ("every address", ["127.0.0.2:5", "0.0.0.0:5"], ("127.0.0.1", 5), ["0.0.0.0:5"]),
        ("every address of IPv6", ["[::]:5"], ("::1", 5), ["[::]:5"]),
        ("another port", ["127.0.0.1:6", "0.0.0.0:6"], ("127.0.0.1", 5), []),
        ("another address", ["127.0.0.2:5"], ("127.0.0.1", 5), []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_connection_reaches_who_is_bound_to_its_address_or_to_every_one(
    guard: str, listening: list[str], address: tuple[str, int], found: list[str]
) -> None:
    assert [one.address for one in reached(list(map(listener, listening)), address)] == found, guard


def test_a_job_that_no_table_lists_is_asked_too(tmp_path: Path) -> None:
    with serving(answering(HEALTHY)) as server:
        found = SocketRas([("127.0.0.1", server.port)], LIMITS, str(tmp_path)).ask(20.0)
    assert not isinstance(found, Absent)
    assert [isinstance(one.uid, Absent) for one in found] == [True]


def test_processes_of_another_node_are_not_counted_for_this_one() -> None:
    """Two processes here and one there; three sockets listen here, so that one is of another job."""
    ranks = [rank(0, 11, {}), rank(1, 12, {}), {**rank(2, 11, {}), "host": "192.0.2.9"}]
    wide, other = report(communicator(ranks, name=1)), job([21], [9], name=2)
    with serving(*by_turns([wide, other])) as server, _sharing(server, 2):
        found = client(server).ask(20.0)
    assert not isinstance(found, Absent)
    assert (len(found), server.statuses) == (2, 2)
    with serving(*by_turns([wide, other])) as server, _sharing(server, 1):
        client(server).ask(20.0)
    assert server.statuses == 1


def test_jobs_whose_text_names_no_communicator_are_told_apart_by_their_shape() -> None:
    wide = text(ROW.format("OK").replace(" 1  ", " 3  ", 1))
    limits = RasLimits(connections=4, greeting=LIMITS.greeting, status=LIMITS.status)
    for answers, jobs in (((TEXT_HEALTHY, TEXT_HEALTHY), 1), ((TEXT_HEALTHY, wide), 2)):
        with serving(*(answering(one, json=False) for one in answers)) as server, _sharing(server, 30):
            found = client(server, limits).ask(20.0)
        assert not isinstance(found, Absent)
        assert len(found) == jobs


@pytest.mark.parametrize(("ranks", "jobs"), [(5, 2), (4, 1)])
def test_once_answers_list_so_many_ranks_nobody_else_is_asked(ranks: int, jobs: int) -> None:
    """Else a few answers that are well-formed would take the memory of the process that reads them."""
    both = job([11, 12, 13, 14], [7] * 4), job([21, 22, 23, 24], [7] * 4, name=2)
    with serving(*by_turns(both)) as server, _sharing(server, 30):
        found = client(server, RasLimits(2, ranks, LIMITS.greeting, LIMITS.status)).ask(20.0)
    assert not isinstance(found, Absent)
    assert len(found) == jobs


def test_a_job_without_communicators_answers_once_however_often_it_is_asked() -> None:
    found, server = ask(answering(report()), limits=LIMITS)
    assert not isinstance(found, Absent)
    assert (len(found), server.statuses) == (1, LIMITS.connections)


def test_connections_that_the_deadline_left_no_time_for_are_not_called_silent() -> None:
    limits = RasLimits(connections=500, greeting=0.1)
    with serving(answering(HEALTHY), silent) as server, _sharing(server, 30):
        found = client(server, limits).ask(patient(0.5))
    assert not isinstance(found, Absent)
    assert found[0].silent < 50


def test_a_listener_that_takes_no_connection_takes_little_time() -> None:
    """Its queue is full, as that of a process that has been stopped for long."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.settimeout(0)
            one.connect_ex(full.getsockname())
        found = SocketRas([full.getsockname()], HURRIED).ask(5.0)
    assert isinstance(found, Absent)
    assert found.why is Why.TIMEOUT


def test_the_longest_answer_and_the_longest_line_are_read() -> None:
    answer = HEALTHY + " " * (4 * 2**20 - len(HEALTHY))
    greeted = b"SERVER PROTOCOL 2".ljust(256) + b"\nOK\nOK\n"
    for turn in (answering(answer), once(greeted + HEALTHY.encode())):
        found, _ = ask(turn)
        assert not isinstance(found, Absent)
        assert found[0].processes == 4


def test_of_a_long_table_the_first_mebibyte_is_read(tmp_path: Path) -> None:
    """Those that listen come first; a node may have a million connections."""
    folder = tmp_path / "self" / "net"
    folder.mkdir(parents=True)
    head, row = TABLE.splitlines()[:2]
    lines = [head, row, *(["x" * 99] * 12000), row]
    (folder / "tcp").write_text("\n".join(lines), "ascii")
    found = SocketRas(proc=str(tmp_path)).listeners()
    assert not isinstance(found, Absent)
    assert [one.inode for one in found] == [41]
