"""The API server: nodes, patches, Events and the lease."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes_asyncio.client import ApiClient, CoordinationV1Api, CoreV1Api, CustomObjectsApi
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock
from kubernetes_asyncio.watch import Watch

from wirewatch import __version__
from wirewatch.kubernetes.apiserver import ApiEndpoint, Outcome, RequestResult
from wirewatch_fleet.kubeclient import (
    ERRORS,
    Document,
    RequestFailed,
    answered,
    client_of,
    failed,
    pages,
)

REQUEST = 5.0
"""Seconds for a request, except lists and watches."""
LIST = 60.0
"""Seconds for one page of a list."""
WATCH = 300
"""Seconds until a watch ends and all nodes are listed again."""
SILENCE = 150.0
"""Seconds without any word, even a bookmark, until a watch counts as dead."""
EVENTS_NAMESPACE = "default"
"""Namespace of Events about objects without a namespace."""
CONTENT_TYPE = "application/merge-patch+json"
NVSENTINEL = ("nvsentinel.dgxc.nvidia.com", "v1", "maintenancerequests")
log = logging.getLogger(__name__)
# It logs a traceback for each failed try; what a try gave is logged once, by the loop.
logging.getLogger("kubernetes_asyncio.leaderelection").setLevel(logging.CRITICAL)


class ClusterSession:
    """A session with the API server; `connected` makes it. Each method raises RequestFailed."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._core, self._custom = CoreV1Api(client), CustomObjectsApi(client)

    async def nodes(self, selector: str) -> tuple[list[Document], str]:
        """Return all nodes that the selector finds now, and the version from which a watch continues."""
        return await pages(LIST, self._core.list_node, label_selector=selector)

    async def changes(self, selector: str, version: str) -> AsyncIterator[tuple[str, Document]]:
        """Yield ("ADDED" | "MODIFIED" | "DELETED", node) after a version, until the watch ends."""
        patience = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST, sock_read=SILENCE)
        async with Watch(return_type="object") as watch:
            stream = watch.stream(
                self._core.list_node, label_selector=selector, resource_version=version,
                allow_watch_bookmarks=True, timeout_seconds=WATCH, _request_timeout=patience,
            )  # fmt: skip
            while True:
                try:
                    event = await anext(stream)
                    kind, node = event["type"], event["raw_object"]
                except StopAsyncIteration:
                    return
                except ERRORS as error:
                    raise failed(error) from error
                except Exception as error:  # the library's, of a line that is no event
                    raise failed(ValueError(f"not an event of a watch: {error!r}")) from error
                if kind != "BOOKMARK":
                    yield kind, node

    async def patch_node(self, name: str, patch: Document) -> Document:
        """Patch a node; return it after the patch."""
        after: Document = await answered(
            REQUEST, self._core.patch_node, name, dict(patch), field_manager="wirewatch-controller",
            _content_type=CONTENT_TYPE,
        )  # fmt: skip
        return after

    async def write_event(self, event: Document) -> None:
        """Write an Event about a node."""
        await answered(REQUEST, self._core.create_namespaced_event, EVENTS_NAMESPACE, dict(event))

    async def request_maintenance(self, body: Document) -> None:
        """Create a MaintenanceRequest of NVSentinel's, unless it exists."""
        create = self._custom.create_cluster_custom_object
        await _unless(RequestResult.CONFLICT, answered(REQUEST, create, *NVSENTINEL, dict(body)))

    async def end_maintenance(self, name: str) -> None:
        """Delete a MaintenanceRequest, if it exists."""
        delete = self._custom.delete_cluster_custom_object
        await _unless(RequestResult.NOT_FOUND, answered(REQUEST, delete, *NVSENTINEL, name))

    def lease(self, name: str, namespace: str, identity: str) -> "TimedLease":
        """Return the lease that a leader holds."""
        return TimedLease(name, namespace, identity, self._client)


