"""The session with an API server, over TLS and against one in this process: what it is told, and refusals."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.leaderelection.leaderelectionrecord import LeaderElectionRecord

from tests.fleet.controller.api import TOKEN, NodesApi, serving
from tests.fleet.controller.drawn import raw
from tests.fleet.controller.leading import jumping, passed
from wirewatch.kubernetes.apiserver import RequestResult
from wirewatch_fleet.controller import cluster
from wirewatch_fleet.controller.cluster import ClusterSession, connected
from wirewatch_fleet.kubeclient import PAGE, RequestFailed


def play(api: NodesApi, folder: Path, script: Callable[[ClusterSession], Awaitable[None]]) -> None:
    async def run() -> None:
        async with serving(api, folder) as where, connected(where) as session:
            await script(session)

    asyncio.run(run())


def test_all_pages_of_a_list_are_read_and_each_request_has_the_token(tmp_path: Path) -> None:
    api = NodesApi(*(raw(f"n{number:03}") for number in range(2 * PAGE + 3)))

    async def script(session: ClusterSession) -> None:
        found, version = await session.nodes("")
        assert [one["metadata"]["name"] for one in found] == sorted(api.nodes)
        assert version == str(api.version)

    play(api, tmp_path, script)
    assert api.tokens == {f"Bearer {TOKEN}"}


def test_a_watch_gives_changes_and_no_bookmarks(tmp_path: Path) -> None:
    api = NodesApi(raw("a"))

    async def script(session: ClusterSession) -> None:
        changes = session.changes("", "1")
        first = asyncio.ensure_future(anext(changes))
        while not api.watched:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
        api.say({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}, "kind": "Node"}})
        api.put(raw("b"), "ADDED")
        kind, document = await first
        assert (kind, document["metadata"]["name"]) == ("ADDED", "b")
        api.say({"type": "DELETED", "object": api.nodes["a"]})
        kind, document = await anext(changes)
        assert (kind, document["metadata"]["name"]) == ("DELETED", "a")
        api.say(None)
        with pytest.raises(StopAsyncIteration):
            await anext(changes)

    play(api, tmp_path, script)


def test_a_watch_from_a_version_that_is_forgotten_is_reported_by_its_number(tmp_path: Path) -> None:
    api = NodesApi()
    api.refused["GET", "nodes"] = [410]

    async def script(session: ClusterSession) -> None:
        with pytest.raises(RequestFailed) as told:
            await anext(session.changes("", "1"))
        assert told.value.outcome.detail.startswith("410")

    play(api, tmp_path, script)


class PlayedClient(ApiClient):
    """Asks nobody. A watch says these lines, an error ends it; every other request waits for ever."""

    def __init__(self, *lines: bytes | Exception) -> None:
        super().__init__(Configuration())
        self.lines = [*lines]
        self.query: dict[str, str] = {}
        self.silence = 0.0
        self.content = self

    async def request(self, *_: Any, **named: Any) -> "PlayedClient":
        self.query = dict(named["query_params"])
        if "watch" not in self.query:
            await asyncio.sleep(3600.0)
        self.silence = named["_request_timeout"].sock_read
        return self

    async def readline(self) -> bytes:
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line

    def release(self) -> None:
        """The library's last word to an answer."""


GONE = b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}'


@pytest.mark.parametrize(
    ("line", "result", "detail"),
    [
        (GONE, RequestResult.REJECTED, "410"),
        (b'{"code": 500, "reason": "a", "message": "b"}', RequestResult.SERVER_ERROR, "500"),
        (TimeoutError(), RequestResult.UNREACHABLE, "no answer in time"),
        (OSError("reset"), RequestResult.UNREACHABLE, "reset"),
        (b"\xff", RequestResult.STRANGE, ""),
        (b"no JSON", RequestResult.STRANGE, "not an event of a watch"),
        (b"[]", RequestResult.STRANGE, "not an event of a watch"),
        (b'{"message": "x"}', RequestResult.STRANGE, "not an event of a watch"),
        (b'{"type": "BOOKMARK", "object": {}}', RequestResult.STRANGE, "not an event of a watch"),
        (b'{"type": "ERROR", "object": {"code": 410}}', RequestResult.STRANGE, "not an event of a watch"),
    ],
)
def test_a_watch_that_ends_with_something_else_says_so(
    line: bytes | Exception, result: RequestResult, detail: str
) -> None:
    """Nothing that a line may be ends the program."""

    async def run() -> None:
        async with PlayedClient(line) as client:
            with pytest.raises(RequestFailed) as told:
                await anext(ClusterSession(client).changes("", "1"))
        assert told.value.outcome.result is result
        assert told.value.outcome.detail.startswith(detail)

    asyncio.run(run())


def test_a_watch_may_lose_a_bookmark_and_is_renewed_as_often_as_an_agent_repeats_itself() -> None:
    """An API server sends a bookmark each minute; an agent repeats its condition every five minutes."""

    async def run() -> None:
        async with PlayedClient(b"") as client:
            assert not [one async for one in ClusterSession(client).changes("gpu=yes", "7")]
        assert (client.query["labelSelector"], client.query["resourceVersion"]) == ("gpu=yes", "7")
        assert 2 * 60 < client.silence < float(client.query["timeoutSeconds"]) <= 300

    asyncio.run(run())


@pytest.mark.parametrize(
    ("ask", "seconds"),
    [
        (lambda session: session.nodes(""), 60.0),
        (lambda session: session.patch_node("a", {}), 5.0),
        (lambda session: session.write_event({}), 5.0),
        (lambda session: session.request_maintenance({}), 5.0),
        (lambda session: session.end_maintenance("a"), 5.0),
    ],
)
def test_no_request_is_waited_for_longer_than_a_lease_allows(
    ask: Callable[[ClusterSession], Awaitable[Any]], seconds: float
) -> None:
    """A page of a list, which changes nothing, has a minute."""

    async def run() -> None:
        async with PlayedClient() as client:
            with pytest.raises(RequestFailed, match="no answer in time"):
                await ask(ClusterSession(client))
        assert passed() == seconds

    jumping(run)


