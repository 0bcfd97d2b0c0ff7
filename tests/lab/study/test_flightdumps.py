"""Dumps of the flight recorder as they are read: real ones of gloo, drawn ones of NCCL, and hostile ones."""

import json
import pickle
import pickletools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.lab.study.flights import AT, REAL, FlightJob, Made, waits, world
from tests.rows import each
from wirewatch_lab.study import flightdumps
from wirewatch_lab.study.flightdumps import (
    LARGEST,
    MOST,
    DumpError,
    RankDump,
    looks_like_dump,
    named,
    plain,
    read_dump,
)

PICKLES = sorted(REAL.glob("*/comm_lib_trace_rank_*"))
GOOD = world().dump(0)


def read(data: bytes) -> RankDump:
    return read_dump(data, 0, "", "f")


def read_or_refused(data: bytes) -> None:
    """A dump, or the one error, in one line."""
    said = "a dump"
    try:
        read(data)
    except DumpError as error:
        said = str(error)
    assert len(said.splitlines()) == 1


@each("path", PICKLES)
def test_a_real_dump_is_read_as_pickle_reads_it(path: Path) -> None:
    data = path.read_bytes()
    assert looks_like_dump(data)
    assert plain(data) == pickle.loads(data)  # noqa: S301 - of this repository
    dump = read(data)
    assert (dump.format, dump.lost, dump.gaps) == ("2.10", False, False)
    assert dump.calls[0].shape == (
        "all_reduce", (1024,), (1024,), ("Float",), ("Float",)
    )  # fmt: skip
    assert dump.calls[0].where == "/srv/job/train.py:14"
    assert (dump.calls[0].state, dump.calls[0].done, dump.calls[0].late) == ("completed", True, False)


@each("rank", range(4))
def test_json_of_the_same_job_says_the_same(rank: int) -> None:
    """All but the lines of the job: JSON has no stacks."""
    data = (REAL / "missing-json" / f"json_rank_{rank}.json").read_bytes()
    assert looks_like_dump(data)
    other = read((REAL / "missing" / f"comm_lib_trace_rank_{rank}").read_bytes())
    told = read(data)
    assert [(c.group, c.seq, c.shape, c.done, c.created) for c in told.calls] == [
        (c.group, c.seq, c.shape, c.done, c.created) for c in other.calls
    ]
    assert told.groups == other.groups


