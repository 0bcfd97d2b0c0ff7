"""The answer to a scrape: two formats whatever a client sends, and the same text plain and gzipped."""

import gzip
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.goldens.made import played
from wirewatch.core.types import Tier
from wirewatch.server.exposition import Exposition, takes_gzip, takes_openmetrics
from wirewatch.verdict.node import Judged, judge_state

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
tokens = st.sampled_from(
    ("application/openmetrics-text", "text/plain", "version=1.0.0", "version=abc", "q=0.5", "q=x", "q=nan",
     "gzip", "*", "escaping=\x00", ",", ";", " ")
)  # fmt: skip


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False), ("*/*", False), ("text/plain", False), (PROMETHEUS, True),
        ("application/openmetrics-text", True), ("application/openmetrics-text;version=abc", True),
        ("application/openmetrics-text;q=0", False),
        ("text/html, application/openmetrics-text;q=nonsense", False),
        ("application/openmetrics-text;q=0.1,text/plain", False),
        ("APPLICATION/OpenMetrics-Text ; q=1", True),
    ],
)  # fmt: skip
def test_openmetrics_is_for_clients_that_name_it_with_enough_weight(accept: str, is_open: bool) -> None:  # noqa: FBT001
    assert takes_openmetrics(accept) is is_open


@pytest.mark.parametrize(
    ("header", "taken"),
    [("", False), ("gzip", True), ("deflate, gzip;q=0.5", True), ("gzip;q=0", False), ("*", True),
     ("gzip;q=0, *", False), ("identity", False), ("gzip;q=abc", False)],
)  # fmt: skip
def test_gzip_is_for_clients_that_take_it(header: str, taken: bool) -> None:  # noqa: FBT001
    assert takes_gzip(header) is taken


@settings(max_examples=examples(200))
@given(st.lists(tokens, max_size=12), st.text(max_size=20))
def test_whatever_a_client_sends_there_are_two_formats(parts: list[str], more: str) -> None:
    header = "".join(parts) + more
    assert takes_openmetrics(header) in {True, False}
    assert takes_gzip(header) in {True, False}


@pytest.fixture(scope="module")
def moments() -> list[Judged]:
    return [judge_state(node.state) for node in played("h200x8")]


def test_gzip_holds_the_same_text_at_each_change(moments: list[Judged]) -> None:
    exposition, sizes = Exposition("replay"), []
    for judged in [*moments, moments[-1]]:
        for accept in ("", PROMETHEUS):
            plain = exposition.render(judged, accept)
            packed = exposition.render(judged, accept, encoding="gzip")
            assert dict(packed.headers) == {**dict(plain.headers), "content-encoding": "gzip"}
            assert dict(plain.headers)["vary"] == "Accept, Accept-Encoding"
            assert gzip.decompress(packed.text) == plain.text
            # One member: clients that read no more than the first one get all of it.
            reading = zlib.decompressobj(wbits=31)
            assert (reading.decompress(packed.text), reading.unused_data) == (plain.text, b"")
            sizes.append(len(plain.text) / len(packed.text))
    assert min(sizes) > 5


def test_what_did_not_change_is_not_compressed_again(moments: list[Judged]) -> None:
    exposition = Exposition("replay")
    first = exposition.render(moments[0], encoding="gzip")
    assert exposition.render(moments[0], encoding="gzip") == first
    known = {name: part.blocks for name, part in exposition._plain[Tier.FULL]._parts.items()}  # noqa: SLF001
    exposition.render(moments[0], encoding="gzip")
    assert all(part.blocks is known[name] for name, part in exposition._plain[Tier.FULL]._parts.items())  # noqa: SLF001
