"""Whatever is called in whatever order with whatever numbers: the job lives, and its counters only grow."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.jobs.tap.playing import MS, Player, memory_folder
from tests.node.jobs.tap.ringbytes import RING_BYTES, read

CONTEXTS, HANDLES = 4, 12
version = st.sampled_from([4, 5, 6])
context = st.integers(0, CONTEXTS - 1)
handle = st.integers(0, HANDLES - 1)
count = st.one_of(st.sampled_from([0, 1, 2, 3, 2**32 - 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))
small = st.integers(0, 5)
WORDS = "AllReduce AllGather ReduceScatter Send ncclFloat32 ncclInt8 Unknown RING TREE LL SIMPLE - ~"
word = st.sampled_from(WORDS.split())


def line(name: str, *parts: st.SearchStrategy[object]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda values: " ".join([name, *map(str, values)]))


COMMANDS = st.one_of(
    line("init", version, context, count, small, small, small, word, st.integers(0, 3)),
    line("coll", version, context, handle, handle, count, word, count, small, word, small, word, word),
    line("coll", version, context, handle, handle, count, word, count, small, word, small, word, word),
    line("call", version, context, handle, st.integers(0, 1)),
    line("p2p", version, context, handle, handle, word, word, count, small),
    line("channel", version, context, handle, handle, small, count),
    line("channel", version, context, handle, handle, st.integers(0, 255), count),
    line("record", version, handle, st.sampled_from([22, 22, 22, 0, 21]), count),
    line("stop", version, handle),
    line("stop", version, handle),
    line("finalize", version, context),
    line("set", handle, count),
    line("context", context, count),
    line("clock", st.integers(5_000 * MS, 20_000 * MS)),
    line("other", version, context, handle, st.integers(0, 65536).map(lambda t: t * 2 + 1)),
)


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    with memory_folder() as folder, Player(folder) as one:
        yield one


@settings(max_examples=examples(60))
@given(commands=st.lists(COMMANDS, min_size=1, max_size=80))
def test_any_events(player: Player, commands: list[str]) -> None:
    before = {path: read(path) for path in player.rings()}
    player.all("\n".join(commands))
    assert player.do("mask 0").lstrip("-").isdigit()
    for path in player.rings():
        assert path.stat().st_size == RING_BYTES
        ring = read(path)
        assert ring.written + ring.dropped <= ring.enqueued
        assert sum(ring.calls) == ring.enqueued + ring.sends
        if path in before:
            old = before[path]
            for name in ("written", "dropped", "enqueued", "sends", "captured", "windows"):
                assert getattr(ring, name) >= getattr(old, name)
    player.all("\n".join(f"finalize 5 {number}" for number in range(CONTEXTS)))
