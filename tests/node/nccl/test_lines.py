"""Lines of NCCL's that are torn, joined, cut, out of order, or among others."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.nccl.texts import ALL, V2_28, say
from tests.rows import each
from wirewatch.core.account import Account, Call
from wirewatch.nccl import messages as nccl_messages
from wirewatch.nccl.log import algorithms, fallbacks, parse_nccl_log
from wirewatch.nccl.messages import Message, Messages

LINES = [line for text in ALL for line in text.splitlines(keepends=True)]
AGREED = "AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}"
LINK = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"


def messages(log: str) -> list[Message]:
    return list(Messages().of(io.StringIO(log)))


def texts(log: str) -> list[str]:
    return [message.text for message in messages(log)]


@each(
    "before",
    [
        "   536870912     134217728     float     sum      -1",
        "  1710.60  313.85  313.85       0",
        "[1,0]<stdout>:",
        "0: ",
        "[default0]:",
        "2026-03-04T05:06:07.123456789Z stdout F ",
        "worker-0: ",
        "[2026-03-04 05:06:07] ",
        "[2026-03-04 05:06:07.123] ",
    ],
)
def test_a_message_behind_another_text_is_whole_and_of_its_process(before: str) -> None:
    log = before + say(AGREED) + say(LINK)
    assert [(m.process, m.thread, m.text) for m in messages(log)] == [
        (("node7", 4711), 4800, text) for text in (AGREED, LINK)
    ]


@pytest.mark.parametrize(
    "first", [LINK, "Using network Socket", "NCCL_ALGO set by environment to RING", AGREED]
)
@pytest.mark.parametrize("host", ["node7", "38dcf168f605", "gpu-node_7", "7"])
def test_two_lines_without_a_line_end_between_them_are_two(first: str, host: str) -> None:
    log = say(first, host=host).rstrip("\n") + say(LINK, 1, host=host)
    assert texts(log) == [first, LINK]


@pytest.mark.parametrize("time", ["[2026-03-04 05:06:07] ", "[2026-03-04 05:06:07.123456] "])
def test_a_warning_and_its_time_end_the_line_before(time: str) -> None:
    warning = f"{time}node7:4711:4800 [0] init.cc:88 NCCL WARN no"
    assert texts(say(LINK).rstrip("\n") + warning) == [LINK, "no"]


def test_the_host_is_the_one_seen_most_and_not_a_piece_of_it() -> None:
    log = say(LINK)[3:] + say(AGREED) * 3 + "  float sum -1" + say(LINK)
    assert [m.process[0] for m in messages(log)] == ["e7", *["node7"] * 4]


def test_hosts_whose_names_end_alike_are_told_apart() -> None:
    log = say(LINK, host="gpu-node7") * 3 + say(LINK, host="node7") * 3
    assert [m.process[0] for m in messages(log)] == ["gpu-node7"] * 3 + ["node7"] * 3


def test_a_message_without_its_beginning_is_reported() -> None:
    whole = say(LINK)
    for cut in range(whole.index("NCCL") + 1):
        assert texts(whole[cut:]) == [LINK]


def test_a_message_without_its_beginning_leaves_the_one_before_it_whole() -> None:
    assert texts(say(AGREED) + f"NCCL INFO {LINK}\n") == [AGREED, LINK]


def test_a_message_is_kept_as_far_as_nccl_writes_it() -> None:
    """1023 characters with the blank before them."""
    assert texts(say("x" * 2000)) == ["x" * 1022]


def test_lines_without_their_ends_are_not_joined() -> None:
    lines = [say(LINK).strip(), "a line of the program", say(AGREED).strip()]
    assert [message.text for message in Messages().of(lines)] == [LINK, AGREED]


@pytest.mark.parametrize(("block", "first"), [(1, "-1node7"), (1 << 20, "node7")])
def test_so_many_characters_are_looked_at_together(
    block: int, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines that follow tell where a host begins, if they are in the same block."""
    monkeypatch.setattr(nccl_messages, "BLOCK", block)
    assert [m.process[0] for m in messages(f"-1{say(LINK)}{say(LINK) * 2}")] == [first, "node7", "node7"]


