"""The controller's loop: one leader follows the nodes, and decides and acts at each change."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from random import random
from typing import Any

from kubernetes_asyncio.leaderelection.electionconfig import Config as Election
from kubernetes_asyncio.leaderelection.leaderelection import LeaderElection

from wirewatch.config import ControllerSection
from wirewatch.core.ports import Clock
from wirewatch.core.words import stamp
from wirewatch.kubernetes.apiserver import RequestResult
from wirewatch_fleet.controller.cluster import REQUEST, ClusterSession, Maintenance, TimedLease
from wirewatch_fleet.controller.decide import (
    BUDGETS,
    ControllerPlan,
    Ground,
    NodeDecision,
    NodeStep,
    decide,
    patch_of,
)
from wirewatch_fleet.controller.node import FleetNode, NodeMeasure, node_of
from wirewatch_fleet.controller.report import ControllerReport, Count, event, words
from wirewatch_fleet.controller.view import FleetView
from wirewatch_fleet.kubeclient import Document, RequestFailed

BUNDLE = 1.0
"""Seconds in which changes gather before a joint decision."""
LONGEST = 30.0
"""Most seconds until the API server is tried again."""
STEADY = 10.0
"""Least seconds of a watch; after a shorter watch the next list waits, ever longer."""
TURNING = 60.0
"""Seconds without a turn after which a loop counts as stuck."""
EVENTS = 256
"""Most Events that wait to be written; a later look reports omitted Events."""
NOTICE = 300.0
"""Seconds from now until a maintenance requested from NVSentinel begins."""
log = logging.getLogger(__name__)
Connect = Callable[[], AbstractAsyncContextManager[ClusterSession]]


@dataclass(frozen=True, slots=True)
class Identity:
    """Our name among the candidates, and the place of the lease."""

    name: str
    namespace: str


class Controller:
    """Campaigns for the lease for ever, and leads while it has the lease."""

    def __init__(
        self, connect: Connect, identity: Identity, settings: ControllerSection, clock: Clock
    ) -> None:
        self._connect, self.identity, self.settings, self.clock = connect, identity, settings, clock
        self._trouble = ""
        self._turned = clock.mono()
        self._steps: Counter[Count] = Counter()
        self._failures: Counter[tuple[str, RequestResult]] = Counter()
        self.asked = False
        self.report = ControllerReport(settings.dry_run)
        self.view = FleetView()

    def turning(self) -> bool:
        """Return whether the loop turns, whatever the API server does."""
        return self.clock.mono() - self._turned < TURNING + self.settings.lease

    async def run(self) -> None:
        """Run until cancelled."""
        wait = 1.0
        while True:
            try:
                async with self._connect() as cluster:
                    await self._campaign(cluster)
                wait = 1.0
            except RequestFailed as error:
                self._tell_trouble(error)
                self.failed("nodes", error)
                wait = min(LONGEST, 2 * wait)
            self.asked = True
            self._turned = self.clock.mono()
            await asyncio.sleep(spread(wait))

    async def _campaign(self, cluster: ClusterSession) -> None:
        """Wait for the lease, and lead while it is ours; return once it is lost.

        Raises:
            RequestFailed: the nodes cannot be followed.
        """
        lease = cluster.lease(self.settings.name, self.identity.namespace, self.identity.name)
        leading: set[asyncio.Task[None]] = set()

        async def lead() -> None:
            """Lead; the library starts this once the lease is ours, and cancels it once the lease is lost."""
            if task := asyncio.current_task():
                leading.add(task)
            log.info("%s has the lease %s", self.identity.name, self.settings.name)
            try:
                await Leadership(self, cluster, lease).run()
            finally:
                self.report = replace(self.report, leader=False, plan=None)

        lasts = self.settings.lease
        election = LeaderElection(Election(lease, lasts, lasts * 2 / 3, lasts / 6, lead, _nothing))
        running = asyncio.create_task(election.run())
        try:
            while not any(task.done() for task in (running, *leading)):
                self._turned = self.clock.mono()
                self._tell_lease(lease)
                await asyncio.wait({running, *leading}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = {running, *leading}
            await _end(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()
        log.warning("%s has lost the lease and does nothing without it", self.identity.name)

    def _tell_lease(self, lease: TimedLease) -> None:
        if lease.last is None:
            return
        if lease.last.result is RequestResult.OK:
            self._trouble_over()
        elif lease.last.result is not RequestResult.CONFLICT:
            self._tell_trouble(RequestFailed(lease.last))

    def _tell_trouble(self, error: RequestFailed) -> None:
        result = error.outcome.result
        if result.value != self._trouble:
            about = _MEANING.get(result, result.meaning)
            log.warning("the API server does not give what is asked: %s (%s)", about, error)
        self._trouble = result.value

    def _trouble_over(self) -> None:
        self.asked = True
        if self._trouble:
            log.info("the API server answers again")
        self._trouble = ""

    def count(self, step: NodeStep, result: RequestResult) -> None:
        """Count an attempted step."""
        self._steps[step, result] += 1
        self.report = replace(self.report, steps=dict(self._steps))

    def failed(self, request: str, error: RequestFailed) -> None:
        """Count a failed request that is no step."""
        self._failures[request, error.outcome.result] += 1
        self.report = replace(self.report, failures=dict(self._failures))


def spread(seconds: float) -> float:
    """Return a random wait from half the seconds to all of them, so that waiting peers do not ask at once."""
    return seconds * (0.5 + 0.5 * random())  # noqa: S311 - no secret


async def _nothing() -> None:
    pass


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


_MEANING = {
    RequestResult.OK: "it answers",
    RequestResult.FORBIDDEN: "403: the ServiceAccount lacks a right, or a policy forbids it",
    RequestResult.NOT_FOUND: "404: there is no such object",
}


class Leadership:
    """A leader's work: an up-to-date copy of all nodes, and steps.

    No step follows an old copy: steps wait until all nodes were listed, and again after each failure.
    """

    def __init__(self, controller: Controller, cluster: ClusterSession, lease: TimedLease) -> None:
        self._controller, self._cluster, self._lease = controller, cluster, lease
        self._settings, self._clock = controller.settings, controller.clock
        self._view, self._current, self._frozen = controller.view, False, ""
        self._events: asyncio.Queue[tuple[NodeDecision, Document]] = asyncio.Queue(EVENTS)
        self._again = asyncio.Event()
        self._changed = asyncio.Event()
        self._pending: dict[str, float] = {}
        self._refused: set[str] = set()
        self._told: dict[str, tuple[NodeStep | None, Ground, float]] = {}
        self._requested: set[tuple[str, str]] = set()
        self._failures, self._rest = 0, 0.0

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            RequestFailed: the nodes cannot be followed.
        """
        # What a leader before us has begun has ended by then.
        await asyncio.sleep(REQUEST)
        tasks = {asyncio.create_task(work()) for work in (self._follow, self._act, self._write_events)}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(tasks)
        for task in done:
            task.result()

    async def _follow(self) -> None:
        """List all nodes, then take changes; repeat after the watch's end, or at a step's request."""
        early = 0
        while True:
            self._again.clear()
            documents, version = await self._cluster.nodes(self._settings.selector)
            listed = self._clock.mono()
            self._view.take(filter(None, map(parsed, documents)), listed)
            self._current = True
            self._changed.set()
            again = asyncio.create_task(self._again.wait())
            taking = asyncio.create_task(self._take_changes(version))
            try:
                await asyncio.wait({again, taking}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._current = False
                await _end({again, taking})
            if taking.cancelled():
                continue
            taking.result()
            early = early + 1 if self._clock.mono() - listed < STEADY else 0
            if early:
                await asyncio.sleep(spread(min(LONGEST, 2.0 ** min(early, 16))))

    async def _take_changes(self, version: str) -> None:
        try:
            async for kind, document in self._cluster.changes(self._settings.selector, version):
                if node := parsed(document):
                    self._view.change(node, deleted=kind == "DELETED")
                    self._changed.set()
        except RequestFailed as error:
            if error.outcome.detail.startswith("410"):
                return
            raise

    async def _act(self) -> None:
        """Decide after each change, and from time to time, and act."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.period):
                    await self._changed.wait()
            await asyncio.sleep(BUNDLE)
            self._changed.clear()
            if self._current:
                await self._look()

    async def _look(self) -> None:
        now, mono = self._clock.now(), self._clock.mono()
        self._pending = {name: until for name, until in self._pending.items() if mono < until}
        self._view.look(mono)
        self._refused &= self._view.nodes.keys()
        self._freeze(self._view.frozen(self._settings.budget.cluster))
        plan = self._plan(now)
        self._publish(plan, now)
        if mono >= self._rest and await self._take(plan) and not self._settings.dry_run:
            await self._request_again()
            self._publish(self._plan(now), now)
        self._tell_left(plan)

    def _freeze(self, why: str) -> None:
        if bool(why) != bool(self._frozen):
            log.warning(
                "%s",
                f"no step is taken: {why}" if why else "steps are taken again: the list lacks few nodes now",
            )
        self._frozen = why

    async def _take(self, plan: ControllerPlan) -> bool:
        """Take a plan's steps in turn; return whether none was refused and the lease is still ours."""
        for step, decision in plan.steps():
            if not self._may_act():
                return False
            await self._carry_out(step, decision)
        return self._may_act()

    def _may_act(self) -> bool:
        return self._settings.dry_run or (self._surely_leads() and self._current and not self._frozen)

    def _plan(self, now: float) -> ControllerPlan:
        nodes, refused = [*self._view.nodes.values()], frozenset(self._refused)
        return decide(nodes, self._settings, now, self._pending, refused, self._view.missed())

    def _publish(self, plan: ControllerPlan, now: float) -> None:
        report = self._controller.report
        frozen = bool(self._frozen)
        self._controller.report = replace(report, leader=True, plan=plan, synced_at=now, frozen=frozen)

    def _surely_leads(self) -> bool:
        """Return whether the lease is ours for longer than a request lasts, by our own clock."""
        renewed = self._lease.renewed
        now = asyncio.get_running_loop().time()
        return renewed is not None and now + REQUEST < renewed + self._settings.lease

    async def _carry_out(self, step: NodeStep, decision: NodeDecision) -> None:
        """Take a step; in a dry run only report it."""
        name = decision.node.name
        if self._settings.dry_run:
            self._tell(decision)
            return
        try:
            if decision.node.did is NodeMeasure.NVSENTINEL:
                await self._cluster.end_maintenance(Maintenance(name, "", "", "", "").name)
            patch = patch_of(decision, self._settings, self._clock.now())
            after = parsed(await self._cluster.patch_node(name, patch))
        except RequestFailed as error:
            self._failed(decision, step, error)
            return
        if after is not None:
            self._view.change(after)
        self._controller.count(step, RequestResult.OK)
        self._failures = 0
        self._pending.pop(name, None)
        self._refused.discard(name)
        self._tell(decision)

    def _failed(self, decision: NodeDecision, step: NodeStep, error: RequestFailed) -> None:
        """Handle a step that failed, or perhaps succeeded: all nodes are listed before the next step."""
        name, result = decision.node.name, error.outcome.result
        self._controller.count(step, result)
        if error.unanswered and step is NodeStep.TAKE_OUT:
            self._pending[name] = self._clock.mono() + self._settings.lease
        if not error.unanswered:
            self._refused.add(name)
        self._failures += 1
        self._rest = self._clock.mono() + min(LONGEST, 2.0**self._failures)
        log.warning("%s of %s is not done: %s", step.value, name, error)
        self._current = False
        self._again.set()

    def _tell_left(self, plan: ControllerPlan) -> None:
        """Report once for each fault a FAILED node that stays for lack of budget, or by a person's order."""
        grounds = {*BUDGETS, Ground.OVERRULED, Ground.FOREIGN_MARK}
        for decision in (one for one in plan.decisions if one.refused and one.ground in grounds):
            self._tell(decision)
        known = {one.node.name for one in plan.decisions}
        self._told = {name: told for name, told in self._told.items() if name in known}

    def _tell(self, decision: NodeDecision) -> None:
        """Report each decision and fault once, in the log and as a queued Event."""
        node = decision.node
        key = (decision.step, decision.ground, node.since)
        if self._told.get(node.name) == key or self._events.full():
            return
        self._told[node.name] = key
        act = None if self._settings.act == "undo" else NodeMeasure(self._settings.act)
        told = words(decision, act, dry_run=self._settings.dry_run)
        log.info("%s: %s", node.name, told[2])
        who = self._controller.identity.name
        self._events.put_nowait((decision, event(decision, told, who, self._clock.now())))

    async def _write_events(self) -> None:
        """Write Events; no step waits for them. A later look repeats a refused Event if it still holds."""
        refused = 0
        while True:
            decision, body = await self._events.get()
            try:
                await self._cluster.write_event(body)
                refused = 0
            except RequestFailed as error:
                refused += 1
                log.warning("no Event about %s: %s", decision.node.name, error)
                self._controller.failed("event", error)
                self._told.pop(decision.node.name, None)
                await asyncio.sleep(spread(min(LONGEST, 2.0 ** min(refused, 16))))

    async def _request_again(self) -> None:
        """Ensure that NVSentinel has a request for each node that our mark says it has."""
        for node in [*self._view.nodes.values()]:
            if node.mark is None or node.mark.did is not NodeMeasure.NVSENTINEL:
                continue
            if (node.name, node.uid) in self._requested:
                continue
            now = self._clock.now()
            message = node.condition.message if node.condition else ""
            wanted = Maintenance(node.name, node.mark.reason, message, stamp(now), stamp(now + NOTICE))
            try:
                await self._cluster.request_maintenance(wanted.body())
                self._requested.add((node.name, node.uid))
            except RequestFailed as error:
                log.warning("NVSentinel has no request for %s: %s", node.name, error)


def parsed(document: Document) -> FleetNode | None:
    """Return the node of a document; None, with a line in the log, for a document that is no node."""
    try:
        return node_of(document)
    except ValueError as error:
        log.warning("the API server sends something else: %s", error)
        return None
