"""The real worker with an engine that hangs while it is loaded."""

import os
import time
from pathlib import Path

from tests.probe.workers import PID_FILE
from wirewatch.core.probe import Plan
from wirewatch.worker.__main__ import ENGINES, main
from wirewatch.worker.run import Engine, EngineError


def hang(_plan: Plan) -> Engine:
    Path(os.environ[PID_FILE]).write_text(str(os.getpid()), "utf-8")
    time.sleep(3600)
    raise EngineError("internal", "slept out")


if __name__ == "__main__":
    ENGINES["nccl"] = hang
    main()
