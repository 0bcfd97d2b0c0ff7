"""The exit codes of all commands, in one table. Imported in milliseconds."""

from enum import IntEnum

from wirewatch.core.types import Health


class Exit(IntEnum):
    """How a command ends. 0 to 3 are verdicts; of a command that gives none, 0 says that it is done.

    The other codes are as in sysexits.h: wrong usage, or an order that the daemon refuses; no answer of the
    daemon, the driver, Prometheus or a scheduler; an internal error, or ended before it was done; a wrong
    configuration.
    """

    OK = 0
    DEGRADED = 1
    FAILED = 2
    UNKNOWN = 3
    USAGE = 64
    NO_ANSWER = 69
    INTERNAL = 70
    CONFIG = 78


def exit_of(health: Health) -> Exit:
    """The exit code of a verdict."""
    return Exit[health.name]
