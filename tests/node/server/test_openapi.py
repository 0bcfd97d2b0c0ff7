"""The interface is as its OpenAPI document says, whatever is asked; and no request is an internal error."""

import asyncio
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import example, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok

from tests.examples import examples
from tests.support import Node
from wirewatch.page.content import PageContext
from wirewatch.server.api import DaemonView, application
from wirewatch.verdict.node import judge_state

STATES = {"well": (False, True), "broken": (True, False)}
"""Whether a link is down, and whether the loops turn and all has been read."""
DOCUMENTED = {"/metrics", "/livez", "/readyz", "/health"}


@cache
def served(state: str) -> FastAPI:
    broken, well = STATES[state]
    node = Node("h200x8")
    if broken:
        node.change("gpu2/Field(165,7)", "set", 0)
    node.poll(times=4)
    judged = judge_state(node.state)
    place = PageContext("gpu-17")
    return application(
        DaemonView(
            lambda: judged, lambda: well, lambda: well, lambda: 1.8e9, lambda: 1e6, "replay", place=place
        )
    )


def finding(app: FastAPI) -> str:
    """The id of the one finding."""
    _, _, body = asked(app, "GET", "/api/v1/findings")
    return body.partition(b'"id":"')[2].partition(b'"')[0].decode()


def asked(
    app: FastAPI, method: str, path: str, query: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the application's own answer; raises what it raises."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode("utf-8", "replace"), "query_string": query, "root_path": "",
        "headers": given, "server": ("testserver", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    names = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    return sent[0]["status"], names, b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize("state", STATES)
def test_every_answer_is_as_documented(state: str) -> None:
    """Status, content type and schema; also for names that no finding can have."""
    app = served(state)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        cases = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)

        @settings(max_examples=examples(20) if operation.path_parameters else 1)
        @given(case=cases)
        def conforms(case: "Case[Any]") -> None:
            reply = case.call()
            case.validate_response(reply, excluded_checks=[not_a_server_error])
            assert reply.status_code < 500 or case.operation.path in DOCUMENTED

        conforms()


def test_each_document_about_the_node_has_its_host() -> None:
    app = served("broken")
    paths = (
        "/health",
        "/api/v1/findings",
        f"/api/v1/findings/{finding(app)}",
        "/api/v1/status",
        "/api/v1/jobs",
    )
    assert {path: json.loads(asked(app, "GET", path)[2])["host"] for path in paths} == dict.fromkeys(
        paths, "gpu-17"
    )


def test_the_document_names_every_status_that_there_is() -> None:
    paths = json.loads(asked(served("broken"), "GET", "/openapi.json")[2])["paths"]
    assert set(paths["/health"]["get"]["responses"]) == {"200", "503"}
    for path in ("/livez", "/readyz"):
        assert set(paths[path]["get"]["responses"]) == {"200", "503"}
    assert {"200", "404"} <= set(paths["/api/v1/findings/{name}"]["get"]["responses"])
    assert set(paths["/metrics"]["get"]["responses"]["200"]["content"]) == {
        "text/plain",
        "application/openmetrics-text",
    }
    assert [asked(served("broken"), "GET", path)[0] for path in DOCUMENTED] == [
        200 if path == "/metrics" else 503 for path in DOCUMENTED
    ]


def test_models_of_answers_are_made_for_the_description_alone() -> None:
    routes = [route for route in served("well").routes if isinstance(route, APIRoute)]
    assert len(routes) > 10
    assert {route.response_field for route in routes} == {None}
    assert [route.path for route in routes if route.response_fields] == []


def test_a_finding_by_its_id_is_as_documented_too() -> None:
    app = served("broken")
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    case = schema["/api/v1/findings/{name}"]["GET"].Case(path_parameters={"name": finding(app)})
    assert case.call_and_validate().status_code == 200


PATHS = ("/", "/metrics", "/livez", "/health", "/openapi.json", "/api/v1/state", "/api/v1/findings/x")
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "get", "")
ANYTHING = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=60)
ACCEPT = st.lists(
    st.sampled_from(
        ["text/plain", "application/openmetrics-text", "*/*", "version=0.0.4", "version=abc", "q=0", "q=x",
         ";", ",", "=", '"', "escaping=allow-utf-8"]
    ),
    max_size=8,
).map(";".join)  # fmt: skip


@settings(max_examples=examples(300))
@given(
    method=st.sampled_from(METHODS) | st.text(max_size=5),
    path=st.sampled_from(PATHS) | st.builds("/{}".format, st.text(max_size=20)),
    query=st.binary(max_size=20) | st.just(b"refresh=5"),
    accept=ACCEPT | ANYTHING,
)
@example(method="GET", path="/metrics", query=b"", accept="application/openmetrics-text; version=abc")
def test_no_request_is_an_internal_error(method: str, path: str, query: bytes, accept: str) -> None:
    status, headers, body = asked(served("well"), method, path, query, {"accept": accept})
    assert status in {200, 307, 404, 405, 406}
    assert status != 405 or "GET" in headers["allow"]
    assert status != 200 or method in {"GET", "HEAD"}
    assert "content-type" in headers or not body
