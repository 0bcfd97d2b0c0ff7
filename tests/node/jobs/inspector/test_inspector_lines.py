"""Lines of NCCL Inspector: what is taken from them, and that nothing else passes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.jobs.inspector.writing import OLD, RINGS, line
from tests.rows import each
from wirewatch.core.types import Absent
from wirewatch.jobs.inspector.lines import LINE_BYTES, InspectedLine, parse_line
from wirewatch.jobs.tap.ringfile import LARGEST

NOW = 1_800_000_000.0
README = b"""{"header":{"id":"0xe62dedaa97644a","rank":4,"n_ranks":8,"nnodes":1},"metadata":{
"inspector_output_format_version":"v4.0","git_rev":"9019a1912-dirty","rec_mechanism":"nccl_profiler_interface",
"dump_timestamp_us":1752867229276385,"hostname":"example-hostname","pid":438776},"coll_perf":{
"coll":"ReduceScatter","coll_sn":1231,"coll_msg_size_bytes":2147483648,"coll_exec_time_us":41057,
"coll_timing_source":"kernel_gpu","coll_algobw_gbs":418.439467,"coll_busbw_gbs":366.134533,
"event_trace_sn":{"coll_start_sn":1,"kernel_events":[{"channel_id":0}]},"event_trace_ts":{}}}"""
"""As the README of NCCL's Inspector shows it, with its events."""


def taken(data: bytes) -> InspectedLine:
    found = parse_line(data)
    assert not isinstance(found, Absent), found
    return found


def test_the_line_of_its_readme() -> None:
    found = taken(README)
    call = found.coll_perf
    assert call is not None
    assert (found.header.id, found.header.rank, found.header.n_ranks) == ("0xe62dedaa97644a", 4, 8)
    assert (found.metadata.pid, found.metadata.dump_timestamp_us) == (438776, 1752867229276385)
    assert (call.op, call.coll_sn, call.size(8)) == ("reduce_scatter", 1231, 16 << 30)
    assert (found.nccl, found.proven) == (OLD, True)


@pytest.mark.parametrize(
    ("member", "nccl", "proven"),
    [
        (None, RINGS, True),
        ("v4.1", RINGS, True),
        ("v5.0", "2.31 or later", False),
        ("v41", "2.31 or later", False),
    ],
)
def test_the_version_of_nccl_is_that_of_its_format(member: str | None, nccl: str, proven: bool) -> None:  # noqa: FBT001
    made = json.loads(line(NOW))
    made["metadata"]["inspector_output_format_version"] = member or "v4.0"
    found = taken(json.dumps(made).encode())
    assert (found.nccl, found.proven) == (nccl, proven)


@each(
    ("name", "op", "size"),
    [
        ("AllReduce", "all_reduce", 1000), ("AllGather", "all_gather", 4000), ("Reduce", "reduce", 1000),
        ("Broadcast", "broadcast", 1000), ("ReduceScatter", "reduce_scatter", 4000),
        ("All2All", "alltoall", 4000),
        ("Invalid", "unknown", None), ("AllGatherV", "unknown", None), ("", "unknown", None),
    ],
)  # fmt: skip
def test_a_message_is_counted_as_nccl_tests_does(name: str, op: str, size: int | None) -> None:
    call = taken(line(NOW, ranks=4, coll=name, coll_msg_size_bytes=1000)).coll_perf
    assert call is not None
    assert (call.op, call.size(4)) == (op, size)


@pytest.mark.parametrize("size", [0, LARGEST + 1, (1 << 64) - 4096])
def test_a_type_that_inspector_does_not_know_has_no_size(size: int) -> None:
    """It multiplies the number of elements by minus one there."""
    call = taken(line(NOW, coll_msg_size_bytes=size)).coll_perf
    assert call is not None
    assert call.size(2) is None


def test_a_send_is_a_line_without_a_collective() -> None:
    found = taken(
        line(NOW, change={"coll_perf": None, "p2p_perf": {"p2p": "Send", "p2p_sn": 3, "p2p_peer": 1}})
    )
    assert found.coll_perf is None


@each(
    ("change", "why"),
    [
        ({"header": {"id": "0x1", "rank": 2, "n_ranks": 2, "nnodes": 1}}, "rank 2 of 2"),
        ({"header": {"id": "0x1", "rank": -1, "n_ranks": 2, "nnodes": 1}}, "header rank"),
        ({"header": {"id": "0x1", "rank": 0, "n_ranks": 2, "nnodes": 3}}, "on 3 nodes"),
        ({"header": {"id": "12", "rank": 0, "n_ranks": 2, "nnodes": 1}}, "header id"),
        ({"header": {"id": "0x1", "rank": 0, "n_ranks": 1 << 21, "nnodes": 1}}, "header n_ranks"),
        ({"header": {"id": "0x1", "rank": True, "n_ranks": 2, "nnodes": 1}}, "header rank"),
        ({"header": None}, "header"),
        ({"coll_perf": None}, "neither"),
        ({"p2p_perf": {"p2p": "Send"}}, "neither"),
        ({"metadata": {}}, "metadata"),
    ],
)  # fmt: skip
def test_what_no_communicator_has_is_refused_by_name(change: dict[str, Any], why: str) -> None:
    found = parse_line(line(NOW, change=change))
    assert isinstance(found, Absent)
    assert why in found.detail


@each("odd", [-1, 1.5, "7", 1 << 65, None, True, [], 3_600_000_001])
def test_a_time_that_no_collective_has_is_refused(odd: object) -> None:
    assert isinstance(parse_line(line(NOW, coll_exec_time_us=odd)), Absent)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"{", b"[]", b"{}\n{}", b"[" * 60_000, line(NOW)[:-30], line(NOW) * 2,
        b"\xff\xfe" + line(NOW),
        line(NOW).decode().encode("utf-16"), b'{"a":' * 10_000, b"1" * 50_000, b"NaN", b"\0" * 100,
    ],
    ids=range(14),
)  # fmt: skip
def test_what_is_no_line_is_refused(data: bytes) -> None:
    assert isinstance(parse_line(data), Absent)


def test_only_a_line_of_a_bounded_length_is_looked_at() -> None:
    whole = line(NOW, more="x" * (LINE_BYTES - len(line(NOW, more=""))))
    assert len(whole) == LINE_BYTES
    taken(whole)
    found = parse_line(whole + b" ")
    assert isinstance(found, Absent)
    assert found.detail.startswith("a line of more than")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_line_or_a_reason(data: bytes) -> None:
    found = parse_line(data)
    assert isinstance(found, InspectedLine) or found.detail


@given(data=st.data())
def test_a_line_with_anything_in_one_place_is_a_line_or_a_reason(data: st.DataObject) -> None:
    made = json.loads(line(NOW))
    part = data.draw(st.sampled_from(sorted(made)))
    place = data.draw(st.sampled_from(["", *sorted(made[part])]))
    value = data.draw(JSON)
    if place:
        made[part][place] = value
    else:
        made[part] = value
    found = parse_line(json.dumps(made).encode("utf-8", "surrogatepass"))
    if isinstance(found, Absent):
        assert found.detail.isprintable()
        return
    assert 0 <= found.header.rank < found.header.n_ranks
    assert 1 <= found.header.nnodes <= found.header.n_ranks
    if found.coll_perf is not None:
        assert 0 <= found.coll_perf.coll_exec_time_us <= 3600e6
        assert 0 < (found.coll_perf.size(found.header.n_ranks) or 1) <= LARGEST
