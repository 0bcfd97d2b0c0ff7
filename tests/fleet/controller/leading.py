"""A leader on a clock that jumps: each wait ends at once, and its time has passed."""

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import pytest
from kubernetes_asyncio.client import ApiClient, Configuration, V1Lease
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.leaderelection import leaderelection

from tests.fleet.controller.drawn import NOW, apply, settings
from wirewatch.kubernetes.apiserver import Outcome, RequestResult
from wirewatch_fleet.controller.cluster import ClusterSession, TimedLease
from wirewatch_fleet.controller.loop import Controller, Identity, Leadership
from wirewatch_fleet.kubeclient import Document, RequestFailed

Result = TypeVar("Result")


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing, and counts the time that it was asked to wait."""

    passed, turns = 0.0, 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen again"
        self.passed += timeout
        self.turns = 0 if timeout else self.turns + 1
        assert self.turns < 1000, "it turns, and no time passes"
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes in its waits alone."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.passed


def passed() -> float:
    """Seconds since the leadership began."""
    return asyncio.get_running_loop().time()


def jumping(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """The result of some work on an event loop whose time jumps."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work())


class LoopClock:
    """The time of the drawn nodes, which stands still; monotonic time is the event loop's."""

    def now(self) -> float:
        return NOW

    def mono(self) -> float:
        return passed()


@dataclass
class Played:
    """The API server's side. `refused`: results of the next requests by kind, OK for one that is answered.

    `says`: what a watch says and when: a kind and a node, an error that ends it, or None, which ends it too.
    `late`: results of the next patches by node that are carried out all the same; `answers`: what they are
    answered with, if not with the node. `lists`: seconds that the next lists take. `taken`: when another has
    taken the lease for good. `asked`: each request, when it came, for which node, or with which selector.
    `slow`: seconds that an Event takes. `hides`: names that lists lack from a time on.
    """

    nodes: Sequence[Document]
    refused: dict[str, list[RequestResult]] = field(default_factory=dict)
    says: list[tuple[float, tuple[str, Document] | RequestFailed | None]] = field(default_factory=list)
    late: dict[str, list[RequestResult]] = field(default_factory=dict)
    answers: Mapping[str, Document] = field(default_factory=dict)
    lists: list[float] = field(default_factory=list)
    taken: float = float("inf")
    asked: list[tuple[float, str, str]] = field(default_factory=list)
    slow: float = 0.0
    hides: list[tuple[float, set[str]]] = field(default_factory=list)
    bodies: list[Document] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = {one["metadata"]["name"]: one for one in self.nodes}
        self.leases = PlayedLeases(self)

    def ask(self, kind: str, name: str) -> None:
        self.asked.append((passed(), kind, name))
        assert len(self.asked) < 1000, "it asks without end"
        due = self.refused.get(kind)
        result = due.pop(0) if due else RequestResult.OK
        if result is not RequestResult.OK:
            raise refusal(result)

    def times(self, kind: str) -> list[tuple[float, str]]:
        """When requests of a kind came, to a tenth of a second, and for which node."""
        return [(round(at, 1), name) for at, what, name in self.asked if what == kind]


def refusal(result: RequestResult, detail: str = "the test says so") -> RequestFailed:
    return RequestFailed(Outcome(result, detail))


class _PlayedSession(ClusterSession):
    def __init__(self, client: ApiClient, played: Played) -> None:
        super().__init__(client)
        self._played = played

    async def nodes(self, selector: str) -> tuple[list[Document], str]:
        self._played.ask("list", selector)
        await asyncio.sleep(self._played.lists.pop(0) if self._played.lists else 0.0)
        hidden = [names for at, names in self._played.hides if at <= passed()][-1:]
        return [one for name, one in self._played.kept.items() if not any(name in h for h in hidden)], "1"

    async def changes(self, selector: str, version: str) -> AsyncIterator[tuple[str, Document]]:
        self._played.ask("watch", f"{selector} from {version}")
        while True:
            at, said = self._played.says[0] if self._played.says else (1e9, None)
            await asyncio.sleep(max(0.0, at - passed()))
            self._played.says.pop(0)
            if said is None:
                return
            if isinstance(said, RequestFailed):
                raise said
            kind, node = said
            if name := node.get("metadata", {}).get("name"):
                self._played.kept = {key: one for key, one in self._played.kept.items() if key != name}
                self._played.kept |= {name: node} if kind != "DELETED" else {}
            yield said

    async def patch_node(self, name: str, patch: Document) -> Document:
        self._played.ask("patch", name)
        self._played.kept[name] = apply(self._played.kept[name], patch)
        if late := self._played.late.get(name):
            raise refusal(late.pop(0))
        return self._played.answers.get(name, self._played.kept[name])

    async def write_event(self, event: Document) -> None:
        self._played.ask("event", event["involvedObject"]["name"])
        await asyncio.sleep(self._played.slow)
        self._played.bodies.append(event)

    async def request_maintenance(self, body: Document) -> None:
        self._played.ask("request", body["metadata"]["name"])
        self._played.bodies.append(body)

    async def end_maintenance(self, name: str) -> None:
        self._played.ask("end", name)

    def lease(self, name: str, namespace: str, identity: str) -> TimedLease:
        lease = super().lease(name, namespace, identity)
        api: Any = self._played.leases
        lease.api_instance = api
        return lease


