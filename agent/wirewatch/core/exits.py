"""The exit codes of all commands, in one table. Imported in milliseconds."""

from collections.abc import Mapping
from enum import IntEnum

from wirewatch.core.types import Health


class Exit(IntEnum):
    """How a command ends. 0 to 3 are verdicts; of a command that gives none, 0 says that it is done.

    The other codes are those of sysexits.h.
    """

    OK = 0
    DEGRADED = 1
    FAILED = 2
    UNKNOWN = 3
    USAGE = 64
    NO_ANSWER = 69
    INTERNAL = 70
    CONFIG = 78


MEANING: Mapping[Exit, str] = {
    Exit.OK: "the verdict OK; of a command without a verdict: done",
    Exit.DEGRADED: "the verdict DEGRADED",
    Exit.FAILED: "the verdict FAILED",
    Exit.UNKNOWN: "the verdict UNKNOWN; a command with a verdict ends so without a daemon",
    Exit.USAGE: "wrong usage, or the daemon refuses the order",
    Exit.NO_ANSWER: "no answer of the daemon, of the node's driver, of Prometheus or of a scheduler",
    Exit.INTERNAL: "an internal error, or the command was ended before it was done",
    Exit.CONFIG: "wrong configuration; also a port in use, or a second daemon on one state folder",
}


def exit_of(health: Health) -> Exit:
    """The exit code of a verdict."""
    return Exit[health.name]