def test_what_is_remembered_of_hosts_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line without a host takes no place; beyond the limit a host has what stands before it."""
    assert (nccl_messages.BLOCK, nccl_messages.HOSTS) == (1 << 20, 20_000)
    monkeypatch.setattr(nccl_messages, "HOSTS", 2)
    several = [("node7", 1), ("node8", 2), ("node9", 3)]
    log = f"NCCL INFO {LINK}\n" + "".join(say(LINK, host=host, pid=pid) for host, pid in several)
    torn = "".join(f"-1{say(LINK, host=host, pid=pid)}" for host, pid in several)
    assert [m.process[0] for m in messages(log + torn)][4:] == ["node7", "node8", "-1node9"]


def test_traces_and_calls_end_a_line_and_say_nothing() -> None:
    trace = "node7:4711:4800 [0] 12.345678 topoGetAlgoInfo:1615 NCCL TRACE 8 Bytes -> Algo 1 proto 0 time 1.0"
    call = "node7:4711:4800 NCCL CALL ncclCommInitRank(0x5,2,0x1,0,0)"
    log = say(LINK).rstrip("\n") + trace + call + "\n" + say(AGREED)
    assert [m.level for m in messages(log)] == ["INFO", "TRACE", "CALL", "INFO"]
    assert parse_nccl_log(log).calls == (Call("all_reduce", 4096, "ring", "ll", (0, 3), 1),)


def test_windows_line_ends_and_none_at_the_end() -> None:
    assert texts(say(AGREED).replace("\n", "\r\n") + say(LINK).rstrip()) == [AGREED, LINK]


def total(account: Account) -> tuple[int, set[tuple[int, int, str]], set[tuple[str, str]]]:
    """How many calls, which connections, which settings."""
    calls = sum(call.count for call in account.calls)
    found = {(c.source, c.destination, c.transport) for comm in account.comms for c in comm.connections}
    return calls, found, set(account.settings)


WHOLE = total(parse_nccl_log("".join(LINES)))


@given(st.permutations(LINES))
def test_lines_in_any_order_are_all_found(lines: list[str]) -> None:
    told = parse_nccl_log("".join(lines))
    assert told.not_understood == 0
    assert total(told) == WHOLE


@given(st.lists(st.booleans(), min_size=len(LINES), max_size=len(LINES)))
def test_lines_joined_anywhere_are_all_found(joined: list[bool]) -> None:
    """But before the line of another program, which has no beginning to be told by."""
    ends = [
        "" if join and following.startswith("node7") else "\n"
        for join, following in zip(joined, [*LINES[1:], ""], strict=True)
    ]
    told = parse_nccl_log("".join(line.rstrip("\n") + end for line, end in zip(LINES, ends, strict=True)))
    assert told.not_understood == 0
    assert total(told) == WHOLE


_NOISE = st.text(max_size=40) | st.sampled_from(
    [
        "  1710.60  313.85  313.85       0\n",
        "   8   2   float   sum   -1",
        "# Avg\n",
        "0: ",
        "NCCL INFO ",
        "[0] ",
    ]
)


@given(st.data())
def test_lines_left_whole_are_found_among_pieces_of_any(data: st.DataObject) -> None:
    marked = [
        say(f"AllReduce: {size} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..3}}") for size in range(6)
    ]
    log = ""
    for line in marked:
        piece = data.draw(st.sampled_from(LINES))
        end = data.draw(st.integers(0, len(piece)))
        log += (
            piece[:end]
            + "\n"
            + data.draw(_NOISE).rstrip("\r")
            + "\n"
            + line
            + piece[end:].rstrip("\n")
            + "\n"
        )
    told = algorithms(parse_nccl_log(log))
    assert {("all_reduce", size) for size in range(6)} <= told.keys()


@given(
    st.lists(
        st.sampled_from(LINES).flatmap(lambda s: st.integers(0, len(s)).map(lambda n: s[:n])), max_size=30
    )
)
def test_lines_cut_anywhere_give_no_wire_that_none_of_them_gave(lines: list[str]) -> None:
    """But that of a network that reaches the GPU's memory a cut may leave all but that."""
    told, whole = (
        {(f.source_rank, f.destination_rank, f.wire) for f in fallbacks(parse_nccl_log(log))}
        for log in ("\n".join(lines), "".join(LINES))
    )
    assert told <= whole | {(1, 0, "net_ib")}


@given(
    st.text()
    | st.lists(st.sampled_from([*LINES, *re.findall(r"\S+\s", V2_28)]) | st.text(max_size=9)).map("".join)
)
def test_any_text_is_some_account(text: str) -> None:
    told = parse_nccl_log(text)
    assert told.not_understood <= text.count("NCCL INFO")
    assert all(call.count > 0 for call in told.calls)
    assert all(c.channels > 0 for comm in told.comms for c in comm.connections)
    assert len(set(told.warnings)) == len(told.warnings)
    assert algorithms(told).keys() == {(call.op, call.size_bytes) for call in told.calls}
    assert all(f.wire not in {"p2p", "nvls", "unknown"} for f in fallbacks(told))


@pytest.mark.parametrize(
    "text",
    [
        "x" * 300_000,
        "1:" * 150_000,
        "1:1:1 " * 50_000,
        "[2026-03-04 05:06:07] " * 20_000,
        "NCCL INFO " * 30_000,
        say("9" * 200_000 + " Bytes -> Algo 1 proto 1 time 1"),
        say("Channel " + "9" * 200_000 + " : 0[0] -> 1[1] via P2P/IPC"),
        say("x" * 200_000 + ": 8 Bytes ->"),
        "".join(say(LINK, host=f"n{n}") for n in range(2000)),
    ],
    ids=lambda text: text[:12],
)
def test_long_texts_end(text: str) -> None:
    """Numbers with more digits than Python reads among them."""
    assert parse_nccl_log(text).calls == ()
