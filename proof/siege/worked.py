"""`wirewatch serve` over a recording, whose probes are run by real workers that take most of a second."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.node.daemon.proberprocess import Real
from wirewatch.__main__ import main as wirewatch
from wirewatch.cli import hardware
from wirewatch.probe.runner import RunnerPorts

ROOT = Path(__file__).resolve().parents[2]
LATE = f"""
import sys, time
time.sleep(0.7)
sys.path.insert(0, {str(ROOT)!r})
from tests.node.probe.workers import Ends, good
good(Ends(*map(int, sys.argv[1:3])))
"""


def main() -> None:
    made = hardware.replayed

    def replayed(*arguments: Any, **options: Any) -> Any:
        node, nvml = made(*arguments, **options)
        around = RunnerPorts(nvml, node.sysfs, node.clock)
        return replace(node, probe=Real(around, None, command=("-I", "-S", "-c", LATE))), nvml

    hardware.replayed = replayed
    wirewatch()


if __name__ == "__main__":
    main()