@pytest.mark.parametrize(
    ("status", "result", "unanswered"),
    [
        (403, RequestResult.FORBIDDEN, False), (404, RequestResult.NOT_FOUND, False),
        (409, RequestResult.CONFLICT, False), (500, RequestResult.SERVER_ERROR, True),
        (0, RequestResult.UNREACHABLE, True),
    ],
)  # fmt: skip
def test_a_patch_that_is_refused_says_whether_it_may_have_been_done(
    *, status: int, result: RequestResult, unanswered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REQUEST", 2.0 if status else 0.3)
    api = NodesApi(raw("a"))
    api.refused["PATCH", "nodes"] = [status]

    async def script(session: ClusterSession) -> None:
        with pytest.raises(RequestFailed) as told:
            await session.patch_node("a", {"metadata": {"resourceVersion": "101"}})
        assert (told.value.outcome.result, told.value.unanswered) == (result, unanswered)

    play(api, tmp_path, script)
    assert not api.patches


def test_a_node_that_has_changed_meanwhile_is_not_patched(tmp_path: Path) -> None:
    api = NodesApi(raw("a"))

    async def script(session: ClusterSession) -> None:
        with pytest.raises(RequestFailed) as told:
            await session.patch_node("a", {"metadata": {"resourceVersion": "7"}})
        assert told.value.outcome.result is RequestResult.CONFLICT

    play(api, tmp_path, script)


def test_without_a_token_nothing_is_asked(tmp_path: Path) -> None:
    api = NodesApi()

    async def run() -> None:
        async with serving(api, tmp_path) as where:
            (tmp_path / "token").unlink()
            with pytest.raises(RequestFailed) as told:
                async with connected(where):
                    pass
            assert told.value.outcome.result is RequestResult.NO_CREDENTIALS

    asyncio.run(run())
    assert not api.tokens


@pytest.mark.parametrize(("method", "fine", "other"), [("POST", 409, 404), ("DELETE", 404, 409)])
def test_a_maintenance_that_is_there_or_gone_already_is_as_wanted(
    method: str, fine: int, other: int, tmp_path: Path
) -> None:
    api = NodesApi()
    api.refused[method, "maintenance"] = [fine, other]

    async def script(session: ClusterSession) -> None:
        def ask() -> Awaitable[None]:
            return session.request_maintenance({}) if method == "POST" else session.end_maintenance("m")

        await ask()
        with pytest.raises(RequestFailed):
            await ask()
        await ask()

    play(api, tmp_path, script)
    assert api.order == [(method, "maintenance")] * 3


@pytest.mark.parametrize(
    ("status", "result", "code"),
    [
        (404, RequestResult.NOT_FOUND, 404),
        (403, RequestResult.FORBIDDEN, 403),
        (0, RequestResult.UNREACHABLE, 0),
    ],
)
def test_a_lease_that_is_not_read_says_why_as_the_library_reads_it(
    status: int, result: RequestResult, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REQUEST", 2.0 if status else 0.3)
    api = NodesApi()
    api.refused["GET", "leases"] = [status]

    async def script(session: ClusterSession) -> None:
        lease = session.lease("wirewatch-controller", "wirewatch", "us")
        good, told = await lease.get("wirewatch-controller", "wirewatch")
        assert not good
        assert isinstance(told, ApiException)
        assert json.loads(str(told.body, "ascii") if told.body else "") == {"code": code}
        assert lease.last is not None
        assert lease.last.result is result
        assert lease.renewed is None

    play(api, tmp_path, script)


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (409, RequestResult.CONFLICT),
        (403, RequestResult.FORBIDDEN),
        (0, RequestResult.UNREACHABLE),
    ],
)
def test_only_a_good_renewal_makes_the_lease_ours_for_longer(
    status: int, result: RequestResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REQUEST", 2.0 if status else 0.3)
    api = NodesApi()
    api.refused["PUT", "leases"] = [status]
    at = "2027-01-15 08:00:00.000001"
    record = LeaderElectionRecord("us", "15", at, at)

    async def script(session: ClusterSession) -> None:
        name = "wirewatch-controller"
        lease = session.lease(name, "wirewatch", "us")
        assert await lease.create(name, "wirewatch", record)
        made = lease.renewed
        assert made is not None
        assert (await lease.get(name, "wirewatch"))[0]
        assert lease.last is not None
        assert lease.last.result is RequestResult.OK
        assert not await lease.update(name, "wirewatch", record)
        assert lease.last.result is result
        assert lease.renewed == made
        assert await lease.update(name, "wirewatch", record)
        assert lease.renewed > made

    play(api, tmp_path, script)


@pytest.mark.parametrize(
    ("status", "result"), [(403, RequestResult.FORBIDDEN), (409, RequestResult.CONFLICT)]
)
def test_a_lease_that_may_not_be_made_says_why(status: int, result: RequestResult, tmp_path: Path) -> None:
    """A ServiceAccount without the right to create one waits for ever: the log must name the right."""
    api = NodesApi()
    api.refused["POST", "leases"] = [status]
    at = "2027-01-15 08:00:00.000001"

    async def script(session: ClusterSession) -> None:
        lease = session.lease("wirewatch-controller", "wirewatch", "us")
        record = LeaderElectionRecord("us", "15", at, at)
        assert not await lease.create("wirewatch-controller", "wirewatch", record)
        assert (lease.renewed, lease.last and lease.last.result) == (None, result)

    play(api, tmp_path, script)
