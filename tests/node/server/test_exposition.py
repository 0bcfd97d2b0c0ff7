"""The answer to a scrape: two formats whatever a client sends, and the same text plain and gzipped."""

import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.goldens.made import played
from tests.rows import each
from wirewatch.core.types import Kind, Metric, Tier
from wirewatch.documents.process import PROCESS
from wirewatch.kubernetes.apiserver import ConditionReport
from wirewatch.server.exposition import (
    Exposition,
    as_openmetrics,
    as_text,
    family,
    takes_gzip,
    takes_openmetrics,
)
from wirewatch.server.reload import WebReport
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


@each(
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


@each(
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


COUNTED = Metric("sent_bytes_total", Kind.COUNTER, ("port",), "Sent.")
NOW = Metric("links", Kind.GAUGE, (), "Links.")
KNOWN = Metric("card_info", Kind.INFO, ("name",), "A card.")


def test_the_samples_of_a_metric_stand_together_under_its_type() -> None:
    samples = [COUNTED.sample(1, "0"), NOW.sample(18), COUNTED.sample(2, "1"), KNOWN.sample(1, "GPU-a")]
    text = as_text(samples).decode()
    assert [line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE")] == [
        ["wirewatch_sent_bytes_total", "counter"], ["wirewatch_links", "gauge"],
        ["wirewatch_card_info", "gauge"],
    ]  # fmt: skip
    assert 'total{port="0"} 1.0\nwirewatch_sent_bytes_total{port="1"} 2.0\n' in text
    assert as_openmetrics(samples).count(b"# EOF\n") == 1
    assert family([COUNTED.sample(1, "0")]).name == "wirewatch_sent_bytes"


def test_a_scrape_has_the_state_of_its_moment(moments: list[Judged]) -> None:
    kept = Exposition("replay")
    for judged in (moments[0], moments[-1], moments[0]):
        assert kept.render(judged) == Exposition("replay").render(judged)


def names(text: bytes) -> set[str]:
    return {line.split("{")[0].split()[0] for line in text.decode().splitlines() if line[0] != "#"}


def test_the_core_tier_has_the_series_of_core_and_the_full_one_has_all(moments: list[Judged]) -> None:
    full, core = (
        names(Exposition("replay", tier).render(moments[-1]).text) for tier in (Tier.FULL, Tier.CORE)
    )
    assert "wirewatch_job_ready" in core < full
    assert names(Exposition("replay").render(moments[-1], tier=Tier.CORE).text) == core
    assert names(Exposition("replay", Tier.CORE).render(moments[-1], tier=Tier.FULL).text) == full


@pytest.mark.parametrize(
    ("report", "series"),
    [
        ({"web": WebReport()}, "wirewatch_web_refused_total"),
        ({"node": ConditionReport()}, "wirewatch_node_condition_updates_total"),
        ({"own": PROCESS.report}, "wirewatch_config_last_reload_success"),
    ],
)
def test_what_is_not_reported_has_no_series(
    moments: list[Judged], report: dict[str, Any], series: str
) -> None:
    assert series not in names(Exposition("replay").render(moments[-1]).text)
    assert series in names(Exposition("replay").render(moments[-1], **report).text)
