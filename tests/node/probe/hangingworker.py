"""The real worker with an engine that hangs while it is loaded."""

import time

from tests.node.probe.workers import write_pid
from wirewatch.core.probe import Plan
from wirewatch.worker.__main__ import ENGINES, main
from wirewatch.worker.run import Engine, EngineError


def hang(_plan: Plan) -> Engine:
    write_pid()
    time.sleep(3600)
    raise EngineError("internal", "slept out")


if __name__ == "__main__":
    ENGINES["nccl"] = hang
    main()