@each("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_any_protocol_of_pickle_is_read(protocol: int) -> None:
    job = waits(world(ranks=300, done=40), range(300), seq=41)
    data = pickle.dumps(job.dump(299), protocol)
    assert plain(data) == job.dump(299)
    dump = read(data)
    assert dump.groups == {"0": ("default_pg", tuple(range(300)))}
    assert [call.seq for call in dump.calls] == list(range(1, 42))
    assert (dump.calls[-1].created, dump.library) == (AT + 10.0, "2.28.9")


class Evil:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return __import__("os").system, ("touch /tmp/never",)


def hashed_for_ever() -> bytes:
    """A key of tuples in tuples: 2**60 steps to hash."""
    pairs = b"".join(b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(60))
    return b"\x80\x02}K\x01" + pairs + b"Ns."


HOSTILE = {
    "a class": (pickle.dumps(Evil(), 2), "plain containers: GLOBAL"),
    "a class of protocol 4": (pickle.dumps(Evil(), 4), "plain containers: STACK_GLOBAL"),
    "a set": (pickle.dumps({1, 2}, 4), "plain containers: EMPTY_SET"),
    "bytes of 8 EB": (b"\x80\x04\x8e" + b"\xff" * 8 + b".", "it stops in the middle"),
    "a text of 4 GB": (b"\x80\x02X\xff\xff\xff\xff.", "it stops in the middle"),
    "a memo of 4 billion": (b"\x80\x02]r\xff\xff\xff\xff.", "it has no version"),
    "a key to hash": (hashed_for_ever(), "plain containers"),
    "a list as a key": (b"\x80\x02}]Ns.", "plain containers"),
    "appended to a text": (b"\x80\x02X\x01\x00\x00\x00aK\x01a.", "plain containers"),
    "an odd dict": (b"\x80\x02}(X\x01\x00\x00\x00au.", "it stops in the middle"),
    "several values": (b"\x80\x02NN.", "does not build one value"),
    "a mark": (b"\x80\x02N(N.", "does not build one value"),
    "nothing": (b"\x80\x02.", "does not build one value"),
    "no end": (b"\x80\x02N", "it stops in the middle"),
    "no such memo": (b"\x80\x02h\x07.", "it stops in the middle"),
    "a list in itself": (b"\x80\x02]q\x00h\x00a.", "it has no version"),
    "large": (b"\x80\x02" + b" " * LARGEST, "more than 33554432 bytes"),
    "empty": (b"", "it stops in the middle"),
    "JSON without an end": (b'{"version": "2.10", "pg_config": {', "no whole JSON document"),
    "JSON too deep": (b'{"version":' + b"[" * 100_000, "no whole JSON document"),
    "JSON of something else": (b'{"record_id": 1}', "it has no version"),
    "JSON that is no text": (b'{"a": "\xff"}', "it is not text in UTF-8"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_with_one_line_and_soon(name: str) -> None:
    refused_soon(*HOSTILE[name])


def test_endless_operations_end_with_one_line_and_soon() -> None:
    refused_soon(b"\x80\x02" + b"]" * (MOST + 1) + b".", "more than 5000000 operations")


def refused_soon(data: bytes, why: str) -> None:
    began = time.process_time()
    with pytest.raises(DumpError) as told:
        read(data)
    assert why in str(told.value)
    assert len(str(told.value).splitlines()) == 1
    assert time.process_time() - began < 30
    assert not Path("/tmp/never").exists()


@each(
    ("change", "why"),
    [
        ({"entries": [{**GOOD["entries"][0], "input_sizes": [[-1]]}]}, "sizes of a tensor"),
        ({"entries": [{**GOOD["entries"][0], "input_sizes": [[1 << 63]]}]}, "sizes of a tensor"),
        ({"entries": [{**GOOD["entries"][0], "input_sizes": [[True]]}]}, "sizes of a tensor"),
        ({"entries": [{**GOOD["entries"][0], "input_sizes": [[1] * 65]}]}, "sizes of a tensor"),
        ({"entries": [{"seq_id": 1}]}, "older than 2.4"),
        ({"version": None, "entries": [{}] * 130_000}, "more than a dump can hold"),
    ],
)
def test_a_dump_that_says_what_none_can_say(change: dict[str, Any], why: str) -> None:
    with pytest.raises(DumpError, match=why):
        read(pickle.dumps({**GOOD, **change}, 2))


@each("part", ["tensors", "types", "sizes"])
def test_one_part_that_a_dump_holds_often_is_not_read_for_ever(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flightdumps, "MOST", 50_000)
    many: list[Any] = (
        [1] * 20_000 if part == "sizes" else [[]] * 20_000 if part == "tensors" else [""] * 20_000
    )
    name, value = ("input_dtypes", many) if part == "types" else ("input_sizes", many)
    entry = {**GOOD["entries"][0], name: [value] if part == "sizes" else value}
    with pytest.raises(DumpError, match="sizes of a tensor" if part == "sizes" else "more than a dump"):
        read(pickle.dumps({**GOOD, "entries": [entry] * 4}, 2))


@given(st.binary() | st.binary().map(lambda data: b"\x80\x02" + data) | st.binary().map(lambda d: b"{" + d))
def test_any_bytes_are_a_dump_or_raise_the_one_error(data: bytes) -> None:
    read_or_refused(data)


@settings(max_examples=examples(2000))
@given(st.sampled_from(PICKLES), st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 255)), max_size=4))
def test_a_damaged_dump_is_a_dump_or_raises_the_one_error(path: Path, damage: list[tuple[int, int]]) -> None:
    data = bytearray(path.read_bytes())
    for at, byte in damage:
        data[at % len(data)] = byte
    read_or_refused(bytes(data))


_LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*GOOD["entries"][0], "x"]), inner)
    ),
    max_leaves=20,
)


@settings(max_examples=examples(2000))
@given(st.data())
def test_a_dump_with_any_values_is_a_dump_or_raises_the_one_error(data: st.DataObject) -> None:
    entry = {
        name: data.draw(_VALUES) for name in data.draw(st.sets(st.sampled_from(sorted(GOOD["entries"][0]))))
    }
    made = {**GOOD, "entries": [{**GOOD["entries"][0], **entry}, data.draw(_VALUES)]}
    made[data.draw(st.sampled_from(sorted(GOOD)))] = data.draw(_VALUES)
    read_or_refused(pickle.dumps(made, 4))
    read_or_refused(json.dumps(made).encode())


