"""A prober that knows of no scheduler and probes back to back: `python -m tests.system.hold_node FOLDER`.

It goes on until it is killed. GPUs are drawn; gate, runner, worker process and holds are the real ones.
FOLDER/probes/pid names the newest worker. FOLDER/probes/spans has a line for each probe: Unix seconds of its
begin and end, how it ended, and why.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.node.probe.idle import Idle
from tests.node.probe.workers import COMMAND, PID_FILE, WHICH
from wirewatch.hw.host import SystemClock
from wirewatch.probe.gate import Refusal, Stillness
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.runner import ProbeRunner, RunnerPorts
from wirewatch.probe.setup import ProbeRequest, prepare

LASTS, PAUSE = 1.0, 0.02
"""Seconds of a probe that nobody ends, and between two."""


class Equipped(ProbeRunner):
    """With an engine, which the worker of a test does not need."""

    def engine(self, wanted: str) -> str:  # noqa: ARG002 - whatever is wanted
        return "nccl"


def main() -> None:
    folder, idle = Path(sys.argv[1]), Idle(2)
    inherited = {**os.environ, WHICH: "silent", PID_FILE: str(folder / "probes" / "pid")}
    around = RunnerPorts(idle.gpus, idle.files, SystemClock())
    runner = Equipped(around, None, inherited, COMMAND, str(folder / "holds"))
    wanted = ProbeRequest(ProbeOptions(settle=0.0, kill_after=LASTS), "daemon")
    with (folder / "probes" / "spans").open("a", buffering=1, encoding="utf-8") as spans:
        while True:
            prepared = prepare(replace(idle.hardware, probe=runner), wanted, Stillness())
            began, order = time.time(), prepared.order
            if isinstance(order, Refusal):
                spans.write(f"{began} {began} {order.reason.value} {order.detail}\n")
            else:
                probed = runner.run(order)
                spans.write(f"{began} {time.time()} {probed.outcome} {probed.seconds} {probed.why}\n")
            time.sleep(PAUSE)


if __name__ == "__main__":
    main()
