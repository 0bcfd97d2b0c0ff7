"""wirewatch's own command line on a node whose GPUs are a recording's and whose Slurm is the real one.

A probe answers with the recorded one after as long as that took, under the real lock, and is kept as real
ones are. Run as `python tests/system/gate_node.py check ...`.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import LazyLoader, find_spec, module_from_spec
from typing import TYPE_CHECKING

from wirewatch.__main__ import main

if TYPE_CHECKING:
    from wirewatch.config import Config
    from wirewatch.core.ports import Hardware, Order, Probe
    from wirewatch.core.probe import Probed
    from wirewatch.hw.nvml.client import NvmlClient
    from wirewatch.probe.holds import HoldFolder
    from wirewatch.statefolder import StateFolder

RECORDING = "h200x2-idle"
PORTS = "wirewatch.cli.hardware"


class LockedProbe:
    """The recorded probe, run by whoever asks and by one at a time."""

    def __init__(self, recorded: "Probe", state: "StateFolder", holds: "HoldFolder") -> None:
        self._recorded = recorded
        self._state = state
        self.engine = recorded.engine
        self.settings = recorded.settings
        self.holds = holds.active

    @contextmanager
    def lock(self) -> Iterator[str | None]:
        from wirewatch.statefolder import Lock, lock_probe  # noqa: PLC0415 - as put_in_place says

        lock = lock_probe(self._state)
        if isinstance(lock, Lock):
            with lock:
                yield None
        else:
            yield str(lock)

    def run(self, order: "Order") -> "Probed":
        began = time.time()
        return replace(self._recorded.run(order), by=order.by, at=began)


def live(
    config: "Config", *, timed: bool = False, state: "StateFolder | None" = None
) -> "tuple[Hardware, NvmlClient]":
    """In place of this machine's ports."""
    from wirewatch.cli.hardware import replayed  # noqa: PLC0415 - as put_in_place says
    from wirewatch.hw.slurm import SystemSlurm  # noqa: PLC0415 - as put_in_place says
    from wirewatch.probe.holds import HoldFolder  # noqa: PLC0415 - as put_in_place says

    assert state is not None
    assert not timed
    node, nvml = replayed(RECORDING, (), loop=False)
    holds = HoldFolder(config.probe.holds)
    slurm = SystemSlurm(config.slurm.node, config.slurm.conf)
    return replace(node, slurm=slurm, probe=LockedProbe(node.probe, state, holds)), nvml


def put_in_place() -> None:
    """Change the ports of whichever command needs them; one that does not shall not wait for their import."""
    spec = find_spec(PORTS)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    sys.modules[PORTS] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[PORTS])
    vars_of(sys.modules[PORTS])["live"] = live


def vars_of(module: object) -> dict[str, object]:
    """Its names, without the look at one that would load it."""
    found: dict[str, object] = object.__getattribute__(module, "__dict__")
    return found


if __name__ == "__main__":
    put_in_place()
    main()