class NotingLeases(CoordinationV1Api):
    """The library's requests about leases.

    `refused`: why the last request failed, which the library's lock only logs.
    """

    refused: ApiException | None = None

    async def create_namespaced_lease(self, *arguments: Any, **named: Any) -> Any:
        """Create a lease as the library does."""
        return await self._noting(super().create_namespaced_lease(*arguments, **named))

    async def replace_namespaced_lease(self, *arguments: Any, **named: Any) -> Any:
        """Replace a lease as the library does."""
        return await self._noting(super().replace_namespaced_lease(*arguments, **named))

    async def _noting(self, request: Awaitable[Any]) -> Any:
        self.refused = None
        try:
            return await request
        except ApiException as error:
            self.refused = error
            raise


class TimedLease(LeaseLock):
    """The library's lock, with the time until which it is surely ours.

    Hanging requests end, an absent API server raises no exception, and only successful renewals count.
    `last`: the result of the last request, None before the first; `renewed`: when the last good renewal
    began, by the event loop's clock.
    """

    def __init__(self, name: str, namespace: str, identity: str, client: ApiClient) -> None:
        super().__init__(name, namespace, identity, client)
        self.renewed: float | None = None
        self.last: Outcome | None = None
        self._leases = self.api_instance = NotingLeases(client)

    async def get(
        self, name: str, namespace: str
    ) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]:
        """Return the lease, or an error that the library understands."""
        try:
            async with asyncio.timeout(REQUEST):
                found = await super().get(name, namespace)
        except ERRORS as error:
            found = False, error
        answer = found[1]
        if not isinstance(answer, Exception):
            self.last = Outcome(RequestResult.OK)
            return found
        self.last = failed(answer).outcome
        # The library reads the code from the body, which a proxy writes as it likes.
        status = answer.status if isinstance(answer, ApiException) else 0
        told = ApiException(status=status, reason=self.last.detail)
        told.body = json.dumps({"code": status}).encode()
        return False, told

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Return whether the lease was made and is ours."""
        return await self._renewing(super().create(name, namespace, election_record))

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Return whether the lease is ours from now on."""
        return await self._renewing(super().update(name, namespace, updated_record))

    async def _renewing(self, request: Awaitable[bool]) -> bool:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(REQUEST):
                good = await request
        except ERRORS as error:
            self.last = failed(error).outcome
            return False
        if good:
            self.renewed = began
        elif self._leases.refused is not None:
            self.last = failed(self._leases.refused).outcome
        else:
            self.last = Outcome(RequestResult.CONFLICT, "the lease is not given to us")
        return good


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A MaintenanceRequest for a node. Unproven: NVSentinel was not run."""

    node: str
    reason: str
    message: str
    at: str
    begins: str

    @property
    def name(self) -> str:
        """Return the object's name, unique for each node."""
        return f"wirewatch-{self.node}"

    def body(self) -> Document:
        """Return the body by NVSentinel's design 051: a health event, and the start of the maintenance."""
        event = {
            "version": 1, "agent": "wirewatch", "checkName": "InterconnectHealthy", "componentClass": "Node",
            "nodeName": self.node, "entitiesImpacted": [{"entityType": "Node", "entityValue": self.node}],
            "errorCode": [self.reason], "message": self.message, "generatedTimestamp": self.at,
            "isFatal": True, "isHealthy": False, "recommendedAction": "CONTACT_SUPPORT",
        }  # fmt: skip
        return {
            "apiVersion": "/".join(NVSENTINEL[:2]), "kind": "MaintenanceRequest",
            "metadata": {"name": self.name}, "spec": {"startTime": self.begins, "healthEvent": event},
        }  # fmt: skip


@asynccontextmanager
async def connected(where: ApiEndpoint) -> AsyncIterator[ClusterSession]:
    """Open a session; the CA is read now, the token for each request.

    Raises:
        RequestFailed: the CA or the token cannot be read.
    """
    try:
        client = client_of(where)
    except (OSError, ValueError) as error:
        raise RequestFailed(Outcome(RequestResult.NO_CREDENTIALS, str(error))) from error
    client.user_agent = f"wirewatch-controller/{__version__}"
    async with client:
        yield ClusterSession(client)


async def _unless(fine: RequestResult, request: Awaitable[Any]) -> None:
    try:
        await request
    except RequestFailed as error:
        if error.outcome.result is not fine:
            raise
