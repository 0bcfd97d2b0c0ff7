"""A writer of the node condition on a clock that is moved by hand."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.node.kubernetes.apiserver import NODE, ApiServer
from tests.support import StillClock
from wirewatch.daemon.nodecondition import ConditionOptions, ConditionWriter
from wirewatch.kubernetes.apiserver import ApiEndpoint
from wirewatch.verdict.node import Judged

DEADLINE = 5.0


@dataclass
class Rig:
    """A writer on a clock that is moved by hand; to be used within one event loop."""

    clock: StillClock
    writer: ConditionWriter

    async def go(self, node: Judged, seconds: float, *, turning: bool = True, every: float = 5.0) -> None:
        """Look, and write what is due, for so long."""
        end = self.clock.seconds + seconds
        while self.clock.seconds < end:
            self.writer.observe(node, turning=turning)
            await self.writer.write()
            self.clock.seconds += every

    def counted(self) -> dict[str, int]:
        return {result.value: count for result, count in self.writer.report.updates.items() if count}


def rig(api: ApiServer, deadline: float = DEADLINE, host: str = "127.0.0.1", node: str = NODE) -> Rig:
    clock = StillClock()
    where = ApiEndpoint(host, api.port, api.folder, node)
    return Rig(clock, ConditionWriter(where, ConditionOptions(deadline=deadline), clock, lambda: 0.5))


def played(api: ApiServer, story: Callable[[Rig], Any], **how: Any) -> Rig:
    """A rig after a story."""

    async def tell() -> Rig:
        made = rig(api, **how)
        await story(made)
        return made

    return asyncio.run(tell())
