"""An API server in this process, over TLS: nodes with versions, watches, Events, leases, and refusals."""

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.fleet.controller.drawn import apply
from tests.node.server.authority import Authority
from wirewatch.kubernetes.apiserver import ApiEndpoint

Document = dict[str, Any]
TOKEN = "t0ken"  # noqa: S105 - of this test


class NodesApi:
    """`refused`: statuses of the next requests by (method, kind), each once; 0 is one that never answers.

    `order`: all requests by method and kind, as they came.
    `never`: nodes of which no patch is ever taken, as an admission webhook does; `refusals` counts them.
    """

    def __init__(self, *nodes: Document) -> None:
        self.version = 100
        self.nodes: dict[str, Document] = {}
        self.patches: list[tuple[str, Document]] = []
        self.events: list[Document] = []
        self.lease: Document | None = None
        self.refused: dict[tuple[str, str], list[int]] = {}
        self.order: list[tuple[str, str]] = []
        self.never: set[str] = set()
        self.refusals: Counter[str] = Counter()
        self.tokens: set[str] = set()
        self.asked_for_lease = 0
        self._watches: list[asyncio.Queue[Document | None]] = []
        for node in nodes:
            self.put(node)

    def put(self, node: Document, kind: str = "MODIFIED") -> None:
        """A node as it is from now on, for watches as well."""
        self.version += 1
        name = node["metadata"]["name"]
        self.nodes[name] = {**node, "metadata": {**node["metadata"], "resourceVersion": str(self.version)}}
        self.say({"type": kind, "object": self.nodes[name]})

    def say(self, event: Document | None) -> None:
        """To all watches; None ends them."""
        for watch in self._watches:
            watch.put_nowait(event)

    @property
    def watched(self) -> int:
        return len(self._watches)

    @property
    def tainted(self) -> set[str]:
        return {name for name, node in self.nodes.items() if node["spec"].get("taints")}

    async def list(self, request: web.Request) -> web.StreamResponse:
        await self._refuse(request, "nodes")
        if request.query.get("watch") == "True":
            return await self._watch(request)
        first, limit = int(request.query.get("continue") or 0), int(request.query["limit"])
        every = [*self.nodes.values()]
        more = str(first + limit) if first + limit < len(every) else None
        about = {"resourceVersion": str(self.version), "continue": more}
        return web.json_response({"metadata": about, "items": every[first : first + limit]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "application/json"})
        await answer.prepare(request)
        queue: asyncio.Queue[Document | None] = asyncio.Queue()
        self._watches.append(queue)
        try:
            while (event := await queue.get()) is not None:
                await answer.write(json.dumps(event).encode() + b"\n")
        finally:
            self._watches.remove(queue)
        return answer

    async def patch(self, request: web.Request) -> web.Response:
        await self._refuse(request, "nodes")
        name, body = request.match_info["name"], await request.json()
        if name in self.never:
            self.refusals[name] += 1
            raise _refusal(422)
        wanted = body["metadata"].get("resourceVersion")
        if wanted != self.nodes[name]["metadata"]["resourceVersion"]:
            raise _refusal(409)
        self.patches.append((name, body))
        self.put(apply(self.nodes[name], body))
        return web.json_response(self.nodes[name])

    async def event(self, request: web.Request) -> web.Response:
        await self._refuse(request, "events")
        self.events.append(await request.json())
        return web.json_response(self.events[-1], status=201)

    async def read_lease(self, request: web.Request) -> web.Response:
        self.asked_for_lease += 1
        await self._refuse(request, "leases")
        if self.lease is None:
            raise _refusal(404)
        return web.json_response(self.lease)

    async def write_lease(self, request: web.Request) -> web.Response:
        await self._refuse(request, "leases")
        body = await request.json()
        if (
            self.lease
            and body["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]
        ):
            raise _refusal(409)
        self.hold(body)
        return web.json_response(self.lease)

    def hold(self, lease: Mapping[str, Any]) -> None:
        self.version += 1
        self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self.version)}}

    async def maintenance(self, request: web.Request) -> web.Response:
        await self._refuse(request, "maintenance")
        return web.json_response({})

    async def _refuse(self, request: web.Request, kind: str) -> None:
        self.tokens.add(request.headers.get("authorization", ""))
        self.order.append((request.method, kind))
        due = self.refused.get((request.method, kind))
        if due:
            status = due.pop(0)
            if not status:
                await asyncio.sleep(3600)
            raise _refusal(status)


def _refusal(status: int) -> web.HTTPException:
    made: web.HTTPException = type("Refusal", (web.HTTPException,), {"status_code": status})(
        text=json.dumps({"kind": "Status", "code": status, "message": "refused by the test"}),
        content_type="application/json",
    )
    return made


@asynccontextmanager
async def serving(api: NodesApi, folder: Path) -> AsyncIterator[ApiEndpoint]:
    """Where a client finds it, with a token and a CA in `folder`."""
    authority = Authority(folder, "ca")
    pair = authority.pair("api")
    (folder / "ca.crt").write_bytes(authority.file.read_bytes())
    (folder / "token").write_text(f"{TOKEN}\n", "ascii")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    app = web.Application()
    leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    app.router.add_get("/api/v1/nodes", api.list)
    app.router.add_patch("/api/v1/nodes/{name}", api.patch)
    app.router.add_post("/api/v1/namespaces/default/events", api.event)
    app.router.add_get(leases + "/{name}", api.read_lease)
    app.router.add_put(leases + "/{name}", api.write_lease)
    app.router.add_post(leases, api.write_lease)
    maintenance = "/apis/nvsentinel.dgxc.nvidia.com/v1/maintenancerequests"
    app.router.add_post(maintenance, api.maintenance)
    app.router.add_delete(maintenance + "/{name}", api.maintenance)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield ApiEndpoint("127.0.0.1", runner.addresses[0][1], folder, "here")
    finally:
        api.say(None)
        await runner.cleanup()
