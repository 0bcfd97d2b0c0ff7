"""What `wirewatch findings` prints of a document, and the orders that it refuses by itself."""

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.rows import each
from wirewatch.cli import findings as module
from wirewatch.cli.findings import amount, findings, listing, short


@each(
    ("value", "unit", "text"),
    [
        (60.0, "unix seconds", "1970-01-01 00:01:00Z"), (0.0, "seconds", "0.0 s"),
        (0.05, "seconds", "50.000 ms"), (0.1, "seconds", "0.1 s"),
        (4.5e11, "bytes per second", "450.000 GB/s"),
        (3e9, "bytes", "3.000 GB"), (1.98e9, "hertz", "1980 MHz"), (700.0, "watts", "700 W"),
        (31.25, "degrees celsius", "31.25 C"), (12345678.0, "", "12345678"), (1234.5678, "", "1235"),
    ],
)  # fmt: skip
def test_a_number_with_its_unit(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


def one(stage: str = "live", health: str = "failed", **more: Any) -> dict[str, Any]:
    return {
        "id": "d1fac7e2", "health": health, "rule": "nvlink.link_down", "subject": {"gpu": "2"},
        "stage": stage,
        "times": 1, "since": 60.0, "evidence": "17 of 18\x1b links", "action": "reset", "acknowledged": None,
        "suppressed": None, "suppressed_until": 86400.0, **more,
    }  # fmt: skip


def listed(*found: dict[str, Any], ready: bool = True) -> list[str]:
    document = {"health": "ok", "job_ready": ready, "findings": list(found)}
    return listing(document).splitlines()


def test_an_order_is_answered_with_what_it_did() -> None:
    document = {"health": "ok", "job_ready": True, "findings": [], "said": "d1 does not count\x1b"}
    assert listing(document).splitlines() == ["d1 does not count ", "OK, the next job may start"]


@each(("count", "lines"), [(0, 1), (1, 3), (13, 15), (14, 15), (40, 15)])
def test_without_explain_there_are_fifteen_lines(count: int, lines: int) -> None:
    said = {"by": "ann", "at": 3600.0, "why": "looking"}
    found = [one(evidence="x" * 200, acknowledged=said) for _ in range(count)]
    document = {"health": "failed", "job_ready": False, "findings": found, "host": "gpu-17"}
    shown = short(document).splitlines()
    assert len(shown) == lines
    assert shown[0].endswith("; on gpu-17")
    assert max(map(len, shown[1:]), default=0) <= 110
    if count:
        assert shown[1].endswith("…; seen by ann")
        assert shown[-1].endswith("all about each: `wirewatch findings list --explain`")
        assert (f"{count - 13} more" in shown[-1]) is (count > 13)


def test_a_finding_takes_a_line_for_each_part() -> None:
    said = {"by": "ann", "at": 3600.0, "why": "airflow"}
    lines = listed(one("live", times=3), one("suppressed", suppressed=said), ready=False)
    assert lines[0].startswith("OK, no job may start: nvlink.link_down GPU 2: 17 of 18 links. Next: ")
    assert lines[2].endswith("live, 3 times  since 1970-01-01 00:01:00Z")
    assert "\x1b" not in "".join(lines)
    assert (
        lines[-1].strip().startswith("suppressed until 1970-01-02 00:00:00Z by ann at 1970-01-01 01:00:00Z: ")
    )


@each(
    ("words", "said"),
    [
        (("suppress", "d1", "--why", "x"), "give either --until or --for"),
        (("suppress", "d1", "--why", "x", "--for", "1d", "--until", "2027-01-31"), "give either"),
        (("ack", "d/1", "--why", "x"), "is not the id of a finding"),
        (("ack", "\u0661", "--why", "x"), "is not the id of a finding"),
        (("show", ""), "is not the id of a finding"),
        (("ack", "d1", "--why", "x", "--socket", ""), "takes no orders"),
        (("suppress", "d1", "--why", "x", "--for", "1d", "--socket", "/nowhere"), "no such socket"),
    ],
)  # fmt: skip
def test_an_order_that_cannot_be_given_is_said(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(findings, words)
    assert (done.exit_code != 0, said in f"{done.output}{done.exception}") == (True, True)


@pytest.mark.parametrize(
    ("seen", "measured", "last", "text"),
    [
        (None, None, "", "not known: not since the agent started"),
        (60.0, None, "", "1970-01-01 00:01:00Z at the latest"), (60.0, 1, "", "1970-01-01 00:01:00Z"),
        (60.0, None, "known", "1970-01-01 00:01:00Z"),
    ],
)  # fmt: skip
def test_when_a_finding_was_seen_last(seen: float | None, measured: Any, last: str, text: str) -> None:
    document = {"last_seen": seen, "measured": measured, "finding": {"last": last}}
    assert vars(module)["_seen"](document) == text


def test_a_ticket_is_in_ascii_and_its_lines_are_broken_between_words() -> None:
    assert vars(module)["_ascii"](" ~\x1f\x7f\u00e4") == " ~\\x1f\\x7f\\xe4"
    long = "evidence            " + "word " * 30
    wrapped = vars(module)["_wrapped"](long)
    assert len(wrapped) == 2
    assert wrapped[1].startswith(" " * 20 + "word")
    assert vars(module)["_wrapped"](f"  {long}") == [f"  {long}"]
    assert vars(module)["_wrapped"]("") == [""]


def number(name: str, value: float | None, peers: Any, unit: str = "", **labels: str) -> dict[str, Any]:
    least = {"min": peers, "median": peers, "max": peers, "count": 7, "of": "GPUs"}
    return {
        "name": f"wirewatch_{name}", "value": value, "unit": unit, "labels": labels, "peers_unknown": "alone",
        "peers": None if peers is None else least,
    }  # fmt: skip


def test_numbers_stand_beside_those_of_the_peers_and_zeros_in_short() -> None:
    """A moment of 0 is a time, and a number without peers is no zero."""
    numbers = [
        number("up", 1.0, 18.0, link="7"), number("errors", 0.0, 0.0, kind="crc"), number("left", 0.0, 1.0),
        number("since", 0.0, 0.0, "unix seconds"), number("alone", 0.0, None), number("every", None, 5.0),
    ]  # fmt: skip
    lines = list(vars(module)["_numbers"](numbers))
    names = [line.split()[0] for line in lines]
    assert names == ["metric", "up{link=7}", "left", "since", "every", "without", "alone"]
    assert lines[1].split()[1:] == ["1", "18", "18", "18", "7", "GPUs"]
    assert lines[4].split()[1:] == ["(none", "named)", "5", "5", "5", "all", "7", "GPUs"]
    assert {line.rindex("7 GPUs") - line.startswith("  every") * 4 for line in lines[1:5]} == {
        lines[0].index("peers", 40)
    }
    zeros = filter(vars(module)["_is_zero"], numbers)
    assert vars(module)["_in_short"](zeros) == "errors (crc)"
    assert vars(module)["_in_short"]([number("x", 0.0, 0.0), number("x", 0.0, 0.0)]) == "x"
    assert list(vars(module)["_numbers"]([number("alone", 2.0, None)])) == [
        "without peers: alone",
        "  alone  2",
    ]


DONE = {"health": "ok", "job_ready": True, "findings": []}


def test_an_order_names_its_giver(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def order(*asked: Any) -> dict[str, Any]:
        given.append(asked)
        return DONE

    monkeypatch.setattr(module, "order", order)
    monkeypatch.setattr(module, "user", lambda: "ann")
    for by in (None, "bob"):
        vars(module)["_order"](None, "/run/w.sock", "d1", "ack", {"why": "x"}, by)
    assert given == [
        ("/run/control.sock", "/findings/d1", {"why": "x", "order": "ack", "by": by}) for by in ("ann", "bob")
    ]


def test_a_finding_is_suppressed_for_a_time_or_until_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []

    def order(_path: str, _target: str, told: Any) -> dict[str, Any]:
        said.append((told["until"], told.get("yes")))
        return {"health": "ok", "job_ready": True, "findings": []}

    monkeypatch.setattr(module, "order", order)
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: 1000.0))
    for words in (("--for", "1h"), ("--until", "1970-01-02", "--yes")):
        done = CliRunner().invoke(
            findings, ("suppress", "d1", "--why", "x", "--socket", "/run/w.sock", *words)
        )
        assert done.exit_code == 0
    assert said == [(4600.0, None), (86400.0, True)]


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ([("a", "1"), ("bcd", "22")], ["  a     1", "  bcd  22"]),
        (
            [("m", "part", "min", "median", "max", "peers"), ("errors", "1", "2", "3", "4", "7 GPUs")],
            ["  m       part  min  median  max  peers", "  errors     1    2       3    4  7 GPUs"],
        ),
        ([("a", "1", "2", "3", "4", "7 GPUs"), ("a", "1", "2", "3", "4", "all 8")],
         ["  a  1  2  3  4  7 GPUs", "  a  1  2  3  4  all 8"]),
    ],
)  # fmt: skip
def test_numbers_stand_below_each_other(rows: Any, lines: list[str]) -> None:
    assert list(vars(module)["_table"](rows)) == lines
