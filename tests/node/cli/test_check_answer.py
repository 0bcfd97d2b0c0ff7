"""From a daemon's document to an answer: what may be lost on the way, and what never."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.node.cli import replies
from tests.node.cli.schemas import complaints
from tests.rows import each
from wirewatch.cli.check import answer as module
from wirewatch.cli.check import daemon as module_of_daemon
from wirewatch.cli.check.answer import (
    CheckAnswer,
    GatePolicy,
    Grounds,
    Terms,
    decide,
    document,
    line,
    nothing,
)
from wirewatch.cli.check.daemon import (
    BusyDaemon,
    DaemonAddress,
    StaleAnswer,
    WrongAnswer,
    ask_daemon,
    daemon_address,
    read_health,
)
from wirewatch.client import NoAnswer
from wirewatch.core.answer import plain, shortened
from wirewatch.core.types import LEVELS, Health, OperatorNote, Unusable
from wirewatch.core.words import short_span
from wirewatch.documents.health import (
    HEALTH_NAMES,
    CheckDocument,
    CheckFinding,
    NodeFinding,
    ProbeStatus,
    SameCause,
)

OK, DEGRADED, UNKNOWN, FAILED = Health
NOW = 1_795_000_000.0
NAMES = tuple(health.name.lower() for health in Health)
terms = st.builds(
    Terms,
    fail_on=st.none() | st.frozensets(st.sampled_from(Health)),
    max_age=st.none() | st.floats(0, 1e6),
    require=st.booleans(),
)
probes = st.none() | st.fixed_dictionaries(
    {
        "at": st.floats(0, 2e9), "age_seconds": st.none() | st.floats(0, 1e7), "fresh": st.booleans(),
        "required": st.booleans(),
    }
)  # fmt: skip
fail_on_lists = st.lists(st.sampled_from(NAMES[1:3]), unique=True).map(lambda names: [*names, "failed"])
newer = st.fixed_dictionaries(
    {}, optional={"probe_exempt": st.booleans(), "suppressed": st.just([replies.finding()])}
)


def told_by(
    told: str, findings: list[str], probe: Any, released: float, fail_on: list[str], more: dict[str, Any]
) -> dict[str, Any]:
    """A document that does not contradict itself."""
    return replies.health(
        NOW, told, *map(replies.finding, findings), probe=probe, released_until=released, fail_on=fail_on,
        job_ready=told not in fail_on, **more,
    )  # fmt: skip


documents = st.builds(
    told_by,
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(NAMES), max_size=3),
    probes,
    st.sampled_from((0.0, NOW - 5, NOW + 500)),
    fail_on_lists,
    newer,
)
PROBE = {"at": NOW - 650, "age_seconds": 600.0, "fresh": True, "required": False}
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def read(document: object, now: float = NOW) -> Grounds:
    return read_health(json.dumps(document).encode(), now)


def answer(document: object, wanted: Terms) -> tuple[CheckAnswer, bool]:
    """The answer to a document, and whether it was understood."""
    try:
        return decide(read(document), wanted, NOW), True
    except (WrongAnswer, StaleAnswer):
        return decide(nothing("not understood"), wanted, NOW), False


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every way that leads to something in a document."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*before, name)
            yield from places(inner, (*before, name))


def at(document: Any, place: tuple[Any, ...]) -> Any:
    for name in place:
        document = document[name]
    return document


def starts_no_more(document: Any, place: tuple[Any, ...], wanted: Terms) -> None:
    """A job that does not start by the whole document does not start by one that has lost this place.

    Where the rest is not understood it is UNKNOWN, which starts a job where whoever asks has said so.
    """
    whole, understood = answer(document, wanted)
    assert understood
    less = copy.deepcopy(document)
    del at(less, place[:-1])[place[-1]]
    lost, understood = answer(less, wanted)
    if understood:
        assert lost.health >= whole.health
        assert whole.may_start or not lost.may_start
    else:
        starts = wanted.fail_on is not None and UNKNOWN not in wanted.fail_on
        assert (lost.health, lost.may_start) == (UNKNOWN, starts and not wanted.require)


@given(documents, terms, st.data())
def test_what_is_lost_of_a_document_starts_no_job(document: Any, wanted: Terms, data: st.DataObject) -> None:
    starts_no_more(document, data.draw(st.sampled_from(list(places(document)))), wanted)


@pytest.mark.parametrize("wanted", [Terms(), Terms(frozenset({FAILED})), Terms(require=True)])
@pytest.mark.parametrize("released", [0.0, NOW + 500])
@pytest.mark.parametrize("fail_on", [["failed"], ["unknown", "failed"], ["degraded", "unknown", "failed"]])
@pytest.mark.parametrize("told", NAMES)
def test_no_place_of_a_document_may_be_lost(
    told: str, fail_on: list[str], released: float, wanted: Terms
) -> None:
    document = told_by(told, ["failed"], PROBE, released, fail_on, {"probe_exempt": True, "suppressed": []})
    for place in places(document):
        starts_no_more(document, place, wanted)


@each(
    ("told", "released", "starts"), [("ok", 0.0, True), ("degraded", 0.0, True), ("unknown", 0.0, False),
    ("failed", 0.0, False), ("ok", NOW + 500, False)],
)  # fmt: skip
def test_a_daemon_without_the_newer_keys_is_understood(told: str, released: float, *, starts: bool) -> None:
    """One of 0.1: by the set of healths that it had."""
    old = told_by(told, [], PROBE, released, ["unknown", "failed"], {})
    del old["fail_on"]
    got, understood = answer(old, Terms())
    assert (understood, got.may_start, got.fail_on) == (True, starts, frozenset({UNKNOWN, FAILED}))


@pytest.mark.parametrize("told", ["ok", "degraded"])
def test_a_daemon_that_contradicts_itself_starts_no_job(told: str) -> None:
    document = replies.health(NOW, told, fail_on=["unknown", "failed"], job_ready=False)
    assert not answer(document, Terms())[0].may_start


@given(documents, terms, junk, st.data())
def test_nonsense_in_a_place_that_decides_is_no_answer(
    document: Any, wanted: Terms, nonsense: Any, data: st.DataObject
) -> None:
    decisive = ("schema", "health", "polled_at", "turning", "released_until", "probe", "findings", "fail_on")
    for name in decisive:
        other = {**document, name: nonsense}
        got, understood = answer(other, wanted)
        if understood and name != "probe":
            assert type(nonsense) in {bool, int, float, list}
        if not understood:
            assert got.health is UNKNOWN
    place = data.draw(st.sampled_from(list(places(document))))
    changed = copy.deepcopy(document)
    at(changed, place[:-1])[place[-1]] = nonsense
    answer(changed, wanted)


@given(st.binary() | junk.map(lambda value: json.dumps(value).encode()))
def test_whatever_answers_is_a_document_or_none(body: bytes) -> None:
    with pytest.raises((WrongAnswer, StaleAnswer)):
        read_health(body, NOW)


@given(documents, junk)
def test_what_a_newer_daemon_says_besides_changes_nothing(document: Any, more: Any) -> None:
    wider = copy.deepcopy(document)
    for place in [(), *places(document)]:
        inner = at(wider, place)
        if isinstance(inner, dict):
            inner["newly_told"] = "a level of it" if place[-1:] == ("subject",) else more
    assert read(wider) == read(document)


@each(
    ("changes", "told"),
    [
        ({"schema": "wirewatch.health/2"}, "its schema is 'wirewatch.health/2'"),
        ({"health": "splendid"}, "'health' is not one of ok, degraded, unknown, failed: 'splendid'"),
        ({"polled_at": -1.0}, "'polled_at' is not a number of seconds"),
        ({"polled_at": 10**400}, "'polled_at' is not a number of seconds"),
        ({"polled_at": True}, "'polled_at' is not a number of seconds"),
        ({"turning": 1}, "'turning' is neither true nor false"),
        ({"probe": {"at": 0.0, "fresh": True, "required": False}}, "'probe' has no 'age_seconds'"),
        ({"findings": [{}]}, "one of 'findings' has no 'rule'"),
        ({"findings": [replies.finding(subject=[])]}, "'subject' is not an object"),
        ({"findings": [replies.finding(subject={"gpu": 3})]}, "'gpu' is not a string"),
        ({"findings": [replies.finding(times=1.5)]}, "'times' is not a whole number"),
        ({"findings": None}, "'findings' is not a list"),
    ],
)
def test_nonsense_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(WrongAnswer) as caught:
        read(replies.health(NOW, "ok", **changes))
    assert told in str(caught.value)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"{" + b'"a":{' * 50_000, b'{"polled_at": NaN}', b"\xff"])
def test_bodies_that_break_parsers_are_no_answer(body: bytes) -> None:
    with pytest.raises(WrongAnswer, match="not JSON"):
        read_health(body, NOW)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"polled_at": NOW - 61}, "last polled 61 s ago"),
        ({"polled_at": NOW + 61}, "last polled -61 s ago"),
        ({"polled_at": 0.0}, "it has not polled yet"),
        ({"turning": False}, "has stopped"),
    ],
)
def test_a_daemon_that_does_not_watch_is_no_answer(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(StaleAnswer, match=told):
        read(replies.health(NOW, "ok", **changes))


def test_a_probe_without_an_age_is_not_fresh() -> None:
    probe = {"at": 0.0, "age_seconds": None, "fresh": True, "required": True}
    got = decide(read(replies.health(NOW, "ok", probe=probe)), Terms(), NOW)
    assert got.grounds.probe is not None
    assert (got.grounds.probe.fresh, got.may_start) == (False, False)


@pytest.mark.parametrize("fail_on", ["5", "true", '"failed"', "{failed = 1}", '["bad"]', "[[]]", '["ok"]'])
def test_healths_of_a_configuration_are_a_list_of_their_names(tmp_path: Path, fail_on: str) -> None:
    config = tmp_path / "wirewatch.toml"
    config.write_text(f"[policy.verdict]\nfail_on = {fail_on}\n", "utf-8")
    with pytest.raises(Unusable, match=r"policy\.verdict\.fail_on: not a list of healths"):
        daemon_address(None, config)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[listen]\nsocket = 5\n", "listen.socket: not a string: 5"),
        ("[policy.verdict]\nrequire_fresh_probe = 1\n", "require_fresh_probe: not true or false: 1"),
    ],
)
def test_a_key_of_another_type_is_named(tmp_path: Path, text: str, why: str) -> None:
    config = tmp_path / "wirewatch.toml"
    config.write_text(text, "utf-8")
    with pytest.raises(Unusable, match=why):
        daemon_address(None, config)


def test_the_terms_and_the_socket_of_a_configuration(tmp_path: Path) -> None:
    config = tmp_path / "wirewatch.toml"
    verdict = '[policy.verdict]\nrequire_fresh_probe = true\nfail_on = ["degraded"]\n'
    config.write_text(f'[listen]\nsocket = "/s"\n{verdict}', "utf-8")
    policy = GatePolicy(required=True, fail_on=frozenset({FAILED, DEGRADED}))
    assert daemon_address(None, config) == DaemonAddress("/s", policy)
    assert daemon_address("/other", config) == DaemonAddress("/other", policy)
    assert daemon_address("", config) == DaemonAddress("", policy)
    assert daemon_address("/other", None) == DaemonAddress("/other")
    config.write_text("policy = 5\nlisten = []\n", "utf-8")
    assert daemon_address("", config) == DaemonAddress("", GatePolicy(fail_on=frozenset({UNKNOWN, FAILED})))


BUSY, GONE, SLOW = BusyDaemon("busy"), NoAnswer("gone", there=False), NoAnswer("slow")


@pytest.mark.parametrize(
    ("answers", "seconds", "asked", "said"),
    [
        ([BUSY], 0.25, 3, "busy, asked again for 0.25 s"),
        ([BUSY], 0.0, 1, "busy, asked again for 0 s"),
        ([BUSY, SLOW], 0.25, 3, "busy, asked again for 0.25 s"),
        ([BUSY, BusyDaemon("else")], 0.25, 3, "busy, asked again for 0.25 s"),
        ([SLOW], 9.0, 1, "slow"),
        ([GONE], 9.0, 1, "gone"),
        ([BUSY, GONE], 9.0, 2, "gone"),
        ([BUSY, WrongAnswer("odd")], 9.0, 2, "/s: odd"),
        ([StaleAnswer("old")], 9.0, 1, "/s: old"),
    ],
)
def test_a_daemon_that_has_no_time_is_asked_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch, answers: list[Exception], seconds: float, asked: int, said: str
) -> None:
    """By a clock that counts milliseconds and that only sleep moves; the last answer goes on."""
    clock, given, raised = [0], list[float](), list[Exception]()

    def sleep(wait: float) -> None:
        clock[0] += round(wait * 1000)

    def ask(_path: str, left: float) -> Grounds:
        given.append(left)
        raised.append(answers[min(len(given), len(answers)) - 1])
        raise raised[-1]

    heard: list[str] = []
    watch = SimpleNamespace(monotonic=lambda: clock[0] / 1000, sleep=sleep)
    monkeypatch.setattr(module_of_daemon, "time", watch)
    monkeypatch.setattr(module_of_daemon, "_asked", ask)
    assert ask_daemon("/s", seconds, heard.append) == said
    assert given == [pytest.approx(seconds - n / 10) for n in range(asked)]
    assert heard == ["busy"] * sum(isinstance(one, BusyDaemon) for one in raised)


def test_a_daemon_that_has_released_the_gpus_is_not_stale_but_unknown() -> None:
    """And nobody else may touch them either."""
    document = replies.health(NOW, "ok", polled_at=NOW - 300, turning=False, released_until=NOW + 120)
    grounds = read(document)
    assert (grounds.health, grounds.released, grounds.source) == (UNKNOWN, True, "daemon")
    assert "released for another 120 s" in grounds.why
    assert read({**document, "health": "failed"}).health is FAILED
    assert not read(replies.health(NOW, "ok", released_until=NOW - 1)).released


@each(
    ("health", "fail_on", "code"),
    [
        (OK, {FAILED}, 0), (DEGRADED, {FAILED}, 0), (UNKNOWN, {FAILED}, 0), (FAILED, {FAILED}, 2),
        (FAILED, set(), 2), (DEGRADED, {FAILED, DEGRADED}, 1), (UNKNOWN, {FAILED, DEGRADED}, 0),
        (UNKNOWN, {FAILED, UNKNOWN}, 3), (OK, {FAILED, UNKNOWN, DEGRADED}, 0),
    ],
)  # fmt: skip
def test_the_exit_code_is_the_health_where_that_is_to_fail(
    health: Health, fail_on: set[Health], code: int
) -> None:
    given = decide(Grounds(health, "daemon"), Terms(frozenset(fail_on)), NOW)
    assert (given.code, given.may_start) == (code, code == 0)


@pytest.mark.parametrize("fail_on", [{FAILED}, {FAILED, UNKNOWN}, {FAILED, UNKNOWN, DEGRADED}])
@pytest.mark.parametrize("health", Health)
def test_without_a_word_on_the_command_line_the_nodes_own_terms_hold(
    health: Health, fail_on: set[Health]
) -> None:
    grounds = Grounds(health, "daemon", fail_on=frozenset(fail_on))
    assert decide(grounds, Terms(), NOW).may_start == (health not in fail_on)
    assert decide(grounds, Terms(frozenset({FAILED})), NOW).may_start == (health is not FAILED)


YOUNG = ProbeStatus(NOW - 650, 600.0, fresh=True, required=False)
OLD = ProbeStatus(NOW - 9000, 8950.0, fresh=False, required=False)
NEVER = ProbeStatus(0.0, None, fresh=False, required=False)


@each(
    ("probe", "max_age", "fresh"),
    [
        (YOUNG, None, True), (YOUNG, 600.0, True), (YOUNG, 599.0, False), (OLD, None, False),
        (OLD, 86400.0, True), (NEVER, 1e9, False), (NEVER, None, False),
    ],
)  # fmt: skip
def test_a_probe_is_as_old_as_it_may_be(probe: ProbeStatus, max_age: float | None, *, fresh: bool) -> None:
    """An old one is told; it blocks only where a fresh one is required, by whoever asks or by the policy."""
    grounds = Grounds(OK, "daemon", probe=probe)
    plain = decide(grounds, Terms(max_age=max_age), NOW)
    assert plain.grounds.probe is not None
    assert (plain.grounds.probe.fresh, plain.code, plain.health) == (fresh, 0, OK)
    asked = decide(grounds, Terms(max_age=max_age, require=True), NOW)
    policy = decide(Grounds(OK, "daemon", probe=probe, required=True), Terms(max_age=max_age), NOW)
    expected = (0, OK) if fresh else (3, UNKNOWN)
    assert (asked.code, asked.health) == (policy.code, policy.health) == expected
    lenient = decide(grounds, Terms(frozenset({FAILED}), max_age, require=True), NOW)
    assert (UNKNOWN in lenient.fail_on) is not fresh


def test_where_nothing_is_known_of_probes_a_required_one_is_not_there() -> None:
    assert decide(Grounds(OK, "own"), Terms(require=True), NOW).code == 3
    lenient = frozenset({FAILED})
    assert decide(nothing("", GatePolicy(required=True, fail_on=lenient)), Terms(), NOW).code == 3
    assert decide(nothing("", GatePolicy(fail_on=lenient)), Terms(), NOW).code == 0
    assert decide(nothing(""), Terms(), NOW).code == 3


def test_of_what_nothing_is_expected_is_a_word_of_the_line_and_no_finding() -> None:
    unknown = replace(YOUNG, no_expectation=["all_gather", "reduce_scatter"])
    given = decide(Grounds(OK, "daemon", probe=unknown), Terms(), NOW)
    assert line(given) == "OK; no expected bandwidth here for all_gather, reduce_scatter"
    assert (given.code, document(given)["findings"]) == (0, [])
    assert document(given)["probe"]["no_expectation"] == ["all_gather", "reduce_scatter"]


def test_a_daemon_that_says_nothing_of_expectations_is_understood() -> None:
    """One of 0.1."""
    probe = {"at": NOW - 650, "age_seconds": 600.0, "fresh": True, "required": False}
    assert read(replies.health(NOW, "ok", probe=probe)).probe == YOUNG
    newer = read(replies.health(NOW, "ok", probe={**probe, "no_expectation": ["all_gather"]}))
    assert newer.probe == replace(YOUNG, no_expectation=["all_gather"])


@given(
    health=st.sampled_from(Health),
    wanted=terms,
    probe=st.sampled_from((None, YOUNG, OLD, NEVER)),
    required=st.booleans(),
)
def test_to_ask_for_more_never_starts_a_job(
    health: Health, wanted: Terms, probe: ProbeStatus | None, *, required: bool
) -> None:
    given = decide(Grounds(health, "daemon", probe=probe, required=required), wanted, NOW)
    stricter = decide(Grounds(health, "daemon", probe=probe, required=True), wanted, NOW)
    assert given.health >= health
    assert stricter.health >= given.health
    assert given.may_start or not stricter.may_start
    assert FAILED in given.fail_on


CHECK = TypeAdapter(CheckDocument)
DOWN = CheckFinding(
    "0123abcd", "live", "nvlink.link_down", "failed", {"gpu": "3", "uuid": "GPU-3", "link": "5"},
    "down in 3 polls", "reset the GPU", 100.0,
)  # fmt: skip
UNREAD = SameCause("gpu.blind", "unknown", {"gpu": "3"}, "lost", "reboot", 90.0, "4567abcd")
HUSHED = NodeFinding(
    "pcie.width", "failed", {"gpu": "3"}, "x8", "reseat it", 90.0, "4567abcd", "suppressed", 1, 0.0, None,
    OperatorNote("ann", "part is ordered", NOW - 60), NOW,
)  # fmt: skip
WARM = CheckFinding("", "", "gpu.throttled", "degraded", {"gpu": "1"}, "half of it.", "see the fans", 90.0)
TWO_HOURS_OLD = ProbeStatus(NOW - 9000, 7200.0, fresh=False, required=False)
texts = st.text() | st.text(alphabet=st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")))
findings = st.builds(
    CheckFinding,
    rule=texts,
    health=st.sampled_from(tuple(HEALTH_NAMES.values())),
    subject=st.dictionaries(st.sampled_from(LEVELS), texts),
    evidence=texts,
    action=texts,
    since=st.floats(0, 2e9),
    id=texts,
    stage=st.sampled_from(("", "live", "latched", "probation", "repaired", "suppressed")),
)
grounds = st.builds(
    Grounds,
    health=st.sampled_from(Health),
    source=st.sampled_from(("daemon", "own", "none")),
    why=texts,
    verdict_at=st.floats(0, 2e9),
    findings=st.lists(findings, max_size=4).map(tuple),
    probe=st.sampled_from((None, YOUNG, TWO_HOURS_OLD, NEVER)),
    required=st.booleans(),
    exempt=st.booleans(),
    suppressed=st.lists(st.just(HUSHED), max_size=2).map(tuple),
)


def said(told: Grounds) -> str:
    return line(decide(told, Terms(), NOW))


@each(
    ("told", "words"),
    [
        (Grounds(Health.OK, "daemon", probe=YOUNG), "OK"),
        (Grounds(Health.OK, "daemon", probe=TWO_HOURS_OLD), "OK; the last probe is 2 h old"),
        (Grounds(Health.OK, "daemon", probe=NEVER), "OK; no probe yet"),
        (Grounds(Health.OK, "daemon"), "OK"),
        (Grounds(Health.UNKNOWN, "none", "nobody there"), "UNKNOWN; nobody there"),
        (
            Grounds(Health.FAILED, "daemon", findings=(WARM, DOWN), probe=YOUNG),
            "FAILED nvlink.link_down GPU 3 link 5: down in 3 polls. reset the GPU; 1 more finding",
        ),
        (
            Grounds(Health.DEGRADED, "own", "nobody", findings=(WARM, WARM, WARM), probe=NEVER),
            "DEGRADED gpu.throttled GPU 1: half of it. see the fans; nobody; no probe yet; 2 more findings",
        ),
        (
            Grounds(Health.OK, "own", required=True),
            "UNKNOWN; a fresh probe is required, and probing is switched off or not known",
        ),
        (Grounds(Health.OK, "own", required=True, exempt=True), "OK"),
        (
            Grounds(Health.FAILED, "daemon", findings=(replace(DOWN, same_cause=[UNREAD, UNREAD]),)),
            "FAILED nvlink.link_down GPU 3 link 5: down in 3 polls. reset the GPU; same cause: gpu.blind",
        ),
        (
            Grounds(Health.OK, "daemon", suppressed=(HUSHED, replace(HUSHED, health="ok"))),
            "OK; suppressed until 2026-11-18T11:06Z: FAILED pcie.width GPU 3",
        ),
        (
            Grounds(Health.OK, "daemon", suppressed=(HUSHED, HUSHED, HUSHED)),
            "OK; suppressed until 2026-11-18T11:06Z: FAILED pcie.width GPU 3 and 2 more",
        ),
    ],
)
def test_the_line_has_the_worst_first(told: Grounds, words: str) -> None:
    assert said(told) == words


def test_what_is_not_known_has_its_reason_also_where_that_is_suppressed() -> None:
    blind = replace(HUSHED, rule="inventory.blind", health="unknown", evidence="no driver", subject={})
    unknown = decide(Grounds(Health.UNKNOWN, "daemon", suppressed=(HUSHED, blind)), Terms(), 0.0)
    assert line(unknown).startswith("UNKNOWN: no driver; suppressed until ")
    assert "no driver" not in line(decide(Grounds(Health.OK, "daemon", suppressed=(blind,)), Terms(), 0.0))


def test_what_is_suppressed_is_no_reason() -> None:
    hidden = replace(DOWN, stage="suppressed")
    assert said(Grounds(Health.DEGRADED, "daemon", findings=(hidden, WARM))) == (
        "DEGRADED gpu.throttled GPU 1: half of it. see the fans"
    )


@given(told=grounds, require=st.booleans())
def test_the_line_is_one_line_whatever_is_reported(told: Grounds, *, require: bool) -> None:
    given = decide(told, Terms(require=require), NOW)
    text = line(given)
    assert text.splitlines() == [text]
    assert all(c.isprintable() for c in text)
    assert len(text.encode()) <= 250
    assert text.startswith(given.health.name)


@given(told=grounds, max_age=st.sampled_from((None, 0.0, 1e9)), require=st.booleans())
def test_every_document_is_as_its_schema_says(told: Grounds, max_age: float | None, *, require: bool) -> None:
    made = document(decide(told, Terms(max_age=max_age, require=require), NOW))
    read = CHECK.validate_json(json.dumps(made), strict=True)
    assert CHECK.dump_python(read) == made


def test_the_document_gives_all_findings_and_what_was_applied() -> None:
    told = Grounds(Health.FAILED, "daemon", "", NOW - 3, (DOWN, WARM), YOUNG)
    made: dict[str, Any] = document(decide(told, Terms(max_age=60.0, require=True), NOW))
    assert (made["health"], made["may_start"], made["fail_on"]) == ("failed", False, ["unknown", "failed"])
    applied = {"at": NOW - 650, "age_seconds": 600.0, "fresh": False, "required": True}
    assert made["probe"] == {**applied, "no_expectation": []}
    assert [row["id"] for row in made["findings"]] == ["0123abcd", ""]
    assert made["verdict_at"] == NOW - 3
    assert complaints("wirewatch.check.1", json.dumps(made)) == []


@given(st.text(), st.integers(4, 60))
def test_a_text_is_cut_between_two_characters(text: str, limit: int) -> None:
    text = plain(text)
    cut = shortened(text, limit)
    assert len(cut.encode()) <= limit
    assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))


@each(
    ("seconds", "words"),
    [(0.0, "0 s"), (59.4, "59 s"), (60.0, "1 min"), (3599.0, "60 min"), (7200.0, "2 h"), (2e6, "23 d")],
)
def test_ages_are_in_units_of_people(seconds: float, words: str) -> None:
    assert short_span(seconds) == words


def test_a_line_has_250_bytes_at_most() -> None:
    assert shortened("x" * 250) == "x" * 250
    assert shortened("x" * 251) == "x" * 247 + "…"


def order(name: str, at: float = 1.0) -> dict[str, Any]:
    return {
        "order": name, "what": f"xid.79 GPU {at:g}", "health": "failed", "by": "ann", "why": "reset",
        "at": at, "until": 0.0, "undo": "wirewatch findings repaired d1fac7e2 --undo",
    }  # fmt: skip


@each(
    ("orders", "told"),
    [
        ([], "OK; on gpu-17"),
        ([order("repaired")], "OK; repaired by ann: xid.79 GPU 1; on gpu-17"),
        (
            [order("accept"), order("repaired", 2.0)],
            "OK; repaired by ann: xid.79 GPU 2 and 1 more; on gpu-17",
        ),
        (
            [order("accept", 3.0), order("repaired")],
            "OK; accepted by ann: xid.79 GPU 3 and 1 more; on gpu-17",
        ),
        ([order("suppress")], "OK; on gpu-17"),
    ],
)
def test_an_order_that_opened_the_gate_shows(orders: list[dict[str, Any]], told: str) -> None:
    """One that suppresses stands in the line by its finding."""
    grounds = read(replies.health(NOW, "ok", orders=orders, host="gpu-17"))
    answer = decide(grounds, Terms(), NOW)
    assert line(answer) == told
    made = document(answer)
    assert (made["orders"], made["host"]) == (orders, "gpu-17")


@pytest.mark.parametrize("required", [True, False])
def test_of_a_fresh_probe_nothing_is_said(*, required: bool) -> None:
    probe = SimpleNamespace(fresh=True, no_expectation=[])
    grounds = SimpleNamespace(suppressed=[], orders=[], why="", probe=probe)
    more = vars(module)["_more"](SimpleNamespace(grounds=grounds, required=required), [], None)
    assert list(more) == []
