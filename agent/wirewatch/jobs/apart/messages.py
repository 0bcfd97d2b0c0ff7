"""Messages between the agent and the process that watches jobs, which connections pickle.

Both ends are this program, of one user: a pickle crosses no boundary of rights here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wirewatch.core.fold import Step

OUT_OF_MEMORY = 3
"""Exit status of the process."""
ASKED: Mapping[str, frozenset[str]] = {
    "nvml": frozenset({"session", "gpus", "ask"}),
    "sysfs": frozenset({"read", "data", "entries", "link"}),
    "ras": frozenset({"ask", "listeners"}),
}
"""Ports that the agent answers for, with their methods; `sysfs` and `ras` only of a recording."""


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """Where jobs leave what is read: folders of the tap and of NCCL Inspector, and addresses of RAS.

    `live`: this machine's; else rings of this machine beside a recording, whose ports the agent has.
    """

    live: bool
    rings: str
    inspector: str = ""
    ras: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunOrder:
    """An order to run one collector.

    `around`: the surroundings in which its reading is judged, None for none. `kept`: the lasting part of its
    memory, for a process that has just started; None where none is kept.
    """

    name: str
    options: Any
    policy: Any
    around: Any = None
    kept: Any = None


@dataclass(frozen=True, slots=True)
class PortQuestion:
    """A question to a port of the agent."""

    port: str
    method: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class PortAnswer:
    """The answer of a port; `error`: its exception in words, "" for none."""

    value: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Logged:
    """A line that was logged during a run: logger, level and text."""

    name: str
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a run, without the memory, which stays in the process; `kept` is its lasting part."""

    step: Step
    kept: Any = None
    logged: tuple[Logged, ...] = ()
