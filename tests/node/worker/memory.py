"""An engine without hardware, and a worker that knows it: `python -m tests.node.worker.memory`.

Its plan's `log` may tell at which step it fails: `step` or `step:kind`.
"""

import sys
from collections.abc import Collection, Mapping, Sequence

from wirewatch.core.hostlink import HostCopies
from wirewatch.core.probe import Case, Copy, ErrorKind, Micro, Plan, Timed, rounds
from wirewatch.worker.__main__ import ENGINES, main
from wirewatch.worker.run import EngineError


class MemoryEngine:
    """Tells what it was asked in `asked`."""

    leads = True

    def __init__(
        self, plan: Plan, fails: str = "", kind: ErrorKind = "driver", lacks: Collection[str] = ()
    ) -> None:
        self._plan = plan
        self._lacks = lacks
        self._fails = fails
        self._kind = kind
        self.asked: list[str] = []
        self._step("load")

    def _step(self, name: str) -> None:
        self.asked.append(name)
        if name == self._fails:
            raise EngineError(self._kind, f"{name} fails")

    def versions(self) -> Mapping[str, str]:
        return {"memory": "1.0"}

    def contexts(self) -> None:
        sys.stdout.write("a library's chatter\n")
        self._step("contexts")

    def communicators(self) -> None:
        self._step("communicators")

    def offers(self, op: str) -> bool:
        return op not in self._lacks

    def collective(self, case: Case) -> Timed:
        self._step(f"{case.op}.{case.group}.{case.size_bytes}.{case.launch}")
        runs = case.iterations
        return Timed(
            case.group, case.op, case.size_bytes, case.launch, runs, runs + 1, 2e-3, 1e-3, 2e-3, 3e-3, 0
        )

    def copies(self) -> Sequence[Copy]:
        self._step("copies")
        pairs = [pair for played in rounds(len(self._plan.gpus)) for pair in played]
        return [Copy(a, b, self._plan.copy_bytes, 1e-3, 3, direct=True) for a, b in pairs]

    def micros(self) -> Sequence[Micro]:
        self._step("micros")
        return [Micro(g, 1e-3, 1e-3, 1e-3, 8, 1e-3, 1e-3, 1e-3) for g in range(len(self._plan.gpus))]

    def hosts(self) -> Sequence[HostCopies] | str:
        self._step("hosts")
        if "hosts" in self._lacks:
            return "nothing is pinned here"
        ms = 1e-3
        return [
            HostCopies(g, self._plan.host_bytes, ms, ms, ms, ms, ms, ms, ms, 20, None)
            for g in range(len(self._plan.gpus))
        ]

    def kernel_seconds(self) -> Sequence[float]:
        return [0.5] * len(self._plan.gpus)


def of_plan(plan: Plan) -> MemoryEngine:
    return MemoryEngine(plan, plan.log)


if __name__ == "__main__":
    ENGINES["memory"] = of_plan
    main()
