"""Memories of collectors about the machine, kept in the state folder; another machine's are put aside."""

import logging
import queue
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any

from pydantic import TypeAdapter, ValidationError

from wirewatch.collectors.infiniband import InfinibandFacts
from wirewatch.collectors.inventory import InventoryFacts
from wirewatch.core.collector import AnyCollector, Component
from wirewatch.core.machine import READERS, Machine, foreign, gpu_names, is_decided, nic_names, united
from wirewatch.core.ports import Clock, Hardware, Sysfs
from wirewatch.core.types import value_or
from wirewatch.daemon.persistence import StateFile, StateWriter, put_aside, reason, write
from wirewatch.statefolder import StateFolder

log = logging.getLogger(__name__)
VERSION = 1
PATIENCE = 1.0
"""Seconds in which the files that name the machine are read, most of it for a driver that hangs."""


@dataclass(frozen=True, slots=True)
class MachineFile:
    """The file's content; `at`: when it was written (Unix seconds); `parts`: what each collector keeps."""

    version: int
    at: float
    machine: Machine
    parts: Mapping[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class KeptMachine:
    """The memory of the machine to begin with; `parts` by collector, as the file holds them.

    `machine`: the names of this machine. `wrong`: why the file is unusable, `foreign`: why it is another's.
    """

    machine: Machine = field(default_factory=Machine)
    parts: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    wrong: str = ""
    foreign: str = ""


FILE = StateFile(TypeAdapter(MachineFile), version=VERSION)


class MachineWriter:
    """Writes what collectors keep when it is new, to `path` if given; only the event loop calls it."""

    def __init__(
        self, path: Path | None, kept: KeptMachine, collectors: Iterable[AnyCollector], clock: Clock
    ) -> None:
        self._clock = clock
        self._lasting = {one.name: one.lasting for one in collectors if one.lasting is not None}
        self._machine, self._parts = kept.machine, dict(kept.parts)
        loss = "what is remembered of the machine would be lost with a restart"
        self._writer = StateWriter(path, self.save, loss, clock)
        self.flush, self.submit = self._writer.flush, self._writer.submit

    def changed(self, component: Component) -> None:
        """Take a component's new memory and facts, and write what is to be kept of them if it is new."""
        lasting, parts = self._lasting.get(component.name), self._parts
        if lasting is not None and component.last_success:
            kept = TypeAdapter(lasting.kept).dump_python(lasting.keep(component.memory), mode="json")
            parts = {**parts, component.name: kept}
        machine = _known(self._machine, component)
        if (machine, parts) == (self._machine, self._parts):
            self._writer.try_again()
            return
        self._machine, self._parts = machine, parts
        self._writer.submit()

    def save(self, path: Path) -> str:
        """Write what is kept now; returns the trouble, "" for none."""
        kept = MachineFile(VERSION, self._clock.now(), self._machine, self._parts)
        return write(path, FILE.encoded(kept))


def identify_machine(sysfs: Sysfs) -> Machine:
    """The machine as its files identify it, within `PATIENCE`; a part whose driver hangs is not known."""
    read: queue.SimpleQueue[Machine] = queue.SimpleQueue()
    for reader in READERS:
        Thread(target=lambda reader=reader: read.put(reader(sysfs)), daemon=True).start()
    here, end = Machine(), time.monotonic() + PATIENCE
    try:
        for _ in READERS:
            here = united(here, read.get(timeout=max(end - time.monotonic(), 0.0)))
    except queue.Empty:
        log.warning("not all files that name this machine could be read within %g s", PATIENCE)
    return here


def read_kept(
    path: Path, collectors: Sequence[AnyCollector], hardware: Hardware,
    identify: Callable[[Sysfs], Machine] = identify_machine,
) -> KeptMachine:  # fmt: skip
    """The content of the file, if it is this machine's; the file stays where it is."""
    here = identify(hardware.sysfs)
    kept = FILE.read(path)
    if kept is None:
        return KeptMachine(here)
    if isinstance(kept, str):
        return KeptMachine(here, wrong=kept)
    try:
        recalled(collectors, KeptMachine(parts=kept.parts))
    except ValidationError as error:
        return KeptMachine(here, wrong=f"{path}: {reason(error)}")
    if not is_decided(kept.machine, here):
        # Files do not name its GPUs: the driver is waited for.
        gpus = value_or(hardware.nvml.gpus(), ())
        here = _named(here, gpu_names(gpu.uuid for gpu in gpus))
    why = foreign(kept.machine, here)
    if why:
        return KeptMachine(here, foreign=f"{path} is of another machine: {why}")
    return KeptMachine(united(here, kept.machine), kept.parts)


def load_kept(state: StateFolder, collectors: Sequence[AnyCollector], hardware: Hardware) -> KeptMachine:
    """Return the file's content for the agent that owns it, with a file that cannot be parsed put aside.

    All memories of another machine are, too: the state folder came with an image or a disk.
    """
    kept, at = read_kept(state.machine, collectors, hardware), hardware.clock.now()
    if kept.foreign:
        moved = [str(one) for one in (put_aside(path, at) for path in state.memories) if str(one)]
        log.warning("%s; nothing of it counts here: %s", kept.foreign, "; ".join(moved))
    if kept.wrong:
        wrong = f"{kept.wrong}; {put_aside(state.machine, at)}"
        log.error("%s", wrong)
        return replace(kept, wrong=wrong)
    return kept


def recalled(collectors: Sequence[AnyCollector], kept: KeptMachine) -> tuple[AnyCollector, ...]:
    """The collectors, each of which begins with what is kept of its memory."""
    return tuple(_begun(one, kept.parts[one.name]) if one.name in kept.parts else one for one in collectors)


def _begun(collector: AnyCollector, part: dict[str, Any]) -> AnyCollector:
    lasting = collector.lasting
    if lasting is None:
        return collector
    return replace(collector, start=lasting.recall(TypeAdapter(lasting.kept).validate_python(part)))


def _known(machine: Machine, component: Component) -> Machine:
    facts = component.facts
    if isinstance(facts, InventoryFacts):
        return _named(machine, gpu_names(facts.gpus[key].gpu.uuid for key in facts.answering))
    if isinstance(facts, InfinibandFacts):
        return _named(machine, nic_names(card.guid for card in facts.devices.values()))
    return machine


def _named(machine: Machine, names: Iterable[str]) -> Machine:
    return replace(machine, names=tuple(sorted({*machine.names, *names})))
