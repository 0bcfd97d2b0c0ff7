"""The client of the API server: whom it asks by which configuration, and what a failure means."""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Self

import pytest
from kubernetes_asyncio.client.exceptions import ApiException

from tests.fleet.controller.leading import jumping
from tests.node.kubernetes.apiserver import certify
from tests.rows import each
from wirewatch.kubernetes.apiserver import ApiEndpoint, Outcome, RequestResult
from wirewatch_fleet.kubeclient import (
    PAGE,
    WHOLE,
    RequestFailed,
    answered,
    client_for,
    failed,
    good_bytes,
    pages,
)

FORBIDDEN = ApiException(status=403)
FORBIDDEN.body = '{"message": "no right"}'  # type: ignore[assignment]  # as the library has it


@each(
    ("error", "result", "detail"),
    [
        (FORBIDDEN, RequestResult.FORBIDDEN, "403: no right"),
        (ApiException(status=500), RequestResult.SERVER_ERROR, "500"),
        (ApiException(status=0, reason="SSLError"), RequestResult.UNREACHABLE, "(0)\nReason: SSLError\n"),
        (TimeoutError("late"), RequestResult.UNREACHABLE, "no answer in time"),
        (OSError("reset"), RequestResult.UNREACHABLE, "reset"),
        (OSError(), RequestResult.UNREACHABLE, "OSError"),
        (ValueError("no JSON"), RequestResult.STRANGE, "no JSON"),
        (ssl.SSLCertVerificationError("expired"), RequestResult.UNREACHABLE, "('expired',)"),
    ],
)
def test_what_a_failure_means(error: Exception, result: RequestResult, detail: str) -> None:
    assert failed(error).outcome == Outcome(result, detail)


@pytest.mark.parametrize(("detail", "said"), [("403: no right", "403: no right"), ("", "forbidden")])
def test_a_failure_says_what_is_known_of_it(detail: str, said: str) -> None:
    assert str(RequestFailed(Outcome(RequestResult.FORBIDDEN, detail))) == said


@each("result", RequestResult)
def test_only_what_got_no_answer_may_have_been_done(result: RequestResult) -> None:
    unanswered = result in {RequestResult.UNREACHABLE, RequestResult.SERVER_ERROR}
    assert RequestFailed(Outcome(result)).unanswered is unanswered


@pytest.mark.parametrize(("host", "asked"), [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]")])
def test_a_pod_asks_with_its_token_as_it_is_now(host: str, asked: str, tmp_path: Path) -> None:
    certify(tmp_path)
    token = tmp_path / "token"
    token.write_text("first\n", "ascii")

    async def run() -> None:
        async with await client_for(ApiEndpoint(host, 6443, tmp_path, "")) as client:
            settings = client.configuration
            assert settings.host == f"https://{asked}:6443"
            assert settings.api_key["BearerToken"] == "Bearer first"
            token.write_text("second\n", "ascii")
            settings.refresh_api_key_hook(settings)
            assert settings.api_key["BearerToken"] == "Bearer second"

    asyncio.run(run())


CLUSTER = """
current-context: c
contexts: [{{name: c, context: {{cluster: a, user: u}}}}]
clusters: [{{name: a, cluster: {{server: "https://{}:1"}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""


@pytest.mark.parametrize(
    ("named", "asked"),
    [("", "home"), ("one", "one"), ("none:one", "one"), (":one", "one")],
)
def test_outside_of_a_pod_it_asks_whom_kubectl_would(
    named: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(CLUSTER.format("home"), "utf-8")
    (tmp_path / "one").write_text(CLUSTER.format("one"), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", named)

    async def run() -> None:
        async with await client_for(None) as client:
            assert client.configuration.host == f"https://{asked}:1"

    asyncio.run(run())


@pytest.mark.parametrize("named", ["none", "none:neither"])
def test_a_configuration_that_is_not_there_is_named(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", named)
    with pytest.raises(FileNotFoundError, match=f"there is no {named}, the configuration of kubectl"):
        asyncio.run(client_for(None))


class Answer:
    """Return the result of a call."""

    def __init__(self, status: int, text: bytes) -> None:
        self.status, self.text, self.headers = status, text, dict[str, str]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def read(self) -> bytes:
        return self.text


@pytest.mark.parametrize(("status", "good"), [(200, True), (299, True), (300, False), (404, False)])
def test_only_a_good_status_is_an_answer(status: int, *, good: bool) -> None:
    async def call(**_: Any) -> Answer:
        return Answer(status, b"{}")

    async def run() -> None:
        if good:
            assert await good_bytes(5.0, call) == b"{}"
        else:
            with pytest.raises(RequestFailed):
                await good_bytes(5.0, call)

    asyncio.run(run())


def test_a_list_is_read_page_by_page() -> None:
    """The version is that of the last; an empty word for more is none."""
    asked = []

    async def call(**given: Any) -> Answer:
        asked.append((given["limit"], given["_continue"]))
        more = {"": '"continue": "x", "resourceVersion": "7"', "x": '"continue": "", "resourceVersion": "8"'}
        return Answer(200, b'{"items": [1], "metadata": {%s}}' % more[given["_continue"]].encode())

    found, version = asyncio.run(pages(5.0, call))
    assert (len(found), version) == (2, "8")
    assert asked == [(250, ""), (250, "x")]
    assert PAGE == 250


def asked(*answers: bytes, takes: float = 0.0) -> RequestFailed | list[Any]:
    """The list, or the failure, where the API server answers so with status 200, the last answer for ever."""
    left = [*answers]

    async def call(**_: Any) -> Answer:
        await asyncio.sleep(takes)
        return Answer(200, left.pop(0) if len(left) > 1 else left[0])

    async def run() -> RequestFailed | list[Any]:
        try:
            return (await pages(60.0, call))[0]
        except RequestFailed as error:
            return error

    return jumping(run)


@each(
    ("text", "said"),
    [
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{", "not JSON: Expecting property name"),
        (b"[" * 100_000, "not JSON: "),
        (b'{"metadata": {}}', "not a list"),
        (b'{"items": {"a": 1}, "metadata": {}}', "not a list"),
        (b'{"items": []}', "not a list"),
        (b'{"items": [], "metadata": null}', "not a list"),
        (
            b'{"kind": "Status", "status": "Failure", "message": "no quorum", "items": [], "metadata": {}}',
            "a refusal with a good status: no quorum",
        ),
    ],
)
def test_an_answer_that_is_no_list_is_one_failure_in_words(text: bytes, said: str) -> None:
    """Before: a traceback, and the end of the controller."""
    error = asked(text)
    assert isinstance(error, RequestFailed)
    assert error.outcome.result is RequestResult.STRANGE
    assert error.outcome.detail.startswith(said)


def test_a_list_of_nothing_may_be_null() -> None:
    assert asked(b'{"items": null, "metadata": {}}') == []


def test_a_list_that_never_ends_is_a_failure_after_a_while() -> None:
    error = asked(b'{"items": [1], "metadata": {"continue": "x"}}', takes=1.0)
    assert isinstance(error, RequestFailed)
    assert error.outcome.detail == f"a list without an end: {int(WHOLE) - 1} so far"


def test_that_something_was_deleted_is_a_good_answer() -> None:
    async def call(**_: Any) -> Answer:
        return Answer(200, b'{"kind": "Status", "status": "Success"}')

    assert asyncio.run(answered(5.0, call))["status"] == "Success"
