"""The texts of `wirewatch fleet pairs` and `wirewatch fleet status`, line by line, and who asks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.rows import each
from wirewatch.core.pairs import Measure, PartKind, Way
from wirewatch.core.words import utc
from wirewatch_fleet.cli import status as status_module
from wirewatch_fleet.cli.pairs import pairs_lines
from wirewatch_fleet.cli.status import PrometheusAccess, text_of
from wirewatch_fleet.pairs.alone import CollisionLoss
from wirewatch_fleet.pairs.document import NextRound, PairsDocument, SlowEntry
from wirewatch_fleet.pairs.model import RoundPurpose, WayLoss
from wirewatch_fleet.pairs.naming import AlikeLoss, TypicalRate
from wirewatch_fleet.prometheus import Access, AccessError, NoPrometheus
from wirewatch_fleet.worst import BadNodeReport, FleetStatusDocument

AT = 1_795_000_000.0


def slow(kind: PartKind, name: str, peer: str = "", rail: str = "", *, across: bool = False) -> SlowEntry:
    loss = WayLoss(Way.SENDS, 0.2, 0.19, 0.21, 3, 4, 3, 40.0, 2, 2)
    return SlowEntry(kind, name, peer, rail, across, Measure.RAILS, [loss], [], f"look at {kind}")


EMPTY = PairsDocument(
    "wirewatch.fleet-pairs/1", AT, "ok", 3, 6, 5, [], [], [], [], [], [], 0.006, 0.03, [], None
)
HEAD = f"OK: 0 named, 0 open, by 5 of 6 runs of pairs in 3 rounds, {utc(AT)}"
BASIS = "healthy nodes differ by 0.6% (standard deviation); one is named from 3.0% on"
NODE = slow(PartKind.NODE, "n1")
COLLISION = CollisionLoss(Measure.RAILS, True, 0.22, 48e9, 60, 96, 4, 0, 4, 0.09)  # noqa: FBT003
NEXT = NextRound(4, RoundPurpose.CONFIRM, [("a", "b")] * 9)
OPEN = "open, slow so far, but not beyond chance, or not in three runs alone:"
NO_MORE = "no further round is planned: start again with those that are open and partners that are well"


def lines(**changed: Any) -> list[str]:
    return list(pairs_lines(replace(EMPTY, **changed)))


def test_what_is_well_is_one_line_and_what_it_rests_on() -> None:
    assert lines() == [HEAD, "", BASIS]


@each(
    ("entry", "what", "way"),
    [
        (NODE, "n1", "sends"),
        (slow(PartKind.NODE, "n1", rail="2"), "n1, rail 2", "sends"),
        (slow(PartKind.PAIR, "n1", "n2"), "n1 to n2", ""),
        (slow(PartKind.PAIR, "n1", "n2", "2"), "n1 to n2, rail 2", ""),
        (slow(PartKind.LEAF, "l1"), "leaf l1", "sends"),
        (slow(PartKind.LEAF, "l1", rail="2", across=True), "leaf l1 to other leafs, rail 2", "sends"),
        (slow(PartKind.RAIL, "2", rail="2"), "rail 2, everywhere", "sends"),
    ],
)
def test_each_part_has_its_name_and_its_numbers(entry: SlowEntry, what: str, way: str) -> None:
    made = lines(named=[entry, entry])
    assert made[1:3] == ["", "slow:"]
    alone = "2 of 2" if entry.kind in {PartKind.NODE, PartKind.PAIR} else ""
    row = f"{way} 20.0% 19.0% to 21.0% 3 of 4 {alone} 3 40 sends on one rail".split()
    assert made[4].split() == made[5].split() == [*what.split(), *row]
    assert [line for line in made if "look" in line] == [f"  look at {entry.kind}"]


@each(
    ("changed", "told"),
    [
        ({"suspects": [NODE], "next": NEXT}, [OPEN, "measure next, as round 4"]),
        ({"suspects": [NODE] * 10}, [OPEN, NO_MORE]),
        ({"suspects": [NODE] * 11}, [OPEN, "  and 1 more", NO_MORE]),
        ({"thin": ["n1"]}, ["too few runs to be judged: n1", NO_MORE]),
        ({"thin": ["n1"], "rounds": 0}, ["too few runs to be judged: n1"]),
        ({"silent": [f"n{n}" for n in range(9)]},
         ["no answer in any run: n0, n1, n2, n3, n4, n5, n6, n7 and 1 more"]),
        ({"next": NEXT},
         ["measure next, as round 4 (confirm): " + ", ".join(["a with b"] * 8) + " and 1 more"]),
        ({"spread": None, "seen_from": None}, ["nothing was measured"]),
        ({"typical": [TypicalRate(Measure.SEND, None, 46e9), TypicalRate(Measure.RAILS, True, 4e9)]},  # noqa: FBT003
         ["typical: sends on all rails: 46.00 GB/s", "typical: sends on one rail across leafs: 4.00 GB/s"]),
        ({"alike": [AlikeLoss(Measure.SEND, False, 0.1, 5e9, 1)]},  # noqa: FBT003
         ["all alike: sends on all rails inside a leaf are 10.0% slower than 5.0 GB/s, in an"]),
        ({"collisions": [COLLISION]},
         ["collision: sends on one rail across leafs lose 22% when all pairs talk, 60 of 96 runs are slow",
          "  in 4 of 4 runs alone it is 48.0 GB/s", "  what may help: adaptive routing",
          "  with NCCL_IB_QPS_PER_CONNECTION=4 they lose 9%"]),
        ({"collisions": [replace(COLLISION, across=None, alone=0)], "unseen": ["n7"]},
         ["  no pair has run alone, so other traffic", "leafs are not known", NO_MORE,
          "in each of their runs others may have slowed them: n7"]),
        ({"collisions": [replace(COLLISION, alone_slow=1)]},
         ["collision: ", "  1 of 4 runs alone are slow too: other traffic is there as well"]),
        ({"collisions": [replace(COLLISION, alone_slow=2)]}, ["other traffic: sends on one rail"]),
        ({"alike": [AlikeLoss(Measure.SEND, None, 0.1, 5e9, 2)]},
         ["all alike: sends on all rails are 10.0% slower than 5.0 GB/s, the median of 2 earlier results"]),
    ],
)  # fmt: skip
def test_what_is_open_and_what_it_rests_on(changed: Mapping[str, Any], told: list[str]) -> None:
    made = lines(**changed)
    for one in told:
        assert any(line.startswith(one) for line in made), made
    for other in (NO_MORE, "open, slow so far", "  and 1 more", "nothing was measured", "measure next"):
        if not any(one.startswith(other) for one in told) and not (
            other.startswith("open") and "suspects" in changed
        ):
            assert not any(line.startswith(other) for line in made), made
    assert (BASIS in made) is (changed.get("spread", 0.0) is not None)


BAD = BadNodeReport(
    "c", "n1", "", "", "failed", "nvlink.link_down", {"gpu": "2", "uuid": "GPU-2", "link": "7"}, AT - 60.0,
    AT - 5.0, 3, "a link is down. More.", "reset the GPU",
)  # fmt: skip
STATUS = FleetStatusDocument(
    "wirewatch.fleet-status/1", AT, "failed", "http://x", [], 6, {"failed": 1, "ok": 5}, [], [BAD]
)


def rows(*nodes: BadNodeReport) -> list[list[str]]:
    found = list(text_of(replace(STATUS, nodes=list(nodes))))
    return [line.split() for line in found[2 : 3 + len(nodes)]]


def test_a_bad_node_has_its_row_and_what_to_do() -> None:
    made = list(text_of(STATUS))
    assert made[:2] == ["FAILED: 6 nodes: 1 FAILED, 5 OK", ""]
    assert made[3].split() == [
        "FAILED", "c", "n1", "nvlink.link_down", "GPU", "2", "link", "7", *utc(AT - 60).split(),
        "5", "s", "ago", "3",
    ]  # fmt: skip
    assert made[4:] == ["", "nvlink.link_down: a link is down", "  -> reset the GPU"]


def test_what_is_not_known_of_a_node_is_a_dash() -> None:
    bare = replace(
        BAD,
        cluster="",
        node="",
        subject={},
        since=None,
        heard=None,
        findings=0,
        state="silent",
        rule="silent",
    )
    header, row = rows(bare)
    assert header == ["state", "cluster", "node", "reason", "where", "since", "last", "heard", "findings"]
    assert row == ["silent", "-", "-", "silent", "-", "not", "known", "never", "-"]


def test_racks_have_a_column_where_a_node_has_one() -> None:
    header, first, second = rows(replace(BAD, rack="r7"), BAD)
    assert (header[3], first[3], second[3]) == ("rack", "r7", "-")
    assert "leaf" not in header


@each(
    ("ago", "told"),
    [
        (-5, "0 s ago"), (0, "0 s ago"), (119, "119 s ago"), (120, "2 min ago"), (7199, "120 min ago"),
        (7200, "2 h ago"), (172799, "48 h ago"), (172800, "2 d ago"),
    ],
)  # fmt: skip
def test_how_long_ago_a_node_was_heard(ago: float, told: str) -> None:
    (_, row) = rows(replace(BAD, heard=AT - ago))
    assert " ".join(row).endswith(f" {told} 3")


def test_a_text_is_said_once_for_all_reasons_that_share_it() -> None:
    made = list(
        text_of(
            replace(STATUS, nodes=[BAD, replace(BAD, rule="other"), replace(BAD, rule="third", do="x" * 300)])
        )
    )
    assert "nvlink.link_down, other: a link is down" in made
    assert made.count("  -> reset the GPU") == 1
    assert max(map(len, made)) == 110


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({"clusters": ["a", "b"]}, "FAILED: 6 nodes of a, b: 1 FAILED, 5 OK"),
        ({"known": 0}, "UNKNOWN: no node has been heard within a day, or the recording rules are not"),
        ({"known": 0, "clusters": ["a"]},
         "UNKNOWN: no node is known of a; is that the label `cluster` of its targets?"),
    ],
)  # fmt: skip
def test_the_first_line_says_how_many_of_which(changed: Mapping[str, Any], first: str) -> None:
    assert next(iter(text_of(replace(STATUS, **changed)))).startswith(first)


@pytest.mark.parametrize(("health", "code"), [("ok", 0), ("degraded", 1), ("failed", 2), ("unknown", 3)])
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_worst_of_all_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, health: str, code: int, form: str
) -> None:
    found = replace(STATUS, health=health)  # type: ignore[arg-type]
    monkeypatch.setattr(status_module, "_asked", lambda _access, _clusters: found)
    words = ["--prometheus", "http://h", *(["--json"] if form == "json" else [])]
    done = CliRunner().invoke(status_module.status, words)
    assert done.exit_code == code
    if form == "json":
        assert json.loads(done.stdout)["health"] == health
    else:
        assert done.stdout.startswith(f"{health.upper()}: 6 nodes: 1 FAILED, 5 OK\n")


@pytest.mark.parametrize(
    ("timeout", "taken"), [("0", False), ("1s", True), ("3600s", True), ("3601s", False)]
)
def test_a_query_takes_an_hour_at_most_and_no_answer_has_its_own_code(
    monkeypatch: pytest.MonkeyPatch,
    timeout: str,
    taken: bool,  # noqa: FBT001
) -> None:
    seconds: list[float] = []

    def asked(access: Access, _clusters: Sequence[str]) -> None:
        seconds.append(access.timeout)
        raise NoPrometheus("http://h: refused")

    monkeypatch.setattr(status_module, "_asked", asked)
    done = CliRunner().invoke(status_module.status, ["--prometheus", "http://h", "--timeout", timeout])
    assert (done.exit_code, seconds) == ((69, [float(timeout.strip("s"))]) if taken else (2, []))
    assert (done.stderr == "wirewatch: http://h: refused\n") is taken
    assert ("--timeout must be above 0, and at most 3600 s" in done.stderr) is not taken


NOBODY: dict[str, Any] = dict.fromkeys(
    ("token_file", "user", "password_file", "ca_file", "cert_file", "key_file")
) | {"headers": ()}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["user"], "--user with --password-file"),
        (["password_file"], "--user with --password-file"),
        (["user", "password_file", "token_file"], "--user with --password-file"),
        (["key_file"], "--key-file needs --cert-file"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    given: Sequence[str], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n", "utf-8")
    chosen = {name: "me" if name == "user" else file for name in given}
    with pytest.raises(click.UsageError, match=said):
        PrometheusAccess(**{**NOBODY, **chosen}).access("http://h", 5.0)


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ({}, {}),
        ({"token_file": "secret"}, {"Authorization": "Bearer s3cret"}),
        ({"user": "me", "password_file": "secret"}, {"Authorization": "Basic bWU6czNjcmV0"}),
        ({"headers": ("X-Scope-OrgID: gpu", "A:b:c", "E:")}, {"X-Scope-OrgID": "gpu", "A": "b:c", "E": ""}),
    ],
)
def test_who_asks_is_in_the_headers(
    given: Mapping[str, Any], header: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s3cret\n", "utf-8")
    files = {name: tmp_path / value if name.endswith("_file") else value for name, value in given.items()}
    made = PrometheusAccess(**{**NOBODY, **files}).access("http://h/", 5.0)
    assert (made.headers, made.url, made.timeout) == (header, "http://h", 5.0)


def test_a_name_with_a_colon_is_no_name(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n", "utf-8")
    with pytest.raises(click.UsageError, match="has no colon: 'a:b'"):
        PrometheusAccess(**{**NOBODY, "user": "a:b", "password_file": tmp_path / "secret"}).access(
            "http://h", 5.0
        )


def test_a_certificate_alone_may_have_its_key_in_it(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("none", "utf-8")
    with pytest.raises(AccessError, match="no certificate or key that can be used"):
        PrometheusAccess(**{**NOBODY, "cert_file": tmp_path / "cert"}).access("http://h", 5.0)


@each("header", ["no colon", ":value", "a b:c", "A:\u00e4", "A:b\nc", "A\u00e4:b"])
def test_what_is_no_header_is_refused(header: str) -> None:
    with pytest.raises(click.UsageError, match="--header must be NAME:VALUE"):
        PrometheusAccess(**{**NOBODY, "headers": (header,)}).access("http://h", 5.0)