@given(_VALUES, st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_plain_containers_come_back_as_they_were(value: Any, protocol: int) -> None:
    """All but integers of more than 255 bytes, which no dump has."""
    data = pickle.dumps(value, protocol)
    if "LONG4" not in {operation.name for operation, _, _ in pickletools.genops(data)}:
        assert plain(data) == value


@each(
    ("name", "rank", "host"),
    [
        ("comm_lib_trace_rank_3", 3, ""),
        ("nccl_trace_rank_12", 12, ""),
        ("gpu-12.cluster_nccl_trace_rank_4", 4, "gpu-12.cluster"),
        ("nodeB.comm_lib_trace_rank_5", 5, "nodeB"),
        ("trace_nodeA_7", 7, "nodeA"),
        ("trace_rank_node-3_11.pkl", 11, "node-3"),
        ("json_rank_2.json", 2, ""),
        ("dump5", 5, ""),
        ("a/comm_lib_trace_rank_1", 1, "a"),
        ("a/n7_nccl_trace_rank_1", 1, "n7"),
    ],
)
def test_rank_and_host_are_in_the_name(name: str, rank: int, host: str) -> None:
    assert named(Path("/dumps") / name, Path("/dumps")) == (rank, host)


def test_a_name_without_a_rank_is_refused() -> None:
    with pytest.raises(DumpError, match="does not end with a rank"):
        named(Path("/dumps/trace.pkl"), Path("/dumps"))


def test_calls_in_a_coalesced_group_have_the_state_of_its_end() -> None:
    """NCCL's process groups watch the end of such a group alone."""
    inside: dict[str, Any] = {"state": "scheduled", "retired": False, "p2p": True, "seq": 1, "p2p_seq": 5}
    job = FlightJob(calls={0: [
        Made(), Made(op="send 0->1", **inside), Made(op="recv 0<-1", **inside),
        Made(op="coalesced", seq=1, p2p_seq=5), Made(op="send 0->1", **{**inside, "p2p_seq": 6}),
    ]})  # fmt: skip
    assert [(call.done, call.p2p) for call in job.read()[0].calls] == [
        (True, False), (True, True), (True, True), (True, True), (False, True)
    ]  # fmt: skip


@each(
    ("files", "where"),
    [
        (("/v/torch/distributed/c10d_logger.py", "/job/train.py"), "/job/train.py:7"),
        (
            ("/v/typing_extensions.py", "/v/contextlib.py", "/job/contextlib_use.py"),
            "/job/contextlib_use.py:7",
        ),
        (
            ("<frozen runpy>", "C:\\py\\torch\\x.py", "/v/megatron/core.py", "/job/a.py"),
            "/v/megatron/core.py:7",
        ),
        (("/v/torch/x.py",), ""),
        ((), ""),
    ],
)
def test_the_line_of_the_job_is_the_innermost_that_is_not_torchs(files: tuple[str, ...], where: str) -> None:
    frames = [{"name": "f", "filename": name, "line": 7} for name in files]
    made = {**GOOD, "entries": [{**GOOD["entries"][0], "frames": frames}]}
    assert read(pickle.dumps(made, 2)).calls[0].where == where


def test_a_full_buffer_and_gaps_are_seen() -> None:
    job = world()
    job.first = 2000
    assert [(dump.lost, dump.gaps) for dump in job.read(0)] == [(True, False)]
    made = job.dump(0)
    del made["entries"][1]
    assert read(pickle.dumps(made, 2)).gaps


def test_no_class_is_ever_looked_up() -> None:
    """Each operation that pickle has is one of plain containers, or refused by its name."""
    refused = set()
    for operation in pickletools.opcodes:
        machine = vars(flightdumps)["_Machine"]()
        machine.below, machine.stack, machine.memo = [[[]]], [{}, "key", 1], {0: 1}
        try:
            machine.do(operation.name, 0)
        except DumpError as error:
            if "containers: " in str(error):
                refused.add(operation.name)
    assert refused >= {
        "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID",
        "BINPERSID", "EXT1", "EXT2", "EXT4", "FROZENSET", "EMPTY_SET", "ADDITEMS", "DUP", "NEXT_BUFFER",
    }  # fmt: skip
