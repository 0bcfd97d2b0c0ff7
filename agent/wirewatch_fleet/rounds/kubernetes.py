"""Rounds on Kubernetes: a Job of two pods for each pair, subject to scheduler, quota and queue.

Each call opens its own session with the API server, so nothing stays open between calls.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kubernetes_asyncio.client import ApiClient, BatchV1Api, CoreV1Api

from wirewatch.core.statistics import grouped
from wirewatch.kubernetes.apiserver import RequestResult
from wirewatch_fleet.kubeclient import ERRORS, RequestFailed, answered, good_bytes, pages
from wirewatch_fleet.rounds.answer import answers_in
from wirewatch_fleet.rounds.engine import (
    NodesError,
    PairNode,
    PairProgress,
    PairState,
    RoundEngineError,
    RoundOrder,
)
from wirewatch_fleet.rounds.jobs import (
    CAMPAIGN,
    PAIR,
    JobProgress,
    PairJobsOptions,
    deleted,
    disrupted,
    job,
    job_progress,
    name_of,
    nodes_of,
    on_hosts,
    service,
    used_gpus,
)

ASK_SECONDS = 2.0
"""Seconds between two questions about a round."""
REQUEST, LIST = 10.0, 60.0
"""Seconds for a request; for a request about many objects: a page of a list between rounds, the end of all
Jobs."""
AWAY_SECONDS = 60.0
"""Seconds without an answer from the API server after which a round is given up."""
CANCELS = 5
"""Most deletions of Jobs until none is left."""
AT_ONCE = 32
LOG_BYTES = 1 << 20
T = TypeVar("T")


@dataclass(slots=True)
class KubernetesRounds:
    """The engine. `connect` makes a client, within the event loop; `mono`: seconds of the monotonic clock.

    `settle`: seconds from a deletion of Jobs until the next look for them.
    """

    options: PairJobsOptions
    connect: Callable[[], Awaitable[ApiClient]]
    mono: Callable[[], float] = time.monotonic
    campaign: str = field(default_factory=lambda: f"wirewatch-pairs-{secrets.token_hex(4)}")
    settle: float = 1.0
    _nodes: dict[str, PairNode] = field(default_factory=dict)
    _order: RoundOrder | None = None
    _known: dict[int, PairProgress] = field(default_factory=dict)
    _taken: dict[int, str] = field(default_factory=dict)
    _asked: float = 0.0
    _heard: float = 0.0
    _blind: bool = False

    def members(self) -> Sequence[PairNode]:
        found = self._run(self._members)
        there = {one.name: one for one in found}
        missing = [name for name in self.options.nodes if name not in there]
        if missing and not self._nodes:
            raise NodesError(f"the cluster has no node {', '.join(missing[:8])}")
        self._nodes = there
        return found

    def start(self, order: RoundOrder) -> None:
        self._order, self._known, self._taken, self._asked = order, {}, {}, self.mono()
        refused = self._run(lambda client: self._start(client, order))
        self._heard = self.mono()
        if len(refused) == len(order.pairs):
            raise RoundEngineError(f"no Job of the round could be made: {next(iter(refused.values()))}")
        for place, why in refused.items():
            self._known[place] = PairProgress(*order.pairs[place], PairState.FAILED, why)

    def poll(self) -> Sequence[PairProgress]:
        order = self._order
        if order is None:
            return ()
        ended = {PairState.DONE, PairState.FAILED}
        live = [
            n for n in range(len(order.pairs)) if n not in self._known or self._known[n].state not in ended
        ]
        if live and self.mono() >= self._asked + ASK_SECONDS:
            self._asked = self.mono()
            self._see(order, live)
        waiting = PairState.WAITING
        return [self._known.get(n, PairProgress(*pair, waiting)) for n, pair in enumerate(order.pairs)]

    def _see(self, order: RoundOrder, live: Sequence[int]) -> None:
        """Look at the pairs; a failed look does not end the round, as the next may succeed."""
        try:
            self._known |= self._run(lambda client: self._look(client, order, live))
        except RoundEngineError:
            if self.mono() > self._heard + AWAY_SECONDS:
                raise
        else:
            self._heard = self.mono()

    def cancel(self) -> None:
        if self._order is not None:
            self._run(self._cancel)

    def describe(self, order: RoundOrder) -> Sequence[str]:
        ours, gpus = self.options, order.work.gpus
        asks = f"{gpus} {ours.gpu}" if gpus else "no GPUs"
        priority = ours.priority or ours.template["spec"].get("priorityClassName") or "the default"
        queue = f"Kueue's queue {ours.queue}" if ours.queue else "the scheduler"
        first, second = order.pairs[0] if order.pairs else ("A", "B")
        meets = "the first node's address" if on_hosts(ours) else "a headless Service"
        blind = "which GPUs pods hold may not be listed here: who is busy is seen when a Job is not admitted"
        return [
            f"each pair is a Job of two pods in namespace {ours.namespace}, with {asks} each",
            f"admitted by {queue}, priority {priority}; they meet at {meets}, port {ours.port}",
            f"such as {name_of(self.campaign, order, 0)} on {first} and {second}",
            *([blind] if self._blind else []),
        ]

    async def _members(self, client: ApiClient) -> list[PairNode]:
        core, ours = CoreV1Api(client), self.options
        nodes, _ = await pages(LIST, core.list_node, label_selector=ours.selector)
        used: Mapping[str, int] = {}
        if ours.gpus != 0 and not self._blind:
            try:
                held = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
                pods, _ = await pages(LIST, core.list_pod_for_all_namespaces, field_selector=held)
                used = used_gpus(pods, ours.gpu, self.campaign)
            except RequestFailed as error:
                if error.outcome.result is not RequestResult.FORBIDDEN:
                    raise
                self._blind = True
        return nodes_of(nodes, ours, used)

    async def _start(self, client: ApiClient, order: RoundOrder) -> dict[int, str]:
        """Make all Jobs; return reasons for failures, by the place of the pair."""
        batch, core, room = BatchV1Api(client), CoreV1Api(client), asyncio.Semaphore(AT_ONCE)
        there, refused = self.options.namespace, dict[int, str]()

        async def one(place: int) -> None:
            wanted = job(order, place, self.campaign, self._nodes, self.options)
            async with room:
                try:
                    made = await answered(REQUEST, batch.create_namespaced_job, there, dict(wanted))
                    if not on_hosts(self.options):
                        by_name = service(made, self.options.port)
                        await answered(REQUEST, core.create_namespaced_service, there, dict(by_name))
                except RequestFailed as error:
                    refused[place] = f"refused by the API server: {error}"

        await asyncio.gather(*map(one, range(len(order.pairs))))
        return refused

    async def _look(
        self, client: ApiClient, order: RoundOrder, live: Sequence[int]
    ) -> dict[int, PairProgress]:
        core, ours = CoreV1Api(client), f"{CAMPAIGN}={self.campaign}"
        there = {"namespace": self.options.namespace, "label_selector": ours}
        made, _ = await pages(REQUEST, BatchV1Api(client).list_namespaced_job, **there)
        jobs = {one["metadata"]["name"]: one for one in made}
        listed, _ = await pages(REQUEST, core.list_namespaced_pod, **there)
        pods = grouped((pod["metadata"]["labels"].get(PAIR, ""), pod) for pod in listed)
        room = asyncio.Semaphore(AT_ONCE)

        async def one(place: int) -> tuple[int, PairProgress]:
            name, pair = name_of(self.campaign, order, place), order.pairs[place]
            own = pods.get(name, [])
            if words := disrupted(own):
                # It is gone once the Job has failed, and with it what it said.
                self._taken[place] = words
            seen = job_progress(jobs.get(name), own)
            async with room:
                return place, await self._told(core, pair, seen, self._taken.get(place) or deleted(own, pair))

        return dict(await asyncio.gather(*map(one, live)))

    async def _told(
        self, core: CoreV1Api, pair: tuple[str, str], seen: JobProgress, taken: str
    ) -> PairProgress:
        """Return a pair's progress, with all output of its pods once it has ended.

        A `taken` pod explains more than its partner, which only reports a lost connection.
        """
        if seen.state not in {PairState.DONE, PairState.FAILED}:
            return PairProgress(*pair, seen.state, seen.said)
        printed = [await self._log(core, name) for name in seen.pods]
        said = "\n".join(printed)
        answers = list(answers_in(said))
        if any(one.cause != "failed" or not taken for one in answers):
            return PairProgress(*pair, PairState.DONE, said)
        lines = [line for text in printed for line in text.splitlines() if line.strip()]
        words = [f"{one.name}: failed: {one.why}" for one in answers] or [seen.said, *lines[-1:]]
        known = [] if taken in words[0] else [taken]
        why = "; ".join(filter(None, [*known, *words]))
        return PairProgress(*pair, PairState.FAILED, why or "its pods ended without an answer")

    async def _log(self, core: CoreV1Api, pod: str) -> str:
        try:
            text = await good_bytes(
                REQUEST, core.read_namespaced_pod_log, pod, self.options.namespace,
                container=self.options.container, limit_bytes=LOG_BYTES,
            )  # fmt: skip
            return text.decode("utf-8", "replace")
        except RequestFailed as error:
            return f"what {pod} printed cannot be read: {error}"

    async def _cancel(self, client: ApiClient) -> None:
        """Delete all Jobs of the campaign, with their pods and Services.

        A request that Ctrl-C interrupted may still create a Job, so the Jobs are looked for again.
        """
        batch, ours = BatchV1Api(client), f"{CAMPAIGN}={self.campaign}"
        left: list[str] = []
        for _ in range(CANCELS):
            there = {"namespace": self.options.namespace, "label_selector": ours}
            delete = batch.delete_collection_namespaced_job
            await answered(LIST, delete, **there, propagation_policy="Background")
            await asyncio.sleep(self.settle)
            found, _ = await pages(LIST, batch.list_namespaced_job, **there)
            left = [one["metadata"]["name"] for one in found if "deletionTimestamp" not in one["metadata"]]
            if not left:
                return
        raise RoundEngineError(f"Jobs are not deleted: {', '.join(left[:8])}")

    def _run(self, asked: Callable[[ApiClient], Awaitable[T]]) -> T:
        async def session() -> T:
            try:
                client = await self.connect()
            except ERRORS as error:
                raise RoundEngineError(f"no way to the API server: {error}") from error
            async with client:
                return await asked(client)

        try:
            return asyncio.run(session())
        except RequestFailed as error:
            raise RoundEngineError(f"the API server: {error}") from error
