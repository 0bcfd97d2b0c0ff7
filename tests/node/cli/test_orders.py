"""An operator's orders and questions: what is sent, and what counts as an answer."""

import json
import os
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter

from wirewatch import client
from wirewatch.cli import orders
from wirewatch.cli.orders import ask, body_or_reason, document_or_reason, order, release, user
from wirewatch.client import NoAnswer
from wirewatch.core.types import Unanswered

GOOD = b'{"schema": "wirewatch.release/1"}'


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a daemon answers, status and body, or raises; behind it what it was asked."""
    given: list[Any] = []

    def request(*asked: Any, **more: Any) -> tuple[int, bytes]:
        answer = given.pop(0)
        given.append((*asked, more))
        if isinstance(answer, Exception):
            raise answer
        status, body = answer
        return status, body

    monkeypatch.setattr(client, "request", request)
    return given


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, b"{}"), "not from this version"),
        ((200, b"[]"), "is not wirewatch"),
        ((200, b"no"), "is not wirewatch"),
        ((200, b"[" * 100_000), "is not wirewatch"),
        (NoAnswer("/s: nobody"), "/s: nobody"),
        ((200, b'{"schema": "other"}'), "not from this version"),
        ((422, b'"x"'), "is not wirewatch"),
        ((500, b"{}"), "/s: HTTP status 500 to /x: the daemon is busy, or it failed"),
        ((429, b"{}"), "/s: HTTP status 429 to /x: the daemon is busy, or it failed"),
    ],
)
def test_what_is_no_answer(answers: list[Any], answer: Any, words: str) -> None:
    answers.append(answer)
    with pytest.raises(Unanswered, match=words):
        ask("/s", "GET", "/x", None)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((409, b'{"detail": "not now"}'), "not now"),
        ((499, b"{}"), "refused, HTTP status 499"),
        ((201, GOOD), "refused, HTTP status 201"),
    ],
)
def test_what_is_refused(answers: list[Any], answer: Any, words: str) -> None:
    answers.append(answer)
    with pytest.raises(click.UsageError, match=words):
        ask("/s", "GET", "/x", None)


def test_an_order_is_a_document_to_a_known_daemon(answers: list[Any]) -> None:
    answers.append((200, GOOD))
    assert order("/s", "/release", {"by": "ann"}) == json.loads(GOOD)
    assert answers == [("/s", "POST", "/release", b'{"by": "ann"}', 10.0, {"known": True})]
    with pytest.raises(Unanswered, match="takes no orders"):
        order("", "/release", {})


@pytest.mark.parametrize(
    ("path", "answer", "told"),
    [
        ("", None, "the configuration names no socket of a daemon"),
        ("/s", NoAnswer("nobody"), "nobody"),
        ("/s", (503, b""), "/s: HTTP status 503 to /x: a daemon that is busy, or of an older version"),
        ("/s", (200, b"1"), 1),
        ("/s", (200, b'"x"'), "/s: the answer is not from this version of wirewatch"),
    ],
)
def test_a_question_gets_a_document_or_the_reason(
    answers: list[Any], path: str, answer: Any, told: Any
) -> None:
    answers.append(answer)
    assert document_or_reason(path, "/x", TypeAdapter(int)) == told
    answers[:] = [answer]
    assert isinstance(body_or_reason(path, "/x"), bytes) is (isinstance(answer, tuple) and answer[0] == 200)


def test_who_gives_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ann")
    assert user() == "ann"
    monkeypatch.setenv("SUDO_USER", "")
    monkeypatch.setattr("getpass.getuser", lambda: "bob")
    assert user() == "bob"

    def unknown() -> str:
        raise KeyError

    monkeypatch.setattr("getpass.getuser", unknown)
    assert user() == f"user {os.geteuid()}"


DONE = {"released": True, "why": "released until 10:00", "seconds_taken": 0.5, "stuck": [], "unsure": ""}


@pytest.mark.parametrize(
    ("words", "target", "said"),
    [
        ((), "/release", {"by": "ann", "seconds": 600.0}),
        (("--for", "2h"), "/release", {"by": "ann", "seconds": 7200.0}),
        (("--end", "--by", "bob"), "/resume", {"by": "bob"}),
        (("--by", "x" * 300), "/release", {"by": "x" * 200, "seconds": 600.0}),
    ],
)
def test_a_release_is_ordered(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], target: str, said: dict[str, Any]
) -> None:
    given: list[Any] = []

    def noted(*asked: Any) -> dict[str, Any]:
        given.append(asked)
        return DONE

    monkeypatch.setattr(orders, "order", noted)
    monkeypatch.setattr(orders, "user", lambda: "ann")
    done = CliRunner().invoke(release, ("--socket", "/run/w.sock", *words))
    assert (done.exit_code, given) == (0, [("/run/control.sock", target, said)])


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({}, 0, "released until 10:00; every handle was closed in 0.50 s"),
        ({"stuck": [7]}, 70, "process 7 cannot be killed and still holds GPUs"),
        ({"unsure": "who knows"}, 70, "the prober may still hold GPUs: who knows"),
        ({"released": False, "why": "asked"}, 0, "GPUs are watched: asked"),
    ],
)
def test_what_a_release_says(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], code: int, text: str
) -> None:
    monkeypatch.setattr(orders, "order", lambda *_: {**DONE, **changes})
    done = CliRunner().invoke(release, ("--socket", "/run/w.sock"))
    assert (done.exit_code, text in done.output) == (code, True)
    assert ("every handle" in done.output) is (changes == {})
    shown = CliRunner().invoke(release, ("--socket", "/run/w.sock", "--json"))
    assert json.loads(shown.stdout) == {**DONE, **changes}


def test_a_release_is_begun_or_ended() -> None:
    done = CliRunner().invoke(release, ("--end", "--for", "1m"))
    assert (done.exit_code, "give either --for or --end" in done.output) == (2, True)