class PlayedLeases:
    """The lease, as the library asks for it."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self.kept: V1Lease | None = None

    async def read_namespaced_lease(self, name: str, namespace: str) -> V1Lease:
        self._ask("read lease", f"{namespace}/{name}")
        if self.kept is None:
            raise ApiException(404)
        if passed() >= self._played.taken:
            self.kept.spec.holder_identity = "another"
            self.kept.spec.renew_time = datetime.fromtimestamp(NOW + passed()).astimezone()
        return deepcopy(self.kept)

    async def create_namespaced_lease(self, namespace: str, body: V1Lease, **_: bool) -> None:
        self._ask("make lease", f"{namespace}/{body.metadata.name}")
        self._keep(body)

    async def replace_namespaced_lease(self, name: str, namespace: str, body: V1Lease) -> None:
        self._ask("renew", f"{namespace}/{name}")
        self._keep(body)

    def _ask(self, kind: str, name: str) -> None:
        try:
            self._played.ask(kind, name)
        except RequestFailed as error:
            raise ApiException(STATUS[error.outcome.result]) from error

    def _keep(self, body: V1Lease) -> None:
        spec: Any = body.spec
        spec.acquire_time, spec.renew_time = map(datetime.fromisoformat, (spec.acquire_time, spec.renew_time))
        self.kept = body


STATUS = {RequestResult.FORBIDDEN: 403, RequestResult.CONFLICT: 409, RequestResult.SERVER_ERROR: 500}


class _LibraryTime:
    """The wall's time, as the library's election reads it; it cannot read a whole second back."""

    def time(self) -> float:
        return NOW + passed() + 0.001


def campaign(played: Played, seconds: float, **changed: Any) -> Controller:
    """A controller that campaigns for so many seconds."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[ClusterSession]:
        played.ask("connect", "")
        async with ApiClient(Configuration()) as client:
            yield _PlayedSession(client, played)

    async def run() -> Controller:
        made = Controller(connect, Identity("us", "wirewatch"), settings(**changed), LoopClock())
        await _ends(played, asyncio.create_task(made.run()), seconds)
        return made

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(leaderelection, "time", _LibraryTime())
        return jumping(run)


def lead(played: Played, seconds: float, renewed: float | None = 0.0, **changed: Any) -> Controller:
    """A leadership of so many seconds, whose lease always was renewed so many seconds before; None: never."""

    async def renewing(lease: TimedLease) -> None:
        while renewed is not None:
            lease.renewed = passed() - renewed
            await asyncio.sleep(1.0)

    async def run() -> Controller:
        made = Controller(nowhere, Identity("us", "wirewatch"), settings(**changed), LoopClock())
        async with ApiClient(Configuration()) as client:
            session = _PlayedSession(client, played)
            lease = session.lease("wirewatch-controller", "wirewatch", "us")
            held = asyncio.create_task(renewing(lease))
            await _ends(played, asyncio.create_task(Leadership(made, session, lease).run()), seconds)
            held.cancel()
        return made

    return jumping(run)


def nowhere() -> Any:
    """Connects to nothing."""
    raise AssertionError("a leader has a session already")


async def _ends(played: Played, running: asyncio.Task[None], seconds: float) -> None:
    """Cancel it after so many seconds; then it asks no more."""
    await asyncio.wait({running}, timeout=seconds)
    running.cancel()
    await asyncio.wait({running})
    asked = [*played.asked]
    await asyncio.sleep(300.0)
    assert played.asked == asked, "it goes on after its end"
    if not running.cancelled():
        running.result()
